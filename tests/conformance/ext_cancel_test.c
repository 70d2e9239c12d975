/* Cancelling, options and batch status of transfer_engine_ext.h. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };
#define SECOND INT64_C(1000000000)

/* ---- cancelling ---- */

static void ext_cancel_running(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new(SIZE);
    for (int round = 0; round < 5; round++) {
        batch_id_t batch = stalling_submit(&stalling);
        assert_int_equal(te_cancel_task(stalling.engine, batch, 0), 0);
        assert_int_equal(te_wait_batch(stalling.engine, batch, -1), 0);
        assert_int_equal(task_status(stalling.engine, batch, 0), CANCELED);
        assert_int_equal(te_cancel_task(stalling.engine, batch, 0), 0);
        assert_int_equal(task_status(stalling.engine, batch, 0), CANCELED);
        assert_int_equal(freeBatchID(stalling.engine, batch), 0);
        raw_peer_release(stalling.peer); /* the connection may have been kept: the peer takes the next request */
    }
}

static void ext_cancel_queued(void **state)
{
    (void)state;
    enum { COUNT = 200, EACH = 16 * KIB };
    struct stalling stalling = stalling_new(SIZE);
    uint8_t *local = memory_new(COUNT * EACH);
    struct transfer_request requests[COUNT];
    for (size_t index = 0; index < COUNT; index++)
        requests[index] =
            request_of(READ, local + index * EACH, stalling.segment, (uintptr_t)stalling.peer->memory, EACH);
    batch_id_t batch = batch_new(stalling.engine, COUNT);
    assert_int_equal(submitTransfer(stalling.engine, batch, requests, COUNT), 0);
    /* The last one cannot have been answered; the others stay as they are. */
    assert_int_equal(te_cancel_task(stalling.engine, batch, COUNT - 1), 0);
    struct transfer_status status;
    assert_int_equal(te_wait_task(stalling.engine, batch, COUNT - 1, -1, &status), 0);
    assert_int_equal(status.status, CANCELED);
    assert_int_equal(te_cancel_task(stalling.engine, batch, COUNT), ERR_INVALID_ARGUMENT);
    assert_int_equal(te_cancel_batch(stalling.engine, batch), 0);
    assert_int_equal(te_wait_batch(stalling.engine, batch, -1), 0);
    for (size_t index = 0; index < COUNT; index++)
        assert_int_equal(task_status(stalling.engine, batch, index), CANCELED);
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
}

struct cancelling {
    transfer_engine_t engine;
    batch_id_t batch;
    size_t count;
    atomic_bool ready;
};

/* Cancels as soon as the last task is there, while the submission may still be handing slices out. */
static void *cancel_at_once(void *data)
{
    struct cancelling *cancelling = data;
    struct transfer_status status;
    atomic_store(&cancelling->ready, true);
    while (getTransferStatus(cancelling->engine, cancelling->batch, cancelling->count - 1, &status) != 0)
        continue;
    te_cancel_batch(cancelling->engine, cancelling->batch);
    return NULL;
}

static void ext_cancel_amid_the_submission(void **state)
{
    (void)state;
    enum { COUNT = 2000, EACH = 64, ROUNDS = 60 };
    setenv("TE_TCP_SILENCE_TIMEOUT_MS", "60000", 1); /* what is not canceled stays */
    struct stalling stalling = stalling_new(SIZE);
    uint8_t *local = memory_new(COUNT * EACH);
    static struct transfer_request requests[COUNT];
    for (size_t index = 0; index < COUNT; index++)
        requests[index] =
            request_of(READ, local + index * EACH, stalling.segment, (uintptr_t)stalling.peer->memory, EACH);
    for (int round = 0; round < ROUNDS; round++) {
        struct cancelling cancelling = {stalling.engine, batch_new(stalling.engine, COUNT), COUNT, false};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_at_once, &cancelling), 0);
        while (!atomic_load(&cancelling.ready))
            sched_yield();
        assert_int_equal(submitTransfer(stalling.engine, cancelling.batch, requests, COUNT), 0);
        pthread_join(thread, NULL);
        assert_int_equal(te_wait_batch(stalling.engine, cancelling.batch, 20 * SECOND), 0);
        assert_int_equal(freeBatchID(stalling.engine, cancelling.batch), 0);
    }
}

static void ext_cancelling_one_leaves_the_others(void **state)
{
    (void)state;
    enum { COUNT = 64, EACH = 512 * KIB };
    watchdog(60);
    struct pair pair = pair_new(COUNT * EACH);
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct transfer_request requests[COUNT];
        batch_id_t batch = batch_new(pair.engine, COUNT);
        pattern_fill(opcode == READ ? pair.remote.here : pair.local, pair.size, 1);
        for (size_t index = 0; index < COUNT; index++)
            requests[index] =
                request_of(opcode, pair.local + index * EACH, pair.segment, pair.remote.there + index * EACH, EACH);
        assert_int_equal(submitTransfer(pair.engine, batch, requests, COUNT), 0);
        for (size_t index = 3; index < COUNT; index += 7)
            assert_int_equal(te_cancel_task(pair.engine, batch, index), 0);
        assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
        for (size_t index = 0; index < COUNT; index++) {
            int status = task_status(pair.engine, batch, index);
            assert_true(status == COMPLETED || (index % 7 == 3 && status == CANCELED));
        }
        assert_int_equal(freeBatchID(pair.engine, batch), 0);
        assert_int_equal(pair_transfer(&pair, opcode, pair.size), COMPLETED);
        assert_pattern(opcode == READ ? pair.local : pair.remote.here, pair.size, 1);
    }
}

static void ext_cancel_finished(void **state)
{
    (void)state;
    struct pair pair = pair_new(KIB);
    batch_id_t batch = pair_submit(&pair, WRITE, KIB);
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
    assert_int_equal(te_cancel_task(pair.engine, batch, 0), 0);
    assert_int_equal(te_cancel_batch(pair.engine, batch), 0);
    assert_int_equal(task_status(pair.engine, batch, 0), COMPLETED);
    assert_int_equal(te_cancel_task(pair.engine, batch, 1), ERR_INVALID_ARGUMENT);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
    assert_int_equal(te_cancel_task(pair.engine, batch, 0), ERR_INVALID_ARGUMENT);
    assert_int_equal(te_cancel_batch(pair.engine, batch), ERR_INVALID_ARGUMENT);
    batch = batch_new(pair.engine, 1);
    assert_int_equal(te_cancel_batch(pair.engine, batch), 0);
    struct transfer_request request = request_of(WRITE, pair.local, pair.segment, pair.remote.there, KIB);
    assert_int_equal(submitTransfer(pair.engine, batch, &request, 1), 0); /* what comes later is not canceled */
    assert_int_equal(finish(pair.engine, batch, 0), COMPLETED);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void ext_a_canceled_submit_does_not_notify(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new(SIZE);
    struct transfer_request request =
        request_of(READ, stalling.local, stalling.segment, (uintptr_t)stalling.peer->memory, SIZE);
    batch_id_t batch = batch_new(stalling.engine, 1);
    notify_msg_t message = {.name = "n", .msg = "m"};
    assert_int_equal(submitTransferWithNotify(stalling.engine, batch, &request, 1, message), 0);
    raw_peer_request(stalling.peer, 0, false);
    assert_int_equal(te_cancel_batch(stalling.engine, batch), 0);
    assert_int_equal(finish(stalling.engine, batch, 0), CANCELED);
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
    engine_delete(stalling.engine);
    assert_int_equal(raw_peer_control_calls(stalling.peer, RAW_NOTIFY), 0);
}

/* ---- submit with options ---- */

static void ext_options_are_checked(void **state)
{
    (void)state;
    struct pair pair = pair_new(KIB);
    struct transfer_request request = request_of(WRITE, pair.local, pair.segment, pair.remote.there, KIB);
    memset(pair.local, 0x77, KIB);
    batch_id_t batch = batch_new(pair.engine, 8);
    struct larger {
        te_submit_options_t known;
        uint64_t more[4];
    } larger = {.known = {.struct_size = sizeof(larger), .priority = TE_PRIORITY_DEFAULT}};
    te_submit_options_t bad[] = {{.struct_size = 0},
                                 {.struct_size = 1},
                                 {.struct_size = sizeof(te_submit_options_t) - 1},
                                 {.struct_size = sizeof(te_submit_options_t), .priority = TE_PRIORITY_LOW + 1},
                                 {.struct_size = sizeof(te_submit_options_t), .priority = -1},
                                 {.struct_size = sizeof(te_submit_options_t), .reserved = 1}};
    for (size_t index = 0; index < sizeof(bad) / sizeof(bad[0]); index++)
        assert_int_equal(te_submit(pair.engine, batch, &request, 1, &bad[index]), ERR_INVALID_ARGUMENT);
    larger.more[2] = 1;
    assert_int_equal(te_submit(pair.engine, batch, &request, 1, &larger.known), ERR_INVALID_ARGUMENT);
    te_submit_options_t hint = {.struct_size = sizeof(hint), .transport_hint = "nosuch"};
    assert_int_equal(te_submit(pair.engine, batch, &request, 1, &hint), TE_ERR_NOT_SUPPORTED_TRANSPORT);
    hint.transport_hint = "rdma";
    assert_int_equal(te_submit(pair.engine, batch, &request, 1, &hint), TE_ERR_NOT_SUPPORTED_TRANSPORT);
    pair_settle(&pair);
    assert_bytes(pair.remote.here, KIB, 0); /* none of these posted anything */
    larger.more[2] = 0;
    assert_int_equal(te_submit(pair.engine, batch, &request, 1, &larger.known), 0);
    hint.transport_hint = "tcp";
    assert_int_equal(te_submit(pair.engine, batch, &request, 1, &hint), 0);
    assert_int_equal(te_submit(pair.engine, batch, &request, 1, NULL), 0);
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
    for (size_t index = 0; index < 3; index++)
        assert_int_equal(task_status(pair.engine, batch, index), COMPLETED);
    struct transfer_request many[8];
    for (size_t index = 0; index < 8; index++)
        many[index] = request;
    assert_int_equal(te_submit(pair.engine, batch, many, 6, NULL), ERR_TOO_MANY_REQUESTS);
    many[1].target_id = 4711;
    assert_int_equal(te_submit(pair.engine, batch, many, 2, NULL), ERR_INVALID_ARGUMENT);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void ext_every_priority_completes(void **state)
{
    (void)state;
    enum { COUNT = 60, EACH = 64 * KIB };
    struct pair pair = pair_new(COUNT * EACH);
    pattern_fill(pair.local, pair.size, 5);
    batch_id_t batch = batch_new(pair.engine, COUNT);
    for (size_t index = 0; index < COUNT; index++) {
        te_submit_options_t options = {.struct_size = sizeof(options), .priority = (int32_t)(index % 4)};
        struct transfer_request request =
            request_of(WRITE, pair.local + index * EACH, pair.segment, pair.remote.there + index * EACH, EACH);
        assert_int_equal(te_submit(pair.engine, batch, &request, 1, &options), 0);
    }
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
    assert_pattern(pair.remote.here, pair.size, 5);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void ext_high_goes_before_low(void **state)
{
    (void)state;
    enum { LOW = 1500, HIGH = 20, EACH = 1024 };
    setenv("MC_TCP_LANES_PER_PEER", "1", 1);
    transfer_engine_t engine = engine_new();
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    uint8_t *local = memory_new(MIB);
    te_submit_options_t options = {.struct_size = sizeof(options), .priority = TE_PRIORITY_LOW};
    struct transfer_request requests[LOW];
    batch_id_t batch = batch_new(engine, 1 + LOW + HIGH);
    raw_peer_behave(peer, RAW_STALL_HALF_WAY, 1); /* the connection is full and stays so */
    struct transfer_request first = request_of(WRITE, local, segment, (uintptr_t)peer->memory, MIB);
    assert_int_equal(submitTransfer(engine, batch, &first, 1), 0);
    raw_peer_request(peer, 0, false);
    for (size_t index = 0; index < LOW; index++)
        requests[index] = request_of(WRITE, local, segment, (uintptr_t)peer->memory + index, EACH);
    assert_int_equal(te_submit(engine, batch, requests, LOW, &options), 0);
    options.priority = TE_PRIORITY_HIGH;
    for (size_t index = 0; index < HIGH; index++)
        requests[index].length = EACH / 2; /* to tell them apart */
    assert_int_equal(te_submit(engine, batch, requests, HIGH, &options), 0);
    raw_peer_release(peer);
    assert_int_equal(te_wait_batch(engine, batch, -1), 0);
    unsigned low_before = 0;
    unsigned high = 0;
    for (unsigned index = 1; high < HIGH; index++) {
        if (raw_peer_request(peer, index, false).length == EACH / 2)
            high++;
        else
            low_before++;
    }
    print_message("%u of %d low ones were sent before the last high one\n", low_before, LOW);
    assert_true(low_before < LOW / 2); /* some were on their way already */
    assert_int_equal(raw_peer_requests(peer), 1 + LOW + HIGH);
    for (size_t index = 0; index < 1 + LOW + HIGH; index++)
        assert_int_equal(task_status(engine, batch, index), COMPLETED);
    assert_int_equal(freeBatchID(engine, batch), 0);
}

static void ext_a_deadline_ends_what_stalls_and_nothing_else(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new(SIZE);
    te_submit_options_t soon = {.struct_size = sizeof(soon), .deadline_ns = 100000000};
    struct transfer_request request =
        request_of(READ, stalling.local, stalling.segment, (uintptr_t)stalling.peer->memory, SIZE);
    batch_id_t batch = batch_new(stalling.engine, 1);
    int64_t start = now_ns();
    assert_int_equal(te_submit(stalling.engine, batch, &request, 1, &soon), 0);
    assert_int_equal(te_wait_batch(stalling.engine, batch, -1), 0);
    assert_true(now_ns() - start >= 100000000);
    assert_int_equal(task_status(stalling.engine, batch, 0), FAILED);
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
    raw_peer_behave(stalling.peer, RAW_SERVE, 0);
    raw_peer_release(stalling.peer);
    te_submit_options_t later = {.struct_size = sizeof(later), .deadline_ns = 60 * SECOND};
    batch = batch_new(stalling.engine, 1);
    assert_int_equal(te_submit(stalling.engine, batch, &request, 1, &later), 0);
    assert_int_equal(te_wait_batch(stalling.engine, batch, -1), 0);
    assert_int_equal(task_status(stalling.engine, batch, 0), COMPLETED);
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
}

static void ext_slice_timeout_makes_it_a_timeout(void **state)
{
    (void)state;
    setenv("MC_SLICE_TIMEOUT", "1", 1); /* only where asked for: callers' behaviour 25 */
    struct stalling stalling = stalling_new(SIZE);
    batch_id_t batch = stalling_submit(&stalling);
    assert_int_equal(te_wait_batch(stalling.engine, batch, -1), 0);
    assert_int_equal(task_status(stalling.engine, batch, 0), TIMEOUT);
    te_batch_status_t whole = {.struct_size = sizeof(whole)};
    assert_int_equal(te_batch_status(stalling.engine, batch, &whole), 0);
    assert_int_equal(whole.status, TIMEOUT);
    assert_int_equal(whole.timed_out, 1);
    raw_peer_release(stalling.peer);
    assert_int_equal(task_status(stalling.engine, batch, 0), TIMEOUT); /* ours is final, and quiet */
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
}

/* ---- batch status ---- */

static void ext_batch_status_counts(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new(SIZE);
    struct pair pair = {.engine = stalling.engine, .local = stalling.local, .target = target_start()};
    pair.remote = target_memory(pair.target, SIZE);
    pair.segment = engine_open(pair.engine, pair.target->name);
    te_batch_status_t whole = {.struct_size = sizeof(whole)};
    batch_id_t batch = batch_new(pair.engine, 10);
    assert_int_equal(te_batch_status(pair.engine, batch, &whole), 0);
    assert_int_equal(whole.status, COMPLETED);
    assert_int_equal(whole.tasks, 0);

    struct transfer_request requests[4] = {
        request_of(WRITE, pair.local, pair.segment, pair.remote.there, 100),
        request_of(WRITE, pair.local, pair.segment, pair.remote.there, 200),
        request_of(WRITE, pair.local, pair.segment, 64, 300),
        request_of(READ, pair.local, stalling.segment, (uintptr_t)stalling.peer->memory, 400)};
    assert_int_equal(submitTransfer(pair.engine, batch, requests, 4), 0);
    for (size_t index = 0; index < 3; index++)
        finish(pair.engine, batch, index);
    assert_int_equal(te_batch_status(pair.engine, batch, &whole), 0);
    assert_int_equal(whole.status, WAITING); /* although one has failed */
    assert_int_equal(whole.tasks, 4);
    assert_int_equal(whole.waiting, 1);
    assert_int_equal(whole.completed, 2);
    assert_int_equal(whole.failed, 1);
    assert_int_equal(whole.transferred_bytes, 300);
    raw_peer_request(stalling.peer, 0, false);
    assert_int_equal(te_cancel_task(pair.engine, batch, 3), 0);
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
    assert_int_equal(te_batch_status(pair.engine, batch, &whole), 0);
    assert_int_equal(whole.status, FAILED);
    assert_int_equal(whole.waiting, 0);
    assert_int_equal(whole.canceled, 1);
    assert_int_equal(whole.timed_out, 0);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
    assert_int_equal(te_batch_status(pair.engine, batch, &whole), ERR_INVALID_ARGUMENT);
}

static void ext_batch_status_minds_the_size(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    batch_id_t batch = batch_new(engine, 1);
    te_batch_status_t whole = {.struct_size = 0};
    assert_int_equal(te_batch_status(engine, batch, &whole), ERR_INVALID_ARGUMENT);
    whole.struct_size = sizeof(whole) - 1;
    assert_int_equal(te_batch_status(engine, batch, &whole), ERR_INVALID_ARGUMENT);
    struct {
        te_batch_status_t known;
        uint64_t more[2], beyond;
    } larger = {.known = {.struct_size = sizeof(larger.known) + sizeof(larger.more)}, .more = {1, 2}, .beyond = 3};
    assert_int_equal(te_batch_status(engine, batch, &larger.known), 0);
    assert_int_equal(larger.more[0], 0);
    assert_int_equal(larger.more[1], 0);
    assert_int_equal(larger.beyond, 3);
    assert_int_equal(freeBatchID(engine, batch), 0);
}

static void report_b01_a_canceled_task_ends_the_batch(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new(SIZE);
    batch_id_t batch = stalling_submit(&stalling);
    te_batch_status_t whole = {.struct_size = sizeof(whole)};
    assert_int_equal(te_batch_status(stalling.engine, batch, &whole), 0);
    assert_int_equal(whole.status, WAITING);
    assert_int_equal(te_cancel_batch(stalling.engine, batch), 0);
    AWAIT(te_batch_status(stalling.engine, batch, &whole) == 0 && whole.status != WAITING);
    assert_int_equal(whole.status, CANCELED);
    assert_int_equal(whole.canceled, 1);
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
}

static void report_b02_the_numbers_of_the_states(void **state)
{
    (void)state;
    assert_int_equal(STATUS_WAITING, 0);
    assert_int_equal(STATUS_PENDING, 1);
    assert_int_equal(STATUS_INVALID, 2);
    assert_int_equal(STATUS_CANCELED, 3);
    assert_int_equal(STATUS_COMPLETED, 4);
    assert_int_equal(STATUS_TIMEOUT, 5);
    assert_int_equal(STATUS_FAILED, 6);
    struct target *target = target_start();
    transfer_engine_t engine = engine_new();
    segment_id_t segment = engine_open(engine, target->name);
    size_t before = resident_bytes();
    for (int round = 0; round < 100000; round++) {
        assert_int_equal(openSegment(engine, target->name), segment);
        assert_int_equal(closeSegment(engine, segment), 0);
    }
    assert_true(under_sanitizer() || resident_bytes() < before + 4 * MIB);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(ext_cancel_running),
        TEST(ext_cancel_queued),
        TEST(ext_cancel_amid_the_submission),
        TEST(ext_cancelling_one_leaves_the_others),
        TEST(ext_cancel_finished),
        TEST(ext_a_canceled_submit_does_not_notify),
        TEST(ext_options_are_checked),
        TEST(ext_every_priority_completes),
        TEST(ext_high_goes_before_low),
        TEST(ext_a_deadline_ends_what_stalls_and_nothing_else),
        TEST(ext_slice_timeout_makes_it_a_timeout),
        TEST(ext_batch_status_counts),
        TEST(ext_batch_status_minds_the_size),
        TEST(report_b01_a_canceled_task_ends_the_batch),
        TEST(report_b02_the_numbers_of_the_states),
    };
    return RUN_TESTS(tests, argc, argv);
}
