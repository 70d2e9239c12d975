/* Opening, closing, refreshing: callers' behaviours 11 to 15; the contract's lines on handles, bounded time and
 * staleness; classic specification 9.2 and 9.3 as far as they concern names. */
#include <pthread.h>
#include <stdatomic.h>

#include "black_hole.h"
#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB, NANOSECONDS = 1000000000 };

/* A bound of the watchdog kind on something that must not take minutes. */
static void assert_took_less_than(int64_t since_ns, int seconds)
{
    assert_true(now_ns() - since_ns < (int64_t)seconds * (int)slowness() * NANOSECONDS);
}

static void assert_write_arrives(struct pair *pair, uint64_t seed)
{
    pattern_fill(pair->local, pair->size, seed);
    assert_int_equal(pair_transfer(pair, WRITE, pair->size), COMPLETED);
    assert_pattern(pair->remote.here, pair->size, seed);
}

/* ---- callers' behaviours ---- */

static void b11_the_own_name_gives_a_usable_handle(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_new();
    uint8_t *memory = memory_new_registered(engine, SIZE);
    uint8_t *source = memory_new(SIZE);
    engine_name(engine, name);
    assert_int_equal(openSegment(engine, name), LOCAL_SEGMENT);
    pattern_fill(source, SIZE, 3);
    assert_int_equal(transfer(engine, WRITE, source, LOCAL_SEGMENT, (uintptr_t)memory, SIZE), COMPLETED);
    assert_pattern(memory, SIZE, 3);
    memset(source, 0, SIZE);
    assert_int_equal(transfer(engine, READ, source, LOCAL_SEGMENT, (uintptr_t)memory, SIZE), COMPLETED);
    assert_pattern(source, SIZE, 3);
    assert_int_equal(transfer(engine, WRITE, source, LOCAL_SEGMENT, (uintptr_t)source, SIZE), FAILED);
}

static void b11_equal_names_give_equal_positive_handles(void **state)
{
    (void)state;
    char slashes[NAME_SIZE + 4];
    struct target *first = target_start();
    struct target *second = target_start();
    transfer_engine_t engine = engine_new();
    segment_id_t one = engine_open(engine, first->name);
    segment_id_t two = engine_open(engine, second->name);
    assert_true(one > 0 && two > 0 && one != two);
    assert_int_equal(openSegment(engine, first->name), one);
    assert_int_equal(openSegmentNoCache(engine, second->name), two);
    snprintf(slashes, sizeof(slashes), "///%s", first->name);
    assert_int_equal(openSegment(engine, slashes), one);
}

static void b11_opening_what_is_not_there_fails_in_bounded_time(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    transfer_engine_t engine = engine_new();
    char hole[NAME_SIZE];
    snprintf(hole, sizeof(hole), "127.0.0.1:%d", black_hole_open("127.0.0.1", 0));
    const char *const names[] = {"127.0.0.1:1", "nosuchhost.invalid:15000", "127.0.0.1", ":",
                                 "[::1",        "127.0.0.1:99999",          "@",         hole};
    for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
        int64_t start = now_ns();
        assert_true(openSegment(engine, names[index]) < 0);
        assert_took_less_than(start, 10);
        assert_string_not_equal(te_last_error(), "");
        assert_true(openSegmentNoCache(engine, names[index]) < 0);
    }
    char *endless = memory_new(SIZE);
    memset(endless, 'x', SIZE - 1);
    assert_true(openSegment(engine, endless) < 0);
}

static void b11_a_peer_that_never_answers_fails_in_bounded_time(void **state)
{
    (void)state;
    static const enum raw_control_behaviour behaviours[] = {RAW_CONTROL_SILENT,    RAW_CONTROL_HALF,
                                                            RAW_CONTROL_CLOSE,     RAW_CONTROL_NULL,
                                                            RAW_CONTROL_OVERSIZED, RAW_CONTROL_WRONG_TYPE};
    short_timeouts();
    transfer_engine_t engine = engine_new();
    for (size_t index = 0; index < sizeof(behaviours) / sizeof(behaviours[0]); index++) {
        struct raw_peer *peer = raw_peer_start();
        raw_peer_behave_control(peer, behaviours[index]);
        int64_t start = now_ns();
        assert_true(openSegment(engine, peer->name) < 0);
        assert_took_less_than(start, 10);
        assert_true(raw_peer_control_calls(peer, RAW_METADATA) > 0);
        raw_peer_behave_control(peer, RAW_CONTROL_SERVE);
        assert_true(openSegment(engine, peer->name) > 0); /* a failure is not remembered */
        raw_peer_stop(peer);
    }
}

static void b12_memory_registered_after_the_open_is_found(void **state)
{
    (void)state;
    struct target *target = target_start();
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(SIZE);
    segment_id_t segment = engine_open(engine, target->name); /* it has registered nothing */
    for (uint64_t round = 0; round < 5; round++) {
        struct shared_memory memory = target_memory(target, SIZE);
        pattern_fill(local, SIZE, round);
        assert_int_equal(transfer(engine, WRITE, local, segment, memory.there, SIZE), COMPLETED);
        assert_pattern(memory.here, SIZE, round);
        assert_int_equal(transfer(engine, READ, local, segment, memory.there, SIZE), COMPLETED);
        assert_pattern(local, SIZE, round);
    }
}

static void b13_a_peer_that_registers_again_is_found_again(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    for (uint64_t round = 0; round < 5; round++) {
        assert_write_arrives(&pair, round);
        assert_int_equal(target_unregister(pair.target, pair.remote.there), 0);
        assert_int_equal(pair_transfer(&pair, WRITE, SIZE), FAILED);
        assert_int_equal(target_register(pair.target, pair.remote.there, SIZE, 1), 0);
        assert_write_arrives(&pair, round + 100);
    }
}

static void b13_a_peer_restarted_under_its_name_is_found_again(void **state)
{
    (void)state;
    short_timeouts();
    struct pair pair = pair_new_restartable(SIZE);
    assert_write_arrives(&pair, 1);
    target_kill(pair.target);
    target_restart(pair.target);
    pair.remote = target_memory(pair.target, SIZE);
    assert_int_equal(openSegment(pair.engine, pair.target->name), pair.segment);
    assert_write_arrives(&pair, 2);
}

static void b14_no_cache_and_sync_refresh(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    for (uint64_t round = 0; round < 10; round++) {
        assert_write_arrives(&pair, round);
        assert_int_equal(syncSegmentCache(pair.engine), 0);
        assert_int_equal(openSegmentNoCache(pair.engine, pair.target->name), pair.segment);
    }
    struct raw_peer *peer = raw_peer_start();
    assert_true(openSegment(pair.engine, peer->name) > 0);
    unsigned before = raw_peer_control_calls(peer, RAW_METADATA);
    assert_true(openSegment(pair.engine, peer->name) > 0);
    assert_int_equal(raw_peer_control_calls(peer, RAW_METADATA), before);
    assert_true(openSegmentNoCache(pair.engine, peer->name) > 0);
    assert_int_equal(raw_peer_control_calls(peer, RAW_METADATA), before + 1);
    assert_int_equal(syncSegmentCache(pair.engine), 0);
    assert_true(raw_peer_control_calls(peer, RAW_METADATA) > before + 1);
}

static void b14_a_close_breaks_nobody(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    assert_int_equal(openSegment(pair.engine, pair.target->name), pair.segment);
    assert_int_equal(closeSegment(pair.engine, pair.segment), 0);
    assert_write_arrives(&pair, 1);
    for (int round = 0; round < 10; round++)
        assert_int_equal(closeSegment(pair.engine, pair.segment), 0);
    assert_write_arrives(&pair, 2);
    assert_int_equal(openSegment(pair.engine, pair.target->name), pair.segment);
    assert_int_equal(closeSegment(pair.engine, LOCAL_SEGMENT), 0);
    assert_int_equal(closeSegment(pair.engine, 4711), 0);
    assert_int_equal(closeSegment(pair.engine, -1), 0);
    assert_int_equal(closeSegment(pair.engine, INT32_MIN), 0);
    assert_write_arrives(&pair, 3);
}

static void b15_buffers_appear_in_the_order_of_registration(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    struct target *target = target_start();
    transfer_engine_t engine = engine_new();
    struct shared_memory memory = target_map(target, COUNT * SIZE);
    buffer_entry_t buffers[COUNT + 1];
    size_t order[COUNT];
    for (size_t index = 0; index < COUNT; index++) {
        order[index] = index * 5 % COUNT; /* adjacent ones too: they must stay apart */
        assert_int_equal(target_register(target, memory.there + order[index] * SIZE, SIZE, 1), 0);
    }
    segment_id_t segment = engine_open(engine, target->name);
    size_t count = COUNT + 1;
    assert_int_equal(te_remote_buffers(engine, segment, buffers, &count), 0);
    assert_int_equal(count, COUNT);
    for (size_t index = 0; index < COUNT; index++) {
        assert_int_equal((uintptr_t)buffers[index].addr, memory.there + order[index] * SIZE);
        assert_int_equal(buffers[index].length, SIZE);
    }
    uint64_t first = 0;
    assert_int_equal(te_first_buffer_address(engine, target->name, &first), 0);
    assert_int_equal(first, memory.there + order[0] * SIZE);
    assert_int_equal(target_unregister(target, first), 0);
    assert_int_equal(te_first_buffer_address(engine, target->name, &first), 0);
    assert_int_equal(first, memory.there + order[1] * SIZE);
}

/* ---- gaps that callers' suites leave ---- */

static void e04_a_restarted_peer_needs_nothing_from_the_caller(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    struct pair pair = pair_new_restartable(SIZE);
    for (uint64_t round = 0; round < 5; round++) {
        assert_write_arrives(&pair, round);
        target_kill(pair.target);
        target_restart(pair.target);
        pair.remote = target_memory(pair.target, SIZE);
        assert_write_arrives(&pair, round + 50); /* the first one after the restart, at another address */
        memset(pair.local, 0, SIZE);
        assert_int_equal(pair_transfer(&pair, READ, SIZE), COMPLETED);
        assert_pattern(pair.local, SIZE, round + 50);
    }
}

static void e05_registered_again_with_another_length(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    assert_write_arrives(&pair, 1);
    assert_int_equal(target_unregister(pair.target, pair.remote.there), 0);
    assert_int_equal(target_register(pair.target, pair.remote.there, SIZE / 2, 1), 0);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE / 2), COMPLETED);
    memset(pair.remote.here, 0x5a, SIZE);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), FAILED);
    assert_int_equal(pair_transfer(&pair, READ, SIZE), FAILED);
    assert_bytes(pair.remote.here, SIZE, 0x5a);
    assert_int_equal(target_unregister(pair.target, pair.remote.there), 0);
    assert_int_equal(target_register(pair.target, pair.remote.there, SIZE, 1), 0);
    assert_write_arrives(&pair, 2);
}

struct traffic {
    struct pair pair;
    atomic_bool stop;
    atomic_uint completed;
    atomic_int bad;
};

static void *keep_transferring(void *data)
{
    struct traffic *traffic = data;
    while (!atomic_load(&traffic->stop)) {
        int result = pair_transfer(&traffic->pair, WRITE, KIB);
        if (result == COMPLETED)
            atomic_fetch_add(&traffic->completed, 1);
        else
            atomic_store(&traffic->bad, result);
    }
    return NULL;
}

static void e09_opening_a_dead_peer_holds_nobody_up(void **state)
{
    (void)state;
    pthread_t thread;
    short_timeouts();
    struct traffic traffic = {.pair = pair_new(SIZE)};
    struct raw_peer *silent = raw_peer_start();
    raw_peer_behave_control(silent, RAW_CONTROL_SILENT);
    assert_int_equal(pthread_create(&thread, NULL, keep_transferring, &traffic), 0);
    AWAIT(atomic_load(&traffic.completed) > 10);
    for (int round = 0; round < 3; round++) {
        unsigned before = atomic_load(&traffic.completed);
        assert_true(openSegment(traffic.pair.engine, silent->name) < 0); /* waits for the reply's time-out */
        assert_true(atomic_load(&traffic.completed) > before + 10);
    }
    atomic_store(&traffic.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&traffic.bad), 0);
}

static void e15_probe_tells_reachable_from_unreachable(void **state)
{
    (void)state;
    short_timeouts();
    char name[NAME_SIZE];
    struct target *target = target_start();
    transfer_engine_t bare = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0); /* no transport yet */
    assert_non_null(bare);
    assert_int_equal(te_probe(bare, target->name), 0);
    transfer_engine_t engine = engine_new();
    engine_name(engine, name);
    assert_int_equal(te_probe(engine, target->name), 0); /* as first contact */
    assert_int_equal(te_probe(engine, name), 0);         /* itself */
    assert_int_equal(te_probe(engine, "127.0.0.1:1"), ERR_SOCKET);
    assert_int_equal(te_probe(engine, "nosuchhost.invalid:15000"), ERR_DNS);
    assert_int_equal(te_probe(engine, ""), ERR_INVALID_ARGUMENT);
    struct raw_peer *silent = raw_peer_start();
    raw_peer_behave_control(silent, RAW_CONTROL_SILENT);
    int64_t start = now_ns();
    assert_int_equal(te_probe(engine, silent->name), ERR_SOCKET);
    assert_took_less_than(start, 10);
    snprintf(name, sizeof(name), "127.0.0.1:%d", black_hole_open("127.0.0.1", 0));
    start = now_ns();
    assert_int_equal(te_probe(engine, name), ERR_SOCKET);
    assert_took_less_than(start, 10);
    target_kill(target);
    assert_int_equal(te_probe(engine, target->name), ERR_SOCKET);
}

/* ---- the contract ---- */

static void contract_a_probe_leaves_open_handles_alone(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    assert_write_arrives(&pair, 1);
    for (uint64_t round = 2; round < 12; round++) {
        assert_int_equal(te_probe(pair.engine, pair.target->name), 0);
        assert_write_arrives(&pair, round);
    }
}

static void contract_a_dead_peer_fails_and_recovers(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    struct pair pair = pair_new_restartable(SIZE);
    assert_write_arrives(&pair, 1);
    target_kill(pair.target);
    int64_t start = now_ns();
    for (int round = 0; round < 5; round++) {
        assert_int_equal(pair_transfer(&pair, WRITE, SIZE), FAILED);
        assert_int_equal(pair_transfer(&pair, READ, SIZE), FAILED);
    }
    assert_took_less_than(start, 25);
    target_restart(pair.target);
    pair.remote = target_memory(pair.target, SIZE);
    assert_int_equal(te_probe(pair.engine, pair.target->name), 0);
    AWAIT(pair_transfer(&pair, WRITE, SIZE) == COMPLETED); /* the engine may pause between attempts, not give up */
    assert_write_arrives(&pair, 2);
}

static void contract_a_refused_connect_reads_the_descriptor_again(void **state)
{
    (void)state;
    short_timeouts();
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(SIZE);
    struct raw_peer *peer = raw_peer_start();
    /* The descriptor first says that the data port is one that nobody listens on. */
    char *good = raw_descriptor(peer, peer->name, NULL, 2);
    char *bad = strdup(good);
    char *port = strstr(bad, "\"tcp_data_port\":");
    assert_non_null(port);
    memset(port + 16, ' ', strspn(port + 16, "0123456789"));
    port[16] = '1';
    raw_peer_publish(peer, bad);
    segment_id_t segment = engine_open(engine, peer->name);
    raw_peer_publish(peer, good);
    assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, SIZE), COMPLETED);
    free(good);
    free(bad);
}

static void contract_an_idle_connection_that_died_fails_nobody(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    struct pair pair = pair_new_restartable(SIZE);
    for (int round = 0; round < 4; round++) {
        assert_write_arrives(&pair, 1);
        assert_int_equal(pair_transfer(&pair, READ, SIZE), COMPLETED);
        target_exit(pair.target); /* in good order: the connection is closed while idle */
        target_restart(pair.target);
        pair.remote = target_memory(pair.target, SIZE);
        pattern_fill(pair.remote.here, SIZE, 9);
        assert_int_equal(pair_transfer(&pair, READ, SIZE), COMPLETED);
        assert_pattern(pair.local, SIZE, 9);
    }
}

static void contract_sync_is_bounded_with_dead_peers(void **state)
{
    (void)state;
    short_timeouts();
    struct pair pair = pair_new(SIZE);
    struct raw_peer *silent = raw_peer_start();
    struct raw_peer *gone = raw_peer_start();
    assert_true(openSegment(pair.engine, silent->name) > 0);
    assert_true(openSegment(pair.engine, gone->name) > 0);
    raw_peer_behave_control(silent, RAW_CONTROL_SILENT);
    raw_peer_stop(gone);
    int64_t start = now_ns();
    assert_int_equal(syncSegmentCache(pair.engine), 0);
    assert_took_less_than(start, 10);
    assert_write_arrives(&pair, 1);
}

/* ---- classic specification, section 9 ---- */

struct naming {
    const char *declared_host, *data_host;
    const char *data_goes_to, *notification_goes_to; /* NULL: nowhere */
};

static void s9_2_1_which_host_is_contacted(void **state)
{
    (void)state;
    static const struct naming cases[] = {
        {"127.0.0.1", NULL, "127.0.0.1", "127.0.0.1"},        {"127.0.0.1", "", "127.0.0.1", "127.0.0.1"},
        {"127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.1"}, {"127.0.0.3", NULL, "127.0.0.1", "127.0.0.3"},
        {"127.0.0.3", "127.0.0.2", "127.0.0.2", "127.0.0.3"}, {"127.0.0.4", NULL, "127.0.0.1", NULL},
    };
    short_timeouts();
    for (size_t index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
        const struct naming *naming = &cases[index];
        char declared[NAME_SIZE];
        transfer_engine_t engine = engine_new();
        uint8_t *local = memory_new(KIB);
        struct raw_peer *opened = raw_peer_start_at("127.0.0.1");
        struct raw_peer *data = opened;
        if (strcmp(naming->data_goes_to, "127.0.0.1") != 0)
            data = raw_peer_start_on(naming->data_goes_to, opened->control_port, opened->data_port);
        struct raw_peer *notified = opened;
        if (naming->notification_goes_to && strcmp(naming->notification_goes_to, "127.0.0.1") != 0)
            notified = raw_peer_start_on(naming->notification_goes_to, opened->control_port, opened->data_port);
        snprintf(declared, sizeof(declared), "%s:%d", naming->declared_host, opened->control_port);
        char *descriptor = raw_descriptor(opened, declared, naming->data_host, 2);
        raw_peer_publish(opened, descriptor);
        free(descriptor);

        segment_id_t segment = engine_open(engine, opened->name);
        assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)data->memory, KIB), COMPLETED);
        assert_int_equal(raw_peer_requests(data), 1);
        notify_msg_t message = {.name = "a", .msg = "b"};
        int result = genNotifyInEngine(engine, (uint64_t)segment, message);
        if (naming->notification_goes_to) {
            assert_int_equal(result, 0);
            assert_int_equal(raw_peer_control_calls(notified, RAW_NOTIFY), 1);
        } else if (result == 0) {
            assert_int_equal(raw_peer_control_calls(opened, RAW_NOTIFY),
                             1); /* falling back to the opened host is fine */
        }
        engine_delete(engine);
        raw_peers_stop_all();
    }
}

static void s9_2_2_a_peer_opened_under_two_names_is_refreshed_under_both(void **state)
{
    (void)state;
    short_timeouts();
    char alias[NAME_SIZE];
    struct pair pair = pair_new_restartable(SIZE);
    snprintf(alias, sizeof(alias), "localhost:%d", pair.target->port);
    segment_id_t other = engine_open(pair.engine, alias);
    assert_true(other != pair.segment);
    target_kill(pair.target);
    target_restart(pair.target);
    pair.remote = target_memory(pair.target, SIZE);
    assert_int_equal(syncSegmentCache(pair.engine), 0);
    assert_write_arrives(&pair, 1);
    pair.segment = other;
    assert_write_arrives(&pair, 2);
}

static void s9_2_12_a_changed_protocol_version_is_noticed(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(KIB);
    struct raw_peer *peer = raw_peer_start();
    char *version_1 = raw_descriptor(peer, peer->name, NULL, 1);
    raw_peer_publish(peer, version_1);
    segment_id_t segment = engine_open(engine, peer->name);
    assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB), COMPLETED);
    assert_int_equal(raw_peer_request(peer, 0, false).opcode, RAW_WRITE_V1);
    char *version_2 = raw_descriptor(peer, peer->name, NULL, 2);
    raw_peer_publish(peer, version_2);
    assert_int_equal(syncSegmentCache(engine), 0);
    unsigned before = raw_peer_requests(peer); /* a version 1 write may be followed by a read that confirms it */
    assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB), COMPLETED);
    assert_int_equal(raw_peer_request(peer, before, false).opcode, RAW_WRITE_V2);
    free(version_1);
    free(version_2);
}

static void s9_2_22_the_metadata_request_carries_the_own_descriptor(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_new();
    struct raw_peer *peer = raw_peer_start();
    engine_name(engine, name);
    assert_true(openSegment(engine, peer->name) > 0);
    char *sent = raw_peer_last_call(peer, RAW_METADATA);
    assert_non_null(strstr(sent, name));
    assert_non_null(strstr(sent, "\"protocol\":\"tcp\""));
    free(sent);
}

static void s9_2_23_null_is_a_rejection(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    struct raw_peer *peer = raw_peer_start();
    raw_peer_publish(peer, "null\n");
    assert_true(openSegment(engine, peer->name) < 0);
    char *good = raw_descriptor(peer, peer->name, NULL, 2);
    raw_peer_publish(peer, good);
    free(good);
    assert_true(openSegment(engine, peer->name) > 0);
}

static void s9_3_2_a_dead_cached_peer_still_opens(void **state)
{
    (void)state;
    short_timeouts();
    struct pair pair = pair_new(SIZE);
    target_kill(pair.target);
    assert_int_equal(openSegment(pair.engine, pair.target->name), pair.segment);
    assert_int_equal(openSegmentNoCache(pair.engine, pair.target->name), pair.segment);
    assert_int_equal(syncSegmentCache(pair.engine), 0);
}

static void s9_1_6_removing_the_own_name_does_not_break_registration(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_new();
    engine_name(engine, name);
    assert_int_equal(removeLocalSegment(engine, name), 0);
    uint8_t *memory = memory_new_registered(engine, SIZE);
    assert_int_equal(openSegment(engine, name), LOCAL_SEGMENT);
    uint8_t *source = memory_new(SIZE);
    assert_int_equal(transfer(engine, WRITE, source, LOCAL_SEGMENT, (uintptr_t)memory, SIZE), COMPLETED);
    assert_works(engine);
    assert_int_equal(removeLocalSegment(engine, "never.heard.of:1"), 0);
    struct pair pair = pair_new(SIZE);
    assert_int_equal(removeLocalSegment(pair.engine, pair.target->name), 0);
    assert_write_arrives(&pair, 1);
    assert_true(openSegment(pair.engine, pair.target->name) > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(b11_the_own_name_gives_a_usable_handle),
        TEST(b11_equal_names_give_equal_positive_handles),
        TEST(b11_opening_what_is_not_there_fails_in_bounded_time),
        TEST(b11_a_peer_that_never_answers_fails_in_bounded_time),
        TEST(b12_memory_registered_after_the_open_is_found),
        TEST(b13_a_peer_that_registers_again_is_found_again),
        TEST(b13_a_peer_restarted_under_its_name_is_found_again),
        TEST(b14_no_cache_and_sync_refresh),
        TEST(b14_a_close_breaks_nobody),
        TEST(b15_buffers_appear_in_the_order_of_registration),
        TEST(e04_a_restarted_peer_needs_nothing_from_the_caller),
        TEST(e05_registered_again_with_another_length),
        TEST(e09_opening_a_dead_peer_holds_nobody_up),
        TEST(e15_probe_tells_reachable_from_unreachable),
        TEST(contract_a_probe_leaves_open_handles_alone),
        TEST(contract_a_dead_peer_fails_and_recovers),
        TEST(contract_a_refused_connect_reads_the_descriptor_again),
        TEST(contract_an_idle_connection_that_died_fails_nobody),
        TEST(contract_sync_is_bounded_with_dead_peers),
        TEST(s9_1_6_removing_the_own_name_does_not_break_registration),
        TEST(s9_2_1_which_host_is_contacted),
        TEST(s9_2_2_a_peer_opened_under_two_names_is_refreshed_under_both),
        TEST(s9_2_12_a_changed_protocol_version_is_noticed),
        TEST(s9_2_22_the_metadata_request_carries_the_own_descriptor),
        TEST(s9_2_23_null_is_a_rejection),
        TEST(s9_3_2_a_dead_cached_peer_still_opens),
    };
    return RUN_TESTS(tests, argc, argv);
}
