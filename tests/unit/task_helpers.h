/* Short forms for the tests of core/task.h. */
#ifndef TE_TESTS_TASK_HELPERS_H
#define TE_TESTS_TASK_HELPERS_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "core/batch_table.h"
#include "core/clock.h"

/* For what must happen soon: a generous bound that only a hang reaches. */
#define WATCHDOG_NS (60 * TE_NS_PER_SECOND)

enum { TASK_BYTES = 1000 };

static inline uint64_t allocate(struct te_batch_table *table, size_t capacity)
{
    uint64_t id = 0;

    assert_int_equal(te_batch_allocate(table, capacity, &id), TE_OK);
    assert_true(id != 0 && id < (UINT64_C(1) << 63));
    return id;
}

/* Publishes count tasks of one slice each and returns the first of them. */
static inline struct te_task *submit_with(struct te_batch_table *table, uint64_t id, size_t count,
                                          te_submission_done_function done, void *data)
{
    struct te_reservation reservation;
    struct te_task *first = NULL;

    assert_int_equal(te_batch_reserve(table, id, count, &reservation), TE_OK);
    for (size_t i = 0; i < count; i++) {
        struct te_task *task = te_reservation_task(&reservation, i);

        first = i == 0 ? task : first;
        task->length = TASK_BYTES;
    }
    te_batch_publish(&reservation, done, data);
    return first;
}

static inline struct te_task *submit(struct te_batch_table *table, uint64_t id, size_t count)
{
    return submit_with(table, id, count, NULL, NULL);
}

static inline void end(struct te_task *task, enum te_slice_outcome outcome)
{
    te_slice_end(&task->slices[0], outcome, TASK_BYTES);
}

/* -1 if there is no such task. */
static inline int state_of(struct te_batch_table *table, uint64_t id, size_t task)
{
    enum te_task_state state;
    uint64_t bytes;

    return te_task_status(table, id, task, &state, &bytes) == TE_OK ? (int)state : -1;
}

static inline uint64_t bytes_of(struct te_batch_table *table, uint64_t id, size_t task)
{
    enum te_task_state state;
    uint64_t bytes = UINT64_MAX;

    te_task_status(table, id, task, &state, &bytes);
    return bytes;
}

/* Tasks published and not terminal, over all batches. */
static inline uint64_t running_in(struct te_batch_table *table)
{
    uint64_t running = 0;

    for (size_t i = 0; i < table->slot_count; i++) {
        struct te_position position = te_position_of(i);
        struct te_batch *batch = &atomic_load(&table->slots[position.level])[position.offset];

        running += atomic_load(&batch->life) & TE_LIFE_RUNNING;
    }
    return running;
}

/* An array that the batch owns from then on. */
static inline struct te_slice *split(struct te_task *task, uint32_t count)
{
    task->slices = g_new0(struct te_slice, count);
    task->slice_count = count;
    task->own_slices = true;
    for (uint32_t i = 0; i < count; i++)
        task->slices[i].task = task;
    return task->slices;
}

#endif
