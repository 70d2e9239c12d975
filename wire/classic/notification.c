#include "wire/classic/notification.h"

#include <json-c/json.h>

#include "wire/classic/json_text.h"

void te_notify_message_clear(struct te_notify_message *message)
{
    g_free(message->name);
    g_free(message->text);
    *message = (struct te_notify_message){0};
}

void te_notify_request_write(GString *text, const char *name, size_t name_length, const char *message,
                             size_t message_length)
{
    te_json_begin_object(text);
    te_json_key(text, "name");
    te_json_bytes(text, name, name_length, TE_JSON_KEEP_FOREIGN);
    te_json_key(text, "notify_msg");
    te_json_bytes(text, message, message_length, TE_JSON_KEEP_FOREIGN);
    te_json_end_object(text);
    te_json_end_line(text);
}

te_status te_notify_request_read(const char *text, size_t length, struct te_notify_message *message)
{
    struct te_notify_message result = {0};
    struct json_object *root;
    te_status status = te_json_parse_object(text, length, &root);

    if (status != TE_OK)
        return status;
    status = te_json_to_text(te_json_member(root, "name"), &result.name, &result.name_length);
    if (status == TE_OK)
        status = te_json_to_text(te_json_member(root, "notify_msg"), &result.text, &result.text_length);
    json_object_put(root);
    if (status != TE_OK) {
        te_notify_message_clear(&result);
        return status;
    }
    *message = result;
    return TE_OK;
}

void te_notify_reply_write(GString *text, bool accepted)
{
    const char *answer = accepted ? "success" : "";

    te_notify_request_write(text, "", 0, answer, strlen(answer));
}

te_status te_notify_reply_read(const char *text, size_t length)
{
    struct te_notify_message reply;
    bool accepted;
    te_status status = te_notify_request_read(text, length, &reply);

    if (status != TE_OK)
        return status;
    accepted = reply.text_length > 0;
    te_notify_message_clear(&reply);
    return accepted ? TE_OK : te_fail(TE_METADATA, "the peer did not accept the notification");
}

void te_probe_request_write(GString *text)
{
    te_json_begin_object(text);
    te_json_end_object(text);
    te_json_end_line(text);
}

void te_probe_reply_write(GString *text)
{
    te_json_begin_object(text);
    te_json_key(text, "status");
    te_json_string(text, "success");
    te_json_end_object(text);
    te_json_end_line(text);
}

te_status te_probe_reply_read(const char *text, size_t length)
{
    struct json_object *root;
    te_status status = te_json_parse(text, length, &root);

    if (status == TE_OK)
        json_object_put(root);
    return status;
}
