/* Batches: status, waiting, canceling. */
#include "classic/internal.h"

batch_id_t te_classic_allocate_batch_id(struct te_classic *classic, size_t capacity)
{
    uint64_t id;

    return te_batch_allocate(classic->engine->batches, capacity, &id) == TE_OK ? id : INVALID_BATCH;
}

int te_classic_free_batch_id(struct te_classic *classic, batch_id_t batch)
{
    return -te_batch_release(classic->engine->batches, batch);
}

static te_status get_status(struct te_classic *classic, batch_id_t batch, size_t task, struct transfer_status *status)
{
    enum te_task_state state;
    uint64_t bytes;
    te_status found = te_task_status(classic->engine->batches, batch, task, &state, &bytes);

    if (found != TE_OK)
        return found;
    status->status = (int)state;
    status->transferred_bytes = bytes;
    return TE_OK;
}

int te_classic_get_transfer_status(struct te_classic *classic, batch_id_t batch, size_t task,
                                   struct transfer_status *status)
{
    if (status == NULL)
        return -te_fail(TE_INVALID_ARGUMENT, "no room for the status");
    return -get_status(classic, batch, task, status);
}

static int overall_state(const struct te_task_counts *counts)
{
    if (counts->waiting > 0)
        return STATUS_WAITING;
    if (counts->failed > 0)
        return STATUS_FAILED;
    if (counts->timed_out > 0)
        return STATUS_TIMEOUT;
    return counts->canceled > 0 ? STATUS_CANCELED : STATUS_COMPLETED;
}

int te_classic_batch_status(struct te_classic *classic, batch_id_t batch, te_batch_status_t *status)
{
    struct te_task_counts counts;
    te_status found = te_batch_counts(classic->engine->batches, batch, &counts);

    if (found != TE_OK)
        return found;
    status->status = overall_state(&counts);
    status->tasks = counts.total;
    status->waiting = counts.waiting;
    status->completed = counts.completed;
    status->failed = counts.failed;
    status->canceled = counts.canceled;
    status->timed_out = counts.timed_out;
    status->transferred_bytes = counts.transferred_bytes;
    return TE_OK;
}

int te_classic_wait_batch(struct te_classic *classic, batch_id_t batch, int64_t timeout_ns)
{
    return te_batch_wait(classic->engine->batches, batch, SIZE_MAX, timeout_ns);
}

int te_classic_wait_task(struct te_classic *classic, batch_id_t batch, size_t task, int64_t timeout_ns,
                         struct transfer_status *status)
{
    struct transfer_status ended;
    te_status waited;

    if (task == SIZE_MAX)
        return te_fail(TE_INVALID_ARGUMENT, "no such task");
    waited = te_batch_wait(classic->engine->batches, batch, task, timeout_ns);
    if (waited == TE_OK)
        waited = get_status(classic, batch, task, &ended);
    if (waited == TE_OK && status != NULL)
        *status = ended;
    return waited;
}

int te_classic_event_fd(struct te_classic *classic)
{
    return te_batch_table_event_fd(classic->engine->batches, 0);
}

int te_classic_batch_event_fd(struct te_classic *classic, batch_id_t batch)
{
    if (batch == 0)
        return te_fail(TE_INVALID_ARGUMENT, "no such batch");
    return te_batch_table_event_fd(classic->engine->batches, batch);
}

static te_status cancel(struct te_classic *classic, batch_id_t batch, size_t task)
{
    te_status status = te_task_request_cancel(classic->engine->batches, batch, task, NULL, NULL);
    size_t count = atomic_load_explicit(&classic->installed_count, memory_order_acquire);

    if (status != TE_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        classic->installed[i].ops->cancel(classic->installed[i].transport);
    atomic_fetch_add(&classic->cancel_count, 1);
    classic_end_canceled(classic);
    return TE_OK;
}

int te_classic_cancel_task(struct te_classic *classic, batch_id_t batch, size_t task)
{
    if (task == SIZE_MAX)
        return te_fail(TE_INVALID_ARGUMENT, "no such task");
    return cancel(classic, batch, task);
}

int te_classic_cancel_batch(struct te_classic *classic, batch_id_t batch)
{
    return cancel(classic, batch, SIZE_MAX);
}
