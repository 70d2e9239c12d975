/* Batches and tasks in one thread: every edge of the table in core/task.h, ids, capacity, release, counts. */
#include "task_helpers.h"

#include "core/batch_table.h"

/* GLib's allocators that may fail, as the library sees them: the one numbered fail_at fails. */
static long allocations, fail_at = -1;

static void *allocate_memory(size_t bytes)
{
    return allocations++ == fail_at ? NULL : calloc(1, bytes > 0 ? bytes : 1);
}

gpointer g_try_malloc0(gsize bytes)
{
    return allocate_memory(bytes);
}

gpointer g_try_malloc0_n(gsize count, gsize bytes)
{
    return allocate_memory(count * bytes);
}

static int setup(void **state)
{
    *state = te_batch_table_new(NULL);
    return 0;
}

static int teardown(void **state)
{
    te_batch_table_free(*state);
    return 0;
}

/* ---- ids ---- */

static void ids_of_strangers_are_refused_everywhere(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 1), stale = allocate(table, 1);
    struct te_reservation reservation;
    struct te_task_counts counts;

    assert_int_equal(te_batch_release(table, stale), TE_OK);
    const uint64_t wrong[] = {0,
                              UINT64_MAX,
                              INT64_MAX,
                              stale,
                              1,
                              2,
                              id + 1,
                              id - 1,
                              id + (UINT64_C(1) << 32),
                              UINT32_MAX,
                              id | (UINT64_C(1) << 63),
                              id + 1000000,
                              (uint64_t)(uintptr_t)table,
                              (uint64_t)(uintptr_t)&id};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(state_of(table, wrong[i], 0), -1);
        assert_int_equal(te_batch_counts(table, wrong[i], &counts), TE_INVALID_ARGUMENT);
        assert_int_equal(te_batch_reserve(table, wrong[i], 1, &reservation), TE_INVALID_ARGUMENT);
        assert_int_equal(te_batch_release(table, wrong[i]), TE_INVALID_ARGUMENT);
        assert_int_equal(te_batch_wait(table, wrong[i], SIZE_MAX, 0), TE_INVALID_ARGUMENT);
        assert_int_equal(te_task_request_cancel(table, wrong[i], SIZE_MAX, NULL, NULL), TE_INVALID_ARGUMENT);
        if (wrong[i] != 0)
            assert_int_equal(te_batch_table_event_fd(table, wrong[i]), TE_INVALID_ARGUMENT);
    }
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

static void a_slot_used_again_has_another_id(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t before = allocate(table, 4);

    for (int i = 0; i < 1000; i++) {
        uint64_t id;

        end(submit(table, before, 1), TE_SLICE_SUCCEEDED);
        assert_int_equal(state_of(table, before, 0), TE_TASK_COMPLETED);
        assert_int_equal(te_batch_release(table, before), TE_OK);
        id = allocate(table, 4);
        assert_true(id != before);
        assert_int_equal((uint32_t)id, (uint32_t)before);
        assert_int_equal(state_of(table, before, 0), -1);
        assert_int_equal(state_of(table, id, 0), -1);
        before = id;
    }
}

static void generations_wrap_without_leaving_the_range(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 1);

    te_batch_find(table, id)->generation = 0x7ffffffe;
    assert_int_equal(te_batch_release(table, id), TE_OK);
    id = allocate(table, 1);
    assert_int_equal(id >> 32, 0x7fffffff);
    assert_int_equal(te_batch_release(table, id), TE_OK);
    id = allocate(table, 1);
    assert_int_equal(id >> 32, 1);
}

static void tables_do_not_share_ids_slots_or_counters(void **state)
{
    struct te_batch_table *table = *state, *other = te_batch_table_new(NULL);
    uint64_t id = allocate(table, 1), foreign = allocate(other, 1);
    struct te_task *task = submit(table, id, 1);

    assert_true(id != foreign);
    assert_int_equal((uint32_t)id, (uint32_t)foreign);
    assert_int_equal(te_batch_release(table, foreign), TE_INVALID_ARGUMENT);
    assert_int_equal(state_of(other, id, 0), -1);
    assert_int_equal(running_in(table), 1);
    assert_int_equal(running_in(other), 0);
    end(task, TE_SLICE_SUCCEEDED);
    te_batch_table_free(other);
}

/* ---- capacity ---- */

static void capacity_is_kept(void **state)
{
    struct te_batch_table *table = *state;
    struct te_reservation reservation;
    uint64_t id;

    assert_int_equal(te_batch_allocate(table, (size_t)TE_BATCH_MAX_TASKS + 1, &id), TE_INVALID_ARGUMENT);
    assert_int_equal(te_batch_allocate(table, SIZE_MAX, &id), TE_INVALID_ARGUMENT);
    id = allocate(table, TE_BATCH_MAX_TASKS);
    assert_int_equal(te_batch_release(table, id), TE_OK);

    id = allocate(table, 0);
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_TOO_MANY_REQUESTS);
    submit(table, id, 0);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, -1), TE_OK);
    assert_int_equal(te_batch_release(table, id), TE_OK);

    id = allocate(table, 20);
    submit(table, id, 7);
    assert_int_equal(te_batch_reserve(table, id, 14, &reservation), TE_TOO_MANY_REQUESTS);
    assert_int_equal(te_batch_reserve(table, id, SIZE_MAX, &reservation), TE_TOO_MANY_REQUESTS);
    assert_int_equal(te_batch_reserve(table, id, SIZE_MAX - 6, &reservation), TE_TOO_MANY_REQUESTS);
    assert_int_equal(state_of(table, id, 6), TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, 7), -1);
    submit(table, id, 13);
    assert_int_equal(state_of(table, id, 19), TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, 20), -1);
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_TOO_MANY_REQUESTS);
    submit(table, id, 0);
}

static void task_numbers_run_on_over_submits(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 1024);
    struct te_task *tasks[1024];

    for (size_t i = 0; i < 1024; i++)
        tasks[i] = submit(table, id, 1);
    for (size_t i = 0; i < 1024; i += 2)
        end(tasks[i], TE_SLICE_SUCCEEDED);
    for (size_t i = 0; i < 1024; i++)
        assert_int_equal(state_of(table, id, i), i % 2 == 0 ? TE_TASK_COMPLETED : TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, SIZE_MAX), -1);
    assert_int_equal(state_of(table, id, (size_t)1 << 40), -1);
}

static void memory_follows_what_is_reserved_not_what_is_allocated(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 900000);
    struct te_batch *batch = te_batch_find(table, id);

    assert_true(sizeof(struct te_task) <= 192);
    assert_true(sizeof(struct te_batch) <= 640);
    end(submit(table, id, 1), TE_SLICE_SUCCEEDED);
    assert_null(atomic_load(&batch->levels[1]));
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

static void lack_of_memory_reserves_nothing(void **state)
{
    struct te_batch_table *table = *state;
    struct te_reservation reservation;
    uint64_t id = 77;
    te_status status;
    long attempts = 0;

    allocations = 0;
    fail_at = 0;
    assert_int_equal(te_batch_allocate(table, 10, &id), TE_MEMORY);
    assert_int_equal(id, 77);
    allocations = 0;
    assert_null(te_batch_table_new(NULL));
    fail_at = -1;
    id = allocate(table, 5000);
    do {
        allocations = 0;
        fail_at = attempts++;
        status = te_batch_reserve(table, id, 5000, &reservation);
        fail_at = -1;
        assert_int_equal(state_of(table, id, 0), -1);
    } while (status == TE_MEMORY);
    assert_int_equal(status, TE_OK);
    assert_true(attempts > 5);
    te_batch_abandon(&reservation);
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

/* ---- the table of states ---- */

static void reserved_tasks_are_not_visible_and_abandoned_ones_never_were(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 4);
    struct te_reservation reservation;

    submit(table, id, 1);
    assert_int_equal(te_batch_reserve(table, id, 2, &reservation), TE_OK);
    assert_int_equal(reservation.first, 1);
    assert_int_equal(state_of(table, id, 0), TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, 1), -1);
    split(te_reservation_task(&reservation, 1), 3);
    te_batch_abandon(&reservation);
    assert_int_equal(state_of(table, id, 1), -1);
    assert_int_equal(running_in(table), 1);

    assert_int_equal(te_batch_reserve(table, id, 3, &reservation), TE_OK);
    assert_int_equal(reservation.first, 1);
    assert_int_equal(te_reservation_task(&reservation, 1)->slice_count, 1);
    te_batch_abandon(&reservation);
}

static void a_fresh_task_is_filled_in_with_defaults(void **state)
{
    struct te_batch_table *table = *state;

    for (int round = 0; round < 3; round++) {
        uint64_t id = allocate(table, 40);
        struct te_reservation reservation;

        assert_int_equal(te_batch_reserve(table, id, 40, &reservation), TE_OK);
        for (size_t i = 0; i < 40; i++) {
            struct te_task *task = te_reservation_task(&reservation, i);

            assert_int_equal(task->slice_count, 1);
            assert_ptr_equal(task->slices, &task->first_slice);
            assert_ptr_equal(task->first_slice.task, task);
            assert_null(task->first_slice.runtime_data);
            assert_null(atomic_load(&task->driver));
            assert_false(atomic_load(&task->cancel_requested));
            assert_false(task->own_slices);
            task->length = 5;
            task->first_slice.runtime_data = task;
            atomic_store(&task->driver, task);
            atomic_store(&task->cancel_requested, true);
        }
        te_batch_publish(&reservation, NULL, NULL);
        for (size_t i = 0; i < 40; i++)
            end(te_reservation_task(&(struct te_reservation){.batch = te_batch_find(table, id)}, i), TE_SLICE_CANCELED);
        assert_int_equal(state_of(table, id, 39), TE_TASK_CANCELED);
        assert_int_equal(te_batch_release(table, id), TE_OK);
    }
}

static void zero_length_is_completed_when_published(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 3);
    struct te_reservation reservation;
    struct te_task_counts counts;

    assert_int_equal(te_batch_reserve(table, id, 3, &reservation), TE_OK);
    te_reservation_task(&reservation, 1)->length = TASK_BYTES;
    split(te_reservation_task(&reservation, 2), 2);
    struct te_task *task = te_reservation_task(&reservation, 1);
    te_batch_publish(&reservation, NULL, NULL);
    assert_int_equal(state_of(table, id, 0), TE_TASK_COMPLETED);
    assert_int_equal(bytes_of(table, id, 0), 0);
    assert_int_equal(state_of(table, id, 1), TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, 2), TE_TASK_COMPLETED);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.completed, 2);
    assert_int_equal(counts.waiting, 1);
    assert_int_equal(running_in(table), 1);
    assert_int_equal(te_batch_wait(table, id, 0, -1), TE_OK);
    end(task, TE_SLICE_SUCCEEDED);
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

static const struct {
    enum te_slice_outcome outcome;
    bool cancel;
    enum te_task_state state;
} single_slice[] = {
    {TE_SLICE_SUCCEEDED, false, TE_TASK_COMPLETED}, {TE_SLICE_SUCCEEDED, true, TE_TASK_COMPLETED},
    {TE_SLICE_CANCELED, false, TE_TASK_FAILED},     {TE_SLICE_CANCELED, true, TE_TASK_CANCELED},
    {TE_SLICE_TIMED_OUT, false, TE_TASK_TIMEOUT},   {TE_SLICE_TIMED_OUT, true, TE_TASK_TIMEOUT},
    {TE_SLICE_FAILED, false, TE_TASK_FAILED},       {TE_SLICE_FAILED, true, TE_TASK_FAILED},
};

static void the_last_slice_decides(void **state)
{
    struct te_batch_table *table = *state;

    for (size_t i = 0; i < sizeof(single_slice) / sizeof(single_slice[0]); i++) {
        uint64_t id = allocate(table, 1);
        struct te_task *task = submit(table, id, 1);

        assert_int_equal(state_of(table, id, 0), TE_TASK_WAITING);
        if (single_slice[i].cancel)
            assert_int_equal(te_task_request_cancel(table, id, 0, NULL, NULL), TE_OK);
        assert_int_equal(state_of(table, id, 0), TE_TASK_WAITING);
        end(task, single_slice[i].outcome);
        assert_int_equal(state_of(table, id, 0), single_slice[i].state);
        assert_int_equal(bytes_of(table, id, 0), single_slice[i].outcome == TE_SLICE_SUCCEEDED ? TASK_BYTES : 0);
        assert_int_equal(te_task_request_cancel(table, id, 0, NULL, NULL), TE_OK);
        for (int poll = 0; poll < 3; poll++)
            assert_int_equal(state_of(table, id, 0), single_slice[i].state);
        assert_int_equal(te_batch_release(table, id), TE_OK);
    }
}

static void bytes_of_the_slices_that_succeeded_count(void **state)
{
    static const enum te_slice_outcome last[] = {TE_SLICE_SUCCEEDED, TE_SLICE_CANCELED, TE_SLICE_TIMED_OUT,
                                                 TE_SLICE_FAILED};
    static const uint64_t bytes[] = {111, 11, 11, 0};
    struct te_batch_table *table = *state;

    for (size_t i = 0; i < 4; i++) {
        uint64_t id = allocate(table, 1);
        struct te_reservation reservation;
        struct te_slice *slices;
        struct te_task_counts counts;

        assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
        te_reservation_task(&reservation, 0)->length = 111;
        slices = split(te_reservation_task(&reservation, 0), 3);
        te_batch_publish(&reservation, NULL, NULL);
        te_task_request_cancel(table, id, 0, NULL, NULL);
        te_slice_end(&slices[1], TE_SLICE_SUCCEEDED, 10);
        assert_int_equal(bytes_of(table, id, 0), 10);
        te_slice_end(&slices[0], TE_SLICE_SUCCEEDED, 1);
        te_slice_end(&slices[2], last[i], 100);
        assert_int_equal(bytes_of(table, id, 0), bytes[i]);
        assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
        assert_int_equal(counts.transferred_bytes, bytes[i]);
        assert_int_equal(te_batch_release(table, id), TE_OK);
    }
}

static void tasks_fail_alone_and_are_counted(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 10);
    struct te_task *tasks[10];
    struct te_task_counts counts;

    for (int i = 0; i < 10; i++)
        tasks[i] = submit(table, id, 1);
    assert_int_equal(running_in(table), 10);
    te_task_request_cancel(table, id, 8, NULL, NULL);
    end(tasks[3], TE_SLICE_FAILED);
    end(tasks[4], TE_SLICE_TIMED_OUT);
    end(tasks[8], TE_SLICE_CANCELED);
    end(tasks[9], TE_SLICE_SUCCEEDED);
    end(tasks[0], TE_SLICE_SUCCEEDED);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.total, 10);
    assert_int_equal(counts.waiting, 5);
    assert_int_equal(counts.completed, 2);
    assert_int_equal(counts.failed, 1);
    assert_int_equal(counts.canceled, 1);
    assert_int_equal(counts.timed_out, 1);
    assert_int_equal(counts.transferred_bytes, 2 * TASK_BYTES);
    assert_int_equal(running_in(table), 5);
    assert_int_equal(state_of(table, id, 1), TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, 3), TE_TASK_FAILED);
    assert_int_equal(state_of(table, id, 9), TE_TASK_COMPLETED);
}

/* Between the moments when a task is shown as terminal and when it is counted, those who see all tasks terminal are not
 * told that one waits. */
static void counts_never_lag_behind_states(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 3);
    struct te_task *task = submit(table, id, 1);
    struct te_task_counts counts;

    end(submit(table, id, 1), TE_SLICE_SUCCEEDED);
    end(submit(table, id, 1), TE_SLICE_FAILED);
    atomic_store(&task->state, TE_TASK_TIMEOUT);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.total, 3);
    assert_int_equal(counts.waiting, 0);
    assert_int_equal(counts.completed, 1);
    assert_int_equal(counts.failed, 1);
    assert_int_equal(counts.timed_out, 1);
    assert_int_equal(counts.transferred_bytes, TASK_BYTES);
    end(task, TE_SLICE_TIMED_OUT);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.timed_out, 1);
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

/* ---- submissions ---- */

struct finished {
    int calls;
    bool succeeded;
};

static void note(void *data, bool succeeded)
{
    struct finished *finished = data;

    finished->calls++;
    finished->succeeded = succeeded;
}

static void done_is_called_once_per_submission(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 10);
    struct te_batch *batch = te_batch_find(table, id);
    struct finished first = {0}, second = {0}, empty = {0}, zero = {0};
    struct te_reservation reservation;

    submit_with(table, id, 3, note, &first);
    submit_with(table, id, 2, note, &second);
    submit_with(table, id, 0, note, &empty);
    assert_int_equal(empty.calls, 1);
    assert_true(empty.succeeded);
    assert_int_equal(te_batch_reserve(table, id, 2, &reservation), TE_OK);
    te_batch_publish(&reservation, note, &zero);
    assert_int_equal(zero.calls, 1);
    assert_true(zero.succeeded);

    end(te_batch_task(batch, 1), TE_SLICE_SUCCEEDED);
    end(te_batch_task(batch, 0), TE_SLICE_SUCCEEDED);
    end(te_batch_task(batch, 3), TE_SLICE_FAILED);
    assert_int_equal(first.calls + second.calls, 0);
    end(te_batch_task(batch, 2), TE_SLICE_SUCCEEDED);
    assert_int_equal(first.calls, 1);
    assert_true(first.succeeded);
    end(te_batch_task(batch, 4), TE_SLICE_SUCCEEDED);
    assert_int_equal(second.calls, 1);
    assert_false(second.succeeded);
    assert_int_equal(first.calls, 1);
}

static void done_of_an_abandoned_submission_is_not_called(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 1);
    struct te_reservation reservation;

    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
    te_batch_abandon(&reservation);
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

struct releasing {
    struct te_batch_table *table;
    uint64_t id;
    te_status status;
};

static void release_when_done(void *data, bool succeeded)
{
    struct releasing *releasing = data;

    (void)succeeded;
    releasing->status = te_batch_release(releasing->table, releasing->id);
}

/* In the middle of te_slice_end() and of te_batch_publish(). */
static void done_may_release_the_batch(void **state)
{
    struct releasing releasing = {.table = *state};

    for (size_t tasks = 0; tasks < 3; tasks++) {
        struct te_batch *batch;

        releasing.id = allocate(releasing.table, 2);
        releasing.status = TE_BATCH_BUSY;
        batch = te_batch_find(releasing.table, releasing.id);
        submit_with(releasing.table, releasing.id, tasks, release_when_done, &releasing);
        for (size_t i = 0; i < tasks; i++)
            end(te_batch_task(batch, i), TE_SLICE_SUCCEEDED);
        assert_int_equal(releasing.status, TE_OK);
        assert_int_equal(state_of(releasing.table, releasing.id, 0), -1);
        assert_int_equal(atomic_load(&batch->life), 0);
    }
    assert_int_equal(releasing.table->slot_count, 1);
}

/* ---- cancel ---- */

static void mark(struct te_task *task, void *data)
{
    assert_true(atomic_load(&task->cancel_requested));
    (*(int *)data)++;
}

static void cancel_visits_what_is_not_terminal(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 100);
    struct te_task *tasks[100];
    int visited = 0;

    assert_int_equal(te_task_request_cancel(table, id, SIZE_MAX, mark, &visited), TE_OK);
    assert_int_equal(te_task_request_cancel(table, id, 0, mark, &visited), TE_INVALID_ARGUMENT);
    for (int i = 0; i < 100; i++)
        tasks[i] = submit(table, id, 1);
    end(tasks[0], TE_SLICE_SUCCEEDED);
    end(tasks[50], TE_SLICE_FAILED);
    assert_int_equal(te_task_request_cancel(table, id, 100, mark, &visited), TE_INVALID_ARGUMENT);
    assert_int_equal(te_task_request_cancel(table, id, 50, mark, &visited), TE_OK);
    assert_int_equal(visited, 0);
    assert_int_equal(te_task_request_cancel(table, id, 99, mark, &visited), TE_OK);
    assert_int_equal(visited, 1);
    assert_false(atomic_load(&tasks[98]->cancel_requested));
    assert_int_equal(te_task_request_cancel(table, id, SIZE_MAX, mark, &visited), TE_OK);
    assert_int_equal(visited, 1 + 98);
    for (int i = 1; i < 100; i++)
        if (i != 50)
            end(tasks[i], TE_SLICE_CANCELED);
    assert_int_equal(state_of(table, id, 50), TE_TASK_FAILED);
    assert_int_equal(state_of(table, id, 99), TE_TASK_CANCELED);
    assert_int_equal(te_task_request_cancel(table, id, SIZE_MAX, mark, &visited), TE_OK);
    assert_int_equal(visited, 1 + 98);
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

/* ---- release ---- */

static void release_of_a_busy_batch_is_done_later(void **state)
{
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, 3);
    struct te_task *first = submit(table, id, 1), *second = submit(table, id, 1);
    struct te_reservation reservation;
    struct te_task_counts counts;

    end(first, TE_SLICE_FAILED);
    assert_int_equal(te_batch_release(table, id), TE_BATCH_BUSY);
    assert_int_equal(te_batch_release(table, id), TE_BATCH_BUSY);
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_INVALID_ARGUMENT);
    assert_int_equal(state_of(table, id, 0), TE_TASK_FAILED);
    assert_int_equal(state_of(table, id, 1), TE_TASK_WAITING);
    end(second, TE_SLICE_SUCCEEDED);
    /* It lingers. */
    assert_int_equal(state_of(table, id, 0), TE_TASK_FAILED);
    assert_int_equal(state_of(table, id, 1), TE_TASK_COMPLETED);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.completed, 1);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), TE_OK);
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_INVALID_ARGUMENT);
    assert_int_equal(te_batch_release(table, id), TE_OK);
    assert_int_equal(te_batch_release(table, id), TE_INVALID_ARGUMENT);
    assert_int_equal(state_of(table, id, 0), -1);
    assert_int_equal((uint32_t)allocate(table, 1), (uint32_t)id);
}

static void release_between_reserve_and_publish_is_busy(void **state)
{
    struct te_batch_table *table = *state;
    struct te_reservation reservation;
    uint64_t id = allocate(table, 2);

    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
    assert_int_equal(te_batch_release(table, id), TE_BATCH_BUSY);
    te_batch_abandon(&reservation);
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_INVALID_ARGUMENT);
    assert_int_equal(te_batch_release(table, id), TE_OK);

    id = allocate(table, 2);
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
    te_reservation_task(&reservation, 0)->length = TASK_BYTES;
    struct te_task *task = te_reservation_task(&reservation, 0);
    assert_int_equal(te_batch_release(table, id), TE_BATCH_BUSY);
    te_batch_publish(&reservation, NULL, NULL);
    assert_int_equal(te_batch_release(table, id), TE_BATCH_BUSY);
    end(task, TE_SLICE_SUCCEEDED);
    assert_int_equal(state_of(table, id, 0), TE_TASK_COMPLETED);
    assert_int_equal(te_batch_release(table, id), TE_OK);
}

/* A batch that was released while busy and has ended since. */
static uint64_t linger(struct te_batch_table *table, size_t tasks)
{
    uint64_t id = allocate(table, tasks);

    submit(table, id, tasks);
    assert_int_equal(te_batch_release(table, id), TE_BATCH_BUSY);
    for (size_t i = 0; i < tasks; i++)
        end(te_batch_task(te_batch_find(table, id), i), TE_SLICE_SUCCEEDED);
    assert_int_equal(state_of(table, id, 0), TE_TASK_COMPLETED);
    return id;
}

static void the_oldest_of_too_many_lingering_batches_go(void **state)
{
    enum { EXTRA = 100 };
    struct te_batch_table *table = *state;
    uint64_t *ids = g_new(uint64_t, TE_LINGERING_BATCHES + EXTRA);

    for (size_t i = 0; i < TE_LINGERING_BATCHES; i++)
        ids[i] = linger(table, 1);
    assert_int_equal(state_of(table, ids[0], 0), TE_TASK_COMPLETED);
    /* One out of the middle and the ends of the list by its owner. */
    assert_int_equal(te_batch_release(table, ids[5]), TE_OK);
    assert_int_equal(te_batch_release(table, ids[0]), TE_OK);
    assert_int_equal(te_batch_release(table, ids[TE_LINGERING_BATCHES - 1]), TE_OK);
    for (size_t i = TE_LINGERING_BATCHES; i < TE_LINGERING_BATCHES + EXTRA; i++)
        ids[i] = linger(table, 1);
    for (size_t i = 0; i < TE_LINGERING_BATCHES + EXTRA; i++) {
        bool gone = i < EXTRA - 3 + 2 || i == TE_LINGERING_BATCHES - 1;

        assert_int_equal(state_of(table, ids[i], 0), gone ? -1 : TE_TASK_COMPLETED);
    }
    assert_int_equal(table->lingering_count, TE_LINGERING_BATCHES);
    assert_int_equal(table->lingering_tasks, TE_LINGERING_BATCHES);
    assert_true(table->slot_count <= TE_LINGERING_BATCHES + 2);
    g_free(ids);
}

static void lingering_batches_do_not_hold_too_many_tasks(void **state)
{
    enum { TASKS = TE_LINGERING_TASKS / 4 };
    struct te_batch_table *table = *state;
    uint64_t ids[6];

    for (int i = 0; i < 6; i++)
        ids[i] = linger(table, TASKS);
    for (int i = 0; i < 6; i++)
        assert_int_equal(state_of(table, ids[i], TASKS - 1), i < 2 ? -1 : TE_TASK_COMPLETED);
    ids[0] = linger(table, TE_LINGERING_TASKS + 1);
    assert_int_equal(state_of(table, ids[0], 0), TE_TASK_COMPLETED);
    assert_int_equal(state_of(table, ids[5], 0), -1);
    assert_int_equal(table->lingering_count, 1);
}

static void memory_of_released_batches_is_used_again(void **state)
{
    struct te_batch_table *table = *state;

    for (int i = 0; i < 1000; i++) {
        uint64_t id = allocate(table, 3000);

        submit(table, id, 3000);
        for (size_t task = 0; task < 3000; task++)
            end(te_batch_task(te_batch_find(table, id), task), TE_SLICE_SUCCEEDED);
        assert_int_equal(te_batch_release(table, id), TE_OK);
        if (i == 0)
            allocations = 0;
    }
    assert_int_equal(table->slot_count, 1);
    /* One for each submission. */
    assert_int_equal(allocations, 999);
}

static void many_batches_at_once(void **state)
{
    enum { BATCHES = 20000 };
    struct te_batch_table *table = *state;
    uint64_t *ids = g_new(uint64_t, BATCHES);
    struct te_task **tasks = g_new(struct te_task *, BATCHES);

    for (size_t i = 0; i < BATCHES; i++) {
        ids[i] = allocate(table, 1024);
        tasks[i] = submit(table, ids[i], 1);
    }
    for (size_t i = 0; i < BATCHES; i += 2)
        end(tasks[i], TE_SLICE_SUCCEEDED);
    for (size_t i = 0; i < BATCHES; i++) {
        assert_int_equal(state_of(table, ids[i], 0), i % 2 == 0 ? TE_TASK_COMPLETED : TE_TASK_WAITING);
        assert_int_equal(te_batch_release(table, ids[i]), i % 2 == 0 ? TE_OK : TE_BATCH_BUSY);
    }
    assert_int_equal(running_in(table), BATCHES / 2);
    g_free(tasks);
    g_free(ids);
}

static void nine_hundred_thousand_tasks(void **state)
{
    enum { TASKS = 900000 };
    struct te_batch_table *table = *state;
    uint64_t id = allocate(table, TASKS);
    struct te_batch *batch;
    struct te_task_counts counts;
    struct finished finished = {0};
    int64_t start = te_now_ns();

    submit_with(table, id, TASKS, note, &finished);
    batch = te_batch_find(table, id);
    for (size_t i = 0; i < TASKS; i++) {
        end(te_batch_task(batch, i), TE_SLICE_SUCCEEDED);
        if (i % 1000 == 0) {
            assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
            assert_int_equal(counts.completed, i + 1);
            assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), i + 1 < TASKS ? TE_TIMED_OUT : TE_OK);
        }
    }
    assert_int_equal(finished.calls, 1);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, -1), TE_OK);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.completed, TASKS);
    assert_int_equal(counts.transferred_bytes, (uint64_t)TASKS * TASK_BYTES);
    assert_int_equal(te_batch_release(table, id), TE_OK);
    assert_true(te_now_ns() - start < WATCHDOG_NS);
}

/* For the sanitizers: whatever is in flight belongs to the table. */
static void a_table_may_be_freed_with_everything_in_it(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    struct finished finished = {0};
    struct te_reservation reservation;
    uint64_t id = allocate(table, 100);

    (void)state;
    submit_with(table, id, 20, note, &finished);
    end(te_batch_task(te_batch_find(table, id), 3), TE_SLICE_SUCCEEDED);
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
    te_reservation_task(&reservation, 0)->length = TASK_BYTES;
    split(te_reservation_task(&reservation, 0), 3);
    te_batch_publish(&reservation, note, &finished);
    assert_true(te_batch_table_event_fd(table, id) >= 0);
    assert_true(te_batch_table_event_fd(table, 0) >= 0);
    linger(table, 20);
    allocate(table, 1);
    te_batch_table_free(table);
    assert_int_equal(finished.calls, 0);
    te_batch_table_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ids_of_strangers_are_refused_everywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slot_used_again_has_another_id, setup, teardown),
        cmocka_unit_test_setup_teardown(generations_wrap_without_leaving_the_range, setup, teardown),
        cmocka_unit_test_setup_teardown(tables_do_not_share_ids_slots_or_counters, setup, teardown),
        cmocka_unit_test_setup_teardown(capacity_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(task_numbers_run_on_over_submits, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_follows_what_is_reserved_not_what_is_allocated, setup, teardown),
        cmocka_unit_test_setup_teardown(lack_of_memory_reserves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(reserved_tasks_are_not_visible_and_abandoned_ones_never_were, setup, teardown),
        cmocka_unit_test_setup_teardown(a_fresh_task_is_filled_in_with_defaults, setup, teardown),
        cmocka_unit_test_setup_teardown(zero_length_is_completed_when_published, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_slice_decides, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_of_the_slices_that_succeeded_count, setup, teardown),
        cmocka_unit_test_setup_teardown(tasks_fail_alone_and_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(counts_never_lag_behind_states, setup, teardown),
        cmocka_unit_test_setup_teardown(done_is_called_once_per_submission, setup, teardown),
        cmocka_unit_test_setup_teardown(done_of_an_abandoned_submission_is_not_called, setup, teardown),
        cmocka_unit_test_setup_teardown(done_may_release_the_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(cancel_visits_what_is_not_terminal, setup, teardown),
        cmocka_unit_test_setup_teardown(release_of_a_busy_batch_is_done_later, setup, teardown),
        cmocka_unit_test_setup_teardown(release_between_reserve_and_publish_is_busy, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_of_too_many_lingering_batches_go, setup, teardown),
        cmocka_unit_test_setup_teardown(lingering_batches_do_not_hold_too_many_tasks, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_of_released_batches_is_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(many_batches_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(nine_hundred_thousand_tasks, setup, teardown),
        cmocka_unit_test(a_table_may_be_freed_with_everything_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
