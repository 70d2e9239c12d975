/*
 * Anybody can connect: bytes on the control port and on the data port that no engine would send. The engine refuses
 * what it must, goes on serving others, and gives a stranger nothing but registered, remotely accessible memory.
 * Classic specification 3.1, 3.2, 4.3, 4.4 and 9.1; bug report C01.
 */
#include <sys/resource.h>
#include <sys/socket.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };

static void assert_serves(struct pair *pair)
{
    static uint64_t seed;
    seed++;
    pattern_fill(pair->local, SIZE, seed);
    assert_int_equal(pair_transfer(pair, WRITE, SIZE), COMPLETED);
    assert_pattern(pair->remote.here, SIZE, seed);
    assert_int_equal(te_probe(pair->engine, pair->target->name), 0);
}

/* A connection to the control port that got bytes sent to it. */
static int say(const char *name, const void *bytes, size_t length)
{
    int descriptor = raw_connect_name(name);
    assert_true(descriptor >= 0);
    assert_true(raw_send(descriptor, bytes, length));
    return descriptor;
}

static void assert_closes(int descriptor)
{
    assert_true(raw_at_end(descriptor));
    close(descriptor);
}

/* ---- control port ---- */

static void s9_1_1_unexpected_json_kills_nobody(void **state)
{
    (void)state;
    static const char *const texts[] = {"[1]",
                                        "5",
                                        "\"s\"",
                                        "true",
                                        "null",
                                        "{\"local_nic_path\":{}}",
                                        "{\"qp_num\":[-1]}",
                                        "{\"qp_num\":[\"x\"]}",
                                        "{\"qp_num\":5}",
                                        "{\"reply_msg\":[1]}",
                                        "{\"name\":{}}",
                                        "{\"name\":[],\"notify_msg\":{}}",
                                        "{\"notify_msg\":[1]}",
                                        "{\"protocol\":[\"tcp\"]}",
                                        "",
                                        "{",
                                        "}",
                                        "nonsense",
                                        "{\"name\":\"\\ud800\"}",
                                        "{\"a\":1e999999}",
                                        "{\"a\":99999999999999999999999999}"};
    struct pair pair = pair_new(SIZE);
    for (size_t index = 0; index < sizeof(texts) / sizeof(texts[0]); index++) {
        for (int type = 0; type < 256; type = type < 8 ? type + 1 : type * 2 - 1)
            free(raw_call(pair.target->name, (uint8_t)type, texts[index]));
    }
    assert_serves(&pair);
}

static void s9_1_1b_deep_nesting_kills_nobody(void **state)
{
    (void)state;
    static const size_t depths[] = {1000, 1001, 1100, 100000, 500000};
    struct pair pair = pair_new(SIZE);
    char *text = malloc(1000001);
    assert_non_null(text);
    for (size_t index = 0; index < sizeof(depths) / sizeof(depths[0]); index++) {
        for (int form = 0; form < 2; form++) {
            memset(text, '[', depths[index]);
            memset(text + depths[index], form ? '[' : ']', depths[index]);
            text[2 * depths[index]] = '\0';
            for (uint8_t type = 0; type < 4; type++)
                free(raw_call(pair.target->name, type, text));
        }
        assert_serves(&pair);
    }
    free(text);
}

static void s9_1_3_clients_that_do_not_wait_for_the_answer(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    for (int round = 0; round < 500; round++) {
        int descriptor = raw_connect_name(pair.target->name);
        assert_true(descriptor >= 0);
        assert_true(raw_send_text(descriptor, RAW_METADATA, "{}"));
        struct linger reset = {.l_onoff = 1};
        if (round % 2)
            setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(descriptor);
    }
    assert_serves(&pair);
}

static void s9_1_9_silent_clients_delay_nobody(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    static const uint8_t half_frame[] = {100, 0, 0, 0, 0, 0, 0, 0, 1, '{'};
    struct pair pair = pair_new(SIZE);
    int silent[COUNT];
    for (size_t index = 0; index < COUNT; index++)
        silent[index] = say(pair.target->name, half_frame, index % sizeof(half_frame));
    /* Upstream serves one at a time and gives each of these five seconds. */
    int64_t start = now_ns();
    for (int round = 0; round < 20; round++)
        assert_serves(&pair);
    assert_true(now_ns() - start < INT64_C(20) * 1000000000);
    for (size_t index = 0; index < COUNT; index++)
        close(silent[index]);
}

static void s9_1_10_out_of_descriptors_and_back(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    struct pair pair = pair_new(SIZE);
    assert_serves(&pair);
    int control[COUNT];
    int data[COUNT];
    int data_port = raw_data_port_of(pair.target->name);
    target_limit_descriptors(pair.target, 5);
    for (size_t index = 0; index < COUNT; index++) {
        control[index] = raw_connect_name(pair.target->name);
        data[index] = raw_connect("127.0.0.1", data_port);
    }
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED); /* who is connected already is served */
    for (size_t index = 0; index < COUNT; index++) {
        close(control[index]);
        close(data[index]);
    }
    target_limit_descriptors(pair.target, -1);
    AWAIT(te_probe(pair.engine, pair.target->name) == 0);
    assert_serves(&pair);
    transfer_engine_t other = engine_new();
    segment_id_t segment = engine_open(other, pair.target->name);
    assert_int_equal(transfer(other, WRITE, pair.local, segment, pair.remote.there, SIZE), COMPLETED);
}

static void contract_frames_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[16];
        size_t length;
    } frames[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0}, 8},                                     /* length 0 */
        {{1, 0, 0x10, 0, 0, 0, 0, 0, 1}, 9},                               /* one more than a mebibyte */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 9},          /* 2^64 - 1 */
        {{0, 0, 0, 0, 1, 0, 0, 0, 1}, 9},                                  /* 4 GiB */
        {{3, 0, 0, 0, 0, 0, 0, 0, 128, '{', '}'}, 11},                     /* an unknown type */
        {{3, 0, 0, 0, 0, 0, 0, 0, 255, '{', '}'}, 11},                     /* another */
        {{1, 0, 0, 0, 0, 0, 0, 0, 1}, 9},                                  /* no text */
        {{'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P', '/', '1'}, 12} /* somebody else's protocol */
    };
    struct pair pair = pair_new(SIZE);
    for (size_t index = 0; index < sizeof(frames) / sizeof(frames[0]); index++)
        assert_closes(say(pair.target->name, frames[index].bytes, frames[index].length));
    assert_serves(&pair);
}

static void contract_half_a_frame_and_the_end(void **state)
{
    (void)state;
    static const uint8_t frame[] = {3, 0, 0, 0, 0, 0, 0, 0, 1, '{', '}'};
    struct pair pair = pair_new(SIZE);
    for (size_t length = 0; length < sizeof(frame); length++) {
        int descriptor = say(pair.target->name, frame, length);
        shutdown(descriptor, SHUT_WR);
        assert_closes(descriptor);
    }
    assert_serves(&pair);
}

static void s9_2_13_frames_of_the_old_form_are_answered_in_it(void **state)
{
    (void)state;
    static const uint8_t old_form[] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    struct pair pair = pair_new(SIZE);
    int descriptor = say(pair.target->name, old_form, sizeof(old_form));
    size_t length;
    char *reply = raw_receive_frame(descriptor, &length);
    assert_non_null(reply);
    assert_int_equal(reply[0], '{'); /* the answer to a connection request, without a type */
    assert_non_null(strstr(reply, "\"reply_msg\":\"\""));
    free(reply);
    close(descriptor);
}

static void contract_answers_to_the_four_requests(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    static const char *const requests[] = {"{}", "{}", "{\"name\":\"n\",\"notify_msg\":\"m\"}", "{}"};
    static const char *const answers[] = {"\"qp_num\":[]", "\"protocol\":\"tcp\"",
                                          "{\"name\":\"\",\"notify_msg\":\"success\"}\n", "{\"status\":\"success\"}\n"};
    for (uint8_t type = 0; type < 4; type++) {
        char *reply = raw_call(pair.target->name, type, requests[type]);
        assert_non_null(reply);
        assert_non_null(strstr(reply, answers[type]));
        assert_int_equal(reply[strlen(reply) - 1], '\n');
        free(reply);
    }
    char *descriptor = raw_call(pair.target->name, RAW_METADATA, "null");
    assert_non_null(descriptor);
    assert_int_equal(raw_number_of(descriptor, "addr"), pair.remote.there);
    assert_int_equal(raw_number_of(descriptor, "length"), SIZE);
    assert_int_equal(raw_number_of(descriptor, "tcp_proto_version"), 2);
    assert_non_null(strstr(descriptor, pair.target->name));
    free(descriptor);
}

static void contract_a_client_that_keeps_the_connection_is_sent_away(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    int descriptor = raw_connect_name(pair.target->name);
    size_t length;
    assert_true(raw_send_text(descriptor, RAW_PROBE, "{}"));
    char *reply = raw_receive_frame(descriptor, &length);
    assert_non_null(reply);
    free(reply);
    assert_closes(descriptor);
    assert_serves(&pair);
}

static void contract_slow_clients_are_served_or_sent_away(void **state)
{
    (void)state;
    static const uint8_t frame[] = {3, 0, 0, 0, 0, 0, 0, 0, 3, '{', '}'};
    struct pair pair = pair_new(SIZE);
    int descriptor = raw_connect_name(pair.target->name);
    for (size_t index = 0; index < sizeof(frame); index++) {
        assert_true(raw_send(descriptor, frame + index, 1)); /* one byte, one segment */
        assert_serves(&pair);
    }
    size_t length;
    char *reply = raw_receive_frame(descriptor, &length);
    assert_non_null(reply);
    free(reply);
    close(descriptor);
}

static void contract_noise_on_both_ports(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    int data_port = raw_data_port_of(pair.target->name);
    memset(pair.remote.here, 0x5a, SIZE);
    uint8_t noise[600];
    for (uint64_t round = 0; round < 400; round++) {
        pattern_fill(noise, sizeof(noise), round);
        int control = say(pair.target->name, noise, 1 + round % sizeof(noise));
        int data = raw_connect("127.0.0.1", data_port);
        assert_true(data >= 0);
        raw_send(data, noise, 1 + round % sizeof(noise));
        close(control);
        close(data);
    }
    assert_bytes(pair.remote.here, SIZE, 0x5a);
    assert_serves(&pair);
}

static void contract_announced_lengths_cost_no_memory(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static const uint8_t announcement[] = {0, 0, 0x10, 0, 0, 0, 0, 0, 1, '{'}; /* a whole mebibyte will come */
    int silent[COUNT];
    struct pair pair = pair_new(SIZE);
    assert_serves(&pair);
    size_t before = target_resident_bytes(pair.target);
    for (size_t index = 0; index < COUNT; index++)
        silent[index] = say(pair.target->name, announcement, sizeof(announcement));
    assert_serves(&pair);
    assert_true(target_resident_bytes(pair.target) < before + 32 * MIB * (under_sanitizer() ? 4 : 1));
    for (size_t index = 0; index < COUNT; index++)
        close(silent[index]);
    assert_serves(&pair);
}

static void contract_ten_thousand_connections(void **state)
{
    (void)state;
    enum { COUNT = 10000, ROOM = 500 };
    static int connections[COUNT];
    struct rlimit limit;
    watchdog(60);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < COUNT + ROOM) { /* root may */
        limit.rlim_max = COUNT + ROOM;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    struct pair pair = pair_new(SIZE); /* raises the limit to the hard one, the target's as well */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < COUNT + ROOM)
        fail_msg("this test needs %d open files: raise the hard limit (ulimit -Hn)", COUNT + ROOM);
    int data_port = raw_data_port_of(pair.target->name);
    for (size_t index = 0; index < COUNT; index++) {
        if (index % 4 == 0)
            connections[index] = raw_connect_name(pair.target->name);
        else
            connections[index] = raw_connect("127.0.0.1", data_port);
        assert_true(connections[index] >= 0);
        if (index % 1000 == 999)
            assert_serves(&pair);
    }
    assert_serves(&pair);
    for (size_t index = 0; index < COUNT; index++)
        close(connections[index]);
    assert_serves(&pair);
}

static void contract_valid_frames_in_the_wrong_order(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    const char *name = pair.target->name;
    size_t length;
    uint8_t header[RAW_HEADER_SIZE];
    /* A connection request before anybody has asked for the descriptor, and again. */
    for (int round = 0; round < 2; round++) {
        char *reply = raw_call(name, RAW_CONNECTION, "{\"qp_num\":[],\"ready_ack\":true}");
        assert_non_null(reply);
        free(reply);
    }
    /* Two frames in one go: one request per connection, so one answer. */
    int descriptor = raw_connect_name(name);
    assert_true(raw_send_text(descriptor, RAW_PROBE, "{}"));
    assert_true(raw_send_text(descriptor, RAW_METADATA, "{}"));
    char *first = raw_receive_frame(descriptor, &length);
    assert_non_null(first);
    assert_int_equal(first[0], RAW_PROBE);
    free(first);
    assert_closes(descriptor);
    /* An answer instead of a request. */
    descriptor = raw_connect_name(name);
    assert_true(raw_send_text(descriptor, RAW_NOTIFY, "{\"name\":\"\",\"notify_msg\":\"success\"}\n"));
    free(raw_receive_frame(descriptor, &length));
    close(descriptor);
    /* Each protocol on the other's port. */
    memset(pair.remote.here, 0x5a, SIZE);
    raw_request(header, RAW_WRITE_V2, pair.remote.there, 16);
    assert_closes(say(name, header, sizeof(header)));
    descriptor = raw_connect_data(name);
    assert_true(raw_send_text(descriptor, RAW_METADATA, "{\"padding\":\"padding\"}"));
    assert_true(raw_at_end(descriptor));
    close(descriptor);
    /* A status frame instead of a request. */
    uint64_t status[3] = {RAW_STATUS_OK, RAW_STATUS_OK, RAW_STATUS_OK};
    descriptor = raw_connect_data(name);
    assert_true(raw_send(descriptor, status, sizeof(status)));
    assert_true(raw_at_end(descriptor));
    close(descriptor);
    assert_bytes(pair.remote.here, SIZE, 0x5a);
    assert_serves(&pair);
    /* Requests to an engine that has no transport yet. */
    char bare_name[NAME_SIZE];
    transfer_engine_t bare = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0);
    engine_name(bare, bare_name);
    for (uint8_t type = 0; type < 4; type++)
        free(raw_call(bare_name, type, "{}"));
    assert_non_null(installTransport(bare, "tcp", NULL));
    assert_works(bare);
}

/* ---- data port ---- */

struct range {
    uint64_t address, length;
};

static void report_c01_only_registered_ranges_are_served(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    struct shared_memory never = target_map(pair.target, SIZE);
    struct shared_memory since = target_memory(pair.target, SIZE);
    struct shared_memory hidden = target_map(pair.target, SIZE);
    assert_int_equal(target_unregister(pair.target, since.there), 0);
    assert_int_equal(target_register(pair.target, hidden.there, SIZE, 0), 0);
    memset(pair.remote.here, 0x5a, SIZE);
    memset(never.here, 0x5a, SIZE);
    memset(since.here, 0x5a, SIZE);
    memset(hidden.here, 0x5a, SIZE);
    const struct range ranges[] = {{never.there, 16},
                                   {since.there, 16},
                                   {hidden.there, 16},
                                   {pair.remote.there, 0},
                                   {pair.remote.there - 1, 16},
                                   {pair.remote.there, SIZE + 1},
                                   {pair.remote.there + SIZE - 8, 16},
                                   {pair.remote.there + SIZE, 16},
                                   {pair.remote.there, UINT64_MAX},
                                   {pair.remote.there + 8, UINT64_MAX - 7},
                                   {pair.remote.there + 8, UINT64_MAX - pair.remote.there},
                                   {UINT64_MAX - 8, 16},
                                   {0, 16},
                                   {8, 16},
                                   {(uintptr_t)&ranges, 16},
                                   {UINT64_MAX, 1}};
    static const uint8_t opcodes[] = {RAW_READ_V1, RAW_WRITE_V1, RAW_READ_V2, RAW_WRITE_V2, 0x02, 0x82, 0x7f, 0xff};
    uint8_t body[16];
    memset(body, 0x77, sizeof(body));
    for (size_t index = 0; index < sizeof(ranges) / sizeof(ranges[0]); index++) {
        for (size_t kind = 0; kind < sizeof(opcodes); kind++) {
            int descriptor = raw_connect_data(pair.target->name);
            assert_true(descriptor >= 0);
            assert_true(raw_send_request(descriptor, opcodes[kind], ranges[index].address, ranges[index].length));
            if ((opcodes[kind] & 0x7f) == 1)
                raw_send(descriptor, body, sizeof(body));
            if (opcodes[kind] & 0x80)
                assert_int_equal(raw_receive_status(descriptor), RAW_STATUS_REJECTED);
            assert_closes(descriptor);
        }
    }
    assert_bytes(pair.remote.here, SIZE, 0x5a);
    assert_bytes(never.here, SIZE, 0x5a);
    assert_bytes(since.here, SIZE, 0x5a);
    assert_bytes(hidden.here, SIZE, 0x5a);
    assert_serves(&pair);
}

static void contract_requests_of_both_versions_in_one_go(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    uint8_t stream[5 * RAW_HEADER_SIZE + 10];
    uint64_t there = pair.remote.there;
    memset(pair.remote.here, 'r', SIZE);
    raw_request(stream, RAW_WRITE_V2, there, 5);
    memcpy(stream + 24, "hello", 5);
    raw_request(stream + 29, RAW_READ_V1, there, 3);
    raw_request(stream + 53, RAW_WRITE_V1, there + 5, 5);
    memcpy(stream + 77, "world", 5);
    raw_request(stream + 82, RAW_READ_V2, there, 10);
    raw_request(stream + 106, 0x82, there + 10, 2); /* other opcodes read */
    for (size_t index = 0; index < 7; index++)
        stream[106 + 17 + index] = 0xee; /* padding is ignored */
    int descriptor = raw_connect_data(pair.target->name);
    assert_true(descriptor >= 0);
    for (int round = 0; round < 3; round++) {
        char bytes[16] = "";
        if (round == 1) {
            for (size_t index = 0; index < 130; index++)
                assert_true(raw_send(descriptor, stream + index, 1));
        } else {
            assert_true(raw_send(descriptor, stream, 130));
        }
        assert_int_equal(raw_receive_status(descriptor), RAW_STATUS_OK);
        assert_int_equal(raw_receive(descriptor, bytes, 3), 3);
        assert_memory_equal(bytes, "hel", 3);
        assert_int_equal(raw_receive_status(descriptor), RAW_STATUS_OK);
        assert_int_equal(raw_receive(descriptor, bytes, 10), 10);
        assert_memory_equal(bytes, "helloworld", 10);
        assert_int_equal(raw_receive_status(descriptor), RAW_STATUS_OK);
        assert_int_equal(raw_receive(descriptor, bytes, 2), 2);
        assert_memory_equal(bytes, "rr", 2);
    }
    shutdown(descriptor, SHUT_WR); /* the end between two requests is a normal one */
    assert_closes(descriptor);
}

static void contract_a_rejection_arrives_although_the_body_is_on_its_way(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    for (int round = 0; round < 50; round++) {
        uint8_t request[RAW_HEADER_SIZE + 4096];
        memset(request, 0x77, sizeof(request));
        raw_request(request, RAW_WRITE_V2, 64, 4096);
        int descriptor = raw_connect_data(pair.target->name);
        assert_true(descriptor >= 0);
        assert_true(raw_send(descriptor, request, sizeof(request)));
        assert_int_equal(raw_receive_status(descriptor), RAW_STATUS_REJECTED);
        assert_closes(descriptor);
    }
}

static void contract_half_a_request_and_the_end(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    uint8_t request[RAW_HEADER_SIZE + 1000];
    memset(request, 0x77, sizeof(request));
    raw_request(request, RAW_WRITE_V2, pair.remote.there, 1000);
    for (size_t length = 0; length < sizeof(request); length += length < 30 ? 1 : 97) {
        int descriptor = raw_connect_data(pair.target->name);
        assert_true(descriptor >= 0);
        assert_true(raw_send(descriptor, request, length));
        shutdown(descriptor, SHUT_WR);
        assert_closes(descriptor);
    }
    assert_serves(&pair);
    assert_int_equal(target_unregister(pair.target, pair.remote.there), 0);
}

static void contract_half_a_request_and_silence_delays_nobody(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct pair pair = pair_new(SIZE);
    int silent[COUNT];
    uint8_t request[RAW_HEADER_SIZE + 1000];
    memset(request, 0x77, sizeof(request));
    raw_request(request, RAW_WRITE_V2, pair.remote.there, 1000);
    for (size_t index = 0; index < COUNT; index++) {
        silent[index] = raw_connect_data(pair.target->name);
        assert_true(raw_send(silent[index], request, 1 + index * 10));
    }
    for (int round = 0; round < 20; round++)
        assert_serves(&pair);
    /* Unregistering waits for none of them, and afterwards they cannot land anything. */
    assert_int_equal(target_unregister(pair.target, pair.remote.there), 0);
    memset(pair.remote.here, 0x5a, SIZE);
    for (size_t index = 0; index < COUNT; index++) {
        raw_send(silent[index], request + 1 + index * 10, sizeof(request) - 1 - index * 10);
        assert_int_not_equal(raw_receive_status(silent[index]), RAW_STATUS_OK);
        close(silent[index]);
    }
    assert_bytes(pair.remote.here, SIZE, 0x5a);
}

static void contract_readers_that_do_not_read_delay_nobody(void **state)
{
    (void)state;
    enum { COUNT = 8, LONG = 32 * MIB };
    struct pair pair = pair_new(LONG);
    int greedy[COUNT];
    for (size_t index = 0; index < COUNT; index++) {
        greedy[index] = raw_connect_data(pair.target->name);
        assert_true(raw_send_request(greedy[index], RAW_READ_V2, pair.remote.there, LONG));
        assert_int_equal(raw_receive_status(greedy[index]), RAW_STATUS_OK);
    }
    for (int round = 0; round < 20; round++)
        assert_serves(&pair);
    assert_int_equal(target_unregister(pair.target, pair.remote.there), 0); /* waits for none of them */
    for (size_t index = 0; index < COUNT; index++)
        close(greedy[index]);
    assert_int_equal(target_register(pair.target, pair.remote.there, LONG, 1), 0);
    assert_serves(&pair);
}

static void contract_a_target_is_destroyed_with_strangers_connected(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    static const uint8_t half_frame[] = {100, 0, 0, 0, 0, 0, 0, 0, 1, '{'};
    int control = say(pair.target->name, half_frame, sizeof(half_frame));
    int data = raw_connect_data(pair.target->name);
    assert_true(raw_send_request(data, RAW_WRITE_V2, pair.remote.there, SIZE));
    assert_true(raw_send(data, half_frame, sizeof(half_frame)));
    target_exit(pair.target);
    assert_closes(control);
    assert_closes(data);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(s9_1_1_unexpected_json_kills_nobody),
        TEST(s9_1_1b_deep_nesting_kills_nobody),
        TEST(s9_1_3_clients_that_do_not_wait_for_the_answer),
        TEST(s9_1_9_silent_clients_delay_nobody),
        TEST(s9_1_10_out_of_descriptors_and_back),
        TEST(s9_2_13_frames_of_the_old_form_are_answered_in_it),
        TEST(contract_frames_that_are_refused),
        TEST(contract_half_a_frame_and_the_end),
        TEST(contract_answers_to_the_four_requests),
        TEST(contract_a_client_that_keeps_the_connection_is_sent_away),
        TEST(contract_slow_clients_are_served_or_sent_away),
        TEST(contract_noise_on_both_ports),
        TEST(contract_announced_lengths_cost_no_memory),
        TEST(contract_ten_thousand_connections),
        TEST(contract_valid_frames_in_the_wrong_order),
        TEST(report_c01_only_registered_ranges_are_served),
        TEST(contract_requests_of_both_versions_in_one_go),
        TEST(contract_a_rejection_arrives_although_the_body_is_on_its_way),
        TEST(contract_half_a_request_and_the_end),
        TEST(contract_half_a_request_and_silence_delays_nobody),
        TEST(contract_readers_that_do_not_read_delay_nobody),
        TEST(contract_a_target_is_destroyed_with_strangers_connected),
    };
    return RUN_TESTS(tests, argc, argv);
}
