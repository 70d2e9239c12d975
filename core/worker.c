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

enum {
    IDLE_SECONDS = 1,
    STACK_BYTES = 512 * 1024, /* there may be a thousand of them */
};

struct job {
    struct job *next;
    void (*function)(void *);
    void *data;
    enum te_work_rank rank;
};

struct job_queue {
    struct job *head, **tail;
};

struct worker {
    pthread_t thread;
    struct te_worker_pool *pool;
};

struct te_worker_pool {
    unsigned maximum_threads;
    pthread_mutex_t lock;
    pthread_cond_t work;    /* a job may begin, or stop */
    pthread_cond_t changed; /* a worker has left */
    struct job_queue waiting[TE_WORK_RANKS];
    unsigned running[TE_WORK_RANKS];
    unsigned threads, idle;
    bool stop;
    struct worker *left; /* the last one that has, to be joined; it joins the one before */
};

/* Under the lock. The queue from which a job may begin, or NULL. */
static struct job_queue *find_work(struct te_worker_pool *pool)
{
    unsigned running = 0;
    struct job_queue *found = NULL;

    for (int rank = TE_WORK_RANKS - 1; rank >= 0; rank--) {
        running += pool->running[rank];
        if (pool->waiting[rank].head != NULL && running < MAX(pool->maximum_threads >> rank, 1))
            found = &pool->waiting[rank];
    }
    return found;
}

static int add_worker(struct te_worker_pool *pool);

/* Under the lock. Gets a thread for the next job that may begin; it sees to the one after. The error of pthread_create,
 * after which the job waits for a thread that there is. */
static int engage(struct te_worker_pool *pool)
{
    if (find_work(pool) == NULL)
        return 0;
    if (pool->idle > 0)
        pthread_cond_signal(&pool->work);
    else if (pool->threads < pool->maximum_threads)
        return add_worker(pool);
    return 0;
}

/* Under the lock. The next job, now counted as running, or NULL when the thread should leave. */
static struct job *next_job(struct te_worker_pool *pool)
{
    int64_t leave_ns = te_now_ns() + IDLE_SECONDS * TE_NS_PER_SECOND;
    bool in_time = true;
    struct job_queue *queue;
    struct job *job;

    pool->idle++;
    while ((queue = find_work(pool)) == NULL && !pool->stop) {
        if (pool->threads == 1)
            pthread_cond_wait(&pool->work, &pool->lock);
        else if (in_time)
            in_time = te_condition_wait_until(&pool->work, &pool->lock, leave_ns);
        else
            break;
    }
    pool->idle--;
    if (queue == NULL)
        return NULL;
    job = queue->head;
    queue->head = job->next;
    if (queue->head == NULL)
        queue->tail = &queue->head;
    pool->running[job->rank]++;
    return job;
}

static void report_missing_thread(int error)
{
    if (error != 0)
        te_log_limited(TE_LOG_WARNING, "cannot start another thread for control calls: %s", strerror(error));
}

static void join(struct worker *worker)
{
    if (worker == NULL)
        return;
    pthread_join(worker->thread, NULL);
    g_free(worker);
}

static void *work(void *data)
{
    struct worker *worker = data, *before;
    struct te_worker_pool *pool = worker->pool;
    struct job *job;

    pthread_mutex_lock(&pool->lock);
    while ((job = next_job(pool)) != NULL) {
        int error = engage(pool);

        pthread_mutex_unlock(&pool->lock);
        report_missing_thread(error);
        job->function(job->data);
        pthread_mutex_lock(&pool->lock);
        pool->running[job->rank]--;
        g_free(job);
    }
    pool->threads--;
    before = pool->left;
    pool->left = worker;
    pthread_cond_signal(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    join(before);
    return NULL;
}

static int start_thread(struct worker *worker)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    int error;

    /* Signals belong to the threads of the application. */
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&worker->thread, &attributes, work, worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    if (error == 0)
        pthread_setname_np(worker->thread, "te-worker");
    return error;
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
    for (int rank = 0; rank < TE_WORK_RANKS; rank++)
        pool->waiting[rank].tail = &pool->waiting[rank].head;
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
    pthread_mutex_unlock(&pool->lock);
    join(pool->left);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->changed);
    g_free(pool);
}

void te_worker_run(struct te_worker_pool *pool, enum te_work_rank rank, void (*function)(void *), void *data)
{
    struct job *job = g_new0(struct job, 1);
    int error;

    job->function = function;
    job->data = data;
    job->rank = rank;
    pthread_mutex_lock(&pool->lock);
    *pool->waiting[rank].tail = job;
    pool->waiting[rank].tail = &job->next;
    error = engage(pool);
    pthread_mutex_unlock(&pool->lock);
    report_missing_thread(error);
}
