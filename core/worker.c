#include "core/worker.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/condition.h"
#include "core/log.h"

enum { IDLE_SECONDS = 1 };

struct job {
    struct job *next;
    void (*function)(void *);
    void *data;
};

struct worker {
    pthread_t thread;
    struct te_worker_pool *pool;
    struct worker *next; /* in the list of those that have left */
};

struct te_worker_pool {
    unsigned maximum_threads;
    pthread_mutex_t lock;
    pthread_cond_t work;    /* a job has come, or stop */
    pthread_cond_t changed; /* a worker has left */
    struct job *head, **tail;
    unsigned threads, idle;
    unsigned waiting; /* jobs in the list */
    bool stop;
    struct worker *left; /* to be joined */
};

/* Under the lock. The next job, or NULL when the thread should leave. */
static struct job *next_job(struct te_worker_pool *pool)
{
    int64_t leave_ns = te_now_ns() + IDLE_SECONDS * TE_NS_PER_SECOND;
    bool in_time = true;
    struct job *job;

    pool->idle++;
    while (pool->head == NULL && !pool->stop) {
        if (pool->threads == 1)
            pthread_cond_wait(&pool->work, &pool->lock);
        else if (in_time)
            in_time = te_condition_wait_until(&pool->work, &pool->lock, leave_ns);
        else
            break;
    }
    pool->idle--;
    job = pool->head;
    if (job == NULL)
        return NULL;
    pool->head = job->next;
    if (pool->head == NULL)
        pool->tail = &pool->head;
    pool->waiting--;
    return job;
}

static void *work(void *data)
{
    struct worker *worker = data;
    struct te_worker_pool *pool = worker->pool;
    struct job *job;

    pthread_mutex_lock(&pool->lock);
    while ((job = next_job(pool)) != NULL) {
        pthread_mutex_unlock(&pool->lock);
        job->function(job->data);
        g_free(job);
        pthread_mutex_lock(&pool->lock);
    }
    pool->threads--;
    worker->next = pool->left;
    pool->left = worker;
    pthread_cond_signal(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static int start_thread(struct worker *worker)
{
    sigset_t all, old;
    int error;

    /* Signals belong to the threads of the application. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0)
        pthread_setname_np(worker->thread, "te-worker");
    return error;
}

/* Under the lock. Joins the threads that have left: they hold the lock for a few instructions more at most. */
static void reap(struct te_worker_pool *pool)
{
    struct worker *left = pool->left;

    pool->left = NULL;
    pthread_mutex_unlock(&pool->lock);
    while (left != NULL) {
        struct worker *worker = left;

        left = worker->next;
        pthread_join(worker->thread, NULL);
        g_free(worker);
    }
    pthread_mutex_lock(&pool->lock);
}

/* Under the lock. The error of pthread_create. */
static int add_worker(struct te_worker_pool *pool)
{
    struct worker *worker = g_new0(struct worker, 1);
    int error;

    worker->pool = pool;
    pool->threads++;
    error = start_thread(worker);
    if (error != 0) {
        pool->threads--;
        g_free(worker);
    }
    return error;
}

te_status te_worker_pool_new(unsigned maximum_threads, struct te_worker_pool **pool_p)
{
    struct te_worker_pool *pool = g_new0(struct te_worker_pool, 1);
    int error;

    pool->maximum_threads = MAX(maximum_threads, 1);
    pool->tail = &pool->head;
    pthread_mutex_init(&pool->lock, NULL);
    te_condition_init(&pool->work);
    te_condition_init(&pool->changed);
    pthread_mutex_lock(&pool->lock);
    error = add_worker(pool);
    pthread_mutex_unlock(&pool->lock);
    if (error != 0) {
        te_worker_pool_free(pool);
        return te_fail(TE_MEMORY, "cannot start a thread: %s", strerror(error));
    }
    *pool_p = pool;
    return TE_OK;
}

void te_worker_pool_free(struct te_worker_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    while (pool->threads > 0)
        pthread_cond_wait(&pool->changed, &pool->lock);
    reap(pool);
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->changed);
    g_free(pool);
}

void te_worker_run(struct te_worker_pool *pool, void (*function)(void *), void *data)
{
    struct job *job = g_new0(struct job, 1);
    int error = 0;

    job->function = function;
    job->data = data;
    pthread_mutex_lock(&pool->lock);
    *pool->tail = job;
    pool->tail = &job->next;
    pool->waiting++;
    /* A worker that leaves at this very moment sees the job first: it looks under the lock. */
    if (pool->waiting > pool->idle && pool->threads < pool->maximum_threads)
        error = add_worker(pool);
    pthread_cond_signal(&pool->work);
    if (pool->left != NULL)
        reap(pool);
    pthread_mutex_unlock(&pool->lock);
    if (error != 0)
        te_log_limited(TE_LOG_WARNING, "cannot start another thread for control calls: %s", strerror(error));
}
