/* Notifications through the C API. */
#include "classic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/notification.h"

notify_msg_t *te_classic_get_notifs_from_engine(struct te_classic *classic, int *count)
{
    struct te_inbox *inbox = classic->engine->inbox;
    size_t waiting = te_inbox_count(inbox);
    notify_msg_t *messages;
    int taken = 0;

    if (count == NULL)
        return NULL;
    *count = 0;
    if (waiting == 0)
        return NULL;
    messages = malloc(waiting * sizeof(*messages));
    if (messages == NULL)
        return NULL;
    while ((size_t)taken < waiting && te_inbox_take(inbox, &messages[taken].name, &messages[taken].msg))
        taken++;
    if (taken == 0) {
        free(messages);
        return NULL;
    }
    *count = taken;
    return messages;
}

int te_classic_gen_notify_in_engine(struct te_classic *classic, uint64_t segment_id, notify_msg_t message)
{
    struct te_engine *engine = classic->engine;
    struct te_segment *segment =
        segment_id <= INT32_MAX ? te_segment_find(engine->segments, (int64_t)segment_id) : NULL;
    size_t name_length, text_length;
    te_status status;

    if (message.name == NULL || message.msg == NULL)
        return te_fail(TE_INVALID_ARGUMENT, "the text of a notification is a null pointer");
    if (segment == NULL)
        return te_fail(TE_METADATA, "no segment with id %" G_GUINT64_FORMAT, segment_id);
    name_length = strlen(message.name);
    text_length = strlen(message.msg);
    status = te_notification_check(engine, message.name, name_length, message.msg, text_length);
    if (status == TE_OK)
        status = te_notifier_send(engine->notifier, segment, message.name, name_length, message.msg, text_length);
    if (status != TE_OK)
        te_log_limited(TE_LOG_WARNING, "a notification to %s is not delivered: %s", te_segment_name(segment),
                       te_status_message());
    return status == TE_TIMED_OUT ? TE_SOCKET : status;
}
