#include "load.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "te.h"

enum { WARM_UP_BATCHES = 3, PROGRESS_MS = 250 };
static const int64_t patience_ns = 120LL * 1000000000; /* the engine ends tasks of a dead peer long before */

struct run {
    const struct te_load *load;
    struct te_node *node;
    const struct te_peer_buffer *peer;
    pthread_mutex_t lock; /* of ready, go, running */
    pthread_cond_t changed;
    size_t ready, running;
    bool go;
    int64_t start_ns, end_ns; /* set before go */
    atomic_bool failed;
};

struct worker {
    struct run *run;
    size_t number;
    GThread *thread;
    size_t first_offset, span; /* the thread's share of both regions */
    size_t position;           /* of the next cold block in it */
    struct transfer_request *requests, *check_requests;
    int event_descriptor; /* of the engine; -1: one per batch */
    _Atomic uint64_t batches;
    int64_t last_end_ns, longest_gap_ns, sum_ns;
    struct te_latency *latency;
};

/* Bytes one thread touches. */
static size_t thread_span(const struct te_load *load)
{
    size_t batch_bytes;
    if (load->buffers == TE_LOAD_HOT)
        return load->size;
    if (__builtin_mul_overflow(load->size, load->batch, &batch_bytes))
        return 0;
    if (load->buffers == TE_LOAD_BATCH)
        return batch_bytes;
    return MAX(load->region / load->threads / load->size * load->size, batch_bytes);
}

size_t te_load_remote_bytes(const struct te_load *load)
{
    size_t bytes;
    return __builtin_mul_overflow(thread_span(load), load->threads, &bytes) ? 0 : bytes;
}

/* Verifying keeps a second copy of everything. */
size_t te_load_local_bytes(const struct te_load *load)
{
    size_t bytes;
    return __builtin_mul_overflow(te_load_remote_bytes(load), load->verify ? (size_t)2 : (size_t)1, &bytes) ? 0 : bytes;
}

static void aim_requests(struct worker *worker)
{
    const struct te_load *load = worker->run->load;
    for (size_t i = 0; i < load->batch; i++) {
        size_t offset = worker->first_offset + worker->position;
        worker->requests[i].source = worker->run->node->memory + offset;
        worker->requests[i].target_offset = worker->run->peer->address + offset;
        if (load->buffers != TE_LOAD_HOT)
            worker->position = (worker->position + load->size) % worker->span;
    }
}

static bool fail_batch(batch_id_t batch, struct worker *worker, const char *what, const char *reason)
{
    if (!atomic_exchange(&worker->run->failed, true))
        te_complain("%s: %s", what, *reason ? reason : "no reason was given");
    if (batch != INVALID_BATCH)
        freeBatchID(worker->run->node->engine, batch);
    return false;
}

static bool spin(struct worker *worker, batch_id_t batch, size_t *completed)
{
    transfer_engine_t engine = worker->run->node->engine;
    for (size_t task = 0; task < worker->run->load->batch;) {
        struct transfer_status status;
        if (getTransferStatus(engine, batch, task, &status))
            return false;
        if (status.status == STATUS_WAITING || status.status == STATUS_PENDING)
            continue;
        *completed += status.status == STATUS_COMPLETED;
        task++;
    }
    return true;
}

static bool sleep_through(struct worker *worker, batch_id_t batch, size_t *completed)
{
    transfer_engine_t engine = worker->run->node->engine;
    te_batch_status_t status = {.struct_size = sizeof(status)};
    if (te_wait_batch(engine, batch, patience_ns) || te_batch_status(engine, batch, &status))
        return false;
    *completed = status.completed;
    return true;
}

static bool poll_event(struct worker *worker, batch_id_t batch, size_t *completed)
{
    transfer_engine_t engine = worker->run->node->engine;
    int descriptor = worker->event_descriptor;
    if (descriptor < 0)
        descriptor = te_batch_event_fd(engine, batch);
    if (descriptor < 0)
        return false;
    te_batch_status_t status = {.struct_size = sizeof(status)};
    for (int64_t deadline_ns = te_now_ns() + patience_ns; te_now_ns() < deadline_ns;) {
        if (te_batch_status(engine, batch, &status))
            return false;
        *completed = status.completed;
        if (status.waiting == 0)
            return true;
        struct pollfd wait = {.fd = descriptor, .events = POLLIN};
        uint64_t count;
        if (poll(&wait, 1, 1000) > 0 && read(descriptor, &count, sizeof(count)) < 0)
            continue; /* somebody else has read it; the status decides */
    }
    return false;
}

/* completed: how many of the batch's tasks did what they should. False if it is not known how they ended. */
static bool await_end(struct worker *worker, batch_id_t batch, size_t *completed)
{
    switch (worker->run->load->wait) {
    case TE_LOAD_SPIN:
        return spin(worker, batch, completed);
    case TE_LOAD_SLEEP:
        return sleep_through(worker, batch, completed);
    default:
        return poll_event(worker, batch, completed);
    }
}

/* One batch from allocation to its end. */
static bool move_batch(struct worker *worker, struct transfer_request *requests)
{
    transfer_engine_t engine = worker->run->node->engine;
    size_t count = worker->run->load->batch, completed = 0;
    batch_id_t batch = allocateBatchID(engine, count);
    if (batch == INVALID_BATCH)
        return fail_batch(batch, worker, "no batch could be allocated", te_last_error());
    if (submitTransfer(engine, batch, requests, count))
        return fail_batch(batch, worker, "the transfers could not be submitted", te_last_error());
    if (!await_end(worker, batch, &completed))
        return fail_batch(batch, worker, "the transfers did not end", te_last_error());
    if (completed != count) {
        g_autofree char *what = g_strdup_printf("%zu of %zu transfers failed", count - completed, count);
        return fail_batch(batch, worker, what,
                          "the engine's log says why; the peer may have gone, or its buffer is too small");
    }
    freeBatchID(engine, batch);
    return true;
}

static bool measure_batch(struct worker *worker)
{
    int64_t start_ns = te_now_ns();
    if (!move_batch(worker, worker->requests))
        return false;
    int64_t end_ns = te_now_ns();
    te_latency_add(worker->latency, end_ns - start_ns);
    worker->sum_ns += end_ns - start_ns;
    worker->longest_gap_ns = MAX(worker->longest_gap_ns, end_ns - worker->last_end_ns);
    worker->last_end_ns = end_ns;
    atomic_fetch_add_explicit(&worker->batches, 1, memory_order_relaxed);
    return true;
}

/* The second copy of a local block. */
static unsigned char *copy_of(const struct worker *worker, const struct transfer_request *request)
{
    return (unsigned char *)request->source + te_load_remote_bytes(worker->run->load);
}

/* New content for one side before the batch, by way of the copies if that side is the peer's. */
static bool prepare_check(struct worker *worker, uint64_t seed)
{
    const struct te_load *load = worker->run->load;
    for (size_t i = 0; i < load->batch; i++) {
        struct transfer_request *request = &worker->requests[i];
        worker->check_requests[i] = *request;
        worker->check_requests[i].source = copy_of(worker, request);
        worker->check_requests[i].opcode = load->opcode == OPCODE_READ ? OPCODE_WRITE : OPCODE_READ;
        unsigned char *source = load->opcode == OPCODE_READ ? copy_of(worker, request) : request->source;
        unsigned char *other = load->opcode == OPCODE_READ ? request->source : copy_of(worker, request);
        te_pattern_fill(source, load->size, seed * load->batch + i);
        memset(other, 0, load->size);
    }
    return load->opcode == OPCODE_WRITE || move_batch(worker, worker->check_requests);
}

static bool finish_check(struct worker *worker)
{
    const struct te_load *load = worker->run->load;
    if (load->opcode == OPCODE_WRITE && !move_batch(worker, worker->check_requests))
        return false;
    for (size_t i = 0; i < load->batch; i++)
        if (memcmp(worker->requests[i].source, worker->check_requests[i].source, load->size))
            return fail_batch(INVALID_BATCH, worker, "wrong data", "what arrived is not what was sent");
    return true;
}

static bool one_batch(struct worker *worker, uint64_t number, bool measured)
{
    const struct te_load *load = worker->run->load;
    if (load->buffers == TE_LOAD_COLD)
        aim_requests(worker);
    if (load->verify && !prepare_check(worker, (number << 8) + worker->number))
        return false;
    if (measured ? !measure_batch(worker) : !move_batch(worker, worker->requests))
        return false;
    return !load->verify || finish_check(worker);
}

static void *work(void *data)
{
    struct worker *worker = data;
    struct run *run = worker->run;
    const struct te_load *load = run->load;
    aim_requests(worker);
    uint64_t number = 0;
    bool works = true;
    while (works && number < WARM_UP_BATCHES)
        works = one_batch(worker, number++, false);
    pthread_mutex_lock(&run->lock);
    run->ready++;
    pthread_cond_broadcast(&run->changed);
    while (!run->go)
        pthread_cond_wait(&run->changed, &run->lock);
    pthread_mutex_unlock(&run->lock);
    worker->last_end_ns = run->start_ns;
    for (uint64_t done = 0; works && !atomic_load_explicit(&run->failed, memory_order_relaxed); done++) {
        if (load->batches ? done == load->batches : worker->last_end_ns >= run->end_ns)
            break;
        works = one_batch(worker, number++, true);
    }
    pthread_mutex_lock(&run->lock);
    run->running--;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

static uint64_t batches_so_far(struct worker *workers, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += atomic_load_explicit(&workers[i].batches, memory_order_relaxed);
    return sum;
}

static void show_progress(const struct te_load *load, struct worker *workers, int64_t start_ns)
{
    char words[TE_SIZE_TEXT_MAX];
    double seconds = (double)(te_now_ns() - start_ns) / 1e9;
    double bytes = (double)batches_so_far(workers, load->threads) * (double)load->batch * (double)load->size;
    fprintf(stderr, "\r%s %s x %zu: %.1f s, %.3f GB/s ", load->opcode == OPCODE_READ ? "READ" : "WRITE",
            te_size_text(load->size, words), load->batch, seconds, bytes / 1e9 / seconds);
}

/* False if nothing changed for PROGRESS_MS. */
static bool wait_a_little(struct run *run)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PROGRESS_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_cond_timedwait(&run->changed, &run->lock, &until) == 0;
}

/* Lets the workers go once all are warm and waits for them. */
static void conduct(struct run *run, struct worker *workers, struct te_load_result *result)
{
    const struct te_load *load = run->load;
    pthread_mutex_lock(&run->lock);
    while (run->ready < load->threads)
        pthread_cond_wait(&run->changed, &run->lock);
    double peer_before = load->peer_cpu_seconds ? load->peer_cpu_seconds(load->peer_data) : NAN;
    double before = te_own_cpu_seconds();
    run->start_ns = te_now_ns();
    run->end_ns = run->start_ns + (int64_t)(load->seconds * 1e9);
    run->go = true;
    pthread_cond_broadcast(&run->changed);
    while (run->running > 0) {
        if (!load->progress)
            pthread_cond_wait(&run->changed, &run->lock);
        else if (!wait_a_little(run))
            show_progress(load, workers, run->start_ns);
    }
    int64_t end_ns = te_now_ns();
    pthread_mutex_unlock(&run->lock);
    if (load->progress)
        fputs("\r\033[K", stderr);
    result->seconds = (double)(end_ns - run->start_ns) / 1e9;
    result->cpu_seconds = te_own_cpu_seconds() - before;
    result->peer_cpu_seconds = (load->peer_cpu_seconds ? load->peer_cpu_seconds(load->peer_data) : NAN) - peer_before;
}

static void prepare_worker(struct worker *worker, struct run *run, size_t number)
{
    const struct te_load *load = run->load;
    worker->run = run;
    worker->number = number;
    worker->span = thread_span(load);
    worker->first_offset = number * worker->span;
    worker->requests = g_new0(struct transfer_request, load->batch);
    worker->check_requests = load->verify ? g_new0(struct transfer_request, load->batch) : NULL;
    worker->latency = g_new0(struct te_latency, 1);
    worker->event_descriptor = load->wait == TE_LOAD_EVENT && load->threads == 1 ? te_event_fd(run->node->engine) : -1;
    for (size_t i = 0; i < load->batch; i++) {
        worker->requests[i].opcode = load->opcode;
        worker->requests[i].target_id = run->peer->segment;
        worker->requests[i].length = load->size;
    }
}

static void collect_worker(struct worker *worker, const struct te_load *load, struct te_load_result *result)
{
    uint64_t batches = atomic_load(&worker->batches);
    result->batches += batches;
    result->bytes += batches * load->batch * load->size;
    result->sum_seconds += (double)worker->sum_ns / 1e9;
    result->longest_gap_ns = MAX(result->longest_gap_ns, worker->longest_gap_ns);
    te_latency_merge(&result->latency, worker->latency);
    g_free(worker->requests);
    g_free(worker->check_requests);
    g_free(worker->latency);
}

bool te_load_run(const struct te_load *load, struct te_node *node, const struct te_peer_buffer *peer,
                 struct te_load_result *result)
{
    char needed[TE_SIZE_TEXT_MAX], there[TE_SIZE_TEXT_MAX];
    size_t remote_bytes = te_load_remote_bytes(load);
    if (remote_bytes == 0 || remote_bytes > peer->size) {
        te_complain("the peer's buffer holds %s and this takes %s: start the target with --region=%zu or more",
                    te_size_text(peer->size, there), te_size_text(remote_bytes, needed), remote_bytes);
        return false;
    }
    g_assert(te_load_local_bytes(load) <= node->size);
    struct run run = {.load = load, .node = node, .peer = peer, .running = load->threads};
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.changed, NULL);
    struct worker *workers = g_new0(struct worker, load->threads);
    memset(result, 0, sizeof(*result));
    for (size_t i = 0; i < load->threads; i++)
        prepare_worker(&workers[i], &run, i);
    for (size_t i = 0; i < load->threads; i++)
        workers[i].thread = g_thread_new("te-bench", work, &workers[i]);
    conduct(&run, workers, result);
    for (size_t i = 0; i < load->threads; i++) {
        g_thread_join(workers[i].thread);
        collect_worker(&workers[i], load, result);
    }
    g_free(workers);
    pthread_cond_destroy(&run.changed);
    pthread_mutex_destroy(&run.lock);
    return !atomic_load(&run.failed);
}
