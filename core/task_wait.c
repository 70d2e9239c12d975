/* Waiting for tasks: drive their transfers for a moment, then sleep until something may have happened, and so on. */
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/batch_table.h"
#include "core/clock.h"

enum {
    SPIN_NS = 20000,           /* how long a wait drives transfers before it sleeps for the first time */
    LIMIT_OF_DRIVERS = 16,     /* that one wait drives and sleeps on */
    LIMIT_OF_TASKS_SEEN = 64,  /* in search of drivers, from the first waiting task on */
    SLICE_WITHOUT_EVENT_MS = 2 /* how long to poll at a time if there is no event descriptor to be woken by */
};

struct wait {
    struct te_batch *batch;
    const struct te_task_drive_ops *drive_ops;
    struct te_task *task; /* or NULL: all below end */
    size_t end;
    size_t cursor; /* all before it are terminal */
    int64_t deadline_ns;
    struct te_waiter *waiter; /* NULL until it sleeps for the first time */

    void *drivers[LIMIT_OF_DRIVERS]; /* of the first waiting tasks */
    size_t driver_count;

    /* During a sleep: descriptors[0] is the waiter's, descriptors[i + 1] belongs to claimed[i]. */
    struct pollfd descriptors[1 + LIMIT_OF_DRIVERS];
    void *claimed[LIMIT_OF_DRIVERS];
    size_t claimed_count;
};

static bool satisfied(struct wait *wait)
{
    if (wait->task != NULL)
        return te_task_is_terminal(wait->task);
    wait->cursor = te_batch_first_waiting(wait->batch, wait->cursor, wait->end);
    return wait->cursor == wait->end;
}

static bool contains(void *const *drivers, size_t count, const void *driver)
{
    for (size_t i = 0; i < count; i++)
        if (drivers[i] == driver)
            return true;
    return false;
}

static void add_driver(struct wait *wait, struct te_task *task)
{
    void *driver = atomic_load_explicit(&task->driver, memory_order_acquire);

    if (driver != NULL && !te_task_is_terminal(task) && wait->driver_count < LIMIT_OF_DRIVERS &&
        !contains(wait->drivers, wait->driver_count, driver))
        wait->drivers[wait->driver_count++] = driver;
}

static void collect_drivers(struct wait *wait)
{
    wait->driver_count = 0;
    if (wait->drive_ops == NULL)
        return;
    if (wait->task != NULL)
        add_driver(wait, wait->task);
    else
        for (size_t i = wait->cursor; i < wait->end && i < wait->cursor + LIMIT_OF_TASKS_SEEN; i++)
            add_driver(wait, te_batch_task(wait->batch, i));
}

static void drive(struct wait *wait)
{
    collect_drivers(wait);
    for (size_t i = 0; i < wait->driver_count; i++)
        wait->drive_ops->drive(wait->drivers[i]);
}

static void claim_drivers(struct wait *wait)
{
    wait->claimed_count = 0;
    for (size_t i = 0; i < wait->driver_count && wait->drive_ops->claim != NULL; i++) {
        struct pollfd *descriptor = &wait->descriptors[1 + wait->claimed_count];

        *descriptor = (struct pollfd){.fd = -1};
        if (wait->drive_ops->claim(wait->drivers[i], descriptor))
            wait->claimed[wait->claimed_count++] = wait->drivers[i];
    }
}

/* Those that became ready are driven first, as they need not be watched any more if that ends their work. */
static void unclaim_drivers(struct wait *wait)
{
    for (size_t i = 0; i < wait->claimed_count; i++)
        if (wait->descriptors[1 + i].revents != 0)
            wait->drive_ops->drive(wait->claimed[i]);
    for (size_t i = 0; i < wait->claimed_count; i++)
        wait->drive_ops->unclaim(wait->claimed[i]);
}

static const struct timespec *remaining_time(const struct wait *wait, struct timespec *remaining)
{
    int64_t left_ns = wait->deadline_ns - te_now_ns();

    if (wait->deadline_ns == INT64_MAX)
        return NULL;
    if (left_ns < 0)
        left_ns = 0;
    *remaining = (struct timespec){.tv_sec = left_ns / TE_NS_PER_SECOND, .tv_nsec = left_ns % TE_NS_PER_SECOND};
    return remaining;
}

static void event_clear(int event_fd)
{
    uint64_t count;
    ssize_t got = read(event_fd, &count, sizeof(count));

    (void)got;
}

static void sleep_on_descriptors(struct wait *wait)
{
    struct te_waiter *waiter = wait->waiter;
    struct timespec time;
    const struct timespec *timeout = remaining_time(wait, &time);
    const struct timespec slice = {.tv_nsec = SLICE_WITHOUT_EVENT_MS * TE_NS_PER_MS};

    if (waiter->event_fd < 0 && (timeout == NULL || time.tv_sec > 0 || time.tv_nsec > slice.tv_nsec))
        timeout = &slice;
    /* poll() passes over a negative descriptor. */
    wait->descriptors[0] = (struct pollfd){.fd = waiter->event_fd, .events = POLLIN};
    if (ppoll(wait->descriptors, 1 + wait->claimed_count, timeout, NULL) > 0 && wait->descriptors[0].revents != 0)
        event_clear(waiter->event_fd);
}

static void sleep_on_futex(struct wait *wait)
{
    struct timespec time;

    syscall(SYS_futex, &wait->waiter->signaled, FUTEX_WAIT_PRIVATE, 0, remaining_time(wait, &time), NULL, 0);
}

/* Until something may have happened. */
static te_status sleep_once(struct wait *wait)
{
    struct te_batch *batch = wait->batch;
    struct te_waiter *waiter = wait->waiter;

    if (waiter == NULL)
        waiter = wait->waiter = te_waiter_take(batch->table);
    if (waiter == NULL)
        return te_fail(TE_MEMORY, "no memory to wait for a batch");
    /* Other tasks may come first by now; a claimed descriptor that is ready already ends the sleep at once. */
    collect_drivers(wait);
    claim_drivers(wait);
    waiter->polls = wait->claimed_count > 0;
    if (waiter->polls && waiter->event_fd < 0)
        waiter->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    waiter->task = wait->task;
    /* All tasks below end are counted in "ended" sooner or later, so it cannot be earlier. It may be later if tasks
     * from end on have ended as well: then each end is a reason to look. */
    waiter->wake_at = wait->task != NULL ? 0 : (uint32_t)wait->end;
    te_waiter_enter(batch, waiter);
    if (!satisfied(wait)) {
        if (waiter->polls)
            sleep_on_descriptors(wait);
        else
            sleep_on_futex(wait);
    }
    te_waiter_leave(batch, waiter);
    unclaim_drivers(wait);
    return TE_OK;
}

static te_status wait_until_satisfied(struct wait *wait)
{
    int64_t spin_until_ns = 0;

    while (!satisfied(wait)) {
        int64_t now_ns;
        te_status status;

        drive(wait);
        if (satisfied(wait))
            break;
        now_ns = te_now_ns();
        if (now_ns >= wait->deadline_ns)
            return te_fail(TE_TIMED_OUT, "tasks of the batch are still running");
        if (spin_until_ns == 0)
            spin_until_ns = wait->driver_count > 0 ? now_ns + SPIN_NS : now_ns;
        if (now_ns < spin_until_ns)
            continue;
        status = sleep_once(wait);
        if (status != TE_OK)
            return status;
    }
    return TE_OK;
}

static int64_t deadline_after(int64_t timeout_ns)
{
    int64_t now_ns = te_now_ns();

    return timeout_ns < 0 || timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + timeout_ns;
}

te_status te_batch_wait(struct te_batch_table *table, uint64_t id, size_t index, int64_t timeout_ns)
{
    struct te_batch *batch = te_batch_pin(table, id);
    struct wait wait = {.batch = batch, .drive_ops = table->drive_ops, .deadline_ns = deadline_after(timeout_ns)};
    te_status status;

    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    wait.end = atomic_load(&batch->published);
    if (index != SIZE_MAX && index >= wait.end) {
        status = te_fail(TE_INVALID_ARGUMENT, "there is no task %zu in batch %" PRIu64, index, id);
        goto unpin;
    }
    if (index != SIZE_MAX)
        wait.task = te_batch_task(batch, index);
    status = wait_until_satisfied(&wait);
    if (wait.waiter != NULL)
        te_waiter_give_back(table, wait.waiter);
unpin:
    te_batch_unpin(batch);
    return status;
}
