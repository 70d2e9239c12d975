#include "core/batch_table.h"

#include <inttypes.h>
#include <unistd.h>

#include <glib.h>

enum { LARGEST_GENERATION = 0x7fffffff };

static _Atomic uint32_t table_count;

/* Slots of different tables start far apart, so that the id of a batch of another engine means nothing here. */
static uint32_t first_generation(uint32_t table, uint32_t slot)
{
    uint64_t value = ((uint64_t)table << 32 | slot) + 1;

    value = (value ^ (value >> 31)) * UINT64_C(0x7fb5d329728ea185);
    value = (value ^ (value >> 27)) * UINT64_C(0x81dadef4bc2dd44d);
    return (uint32_t)(value >> 32) % LARGEST_GENERATION;
}

struct te_batch_table *te_batch_table_new(const struct te_task_drive_ops *drive_ops)
{
    struct te_batch_table *table = g_try_new0(struct te_batch_table, 1);

    if (table == NULL) {
        te_fail(TE_MEMORY, "no memory for a batch table");
        return NULL;
    }
    table->drive_ops = drive_ops;
    table->number = atomic_fetch_add(&table_count, 1);
    atomic_init(&table->event_fd, -1);
    pthread_mutex_init(&table->lock, NULL);
    return table;
}

void te_batch_table_measure(struct te_batch_table *table, struct te_metrics *metrics)
{
    table->metrics = metrics;
}

static struct te_task_chunk *chunk_of(struct te_task *level)
{
    return (struct te_task_chunk *)((char *)level - offsetof(struct te_task_chunk, tasks));
}

static void free_slices(struct te_batch *batch)
{
    size_t published = atomic_load(&batch->published);

    for (size_t i = 0; batch->owns_slices && i < published; i++) {
        struct te_task *task = te_batch_task(batch, i);

        if (task->own_slices)
            g_free(task->slices);
        task->own_slices = false;
    }
    batch->owns_slices = false;
}

/* For tasks that never ended. */
static void forget_submissions(struct te_batch *batch)
{
    size_t published = atomic_load(&batch->id) != 0 ? atomic_load(&batch->published) : 0;

    for (size_t i = 0; i < published; i++) {
        struct te_task *task = te_batch_task(batch, i);

        if (!te_task_is_terminal(task))
            te_submission_forget(task->submission);
    }
}

static void close_event_fd(struct te_batch *batch)
{
    int event_fd = atomic_exchange(&batch->event_fd, -1);

    if (event_fd >= 0)
        close(event_fd);
}

static struct te_batch *slot_at(struct te_batch_table *table, size_t index)
{
    struct te_position position = te_position_of(index);
    struct te_batch *level;

    if (position.level >= TE_SLOT_LEVELS)
        return NULL;
    level = atomic_load_explicit(&table->slots[position.level], memory_order_acquire);
    return level != NULL ? &level[position.offset] : NULL;
}

void te_batch_table_free(struct te_batch_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->slot_count; i++) {
        struct te_batch *batch = slot_at(table, i);

        forget_submissions(batch);
        free_slices(batch);
        close_event_fd(batch);
        for (unsigned level = 1; level < TE_TASK_LEVELS; level++) {
            struct te_task *tasks = atomic_load(&batch->levels[level]);

            if (tasks != NULL)
                g_free(chunk_of(tasks));
        }
        pthread_mutex_destroy(&batch->submit_lock);
        pthread_mutex_destroy(&batch->waiter_lock);
    }
    for (unsigned level = 0; level < TE_TASK_LEVELS; level++) {
        while (table->unused_chunks[level] != NULL) {
            struct te_task_chunk *chunk = table->unused_chunks[level];

            table->unused_chunks[level] = chunk->next;
            g_free(chunk);
        }
    }
    for (unsigned level = 0; level < TE_SLOT_LEVELS; level++)
        g_free(atomic_load(&table->slots[level]));
    te_waiters_free(table);
    if (atomic_load(&table->event_fd) >= 0)
        close(atomic_load(&table->event_fd));
    pthread_mutex_destroy(&table->lock);
    g_free(table);
}

/* Under the table's lock. Slots that were never used are zero. */
static struct te_batch *new_slot(struct te_batch_table *table)
{
    struct te_position position = te_position_of(table->slot_count);
    struct te_batch *level, *batch;

    if (position.level >= TE_SLOT_LEVELS)
        return NULL;
    level = atomic_load(&table->slots[position.level]);
    if (level == NULL) {
        level = g_try_new0(struct te_batch, te_level_size(position.level));
        if (level == NULL)
            return NULL;
        atomic_store(&table->slots[position.level], level);
    }
    batch = &level[position.offset];
    batch->table = table;
    batch->index = (uint32_t)table->slot_count++;
    batch->generation = first_generation(table->number, batch->index);
    atomic_store(&batch->event_fd, -1);
    atomic_store(&batch->wake_at, TE_WAKE_NEVER);
    pthread_mutex_init(&batch->submit_lock, NULL);
    pthread_mutex_init(&batch->waiter_lock, NULL);
    atomic_store(&batch->levels[0], &batch->first_task);
    return batch;
}

te_status te_batch_allocate(struct te_batch_table *table, size_t capacity, uint64_t *id)
{
    struct te_batch *batch;

    if (capacity > TE_BATCH_MAX_TASKS)
        return te_fail(TE_INVALID_ARGUMENT, "a batch of %zu tasks is larger than the limit of %d", capacity,
                       TE_BATCH_MAX_TASKS);
    pthread_mutex_lock(&table->lock);
    batch = table->unused;
    if (batch != NULL)
        table->unused = batch->next;
    else
        batch = new_slot(table);
    pthread_mutex_unlock(&table->lock);
    if (batch == NULL)
        return te_fail(TE_MEMORY, "no memory for another batch");

    batch->capacity = (uint32_t)capacity;
    batch->generation = batch->generation < LARGEST_GENERATION ? batch->generation + 1 : 1;
    atomic_store(&batch->published, 0);
    atomic_store(&batch->ended, 0);
    atomic_store(&batch->failed, 0);
    atomic_store(&batch->canceled, 0);
    atomic_store(&batch->timed_out, 0);
    atomic_store(&batch->transferred_bytes, 0);
    atomic_store(&batch->first_waiting, 0);
    *id = (uint64_t)batch->generation << 32 | (batch->index + 1);
    atomic_store(&batch->id, *id);
    return TE_OK;
}

struct te_batch *te_batch_find(struct te_batch_table *table, uint64_t id)
{
    uint32_t number = (uint32_t)id;
    struct te_batch *batch = number != 0 ? slot_at(table, number - 1) : NULL;

    return batch != NULL && atomic_load(&batch->id) == id ? batch : NULL;
}

struct te_batch *te_batch_pin(struct te_batch_table *table, uint64_t id)
{
    struct te_batch *batch = te_batch_find(table, id);

    if (batch != NULL) {
        atomic_fetch_add(&batch->life, TE_LIFE_PIN);
        /* The id is taken away before the slot is recycled, which our pin prevents from now on. */
        if (atomic_load(&batch->id) == id)
            return batch;
        te_batch_unpin(batch);
    }
    te_fail(TE_INVALID_ARGUMENT, "there is no batch %" PRIu64, id);
    return NULL;
}

/* The slot is the caller's alone. */
static void recycle(struct te_batch *batch)
{
    struct te_batch_table *table = batch->table;

    close_event_fd(batch);
    free_slices(batch);
    pthread_mutex_lock(&table->lock);
    for (unsigned level = 1; level < TE_TASK_LEVELS; level++) {
        struct te_task *tasks = atomic_load(&batch->levels[level]);

        if (tasks == NULL)
            break;
        atomic_store(&batch->levels[level], NULL);
        chunk_of(tasks)->next = table->unused_chunks[level];
        table->unused_chunks[level] = chunk_of(tasks);
    }
    batch->next = table->unused;
    table->unused = batch;
    pthread_mutex_unlock(&table->lock);
}

void te_batch_unpin(struct te_batch *batch)
{
    uint64_t life = atomic_fetch_sub(&batch->life, TE_LIFE_PIN) - TE_LIFE_PIN;

    if ((life & ~TE_LIFE_ASKED) == TE_LIFE_GONE && atomic_compare_exchange_strong(&batch->life, &life, 0))
        recycle(batch);
}

/* Both under the table's lock. */
static void remove_lingering(struct te_batch *batch)
{
    struct te_batch_table *table = batch->table;

    *(batch->previous != NULL ? &batch->previous->next : &table->lingering.first) = batch->next;
    *(batch->next != NULL ? &batch->next->previous : &table->lingering.last) = batch->previous;
    table->lingering_count--;
    table->lingering_tasks -= atomic_load(&batch->published);
    batch->lingering = false;
}

static void append_lingering(struct te_batch *batch)
{
    struct te_batch_table *table = batch->table;

    batch->next = NULL;
    batch->previous = table->lingering.last;
    *(batch->previous != NULL ? &batch->previous->next : &table->lingering.first) = batch;
    table->lingering.last = batch;
    table->lingering_count++;
    table->lingering_tasks += atomic_load(&batch->published);
    batch->lingering = true;
}

te_status te_batch_release(struct te_batch_table *table, uint64_t id)
{
    struct te_batch *batch = te_batch_pin(table, id);
    te_status status;
    uint64_t life;

    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    pthread_mutex_lock(&table->lock);
    life = atomic_load(&batch->life);
    do {
        if (life & TE_LIFE_GONE) {
            status = te_fail(TE_INVALID_ARGUMENT, "there is no batch %" PRIu64 " any more", id);
            goto unlock;
        }
        status = life & (TE_LIFE_RUNNING | TE_LIFE_RESERVED) ? TE_BATCH_BUSY : TE_OK;
    } while (
        !atomic_compare_exchange_weak(&batch->life, &life, life | (status == TE_OK ? TE_LIFE_GONE : TE_LIFE_ASKED)));
    if (status == TE_OK) {
        if (batch->lingering)
            remove_lingering(batch);
        atomic_store(&batch->id, 0);
    } else {
        te_fail(TE_BATCH_BUSY, "batch %" PRIu64 " has unfinished tasks; it is released when they have ended", id);
    }
unlock:
    pthread_mutex_unlock(&table->lock);
    te_batch_unpin(batch);
    return status;
}

/* Under the table's lock. Takes one batch more than there may be off the list, pinned; NULL if there is room. */
static struct te_batch *evict(struct te_batch_table *table)
{
    struct te_batch *batch = table->lingering.first;

    if (table->lingering_count <= 1 ||
        (table->lingering_count <= TE_LINGERING_BATCHES && table->lingering_tasks <= TE_LINGERING_TASKS))
        return NULL;
    remove_lingering(batch);
    atomic_fetch_add(&batch->life, TE_LIFE_PIN | TE_LIFE_GONE);
    atomic_store(&batch->id, 0);
    return batch;
}

/* Under the table's lock. Only few of those that linger keep their event descriptor: its last signal has been sent, and
 * who freed the batch early does not wait for it for long. */
static void limit_descriptors(struct te_batch *batch)
{
    struct te_batch_table *table = batch->table;
    struct te_batch **place = &table->with_descriptor[table->next_with_descriptor];
    struct te_batch *oldest = *place;

    if (atomic_load(&batch->event_fd) < 0)
        return;
    *place = batch;
    table->next_with_descriptor = (table->next_with_descriptor + 1) % TE_LINGERING_DESCRIPTORS;
    /* A pin may be that of a thread that is about to signal. */
    if (oldest != NULL && oldest != batch && oldest->lingering && (atomic_load(&oldest->life) & TE_LIFE_PINS) == 0)
        close_event_fd(oldest);
}

void te_batch_linger(struct te_batch *batch)
{
    struct te_batch_table *table = batch->table;
    struct te_batch *evicted;

    pthread_mutex_lock(&table->lock);
    if ((atomic_load(&batch->life) & TE_LIFE_GONE) == 0) {
        append_lingering(batch);
        limit_descriptors(batch);
    }
    while ((evicted = evict(table)) != NULL) {
        pthread_mutex_unlock(&table->lock);
        te_batch_unpin(evicted);
        pthread_mutex_lock(&table->lock);
    }
    pthread_mutex_unlock(&table->lock);
}

/* Under the table's lock. */
static struct te_task_chunk *take_chunk(struct te_batch_table *table, unsigned level)
{
    struct te_task_chunk *chunk = table->unused_chunks[level];

    if (chunk != NULL)
        table->unused_chunks[level] = chunk->next;
    else
        chunk = g_try_malloc0(sizeof(*chunk) + te_level_size(level) * sizeof(struct te_task));
    return chunk;
}

te_status te_batch_grow(struct te_batch *batch, size_t count)
{
    struct te_batch_table *table = batch->table;
    unsigned levels = count > 0 ? te_position_of(count - 1).level + 1 : 0;
    bool out_of_memory = false;

    if (levels == 0 || atomic_load(&batch->levels[levels - 1]) != NULL)
        return TE_OK;
    pthread_mutex_lock(&table->lock);
    for (unsigned level = 1; level < levels && !out_of_memory; level++) {
        struct te_task_chunk *chunk;

        if (atomic_load(&batch->levels[level]) != NULL)
            continue;
        chunk = take_chunk(table, level);
        if (chunk != NULL)
            atomic_store(&batch->levels[level], chunk->tasks);
        else
            out_of_memory = true;
    }
    pthread_mutex_unlock(&table->lock);
    return out_of_memory ? te_fail(TE_MEMORY, "no memory for %zu tasks", count) : TE_OK;
}

size_t te_batch_first_waiting(struct te_batch *batch, size_t from, size_t end)
{
    size_t hint = atomic_load_explicit(&batch->first_waiting, memory_order_acquire);
    size_t index = from > hint ? from : hint;

    while (index < end && te_task_is_terminal(te_batch_task(batch, index)))
        index++;
    if (index > hint)
        atomic_store_explicit(&batch->first_waiting, (uint32_t)index, memory_order_release);
    return index < end ? index : end;
}
