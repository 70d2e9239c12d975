/*
 * Telling those who wait: sleeping waiters, event descriptors.
 *
 * A waiter enters itself in its batch with the count of ended tasks at which it can be satisfied at the earliest, then
 * looks again, then sleeps. Whoever ends a task shows its state, counts it, and then looks for waiters. As all of that
 * is sequentially consistent, one of the two sees the other. Waiters come from a pool of the table and are never freed
 * before it, so that a wake-up that comes late meets another waiter, which takes it for a spurious one.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <glib.h>

#include "core/batch_table.h"

enum {
    LIMIT_OF_BATCHES = 16,  /* gathered between te_task_signal_begin() and _end() */
    LIMIT_OF_WAKE_UPS = 16, /* gathered under a batch's lock */
};

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

/* ---- the pool ---- */

struct te_waiter *te_waiter_take(struct te_batch_table *table)
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

void te_waiter_give_back(struct te_batch_table *table, struct te_waiter *waiter)
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

void te_waiter_enter(struct te_batch *batch, struct te_waiter *waiter)
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
    /* The states of all tasks that are counted by now are visible to this thread; those who count one from now on see
     * the waiter. */
    (void)atomic_load(&batch->ended);
}

void te_waiter_leave(struct te_batch *batch, struct te_waiter *waiter)
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

/* What had ended in a batch before there was a descriptor to tell it by is told now. */
int te_batch_table_event_fd(struct te_batch_table *table, uint64_t id)
{
    struct te_batch *batch;
    int event_fd;
    bool made;

    if (id == 0)
        return event_fd_at(&table->event_fd, &made);
    batch = te_batch_pin(table, id);
    if (batch == NULL)
        return TE_INVALID_ARGUMENT;
    event_fd = event_fd_at(&batch->event_fd, &made);
    if (made && atomic_load(&batch->ended) > 0)
        event_signal(event_fd);
    te_batch_unpin(batch);
    return event_fd;
}
