/*
 * All orders of all events for up to three slices, against a model that shares no code and no representation with
 * core/task.c: it keeps the history and decides each question from it.
 */
#include "task_helpers.h"

#include <poll.h>
#include <unistd.h>

enum { SLICES = 3, TASKS = 3, EVENTS = SLICES + 3 };

enum event_kind { END_SLICE, CANCEL_TASK, CANCEL_BATCH, RELEASE };

struct event {
    enum event_kind kind;
    int slice; /* or task */
};

/* How the slices are spread over the tasks of the batch, all published by one submission. */
struct shape {
    int slices;
    int task_of_slice[SLICES];
    int tasks;
};

static const struct shape shapes[] = {
    {1, {0}, 1}, {2, {0, 0}, 1}, {2, {0, 1}, 2}, {3, {0, 0, 0}, 1}, {3, {0, 0, 1}, 2}, {3, {0, 1, 2}, 3},
};

/* ---- the model ---- */

struct model {
    const struct shape *shape;
    const enum te_slice_outcome *outcomes;
    struct event history[EVENTS];
    int length;
};

static int model_slices_ended(const struct model *model, int task, int until)
{
    int ended = 0;

    for (int i = 0; i < until; i++)
        if (model->history[i].kind == END_SLICE && model->shape->task_of_slice[model->history[i].slice] == task)
            ended++;
    return ended;
}

static int model_slices_of(const struct model *model, int task)
{
    int slices = 0;

    for (int i = 0; i < model->shape->slices; i++)
        slices += model->shape->task_of_slice[i] == task;
    return slices;
}

/* Index after the event that made the task terminal, or 0. */
static int model_end_of(const struct model *model, int task)
{
    for (int until = 1; until <= model->length; until++)
        if (model_slices_ended(model, task, until) == model_slices_of(model, task))
            return until;
    return 0;
}

static bool model_has_outcome(const struct model *model, int task, enum te_slice_outcome outcome)
{
    for (int i = 0; i < model->shape->slices; i++)
        if (model->shape->task_of_slice[i] == task && model->outcomes[i] == outcome)
            return true;
    return false;
}

static bool model_canceled_before(const struct model *model, int task, int until)
{
    for (int i = 0; i < until; i++)
        if (model->history[i].kind == CANCEL_BATCH ||
            (model->history[i].kind == CANCEL_TASK && model->history[i].slice == task))
            return true;
    return false;
}

static int model_state(const struct model *model, int task)
{
    int end_of_task = model_end_of(model, task);

    if (end_of_task == 0)
        return TE_TASK_WAITING;
    if (model_has_outcome(model, task, TE_SLICE_FAILED))
        return TE_TASK_FAILED;
    if (model_has_outcome(model, task, TE_SLICE_TIMED_OUT))
        return TE_TASK_TIMEOUT;
    if (!model_has_outcome(model, task, TE_SLICE_CANCELED))
        return TE_TASK_COMPLETED;
    return model_canceled_before(model, task, end_of_task) ? TE_TASK_CANCELED : TE_TASK_FAILED;
}

static uint64_t slice_bytes(int slice)
{
    return UINT64_C(1) << (4 * slice);
}

static uint64_t model_bytes(const struct model *model, int task)
{
    uint64_t bytes = 0;

    if (model_state(model, task) == TE_TASK_FAILED)
        return 0;
    for (int i = 0; i < model->length; i++) {
        const struct event *event = &model->history[i];

        if (event->kind == END_SLICE && model->shape->task_of_slice[event->slice] == task &&
            model->outcomes[event->slice] == TE_SLICE_SUCCEEDED)
            bytes += slice_bytes(event->slice);
    }
    return bytes;
}

static size_t model_tasks_in(const struct model *model, int wanted)
{
    size_t count = 0;

    for (int task = 0; task < model->shape->tasks; task++)
        count += model_state(model, task) == wanted;
    return count;
}

/* What a release at the end of the history answers; gone says whether an earlier one took the batch away. */
static te_status model_release(const struct model *model, bool gone)
{
    if (gone)
        return TE_INVALID_ARGUMENT;
    return model_tasks_in(model, TE_TASK_WAITING) > 0 ? TE_BATCH_BUSY : TE_OK;
}

/* ---- the run ---- */

struct run {
    struct te_batch_table *table;
    uint64_t id;
    struct te_slice *slices[SLICES];
    struct model model;
    bool gone, asked;
    int done_calls;
    bool done_succeeded;
    int event_fd; /* of the batch, or -1 */
    unsigned long steps;
};

static void note(void *data, bool succeeded)
{
    struct run *run = data;

    run->done_calls++;
    run->done_succeeded = succeeded;
}

static void start(struct run *run)
{
    const struct shape *shape = run->model.shape;
    struct te_reservation reservation;

    run->id = allocate(run->table, (size_t)shape->tasks);
    run->gone = run->asked = false;
    run->done_calls = 0;
    run->model.length = 0;
    assert_int_equal(te_batch_reserve(run->table, run->id, (size_t)shape->tasks, &reservation), TE_OK);
    for (int task = 0, slice = 0; task < shape->tasks; task++) {
        struct te_task *reserved = te_reservation_task(&reservation, (size_t)task);
        int count = model_slices_of(&run->model, task);

        reserved->length = TASK_BYTES;
        if (count > 1)
            split(reserved, (uint32_t)count);
        for (int i = 0; i < count; i++)
            run->slices[slice++] = &reserved->slices[i];
    }
    te_batch_publish(&reservation, note, run);
}

static void check_task(struct run *run, int task)
{
    enum te_task_state state = TE_TASK_WAITING;
    uint64_t bytes = 0;
    te_status status = te_task_status(run->table, run->id, (size_t)task, &state, &bytes);

    assert_int_equal(status, run->gone ? TE_INVALID_ARGUMENT : TE_OK);
    if (run->gone)
        return;
    assert_int_equal(state, model_state(&run->model, task));
    assert_int_equal(bytes, model_bytes(&run->model, task));
    assert_int_equal(te_batch_wait(run->table, run->id, (size_t)task, 0),
                     state == TE_TASK_WAITING ? TE_TIMED_OUT : TE_OK);
}

static void check_counts(struct run *run)
{
    const struct model *model = &run->model;
    struct te_task_counts counts;
    uint64_t bytes = 0;

    if (run->gone) {
        assert_int_equal(te_batch_counts(run->table, run->id, &counts), TE_INVALID_ARGUMENT);
        return;
    }
    assert_int_equal(te_batch_counts(run->table, run->id, &counts), TE_OK);
    for (int task = 0; task < model->shape->tasks; task++)
        if (model_state(model, task) != TE_TASK_WAITING)
            bytes += model_bytes(model, task);
    assert_int_equal(counts.total, model->shape->tasks);
    assert_int_equal(counts.waiting, model_tasks_in(model, TE_TASK_WAITING));
    assert_int_equal(counts.completed, model_tasks_in(model, TE_TASK_COMPLETED));
    assert_int_equal(counts.failed, model_tasks_in(model, TE_TASK_FAILED));
    assert_int_equal(counts.canceled, model_tasks_in(model, TE_TASK_CANCELED));
    assert_int_equal(counts.timed_out, model_tasks_in(model, TE_TASK_TIMEOUT));
    assert_int_equal(counts.transferred_bytes, bytes);
    assert_int_equal(te_batch_wait(run->table, run->id, SIZE_MAX, 0), counts.waiting > 0 ? TE_TIMED_OUT : TE_OK);
}

static void check_submission(struct run *run)
{
    const struct model *model = &run->model;
    bool over = model_tasks_in(model, TE_TASK_WAITING) == 0;

    assert_int_equal(run->done_calls, over);
    if (over)
        assert_int_equal(run->done_succeeded, model_tasks_in(model, TE_TASK_COMPLETED) == (size_t)model->shape->tasks);
    assert_int_equal(running_in(run->table), model_tasks_in(model, TE_TASK_WAITING));
}

static void check(struct run *run)
{
    for (int task = 0; task < run->model.shape->tasks; task++)
        check_task(run, task);
    assert_int_equal(state_of(run->table, run->id, (size_t)run->model.shape->tasks), -1);
    check_counts(run);
    check_submission(run);
}

static bool readable(int event_fd)
{
    struct pollfd descriptor = {.fd = event_fd, .events = POLLIN};
    uint64_t count;

    if (poll(&descriptor, 1, 0) == 0)
        return false;
    assert_int_equal(read(event_fd, &count, sizeof(count)), sizeof(count));
    return true;
}

static void step(struct run *run, struct event event)
{
    size_t waiting = model_tasks_in(&run->model, TE_TASK_WAITING);
    te_status status;
    struct te_reservation reservation;

    run->model.history[run->model.length++] = event;
    switch (event.kind) {
    case END_SLICE:
        te_slice_end(run->slices[event.slice], run->model.outcomes[event.slice], slice_bytes(event.slice));
        break;
    case CANCEL_TASK:
        assert_int_equal(te_task_request_cancel(run->table, run->id, (size_t)event.slice, NULL, NULL),
                         run->gone ? TE_INVALID_ARGUMENT : TE_OK);
        break;
    case CANCEL_BATCH:
        assert_int_equal(te_task_request_cancel(run->table, run->id, SIZE_MAX, NULL, NULL),
                         run->gone ? TE_INVALID_ARGUMENT : TE_OK);
        break;
    case RELEASE:
        status = te_batch_release(run->table, run->id);
        assert_int_equal(status, model_release(&run->model, run->gone));
        run->gone = run->gone || status == TE_OK;
        run->asked = run->asked || status == TE_BATCH_BUSY;
        break;
    }
    if (run->event_fd >= 0 && !run->gone)
        assert_int_equal(readable(run->event_fd), model_tasks_in(&run->model, TE_TASK_WAITING) < waiting);
    assert_int_equal(te_batch_reserve(run->table, run->id, 1, &reservation),
                     run->gone || run->asked ? TE_INVALID_ARGUMENT : TE_TOO_MANY_REQUESTS);
    run->steps++;
}

/* polls: after each event, or only at the end. */
static void play(struct run *run, const struct event *events, int count, bool polls, bool with_event_fd)
{
    start(run);
    run->event_fd = with_event_fd ? te_batch_table_event_fd(run->table, run->id) : -1;
    if (polls)
        check(run);
    for (int i = 0; i < count; i++) {
        step(run, events[i]);
        if (polls)
            check(run);
    }
    check(run);
    if (!run->gone)
        assert_int_equal(te_batch_release(run->table, run->id), TE_OK);
}

static bool same(struct event left, struct event right)
{
    return left.kind == right.kind && left.slice == right.slice;
}

/* Every distinct order of the events from position on. */
static void permute(struct run *run, struct event *events, int position, int count, bool with_event_fd)
{
    if (position == count) {
        play(run, events, count, true, with_event_fd);
        play(run, events, count, false, with_event_fd);
        return;
    }
    for (int i = position; i < count; i++) {
        bool seen = false;
        struct event event = events[i];

        for (int j = position; j < i; j++)
            seen = seen || same(events[j], event);
        if (seen)
            continue;
        events[i] = events[position];
        events[position] = event;
        permute(run, events, position + 1, count, with_event_fd);
        events[position] = events[i];
        events[i] = event;
    }
}

/* The optional events, as bits. */
enum { WITH_CANCEL_TASK = 1, WITH_CANCEL_BATCH = 2, WITH_RELEASE = 4, WITH_SECOND_RELEASE = 8, OPTIONS = 16 };

static void play_shape(struct run *run, const struct shape *shape, int options)
{
    int assignments = 1 << (2 * shape->slices);

    run->model.shape = shape;
    for (int assignment = 0; assignment < assignments; assignment++) {
        enum te_slice_outcome outcomes[SLICES];
        struct event events[EVENTS + 1];
        int count = 0;

        for (int slice = 0; slice < shape->slices; slice++) {
            outcomes[slice] = (enum te_slice_outcome)(assignment >> (2 * slice) & 3);
            events[count++] = (struct event){END_SLICE, slice};
        }
        if (options & WITH_CANCEL_TASK)
            events[count++] = (struct event){CANCEL_TASK, 0};
        if (options & WITH_CANCEL_BATCH)
            events[count++] = (struct event){CANCEL_BATCH, 0};
        if (options & WITH_RELEASE)
            events[count++] = (struct event){RELEASE, 0};
        if (options & WITH_SECOND_RELEASE)
            events[count++] = (struct event){RELEASE, 0};
        run->model.outcomes = outcomes;
        permute(run, events, 0, count, options == WITH_RELEASE);
    }
}

static void every_order_of_events_agrees_with_the_model(void **state)
{
    struct run run = {.table = te_batch_table_new(NULL)};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int options = 0; options < OPTIONS; options++)
            if (!((options & WITH_CANCEL_TASK) && (options & WITH_CANCEL_BATCH)) &&
                !((options & WITH_SECOND_RELEASE) && !(options & WITH_RELEASE)))
                play_shape(&run, &shapes[i], options);
    assert_true(run.steps > 100000);
    if (getenv("TE_TEST_VERBOSE") != NULL)
        print_message("%lu events\n", run.steps);
    te_batch_table_free(run.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_events_agrees_with_the_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
