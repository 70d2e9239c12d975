/* The pool of threads for calls that block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "core/worker.h"

struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned present, expected, left;
};

static void meet(void *data)
{
    struct meeting *meeting = data;

    pthread_mutex_lock(&meeting->lock);
    meeting->present++;
    pthread_cond_broadcast(&meeting->changed);
    while (meeting->present < meeting->expected)
        pthread_cond_wait(&meeting->changed, &meeting->lock);
    meeting->left++;
    pthread_cond_broadcast(&meeting->changed);
    pthread_mutex_unlock(&meeting->lock);
}

static void count(void *data)
{
    atomic_fetch_add((atomic_uint *)data, 1);
}

static void run_and_meet(struct te_worker_pool *pool, enum te_work_rank rank, unsigned jobs)
{
    struct meeting meeting = {
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .expected = jobs + 1};

    for (unsigned i = 0; i < jobs; i++)
        te_worker_run(pool, rank, meet, &meeting);
    meet(&meeting);
    pthread_mutex_lock(&meeting.lock);
    while (meeting.left < jobs + 1)
        pthread_cond_wait(&meeting.changed, &meeting.lock);
    pthread_mutex_unlock(&meeting.lock);
}

/* Jobs that wait for each other: they must run side by side, up to the limit, however many threads are idle. */
static void jobs_run_side_by_side(void **state)
{
    enum { THREADS = 16, ROUNDS = 100 };

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct te_worker_pool *pool;

        assert_int_equal(te_worker_pool_new(THREADS, &pool), TE_OK);
        run_and_meet(pool, TE_WORK_PROMPT, round % THREADS);
        run_and_meet(pool, TE_WORK_PROMPT, THREADS);
        te_worker_pool_free(pool);
    }
}

static void everything_given_is_done_before_the_pool_goes(void **state)
{
    enum { JOBS = 10000 };
    static const unsigned limits[] = {0, 1, 4, 64};

    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct te_worker_pool *pool;
        atomic_uint done = 0;

        assert_int_equal(te_worker_pool_new(limits[i], &pool), TE_OK);
        for (int j = 0; j < JOBS; j++)
            te_worker_run(pool, (enum te_work_rank)(j % TE_WORK_RANKS), count, &done);
        te_worker_pool_free(pool);
        assert_int_equal(atomic_load(&done), JOBS);
    }
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    unsigned inside, done;
    char order[64]; /* of those that need not wait */
};

static void pass_gate(void *data)
{
    struct gate *gate = data;

    pthread_mutex_lock(&gate->lock);
    gate->inside++;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->done++;
    pthread_mutex_unlock(&gate->lock);
}

static void await_inside(struct gate *gate, unsigned count)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->inside < count)
        pthread_cond_wait(&gate->changed, &gate->lock);
    assert_int_equal(gate->inside, count);
    pthread_mutex_unlock(&gate->lock);
}

/* Jobs that are held up take half of the threads at most for each rank, so that those of the rank before go on. */
static void held_up_jobs_leave_threads_to_the_ranks_before(void **state)
{
    enum { THREADS = 16, JOBS = 100 };
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct te_worker_pool *pool;

    (void)state;
    assert_int_equal(te_worker_pool_new(THREADS, &pool), TE_OK);
    for (int rank = TE_WORK_RANKS - 1; rank >= 0; rank--) {
        for (int i = 0; i < JOBS; i++)
            te_worker_run(pool, (enum te_work_rank)rank, pass_gate, &gate);
        await_inside(&gate, THREADS >> rank);
        for (int before = 0; before < rank; before++)
            run_and_meet(pool, (enum te_work_rank)before, 1);
        await_inside(&gate, THREADS >> rank);
    }
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    te_worker_pool_free(pool);
    assert_int_equal(gate.done, JOBS * TE_WORK_RANKS);
}

struct note {
    struct gate *gate;
    char rank;
};

static void write_down(void *data)
{
    struct note *note = data;

    pthread_mutex_lock(&note->gate->lock);
    note->gate->order[strlen(note->gate->order)] = note->rank;
    pthread_mutex_unlock(&note->gate->lock);
}

static void jobs_begin_by_rank(void **state)
{
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct note notes[2 * TE_WORK_RANKS];
    struct te_worker_pool *pool;

    (void)state;
    assert_int_equal(te_worker_pool_new(1, &pool), TE_OK);
    te_worker_run(pool, TE_WORK_BACKGROUND, pass_gate, &gate);
    await_inside(&gate, 1);
    for (int i = 0; i < 2 * TE_WORK_RANKS; i++) {
        int rank = (3 * i + 2) % TE_WORK_RANKS;

        notes[i] = (struct note){&gate, (char)('0' + rank)};
        te_worker_run(pool, (enum te_work_rank)rank, write_down, &notes[i]);
    }
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    te_worker_pool_free(pool);
    assert_string_equal(gate.order, "00112233");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_side_by_side),
        cmocka_unit_test(everything_given_is_done_before_the_pool_goes),
        cmocka_unit_test(held_up_jobs_leave_threads_to_the_ranks_before),
        cmocka_unit_test(jobs_begin_by_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
