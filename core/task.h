/*
 * Batches, tasks and slices: the one implementation of the contract that callers see. Runtimes hand slices to
 * transports and report how they ended; everything a caller can ask (status, wait, event fd, free) is answered here.
 *
 * Life of a task (the public state is in brackets):
 *
 *   from       event                                     to           note
 *   ---------  ----------------------------------------  -----------  -----------------------------------------
 *   unused     te_batch_reserve                          reserved     not visible: status says "no such task"
 *   reserved   te_batch_abandon                          unused       submit failed, nothing was posted
 *   reserved   te_batch_publish                          WAITING(0)   if it has a length
 *   reserved   te_batch_publish                          COMPLETED    if its length is 0
 *   WAITING    te_slice_end, slices left                 WAITING      the worst outcome so far is remembered
 *   WAITING    te_slice_end, last, worst is succeeded    COMPLETED(4)
 *   WAITING    te_slice_end, last, worst is canceled     CANCELED(3)  FAILED unless a cancel was asked for
 *   WAITING    te_slice_end, last, worst is timed out    TIMEOUT(5)   reported so only if MC_SLICE_TIMEOUT asks
 *   WAITING    te_slice_end, last, worst is failed       FAILED(6)
 *   WAITING    te_task_request_cancel                    WAITING      a flag for transports; slices decide
 *   terminal   anything                                  unchanged
 *
 * Worse is further down: failure hides a time-out, a time-out hides a cancel.
 *
 * A slice is reported exactly once, and only when no byte of it can move any more. Hence a terminal task is quiet.
 *
 * Batch ids hold a slot number and a generation. The memory of slots and tasks is never returned to the system while
 * the table lives, so a stale id is found out by its generation and never dereferences freed memory. Status is a load.
 */
#ifndef TE_CORE_TASK_H
#define TE_CORE_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* The numbers of transfer_status.status. */
enum te_task_state {
    TE_TASK_WAITING = 0,
    TE_TASK_CANCELED = 3,
    TE_TASK_COMPLETED = 4,
    TE_TASK_TIMEOUT = 5,
    TE_TASK_FAILED = 6,
};

enum te_opcode { TE_OPCODE_READ = 0, TE_OPCODE_WRITE = 1 };
enum te_priority { TE_TASK_PRIORITY_HIGH, TE_TASK_PRIORITY_MEDIUM, TE_TASK_PRIORITY_LOW, TE_TASK_PRIORITY_COUNT };

enum te_slice_outcome {
    TE_SLICE_SUCCEEDED,
    TE_SLICE_CANCELED,
    TE_SLICE_TIMED_OUT,
    TE_SLICE_FAILED,
};

struct te_task;
struct te_batch;
struct te_batch_table;

/* A part of a task that one transport moves. The fields of the first group are set by the runtime before submission. */
struct te_slice {
    struct te_task *task;
    uint64_t local_address;
    uint64_t remote_address;
    uint64_t length;
    enum te_opcode opcode;
    enum te_priority priority;
    int64_t deadline_ns; /* monotonic; 0 = none */
    void *runtime_data;  /* the runtime's own: which segment, how often tried */
    int64_t wait_due_ns; /* likewise: when it has waited long enough; monotonic */
    uint32_t attempts;   /* likewise */

    /* The rest belongs to the transport that holds the slice. */
    uint32_t stage;
    struct te_slice *next;
};

struct te_submission; /* one submit call; internal to task.c */

struct te_task {
    _Atomic uint32_t state; /* enum te_task_state */
    _Atomic uint32_t slices_left;
    _Atomic uint32_t worst_outcome; /* enum te_slice_outcome */
    _Atomic bool cancel_requested;
    bool own_slices; /* slices are not &first_slice but were allocated */
    _Atomic uint64_t transferred_bytes;
    uint64_t length;
    int32_t segment_id;
    uint32_t slice_count;
    struct te_batch *batch;
    struct te_submission *submission;
    _Atomic(void *) driver;  /* what te_task_drive_function is called with; NULL = nothing to drive */
    struct te_slice *slices; /* slice_count of them */
    struct te_slice first_slice;
};

struct te_task_counts {
    size_t total, waiting, completed, failed, canceled, timed_out;
    uint64_t transferred_bytes;
};

/* Called by status queries and waits of a task that is not terminal, with the task's driver: moves the transfer on in
 * the calling thread, never blocks. */
typedef void (*te_task_drive_function)(void *driver);

/* What a wait does with the drivers of its tasks. All in the waiting thread, none may block. A driver must stay valid
 * as long as the table: a query may call it just after its last task has ended. */
struct pollfd;
struct te_task_drive_ops {
    te_task_drive_function drive;
    /* Before a sleep: claims the right to sleep on this driver's connection; fills in fd and events. False: it is
     * watched otherwise, and whoever does that ends the task. May be NULL: never claimed. */
    bool (*claim)(void *driver, struct pollfd *descriptor);
    /* After the sleep, for each claimed one, and after a drive if its descriptor was ready. */
    void (*unclaim)(void *driver);
};

/* NULL with te_fail() called: no memory. */
struct te_batch_table *te_batch_table_new(const struct te_task_drive_ops *drive_ops);
/* No other thread may use the table. Tasks that are not terminal are forgotten: end them first. */
void te_batch_table_free(struct te_batch_table *table);
/* Counts each task that ends with slices in metrics, before its state says that it has ended. Before the first submit;
 * metrics must stay valid as long as the table. NULL: counts none, as without this call. */
struct te_metrics;
void te_batch_table_measure(struct te_batch_table *table, struct te_metrics *metrics);

enum { TE_BATCH_MAX_TASKS = 16 * 1024 * 1024 };

/* An empty batch for up to capacity tasks (0 is legal). TE_INVALID_ARGUMENT above TE_BATCH_MAX_TASKS; TE_MEMORY. */
te_status te_batch_allocate(struct te_batch_table *table, size_t capacity, uint64_t *id);

/* TE_OK when all tasks are terminal: the id is gone. TE_BATCH_BUSY otherwise, also while a submit is between reserve
 * and publish: the batch takes no more tasks, and once its last task has ended it lingers: status queries are answered,
 * a second release is TE_OK, until its memory is wanted for others (thousands of batches later). TE_INVALID_ARGUMENT:
 * no such batch. Never blocks. */
te_status te_batch_release(struct te_batch_table *table, uint64_t id);

/* Reserves the next count tasks of the batch for one submit call, in order; the caller fills them in (length,
 * segment_id, slices) and then publishes or abandons. Submits to one batch from several threads are serialised here:
 * the batch is locked from reserve to publish or abandon, which must follow in the same thread. TE_INVALID_ARGUMENT: no
 * such batch, or released. TE_TOO_MANY_REQUESTS: over capacity; nothing is reserved. TE_MEMORY. */
struct te_reservation {
    struct te_batch *batch;
    size_t first, count;
    void *state;
};
te_status te_batch_reserve(struct te_batch_table *table, uint64_t id, size_t count, struct te_reservation *reservation);
struct te_task *te_reservation_task(const struct te_reservation *reservation, size_t index);
void te_batch_abandon(struct te_reservation *reservation);

/* What happens when all tasks of one submit call have ended. Called once, in whichever thread ended the last task, and
 * must not block; succeeded is true if all of them completed. */
typedef void (*te_submission_done_function)(void *data, bool succeeded);

/* Makes the tasks visible as WAITING (COMPLETED those of length 0). Afterwards the slices may be given to transports.
 * done may be NULL; without a task that has a length it is called before this returns. A task with slice_count 0 and a
 * length has no slices to wait for: such a one is a programming error. */
void te_batch_publish(struct te_reservation *reservation, te_submission_done_function done, void *data);

/* Reports the end of a slice; bytes count towards transferred_bytes if it succeeded. After the call neither the slice
 * nor, if it was the last one, the task may be touched. Wakes waiters and signals event descriptors (see
 * te_task_signal_begin). */
void te_slice_end(struct te_slice *slice, enum te_slice_outcome outcome, uint64_t bytes);

/* Between begin and end, wake-ups that this thread causes are gathered and sent once per batch. May be nested. */
void te_task_signal_begin(void);
void te_task_signal_end(void);

/* All of these: TE_INVALID_ARGUMENT for an id or a task that does not exist. Neither waits for anything;
 * te_task_status takes no lock of its own, but the drive function may. */
te_status te_task_status(struct te_batch_table *table, uint64_t id, size_t index, enum te_task_state *state,
                         uint64_t *bytes);
te_status te_batch_counts(struct te_batch_table *table, uint64_t id, struct te_task_counts *counts);

/* Sleeps until the task, or all tasks published so far (index = SIZE_MAX), are terminal. timeout_ns < 0: for ever.
 * TE_TIMED_OUT. Moves transfers on itself while it waits. */
te_status te_batch_wait(struct te_batch_table *table, uint64_t id, size_t index, int64_t timeout_ns);

/* Sets the flag on one task or all (SIZE_MAX) and calls visit for each that is not terminal, so that the runtime tells
 * the transport. TE_OK also when all were terminal. */
te_status te_task_request_cancel(struct te_batch_table *table, uint64_t id, size_t index,
                                 void (*visit)(struct te_task *, void *), void *data);

/* An eventfd that is readable after a task of the batch (of any batch: id 0) has become terminal since it was last
 * read. Owned by the table; closed with the batch or the table. Negative status on failure. */
int te_batch_table_event_fd(struct te_batch_table *table, uint64_t id);

#endif
