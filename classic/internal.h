/*
 * The insides of the classic runtime.
 *
 *   runtime.c   creation, transports, names, topology, destruction
 *   memory.c    registration
 *   segments.c  opening segments, and where the slices of a segment go
 *   transfer.c  submitting: requests become slices
 *   outcome.c   what becomes of a slice that a transport gave back: done, failed, or tried once more
 *   batches.c   status, waiting, canceling
 *   notify.c    notifications
 */
#ifndef TE_CLASSIC_INTERNAL_H
#define TE_CLASSIC_INTERNAL_H

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>

#include "classic/runtime.h"
#include "core/engine.h"
#include "core/topology.h"
#include "transports/transport.h"

enum { TRANSPORTS_MAX = 4 };

/* An installed transport; the handle that installTransport returns is its address. */
struct installed {
    const struct te_transport_ops *ops;
    struct te_transport *transport;
};

struct te_classic {
    struct te_engine *engine;
    pthread_mutex_t install_lock;
    struct te_topology *topology; /* under install_lock */
    struct installed installed[TRANSPORTS_MAX];
    _Atomic size_t installed_count; /* entries below it never change */
    _Atomic bool closing;           /* nothing is tried again */
    _Atomic uint64_t cancel_count;  /* how often something was canceled */
    struct te_timer expiry_timer;   /* for slices that wait for a descriptor; reactor's thread */
    struct te_timer refresh_timer;  /* reactor's thread */
};

/* Where the slices of one view go; its attachment. */
struct route {
    const struct installed *installed;
    struct te_endpoint *endpoint; /* NULL: the peer's data host cannot be found out */
};

/* segments.c: the hooks of struct te_segment_hooks; data is struct te_classic. */
void *classic_attach(void *data, const struct te_segment_view *view);
void classic_detach(void *data, void *attachment);
/* How long a call to a peer may take by the settings. */
int64_t classic_call_ns(const struct te_classic *classic);
/* The own segment, as described, leads to the transport that was just installed. */
void classic_open_local(struct te_classic *classic, struct te_segment_descriptor *descriptor);

/* outcome.c */

/* slice.runtime_data is the view it was sent with (one reference), or NULL if it has not been sent; slice.attempts
 * holds ATTEMPT_LAST and above it the number of the latest fetch when it was first submitted. */
enum {
    ATTEMPT_LAST = 1 << 0, /* it is not tried again */
    ATTEMPT_BITS = 32 - TE_FETCH_NUMBER_BITS,
};

/* A slice comes back from its transport; see te_slice_finished_function. */
void classic_slice_finished(struct te_slice *slice, enum te_slice_result result, uint64_t bytes);
/* Slices that waited for a descriptor go on; see struct te_segment_hooks. */
void classic_resume(void *data, struct te_slice *slices, te_status status, struct te_segment_view *view);
/* Ends slices that were taken out of a waiting list. */
void classic_end_waiting(struct te_classic *classic, struct te_slice *slices, enum te_slice_result result);
/* Lets slices of one segment wait for a fetch newer than number after, but no longer than a call may take. */
void classic_await(struct te_classic *classic, struct te_segment *segment, struct te_slice *slices, uint32_t after);
/* Sends slices, each of which holds a reference to view in runtime_data. */
void classic_send(struct te_segment_view *view, struct te_slice *slices);
/* Ends those that wait although their task is canceled. */
void classic_end_canceled(struct te_classic *classic);
/* Fires for expiry_timer. */
void classic_expire(struct te_timer *timer);

#endif
