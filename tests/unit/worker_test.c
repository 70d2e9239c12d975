/* The pool of threads for calls that block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

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

/* Jobs that wait for each other: they must run side by side, up to the limit. */
static void jobs_run_side_by_side(void **state)
{
    enum { THREADS = 16, ROUNDS = 100 };
    struct te_worker_pool *pool;

    (void)state;
    assert_int_equal(te_worker_pool_new(THREADS, &pool), TE_OK);
    for (int round = 0; round < ROUNDS; round++) {
        struct meeting meeting = {.expected = THREADS + 1};

        pthread_mutex_init(&meeting.lock, NULL);
        pthread_cond_init(&meeting.changed, NULL);
        for (int i = 0; i < THREADS; i++)
            te_worker_run(pool, meet, &meeting);
        meet(&meeting);
        pthread_mutex_lock(&meeting.lock);
        while (meeting.left < THREADS + 1)
            pthread_cond_wait(&meeting.changed, &meeting.lock);
        pthread_mutex_unlock(&meeting.lock);
        pthread_mutex_destroy(&meeting.lock);
        pthread_cond_destroy(&meeting.changed);
    }
    te_worker_pool_free(pool);
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
            te_worker_run(pool, count, &done);
        te_worker_pool_free(pool);
        assert_int_equal(atomic_load(&done), JOBS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_side_by_side),
        cmocka_unit_test(everything_given_is_done_before_the_pool_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
