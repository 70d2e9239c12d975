#include "wire/classic/answer.h"

#include <json-c/json.h>

#include "wire/classic/json_text.h"

void te_classic_accept_connection(void *data, const struct te_handshake *request, struct te_handshake *reply)
{
    (void)data;
    (void)request;
    (void)reply;
}

static void answer_null(GString *text)
{
    te_json_null(text);
    te_json_end_line(text);
}

static te_status answer_connection(const struct te_frame *request, const struct te_classic_service *service,
                                   GString *text)
{
    struct te_handshake handshake, reply = {0};
    te_status status = te_handshake_read(request->text, request->length, &handshake);

    if (status != TE_OK)
        return status;
    service->connection(service->data, &handshake, &reply);
    te_handshake_write(text, &reply);
    te_handshake_clear(&reply);
    te_handshake_clear(&handshake);
    return TE_OK;
}

static te_status answer_notify(const struct te_frame *request, const struct te_classic_service *service, GString *text)
{
    struct te_notify_message message;
    te_status status = te_notify_request_read(request->text, request->length, &message);

    if (status != TE_OK)
        return status;
    te_notify_reply_write(text, service->notify(service->data, &message));
    te_notify_message_clear(&message);
    return TE_OK;
}

/* Only that the request is JSON matters for the answer. */
static te_status check_json(const struct te_frame *request)
{
    struct json_object *value;
    te_status status = te_json_parse(request->text, request->length, &value);

    if (status == TE_OK)
        json_object_put(value);
    return status;
}

static te_status answer_any(const struct te_frame *request, const struct te_classic_service *service, GString *text)
{
    te_status status;

    if (request->type == TE_FRAME_CONNECTION && service->connection)
        return answer_connection(request, service, text);
    if (request->type == TE_FRAME_NOTIFY && service->notify)
        return answer_notify(request, service, text);
    status = check_json(request);
    if (status != TE_OK)
        return status;
    if (request->type == TE_FRAME_PROBE)
        te_probe_reply_write(text);
    else if (request->type == TE_FRAME_METADATA && service->describe && service->describe(service->data, text))
        te_json_end_line(text);
    else
        answer_null(text);
    return TE_OK;
}

te_status te_classic_answer(const struct te_frame *request, const struct te_classic_service *service, GString *bytes)
{
    GString *text = g_string_new(NULL);
    te_status status = answer_any(request, service, text);

    if (status == TE_OK) {
        struct te_frame reply = {
            .has_type = request->has_type, .type = request->type, .text = text->str, .length = text->len};

        te_frame_encode(bytes, &reply);
    }
    g_string_free(text, TRUE);
    return status;
}
