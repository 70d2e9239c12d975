/* Calls to a peer's handshake port (classic specification 3.4 to 3.7), and the dialect's table. */
#include <glib.h>
#include <json-c/json.h>
#include <string.h>

#include "classic/dialect.h"
#include "core/clock.h"
#include "core/engine.h"
#include "core/exchange.h"
#include "core/log.h"
#include "wire/classic/descriptor.h"
#include "wire/classic/frame.h"
#include "wire/classic/json_text.h"
#include "wire/classic/notification.h"

enum { ADDRESSES_MAX = 8, RECEIVE_BYTES = 64 * 1024 };

/* A call: one frame out, one frame back. */
struct call {
    struct te_engine *engine;
    uint8_t type;
    const char *text;
    size_t length;
    struct te_frame_decoder decoder; /* holds the reply after success */
    bool sent;                       /* the whole request was handed to the system: the peer may have acted on it */
};

static te_status send_request(struct call *call, const struct te_exchange *exchange)
{
    struct te_frame frame = {.has_type = true, .type = call->type, .text = call->text, .length = call->length};
    GString *bytes = g_string_sized_new(call->length + 16);
    te_status status;

    te_frame_encode(bytes, &frame);
    status = te_exchange_send(exchange, bytes->str, bytes->len);
    call->sent = status == TE_OK;
    g_string_free(bytes, TRUE);
    return status;
}

static te_status receive_reply(struct call *call, const struct te_exchange *exchange)
{
    char bytes[RECEIVE_BYTES];
    size_t wanted, received, taken;
    struct te_frame reply;

    while ((wanted = te_frame_decoder_wanted(&call->decoder)) > 0) {
        te_status status = te_exchange_receive(exchange, bytes, MIN(wanted, sizeof(bytes)), &received);

        if (status == TE_OK)
            status = te_frame_decoder_feed(&call->decoder, bytes, received, &taken);
        if (status != TE_OK)
            return status;
    }
    reply = te_frame_decoder_frame(&call->decoder);
    if (!reply.has_type || reply.type != call->type)
        return te_fail(TE_SOCKET, "the answer is of another type than the request");
    return TE_OK;
}

static te_status call_address(struct call *call, const struct te_address *address, int64_t connect_deadline_ns)
{
    const struct te_settings *settings = &call->engine->settings;
    struct te_exchange exchange;
    te_status status = te_exchange_connect(&exchange, call->engine, address, connect_deadline_ns);

    if (status != TE_OK)
        return status;
    exchange.deadline_ns = te_now_ns() + (int64_t)settings->handshake_reply_timeout_ms * TE_NS_PER_MS;
    te_frame_decoder_clear(&call->decoder);
    status = send_request(call, &exchange);
    if (status == TE_OK)
        status = receive_reply(call, &exchange);
    te_exchange_close(&exchange);
    return status;
}

/* Connects to each address of the host in turn until one answers. All of them share twice the time for one. After a
 * failure the message names the peer. */
static te_status make_call(struct call *call, const char *host, uint16_t port, bool repeatable)
{
    const struct te_settings *settings = &call->engine->settings;
    struct te_address addresses[ADDRESSES_MAX];
    char text[TE_ADDRESS_TEXT_MAX], name[TE_ADDRESS_TEXT_MAX];
    int64_t connect_ns = (int64_t)settings->handshake_connect_timeout_seconds * TE_NS_PER_SECOND;
    int64_t end_ns = te_now_ns() + 2 * connect_ns;
    size_t count;
    te_status status = te_address_resolve(host, port, settings->use_ipv6, addresses, ADDRESSES_MAX, &count);

    te_frame_decoder_init(&call->decoder, settings->handshake_maximum_length);
    call->sent = false;
    if (status != TE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        status = call_address(call, &addresses[i], MIN(te_now_ns() + connect_ns, end_ns));
        if (status == TE_OK)
            return TE_OK;
        te_address_text(&addresses[i], text, sizeof(text));
        if (call->sent && !repeatable)
            break;
    }
    te_frame_decoder_clear(&call->decoder);
    te_server_name_join(host, port, name, sizeof(name));
    if (strcmp(name, text) == 0)
        return te_fail(status, "%s: %s", text, te_status_message());
    return te_fail(status, "%s (%s): %s", name, text, te_status_message());
}

/* make_call with the text of the request, which it frees. */
static te_status call_with_text(struct call *call, GString *text, const char *host, uint16_t port, bool repeatable)
{
    te_status status;

    call->text = text->str;
    call->length = text->len;
    status = make_call(call, host, port, repeatable);
    g_string_free(text, TRUE);
    return status;
}

/* As a real engine does, the request carries the own descriptor, of which the peer makes no use; one that is too long
 * for the peer is left out. */
static te_status fetch_descriptor(struct te_engine *engine, const char *host, uint16_t port,
                                  struct te_segment_descriptor **descriptor)
{
    struct te_shared_text *own = te_classic_local_text(engine);
    struct call call = {.engine = engine, .type = TE_FRAME_METADATA, .text = "{}\n", .length = 3};
    struct te_frame reply;
    te_status status;

    if (own != NULL && own->length < TE_FRAME_DEFAULT_LIMIT) {
        call.text = own->bytes;
        call.length = own->length;
    }
    status = make_call(&call, host, port, true);
    te_shared_text_unref(own);
    if (status != TE_OK)
        return status;
    reply = te_frame_decoder_frame(&call.decoder);
    status = te_descriptor_read(reply.text, reply.length, descriptor);
    te_frame_decoder_clear(&call.decoder);
    if (status != TE_OK)
        return te_fail(status, "%s:%u: its descriptor is refused: %s", host, port, te_status_message());
    return TE_OK;
}

static te_status notify(struct te_engine *engine, const char *host, uint16_t port, const char *name, size_t name_length,
                        const char *message, size_t message_length, bool *sent)
{
    GString *text = g_string_new(NULL);
    struct call call = {.engine = engine, .type = TE_FRAME_NOTIFY};
    struct te_frame reply;
    te_status status;

    te_notify_request_write(text, name, name_length, message, message_length);
    status = call_with_text(&call, text, host, port, false);
    *sent = call.sent;
    if (status != TE_OK)
        return status;
    reply = te_frame_decoder_frame(&call.decoder);
    status = te_notify_reply_read(reply.text, reply.length);
    te_frame_decoder_clear(&call.decoder);
    if (status != TE_OK)
        return te_fail(status, "%s:%u: %s", host, port,
                       status == TE_METADATA ? "it refused the notification" : te_status_message());
    return TE_OK;
}

static te_status check_notification(struct te_engine *engine, const char *name, size_t name_length, const char *message,
                                    size_t message_length)
{
    size_t limit = engine->settings.handshake_maximum_length;
    GString *text;
    size_t length;

    /* Encoded it is at least as long, and at most six times. */
    if (name_length < limit / 8 && message_length < limit / 16)
        return TE_OK;
    if (name_length >= limit || message_length >= limit - name_length)
        return te_fail(TE_INVALID_ARGUMENT, "a notification of %zu bytes is too long: at most %zu with its escapes",
                       name_length + message_length, limit);
    text = g_string_new(NULL);
    te_notify_request_write(text, name, name_length, message, message_length);
    length = text->len;
    g_string_free(text, TRUE);
    if (length + 1 > limit)
        return te_fail(TE_INVALID_ARGUMENT, "a notification of %zu bytes takes %zu as a message: at most %zu",
                       name_length + message_length, length + 1, limit);
    return TE_OK;
}

static te_status probe(struct te_engine *engine, const char *host, uint16_t port)
{
    GString *text = g_string_new(NULL);
    struct call call = {.engine = engine, .type = TE_FRAME_PROBE};
    struct te_frame reply;
    te_status status;

    te_probe_request_write(text);
    status = call_with_text(&call, text, host, port, true);
    if (status != TE_OK)
        return status;
    reply = te_frame_decoder_frame(&call.decoder);
    status = te_probe_reply_read(reply.text, reply.length);
    te_frame_decoder_clear(&call.decoder);
    return status;
}

te_status te_classic_connect_message(struct te_engine *engine, const char *host, uint16_t port,
                                     const struct te_handshake *request, struct te_handshake *reply)
{
    GString *text = g_string_new(NULL);
    struct call call = {.engine = engine, .type = TE_FRAME_CONNECTION};
    struct te_frame frame;
    te_status status;

    te_handshake_write(text, request);
    status = call_with_text(&call, text, host, port, false);
    if (status != TE_OK)
        return status;
    frame = te_frame_decoder_frame(&call.decoder);
    status = te_handshake_read(frame.text, frame.length, reply);
    te_frame_decoder_clear(&call.decoder);
    if (status != TE_OK)
        return status;
    if (reply->reply_message[0] != '\0') {
        status = te_fail(TE_METADATA, "%s:%u rejects the connection: %s", host, port, reply->reply_message);
        te_handshake_clear(reply);
    }
    return status;
}

/* A frame begins with its length, little endian, which no setting allows to need more than four bytes. */
static enum te_recognition recognise(const uint8_t *bytes, size_t length)
{
    size_t known = MIN(length, (size_t)TE_FRAME_LENGTH_BYTES);
    bool zero = true;

    for (size_t i = 4; i < known; i++)
        if (bytes[i] != 0)
            return TE_RECOGNISE_NO;
    if (known < TE_FRAME_LENGTH_BYTES)
        return TE_RECOGNISE_NEED_MORE;
    for (size_t i = 0; i < 4; i++)
        zero &= bytes[i] == 0;
    return zero ? TE_RECOGNISE_NO : TE_RECOGNISE_YES;
}

const struct te_dialect_ops te_classic_dialect = {
    .name = "classic",
    .recognise = recognise,
    .serve = te_classic_serve,
    .fetch_descriptor = fetch_descriptor,
    .notify = notify,
    .probe = probe,
    .check_notification = check_notification,
};
