/* What a runtime looks like to the shim: one slot for every call, made from calls.def. */
#ifndef TE_SHIM_RUNTIME_OPS_H
#define TE_SHIM_RUNTIME_OPS_H

#include "core/status.h"
#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

/* (first, the rest): a parenthesised parameter or argument list of calls.def with one more in front. */
#define TE_LIST_BARE(...)        __VA_ARGS__
#define TE_LIST_JOIN(first, ...) (first __VA_OPT__(, ) __VA_ARGS__)
#define TE_LIST(first, ...)      TE_LIST_JOIN(first, __VA_ARGS__)

/* Every slot is filled; what a runtime cannot do answers the documented error. No slot is called with a NULL runtime,
 * after destroy, or by two threads while destroy runs. */
struct te_runtime_ops {
    const char *name;
    /* Arguments of createTransferEngine, the two texts not NULL. NULL with te_status_message() set when it fails. */
    void *(*create)(const char *connection, const char *local_name, const char *host, uint64_t rpc_port,
                    int auto_discover);
    void (*destroy)(void *runtime);
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments)                                       \
    result(*slot) TE_LIST(void *runtime, TE_LIST_BARE parameters);
#include "shim/calls.def"
};

extern const struct te_runtime_ops te_classic_ops;

#endif
