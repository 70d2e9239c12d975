/*
 * What is behind transfer_engine_t. A handle is not a pointer but a number that looks like none: a mark in the upper 16
 * bits (no valid address on the supported machines has them), a generation and a slot in a fixed table. So NULL,
 * invented and destroyed handles are refused without touching any memory but the table, and a slot that is used again
 * does not bring an old handle back to life.
 *
 * Life of a slot:
 *
 *   FREE       te_engine_handle_add      RESERVED   generation + 1
 *   RESERVED   te_engine_handle_add      LIVE       calls are let in
 *   LIVE       te_engine_handle_destroy  CLOSING    new calls are refused, those inside are waited for
 *   CLOSING    te_engine_handle_destroy  FREE       the runtime is gone
 *   LIVE       fork, in the child        INHERITED  calls are refused: the threads of the runtime are not there
 *   INHERITED  te_engine_handle_destroy  FREE       the runtime is left alone, its memory is not released
 *   others     fork, in the child        FREE
 *
 * Any function from any thread.
 */
#ifndef TE_SHIM_ENGINE_HANDLE_H
#define TE_SHIM_ENGINE_HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/runtime_ops.h"

enum { TE_MAX_ENGINES = 1024 }; /* live at the same time in one process */

/* Makes a handle for a runtime, which it owns from then on. TE_TOO_MANY_REQUESTS: no slot left. */
te_status te_engine_handle_add(const struct te_runtime_ops *ops, void *runtime, transfer_engine_t *handle);

/* A call that is inside an engine. */
struct te_engine_call {
    const struct te_runtime_ops *ops;
    void *runtime;
    _Atomic uint64_t *inside; /* NULL when the handle was refused */
};

/* Lets a call in: ops and runtime may be used until te_engine_leave. false, with te_status_message() set, if the handle
 * is not one of a live engine of this process; leaving is allowed then. Takes no lock and allocates nothing. */
bool te_engine_enter(transfer_engine_t handle, struct te_engine_call *call);
void te_engine_leave(struct te_engine_call *call);

/* Refuses new calls, waits for those inside, destroys the runtime. An inherited handle is only forgotten. false, with
 * te_status_message() set, for any other handle. */
bool te_engine_handle_destroy(transfer_engine_t handle);

/* Marks an engine to be destroyed by te_engine_handle_destroy_marked(). False as te_engine_enter. */
bool te_engine_handle_mark(transfer_engine_t handle);
void te_engine_handle_destroy_marked(void);

#endif
