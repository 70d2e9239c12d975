/*
 * The handshake port of a running engine: the recorded requests of tests/vectors get the recorded answers, and bad or
 * slow clients disturb nobody.
 */
#include "tests/unit/wire_vector.h"

#include "classic/internal.h"
#include "core/clock.h"
#include "core/notification.h"
#include "tests/unit/socket_helpers.h"
#include "wire/classic/descriptor.h"
#include "wire/classic/frame.h"

static const char probe_request[] = "\x03\0\0\0\0\0\0\0\x03{}";
static const char probe_reply[] = "\x16\0\0\0\0\0\0\0\x03{\"status\":\"success\"}\n";
static const char metadata_request[] = "\x03\0\0\0\0\0\0\0\x01{}";

static struct te_classic *create(bool with_tcp)
{
    struct te_classic *classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 0);

    assert_non_null(classic);
    if (with_tcp)
        assert_non_null(te_classic_install_transport(classic, "tcp", NULL));
    return classic;
}

/* Sends bytes and returns all that comes back. */
static GString *ask(struct te_classic *classic, const char *bytes, size_t size, bool then_end)
{
    int descriptor = test_connect((uint16_t)te_classic_port(classic));
    GString *answer = g_string_new(NULL);
    bool reset;

    assert_true(descriptor >= 0);
    assert_true(test_send(descriptor, bytes, size));
    if (then_end)
        shutdown(descriptor, SHUT_WR);
    assert_true(test_receive_to_end(descriptor, answer, &reset));
    close(descriptor);
    return answer;
}

static void assert_probe_works(struct te_classic *classic)
{
    GString *answer = ask(classic, probe_request, sizeof(probe_request) - 1, false);

    assert_int_equal(answer->len, sizeof(probe_reply) - 1);
    assert_memory_equal(answer->str, probe_reply, answer->len);
    g_string_free(answer, TRUE);
}

/* The descriptor in a metadata reply. */
static struct te_segment_descriptor *read_descriptor(const GString *reply)
{
    struct te_segment_descriptor *descriptor;

    assert_true(reply->len > TE_FRAME_LENGTH_BYTES + 1);
    assert_int_equal(reply->str[TE_FRAME_LENGTH_BYTES], TE_FRAME_METADATA);
    assert_int_equal(
        te_descriptor_read(reply->str + TE_FRAME_LENGTH_BYTES + 1, reply->len - TE_FRAME_LENGTH_BYTES - 1, &descriptor),
        TE_OK);
    return descriptor;
}

/* ---- Recorded exchanges ---- */

struct replay {
    struct te_classic *bare, *with_tcp;
    unsigned played;
};

/* Recordings of an engine with an RDMA device, which answers with its own device and queue pairs. */
static bool needs_rdma(const struct vector *vector)
{
    return g_str_has_prefix(vector->name, "classic-hs-rdma-");
}

/* The recorded descriptor is of another process and of the older form: what varies is left out. */
static void assert_same_descriptor(const struct vector *vector, const GString *answer, const GString *recorded)
{
    struct te_segment_descriptor *ours = read_descriptor(answer);
    struct te_segment_descriptor *theirs = read_descriptor(recorded);

    vector_assert(vector, strcmp(ours->protocol, theirs->protocol) == 0);
    vector_assert(vector, ours->tcp_protocol_version == theirs->tcp_protocol_version);
    vector_assert(vector, ours->buffer_count == theirs->buffer_count);
    vector_assert(vector, ours->buffers[0].length == theirs->buffers[0].length);
    vector_assert(vector, strcmp(ours->buffers[0].name, ours->name) == 0);
    vector_assert(vector, ours->tcp_data_port != 0);
    vector_assert(vector, strlen(ours->timestamp) == strlen(theirs->timestamp));
    te_segment_descriptor_unref(ours);
    te_segment_descriptor_unref(theirs);
}

static bool client_ends_first(const struct vector *vector)
{
    struct json_object *sequence = vector_member(vector->root, "sequence");
    struct json_object *second = json_object_array_get_idx(sequence, 1);

    return strcmp(vector_text(second, "dir"), "c2s") == 0 && vector_text(second, "event") != NULL;
}

static void play(const struct vector *vector, void *data)
{
    struct replay *replay = data;
    bool bare = strstr(vector->name, "before-transport") != NULL;
    GString *request, *recorded, *answer;

    if (needs_rdma(vector))
        return;
    request = vector_stream(vector, 0, "c2s");
    recorded = vector_stream(vector, 0, "s2c");
    answer = ask(bare ? replay->bare : replay->with_tcp, request->str, request->len, client_ends_first(vector));
    if (recorded->len > 100 && recorded->str[TE_FRAME_LENGTH_BYTES] == TE_FRAME_METADATA)
        assert_same_descriptor(vector, answer, recorded);
    else
        vector_assert_bytes(vector, "answer", answer, recorded);
    assert_probe_works(replay->with_tcp);
    replay->played++;
    g_string_free(request, TRUE);
    g_string_free(recorded, TRUE);
    g_string_free(answer, TRUE);
}

static void recorded_requests_get_the_recorded_answers(void **state)
{
    static char memory[1024 * 1024];
    struct replay replay = {.bare = create(false), .with_tcp = create(true)};

    (void)state;
    assert_int_equal(te_classic_register_local_memory(replay.with_tcp, memory, sizeof(memory), "*", 1), 0);
    vector_for_each("classic-hs-", play, &replay);
    vector_for_each("classic-err-hs-", play, &replay);
    assert_true(replay.played >= 33);
    te_classic_destroy(replay.bare);
    te_classic_destroy(replay.with_tcp);
}

static void recorded_notifications_arrive(void **state)
{
    static const struct {
        const char *json;
        size_t length;
        const char *name, *text;
    } cases[] = {
#define CASE(json, name, text) {json, sizeof(json) - 1, name, text}
        CASE("{\"name\":\"n1\",\"notify_msg\":\"m1\"}\n", "n1", "m1"),
        CASE("{\"name\":5,\"notify_msg\":6.5}", "5", "6.5"),
        CASE("{\"name\":\"\xff\xfe\",\"notify_msg\":\"x\"}", "\xff\xfe", "x"),
        CASE("{\"notify_msg\":\"m\\u00e9\\ud83d\\ude00\\n\"}", "", "m\xc3\xa9\xf0\x9f\x98\x80\n"),
        CASE("null", "", ""),
#undef CASE
    };
    struct te_classic *classic = create(true);
    int count;
    notify_msg_t *messages;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct te_frame frame = {
            .has_type = true, .type = TE_FRAME_NOTIFY, .text = cases[i].json, .length = cases[i].length};
        GString *request = g_string_new(NULL), *answer;

        te_frame_encode(request, &frame);
        answer = ask(classic, request->str, request->len, false);
        assert_non_null(strstr(answer->str + 9, "\"success\""));
        g_string_free(request, TRUE);
        g_string_free(answer, TRUE);
    }
    messages = te_classic_get_notifs_from_engine(classic, &count);
    assert_int_equal(count, G_N_ELEMENTS(cases));
    for (int i = 0; i < count; i++) {
        assert_string_equal(messages[i].name, cases[i].name);
        assert_string_equal(messages[i].msg, cases[i].text);
        free(messages[i].name);
        free(messages[i].msg);
    }
    free(messages);
    assert_null(te_classic_get_notifs_from_engine(classic, &count));
    assert_int_equal(count, 0);
    te_classic_destroy(classic);
}

/* ---- What is published ---- */

static void a_region_that_peers_may_not_reach_is_not_published(void **state)
{
    static char memory[3][4096];
    struct te_classic *classic = create(true);
    struct te_segment_descriptor *descriptor;
    GString *answer;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(te_classic_register_local_memory(classic, memory[i], sizeof(memory[i]), "*", i != 1), 0);
    answer = ask(classic, metadata_request, sizeof(metadata_request) - 1, false);
    descriptor = read_descriptor(answer);
    assert_int_equal(descriptor->buffer_count, 2);
    assert_int_equal(descriptor->buffers[0].address, (uintptr_t)memory[0]);
    assert_int_equal(descriptor->buffers[1].address, (uintptr_t)memory[2]);
    assert_string_equal(descriptor->tcp_data_host, "127.0.0.1");
    te_segment_descriptor_unref(descriptor);
    g_string_free(answer, TRUE);
    assert_int_equal(te_classic_unregister_local_memory(classic, memory[0]), 0);
    answer = ask(classic, metadata_request, sizeof(metadata_request) - 1, false);
    descriptor = read_descriptor(answer);
    assert_int_equal(descriptor->buffer_count, 1);
    te_segment_descriptor_unref(descriptor);
    g_string_free(answer, TRUE);
    te_classic_destroy(classic);
}

enum { MANY_BUFFERS = 20000, MANY_BUFFER_BYTES = 64 };

/* Longer than socket buffers, and asked for by clients that do not read it yet: they share one copy and hold up nobody.
 */
static void a_long_answer_waits_for_slow_readers(void **state)
{
    enum { READERS = 50 };
    struct te_classic *classic = create(true);
    char *memory = g_malloc0((size_t)MANY_BUFFERS * MANY_BUFFER_BYTES);
    buffer_entry_t *buffers = g_new(buffer_entry_t, MANY_BUFFERS);
    int readers[READERS];

    (void)state;
    for (size_t i = 0; i < MANY_BUFFERS; i++)
        buffers[i] = (buffer_entry_t){memory + i * MANY_BUFFER_BYTES, MANY_BUFFER_BYTES};
    assert_int_equal(te_classic_register_local_memory_batch(classic, buffers, MANY_BUFFERS, "*"), 0);
    for (int i = 0; i < READERS; i++) {
        readers[i] = test_connect((uint16_t)te_classic_port(classic));
        assert_true(test_send(readers[i], metadata_request, sizeof(metadata_request) - 1));
    }
    assert_probe_works(classic);
    for (int i = 0; i < READERS; i++) {
        GString *answer = g_string_new(NULL);
        struct te_segment_descriptor *descriptor;
        bool reset;

        assert_true(test_receive_to_end(readers[i], answer, &reset));
        assert_false(reset);
        descriptor = read_descriptor(answer);
        assert_int_equal(descriptor->buffer_count, MANY_BUFFERS);
        assert_int_equal(descriptor->buffers[MANY_BUFFERS - 1].address, (uintptr_t)buffers[MANY_BUFFERS - 1].addr);
        te_segment_descriptor_unref(descriptor);
        g_string_free(answer, TRUE);
        close(readers[i]);
    }
    te_classic_destroy(classic);
    g_free(buffers);
    g_free(memory);
}

struct registrar {
    struct te_classic *classic;
    _Atomic bool stop;
};

static gpointer register_and_unregister(gpointer data)
{
    static char memory[64][256];
    struct registrar *registrar = data;

    for (size_t i = 0; !atomic_load(&registrar->stop); i++) {
        assert_int_equal(te_classic_register_local_memory(registrar->classic, memory[i % 64], 256, "*", 1), 0);
        if (i % 64 == 63)
            for (int j = 0; j < 64; j++)
                assert_int_equal(te_classic_unregister_local_memory(registrar->classic, memory[j]), 0);
    }
    return NULL;
}

/* Report M04. */
static void the_descriptor_is_whole_while_registrations_change(void **state)
{
    struct registrar registrar = {.classic = create(true)};
    GThread *thread = g_thread_new("registrar", register_and_unregister, &registrar);

    (void)state;
    for (int i = 0; i < 300; i++) {
        GString *answer = ask(registrar.classic, metadata_request, sizeof(metadata_request) - 1, false);

        te_segment_descriptor_unref(read_descriptor(answer));
        g_string_free(answer, TRUE);
    }
    atomic_store(&registrar.stop, true);
    g_thread_join(thread);
    te_classic_destroy(registrar.classic);
}

/* ---- Clients that misbehave ---- */

static void silent_and_slow_clients_hold_up_nobody(void **state)
{
    enum { SILENT = 500 };
    struct te_classic *classic = create(true);
    int silent[SILENT];

    (void)state;
    for (int i = 0; i < SILENT; i++) {
        silent[i] = test_connect((uint16_t)te_classic_port(classic));
        assert_true(silent[i] >= 0);
        /* A third says nothing, a third stops within the length, a third within the text. */
        assert_true(test_send(silent[i], "\x32\0\0\0\0\0\0\0\x03{", (size_t)(i % 3) * 5));
    }
    for (int i = 0; i < 50; i++)
        assert_probe_works(classic);
    /* They are closed after a while. */
    for (int i = 0; i < SILENT; i++) {
        GString *answer = g_string_new(NULL);
        bool reset;

        assert_true(test_receive_to_end(silent[i], answer, &reset));
        assert_int_equal(answer->len, 0);
        g_string_free(answer, TRUE);
        close(silent[i]);
    }
    te_classic_destroy(classic);
}

static void clients_that_leave_at_once_do_no_harm(void **state)
{
    struct te_classic *classic = create(true);
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int descriptor = test_connect((uint16_t)te_classic_port(classic));

        assert_true(descriptor >= 0);
        if (i % 4 > 0)
            assert_true(test_send(descriptor, metadata_request, sizeof(metadata_request) - 1));
        if (i % 4 > 1)
            setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(descriptor);
    }
    assert_probe_works(classic);
    te_classic_destroy(classic);
}

static void noise_is_refused(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct te_classic *classic = create(true);
    GRand *random = g_rand_new_with_seed(1);

    (void)state;
    for (int i = 0; i < 300; i++) {
        char noise[64];
        GString *answer;

        for (size_t j = 0; j < sizeof(noise); j++)
            noise[j] = (char)g_rand_int(random);
        answer = i == 0 ? ask(classic, http, sizeof(http) - 1, false) : ask(classic, noise, sizeof(noise), true);
        assert_int_equal(answer->len, 0);
        g_string_free(answer, TRUE);
    }
    assert_probe_works(classic);
    g_rand_free(random);
    te_classic_destroy(classic);
}

/* Report N04 and the bound on what is kept. */
static void a_full_inbox_refuses(void **state)
{
    struct te_classic *classic = create(true);
    struct te_frame frame = {
        .has_type = true, .type = TE_FRAME_NOTIFY, .text = "{\"name\":\"a\",\"notify_msg\":\"b\"}", .length = 29};
    GString *request = g_string_new(NULL), *answer;
    char *name, *text;

    (void)state;
    while (te_inbox_put(classic->engine->inbox, "n", 1, "t", 1))
        ;
    assert_int_equal(te_inbox_count(classic->engine->inbox), TE_NOTIFICATIONS_MAX);
    te_frame_encode(request, &frame);
    answer = ask(classic, request->str, request->len, false);
    assert_string_equal(answer->str + 9, "{\"name\":\"\",\"notify_msg\":\"\"}\n");
    g_string_free(answer, TRUE);
    assert_true(te_inbox_take(classic->engine->inbox, &name, &text));
    free(name);
    free(text);
    answer = ask(classic, request->str, request->len, false);
    assert_string_equal(answer->str + 9, "{\"name\":\"\",\"notify_msg\":\"success\"}\n");
    g_string_free(answer, TRUE);
    g_string_free(request, TRUE);
    te_classic_destroy(classic);
}

static void an_engine_with_open_connections_can_be_destroyed(void **state)
{
    struct te_classic *classic = create(true);
    int descriptors[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        descriptors[i] = test_connect((uint16_t)te_classic_port(classic));
        assert_true(test_send(descriptors[i], "\x32\0\0\0\0\0\0\0\x03{", (size_t)i * 5));
    }
    assert_probe_works(classic);
    te_classic_destroy(classic);
    for (int i = 0; i < 3; i++) {
        char byte;

        assert_true(recv(descriptors[i], &byte, 1, 0) <= 0);
        close(descriptors[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_requests_get_the_recorded_answers),
        cmocka_unit_test(recorded_notifications_arrive),
        cmocka_unit_test(a_region_that_peers_may_not_reach_is_not_published),
        cmocka_unit_test(a_long_answer_waits_for_slow_readers),
        cmocka_unit_test(the_descriptor_is_whole_while_registrations_change),
        cmocka_unit_test(silent_and_slow_clients_hold_up_nobody),
        cmocka_unit_test(clients_that_leave_at_once_do_no_harm),
        cmocka_unit_test(noise_is_refused),
        cmocka_unit_test(a_full_inbox_refuses),
        cmocka_unit_test(an_engine_with_open_connections_can_be_destroyed),
    };

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
