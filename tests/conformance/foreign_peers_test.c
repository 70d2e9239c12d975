/*
 * Peers that are not of this library: what their descriptors may say, how they may fail, and that nobody else suffers.
 * Classic specification 2.5, 4.5 and 9.1; bug reports C*, M*, B* and U* that a peer brings about.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "black_hole.h"
#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };

/* ---- descriptors ---- */

enum verdict { OPENS, FAILS, EITHER };

/* @NAME@, @ADDR@ and @PORT@ stand for the peer's own values. */
struct description {
    enum verdict verdict;
    const char *text;
};

#define HEAD   "{\"buffers\":[{\"addr\":@ADDR@,\"length\":1048576,\"name\":\"@NAME@\"}],\"name\":\"@NAME@\","
#define TAIL   "\"tcp_data_port\":@PORT@,\"tcp_proto_version\":2"
#define BUFFER "\"name\":\"@NAME@\",\"protocol\":\"tcp\",\"tcp_data_port\":@PORT@,\"tcp_proto_version\":2,\"buffers\":"

static const struct description descriptions[] = {
    {OPENS, HEAD "\"protocol\":\"tcp\"," TAIL "}"},
    {OPENS, HEAD "\"protocol\":\"tcp\"," TAIL ",\"unknown\":{\"a\":[1,2]}}"},
    {OPENS, HEAD "\"protocol\":\"tcp\"," TAIL "} garbage behind"},
    {OPENS, HEAD "\"protocol\":\"tcp\",/* a comment */" TAIL "}"},
    {OPENS, HEAD "\"protocol\":\"tcp\",\"protocol\":\"tcp\"," TAIL "}"},
    {OPENS, HEAD "\"protocol\":\"tcp\",\"timestamp\":\"x\",\"rdma_server_name\":\"\"," TAIL "}"},
    {OPENS, HEAD "\"protocol\":\"tcp\",\"tcp_data_port\":@PORT@}"},
    {OPENS, HEAD "\"protocol\":\"tcp\",\"tcp_data_host\":\"\"," TAIL "}"},
    {OPENS, "{" BUFFER "[]}"},
    {OPENS, "{\"name\":\"@NAME@\",\"protocol\":\"tcp\"," TAIL "}"},
    {OPENS, "{" BUFFER "[{\"addr\":18446744073709547520,\"length\":1,\"name\":\"n\"}]}"},
    {EITHER, HEAD "\"protocol\":\"tcp\"," TAIL ",}"},
    {EITHER, "\xef\xbb\xbf" HEAD "\"protocol\":\"tcp\"," TAIL "}"},
    {EITHER, HEAD "\"protocol\":\"tcp\",\"tcp_data_port\":0,\"tcp_proto_version\":2}"},
    {EITHER, HEAD "\"protocol\":\"rdma\"," TAIL "}"},
    {EITHER, "{" BUFFER "[{\"addr\":4096.5,\"length\":1e3,\"name\":\"n\"}]}"},
    {EITHER, HEAD "\"protocol\":\"tcp\",\"tcp_data_host\":5," TAIL "}"},
    {FAILS, HEAD "\"protocol\":\"nonsense\"," TAIL "}"},
    {FAILS, HEAD TAIL "}"},
    {FAILS, HEAD "\"protocol\":[\"tcp\"]," TAIL "}"},
    {FAILS, HEAD "\"protocol\":5," TAIL "}"},
    {FAILS, HEAD "\"protocol\":\"tcp\",\"tcp_data_port\":\"1\"}"},
    {FAILS, HEAD "\"protocol\":\"tcp\",\"tcp_data_port\":@PORT@,\"tcp_proto_version\":\"2\"}"},
    {FAILS, HEAD "\"protocol\":\"tcp\",\"rdma_server_name\":{}," TAIL "}"},
    {OPENS, "{" BUFFER "[{\"addr\":0,\"length\":1,\"name\":\"n\"}]}"}, /* without that region */
    {FAILS, "{" BUFFER "[{\"addr\":4096,\"length\":0,\"name\":\"n\"}]}"},
    {FAILS, "{" BUFFER "[{\"addr\":4096,\"length\":1,\"name\":\"\"}]}"},
    {FAILS, "{" BUFFER "[{\"addr\":\"4096\",\"length\":1,\"name\":\"n\"}]}"},
    {FAILS, "{" BUFFER "[{\"addr\":-4096,\"length\":1,\"name\":\"n\"}]}"},
    {FAILS, "{" BUFFER "[5]}"},
    {EITHER, "{" BUFFER "{}}"},
    {FAILS, "{" BUFFER "{\"addr\":4096,\"length\":1,\"name\":\"n\"}}"},
    {FAILS, "{" BUFFER "\"x\"}"},
    {FAILS, "null"},
    {FAILS, "[1]"},
    {FAILS, "\"text\""},
    {FAILS, "5"},
    {FAILS, ""},
    {FAILS, "nonsense"},
    {FAILS, "{'name':'x'}"},
    {FAILS, HEAD "\"protocol\":\"tcp\"," TAIL},
};

static char *expand(const struct raw_peer *peer, const char *text)
{
    char *expanded = calloc(1, strlen(text) + 1024);
    assert_non_null(expanded);
    while (*text) {
        char *end = expanded + strlen(expanded);
        if (strncmp(text, "@NAME@", 6) == 0)
            text += 6, strcpy(end, peer->name);
        else if (strncmp(text, "@ADDR@", 6) == 0)
            text += 6, sprintf(end, "%llu", (unsigned long long)(uintptr_t)peer->memory);
        else if (strncmp(text, "@PORT@", 6) == 0)
            text += 6, sprintf(end, "%d", peer->data_port);
        else
            *end = *text++;
    }
    return expanded;
}

static void s9_1_2_no_descriptor_kills_the_opener(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(KIB);
    for (size_t index = 0; index < sizeof(descriptions) / sizeof(descriptions[0]); index++) {
        struct raw_peer *peer = raw_peer_start();
        char *text = expand(peer, descriptions[index].text);
        raw_peer_publish(peer, text);
        segment_id_t segment = openSegment(engine, peer->name);
        if (descriptions[index].verdict == OPENS ? segment <= 0 : descriptions[index].verdict == FAILS && segment >= 0)
            fail_msg("openSegment = %d for %s", segment, text);
        if (descriptions[index].verdict == OPENS) {
            int status = transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB);
            if (status != COMPLETED)
                fail_msg("status %d for %s", status, text);
        } else if (segment > 0) {
            transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB);
        } else {
            assert_string_not_equal(te_last_error(), "");
        }
        free(text);
        raw_peer_stop(peer);
    }
    assert_works(engine);
}

static void s9_1_2_a_descriptor_that_turns_bad_later(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(KIB);
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    for (size_t index = 0; index < sizeof(descriptions) / sizeof(descriptions[0]); index++) {
        if (descriptions[index].verdict != FAILS)
            continue;
        raw_peer_publish(peer, descriptions[index].text);
        assert_int_equal(syncSegmentCache(engine), 0); /* the old state is kept */
        assert_int_equal(openSegmentNoCache(engine, peer->name), segment);
        assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB), COMPLETED);
    }
}

static void contract_a_deep_descriptor_kills_nobody(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    struct raw_peer *peer = raw_peer_start();
    char *text = malloc(500001);
    assert_non_null(text);
    memset(text, '[', 500000);
    text[500000] = '\0';
    raw_peer_publish(peer, text);
    assert_true(openSegment(engine, peer->name) < 0);
    free(text);
    assert_works(engine);
}

static void report_h04_a_peer_without_a_common_transport(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(KIB);
    struct raw_peer *peer = raw_peer_start();
    char *text = expand(peer, HEAD "\"protocol\":\"nvlink\",\"tcp_data_port\":0,\"tcp_proto_version\":1}");
    raw_peer_publish(peer, text);
    free(text);
    segment_id_t segment = openSegment(engine, peer->name);
    if (segment > 0) {
        struct transfer_request request = request_of(WRITE, local, segment, (uintptr_t)peer->memory, KIB);
        batch_id_t batch = batch_new(engine, 1);
        assert_int_equal(submitTransfer(engine, batch, &request, 1), 8);
        assert_int_equal(freeBatchID(engine, batch), 0);
    }
    assert_string_not_equal(te_last_error(), "");
    assert_int_equal(raw_peer_requests(peer), 0);
}

/* ---- transfers against peers that fail ---- */

static void contract_an_earlier_bad_request_fails_no_later_good_one(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    for (int round = 0; round < 40; round++) { /* upstream fails every fourth good one */
        assert_int_equal(transfer(pair.engine, round % 2, pair.local, pair.segment, 64, KIB), FAILED);
        pattern_fill(pair.local, SIZE, (uint64_t)round);
        assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
        assert_pattern(pair.remote.here, SIZE, (uint64_t)round);
    }
    struct transfer_request requests[8];
    for (size_t index = 0; index < 8; index++)
        requests[index] = request_of(WRITE, pair.local, pair.segment, 64, KIB);
    for (int round = 0; round < 10; round++) {
        batch_id_t batch = batch_new(pair.engine, 8);
        assert_int_equal(submitTransfer(pair.engine, batch, requests, 8), 0);
        for (size_t index = 0; index < 8; index++)
            assert_int_equal(finish(pair.engine, batch, index), FAILED);
        assert_int_equal(freeBatchID(pair.engine, batch), 0);
        assert_int_equal(pair_transfer(&pair, READ, SIZE), COMPLETED);
    }
}

static void contract_a_bad_request_among_good_ones_in_flight(void **state)
{
    (void)state;
    enum { COUNT = 200, PART = 4096 };
    struct pair pair = pair_new(COUNT * PART);
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct transfer_request requests[COUNT];
        for (size_t index = 0; index < COUNT; index++)
            requests[index] = request_of(opcode, pair.local + index * PART, pair.segment,
                                         index % 10 == 7 ? 64 : pair.remote.there + index * PART, PART);
        pattern_fill(opcode == READ ? pair.remote.here : pair.local, pair.size, 1);
        memset(opcode == READ ? pair.local : pair.remote.here, 0, pair.size);
        batch_id_t batch = batch_new(pair.engine, COUNT);
        assert_int_equal(submitTransfer(pair.engine, batch, requests, COUNT), 0);
        for (size_t index = 0; index < COUNT; index++)
            assert_int_equal(finish(pair.engine, batch, index), index % 10 == 7 ? FAILED : COMPLETED);
        uint8_t *expected = malloc(pair.size);
        assert_non_null(expected);
        pattern_fill(expected, pair.size, 1);
        for (size_t index = 7; index < COUNT; index += 10)
            memset(expected + index * PART, 0, PART);
        assert_memory_equal(opcode == READ ? pair.local : pair.remote.here, expected, pair.size);
        free(expected);
        assert_int_equal(freeBatchID(pair.engine, batch), 0);
    }
}

static void contract_ten_thousand_requests_to_one_peer(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    watchdog(60);
    struct pair pair = pair_new(COUNT * 64);
    struct transfer_request *requests = calloc(COUNT, sizeof(*requests));
    assert_non_null(requests);
    for (int round = 0; round < 3; round++) {
        int opcode = round % 2 ? READ : WRITE;
        pattern_fill(opcode == READ ? pair.remote.here : pair.local, pair.size, (uint64_t)round);
        for (size_t index = 0; index < COUNT; index++)
            requests[index] =
                request_of(opcode, pair.local + index * 64, pair.segment, pair.remote.there + index * 64, 64);
        batch_id_t batch = batch_new(pair.engine, COUNT);
        assert_int_equal(submitTransfer(pair.engine, batch, requests, COUNT), 0);
        for (size_t index = 0; index < COUNT; index++)
            assert_int_equal(finish(pair.engine, batch, index), COMPLETED);
        assert_pattern(opcode == READ ? pair.local : pair.remote.here, pair.size, (uint64_t)round);
        assert_int_equal(freeBatchID(pair.engine, batch), 0);
    }
    free(requests);
}

static void report_b08_a_very_large_batch(void **state)
{
    (void)state;
    enum { STEP = 10000 };
    watchdog(100);
    size_t count = under_sanitizer() ? 30000 : 300000;
    struct pair pair = pair_new(4 * KIB);
    struct transfer_request *requests = calloc(STEP, sizeof(*requests));
    assert_non_null(requests);
    for (size_t index = 0; index < STEP; index++)
        requests[index] = request_of(WRITE, pair.local, pair.segment, pair.remote.there, 256);
    batch_id_t batch = batch_new(pair.engine, count);
    for (size_t first = 0; first < count; first += STEP)
        assert_int_equal(submitTransfer(pair.engine, batch, requests, STEP), 0);
    assert_int_equal(submitTransfer(pair.engine, batch, requests, 1), 2);
    for (size_t index = 0; index < count; index++)
        assert_int_equal(finish(pair.engine, batch, index), COMPLETED);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
    free(requests);
}

static void report_b12_a_second_entry_with_an_unknown_target(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    struct transfer_request requests[2] = {request_of(WRITE, pair.local, pair.segment, pair.remote.there, KIB),
                                           request_of(WRITE, pair.local, 999, pair.remote.there, KIB)};
    memset(pair.local, 0x77, KIB);
    batch_id_t batch = batch_new(pair.engine, 2);
    for (int round = 0; round < 100; round++)
        assert_int_equal(submitTransfer(pair.engine, batch, requests, 2), 1);
    pair_settle(&pair);
    assert_bytes(pair.remote.here, KIB, 0);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void report_c03_a_peer_that_closes_in_the_middle_again_and_again(void **state)
{
    (void)state;
    enum { ROUNDS = 1000 };
    watchdog(60);
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(MIB);
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    raw_peer_behave(peer, RAW_CLOSE_HALF_WAY, 0);
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = round % 10 == 0 ? MIB : 2000;
        assert_int_equal(transfer(engine, round % 2, local, segment, (uintptr_t)peer->memory, length), FAILED);
    }
    raw_peer_behave(peer, RAW_SERVE, 0);
    assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, MIB), COMPLETED);
}

static void report_c05_sockets_to_one_peer_are_bounded(void **state)
{
    (void)state;
    enum { COUNT = 400, LANES_AT_MOST = 16 };
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(COUNT * KIB);
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    size_t before = open_descriptors();
    for (int round = 0; round < 5; round++) {
        struct transfer_request requests[COUNT];
        batch_id_t batch = batch_new(engine, COUNT);
        for (size_t index = 0; index < COUNT; index++)
            requests[index] =
                request_of((int)(index % 2), local + index * KIB, segment, (uintptr_t)peer->memory + index * KIB, KIB);
        assert_int_equal(submitTransfer(engine, batch, requests, COUNT), 0);
        for (size_t index = 0; index < COUNT; index++)
            assert_int_equal(finish(engine, batch, index), COMPLETED);
        assert_int_equal(freeBatchID(engine, batch), 0);
    }
    assert_true(raw_peer_connections(peer) <= LANES_AT_MOST);      /* of all rounds together: they are kept */
    assert_true(open_descriptors() <= before + 2 * LANES_AT_MOST); /* both ends are in this process */
}

static void report_c05_connections_to_restarted_peers_do_not_pile_up(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    struct pair pair = pair_new_restartable(SIZE);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
    size_t before = open_descriptors();
    for (int round = 0; round < 10; round++) {
        target_kill(pair.target);
        target_restart(pair.target);
        pair.remote = target_memory(pair.target, SIZE);
        AWAIT(pair_transfer(&pair, WRITE, SIZE) == COMPLETED);
    }
    assert_true(open_descriptors() <= before + 10 + 16); /* the memfd of each round, and lanes */
}

static void report_c08_a_peer_at_a_new_port_after_a_refresh(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        transfer_engine_t engine = engine_new();
        uint8_t *local = memory_new(KIB);
        struct raw_peer *peer = raw_peer_start();
        struct raw_peer *moved = raw_peer_start();
        segment_id_t segment = engine_open(engine, peer->name);
        assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB), COMPLETED);
        char *elsewhere = raw_descriptor(moved, peer->name, NULL, 2);
        raw_peer_publish(peer, elsewhere);
        free(elsewhere);
        if (way == 0)
            assert_int_equal(syncSegmentCache(engine), 0);
        else
            assert_int_equal(openSegmentNoCache(engine, peer->name), segment);
        unsigned before = raw_peer_requests(peer);
        assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)moved->memory, KIB), COMPLETED);
        assert_int_equal(raw_peer_requests(peer), before); /* although the old connection still stands */
        assert_int_equal(raw_peer_requests(moved), 1);
        raw_peers_stop_all();
    }
}

static void report_c11_odd_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537, 630784, 1048577};
    struct pair pair = pair_new(2 * MIB);
    for (size_t index = 0; index < sizeof(sizes) / sizeof(sizes[0]); index++) {
        pattern_fill(pair.local, sizes[index], index);
        assert_int_equal(pair_transfer(&pair, WRITE, sizes[index]), COMPLETED);
        assert_pattern(pair.remote.here, sizes[index], index);
        memset(pair.local, 0, sizes[index]);
        assert_int_equal(pair_transfer(&pair, READ, sizes[index]), COMPLETED);
        assert_pattern(pair.local, sizes[index], index);
    }
}

static void report_c12_a_dead_peer_in_a_batch_with_a_live_one(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    short_timeouts();
    struct pair pair = pair_new(COUNT * KIB);
    struct target *dead = target_start();
    struct shared_memory remote = target_memory(dead, KIB);
    segment_id_t gone = engine_open(pair.engine, dead->name);
    target_kill(dead);
    struct transfer_request requests[COUNT];
    for (size_t index = 0; index < COUNT; index++) {
        requests[index] = request_of((int)(index / 2 % 2), pair.local + index * KIB, pair.segment,
                                     pair.remote.there + index * KIB, KIB);
        if (index % 2) {
            requests[index].target_id = gone;
            requests[index].target_offset = remote.there;
        }
    }
    batch_id_t batch = batch_new(pair.engine, COUNT);
    assert_int_equal(submitTransfer(pair.engine, batch, requests, COUNT), 0);
    for (size_t index = 0; index < COUNT; index++)
        assert_int_equal(finish(pair.engine, batch, index), index % 2 ? FAILED : COMPLETED);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void report_m01_a_black_hole_delays_nobody(void **state)
{
    (void)state;
    short_timeouts();
    struct pair pair = pair_new(SIZE);
    /* The control port answers, the data port says neither yes nor no. */
    struct raw_peer *peer = raw_peer_start();
    struct raw_peer shown = *peer;
    shown.data_port = black_hole_open("127.0.0.1", 0);
    char *descriptor = raw_descriptor(&shown, peer->name, NULL, 2);
    raw_peer_publish(peer, descriptor);
    free(descriptor);
    segment_id_t hole = engine_open(pair.engine, peer->name);
    batch_id_t stuck[8];
    uint8_t *waiting = memory_new(8 * KIB);
    for (size_t index = 0; index < 8; index++)
        stuck[index] =
            submit_one(pair.engine, (int)(index % 2), waiting + index * KIB, hole, (uintptr_t)peer->memory, KIB);
    for (int round = 0; round < 20; round++)
        assert_int_equal(pair_transfer(&pair, round % 2, SIZE), COMPLETED);
    for (size_t index = 0; index < 8; index++) {
        assert_int_equal(finish(pair.engine, stuck[index], 0), FAILED);
        assert_int_equal(freeBatchID(pair.engine, stuck[index]), 0);
    }
}

static void report_m02_one_overall_time_limit_for_a_batch(void **state)
{
    (void)state;
    enum { COUNT = 20 };
    short_timeouts();
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(COUNT * KIB);
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    raw_peer_behave(peer, RAW_STALL_BEFORE_STATUS, 0);
    struct transfer_request requests[COUNT];
    for (size_t index = 0; index < COUNT; index++)
        requests[index] =
            request_of((int)(index % 2), local + index * KIB, segment, (uintptr_t)peer->memory + index * KIB, KIB);
    batch_id_t batch = batch_new(engine, COUNT);
    int64_t start = now_ns();
    assert_int_equal(submitTransfer(engine, batch, requests, COUNT), 0);
    for (size_t index = 0; index < COUNT; index++)
        assert_int_equal(finish(engine, batch, index), FAILED);
    /* Not COUNT times the time-out of a second. */
    assert_true(now_ns() - start < INT64_C(8000000000) * slowness());
    assert_int_equal(freeBatchID(engine, batch), 0);
}

struct churn {
    struct pair *pair;
    atomic_bool stop;
    atomic_int bad;
};

static void *fetch_descriptors(void *data)
{
    struct churn *churn = *(struct churn **)data;
    while (!atomic_load(&churn->stop)) {
        char *text = raw_call(churn->pair->target->name, RAW_METADATA, "{}");
        if (!text || !strstr(text, "\"protocol\":\"tcp\""))
            atomic_store(&churn->bad, 1);
        free(text);
    }
    return NULL;
}

static void report_m04_the_descriptor_is_read_while_it_changes(void **state)
{
    (void)state;
    enum { READERS = 8 };
    struct pair pair = pair_new(SIZE);
    struct churn churn = {.pair = &pair};
    struct churn *own = &churn;
    pthread_t threads[READERS];
    struct shared_memory memory = target_map(pair.target, 16 * SIZE);
    for (size_t index = 0; index < READERS; index++)
        assert_int_equal(pthread_create(&threads[index], NULL, fetch_descriptors, &own), 0);
    for (int round = 0; round < 30; round++) {
        for (size_t part = 0; part < 16; part++)
            assert_int_equal(target_register(pair.target, memory.there + part * SIZE, SIZE, 1), 0);
        for (size_t part = 0; part < 16; part++)
            assert_int_equal(target_unregister(pair.target, memory.there + part * SIZE), 0);
    }
    atomic_store(&churn.stop, true);
    for (size_t index = 0; index < READERS; index++)
        pthread_join(threads[index], NULL);
    assert_int_equal(atomic_load(&churn.bad), 0);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
}

static void report_b05_slow_but_moving_is_not_failed(void **state)
{
    (void)state;
    short_timeouts();
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(MIB);
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct raw_peer *peer = raw_peer_start();
        segment_id_t segment = engine_open(engine, peer->name);
        raw_peer_behave(peer, RAW_TRICKLE, 0); /* takes longer in all than any of the time-outs */
        int64_t start = now_ns();
        for (int round = 0; round < 2; round++)
            assert_int_equal(transfer(engine, opcode, local, segment, (uintptr_t)peer->memory, MIB), COMPLETED);
        assert_true(now_ns() - start > INT64_C(1500000000));
        raw_peer_stop(peer);
    }
}

static void report_u01_a_peer_that_failed_is_not_blacklisted(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    struct pair pair = pair_new_restartable(SIZE);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
        target_kill(pair.target);
        assert_int_equal(pair_transfer(&pair, WRITE, SIZE), FAILED);
        assert_true(te_probe(pair.engine, pair.target->name) < 0);
        target_restart(pair.target);
        pair.remote = target_memory(pair.target, SIZE);
        assert_int_equal(te_probe(pair.engine, pair.target->name), 0);
        AWAIT(pair_transfer(&pair, WRITE, SIZE) == COMPLETED);
    }
}

static void report_t32_a_restarted_initiator_is_served(void **state)
{
    (void)state;
    watchdog(60);
    struct target *target = target_start();
    struct shared_memory memory = target_memory(target, SIZE);
    uint8_t *local = memory_new(SIZE);
    for (uint64_t round = 0; round < 50; round++) {
        transfer_engine_t engine = engine_new();
        pattern_fill(local, SIZE, round);
        segment_id_t segment = engine_open(engine, target->name);
        assert_int_equal(transfer(engine, WRITE, local, segment, memory.there, SIZE), COMPLETED);
        assert_pattern(memory.here, SIZE, round);
        engine_delete(engine);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(s9_1_2_no_descriptor_kills_the_opener),
        TEST(s9_1_2_a_descriptor_that_turns_bad_later),
        TEST(contract_a_deep_descriptor_kills_nobody),
        TEST(contract_an_earlier_bad_request_fails_no_later_good_one),
        TEST(contract_a_bad_request_among_good_ones_in_flight),
        TEST(contract_ten_thousand_requests_to_one_peer),
        TEST(report_b05_slow_but_moving_is_not_failed),
        TEST(report_b08_a_very_large_batch),
        TEST(report_b12_a_second_entry_with_an_unknown_target),
        TEST(report_c03_a_peer_that_closes_in_the_middle_again_and_again),
        TEST(report_c05_sockets_to_one_peer_are_bounded),
        TEST(report_c05_connections_to_restarted_peers_do_not_pile_up),
        TEST(report_c08_a_peer_at_a_new_port_after_a_refresh),
        TEST(report_c11_odd_sizes),
        TEST(report_c12_a_dead_peer_in_a_batch_with_a_live_one),
        TEST(report_h04_a_peer_without_a_common_transport),
        TEST(report_m01_a_black_hole_delays_nobody),
        TEST(report_m02_one_overall_time_limit_for_a_batch),
        TEST(report_m04_the_descriptor_is_read_while_it_changes),
        TEST(report_t32_a_restarted_initiator_is_served),
        TEST(report_u01_a_peer_that_failed_is_not_blacklisted),
    };
    return RUN_TESTS(tests, argc, argv);
}
