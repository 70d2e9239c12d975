/*
 * Two dialects in one engine, the classic one and a fake: each connection to the control port is served in the one that
 * it begins with, each peer is called in the one that it speaks.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

#include "classic/dialect.h"
#include "core/peer.h"
#include "core/segment.h"
#include "tests/unit/fake_dialect.h"

static const char classic_probe[] = "\x04\0\0\0\0\0\0\0\x03{}\n";
static const char classic_probe_answer[] = "\x16\0\0\0\0\0\0\0\x03{\"status\":\"success\"}\n";
/* Another one, whose length is what the other dialect opens with. */
static const char classic_long_probe[] = "\x15\0\0\0\0\0\0\0\x03{                 }\n";

enum { CLASSIC_DECIDES_AT = 8, CLASSIC_REFUSES_AT = 5 };

/* ---- The two dialects, listened to and counted ---- */

static atomic_bool understands_fake = true, understands_classic = true; /* what engines with both of them answer to */
static atomic_uint fake_tries, classic_tries;                           /* calls that were made */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t length;
} looked_at = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static enum te_recognition recognise_fake(const uint8_t *bytes, size_t length)
{
    pthread_mutex_lock(&looked_at.lock);
    looked_at.length = length;
    pthread_cond_broadcast(&looked_at.changed);
    pthread_mutex_unlock(&looked_at.lock);
    return atomic_load(&understands_fake) ? fake_recognise(bytes, length) : TE_RECOGNISE_NO;
}

static enum te_recognition recognise_classic(const uint8_t *bytes, size_t length)
{
    return atomic_load(&understands_classic) ? te_classic_dialect.recognise(bytes, length) : TE_RECOGNISE_NO;
}

/* Waits until a connection's first so many bytes have been looked at. */
static void await_look(size_t length)
{
    struct timespec limit;
    int error = 0;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += TEST_PATIENCE_SECONDS;
    pthread_mutex_lock(&looked_at.lock);
    while (looked_at.length < length && error == 0)
        error = pthread_cond_timedwait(&looked_at.changed, &looked_at.lock, &limit);
    pthread_mutex_unlock(&looked_at.lock);
    assert_int_equal(error, 0);
}

static void forget_looks(void)
{
    pthread_mutex_lock(&looked_at.lock);
    looked_at.length = 0;
    pthread_mutex_unlock(&looked_at.lock);
}

#define COUNTED(dialect, tries)                                                                                        \
    static te_status fetch_##dialect(struct te_engine *engine, const char *host, uint16_t port,                        \
                                     struct te_segment_descriptor **descriptor)                                        \
    {                                                                                                                  \
        atomic_fetch_add(&(tries), 1);                                                                                 \
        return dialect.fetch_descriptor(engine, host, port, descriptor);                                               \
    }                                                                                                                  \
    static te_status notify_##dialect(struct te_engine *engine, const char *host, uint16_t port, const char *name,     \
                                      size_t name_length, const char *message, size_t message_length, bool *sent)      \
    {                                                                                                                  \
        atomic_fetch_add(&(tries), 1);                                                                                 \
        return dialect.notify(engine, host, port, name, name_length, message, message_length, sent);                   \
    }                                                                                                                  \
    static te_status probe_##dialect(struct te_engine *engine, const char *host, uint16_t port)                        \
    {                                                                                                                  \
        atomic_fetch_add(&(tries), 1);                                                                                 \
        return dialect.probe(engine, host, port);                                                                      \
    }

COUNTED(fake_dialect, fake_tries)
COUNTED(te_classic_dialect, classic_tries)

static struct te_dialect_ops fake, classic; /* filled in by main() */

static const struct te_dialect_ops *const fake_first[] = {&fake, &classic};
static const struct te_dialect_ops *const classic_first[] = {&classic, &fake};

static void assert_tries(unsigned of_fake, unsigned of_classic)
{
    assert_int_equal(atomic_exchange(&fake_tries, 0), of_fake);
    assert_int_equal(atomic_exchange(&classic_tries, 0), of_classic);
}

/* ---- Engines ---- */

static void *attach(void *data, const struct te_segment_view *view)
{
    (void)view;
    return data;
}

static void detach(void *data, void *attachment)
{
    (void)data;
    (void)attachment;
}

static void describe(struct te_transport *transport, struct te_segment_descriptor *descriptor)
{
    (void)transport;
    descriptor->tcp_data_port = 1;
}

static struct te_engine_options options_for(const struct te_dialect_ops *const *dialects, size_t count)
{
    return (struct te_engine_options){
        .connection = "P2PHANDSHAKE",
        .local_name = "127.0.0.1",
        .dialects = dialects,
        .dialect_count = count,
        .segment_hooks = {.attach = attach, .detach = detach},
    };
}

static struct te_engine *create(const struct te_dialect_ops *const *dialects, size_t count)
{
    struct te_engine_options options = options_for(dialects, count);
    struct te_engine *engine;

    assert_int_equal(te_engine_new(&options, &engine), TE_OK);
    assert_int_equal(te_local_segment_add(engine, "tcp", NULL, describe), TE_OK);
    return engine;
}

static void destroy(struct te_engine *engine)
{
    te_segment_table_stop(engine->segments);
    te_engine_stop(engine, 0);
    te_segment_table_clear(engine->segments);
    te_engine_free(engine);
}

/* The next message that has arrived at an engine is this, and there is no other. */
static void assert_notified(struct te_engine *engine, const char *name, const char *message)
{
    char *arrived_name, *arrived_message;

    assert_int_equal(te_inbox_count(engine->inbox), 1);
    assert_true(te_inbox_take(engine->inbox, &arrived_name, &arrived_message));
    assert_string_equal(arrived_name, name);
    assert_string_equal(arrived_message, message);
    free(arrived_name);
    free(arrived_message);
}

static te_status notify(struct te_engine *engine, uint16_t port, const char *message, bool *sent)
{
    return te_peer_notify(engine, "127.0.0.1", port, "name", 4, message, strlen(message), sent);
}

/* ---- Serving ---- */

static void assert_answered(int descriptor, const char *answer, size_t size)
{
    GString *bytes = g_string_new(NULL);
    bool reset;

    assert_true(test_receive_to_end(descriptor, bytes, &reset));
    assert_int_equal(bytes->len, size);
    assert_memory_equal(bytes->str, answer, size);
    g_string_free(bytes, TRUE);
    close(descriptor);
}

static void assert_classic_answered(int descriptor)
{
    assert_answered(descriptor, classic_probe_answer, sizeof(classic_probe_answer) - 1);
}

static void assert_fake_answered(int descriptor)
{
    assert_answered(descriptor, FAKE_ANSWER "\0", FAKE_ANSWER_BYTES + 1);
}

static int connect_and_send(const struct te_engine *engine, const char *bytes, size_t size)
{
    int descriptor = test_connect(engine->port);

    assert_true(descriptor >= 0);
    assert_true(test_send(descriptor, bytes, size));
    return descriptor;
}

static void each_connection_is_served_in_its_dialect(void **state)
{
    struct te_engine *engine = create(fake_first, 2);
    GString *request = fake_request(FAKE_PROBE, "some text");

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_classic_answered(connect_and_send(engine, classic_probe, sizeof(classic_probe) - 1));
        assert_fake_answered(connect_and_send(engine, request->str, request->len));
        assert_classic_answered(connect_and_send(engine, classic_long_probe, sizeof(classic_long_probe) - 1));
    }
    g_string_free(request, TRUE);
    destroy(engine);
}

/* Sends the request in single bytes, each of which is looked at before the next one comes, until the dialect is
 * decided. */
static int connect_and_dribble(const struct te_engine *engine, const char *bytes, size_t size, size_t decided_at)
{
    int descriptor = test_connect(engine->port);

    assert_true(descriptor >= 0);
    forget_looks();
    for (size_t i = 0; i < size; i++) {
        assert_true(test_send(descriptor, bytes + i, 1));
        if (i < decided_at)
            await_look(i + 1);
    }
    return descriptor;
}

/* The opening of the fake and the longer of the classic probes begin with the same eight bytes, which are enough for
 * the classic dialect. */
static void a_dialect_is_recognised_byte_by_byte(void **state)
{
    struct te_engine *engine = create(fake_first, 2);
    GString *request = fake_request(FAKE_PROBE, "some text");

    (void)state;
    assert_classic_answered(connect_and_dribble(engine, classic_probe, sizeof(classic_probe) - 1, CLASSIC_DECIDES_AT));
    assert_fake_answered(connect_and_dribble(engine, request->str, request->len, FAKE_OPENING_BYTES));
    assert_classic_answered(
        connect_and_dribble(engine, classic_long_probe, sizeof(classic_long_probe) - 1, CLASSIC_DECIDES_AT + 1));
    g_string_free(request, TRUE);
    destroy(engine);
}

static void assert_refused(int descriptor)
{
    GString *bytes = g_string_new(NULL);
    bool reset;

    assert_true(test_receive_to_end(descriptor, bytes, &reset));
    assert_int_equal(bytes->len, 0);
    g_string_free(bytes, TRUE);
    close(descriptor);
}

static void garbage_is_refused_and_others_are_served(void **state)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                                          "\x15\x15\x15\x15\x15\x15"};
    struct te_engine *engine = create(fake_first, 2);
    GString *request = fake_request(FAKE_PROBE, "some text");
    int half_classic = connect_and_send(engine, classic_probe, 3);
    int half_fake = connect_and_send(engine, request->str, 3);
    int served_fake = connect_and_send(engine, request->str, request->len - 1);
    char byte;
    int dribbled;

    (void)state;
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < G_N_ELEMENTS(garbage); i++)
            assert_refused(connect_and_send(engine, garbage[i], strlen(garbage[i])));
    /* It takes no more bytes than what makes sure that it is garbage. */
    dribbled = connect_and_dribble(engine, garbage[0], CLASSIC_REFUSES_AT - 1, CLASSIC_REFUSES_AT - 1);
    assert_int_equal(recv(dribbled, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(test_send(dribbled, garbage[0] + CLASSIC_REFUSES_AT - 1, 1));
    assert_refused(dribbled);

    assert_true(test_send(half_classic, classic_probe + 3, sizeof(classic_probe) - 1 - 3));
    assert_true(test_send(half_fake, request->str + 3, request->len - 3));
    assert_true(test_send(served_fake, request->str + request->len - 1, 1));
    assert_classic_answered(half_classic);
    assert_fake_answered(half_fake);
    assert_fake_answered(served_fake);
    g_string_free(request, TRUE);
    destroy(engine);
}

static void an_engine_that_stops_ends_connections_of_all_kinds(void **state)
{
    struct te_engine *engine = create(fake_first, 2);
    GString *request = fake_request(FAKE_PROBE, "some text");
    int connections[3];

    (void)state;
    connections[0] = connect_and_dribble(engine, classic_probe, 10, CLASSIC_DECIDES_AT);
    connections[1] = connect_and_dribble(engine, request->str, 4, 4);
    connections[2] = connect_and_dribble(engine, request->str, request->len - 1, FAKE_OPENING_BYTES);
    while (atomic_load(&fake_sessions) == 0)
        usleep(1000);
    destroy(engine);
    assert_int_equal(atomic_load(&fake_sessions), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(connections); i++)
        assert_refused(connections[i]);
    g_string_free(request, TRUE);
}

static void there_is_room_for_two_dialects(void **state)
{
    const struct te_dialect_ops *const three[] = {&fake, &classic, &fake};
    struct te_engine_options options = options_for(three, G_N_ELEMENTS(three));
    struct te_engine *engine;

    (void)state;
    assert_int_equal(te_engine_new(&options, &engine), TE_INVALID_ARGUMENT);
}

/* ---- Calling ---- */

static void assert_fetched(struct te_engine *engine, const struct te_engine *peer, const char *protocol)
{
    struct te_segment_descriptor *descriptor;

    assert_int_equal(te_peer_fetch_descriptor(engine, "127.0.0.1", peer->port, &descriptor), TE_OK);
    assert_string_equal(descriptor->name, peer->name);
    assert_string_equal(descriptor->protocol, protocol);
    te_segment_descriptor_unref(descriptor);
}

static void assert_probed(struct te_engine *engine, const struct te_engine *peer)
{
    assert_int_equal(te_peer_probe(engine, "127.0.0.1", peer->port), TE_OK);
}

static void assert_delivered(struct te_engine *engine, struct te_engine *peer, const char *message)
{
    bool sent;

    assert_int_equal(notify(engine, peer->port, message, &sent), TE_OK);
    assert_true(sent);
    assert_notified(peer, "name", message);
}

/* Of two peers, each speaks one. */
static void a_peers_dialect_is_learnt_by_the_first_call(void **state)
{
    struct te_engine *fake_peer = create(fake_first, 1), *classic_peer = create(classic_first, 1);

    (void)state;
    for (int order = 0; order < 2; order++) {
        struct te_engine *engine = create(order == 0 ? fake_first : classic_first, 2);

        assert_probed(engine, classic_peer);
        assert_tries(order == 0 ? 1 : 0, 1);
        assert_fetched(engine, fake_peer, "fake");
        assert_tries(1, order == 0 ? 0 : 1);
        for (int i = 0; i < 3; i++) {
            assert_probed(engine, classic_peer);
            assert_fetched(engine, classic_peer, "tcp");
            assert_delivered(engine, classic_peer, "for the classic one");
            assert_tries(0, 3);
            assert_probed(engine, fake_peer);
            assert_fetched(engine, fake_peer, "fake");
            assert_delivered(engine, fake_peer, "for the fake");
            assert_tries(3, 0);
        }
        destroy(engine);
    }
    destroy(fake_peer);
    destroy(classic_peer);
}

static void peer_understands(bool fake_too, bool classic_too)
{
    atomic_store(&understands_fake, fake_too);
    atomic_store(&understands_classic, classic_too);
}

/* The peer comes back in another dialect, goes, and comes back. */
static void a_peers_dialect_is_forgotten_when_a_call_fails(void **state)
{
    struct te_engine *engine = create(fake_first, 2), *peer = create(fake_first, 2);

    (void)state;
    peer_understands(false, true);
    assert_probed(engine, peer);
    assert_tries(1, 1);
    peer_understands(true, false);
    assert_probed(engine, peer);
    assert_tries(1, 1);
    assert_probed(engine, peer);
    assert_tries(1, 0);
    peer_understands(false, true);
    assert_fetched(engine, peer, "tcp");
    assert_tries(1, 1);
    assert_fetched(engine, peer, "tcp");
    assert_tries(0, 1);
    peer_understands(false, false);
    assert_int_equal(te_peer_probe(engine, "127.0.0.1", peer->port), TE_SOCKET);
    assert_tries(1, 1);
    /* The one it spoke last is asked no sooner than its place in the order. */
    peer_understands(false, true);
    assert_probed(engine, peer);
    assert_tries(1, 1);
    destroy(engine);
    destroy(peer);
}

/* A peer may take in all of a message that it does not understand. */
static void a_notification_reaches_a_peer_of_which_nothing_is_known(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        const struct te_dialect_ops *const *dialects = order == 0 ? fake_first : classic_first;
        struct te_engine *engine = create(dialects, 2), *peer = create(dialects + 1, 1);

        assert_delivered(engine, peer, "the first word");
        assert_delivered(engine, peer, "the second");
        destroy(engine);
        destroy(peer);
    }
}

/* Between two calls the peer has come back in another dialect: whether it understood cannot be known. */
static void a_notification_is_not_sent_in_two_dialects(void **state)
{
    struct te_engine *engine = create(fake_first, 2), *peer = create(fake_first, 2);
    bool sent;

    (void)state;
    peer_understands(false, true);
    assert_delivered(engine, peer, "before");
    assert_tries(1, 2);
    peer_understands(true, false);
    assert_int_not_equal(notify(engine, peer->port, "between", &sent), TE_OK);
    assert_true(sent);
    assert_tries(0, 1);
    assert_int_equal(te_inbox_count(peer->inbox), 0);
    assert_delivered(engine, peer, "after");
    destroy(engine);
    destroy(peer);
}

static void a_notification_to_nobody_is_not_sent(void **state)
{
    struct te_engine *engine = create(fake_first, 2);
    uint16_t port;
    bool sent = true;

    (void)state;
    close(test_listen(&port));
    assert_int_equal(notify(engine, port, "to nobody", &sent), TE_SOCKET);
    assert_false(sent);
    destroy(engine);
}

static te_status probe_unknown_name(struct te_engine *engine, const char *host, uint16_t port)
{
    (void)engine;
    (void)port;
    return te_fail(TE_DNS, "there is no host %s", host);
}

static void a_name_that_does_not_resolve_is_not_tried_again(void **state)
{
    struct te_dialect_ops lost = fake_dialect;
    const struct te_dialect_ops *const dialects[] = {&lost, &classic};
    struct te_engine *engine = create(dialects, 2);

    (void)state;
    lost.probe = probe_unknown_name;
    assert_int_equal(te_peer_probe(engine, "127.0.0.1", engine->port), TE_DNS);
    assert_tries(0, 0);
    destroy(engine);
}

/* ---- What is above calls ---- */

static void a_segment_is_opened_in_either_dialect(void **state)
{
    const struct te_dialect_ops *const *peers_dialects[] = {fake_first, classic_first};
    struct te_engine *engine = create(fake_first, 2);

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(peers_dialects); i++) {
        struct te_engine *peer = create(peers_dialects[i], 1);
        int32_t id;

        assert_int_equal(te_segment_open(engine->segments, peer->name, false, &id), TE_OK);
        assert_int_equal(
            te_notifier_send(engine->notifier, te_segment_find(engine->segments, id), "name", 4, "text", 4), TE_OK);
        assert_notified(peer, "name", "text");
        te_segment_close(engine->segments, id);
        destroy(peer);
    }
    destroy(engine);
}

static void a_notification_must_fit_into_every_dialect(void **state)
{
    struct te_engine *both = create(classic_first, 2), *one = create(classic_first, 1);
    char text[FAKE_TEXT_MAX] = "";

    (void)state;
    assert_int_equal(te_notification_check(both, "name", 4, text, sizeof(text) - 5), TE_OK);
    assert_int_equal(te_notification_check(both, "name", 4, text, sizeof(text) - 4), TE_INVALID_ARGUMENT);
    assert_int_equal(te_notification_check(one, "name", 4, text, sizeof(text) - 4), TE_OK);
    destroy(both);
    destroy(one);
}

static int start_anew(void **state)
{
    (void)state;
    peer_understands(true, true);
    atomic_store(&fake_tries, 0);
    atomic_store(&classic_tries, 0);
    return 0;
}

int main(void)
{
#define DIALECT_TEST(name) cmocka_unit_test_setup(name, start_anew)
    const struct CMUnitTest tests[] = {
        DIALECT_TEST(each_connection_is_served_in_its_dialect),
        DIALECT_TEST(a_dialect_is_recognised_byte_by_byte),
        DIALECT_TEST(garbage_is_refused_and_others_are_served),
        DIALECT_TEST(an_engine_that_stops_ends_connections_of_all_kinds),
        DIALECT_TEST(there_is_room_for_two_dialects),
        DIALECT_TEST(a_peers_dialect_is_learnt_by_the_first_call),
        DIALECT_TEST(a_peers_dialect_is_forgotten_when_a_call_fails),
        DIALECT_TEST(a_notification_reaches_a_peer_of_which_nothing_is_known),
        DIALECT_TEST(a_notification_is_not_sent_in_two_dialects),
        DIALECT_TEST(a_notification_to_nobody_is_not_sent),
        DIALECT_TEST(a_name_that_does_not_resolve_is_not_tried_again),
        DIALECT_TEST(a_segment_is_opened_in_either_dialect),
        DIALECT_TEST(a_notification_must_fit_into_every_dialect),
    };

    fake = fake_dialect;
    fake.recognise = recognise_fake;
    fake.fetch_descriptor = fetch_fake_dialect;
    fake.notify = notify_fake_dialect;
    fake.probe = probe_fake_dialect;
    classic = te_classic_dialect;
    classic.recognise = recognise_classic;
    classic.fetch_descriptor = fetch_te_classic_dialect;
    classic.notify = notify_te_classic_dialect;
    classic.probe = probe_te_classic_dialect;
    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
