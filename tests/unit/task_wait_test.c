/* Waits, wake-ups, event descriptors, and driving transfers from status queries and waits. */
#include "task_helpers.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/batch_table.h"

/*
 * A stand-in for a connection: drive() ends its slice once allowed to, or once its descriptor has been signaled.
 * Everything is atomic, as drive() may run in several threads.
 */
struct driver {
    struct te_task *task;
    int descriptor; /* an eventfd, or -1: cannot be claimed */
    _Atomic int drives, claims, unclaims;
    _Atomic int ends_after; /* drives; 0 = never */
    _Atomic bool ended;
};

static void driver_end(struct driver *driver)
{
    if (!atomic_exchange(&driver->ended, true))
        end(driver->task, TE_SLICE_SUCCEEDED);
}

static void driver_drive(void *data)
{
    struct driver *driver = data;
    int drives = atomic_fetch_add(&driver->drives, 1) + 1, ends_after = atomic_load(&driver->ends_after);
    uint64_t count;

    if (ends_after != 0 && drives >= ends_after)
        driver_end(driver);
    if (driver->descriptor >= 0 && read(driver->descriptor, &count, sizeof(count)) == sizeof(count))
        driver_end(driver);
}

static bool driver_claim(void *data, struct pollfd *descriptor)
{
    struct driver *driver = data;

    if (driver->descriptor < 0)
        return false;
    assert_int_equal(atomic_load(&driver->claims), atomic_load(&driver->unclaims));
    *descriptor = (struct pollfd){.fd = driver->descriptor, .events = POLLIN};
    atomic_fetch_add(&driver->claims, 1);
    return true;
}

static void driver_unclaim(void *data)
{
    atomic_fetch_add(&((struct driver *)data)->unclaims, 1);
}

static const struct te_task_drive_ops driver_ops = {driver_drive, driver_claim, driver_unclaim};
static const struct te_task_drive_ops driver_ops_without_claim = {driver_drive, NULL, NULL};

static void driver_open(struct driver *driver, struct te_task *task, bool claimable)
{
    memset(driver, 0, sizeof(*driver));
    driver->task = task;
    driver->descriptor = claimable ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    atomic_store(&task->driver, driver);
}

static void driver_close(struct driver *driver)
{
    assert_int_equal(atomic_load(&driver->claims), atomic_load(&driver->unclaims));
    if (driver->descriptor >= 0)
        close(driver->descriptor);
}

static void signal_descriptor(int descriptor)
{
    const uint64_t one = 1;

    assert_int_equal(write(descriptor, &one, sizeof(one)), sizeof(one));
}

static bool readable(int descriptor)
{
    struct pollfd poll_descriptor = {.fd = descriptor, .events = POLLIN};

    return poll(&poll_descriptor, 1, 0) == 1;
}

static uint64_t drain(int descriptor)
{
    uint64_t count = 0;

    assert_int_equal(read(descriptor, &count, sizeof(count)), sizeof(count));
    return count;
}

/* A thread that waits; started() returns when it has entered itself among the waiters of the batch. */
struct waiting_thread {
    struct te_batch_table *table;
    uint64_t id;
    size_t task;
    te_status status;
    pthread_t thread;
};

static void *wait_in_thread(void *data)
{
    struct waiting_thread *waiting = data;

    waiting->status = te_batch_wait(waiting->table, waiting->id, waiting->task, WATCHDOG_NS);
    return NULL;
}

static void start_waiting(struct waiting_thread *waiting, struct te_batch_table *table, uint64_t id, size_t task)
{
    *waiting = (struct waiting_thread){.table = table, .id = id, .task = task};
    assert_int_equal(pthread_create(&waiting->thread, NULL, wait_in_thread, waiting), 0);
}

static void await_sleeper(struct te_batch_table *table, uint64_t id)
{
    struct te_batch *batch = te_batch_find(table, id);

    while (atomic_load(&batch->wake_at) == TE_WAKE_NEVER)
        sched_yield();
}

static void finish_waiting(struct waiting_thread *waiting, te_status expected)
{
    assert_int_equal(pthread_join(waiting->thread, NULL), 0);
    assert_int_equal(waiting->status, expected);
}

static struct te_task *task_at(struct te_batch_table *table, uint64_t id, size_t index)
{
    return te_batch_task(te_batch_find(table, id), index);
}

/* ---- waits that do not sleep ---- */

static void wait_answers_at_once_when_it_can(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t id = allocate(table, 3);
    int64_t start = te_now_ns();

    (void)state;
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, -1), TE_OK);
    assert_int_equal(te_batch_wait(table, id, 0, -1), TE_INVALID_ARGUMENT);
    submit(table, id, 2);
    assert_int_equal(te_batch_wait(table, id, 2, -1), TE_INVALID_ARGUMENT);
    assert_int_equal(te_batch_wait(table, id, 0, 0), TE_TIMED_OUT);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), TE_TIMED_OUT);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 1), TE_TIMED_OUT);
    end(task_at(table, id, 1), TE_SLICE_FAILED);
    assert_int_equal(te_batch_wait(table, id, 1, -1), TE_OK);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), TE_TIMED_OUT);
    end(task_at(table, id, 0), TE_SLICE_SUCCEEDED);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, -1), TE_OK);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, INT64_MAX), TE_OK);
    assert_true(te_now_ns() - start < WATCHDOG_NS);
    te_batch_table_free(table);
}

static void wait_does_not_return_before_its_time(void **state)
{
    const int64_t timeout_ns = 20 * TE_NS_PER_MS;
    struct te_batch_table *table = te_batch_table_new(&driver_ops);
    uint64_t id = allocate(table, 1);
    struct driver driver;

    (void)state;
    driver_open(&driver, submit(table, id, 1), true);
    for (int round = 0; round < 3; round++) {
        int64_t start = te_now_ns();

        /* On the futex, on descriptors. */
        assert_int_equal(te_batch_wait(table, id, round == 0 ? 0 : SIZE_MAX, timeout_ns), TE_TIMED_OUT);
        assert_true(te_now_ns() - start >= timeout_ns);
        atomic_store(&driver.task->driver, round == 1 ? NULL : &driver);
    }
    assert_int_equal(atomic_load(&te_batch_find(table, id)->wake_at), TE_WAKE_NEVER);
    driver_close(&driver);
    te_batch_table_free(table);
}

/* ---- sleeping and being woken ---- */

static void a_waiter_sleeps_until_its_task_ends(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);

    (void)state;
    for (int round = 0; round < 200; round++) {
        uint64_t id = allocate(table, 10);
        struct waiting_thread one, all;
        struct te_batch *batch = te_batch_find(table, id);

        submit(table, id, 10);
        start_waiting(&one, table, id, 7);
        start_waiting(&all, table, id, SIZE_MAX);
        if (round % 2 == 0)
            await_sleeper(table, id);
        for (size_t i = 0; i < 7; i++)
            end(te_batch_task(batch, i), TE_SLICE_SUCCEEDED);
        end(te_batch_task(batch, 7), TE_SLICE_FAILED);
        finish_waiting(&one, TE_OK);
        for (size_t i = 8; i < 10; i++)
            end(te_batch_task(batch, i), TE_SLICE_SUCCEEDED);
        finish_waiting(&all, TE_OK);
        assert_int_equal(te_batch_release(table, id), TE_OK);
    }
    te_batch_table_free(table);
}

static void all_means_those_published_when_the_wait_began(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t id = allocate(table, 1000);
    struct waiting_thread waiting;

    (void)state;
    submit(table, id, 3);
    start_waiting(&waiting, table, id, SIZE_MAX);
    await_sleeper(table, id);
    submit(table, id, 500);
    for (size_t i = 3; i < 300; i++)
        end(task_at(table, id, i), TE_SLICE_SUCCEEDED);
    for (size_t i = 0; i < 3; i++)
        end(task_at(table, id, i), TE_SLICE_SUCCEEDED);
    finish_waiting(&waiting, TE_OK);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), TE_TIMED_OUT);
    te_batch_table_free(table);
}

/* The first wake-up of the many comes with the last end, so one wait costs one sleep. */
static void ends_that_do_not_matter_wake_nobody(void **state)
{
    enum { TASKS = 2000 };
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t id = allocate(table, TASKS);
    struct te_batch *batch = te_batch_find(table, id);
    struct waiting_thread waiting;

    (void)state;
    submit(table, id, TASKS);
    start_waiting(&waiting, table, id, SIZE_MAX);
    await_sleeper(table, id);
    for (size_t i = 0; i < TASKS - 1; i++) {
        end(te_batch_task(batch, i), TE_SLICE_SUCCEEDED);
        assert_int_equal(atomic_load(&batch->wake_at), TASKS);
    }
    end(te_batch_task(batch, TASKS - 1), TE_SLICE_SUCCEEDED);
    finish_waiting(&waiting, TE_OK);
    te_batch_table_free(table);
}

static void more_waiters_than_one_wake_up_takes(void **state)
{
    enum { WAITERS = 40 };
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t id = allocate(table, 2);
    struct waiting_thread waiting[WAITERS];

    (void)state;
    submit(table, id, 2);
    for (int i = 0; i < WAITERS; i++)
        start_waiting(&waiting[i], table, id, i % 2 == 0 ? 1 : SIZE_MAX);
    await_sleeper(table, id);
    end(task_at(table, id, 0), TE_SLICE_SUCCEEDED);
    end(task_at(table, id, 1), TE_SLICE_SUCCEEDED);
    for (int i = 0; i < WAITERS; i++)
        finish_waiting(&waiting[i], TE_OK);
    te_batch_table_free(table);
}

/* Whether the other thread ends the task before, while or after the waiter goes to sleep on its descriptors. */
static void another_thread_ends_the_task_of_a_waiter_that_polls(void **state)
{
    struct te_batch_table *table = te_batch_table_new(&driver_ops);

    (void)state;
    for (int round = 0; round < 500; round++) {
        uint64_t id = allocate(table, 1);
        struct te_task *task = submit(table, id, 1);
        struct driver driver;
        struct waiting_thread waiting;

        driver_open(&driver, task, true);
        start_waiting(&waiting, table, id, round % 2 == 0 ? 0 : SIZE_MAX);
        if (round % 4 < 2)
            await_sleeper(table, id);
        else
            while (atomic_load(&driver.claims) == 0 && round % 8 < 6)
                sched_yield();
        end(task, TE_SLICE_SUCCEEDED);
        finish_waiting(&waiting, TE_OK);
        driver_close(&driver);
        assert_int_equal(te_batch_release(table, id), TE_OK);
    }
    te_batch_table_free(table);
}

/* The task ends while its waiter is about to enter itself: the last moment at which nobody wakes it. */
static bool end_instead_of_claim(void *data, struct pollfd *descriptor)
{
    struct te_task *task = data;

    (void)descriptor;
    end(task, TE_SLICE_SUCCEEDED);
    return false;
}

static void do_nothing(void *data)
{
    (void)data;
}

static void an_end_just_before_the_sleep_is_not_missed(void **state)
{
    static const struct te_task_drive_ops ops = {do_nothing, end_instead_of_claim, do_nothing};
    struct te_batch_table *table = te_batch_table_new(&ops);

    (void)state;
    for (int round = 0; round < 2; round++) {
        uint64_t id = allocate(table, 1);
        struct te_task *task = submit(table, id, 1);
        int64_t start = te_now_ns();

        atomic_store(&task->driver, task);
        assert_int_equal(te_batch_wait(table, id, round == 0 ? 0 : SIZE_MAX, 2 * WATCHDOG_NS), TE_OK);
        assert_true(te_now_ns() - start < WATCHDOG_NS);
    }
    te_batch_table_free(table);
}

/* A wake-up that was used up does not disturb the next sleep. */
static void a_sleep_after_a_wake_up_is_a_sleep(void **state)
{
    struct te_batch_table *table = te_batch_table_new(&driver_ops);

    (void)state;
    for (int round = 0; round < 3; round++) {
        uint64_t id = allocate(table, 1);
        struct driver driver;
        struct waiting_thread waiting;

        driver_open(&driver, submit(table, id, 1), true);
        start_waiting(&waiting, table, id, SIZE_MAX);
        await_sleeper(table, id);
        end(driver.task, TE_SLICE_SUCCEEDED);
        finish_waiting(&waiting, TE_OK);
        driver_close(&driver);

        driver_open(&driver, submit(table, id = allocate(table, 1), 1), true);
        assert_int_equal(te_batch_wait(table, id, 0, 50 * TE_NS_PER_MS), TE_TIMED_OUT);
        assert_in_range(atomic_load(&driver.claims), 1, 10);
        driver_close(&driver);
    }
    te_batch_table_free(table);
}

/* ---- driving ---- */

static void status_drives_the_transfer(void **state)
{
    struct te_batch_table *table = te_batch_table_new(&driver_ops);
    uint64_t id = allocate(table, 2);
    struct driver driver;
    struct te_task_counts counts;

    (void)state;
    submit(table, id, 2);
    driver_open(&driver, task_at(table, id, 1), true);
    atomic_store(&driver.ends_after, 3);
    assert_int_equal(state_of(table, id, 0), TE_TASK_WAITING);
    assert_int_equal(atomic_load(&driver.drives), 0);
    assert_int_equal(state_of(table, id, 1), TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, 1), TE_TASK_WAITING);
    assert_int_equal(state_of(table, id, 1), TE_TASK_COMPLETED);
    assert_int_equal(state_of(table, id, 1), TE_TASK_COMPLETED);
    assert_int_equal(atomic_load(&driver.drives), 3);
    end(task_at(table, id, 0), TE_SLICE_SUCCEEDED);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(atomic_load(&driver.drives), 3);
    assert_int_equal(te_batch_release(table, id), TE_OK);

    id = allocate(table, 1);
    driver_close(&driver);
    driver_open(&driver, submit(table, id, 1), true);
    atomic_store(&driver.ends_after, 2);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.waiting, 1);
    assert_int_equal(te_batch_counts(table, id, &counts), TE_OK);
    assert_int_equal(counts.completed, 1);
    driver_close(&driver);
    te_batch_table_free(table);
}

/* A drive during which the batch is released and its slot and memory go to another. */
struct replacing {
    struct te_batch_table *table;
    uint64_t id, replacement;
    struct te_task *task;
};

static void replace_batch(void *data)
{
    struct replacing *replacing = data;

    end(replacing->task, TE_SLICE_SUCCEEDED);
    assert_int_equal(te_batch_release(replacing->table, replacing->id), TE_OK);
    replacing->replacement = allocate(replacing->table, 100);
    submit(replacing->table, replacing->replacement, 100);
    end(task_at(replacing->table, replacing->replacement, 50), TE_SLICE_FAILED);
}

static void a_slot_that_changes_hands_during_a_query_is_noticed(void **state)
{
    static const struct te_task_drive_ops ops = {replace_batch, NULL, NULL};
    struct te_batch_table *table = te_batch_table_new(&ops);
    struct replacing replacing = {.table = table, .id = allocate(table, 100)};

    (void)state;
    submit(table, replacing.id, 100);
    for (size_t i = 0; i < 100; i++)
        if (i != 50)
            end(task_at(table, replacing.id, i), TE_SLICE_SUCCEEDED);
    replacing.task = task_at(table, replacing.id, 50);
    atomic_store(&replacing.task->driver, &replacing);
    assert_int_equal(state_of(table, replacing.id, 50), -1);
    assert_int_equal((uint32_t)replacing.id, (uint32_t)replacing.replacement);
    assert_int_equal(state_of(table, replacing.replacement, 50), TE_TASK_FAILED);
    te_batch_table_free(table);
}

/* All of them are ready before the wait, which has to go through more than it can drive at a time. */
static void wait_drives_each_driver_of_the_batch(void **state)
{
    enum { TASKS = 100 };
    struct te_batch_table *table = te_batch_table_new(&driver_ops);
    uint64_t id = allocate(table, TASKS);
    struct driver drivers[TASKS];

    (void)state;
    submit(table, id, TASKS);
    for (size_t i = 0; i < TASKS; i++) {
        driver_open(&drivers[i], task_at(table, id, i), true);
        signal_descriptor(drivers[i].descriptor);
    }
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, WATCHDOG_NS), TE_OK);
    for (size_t i = 0; i < TASKS; i++)
        driver_close(&drivers[i]);
    te_batch_table_free(table);
}

static void a_timeout_of_zero_still_drives(void **state)
{
    struct te_batch_table *table = te_batch_table_new(&driver_ops);
    uint64_t id = allocate(table, 1);
    struct driver driver;

    (void)state;
    driver_open(&driver, submit(table, id, 1), false);
    atomic_store(&driver.ends_after, 2);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), TE_TIMED_OUT);
    assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), TE_OK);
    driver_close(&driver);
    te_batch_table_free(table);
}

/* More drivers than one wait sleeps on: the descriptors become ready one after the other, in any order. */
static void a_sleeping_wait_is_woken_by_descriptors(void **state)
{
    enum { TASKS = 24 };
    struct te_batch_table *table = te_batch_table_new(&driver_ops);
    uint64_t id = allocate(table, TASKS);
    struct driver drivers[TASKS];
    struct waiting_thread waiting;

    (void)state;
    submit(table, id, TASKS);
    for (size_t i = 0; i < TASKS; i++)
        driver_open(&drivers[i], task_at(table, id, i), true);
    start_waiting(&waiting, table, id, SIZE_MAX);
    for (size_t n = 0; n < TASKS; n++) {
        struct driver *driver = &drivers[n * 7 % TASKS];

        while (atomic_load(&driver->claims) == atomic_load(&driver->unclaims) && !atomic_load(&driver->ended)) {
            /* Not among those slept on: somebody else has to end it. */
            if (n * 7 % TASKS >= 16) {
                driver_end(driver);
                break;
            }
            sched_yield();
        }
        signal_descriptor(driver->descriptor);
        while (!atomic_load(&driver->ended))
            sched_yield();
    }
    finish_waiting(&waiting, TE_OK);
    for (size_t i = 0; i < TASKS; i++)
        driver_close(&drivers[i]);
    te_batch_table_free(table);
}

/* A connection that is another one after each time it was ready: each sleep has to ask anew. */
enum { PHASES = 5 };

struct changing_driver {
    struct te_task *task;
    int descriptors[PHASES];
    _Atomic int phase, claimed_phase;
};

static void drive_changing(void *data)
{
    struct changing_driver *driver = data;
    int phase = atomic_load(&driver->phase);
    uint64_t count;

    if (phase == PHASES || read(driver->descriptors[phase], &count, sizeof(count)) != sizeof(count))
        return;
    atomic_store(&driver->phase, phase + 1);
    if (phase + 1 == PHASES)
        end(driver->task, TE_SLICE_SUCCEEDED);
}

static bool claim_changing(void *data, struct pollfd *descriptor)
{
    struct changing_driver *driver = data;
    int phase = atomic_load(&driver->phase);

    *descriptor = (struct pollfd){.fd = driver->descriptors[phase], .events = POLLIN};
    atomic_store(&driver->claimed_phase, phase);
    return true;
}

static void each_sleep_claims_anew(void **state)
{
    static const struct te_task_drive_ops ops = {drive_changing, claim_changing, do_nothing};
    struct te_batch_table *table = te_batch_table_new(&ops);
    uint64_t id = allocate(table, 1);
    struct changing_driver driver = {.task = submit(table, id, 1), .claimed_phase = -1};
    struct waiting_thread waiting;

    (void)state;
    for (int i = 0; i < PHASES; i++)
        driver.descriptors[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    atomic_store(&driver.task->driver, &driver);
    start_waiting(&waiting, table, id, SIZE_MAX);
    for (int i = 0; i < PHASES; i++) {
        while (atomic_load(&driver.claimed_phase) != i)
            sched_yield();
        signal_descriptor(driver.descriptors[i]);
    }
    finish_waiting(&waiting, TE_OK);
    for (int i = 0; i < PHASES; i++)
        close(driver.descriptors[i]);
    te_batch_table_free(table);
}

static void without_claim_the_wait_sleeps_on_the_futex(void **state)
{
    struct te_batch_table *table = te_batch_table_new(&driver_ops_without_claim);
    uint64_t id = allocate(table, 1);
    struct driver driver;
    struct waiting_thread waiting;

    (void)state;
    driver_open(&driver, submit(table, id, 1), true);
    start_waiting(&waiting, table, id, SIZE_MAX);
    await_sleeper(table, id);
    end(driver.task, TE_SLICE_SUCCEEDED);
    finish_waiting(&waiting, TE_OK);
    driver_close(&driver);
    te_batch_table_free(table);
}

/* Waits over 100 000 tasks whose drivers change while others end them; each task is looked at a bounded number of
 * times, or this would take hours. */
static void a_wait_over_many_tasks_is_linear(void **state)
{
    enum { TASKS = 100000 };
    struct te_batch_table *table = te_batch_table_new(&driver_ops);
    uint64_t id = allocate(table, TASKS);
    struct te_batch *batch = te_batch_find(table, id);
    struct driver driver;
    struct waiting_thread waiting;

    (void)state;
    submit(table, id, TASKS);
    driver_open(&driver, te_batch_task(batch, 0), true);
    for (size_t i = 0; i < TASKS; i++)
        atomic_store(&te_batch_task(batch, i)->driver, &driver);
    start_waiting(&waiting, table, id, SIZE_MAX);
    for (size_t i = 0; i < TASKS; i++) {
        driver.task = te_batch_task(batch, i);
        end(driver.task, TE_SLICE_SUCCEEDED);
        if (i % 16 == 0)
            assert_int_equal(te_batch_wait(table, id, SIZE_MAX, 0), TE_TIMED_OUT);
    }
    finish_waiting(&waiting, TE_OK);
    driver_close(&driver);
    te_batch_table_free(table);
}

/* ---- gathered signals and event descriptors ---- */

static void event_descriptors_tell_of_ends(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t id = allocate(table, 5), other = allocate(table, 1);
    struct te_task *others;
    int batch_fd, table_fd;

    (void)state;
    submit(table, id, 5);
    others = submit(table, other, 1);
    batch_fd = te_batch_table_event_fd(table, id);
    table_fd = te_batch_table_event_fd(table, 0);
    assert_true(batch_fd >= 0 && table_fd >= 0 && batch_fd != table_fd);
    assert_int_equal(te_batch_table_event_fd(table, id), batch_fd);
    assert_int_equal(te_batch_table_event_fd(table, 0), table_fd);
    assert_false(readable(batch_fd) || readable(table_fd));
    end(task_at(table, id, 0), TE_SLICE_SUCCEEDED);
    assert_true(readable(batch_fd) && readable(table_fd));
    assert_int_equal(drain(batch_fd), 1);
    drain(table_fd);
    assert_false(readable(batch_fd) || readable(table_fd));
    end(others, TE_SLICE_FAILED);
    assert_true(readable(table_fd));
    assert_false(readable(batch_fd));
    drain(table_fd);

    te_task_signal_begin();
    te_task_signal_begin();
    end(task_at(table, id, 1), TE_SLICE_SUCCEEDED);
    te_task_signal_end();
    end(task_at(table, id, 2), TE_SLICE_SUCCEEDED);
    assert_int_equal(state_of(table, id, 2), TE_TASK_COMPLETED);
    assert_false(readable(batch_fd) || readable(table_fd));
    te_task_signal_end();
    assert_int_equal(drain(batch_fd), 1);
    assert_int_equal(drain(table_fd), 1);
    te_task_signal_begin();
    te_task_signal_end();
    assert_false(readable(batch_fd) || readable(table_fd));

    /* Nothing is lost to one who asks late. */
    assert_true(readable(te_batch_table_event_fd(table, other)));
    te_batch_table_free(table);
    table = te_batch_table_new(NULL);
    id = allocate(table, 1);
    end(submit(table, id, 1), TE_SLICE_SUCCEEDED);
    /* The descriptor of all batches starts when it is asked for. */
    assert_false(readable(te_batch_table_event_fd(table, 0)));
    te_batch_table_free(table);
}

static void zero_length_tasks_signal_too(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t id = allocate(table, 1);
    struct te_reservation reservation;
    int event_fd = te_batch_table_event_fd(table, id);

    (void)state;
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
    te_batch_publish(&reservation, NULL, NULL);
    assert_true(readable(event_fd));
    te_batch_table_free(table);
}

static void event_descriptor_is_closed_with_the_batch(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t id = allocate(table, 1);
    struct te_task *task = submit(table, id, 1);
    int event_fd = te_batch_table_event_fd(table, id);

    (void)state;
    assert_int_equal(te_batch_release(table, id), TE_BATCH_BUSY);
    end(task, TE_SLICE_SUCCEEDED);
    assert_true(readable(event_fd));
    assert_int_equal(te_batch_release(table, id), TE_OK);
    assert_int_equal(write(event_fd, "12345678", 8), -1);
    id = allocate(table, 1);
    event_fd = te_batch_table_event_fd(table, id);
    assert_false(readable(event_fd));
    te_batch_table_free(table);
}

/* A gathered wake-up pins its batch: released meanwhile, its id is gone but its slot is not used again. */
static void released_batch_stays_while_its_signal_is_pending(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    uint64_t ids[40];
    struct te_task *tasks[40];
    struct te_batch *batch;

    (void)state;
    for (int i = 0; i < 40; i++) {
        ids[i] = allocate(table, 1);
        tasks[i] = submit(table, ids[i], 1);
    }
    batch = te_batch_find(table, ids[39]);
    te_task_signal_begin();
    for (int i = 0; i < 40; i++)
        end(tasks[i], TE_SLICE_SUCCEEDED);
    assert_int_equal(te_batch_release(table, ids[39]), TE_OK);
    assert_int_equal(state_of(table, ids[39], 0), -1);
    assert_true((uint32_t)allocate(table, 1) != (uint32_t)ids[39]);
    assert_true(atomic_load(&batch->life) & TE_LIFE_GONE);
    te_task_signal_end();
    assert_int_equal(atomic_load(&batch->life), 0);
    assert_int_equal((uint32_t)allocate(table, 1), (uint32_t)ids[39]);
    te_batch_table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_answers_at_once_when_it_can),
        cmocka_unit_test(wait_does_not_return_before_its_time),
        cmocka_unit_test(a_waiter_sleeps_until_its_task_ends),
        cmocka_unit_test(all_means_those_published_when_the_wait_began),
        cmocka_unit_test(ends_that_do_not_matter_wake_nobody),
        cmocka_unit_test(more_waiters_than_one_wake_up_takes),
        cmocka_unit_test(another_thread_ends_the_task_of_a_waiter_that_polls),
        cmocka_unit_test(an_end_just_before_the_sleep_is_not_missed),
        cmocka_unit_test(a_sleep_after_a_wake_up_is_a_sleep),
        cmocka_unit_test(status_drives_the_transfer),
        cmocka_unit_test(a_slot_that_changes_hands_during_a_query_is_noticed),
        cmocka_unit_test(wait_drives_each_driver_of_the_batch),
        cmocka_unit_test(a_timeout_of_zero_still_drives),
        cmocka_unit_test(a_sleeping_wait_is_woken_by_descriptors),
        cmocka_unit_test(each_sleep_claims_anew),
        cmocka_unit_test(without_claim_the_wait_sleeps_on_the_futex),
        cmocka_unit_test(a_wait_over_many_tasks_is_linear),
        cmocka_unit_test(event_descriptors_tell_of_ends),
        cmocka_unit_test(zero_length_tasks_signal_too),
        cmocka_unit_test(event_descriptor_is_closed_with_the_batch),
        cmocka_unit_test(released_batch_stays_while_its_signal_is_pending),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
