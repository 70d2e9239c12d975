/*
 * The insides of batches: included by batch_table.c, task.c and task_wait.c only.
 *
 * Slots (struct te_batch) and tasks are never returned to the system while the table lives, and keep their type. A
 * status query reads them without a lock or a pin and then looks whether the slot still has the id it came with.
 * Everybody else pins the slot; a slot is recycled only when its id is gone and nobody pins it.
 */
#ifndef TE_CORE_BATCH_TABLE_H
#define TE_CORE_BATCH_TABLE_H

#include <pthread.h>

#include "core/task.h"

/* Arrays that grow without moving: level 0 has 1 element, level 1 has 15, level n has 2^(n+2) from index 2^(n+2) on. */
enum {
    TE_TASK_LEVELS = 22, /* TE_BATCH_MAX_TASKS */
    TE_SLOT_LEVELS = 26, /* 2^28 batches */
};

_Static_assert(TE_BATCH_MAX_TASKS == 1 << (TE_TASK_LEVELS + 2), "the levels hold the largest batch");

struct te_position {
    unsigned level;
    size_t offset;
};

static inline struct te_position te_position_of(size_t index)
{
    unsigned log;

    if (index == 0)
        return (struct te_position){0, 0};
    if (index < 16)
        return (struct te_position){1, index - 1};
    log = 63u - (unsigned)__builtin_clzll(index);
    return (struct te_position){log - 2, index - ((size_t)1 << log)};
}

static inline size_t te_level_size(unsigned level)
{
    return level == 0 ? 1 : level == 1 ? 15 : (size_t)1 << (level + 2);
}

/*
 * te_batch.life, one word so that each step is one atomic operation:
 *   running   tasks published whose last slice has not been reported
 *   pins      threads that may touch the slot
 *   RESERVED  a submit is between reserve and publish or abandon
 *   ASKED     a release was answered with "busy"
 *   GONE      released; whoever takes the last pin away recycles the slot
 * A batch whose life becomes "ASKED, not RESERVED, none running" lingers: its id is answered until it is released a
 * second time or recycled to make room.
 */
#define TE_LIFE_RUNNING  UINT64_C(0x00000000ffffffff)
#define TE_LIFE_PIN      UINT64_C(0x0000000100000000)
#define TE_LIFE_PINS     UINT64_C(0x00ffffff00000000)
#define TE_LIFE_RESERVED (UINT64_C(1) << 56)
#define TE_LIFE_ASKED    (UINT64_C(1) << 57)
#define TE_LIFE_GONE     (UINT64_C(1) << 58)

#define TE_WAKE_NEVER UINT32_MAX

struct te_waiter;

struct te_batch {
    /* Mostly read. */
    _Atomic uint64_t id;        /* 0 while unused */
    _Atomic uint32_t published; /* tasks visible */
    uint32_t capacity;
    struct te_batch_table *table;
    uint32_t index;
    uint32_t generation;
    _Atomic int event_fd;      /* -1 = none */
    _Atomic uint32_t wake_at;  /* lowest of the waiters: look for whom to wake when `ended` gets there */
    struct te_waiter *waiters; /* under waiter_lock */
    bool owns_slices;          /* some task has slices to free; under submit_lock */
    bool lingering;            /* under the table's lock, as are the links */
    struct te_batch *next, *previous;
    pthread_mutex_t submit_lock; /* from reserve to publish or abandon */
    pthread_mutex_t waiter_lock;

    /* Written by every end of a task. A task is counted after its state says that it is terminal: first among failed,
     * canceled or timed_out if that is how it ended, then in `ended`. */
    _Atomic uint64_t life;
    _Atomic uint32_t ended, failed, canceled, timed_out;
    _Atomic uint64_t transferred_bytes;
    _Atomic uint32_t first_waiting; /* a hint: all tasks before it are terminal */

    _Atomic(struct te_task *) levels[TE_TASK_LEVELS]; /* level 0 is first_task */
    struct te_task first_task;
};

/* Memory for one level of tasks. */
struct te_task_chunk {
    struct te_task_chunk *next;
    struct te_task tasks[];
};

struct te_batch_list {
    struct te_batch *first, *last;
};

enum { TE_LINGERING_BATCHES = 4096, TE_LINGERING_TASKS = 1024 * 1024, TE_LINGERING_DESCRIPTORS = 16 };

struct te_batch_table {
    const struct te_task_drive_ops *drive_ops; /* or NULL */
    struct te_metrics *metrics;                /* or NULL */
    uint32_t number;                           /* among the tables of the process */
    _Atomic int event_fd;                      /* -1 = none */
    _Atomic(struct te_batch *) slots[TE_SLOT_LEVELS];

    pthread_mutex_t lock; /* for what follows; held for a few instructions only */
    size_t slot_count;    /* ever used */
    struct te_batch *unused;
    struct te_task_chunk *unused_chunks[TE_TASK_LEVELS];
    struct te_batch_list lingering; /* oldest first */
    size_t lingering_count, lingering_tasks;
    struct te_batch
        *with_descriptor[TE_LINGERING_DESCRIPTORS]; /* the last ones that began to linger with an event_fd */
    unsigned next_with_descriptor;
    struct te_waiter *unused_waiters, *all_waiters;
};

/* Lock-free. The slot may be recycled at any moment: look at batch->id again before what was read is used. NULL: no
 * such batch. */
struct te_batch *te_batch_find(struct te_batch_table *table, uint64_t id);
/* Likewise with a pin, which te_batch_unpin() must take away. NULL with te_fail() called. */
struct te_batch *te_batch_pin(struct te_batch_table *table, uint64_t id);
void te_batch_unpin(struct te_batch *batch);

/* Puts the batch among those that linger. The caller pins it. */
void te_batch_linger(struct te_batch *batch);

/* Gives memory to the tasks below count. Under submit_lock. */
te_status te_batch_grow(struct te_batch *batch, size_t count);

/* Of a pinned batch, below what te_batch_grow() was asked for. */
static inline struct te_task *te_batch_task(struct te_batch *batch, size_t index)
{
    struct te_position position = te_position_of(index);

    return &atomic_load_explicit(&batch->levels[position.level], memory_order_acquire)[position.offset];
}

static inline bool te_task_is_terminal(const struct te_task *task)
{
    return atomic_load_explicit(&task->state, memory_order_acquire) != TE_TASK_WAITING;
}

/* A task of this submission will never end. NULL is fine. */
void te_submission_forget(struct te_submission *submission);

/* Index of the first task at or after from, below end, that is not terminal; end if there is none. Pinned. */
size_t te_batch_first_waiting(struct te_batch *batch, size_t from, size_t end);

/* Wakes and signals for what has ended, now or at te_task_signal_end(), and takes the caller's pin away. */
void te_batch_signal_and_unpin(struct te_batch *batch);

/* A thread that sleeps in te_batch_wait(). From a pool; its owner fills in the second group, then enters it. */
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

/* NULL: no memory. */
struct te_waiter *te_waiter_take(struct te_batch_table *table);
void te_waiter_give_back(struct te_batch_table *table, struct te_waiter *waiter);
void te_waiters_free(struct te_batch_table *table);

/* Between the two it is woken when it is due: signaled becomes 1, then its futex or its descriptor is signaled. What
 * ended before is for the waiter to look for after it has entered. */
void te_waiter_enter(struct te_batch *batch, struct te_waiter *waiter);
void te_waiter_leave(struct te_batch *batch, struct te_waiter *waiter);

#endif
