#include <inttypes.h>
#include <string.h>

#include <glib.h>

#include "core/batch_table.h"
#include "core/clock.h"
#include "core/metrics.h"

/* One submit call with a function to call at its end, or any if there are metrics. Freed by whoever ends its last
 * task. */
struct te_submission {
    _Atomic uint32_t left;
    _Atomic bool failed;
    te_submission_done_function done; /* or NULL */
    void *data;
    int64_t begin_ns; /* monotonic; only if there are metrics */
};

static void submission_finish(struct te_submission *submission)
{
    if (submission->done != NULL)
        submission->done(submission->data, !atomic_load(&submission->failed));
    g_free(submission);
}

static void submission_task_ended(struct te_submission *submission, bool completed)
{
    if (submission == NULL)
        return;
    if (!completed)
        atomic_store(&submission->failed, true);
    if (atomic_fetch_sub(&submission->left, 1) == 1)
        submission_finish(submission);
}

void te_submission_forget(struct te_submission *submission)
{
    if (submission != NULL && atomic_fetch_sub(&submission->left, 1) == 1)
        g_free(submission);
}

/* Takes from and adds to the life of the batch; starts to linger if that was what a release waits for. */
static void change_life(struct te_batch *batch, uint64_t add, uint64_t subtract)
{
    uint64_t life = atomic_fetch_add(&batch->life, add - subtract) + add - subtract;

    if ((life & (TE_LIFE_RUNNING | TE_LIFE_RESERVED | TE_LIFE_ASKED)) == TE_LIFE_ASKED)
        te_batch_linger(batch);
}

static bool begin_reservation(struct te_batch *batch)
{
    uint64_t life = atomic_load(&batch->life);

    do {
        if (life & (TE_LIFE_ASKED | TE_LIFE_GONE))
            return false;
    } while (!atomic_compare_exchange_weak(&batch->life, &life, life | TE_LIFE_RESERVED));
    return true;
}

/* Stale status queries may look at the atomic members. */
static void init_task(struct te_batch *batch, struct te_task *task)
{
    atomic_store_explicit(&task->driver, NULL, memory_order_release);
    atomic_store_explicit(&task->transferred_bytes, 0, memory_order_release);
    atomic_store_explicit(&task->cancel_requested, false, memory_order_relaxed);
    atomic_store_explicit(&task->slices_left, 0, memory_order_relaxed);
    atomic_store_explicit(&task->worst_outcome, TE_SLICE_SUCCEEDED, memory_order_relaxed);
    atomic_store_explicit(&task->state, TE_TASK_WAITING, memory_order_release);
    task->own_slices = false;
    task->length = 0;
    task->segment_id = 0;
    task->slice_count = 1;
    task->batch = batch;
    task->submission = NULL;
    task->slices = &task->first_slice;
    memset(&task->first_slice, 0, sizeof(task->first_slice));
    task->first_slice.task = task;
}

te_status te_batch_reserve(struct te_batch_table *table, uint64_t id, size_t count, struct te_reservation *reservation)
{
    struct te_batch *batch = te_batch_pin(table, id);
    struct te_submission *submission;
    te_status status;
    size_t first;

    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    pthread_mutex_lock(&batch->submit_lock);
    if (!begin_reservation(batch)) {
        status = te_fail(TE_INVALID_ARGUMENT, "batch %" PRIu64 " has been released", id);
        goto unlock;
    }
    first = atomic_load(&batch->published);
    if (count > batch->capacity - first) {
        status = te_fail(TE_TOO_MANY_REQUESTS,
                         "batch %" PRIu64 " has room for %zu more of its %" PRIu32 " tasks, not for %zu", id,
                         batch->capacity - first, batch->capacity, count);
        goto end_reservation;
    }
    status = te_batch_grow(batch, first + count);
    if (status != TE_OK)
        goto end_reservation;
    submission = g_try_new0(struct te_submission, 1);
    if (submission == NULL) {
        status = te_fail(TE_MEMORY, "no memory for a submission");
        goto end_reservation;
    }
    for (size_t i = 0; i < count; i++)
        init_task(batch, te_batch_task(batch, first + i));
    *reservation = (struct te_reservation){.batch = batch, .first = first, .count = count, .state = submission};
    return TE_OK;

end_reservation:
    change_life(batch, 0, TE_LIFE_RESERVED);
unlock:
    pthread_mutex_unlock(&batch->submit_lock);
    te_batch_unpin(batch);
    return status;
}

struct te_task *te_reservation_task(const struct te_reservation *reservation, size_t index)
{
    return te_batch_task(reservation->batch, reservation->first + index);
}

static void release_slices(struct te_task *task)
{
    if (task->own_slices)
        g_free(task->slices);
    task->own_slices = false;
    task->slices = &task->first_slice;
}

void te_batch_abandon(struct te_reservation *reservation)
{
    struct te_batch *batch = reservation->batch;

    for (size_t i = 0; i < reservation->count; i++)
        release_slices(te_reservation_task(reservation, i));
    g_free(reservation->state);
    change_life(batch, 0, TE_LIFE_RESERVED);
    pthread_mutex_unlock(&batch->submit_lock);
    te_batch_unpin(batch);
    reservation->batch = NULL;
}

/* Returns how many of the tasks have something to move. */
static uint32_t start_tasks(struct te_reservation *reservation, struct te_submission *submission)
{
    uint32_t running = 0;

    for (size_t i = 0; i < reservation->count; i++) {
        struct te_task *task = te_reservation_task(reservation, i);

        if (task->length == 0) {
            release_slices(task);
            atomic_store_explicit(&task->state, TE_TASK_COMPLETED, memory_order_release);
            continue;
        }
        if (task->own_slices)
            reservation->batch->owns_slices = true;
        atomic_store_explicit(&task->slices_left, task->slice_count, memory_order_relaxed);
        task->submission = submission;
        running++;
    }
    return running;
}

void te_batch_publish(struct te_reservation *reservation, te_submission_done_function done, void *data)
{
    struct te_batch *batch = reservation->batch;
    struct te_batch_table *table = batch->table;
    struct te_submission *submission = reservation->state;
    uint32_t running, empty;

    if (done == NULL && table->metrics == NULL) {
        g_free(submission);
        submission = NULL;
    }
    running = start_tasks(reservation, submission);
    empty = (uint32_t)reservation->count - running;
    if (submission != NULL) {
        submission->done = done;
        submission->data = data;
        if (table->metrics != NULL)
            submission->begin_ns = te_now_ns();
        atomic_store(&submission->left, running);
    }

    atomic_store(&batch->published, (uint32_t)(reservation->first + reservation->count));
    if (empty > 0)
        atomic_fetch_add(&batch->ended, empty);
    change_life(batch, running, TE_LIFE_RESERVED);
    pthread_mutex_unlock(&batch->submit_lock);
    reservation->batch = NULL;

    if (running == 0 && submission != NULL)
        submission_finish(submission);
    if (empty > 0)
        te_batch_signal_and_unpin(batch);
    else
        te_batch_unpin(batch);
}

/* The table in task.h. */
static enum te_task_state state_of_outcome(enum te_slice_outcome worst, bool cancel_requested)
{
    switch (worst) {
    case TE_SLICE_SUCCEEDED:
        return TE_TASK_COMPLETED;
    case TE_SLICE_CANCELED:
        return cancel_requested ? TE_TASK_CANCELED : TE_TASK_FAILED;
    case TE_SLICE_TIMED_OUT:
        return TE_TASK_TIMEOUT;
    default:
        return TE_TASK_FAILED;
    }
}

static void count_end(struct te_batch *batch, enum te_task_state state, uint64_t bytes)
{
    if (bytes > 0)
        atomic_fetch_add(&batch->transferred_bytes, bytes);
    if (state == TE_TASK_FAILED)
        atomic_fetch_add(&batch->failed, 1);
    else if (state == TE_TASK_CANCELED)
        atomic_fetch_add(&batch->canceled, 1);
    else if (state == TE_TASK_TIMEOUT)
        atomic_fetch_add(&batch->timed_out, 1);
    atomic_fetch_add(&batch->ended, 1);
}

/*
 * "running" falls before the state is shown, and with a pin in the same step: who has seen every task terminal can
 * release the batch at once, and yet the slot stays until this thread has done with it.
 */
static void end_task(struct te_task *task)
{
    struct te_batch *batch = task->batch;
    struct te_submission *submission = task->submission;
    enum te_slice_outcome worst = (enum te_slice_outcome)atomic_load(&task->worst_outcome);
    enum te_task_state state = state_of_outcome(worst, atomic_load(&task->cancel_requested));
    uint64_t bytes = 0;

    if (state == TE_TASK_FAILED)
        atomic_store(&task->transferred_bytes, 0);
    else
        bytes = atomic_load(&task->transferred_bytes);
    if (batch->table->metrics != NULL)
        te_metrics_count(batch->table->metrics, task->slices[0].opcode, state == TE_TASK_COMPLETED, bytes,
                         te_now_ns() - submission->begin_ns);
    change_life(batch, TE_LIFE_PIN, 1);
    atomic_store_explicit(&task->state, state, memory_order_release);
    count_end(batch, state, bytes);
    submission_task_ended(submission, state == TE_TASK_COMPLETED);
    te_batch_signal_and_unpin(batch);
}

static void remember_outcome(struct te_task *task, enum te_slice_outcome outcome)
{
    uint32_t worst = atomic_load(&task->worst_outcome);

    while (worst < (uint32_t)outcome && !atomic_compare_exchange_weak(&task->worst_outcome, &worst, (uint32_t)outcome))
        ;
}

void te_slice_end(struct te_slice *slice, enum te_slice_outcome outcome, uint64_t bytes)
{
    struct te_task *task = slice->task;

    if (outcome == TE_SLICE_SUCCEEDED)
        atomic_fetch_add(&task->transferred_bytes, bytes);
    else
        remember_outcome(task, outcome);
    if (atomic_fetch_sub(&task->slices_left, 1) == 1)
        end_task(task);
}

static void drive_task(struct te_batch_table *table, struct te_task *task)
{
    void *driver = atomic_load_explicit(&task->driver, memory_order_acquire);

    if (table->drive_ops != NULL && driver != NULL)
        table->drive_ops->drive(driver);
}

/* Without a pin: NULL if there is no such task, or the slot is being recycled. */
static struct te_task *find_task(struct te_batch_table *table, uint64_t id, size_t index, struct te_batch **batch)
{
    struct te_position position = te_position_of(index);
    struct te_task *level;

    *batch = te_batch_find(table, id);
    if (*batch == NULL || index >= atomic_load_explicit(&(*batch)->published, memory_order_acquire))
        return NULL;
    level = atomic_load_explicit(&(*batch)->levels[position.level], memory_order_acquire);
    return level != NULL ? &level[position.offset] : NULL;
}

te_status te_task_status(struct te_batch_table *table, uint64_t id, size_t index, enum te_task_state *state,
                         uint64_t *bytes)
{
    struct te_batch *batch;
    struct te_task *task = find_task(table, id, index, &batch);
    uint32_t task_state;
    uint64_t task_bytes;

    if (task == NULL)
        goto no_such_task;
    if (!te_task_is_terminal(task))
        drive_task(table, task);
    /* In this order: the bytes of a terminal state are final. */
    task_state = atomic_load_explicit(&task->state, memory_order_acquire);
    task_bytes = atomic_load_explicit(&task->transferred_bytes, memory_order_acquire);
    if (atomic_load(&batch->id) != id)
        goto no_such_task;
    *state = (enum te_task_state)task_state;
    *bytes = task_bytes;
    return TE_OK;

no_such_task:
    return te_fail(TE_INVALID_ARGUMENT, "there is no task %zu in batch %" PRIu64, index, id);
}

static void count_state(struct te_task *task, struct te_task_counts *counts)
{
    switch ((enum te_task_state)atomic_load_explicit(&task->state, memory_order_acquire)) {
    case TE_TASK_WAITING:
        counts->waiting++;
        return;
    case TE_TASK_COMPLETED:
        counts->completed++;
        break;
    case TE_TASK_FAILED:
        counts->failed++;
        break;
    case TE_TASK_CANCELED:
        counts->canceled++;
        break;
    case TE_TASK_TIMEOUT:
        counts->timed_out++;
        break;
    }
    counts->transferred_bytes += atomic_load_explicit(&task->transferred_bytes, memory_order_acquire);
}

/* "ended" first, so that none of what it counts is missing in the others; "published" last. If nothing waits, all of it
 * is exact. */
static struct te_task_counts read_counts(struct te_batch *batch)
{
    size_t ended = atomic_load(&batch->ended);
    struct te_task_counts counts = {.failed = atomic_load(&batch->failed),
                                    .canceled = atomic_load(&batch->canceled),
                                    .timed_out = atomic_load(&batch->timed_out),
                                    .transferred_bytes = atomic_load(&batch->transferred_bytes)};
    size_t lost = counts.failed + counts.canceled + counts.timed_out;

    counts.completed = ended > lost ? ended - lost : 0;
    counts.total = atomic_load(&batch->published);
    counts.waiting = counts.total - counts.completed - lost;
    return counts;
}

te_status te_batch_counts(struct te_batch_table *table, uint64_t id, struct te_task_counts *counts)
{
    struct te_batch *batch = te_batch_pin(table, id);
    size_t published, waiting;

    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    published = atomic_load(&batch->published);
    waiting = te_batch_first_waiting(batch, 0, published);
    if (waiting < published) {
        drive_task(table, te_batch_task(batch, waiting));
        waiting = te_batch_first_waiting(batch, 0, published);
    }
    *counts = read_counts(batch);
    if (counts->waiting > 0 && waiting == published && counts->total == published) {
        /* All are terminal, but one is not counted yet. Whoever saw its state must not be told that it waits. */
        *counts = (struct te_task_counts){.total = published};
        for (size_t i = 0; i < published; i++)
            count_state(te_batch_task(batch, i), counts);
    }
    te_batch_unpin(batch);
    return TE_OK;
}

te_status te_task_request_cancel(struct te_batch_table *table, uint64_t id, size_t index,
                                 void (*visit)(struct te_task *, void *), void *data)
{
    struct te_batch *batch = te_batch_pin(table, id);
    te_status status = TE_OK;
    size_t first, end;

    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    end = atomic_load(&batch->published);
    first = index;
    if (index == SIZE_MAX)
        first = te_batch_first_waiting(batch, 0, end);
    else if (index >= end)
        status = te_fail(TE_INVALID_ARGUMENT, "there is no task %zu in batch %" PRIu64, index, id);
    else
        end = index + 1;
    for (size_t i = first; i < end; i++) {
        struct te_task *task = te_batch_task(batch, i);

        if (te_task_is_terminal(task))
            continue;
        atomic_store(&task->cancel_requested, true);
        if (visit != NULL)
            visit(task, data);
    }
    te_batch_unpin(batch);
    return status;
}
