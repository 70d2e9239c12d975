/*
 * The handshake daemon (classic specification 3.1 to 3.3), as a state machine per connection:
 *
 *   receiving -> sending -> lingering -> gone
 *
 * One request is answered; then the sending side is closed and the client has 5 s to close its own. What a real daemon
 * does badly, this one does not: connections are served side by side, and no message ends the process.
 */
#include <errno.h>
#include <glib.h>
#include <json-c/json.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "classic/dialect.h"
#include "core/clock.h"
#include "core/control.h"
#include "core/engine.h"
#include "core/local_segment.h"
#include "core/log.h"
#include "core/notification.h"
#include "wire/classic/answer.h"
#include "wire/classic/descriptor.h"
#include "wire/classic/frame.h"
#include "wire/classic/json_text.h"

#define SILENCE_NS (5 * TE_NS_PER_SECOND)  /* without any progress */
#define OVERALL_NS (60 * TE_NS_PER_SECOND) /* for a request and for its answer */

enum {
    RECEIVE_BYTES = 16 * 1024,
    ROUND_BYTES = 1024 * 1024,    /* taken from one connection before others have their turn */
    LINGER_MAX_BYTES = 64 * 1024, /* of what a client sends after its request, read and dropped */
};

enum stage { RECEIVING, SENDING, LINGERING };

struct session {
    struct te_control_session base;
    struct te_engine *engine;
    enum stage stage;
    int64_t end_ns; /* of the stage at the latest */
    struct te_frame_decoder decoder;
    GString *reply;                /* sent first */
    struct te_shared_text *shared; /* then this, which other sessions may be sending as well; may be NULL */
    size_t progress;               /* bytes sent, or dropped while lingering */
};

static void end_session(struct session *session)
{
    te_control_session_end(&session->base, false);
    te_frame_decoder_clear(&session->decoder);
    if (session->reply != NULL)
        g_string_free(session->reply, TRUE);
    te_shared_text_unref(session->shared);
    g_free(session);
}

static void refuse(struct session *session, const char *why)
{
    te_control_session_log_refusal(&session->base, why);
    end_session(session);
}

static void expect_progress(struct session *session)
{
    te_control_session_timeout(&session->base, MAX(MIN(SILENCE_NS, session->end_ns - te_now_ns()), 1));
}

static void enter(struct session *session, enum stage stage)
{
    session->stage = stage;
    session->end_ns = te_now_ns() + OVERALL_NS;
    session->progress = 0;
    expect_progress(session);
}

/* Lingering */

static void linger(struct session *session)
{
    char dropped[4096];

    for (;;) {
        ssize_t received = recv(session->base.watch.descriptor, dropped, sizeof(dropped), MSG_DONTWAIT);

        if (received > 0) {
            session->progress += (size_t)received;
            if (session->progress > LINGER_MAX_BYTES)
                break;
        } else if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        } else if (received == 0 || errno != EINTR) {
            break;
        }
    }
    end_session(session);
}

/* Sending */

static size_t fill_vector(const struct session *session, struct iovec vector[2])
{
    const char *parts[2] = {session->reply->str, session->shared != NULL ? session->shared->bytes : NULL};
    size_t sizes[2] = {session->reply->len, session->shared != NULL ? session->shared->length : 0};
    size_t skip = session->progress;
    size_t count = 0;

    for (size_t i = 0; i < 2; i++) {
        if (skip >= sizes[i]) {
            skip -= sizes[i];
            continue;
        }
        vector[count++] = (struct iovec){.iov_base = (char *)parts[i] + skip, .iov_len = sizes[i] - skip};
        skip = 0;
    }
    return count;
}

static void send_reply(struct session *session)
{
    struct iovec vector[2];

    for (;;) {
        struct msghdr message = {.msg_iov = vector, .msg_iovlen = fill_vector(session, vector)};
        ssize_t sent;

        if (message.msg_iovlen == 0)
            break;
        sent = sendmsg(session->base.watch.descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            session->progress += (size_t)sent;
            expect_progress(session);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            end_session(session); /* the client has gone; it need not want the answer */
            return;
        }
    }
    g_string_free(session->reply, TRUE);
    session->reply = NULL;
    te_shared_text_unref(session->shared);
    session->shared = NULL;
    te_control_session_charge(&session->base, 0);
    shutdown(session->base.watch.descriptor, SHUT_WR);
    enter(session, LINGERING);
    linger(session);
}

/* Answering */

static bool take_notification(void *data, struct te_notify_message *message)
{
    struct te_engine *engine = data;

    if (te_inbox_put(engine->inbox, message->name, message->name_length, message->text, message->text_length))
        return true;
    te_log_limited(TE_LOG_WARNING,
                   "a notification is refused: %d messages or %d MiB wait to be taken by getNotifsFromEngine",
                   TE_NOTIFICATIONS_MAX, TE_NOTIFICATION_BYTES_MAX >> 20);
    return false;
}

/* What precedes a text of that length in a frame. */
static void append_head(GString *bytes, uint8_t type, size_t length)
{
    uint64_t payload_length = GUINT64_TO_LE((uint64_t)length + 1);

    g_string_append_len(bytes, (const char *)&payload_length, sizeof(payload_length));
    g_string_append_c(bytes, (char)type);
}

/* The local descriptor can be long and asked for by many at once: all send the same copy of it. */
static te_status answer_metadata(struct session *session, const struct te_frame *request)
{
    struct json_object *ignored = NULL;
    te_status status = te_json_parse(request->text, request->length, &ignored);

    if (status != TE_OK)
        return status;
    json_object_put(ignored);
    session->shared = te_classic_local_text(session->engine);
    if (session->shared == NULL)
        session->shared = te_shared_text_new(g_strdup("null\n"), 5);
    append_head(session->reply, TE_FRAME_METADATA, session->shared->length);
    return TE_OK;
}

static te_status answer(struct session *session, const struct te_frame *request)
{
    /* With TCP alone there is no connection to set up: every message is accepted. */
    struct te_classic_service service = {
        .connection = te_local_segment_exists(session->engine) ? te_classic_accept_connection : NULL,
        .notify = take_notification,
        .data = session->engine,
    };

    session->reply = g_string_new(NULL);
    if (request->has_type && request->type == TE_FRAME_METADATA)
        return answer_metadata(session, request);
    return te_classic_answer(request, &service, session->reply);
}

static void request_complete(struct session *session)
{
    struct te_frame request = te_frame_decoder_frame(&session->decoder);
    te_status status = answer(session, &request);

    if (status != TE_OK) {
        refuse(session, te_status_message());
        return;
    }
    te_frame_decoder_clear(&session->decoder);
    te_control_session_charge(&session->base, session->reply->len);
    enter(session, SENDING);
    send_reply(session);
}

/* Receiving */

/* Feeds what has arrived; returns whether the session goes on receiving. */
static bool feed(struct session *session, const void *bytes, size_t length)
{
    size_t taken;

    if (te_frame_decoder_feed(&session->decoder, bytes, length, &taken) != TE_OK) {
        refuse(session, te_status_message());
        return false;
    }
    if (!te_control_session_charge(&session->base, session->decoder.payload_capacity)) {
        refuse(session, "too much memory is held by connections that are still sending");
        return false;
    }
    if (te_frame_decoder_wanted(&session->decoder) > 0)
        return true;
    request_complete(session);
    return false;
}

static void receive(struct session *session)
{
    char bytes[RECEIVE_BYTES];
    size_t left = ROUND_BYTES;

    while (left > 0) {
        size_t wanted = MIN(sizeof(bytes), te_frame_decoder_wanted(&session->decoder));
        ssize_t received = recv(session->base.watch.descriptor, bytes, wanted, MSG_DONTWAIT);

        if (received > 0) {
            if (!feed(session, bytes, (size_t)received))
                return;
            left -= MIN(left, (size_t)received);
            expect_progress(session);
        } else if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        } else if (received == 0 || errno != EINTR) {
            refuse(session, "it ended within a frame");
            return;
        }
    }
    te_reactor_again(session->engine->reactors[0], &session->base.watch);
}

static void session_ready(struct te_watch *watch, uint32_t events)
{
    struct session *session = (struct session *)watch;

    (void)events;
    switch (session->stage) {
    case RECEIVING:
        receive(session);
        break;
    case SENDING:
        send_reply(session);
        break;
    case LINGERING:
        linger(session);
        break;
    }
}

static void session_late(struct te_timer *timer)
{
    struct session *session = (void *)((char *)timer - offsetof(struct te_control_session, timer));

    if (session->stage == LINGERING)
        end_session(session);
    else
        refuse(session, session->stage == RECEIVING ? "the rest of a frame did not come in time"
                                                    : "it does not take the answer");
}

static void abort_session(struct te_control_session *base)
{
    end_session((struct session *)base);
}

void te_classic_serve(struct te_engine *engine, int descriptor, const uint8_t *bytes, size_t length)
{
    struct session *session = g_try_new0(struct session, 1);

    if (session == NULL) {
        close(descriptor);
        return;
    }
    session->engine = engine;
    session->base.watch.descriptor = descriptor;
    session->base.watch.ready = session_ready;
    session->base.timer.fire = session_late;
    session->base.abort = abort_session;
    te_frame_decoder_init(&session->decoder, engine->settings.handshake_maximum_length);
    if (te_control_session_begin(engine, &session->base, EPOLLIN | EPOLLOUT) != TE_OK) {
        close(descriptor);
        g_free(session);
        return;
    }
    enter(session, RECEIVING);
    if (feed(session, bytes, length))
        receive(session);
}

static struct te_shared_text *encode_descriptor(const struct te_segment_descriptor *descriptor)
{
    char timestamp[TE_DESCRIPTOR_TIME_BYTES];
    struct timespec now;
    GString *text = g_string_new(NULL);
    size_t length;

    clock_gettime(CLOCK_REALTIME, &now);
    te_descriptor_format_time(timestamp, &now);
    if (te_descriptor_write(text, descriptor, timestamp) != TE_OK) {
        te_log_limited(TE_LOG_ERROR, "the local descriptor cannot be written: %s", te_status_message());
        g_string_free(text, TRUE);
        return NULL;
    }
    te_json_end_line(text);
    length = text->len;
    if (length + 1 > TE_FRAME_DEFAULT_LIMIT)
        te_log_limited(
            TE_LOG_WARNING,
            "with %zu regions the descriptor of this engine is %zu bytes long; peers read no more than %d and "
            "cannot open it: register fewer, larger regions, or raise MC_HANDSHAKE_MAX_LENGTH where the "
            "peers run",
            descriptor->buffer_count, length, TE_FRAME_DEFAULT_LIMIT);
    return te_shared_text_new(g_string_free(text, FALSE), length);
}

struct te_shared_text *te_classic_local_text(struct te_engine *engine)
{
    return te_local_segment_text(engine, &te_classic_dialect, encode_descriptor);
}
