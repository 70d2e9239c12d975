/* The functions of transfer_engine_ext.h: waiting, event descriptors, cancelling, options, batch status, what a peer
 * has registered, reasons, log. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };
#define SECOND INT64_C(1000000000)

/* A peer that holds requests up until it is released. */
struct stalling {
    transfer_engine_t engine;
    struct raw_peer *peer;
    segment_id_t segment;
    uint8_t *local;
};

static struct stalling stalling_new(void)
{
    struct stalling stalling = {.engine = engine_new(), .peer = raw_peer_start(), .local = memory_new(SIZE)};
    stalling.segment = engine_open(stalling.engine, stalling.peer->name);
    raw_peer_behave(stalling.peer, RAW_STALL_HALF_WAY, 0);
    return stalling;
}

/* A request that is with the peer when this returns. */
static batch_id_t submit_stalling(struct stalling *stalling)
{
    unsigned before = raw_peer_requests(stalling->peer);
    batch_id_t batch =
        submit_one(stalling->engine, READ, stalling->local, stalling->segment, (uintptr_t)stalling->peer->memory, SIZE);
    raw_peer_request(stalling->peer, before, false);
    return batch;
}

static bool is_readable(int descriptor, int timeout_ms)
{
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    int result = poll(&entry, 1, timeout_ms);
    assert_true(result >= 0);
    return result == 1 && (entry.revents & POLLIN);
}

static uint64_t take_events(int descriptor)
{
    uint64_t count = 0;
    ssize_t taken = read(descriptor, &count, sizeof(count));
    assert_true(taken == sizeof(count) || (taken < 0 && errno == EAGAIN));
    return count;
}

/* ---- waiting ---- */

static void ext_wait_returns_when_all_tasks_have_ended(void **state)
{
    (void)state;
    struct pair pair = pair_new(MIB);
    for (uint64_t round = 0; round < 200; round++) {
        size_t length = 1 + (size_t)round * 5003 % MIB;
        pattern_fill(pair.local, length, round);
        batch_id_t batch = pair_submit(&pair, WRITE, length);
        assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
        assert_pattern(pair.remote.here, length, round);
        assert_int_equal(task_status(pair.engine, batch, 0), COMPLETED);
        assert_int_equal(te_wait_batch(pair.engine, batch, 0), 0);
        assert_int_equal(freeBatchID(pair.engine, batch), 0);
    }
}

static void ext_wait_for_one_task_tells_how_it_ended(void **state)
{
    (void)state;
    struct pair pair = pair_new(2 * KIB);
    struct transfer_request requests[2] = {request_of(READ, pair.local, pair.segment, pair.remote.there, KIB),
                                           request_of(READ, pair.local, pair.segment, 64, KIB)};
    batch_id_t batch = batch_new(pair.engine, 3);
    assert_int_equal(submitTransfer(pair.engine, batch, requests, 2), 0);
    struct transfer_status status = {.status = 77, .transferred_bytes = 77};
    assert_int_equal(te_wait_task(pair.engine, batch, 2, 0, &status), ERR_INVALID_ARGUMENT);
    assert_int_equal(te_wait_task(pair.engine, batch, SIZE_MAX, 0, &status), ERR_INVALID_ARGUMENT);
    assert_int_equal(status.status, 77);
    assert_int_equal(te_wait_task(pair.engine, batch, 1, -1, &status), 0);
    assert_int_equal(status.status, FAILED);
    assert_int_equal(status.transferred_bytes, 0);
    assert_int_equal(te_wait_task(pair.engine, batch, 0, 10 * SECOND, &status), 0);
    assert_int_equal(status.status, COMPLETED);
    assert_int_equal(status.transferred_bytes, KIB);
    assert_int_equal(te_wait_task(pair.engine, batch, 0, -1, NULL), 0);
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), ERR_INVALID_ARGUMENT);
    assert_int_equal(te_wait_task(pair.engine, batch, 0, -1, &status), ERR_INVALID_ARGUMENT);
    batch = batch_new(pair.engine, 1);
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0); /* no task is under way */
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void ext_wait_gives_up_when_its_time_is_over(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new();
    batch_id_t batch = submit_stalling(&stalling);
    static const int64_t timeouts[] = {0, 1, 1000000, 50000000};
    for (size_t index = 0; index < sizeof(timeouts) / sizeof(timeouts[0]); index++) {
        struct transfer_status status = {.status = 77};
        int64_t start = now_ns();
        assert_int_equal(te_wait_batch(stalling.engine, batch, timeouts[index]), TE_ERR_TIMED_OUT);
        assert_true(now_ns() - start >= timeouts[index]);
        assert_int_equal(te_wait_task(stalling.engine, batch, 0, timeouts[index], &status), TE_ERR_TIMED_OUT);
        assert_int_equal(status.status, 77);
    }
    assert_int_equal(task_status(stalling.engine, batch, 0), WAITING);
    raw_peer_release(stalling.peer);
    assert_int_equal(te_wait_batch(stalling.engine, batch, -1), 0);
    assert_int_equal(task_status(stalling.engine, batch, 0), COMPLETED);
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
}

struct waiter {
    transfer_engine_t engine;
    batch_id_t batch;
    atomic_bool waiting;
    int result;
};

static void *wait_for_batch(void *data)
{
    struct waiter *waiter = data;
    atomic_store(&waiter->waiting, true);
    waiter->result = te_wait_batch(waiter->engine, waiter->batch, -1);
    return NULL;
}

static void ext_several_threads_wait_for_one_batch(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    struct stalling stalling = stalling_new();
    batch_id_t batch = submit_stalling(&stalling);
    struct waiter waiters[THREADS];
    pthread_t threads[THREADS];
    for (size_t index = 0; index < THREADS; index++) {
        waiters[index] = (struct waiter){.engine = stalling.engine, .batch = batch, .result = 77};
        assert_int_equal(pthread_create(&threads[index], NULL, wait_for_batch, &waiters[index]), 0);
    }
    for (size_t index = 0; index < THREADS; index++)
        AWAIT(atomic_load(&waiters[index].waiting));
    assert_int_equal(te_wait_batch(stalling.engine, batch, 20000000), TE_ERR_TIMED_OUT);
    raw_peer_release(stalling.peer);
    for (size_t index = 0; index < THREADS; index++) {
        pthread_join(threads[index], NULL);
        assert_int_equal(waiters[index].result, 0);
    }
    assert_int_equal(task_status(stalling.engine, batch, 0), COMPLETED);
}

static void ext_a_waiter_is_woken_by_anothers_cancel(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new();
    batch_id_t batch = submit_stalling(&stalling);
    struct waiter waiter = {.engine = stalling.engine, .batch = batch, .result = 77};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_batch, &waiter), 0);
    AWAIT(atomic_load(&waiter.waiting));
    assert_int_equal(te_cancel_batch(stalling.engine, batch), 0);
    pthread_join(thread, NULL);
    assert_int_equal(waiter.result, 0);
    assert_int_equal(task_status(stalling.engine, batch, 0), CANCELED);
}

static void ext_waiters_on_different_batches_of_one_peer(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    struct pair pair = pair_new(THREADS * SIZE);
    for (int round = 0; round < 50; round++) {
        struct waiter waiters[THREADS];
        for (size_t index = 0; index < THREADS; index++) {
            waiters[index] = (struct waiter){.engine = pair.engine, .result = 77};
            waiters[index].batch = submit_one(pair.engine, (int)(index % 2), pair.local + index * SIZE, pair.segment,
                                              pair.remote.there + index * SIZE, index % 3 ? SIZE : 64);
        }
        run_threads(THREADS, wait_for_batch, waiters, sizeof(waiters[0]));
        for (size_t index = 0; index < THREADS; index++) {
            assert_int_equal(waiters[index].result, 0);
            assert_int_equal(task_status(pair.engine, waiters[index].batch, 0), COMPLETED);
            assert_int_equal(freeBatchID(pair.engine, waiters[index].batch), 0);
        }
    }
}

/* ---- event descriptors ---- */

static void ext_the_event_descriptor_of_a_batch(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new();
    batch_id_t batch = submit_stalling(&stalling);
    int descriptor = te_batch_event_fd(stalling.engine, batch);
    assert_true(descriptor >= 0);
    assert_int_equal(te_batch_event_fd(stalling.engine, batch), descriptor);
    assert_false(is_readable(descriptor, 0));
    assert_int_equal(take_events(descriptor), 0); /* never blocks */
    raw_peer_release(stalling.peer);
    assert_true(is_readable(descriptor, -1)); /* nobody polls the status meanwhile */
    assert_true(take_events(descriptor) > 0);
    assert_int_equal(task_status(stalling.engine, batch, 0), COMPLETED);
    assert_false(is_readable(descriptor, 0));
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
    assert_int_equal(te_batch_event_fd(stalling.engine, batch), ERR_INVALID_ARGUMENT);
    batch = submit_one(stalling.engine, READ, stalling.local, stalling.segment, 0, 0);
    descriptor = te_batch_event_fd(stalling.engine, batch);
    assert_true(is_readable(descriptor, 0)); /* its task has ended before */
    assert_int_equal(freeBatchID(stalling.engine, batch), 0);
}

static void ext_each_end_makes_the_descriptor_readable(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct pair pair = pair_new(KIB);
    batch_id_t batch = batch_new(pair.engine, COUNT);
    int descriptor = te_batch_event_fd(pair.engine, batch);
    for (size_t index = 0; index < COUNT; index++) {
        struct transfer_request request =
            request_of((int)(index % 2), pair.local, pair.segment, index % 5 ? pair.remote.there : 64, KIB);
        assert_int_equal(submitTransfer(pair.engine, batch, &request, 1), 0);
        assert_true(is_readable(descriptor, -1));
        take_events(descriptor);
        assert_int_equal(task_status(pair.engine, batch, index), index % 5 ? COMPLETED : FAILED);
    }
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void ext_the_event_descriptor_of_the_engine(void **state)
{
    (void)state;
    enum { BATCHES = 20 };
    struct pair pair = pair_new(SIZE);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
    int descriptor = te_event_fd(pair.engine);
    assert_true(descriptor >= 0);
    assert_int_equal(te_event_fd(pair.engine), descriptor);
    assert_false(is_readable(descriptor, 0)); /* what ended before does not count */
    batch_id_t batches[BATCHES];
    bool ended[BATCHES] = {false};
    for (size_t index = 0; index < BATCHES; index++)
        batches[index] = pair_submit(&pair, (int)(index % 2), SIZE);
    for (size_t left = BATCHES; left > 0;) {
        assert_true(is_readable(descriptor, -1)); /* read first, then query: no end is missed */
        take_events(descriptor);
        for (size_t index = 0; index < BATCHES; index++) {
            if (!ended[index] && is_terminal(task_status(pair.engine, batches[index], 0))) {
                ended[index] = true;
                left--;
            }
        }
    }
    for (size_t index = 0; index < BATCHES; index++)
        assert_int_equal(freeBatchID(pair.engine, batches[index]), 0);
}

static void ext_descriptors_of_batches_are_closed_with_them(void **state)
{
    (void)state;
    struct pair pair = pair_new(KIB);
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), COMPLETED);
    size_t before = open_descriptors();
    for (int round = 0; round < 2000; round++) {
        batch_id_t batch = batch_new(pair.engine, 1);
        assert_true(te_batch_event_fd(pair.engine, batch) >= 0);
        assert_int_equal(freeBatchID(pair.engine, batch), 0);
    }
    assert_true(open_descriptors() <= before + 1);
}

/* ---- cancelling ---- */

static void ext_cancel_running(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new();
    for (int round = 0; round < 5; round++) {
        batch_id_t batch = submit_stalling(&stalling);
        assert_int_equal(te_cancel_task(stalling.engine, batch, 0), 0);
        assert_int_equal(te_wait_batch(stalling.engine, batch, -1), 0);
        assert_int_equal(task_status(stalling.engine, batch, 0), CANCELED);
        assert_int_equal(te_cancel_task(stalling.engine, batch, 0), 0);
        assert_int_equal(task_status(stalling.engine, batch, 0), CANCELED);
        assert_int_equal(freeBatchID(stalling.engine, batch), 0);
    }
}

static void ext_cancel_queued(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    struct stalling stalling = stalling_new();
    struct transfer_request requests[COUNT];
    for (size_t index = 0; index < COUNT; index++)
        requests[index] = request_of(READ, stalling.local, stalling.segment, (uintptr_t)stalling.peer->memory, SIZE);
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
    struct stalling stalling = stalling_new();
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
                                 {.struct_size = sizeof(te_submit_options_t), .priority = 3},
                                 {.struct_size = sizeof(te_submit_options_t), .priority = -2},
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
        te_submit_options_t options = {.struct_size = sizeof(options), .priority = (int32_t)(index % 4) - 1};
        struct transfer_request request =
            request_of(WRITE, pair.local + index * EACH, pair.segment, pair.remote.there + index * EACH, EACH);
        assert_int_equal(te_submit(pair.engine, batch, &request, 1, &options), 0);
    }
    assert_int_equal(te_wait_batch(pair.engine, batch, -1), 0);
    assert_pattern(pair.remote.here, pair.size, 5);
    assert_int_equal(freeBatchID(pair.engine, batch), 0);
}

static void ext_a_deadline_ends_what_stalls_and_nothing_else(void **state)
{
    (void)state;
    struct stalling stalling = stalling_new();
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
    struct stalling stalling = stalling_new();
    batch_id_t batch = submit_stalling(&stalling);
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
    struct stalling stalling = stalling_new();
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
    struct stalling stalling = stalling_new();
    batch_id_t batch = submit_stalling(&stalling);
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

/* ---- what a peer has registered ---- */

static void ext_remote_buffers(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    struct shared_memory second = target_memory(pair.target, 2 * SIZE);
    buffer_entry_t buffers[3];
    memset(buffers, 0x7e, sizeof(buffers));
    size_t count = 0;
    assert_int_equal(te_remote_buffers(pair.engine, pair.segment, NULL, &count), 0);
    assert_int_equal(count, 2);
    count = 1;
    assert_int_equal(te_remote_buffers(pair.engine, pair.segment, buffers, &count), 0);
    assert_int_equal(count, 2); /* there is more than room for */
    assert_int_equal((uintptr_t)buffers[0].addr, pair.remote.there);
    assert_int_equal(buffers[0].length, SIZE);
    assert_bytes(&buffers[1], sizeof(buffers[1]), 0x7e);
    count = 3;
    assert_int_equal(te_remote_buffers(pair.engine, pair.segment, buffers, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal((uintptr_t)buffers[1].addr, second.there);
    assert_int_equal(buffers[1].length, 2 * SIZE);
    assert_bytes(&buffers[2], sizeof(buffers[2]), 0x7e);

    uint8_t *mine = memory_new_registered(pair.engine, SIZE);
    count = 3;
    assert_int_equal(te_remote_buffers(pair.engine, LOCAL_SEGMENT, buffers, &count), 0);
    assert_int_equal(count, 1);
    assert_ptr_equal(buffers[0].addr, mine);
    count = 3;
    assert_int_equal(te_remote_buffers(pair.engine, 4711, buffers, &count), ERR_METADATA);
    assert_int_equal(te_remote_buffers(pair.engine, -1, buffers, &count), ERR_METADATA);
    assert_int_equal(count, 3);
    short_timeouts();
    target_kill(pair.target);
    assert_true(te_remote_buffers(pair.engine, pair.segment, buffers, &count) < 0);
    assert_int_equal(count, 3);
}

static void report_s10_the_first_buffer_of_a_peer(void **state)
{
    (void)state;
    struct target *target = target_start();
    transfer_engine_t engine = engine_new();
    uint64_t address = 77;
    assert_int_equal(te_first_buffer_address(engine, target->name, &address), ERR_ADDRESS_NOT_REGISTERED);
    assert_int_equal(te_first_buffer_address(engine, "127.0.0.1:1", &address), ERR_SOCKET);
    assert_int_equal(te_first_buffer_address(engine, "nosuchhost.invalid:1", &address), ERR_DNS);
    assert_int_equal(te_first_buffer_address(engine, "", &address), ERR_INVALID_ARGUMENT);
    assert_int_equal(te_first_buffer_address(engine, target->name, NULL), ERR_INVALID_ARGUMENT);
    assert_int_equal(address, 77);
    struct shared_memory memory = target_memory(target, SIZE);
    assert_int_equal(te_first_buffer_address(engine, target->name, &address), 0); /* as it says now */
    assert_int_equal(address, memory.there);
}

/* ---- the library ---- */

static void *fail_in_a_thread(void *data)
{
    transfer_engine_t engine = *(transfer_engine_t *)data;
    bool clean = strcmp(te_last_error(), "") == 0;
    openSegment(engine, "nosuchhost.invalid:1");
    bool said = strstr(te_last_error(), "nosuchhost") != NULL;
    return clean && said ? data : NULL;
}

static void ext_the_reason_of_a_failure_is_kept_per_thread(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    assert_true(registerLocalMemory(engine, engine, 0, "*", 1) < 0);
    char before[512];
    snprintf(before, sizeof(before), "%s", te_last_error());
    assert_string_not_equal(before, "");
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_a_thread, &engine), 0);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_string_equal(te_last_error(), before);
}

static void ext_the_version_has_three_numbers(void **state)
{
    (void)state;
    int major;
    int minor;
    int patch;
    char rest;
    assert_int_equal(sscanf(te_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest), 3);
}

struct log {
    pthread_mutex_t lock;
    unsigned lines;
    bool broken_line;
    char all[256 * KIB];
    size_t length;
};

static void keep_line(int level, const char *message, void *user_data)
{
    struct log *log = user_data;
    size_t length = strlen(message);
    pthread_mutex_lock(&log->lock);
    log->lines++;
    log->broken_line |= strchr(message, '\n') != NULL || level < TE_LOG_LEVEL_TRACE || level > TE_LOG_LEVEL_ERROR;
    if (log->length + length + 2 < sizeof(log->all)) {
        memcpy(log->all + log->length, message, length);
        log->length += length;
        log->all[log->length++] = '\n';
    }
    pthread_mutex_unlock(&log->lock);
}

static struct log kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void listen_to_log(void)
{
    pthread_mutex_lock(&kept.lock);
    kept.lines = 0;
    kept.length = 0;
    memset(kept.all, 0, sizeof(kept.all));
    pthread_mutex_unlock(&kept.lock);
    te_set_log_callback(keep_line, &kept);
}

static void ext_messages_go_to_the_callers_function(void **state)
{
    (void)state;
    setenv("MC_LOG_LEVEL", "TRACE", 1);
    listen_to_log();
    transfer_engine_t engine = engine_new();
    assert_true(openSegment(engine, "nosuchhost.invalid:1") < 0);
    pthread_mutex_lock(&kept.lock);
    unsigned lines = kept.lines;
    assert_non_null(strstr(kept.all, "nosuchhost"));
    assert_false(kept.broken_line);
    pthread_mutex_unlock(&kept.lock);
    te_set_log_callback(NULL, NULL);
    assert_true(openSegment(engine, "nosuchhost.invalid:1") < 0);
    assert_int_equal(kept.lines, lines);
}

static void r10_a_dead_peer_does_not_flood_the_log(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    watchdog(60);
    short_timeouts();
    setenv("MC_LOG_LEVEL", "INFO", 1);
    struct pair pair = pair_new(KIB);
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), COMPLETED);
    struct transfer_request *requests = calloc(COUNT, sizeof(*requests));
    assert_non_null(requests);
    for (size_t index = 0; index < COUNT; index++)
        requests[index] = request_of((int)(index % 2), pair.local, pair.segment, pair.remote.there, KIB);
    batch_id_t batch = batch_new(pair.engine, COUNT);
    target_stop(pair.target);
    listen_to_log();
    assert_int_equal(submitTransfer(pair.engine, batch, requests, COUNT), 0);
    target_kill(pair.target);
    for (size_t index = 0; index < COUNT; index++)
        assert_int_equal(finish(pair.engine, batch, index), FAILED);
    for (int round = 0; round < 200; round++)
        assert_int_equal(pair_transfer(&pair, WRITE, KIB), FAILED);
    te_set_log_callback(NULL, NULL);
    pthread_mutex_lock(&kept.lock);
    print_message("%u lines\n", kept.lines);
    assert_true(kept.lines < 100);
    assert_true(kept.lines > 0);
    assert_non_null(strstr(kept.all, pair.target->name)); /* one of them says who */
    pthread_mutex_unlock(&kept.lock);
    free(requests);
}

static void report_b11_every_failure_leaves_a_reason_in_the_log(void **state)
{
    (void)state;
    short_timeouts();
    struct pair pair = pair_new(KIB);
    listen_to_log();
    assert_int_equal(transfer(pair.engine, WRITE, pair.local, pair.segment, 64, KIB), FAILED);
    pthread_mutex_lock(&kept.lock);
    assert_non_null(strstr(kept.all, pair.target->name)); /* the peer */
    assert_non_null(strstr(kept.all, "1024"));            /* the size */
    pthread_mutex_unlock(&kept.lock);
    target_kill(pair.target);
    listen_to_log();
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), FAILED);
    te_set_log_callback(NULL, NULL);
    pthread_mutex_lock(&kept.lock);
    assert_true(kept.lines > 0);
    pthread_mutex_unlock(&kept.lock);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(ext_wait_returns_when_all_tasks_have_ended),
        TEST(ext_wait_for_one_task_tells_how_it_ended),
        TEST(ext_wait_gives_up_when_its_time_is_over),
        TEST(ext_several_threads_wait_for_one_batch),
        TEST(ext_a_waiter_is_woken_by_anothers_cancel),
        TEST(ext_waiters_on_different_batches_of_one_peer),
        TEST(ext_the_event_descriptor_of_a_batch),
        TEST(ext_each_end_makes_the_descriptor_readable),
        TEST(ext_the_event_descriptor_of_the_engine),
        TEST(ext_descriptors_of_batches_are_closed_with_them),
        TEST(ext_cancel_running),
        TEST(ext_cancel_queued),
        TEST(ext_cancelling_one_leaves_the_others),
        TEST(ext_cancel_finished),
        TEST(ext_a_canceled_submit_does_not_notify),
        TEST(ext_options_are_checked),
        TEST(ext_every_priority_completes),
        TEST(ext_a_deadline_ends_what_stalls_and_nothing_else),
        TEST(ext_slice_timeout_makes_it_a_timeout),
        TEST(ext_batch_status_counts),
        TEST(ext_batch_status_minds_the_size),
        TEST(ext_remote_buffers),
        TEST(ext_the_reason_of_a_failure_is_kept_per_thread),
        TEST(ext_the_version_has_three_numbers),
        TEST(ext_messages_go_to_the_callers_function),
        TEST(r10_a_dead_peer_does_not_flood_the_log),
        TEST(report_b01_a_canceled_task_ends_the_batch),
        TEST(report_b02_the_numbers_of_the_states),
        TEST(report_b11_every_failure_leaves_a_reason_in_the_log),
        TEST(report_s10_the_first_buffer_of_a_peer),
    };
    return RUN_TESTS(tests, argc, argv);
}
