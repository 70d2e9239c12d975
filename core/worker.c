#include "core/worker.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/log.h"

enum { IDLE_SECONDS = 5 };

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
    GMutex lock;
    GCond work;    /* a job has come, or stop */
    GCond changed; /* a worker has left */
    struct job *head, **tail;
    unsigned threads, idle;
    unsigned waiting; /* jobs in the list */
    bool stop;
    struct worker *left; /* to be joined */
};

/* Under the lock. The next job, or NULL when the thread should leave. */
static struct job *next_job(struct te_worker_pool *pool)
{
    gint64 leave = g_get_monotonic_time() + IDLE_SECONDS * G_TIME_SPAN_SECOND;
    bool in_time = true;
    struct job *job;

    pool->idle++;
    while (pool->head == NULL && !pool->stop) {
        if (pool->threads == 1)
            g_cond_wait(&pool->work, &pool->lock);
        else if (in_time)
            in_time = g_cond_wait_until(&pool->work, &pool->lock, leave);
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

    g_mutex_lock(&pool->lock);
    while ((job = next_job(pool)) != NULL) {
        g_mutex_unlock(&pool->lock);
        job->function(job->data);
        g_free(job);
        g_mutex_lock(&pool->lock);
    }
    pool->threads--;
    worker->next = pool->left;
    pool->left = worker;
    g_cond_signal(&pool->changed);
    g_mutex_unlock(&pool->lock);
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
    g_mutex_unlock(&pool->lock);
    while (left != NULL) {
        struct worker *worker = left;

        left = worker->next;
        pthread_join(worker->thread, NULL);
        g_free(worker);
    }
    g_mutex_lock(&pool->lock);
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
    g_mutex_init(&pool->lock);
    g_cond_init(&pool->work);
    g_cond_init(&pool->changed);
    g_mutex_lock(&pool->lock);
    error = add_worker(pool);
    g_mutex_unlock(&pool->lock);
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
    g_mutex_lock(&pool->lock);
    pool->stop = true;
    g_cond_broadcast(&pool->work);
    while (pool->threads > 0)
        g_cond_wait(&pool->changed, &pool->lock);
    reap(pool);
    g_mutex_unlock(&pool->lock);
    g_mutex_clear(&pool->lock);
    g_cond_clear(&pool->work);
    g_cond_clear(&pool->changed);
    g_free(pool);
}

void te_worker_run(struct te_worker_pool *pool, void (*function)(void *), void *data)
{
    struct job *job = g_new0(struct job, 1);
    int error = 0;

    job->function = function;
    job->data = data;
    g_mutex_lock(&pool->lock);
    *pool->tail = job;
    pool->tail = &job->next;
    pool->waiting++;
    /* A worker that leaves at this very moment sees the job first: it looks under the lock. */
    if (pool->waiting > pool->idle && pool->threads < pool->maximum_threads)
        error = add_worker(pool);
    g_cond_signal(&pool->work);
    if (pool->left != NULL)
        reap(pool);
    g_mutex_unlock(&pool->lock);
    if (error != 0)
        te_log_limited(TE_LOG_WARNING, "cannot start another thread for control calls: %s", strerror(error));
}
