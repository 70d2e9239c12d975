/*
 * A way to move bytes. One const ops table each; runtimes choose among them by name (the TENT runtime to come: and
 * by capability) and never look inside.
 *
 * A transport ends every slice exactly once through the callback given at submission, and only when no byte of it can
 * move any more in either process, as far as it can see to that (capability TE_TRANSPORT_FENCES_WRITES).
 */
#ifndef TE_TRANSPORTS_TRANSPORT_H
#define TE_TRANSPORTS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "core/task.h"

struct te_engine;
struct te_segment_descriptor;
struct te_transport;
struct te_endpoint;

/* For a runtime that selects; classic takes the transport that is installed and looks at none. */
enum te_transport_capability {
    TE_TRANSPORT_READ = 1 << 0,
    TE_TRANSPORT_WRITE = 1 << 1,
    TE_TRANSPORT_FENCES_WRITES = 1 << 2,
    TE_TRANSPORT_NEEDS_LOCAL_REGISTRATION = 1 << 3,
};

/* How a slice left the transport. The runtime turns it into a te_slice_outcome or tries again. */
enum te_slice_result {
    TE_RESULT_SUCCEEDED,
    TE_RESULT_REJECTED,    /* the peer refused the range; nothing was moved */
    TE_RESULT_NOT_SENT,    /* the peer certainly has not seen the request (no connection); trying again is safe */
    TE_RESULT_BROKEN,      /* the connection broke; a write may or may not have been applied */
    TE_RESULT_LOCAL_FAULT, /* the local address is not accessible */
    TE_RESULT_TIMED_OUT,   /* no progress, or the deadline passed */
    TE_RESULT_CANCELED,
};

/* Called once per slice, in any thread, with no lock held that te_transport_ops functions need; must not block. It owns
 * the slice again. */
typedef void (*te_slice_finished_function)(struct te_slice *slice, enum te_slice_result result, uint64_t bytes);

struct te_transport_ops {
    const char *name;
    uint32_t capabilities;

    /* Starts serving peers and gets ready to submit. Adds what peers need to know through describe(). */
    te_status (*create)(struct te_engine *engine, te_slice_finished_function finished, struct te_transport **transport);
    /* Ends every slice it still holds (TE_RESULT_CANCELED, fenced), stops serving, frees. Bounded by the fence
     * time-out. */
    void (*destroy)(struct te_transport *transport);

    /* Fills in the transport's part of the local descriptor (ports, versions). */
    void (*describe)(struct te_transport *transport, struct te_segment_descriptor *descriptor);

    /* Where the slices of one remote segment go. Reference counted by the transport: equal addresses share connections.
     * Does no I/O beyond what a numeric address needs; resolved_host is a numeric address. NULL: the descriptor does
     * not offer this transport. */
    struct te_endpoint *(*endpoint_open)(struct te_transport *transport, const struct te_segment_descriptor *descriptor,
                                         const char *resolved_host);
    void (*endpoint_close)(struct te_endpoint *endpoint);
    /* Whether the descriptor still leads to the same endpoint. */
    bool (*endpoint_matches)(const struct te_endpoint *endpoint, const struct te_segment_descriptor *descriptor,
                             const char *resolved_host);

    /* Takes a list of slices linked by next. Never blocks, never fails: what cannot be sent is finished with a result.
     */
    void (*submit)(struct te_endpoint *endpoint, struct te_slice *slices);

    /* Tasks have had cancel_requested set: ends their slices soon, fenced. Once for any number of tasks. Never blocks.
     */
    void (*cancel)(struct te_transport *transport);

    /* For te_batch_table: moving a transfer on in the calling thread. */
    struct te_task_drive_ops drive;
};

#endif
