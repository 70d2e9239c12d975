/* Notifications on their way to peers. */
#include "core/notification.h"

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/condition.h"
#include "core/engine.h"
#include "core/log.h"
#include "core/peer.h"
#include "core/peer_address.h"
#include "core/stores/store.h"

struct te_outgoing {
    struct te_notifier *notifier;
    struct te_segment *segment;
    struct te_segment_descriptor *descriptor; /* of the peer when the message was made; may be NULL */
    char *name, *text;
    size_t name_length, text_length;
};

/* The messages for one segment; there while there are any. */
struct line {
    struct te_notifier *notifier;
    struct te_segment *segment;
    GQueue messages;
};

struct te_notifier {
    struct te_engine *engine;
    _Atomic size_t count, bytes; /* of messages made and not freed */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    GHashTable *lines; /* by segment */
    bool stopped;
};

struct te_notifier *te_notifier_new(struct te_engine *engine)
{
    struct te_notifier *notifier = g_new0(struct te_notifier, 1);

    notifier->engine = engine;
    pthread_mutex_init(&notifier->lock, NULL);
    te_condition_init(&notifier->idle);
    notifier->lines = g_hash_table_new(NULL, NULL);
    return notifier;
}

static void free_messages(GQueue *messages)
{
    struct te_outgoing *message;

    while ((message = g_queue_pop_head(messages)) != NULL)
        te_outgoing_free(message);
}

void te_notifier_free(struct te_notifier *notifier)
{
    GHashTableIter iterator;
    gpointer line;

    g_hash_table_iter_init(&iterator, notifier->lines);
    while (g_hash_table_iter_next(&iterator, NULL, &line)) {
        free_messages(&((struct line *)line)->messages);
        g_free(line);
    }
    g_hash_table_unref(notifier->lines);
    pthread_mutex_destroy(&notifier->lock);
    pthread_cond_destroy(&notifier->idle);
    g_free(notifier);
}

/* Where the owner of a segment takes control messages, by what it said of itself and by the name it was opened under.
 */
static te_status find_targets(struct te_engine *engine, struct te_segment *segment,
                              const struct te_segment_descriptor *descriptor,
                              struct te_peer_target targets[TE_PEER_TARGETS], size_t *count)
{
    struct te_peer_target opened;
    te_status status =
        engine->store->ops->find_address(engine->store, te_segment_name(segment), opened.host, &opened.port);

    if (status != TE_OK)
        return status;
    *count = 1;
    targets[0] = opened;
    if (descriptor != NULL)
        *count = te_peer_control_targets(engine, descriptor, opened.host, opened.port, targets);
    return TE_OK;
}

/* *sent: the peer may have got it. */
static te_status send_message(struct te_engine *engine, struct te_segment *segment,
                              const struct te_segment_descriptor *descriptor, const char *name, size_t name_length,
                              const char *text, size_t text_length, bool *sent)
{
    struct te_peer_target targets[TE_PEER_TARGETS];
    size_t count;
    te_status status;

    *sent = false;
    if (te_segment_is_local(segment)) {
        if (te_inbox_put(engine->inbox, name, name_length, text, text_length))
            return TE_OK;
        return te_fail(TE_METADATA, "the engine's own queue of notifications is full");
    }
    status = find_targets(engine, segment, descriptor, targets, &count);
    if (status != TE_OK)
        return status;
    for (size_t i = 0; i < count && !*sent; i++) {
        status = te_peer_notify(engine, targets[i].host, targets[i].port, name, name_length, text, text_length, sent);
        if (status == TE_OK)
            break;
    }
    te_segment_note_call(segment, status);
    return status;
}

te_status te_notifier_send(struct te_notifier *notifier, struct te_segment *segment, const char *name,
                           size_t name_length, const char *text, size_t text_length)
{
    struct te_segment_view *view = te_segment_view_get(segment, NULL);
    bool sent;
    te_status status = send_message(notifier->engine, segment, view != NULL ? view->descriptor : NULL, name,
                                    name_length, text, text_length, &sent);

    te_segment_view_unref(view);
    return status;
}

te_status te_notification_check(struct te_engine *engine, const char *name, size_t name_length, const char *text,
                                size_t text_length)
{
    for (size_t i = 0; i < engine->dialect_count; i++) {
        te_status status = engine->dialects[i]->check_notification(engine, name, name_length, text, text_length);

        if (status != TE_OK)
            return status;
    }
    return TE_OK;
}

te_status te_outgoing_new(struct te_notifier *notifier, struct te_segment *segment, const char *name, const char *text,
                          struct te_outgoing **outgoing_p)
{
    size_t name_length = strlen(name), text_length = strlen(text);
    struct te_segment_view *view;
    struct te_outgoing *outgoing;
    te_status status = te_notification_check(notifier->engine, name, name_length, text, text_length);

    if (status != TE_OK)
        return status;
    if (atomic_load_explicit(&notifier->count, memory_order_relaxed) >= TE_NOTIFICATIONS_MAX ||
        atomic_load_explicit(&notifier->bytes, memory_order_relaxed) >= TE_NOTIFICATION_BYTES_MAX)
        return te_fail(TE_TOO_MANY_REQUESTS, "too many notifications are on their way");
    outgoing = g_try_new0(struct te_outgoing, 1);
    if (outgoing == NULL)
        return te_fail(TE_MEMORY, "no memory for a notification");
    outgoing->notifier = notifier;
    outgoing->segment = segment;
    view = te_segment_view_get(segment, NULL);
    if (view != NULL)
        outgoing->descriptor = te_segment_descriptor_ref(view->descriptor);
    te_segment_view_unref(view);
    outgoing->name = g_strdup(name);
    outgoing->name_length = name_length;
    outgoing->text = g_strdup(text);
    outgoing->text_length = text_length;
    atomic_fetch_add_explicit(&notifier->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&notifier->bytes, name_length + text_length, memory_order_relaxed);
    *outgoing_p = outgoing;
    return TE_OK;
}

void te_outgoing_free(struct te_outgoing *outgoing)
{
    struct te_notifier *notifier = outgoing->notifier;

    atomic_fetch_sub_explicit(&notifier->count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&notifier->bytes, outgoing->name_length + outgoing->text_length, memory_order_relaxed);
    te_segment_descriptor_unref(outgoing->descriptor);
    g_free(outgoing->name);
    g_free(outgoing->text);
    g_free(outgoing);
}

/* What waits for a peer that cannot be reached, twice in a row, is lost at once: each message would cost a time-out
 * more. */
enum { UNREACHABLE_MAX = 2 };

static void send_line(void *data)
{
    struct line *line = data;
    struct te_notifier *notifier = line->notifier;
    struct te_outgoing *message;
    unsigned unreachable = 0;

    pthread_mutex_lock(&notifier->lock);
    while ((message = g_queue_pop_head(&line->messages)) != NULL) {
        GQueue lost = G_QUEUE_INIT;
        te_status status;
        bool sent;

        pthread_mutex_unlock(&notifier->lock);
        status = send_message(notifier->engine, message->segment, message->descriptor, message->name,
                              message->name_length, message->text, message->text_length, &sent);
        unreachable = status == TE_OK || sent ? 0 : unreachable + 1;
        pthread_mutex_lock(&notifier->lock);
        if (unreachable == UNREACHABLE_MAX) {
            lost = line->messages;
            g_queue_init(&line->messages);
        }
        pthread_mutex_unlock(&notifier->lock);
        if (status != TE_OK)
            te_log_limited(TE_LOG_WARNING, "notification to %s lost (and %u more): %s", te_segment_name(line->segment),
                           g_queue_get_length(&lost), te_status_message());
        te_outgoing_free(message);
        free_messages(&lost);
        pthread_mutex_lock(&notifier->lock);
    }
    g_hash_table_remove(notifier->lines, line->segment);
    if (g_hash_table_size(notifier->lines) == 0)
        pthread_cond_broadcast(&notifier->idle);
    pthread_mutex_unlock(&notifier->lock);
    g_free(line);
}

void te_notifier_post(struct te_outgoing *outgoing)
{
    struct te_notifier *notifier = outgoing->notifier;
    struct line *line;

    pthread_mutex_lock(&notifier->lock);
    if (notifier->stopped) {
        pthread_mutex_unlock(&notifier->lock);
        te_outgoing_free(outgoing);
        return;
    }
    line = g_hash_table_lookup(notifier->lines, outgoing->segment);
    if (line == NULL) {
        line = g_new0(struct line, 1);
        line->notifier = notifier;
        line->segment = outgoing->segment;
        g_queue_init(&line->messages);
        g_hash_table_insert(notifier->lines, line->segment, line);
        te_worker_run(notifier->engine->workers, te_segment_work_rank(line->segment), send_line, line);
    }
    g_queue_push_tail(&line->messages, outgoing);
    pthread_mutex_unlock(&notifier->lock);
}

bool te_notifier_stop(struct te_notifier *notifier, int64_t timeout_ns)
{
    int64_t end_ns = te_now_ns() + timeout_ns;
    bool in_time = true;

    pthread_mutex_lock(&notifier->lock);
    while (g_hash_table_size(notifier->lines) > 0 && in_time)
        in_time = te_condition_wait_until(&notifier->idle, &notifier->lock, end_ns);
    notifier->stopped = true;
    in_time = g_hash_table_size(notifier->lines) == 0;
    pthread_mutex_unlock(&notifier->lock);
    return in_time;
}
