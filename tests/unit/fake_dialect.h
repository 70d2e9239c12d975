/*
 * A dialect besides the classic one, as small as can be, to plug into an engine. A request is the opening, a kind, the
 * length of a text and the text; an answer is four letters, a length and a text. One of each to a connection.
 *
 * The opening is like that of a TENT client: its first eight bytes could be the length of a classic frame.
 */
#ifndef TE_TESTS_UNIT_FAKE_DIALECT_H
#define TE_TESTS_UNIT_FAKE_DIALECT_H

#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/clock.h"
#include "core/control.h"
#include "core/dialect.h"
#include "core/engine.h"
#include "core/local_segment.h"
#include "core/notification.h"
#include "core/shared_text.h"
#include "tests/unit/socket_helpers.h"

enum fake_kind { FAKE_FETCH = 'f', FAKE_NOTIFY = 'n', FAKE_PROBE = 'p' };

#define FAKE_OPENING "\x15\0\0\0\0\0\0\0\rFAK"
#define FAKE_ANSWER  "FAKE"

enum {
    FAKE_OPENING_BYTES = sizeof(FAKE_OPENING) - 1,
    FAKE_ANSWER_BYTES = sizeof(FAKE_ANSWER) - 1,
    FAKE_HEAD_BYTES = FAKE_OPENING_BYTES + 2,
    FAKE_TEXT_MAX = 255,
};

static const struct te_dialect_ops fake_dialect;
static atomic_int fake_sessions; /* being served, in all engines */

static inline enum te_recognition fake_recognise(const uint8_t *bytes, size_t length)
{
    if (memcmp(bytes, FAKE_OPENING, MIN(length, (size_t)FAKE_OPENING_BYTES)) != 0)
        return TE_RECOGNISE_NO;
    return length < FAKE_OPENING_BYTES ? TE_RECOGNISE_NEED_MORE : TE_RECOGNISE_YES;
}

/* ---- Serving ---- */

struct fake_session {
    struct te_control_session base;
    struct te_engine *engine;
    uint8_t request[FAKE_HEAD_BYTES + FAKE_TEXT_MAX];
    size_t length;
};

static inline void fake_end_session(struct te_control_session *base)
{
    te_control_session_end(base, false);
    g_free(base);
    atomic_fetch_sub(&fake_sessions, 1);
}

static inline struct te_shared_text *fake_encode(const struct te_segment_descriptor *descriptor)
{
    return te_shared_text_new(g_strdup(descriptor->name), strlen(descriptor->name));
}

/* The text of a notification is its name, a line feed and its message. */
static inline void fake_answer(struct fake_session *session)
{
    const char *text = (const char *)session->request + FAKE_HEAD_BYTES;
    size_t length = session->length - FAKE_HEAD_BYTES;
    struct te_shared_text *description = te_local_segment_text(session->engine, &fake_dialect, fake_encode);
    GString *answer = g_string_new(FAKE_ANSWER);
    const char *line_feed;

    switch ((enum fake_kind)session->request[FAKE_OPENING_BYTES]) {
    case FAKE_FETCH:
        g_string_append_c(answer, (char)description->length);
        g_string_append_len(answer, description->bytes, (gssize)description->length);
        break;
    case FAKE_NOTIFY:
        line_feed = memchr(text, '\n', length);
        te_inbox_put(session->engine->inbox, text, (size_t)(line_feed - text), line_feed + 1,
                     length - (size_t)(line_feed + 1 - text));
        g_string_append_c(answer, 0);
        break;
    case FAKE_PROBE:
        g_string_append_c(answer, 0);
        break;
    }
    send(session->base.watch.descriptor, answer->str, answer->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    g_string_free(answer, TRUE);
    te_shared_text_unref(description);
}

static inline size_t fake_wanted(const struct fake_session *session)
{
    size_t text = session->length < FAKE_HEAD_BYTES ? 0 : session->request[FAKE_HEAD_BYTES - 1];

    return FAKE_HEAD_BYTES + text - session->length;
}

static inline void fake_ready(struct te_watch *watch, uint32_t events)
{
    struct fake_session *session = (struct fake_session *)watch;
    size_t wanted;

    (void)events;
    while ((wanted = fake_wanted(session)) > 0) {
        ssize_t received = recv(watch->descriptor, session->request + session->length, wanted, MSG_DONTWAIT);

        if (received < 0 && errno == EAGAIN)
            return;
        if (received <= 0)
            break;
        session->length += (size_t)received;
    }
    if (wanted == 0)
        fake_answer(session);
    fake_end_session(&session->base);
}

static inline void fake_late(struct te_timer *timer)
{
    fake_end_session((void *)((char *)timer - offsetof(struct te_control_session, timer)));
}

static inline void fake_serve(struct te_engine *engine, int descriptor, const uint8_t *bytes, size_t length)
{
    struct fake_session *session = g_new0(struct fake_session, 1);

    session->base.watch.descriptor = descriptor;
    session->base.watch.ready = fake_ready;
    session->base.timer.fire = fake_late;
    session->base.abort = fake_end_session;
    session->engine = engine;
    memcpy(session->request, bytes, length);
    session->length = length;
    if (te_control_session_begin(engine, &session->base, EPOLLIN) != TE_OK) {
        close(descriptor);
        g_free(session);
        return;
    }
    atomic_fetch_add(&fake_sessions, 1);
    te_control_session_timeout(&session->base, TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND);
    fake_ready(&session->base.watch, 0);
}

/* ---- Calling ---- */

static inline GString *fake_request(enum fake_kind kind, const char *text)
{
    GString *request = g_string_new_len(FAKE_OPENING, FAKE_OPENING_BYTES);

    g_string_append_c(request, (char)kind);
    g_string_append_c(request, (char)strlen(text));
    g_string_append(request, text);
    return request;
}

/* The text of an answer, or NULL if the bytes are none. */
static inline char *fake_read_answer(const GString *bytes)
{
    if (bytes->len <= FAKE_ANSWER_BYTES || !g_str_has_prefix(bytes->str, FAKE_ANSWER) ||
        bytes->len != FAKE_ANSWER_BYTES + 1 + (size_t)(uint8_t)bytes->str[FAKE_ANSWER_BYTES])
        return NULL;
    return g_strdup(bytes->str + FAKE_ANSWER_BYTES + 1);
}

static inline te_status fake_call(uint16_t port, enum fake_kind kind, const char *text, char **answer, bool *sent)
{
    GString *request = fake_request(kind, text), *bytes = g_string_new(NULL);
    int descriptor = test_connect(port);
    bool reset;

    *answer = NULL;
    if (descriptor >= 0) {
        *sent = test_send(descriptor, request->str, request->len);
        shutdown(descriptor, SHUT_WR);
        if (test_receive_to_end(descriptor, bytes, &reset))
            *answer = fake_read_answer(bytes);
        close(descriptor);
    }
    g_string_free(request, TRUE);
    g_string_free(bytes, TRUE);
    return *answer != NULL ? TE_OK : te_fail(TE_SOCKET, "the peer does not speak the fake dialect");
}

static inline te_status fake_fetch(struct te_engine *engine, const char *host, uint16_t port,
                                   struct te_segment_descriptor **descriptor)
{
    char *answer;
    bool sent = false;
    te_status status = fake_call(port, FAKE_FETCH, "", &answer, &sent);

    (void)engine;
    (void)host;
    if (status != TE_OK)
        return status;
    *descriptor = te_segment_descriptor_new();
    g_free((*descriptor)->name);
    (*descriptor)->name = answer;
    g_free((*descriptor)->protocol);
    (*descriptor)->protocol = g_strdup("fake");
    return TE_OK;
}

static inline te_status fake_notify(struct te_engine *engine, const char *host, uint16_t port, const char *name,
                                    size_t name_length, const char *message, size_t message_length, bool *sent)
{
    char *text = g_strdup_printf("%.*s\n%.*s", (int)name_length, name, (int)message_length, message);
    char *answer;
    te_status status = fake_call(port, FAKE_NOTIFY, text, &answer, sent);

    (void)engine;
    (void)host;
    g_free(text);
    g_free(answer);
    return status;
}

static inline te_status fake_probe(struct te_engine *engine, const char *host, uint16_t port)
{
    char *answer;
    bool sent = false;
    te_status status = fake_call(port, FAKE_PROBE, "", &answer, &sent);

    (void)engine;
    (void)host;
    g_free(answer);
    return status;
}

static inline te_status fake_check(struct te_engine *engine, const char *name, size_t name_length, const char *message,
                                   size_t message_length)
{
    (void)engine;
    (void)name;
    (void)message;
    if (name_length + 1 + message_length > FAKE_TEXT_MAX)
        return te_fail(TE_INVALID_ARGUMENT, "a notification is too long for the fake dialect");
    return TE_OK;
}

static const struct te_dialect_ops fake_dialect = {
    .name = "fake",
    .recognise = fake_recognise,
    .serve = fake_serve,
    .fetch_descriptor = fake_fetch,
    .notify = fake_notify,
    .probe = fake_probe,
    .check_notification = fake_check,
};

#endif
