/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Additions to transfer_engine_c.h, on the same engines, batches and segments. The rules at the top of that header hold
 * here too. Every function that returns an int returns a negative ERR_* or TE_ERR_* number on failure and says below
 * what it returns otherwise.
 *
 * Structures that may grow start with struct_size, which the caller sets to sizeof the structure as it knows it. A
 * caller's structure that is larger than the library knows is accepted as long as the rest is zero.
 */
#ifndef TRANSFER_ENGINE_EXT_H
#define TRANSFER_ENGINE_EXT_H

#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The negative number space (classic specification 1.2). */
#ifndef ERR_INVALID_ARGUMENT
#define ERR_INVALID_ARGUMENT (-1)
#endif
#ifndef ERR_TOO_MANY_REQUESTS
#define ERR_TOO_MANY_REQUESTS (-2)
#endif
#ifndef ERR_ADDRESS_NOT_REGISTERED
#define ERR_ADDRESS_NOT_REGISTERED (-3)
#endif
#ifndef ERR_BATCH_BUSY
#define ERR_BATCH_BUSY (-4)
#endif
#ifndef ERR_DEVICE_NOT_FOUND
#define ERR_DEVICE_NOT_FOUND (-6)
#endif
#ifndef ERR_ADDRESS_OVERLAPPED
#define ERR_ADDRESS_OVERLAPPED (-7)
#endif
#ifndef ERR_DNS
#define ERR_DNS (-101)
#endif
#ifndef ERR_SOCKET
#define ERR_SOCKET (-102)
#endif
#ifndef ERR_MALFORMED_JSON
#define ERR_MALFORMED_JSON (-103)
#endif
#ifndef ERR_REJECT_HANDSHAKE
#define ERR_REJECT_HANDSHAKE (-104)
#endif
#ifndef ERR_METADATA
#define ERR_METADATA (-200)
#endif
#ifndef ERR_ENDPOINT
#define ERR_ENDPOINT (-201)
#endif
#ifndef ERR_CONTEXT
#define ERR_CONTEXT (-202)
#endif
#ifndef ERR_NUMA
#define ERR_NUMA (-300)
#endif
#ifndef ERR_CLOCK
#define ERR_CLOCK (-301)
#endif
#ifndef ERR_MEMORY
#define ERR_MEMORY (-302)
#endif
#ifndef ERR_NOT_IMPLEMENTED
#define ERR_NOT_IMPLEMENTED (-303)
#endif
#define TE_ERR_NOT_SUPPORTED_TRANSPORT (-8)   /* what submitTransfer says as 8 */
#define TE_ERR_TIMED_OUT               (-400) /* a wait ran into its timeout */

/* ---- Engine ----------------------------------------------------------------------------------------------------- */

/*
 * The port that peers reach the engine by, 1..65535: the number at the end of what getLocalIpAndPort writes. Does not
 * block. -1 no engine.
 */
int te_port(transfer_engine_t engine);

/*
 * Asks the engine of that name (host:port) whether it is there; opens no segment and disturbs no transfer. Blocks for
 * one control call.
 *
 * 0 it answered; -1 empty name; -101 the name cannot be resolved; -102 refused, closed or not answered in time; -103,
 * -200 it answered something else.
 */
int te_probe(transfer_engine_t engine, const char *name);

/* ---- Submitting ------------------------------------------------------------------------------------------------- */

#define TE_PRIORITY_DEFAULT 0 /* medium */
#define TE_PRIORITY_HIGH    1
#define TE_PRIORITY_MEDIUM  2
#define TE_PRIORITY_LOW     3

/* Options of one submit. All zero but struct_size means the default priority, no deadline, any transport. */
typedef struct te_submit_options {
    size_t struct_size;
    int32_t priority;           /* TE_PRIORITY_* */
    uint32_t reserved;          /* 0 */
    uint64_t deadline_ns;       /* from now on; a task that has not ended by then is stopped and ends as STATUS_FAILED,
                                   or as STATUS_TIMEOUT where MC_SLICE_TIMEOUT asks for it; 0 = none */
    const char *transport_hint; /* protocol that must be used, as named to installTransport; NULL = any */
} te_submit_options_t;

/*
 * As submitTransfer, with options (NULL: the same as submitTransfer). Neither entries nor options are kept.
 *
 * 0; -1 what submitTransfer answers 1 for, or a value in options that is out of range, or options larger than known
 * whose rest is not zero; -2 more tasks than the batch has room for; -8 the transport asked for is not installed or
 * does not reach the segment; -302 no memory. After a failure nothing of the call was started. Does not block.
 */
int te_submit(transfer_engine_t engine, batch_id_t batch, const struct transfer_request *requests, size_t count,
              const te_submit_options_t *options);

/* ---- Status and waiting ----------------------------------------------------------------------------------------- */

/* A batch as a whole. */
typedef struct te_batch_status {
    size_t struct_size;
    int32_t status;    /* STATUS_WAITING while a task is under way; then STATUS_FAILED if one failed, else
                          STATUS_TIMEOUT if one timed out, else STATUS_CANCELED if one was canceled, else
                          STATUS_COMPLETED (also when the batch has no tasks) */
    uint32_t reserved; /* set to 0 */
    size_t tasks;      /* submitted so far; the sum of the five below */
    size_t waiting, completed, failed, canceled, timed_out;
    uint64_t transferred_bytes; /* sum over the tasks */
} te_batch_status_t;

/*
 * Counts the tasks of a batch by their states. struct_size is set by the caller; what a larger structure has beyond the
 * known part is set to zero. Tasks may end meanwhile; once none is waiting, the numbers are final until the next
 * submit. Does not block; reads counters, so that the size of the batch does not matter.
 *
 * 0; -1 unknown batch, status NULL, or struct_size smaller than the structure above.
 */
int te_batch_status(transfer_engine_t engine, batch_id_t batch, te_batch_status_t *status);

/*
 * Waits until all tasks submitted to the batch so far have ended, however they ended. timeout_ns: nanoseconds; negative
 * waits without limit (tasks end by themselves within bounded time); 0 only looks. The waiting thread moves transfers
 * on itself. Several threads may wait for the same batch; it must not be freed meanwhile.
 *
 * 0 all have ended; -400 (TE_ERR_TIMED_OUT) not within the time; -1 unknown batch.
 */
int te_wait_batch(transfer_engine_t engine, batch_id_t batch, int64_t timeout_ns);

/*
 * As te_wait_batch for one task. status may be NULL; on success it holds how the task ended.
 *
 * 0 the task has ended; -400 (TE_ERR_TIMED_OUT) not within the time, status untouched; -1 unknown batch or task.
 */
int te_wait_task(transfer_engine_t engine, batch_id_t batch, size_t task, int64_t timeout_ns,
                 struct transfer_status *status);

/*
 * A descriptor for poll, select or epoll that is readable when a task of the engine has ended since it was last read.
 * Reading takes 8 bytes (an eventfd) and never blocks. It belongs to the engine, is the same each time, is closed with
 * it, and must not be closed by the caller. Read first, then query: an end between the two makes it readable again.
 * The first call creates it: what ended before does not count, except that an end whose report is still under way may
 * make it readable once. Does not block.
 *
 * The descriptor (0 or above); -1 no engine; -302 no descriptor left.
 */
int te_event_fd(transfer_engine_t engine);

/*
 * As te_event_fd for the tasks of one batch. The descriptor belongs to the batch and is closed with it. If a task had
 * already ended it is readable at once.
 *
 * The descriptor (0 or above); -1 unknown batch; -302 no descriptor left.
 */
int te_batch_event_fd(transfer_engine_t engine, batch_id_t batch);

/* ---- Cancelling ------------------------------------------------------------------------------------------------- */

/*
 * Asks for a task to be stopped. It ends as STATUS_CANCELED, or as STATUS_COMPLETED or STATUS_FAILED if that came
 * first; as always, nothing of it moves once it has ended. Until then it reads STATUS_WAITING: wait for it before
 * reusing the memory. Part of the bytes may have arrived. Does not block. A read ends at once. A write on its way ends
 * with the peer's answer; if none comes, the connection is reset after TE_TCP_FENCE_TIMEOUT_MS; after
 * TE_TCP_SILENCE_TIMEOUT_MS if other bytes keep coming, and while writes that are still wanted are on it, with these.
 *
 * 0, also for a task that has ended; -1 unknown batch or task.
 */
int te_cancel_task(transfer_engine_t engine, batch_id_t batch, size_t task);

/* As te_cancel_task for all tasks submitted to the batch so far. 0; -1 unknown batch. */
int te_cancel_batch(transfer_engine_t engine, batch_id_t batch);

/* ---- What a peer has registered --------------------------------------------------------------------------------- */

/*
 * Lists the regions that the owner of a segment has registered for remote access, in the order of registration, as it
 * says now; addr is an address in its process. *count is the room in buffers when calling and the number of regions
 * afterwards; when that is larger, only the first ones were filled in. buffers may be NULL when *count is 0. For
 * LOCAL_SEGMENT the engine's own regions. Blocks as openSegmentNoCache does.
 *
 * 0; -1 count NULL, or buffers NULL with *count not 0; -200 unknown segment, or the peer's answer is no description of
 * a segment; -101, -102, -103 as of te_probe; -302 no memory.
 */
int te_remote_buffers(transfer_engine_t engine, segment_id_t segment, buffer_entry_t *buffers, size_t *count);

/*
 * The address of the first region that the engine of that name (host:port, or a segment that is open under it) has
 * registered, as it says now. Blocks as openSegmentNoCache does.
 *
 * 0; -1 empty name or address NULL; -3 it has registered nothing; -101, -102, -103, -200, -302 as of te_remote_buffers.
 */
int te_first_buffer_address(transfer_engine_t engine, const char *name, uint64_t *address);

/* ---- Settings --------------------------------------------------------------------------------------------------- */

/* Where the value of a setting comes from. */
#define TE_SETTING_FROM_DEFAULT     0
#define TE_SETTING_FROM_FILE        1 /* the one that TE_CONFIG names */
#define TE_SETTING_FROM_ENVIRONMENT 2

#define TE_SETTING_VALUE_MAX 1024

/* One setting of the library. The texts that are pointed at are static and never NULL, alias excepted. */
typedef struct te_setting {
    size_t struct_size;
    const char *name;          /* the variable's; one that ends with _ stands for all names that begin with it */
    const char *alias;         /* another name, which counts where the first is not given; NULL = none */
    const char *group;         /* a heading to list it under, such as "Transport tcp" */
    const char *accepted;      /* the values it takes, for people, such as "1..16"; "" where has_effect is 0 */
    const char *default_value; /* "" = none; help says what counts where such a setting is not given */
    const char *help;          /* what it means, in one line; where has_effect is 0: why it has none */
    int32_t has_effect;        /* 0: the name is known, but this library does nothing with it; else 1 */
    int32_t source;            /* TE_SETTING_FROM_*: where the value comes from; where has_effect is 0: where one is
                                  given */
    char value[TE_SETTING_VALUE_MAX]; /* what an engine that is created now would take, written as default_value is;
                                         "" = none, and where has_effect is 0; cut off where it is too long */
} te_setting_t;

/*
 * Tells what the library knows about the setting of that index, counted from 0, and which value an engine would take
 * that is created now in this process; those that exist keep theirs. Needs no engine. struct_size is set by the caller;
 * what a larger structure has beyond the known part is set to zero. Which settings there are, and in which order, may
 * change with the version of the library. From any thread; the environment must not be changed meanwhile. Reads the
 * settings file each time and blocks for that only. Values and names that are wrong are logged as when an engine is
 * created, once per process.
 *
 * 1; 0 there is no setting of that index; -1 setting NULL, struct_size smaller than the structure above, or the
 * settings file cannot be used, so that no engine can be created either; -302 no memory. Only after 1 has setting been
 * written to.
 */
int te_setting_at(size_t index, te_setting_t *setting);

/* ---- The library ------------------------------------------------------------------------------------------------ */

/*
 * The reason of the last failure in the calling thread, in words, or "". Never NULL. Belongs to the library and stays
 * valid until the thread's next failing call or its end. A call that succeeds does not clear it.
 */
const char *te_last_error(void);

/* Version of the library, "major.minor.patch". Static. */
const char *te_version(void);

/* Levels of messages. */
#define TE_LOG_LEVEL_TRACE   0
#define TE_LOG_LEVEL_INFO    1
#define TE_LOG_LEVEL_WARNING 2
#define TE_LOG_LEVEL_ERROR   3

/* Gets one message: a level, one line of text without line break, and the pointer given when it was set. The text is
 * valid during the call. Runs in whichever thread has something to say, also in several at once; it must not block for
 * long and must not call functions of an engine. */
typedef void (*te_log_callback_t)(int level, const char *message, void *user_data);

/*
 * Sends every message of the library to a function instead of GLib's log (domain "transfer-engine", standard error
 * unless the program routes it). NULL restores that. For the whole process, at any time. When it returns, the function
 * set before may still be running in another thread for a message it was given earlier: do not unload or free what it
 * uses at once. Messages below MC_LOG_LEVEL are dropped before.
 */
void te_set_log_callback(te_log_callback_t callback, void *user_data);

#ifdef __cplusplus
}
#endif

#endif
