/*
 * The state that one engine's runtime, transports and control services share.
 *
 * Life: te_engine_new() starts threads and answers peers; the runtime installs transports; te_engine_stop() ends every
 * activity but leaves the memory, so that a transport can still be asked about its endpoints; te_engine_free().
 */
#ifndef TE_CORE_ENGINE_H
#define TE_CORE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dialect.h"
#include "core/memory_registry.h"
#include "core/net/address.h"
#include "core/net/reactor.h"
#include "core/segment.h"
#include "core/settings.h"
#include "core/status.h"
#include "core/task.h"

struct te_control;
struct te_inbox;
struct te_local_segment;
struct te_metrics;
struct te_notifier;
struct te_peer_memory;
struct te_store;
struct te_worker_pool;

enum { TE_ENGINE_DIALECTS = 2 };

struct te_engine {
    struct te_settings settings;
    struct te_registry *registry;
    struct te_batch_table *batches;
    struct te_reactor **reactors; /* reactors[0] also runs the control port */
    size_t reactor_count;

    char host[TE_HOST_MAX]; /* as the local name gives it, without brackets; may be empty */
    uint16_t port;          /* of the control port */
    char name[TE_ADDRESS_TEXT_MAX];

    const struct te_dialect_ops *dialects[TE_ENGINE_DIALECTS];
    size_t dialect_count;
    struct te_peer_memory *peers;      /* core/peer.h */
    struct te_store *store;            /* core/stores/store.h */
    struct te_segment_table *segments; /* core/segment.h */
    struct te_local_segment *local;    /* core/local_segment.h */
    struct te_worker_pool *workers;    /* core/worker.h */
    struct te_inbox *inbox;            /* core/notification.h */
    struct te_notifier *notifier;      /* core/notification.h */
    struct te_control *control;        /* core/control.h */
    struct te_metrics *metrics;        /* core/metrics.h; NULL without MC_TE_METRIC */
    int closing_descriptor;            /* becomes readable when the engine closes: ends blocking control calls */
    _Atomic bool closing;
};

struct te_engine_options {
    const char *connection; /* where segments are looked up */
    const char *local_name;
    const struct te_task_drive_ops *drive_ops;    /* may be NULL */
    const struct te_dialect_ops *const *dialects; /* in the order in which connections and unknown peers are tried */
    size_t dialect_count;                         /* at most TE_ENGINE_DIALECTS */
    struct te_segment_hooks segment_hooks;
};

/* Reads the settings, raises the soft limit of open files to the hard one, binds the control port and answers on it
 * before it returns. Leaves nothing behind when it fails. */
te_status te_engine_new(const struct te_engine_options *options, struct te_engine **engine);

/* Sends what notifications wait (at most flush_ns), closes the control port, ends blocking control calls and waits for
 * the workers. Once only. */
void te_engine_stop(struct te_engine *engine, int64_t flush_ns);

/* After te_engine_stop(), and after all transports were destroyed. */
void te_engine_free(struct te_engine *engine);

#endif
