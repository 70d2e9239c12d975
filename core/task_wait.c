/*
 * Sleeping until tasks end, and being woken.
 *
 * A waiter enters itself in its batch with the count of ended tasks at which it can be satisfied at the earliest, then
 * looks again, then sleeps. Whoever ends a task shows its state, counts it, and then looks for waiters. As all of that
 * is sequentially consistent, one of the two sees the other. Waiters come from a pool of the table and are never freed
 * before it, so that a wake-up that comes late meets another waiter, which takes it for a spurious one.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdalign.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <glib.h>

#include "core/batch_table.h"
#include "core/clock.h"

enum {
    SPIN_NS = 20000,           /* how long a wait drives transfers before it sleeps */
    LIMIT_OF_DRIVERS = 16,     /* that one wait drives and sleeps on */
    LIMIT_OF_TASKS_SEEN = 64,  /* in search of drivers, from the first waiting task on */
    LIMIT_OF_BATCHES = 16,     /* gathered between te_task_signal_begin() and _end() */
    LIMIT_OF_WAKE_UPS = 16,    /* gathered under a batch's lock */
    SLICE_WITHOUT_EVENT_MS = 2 /* how long to poll at a time if there is no event descriptor to be woken by */
};

struct te_waiter {
    struct te_waiter *next, *previous; /* in the batch; next also in the pool */
    struct te_waiter *next_of_all;
    struct te_task *task;      /* or NULL: all tasks */
    uint32_t wake_at;          /* value of te_batch.ended; 0 with a task: look at each end */
    bool entered;              /* in the batch's list, under its lock */
    bool polls;                /* sleeps in poll() on event_fd, not on the futex */
    _Atomic uint32_t signaled; /* the futex */
    int event_fd;              /* -1: could not be had */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value, const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* An event descriptor never blocks; what does not fit any more is readable already. */
static void event_signal(int event_fd)
{
    const uint64_t one = 1;
    ssize_t written = write(event_fd, &one, sizeof(one));

    (void)written;
}

static void event_clear(int event_fd)
{
    uint64_t count;
    ssize_t got = read(event_fd, &count, sizeof(count));

    (void)got;
}

/* ---- the pool ---- */

static struct te_waiter *take_waiter(struct te_batch_table *table)
{
    struct te_waiter *waiter;

    pthread_mutex_lock(&table->lock);
    waiter = table->unused_waiters;
    if (waiter != NULL) {
        table->unused_waiters = waiter->next;
    } else {
        waiter = g_try_new0(struct te_waiter, 1);
        if (waiter != NULL) {
            waiter->event_fd = -1;
            waiter->next_of_all = table->all_waiters;
            table->all_waiters = waiter;
        }
    }
    pthread_mutex_unlock(&table->lock);
    return waiter;
}

static void give_waiter_back(struct te_batch_table *table, struct te_waiter *waiter)
{
    pthread_mutex_lock(&table->lock);
    waiter->next = table->unused_waiters;
    table->unused_waiters = waiter;
    pthread_mutex_unlock(&table->lock);
}

void te_waiters_free(struct te_batch_table *table)
{
    while (table->all_waiters != NULL) {
        struct te_waiter *waiter = table->all_waiters;

        table->all_waiters = waiter->next_of_all;
        if (waiter->event_fd >= 0)
            close(waiter->event_fd);
        g_free(waiter);
    }
}

/* ---- entering and waking; these under the batch's waiter_lock ---- */

static void update_wake_at(struct te_batch *batch)
{
    uint32_t wake_at = TE_WAKE_NEVER;

    for (struct te_waiter *waiter = batch->waiters; waiter != NULL; waiter = waiter->next)
        if (waiter->wake_at < wake_at)
            wake_at = waiter->wake_at;
    atomic_store(&batch->wake_at, wake_at);
}

static void remove_waiter(struct te_batch *batch, struct te_waiter *waiter)
{
    *(waiter->previous != NULL ? &waiter->previous->next : &batch->waiters) = waiter->next;
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    waiter->entered = false;
}

static bool is_due(const struct te_batch *batch, const struct te_waiter *waiter)
{
    return waiter->task != NULL ? te_task_is_terminal(waiter->task) : waiter->wake_at <= atomic_load(&batch->ended);
}

/* ---- */

static void enter_waiter(struct te_batch *batch, struct te_waiter *waiter)
{
    pthread_mutex_lock(&batch->waiter_lock);
    atomic_store(&waiter->signaled, 0);
    waiter->entered = true;
    waiter->previous = NULL;
    waiter->next = batch->waiters;
    if (waiter->next != NULL)
        waiter->next->previous = waiter;
    batch->waiters = waiter;
    update_wake_at(batch);
    pthread_mutex_unlock(&batch->waiter_lock);
}

static void leave_waiter(struct te_batch *batch, struct te_waiter *waiter)
{
    pthread_mutex_lock(&batch->waiter_lock);
    if (waiter->entered) {
        remove_waiter(batch, waiter);
        update_wake_at(batch);
    }
    pthread_mutex_unlock(&batch->waiter_lock);
}

/* Wakes those that are due, a handful at a time; true if there may be more. Once the lock is open the waiters are not
 * ours any more, but their descriptors and futex words last as long as the table. */
static bool wake_some(struct te_batch *batch)
{
    int event_fds[LIMIT_OF_WAKE_UPS];
    _Atomic uint32_t *futexes[LIMIT_OF_WAKE_UPS];
    int events = 0, words = 0;
    struct te_waiter *waiter, *next;

    pthread_mutex_lock(&batch->waiter_lock);
    for (waiter = batch->waiters; waiter != NULL && events + words < LIMIT_OF_WAKE_UPS; waiter = next) {
        next = waiter->next;
        if (!is_due(batch, waiter))
            continue;
        remove_waiter(batch, waiter);
        atomic_store(&waiter->signaled, 1);
        if (!waiter->polls)
            futexes[words++] = &waiter->signaled;
        else if (waiter->event_fd >= 0)
            event_fds[events++] = waiter->event_fd;
    }
    update_wake_at(batch);
    pthread_mutex_unlock(&batch->waiter_lock);

    for (int i = 0; i < events; i++)
        event_signal(event_fds[i]);
    for (int i = 0; i < words; i++)
        futex_wake(futexes[i]);
    return waiter != NULL;
}

static void signal_batch(struct te_batch *batch)
{
    int event_fd;

    if (atomic_load(&batch->wake_at) <= atomic_load(&batch->ended))
        while (wake_some(batch))
            ;
    event_fd = atomic_load(&batch->event_fd);
    if (event_fd >= 0)
        event_signal(event_fd);
}

static void signal_table(struct te_batch_table *table)
{
    int event_fd = atomic_load(&table->event_fd);

    if (event_fd >= 0)
        event_signal(event_fd);
}

/* ---- gathering ---- */

static _Thread_local struct {
    unsigned depth;
    unsigned count;
    struct te_batch *batches[LIMIT_OF_BATCHES]; /* each with a pin */
} gathered;

static void flush_gathered(void)
{
    struct te_batch_table *table = NULL;

    for (unsigned i = 0; i < gathered.count; i++) {
        struct te_batch *batch = gathered.batches[i];

        signal_batch(batch);
        if (batch->table != table)
            signal_table(batch->table);
        table = batch->table;
        te_batch_unpin(batch);
    }
    gathered.count = 0;
}

void te_task_signal_begin(void)
{
    gathered.depth++;
}

void te_task_signal_end(void)
{
    if (--gathered.depth == 0)
        flush_gathered();
}

void te_batch_signal_and_unpin(struct te_batch *batch)
{
    if (gathered.depth == 0) {
        signal_batch(batch);
        signal_table(batch->table);
        te_batch_unpin(batch);
        return;
    }
    for (unsigned i = 0; i < gathered.count; i++) {
        if (gathered.batches[i] == batch) {
            te_batch_unpin(batch);
            return;
        }
    }
    if (gathered.count == LIMIT_OF_BATCHES)
        flush_gathered();
    gathered.batches[gathered.count++] = batch;
}

/* ---- event descriptors ---- */

/* Returns the descriptor in *place, making it if there is none; *made tells. */
static int event_fd_at(_Atomic int *place, bool *made)
{
    int event_fd = atomic_load(place), none = -1;

    *made = false;
    if (event_fd >= 0)
        return event_fd;
    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd < 0)
        return te_fail(TE_MEMORY, "eventfd: %s", g_strerror(errno));
    if (!atomic_compare_exchange_strong(place, &none, event_fd)) {
        close(event_fd);
        return none;
    }
    *made = true;
    return event_fd;
}

/* What had ended before there was a descriptor to tell it by is told now. */
int te_batch_table_event_fd(struct te_batch_table *table, uint64_t id)
{
    struct te_batch *batch;
    int event_fd;
    bool made;

    if (id == 0) {
        event_fd = event_fd_at(&table->event_fd, &made);
        if (made && atomic_load(&table->ended) > 0)
            event_signal(event_fd);
        return event_fd;
    }
    batch = te_batch_pin(table, id);
    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    event_fd = event_fd_at(&batch->event_fd, &made);
    if (made && atomic_load(&batch->ended) > 0)
        event_signal(event_fd);
    te_batch_unpin(batch);
    return event_fd;
}

/* ---- waiting ---- */

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
    void *claimed[LIMIT_OF_DRIVERS]; /* descriptors[i + 1] belongs to claimed[i] */
    size_t claimed_count;
    struct pollfd descriptors[1 + LIMIT_OF_DRIVERS];
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

static void unclaim(struct wait *wait, size_t index)
{
    wait->drive_ops->unclaim(wait->claimed[index]);
    wait->claimed_count--;
    wait->claimed[index] = wait->claimed[wait->claimed_count];
    wait->descriptors[1 + index] = wait->descriptors[1 + wait->claimed_count];
}

static void unclaim_all(struct wait *wait)
{
    while (wait->claimed_count > 0)
        unclaim(wait, wait->claimed_count - 1);
}

static void claim_drivers(struct wait *wait)
{
    for (size_t i = wait->claimed_count; i-- > 0;)
        if (!contains(wait->drivers, wait->driver_count, wait->claimed[i]))
            unclaim(wait, i);
    for (size_t i = 0; i < wait->driver_count && wait->drive_ops->claim != NULL; i++) {
        struct pollfd *descriptor = &wait->descriptors[1 + wait->claimed_count];

        if (!contains(wait->claimed, wait->claimed_count, wait->drivers[i]) &&
            wait->drive_ops->claim(wait->drivers[i], descriptor))
            wait->claimed[wait->claimed_count++] = wait->drivers[i];
    }
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

    futex_wait(&wait->waiter->signaled, 0, remaining_time(wait, &time));
}

/* Until something may have happened. */
static te_status sleep_once(struct wait *wait)
{
    struct te_batch *batch = wait->batch;
    uint32_t ended = atomic_load(&batch->ended);
    struct te_waiter *waiter = wait->waiter;

    if (waiter == NULL)
        waiter = wait->waiter = take_waiter(batch->table);
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
    enter_waiter(batch, waiter);
    if (atomic_load(&batch->ended) == ended && !satisfied(wait)) {
        if (waiter->polls)
            sleep_on_descriptors(wait);
        else
            sleep_on_futex(wait);
    }
    leave_waiter(batch, waiter);
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

te_status te_batch_wait(struct te_batch_table *table, uint64_t id, size_t task, int64_t timeout_ns)
{
    struct te_batch *batch = te_batch_pin(table, id);
    struct wait wait = {.batch = batch, .drive_ops = table->drive_ops, .deadline_ns = deadline_after(timeout_ns)};
    te_status status;

    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    wait.end = atomic_load(&batch->published);
    if (task != SIZE_MAX && task >= wait.end) {
        status = te_fail(TE_INVALID_ARGUMENT, "there is no task %zu in batch %" PRIu64, task, id);
        goto unpin;
    }
    if (task != SIZE_MAX)
        wait.task = te_batch_task(batch, task);
    status = wait_until_satisfied(&wait);
    unclaim_all(&wait);
    if (wait.waiter != NULL)
        give_waiter_back(table, wait.waiter);
unpin:
    te_batch_unpin(batch);
    return status;
}
