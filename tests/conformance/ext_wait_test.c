/* Waiting and event descriptors of transfer_engine_ext.h. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };
#define SECOND INT64_C(1000000000)

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
    struct stalling stalling = stalling_new(SIZE);
    batch_id_t batch = stalling_submit(&stalling);
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
    struct stalling stalling = stalling_new(SIZE);
    batch_id_t batch = stalling_submit(&stalling);
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
    struct stalling stalling = stalling_new(SIZE);
    batch_id_t batch = stalling_submit(&stalling);
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
    struct stalling stalling = stalling_new(SIZE);
    batch_id_t batch = stalling_submit(&stalling);
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
    if (is_readable(descriptor, 0))
        take_events(descriptor);              /* the report of that end, which was still under way */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(ext_wait_returns_when_all_tasks_have_ended), TEST(ext_wait_for_one_task_tells_how_it_ended),
        TEST(ext_wait_gives_up_when_its_time_is_over),    TEST(ext_several_threads_wait_for_one_batch),
        TEST(ext_a_waiter_is_woken_by_anothers_cancel),   TEST(ext_waiters_on_different_batches_of_one_peer),
        TEST(ext_the_event_descriptor_of_a_batch),        TEST(ext_each_end_makes_the_descriptor_readable),
        TEST(ext_the_event_descriptor_of_the_engine),     TEST(ext_descriptors_of_batches_are_closed_with_them),
    };
    return RUN_TESTS(tests, argc, argv);
}
