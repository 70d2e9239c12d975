/* The public headers, read so that what they declare is exported. Only files in capi/ include this. */
#ifndef TE_CAPI_EXPORT_H
#define TE_CAPI_EXPORT_H

#pragma GCC visibility push(default)
#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"
#pragma GCC visibility pop

#include "shim/engine_handle.h"

/* Callers look at the count before the pointer. */
static inline notify_msg_t *te_no_notifications(int *size)
{
    if (size)
        *size = 0;
    return NULL;
}

/* An exported function that calls the same slot of the engine's runtime. */
#define TE_FORWARD(slot, name, result, without_engine, parameters, arguments)                                          \
    result name TE_LIST(transfer_engine_t engine, TE_LIST_BARE parameters)                                             \
    {                                                                                                                  \
        struct te_engine_call call __attribute__((cleanup(te_engine_leave)));                                          \
                                                                                                                       \
        if (!te_engine_enter(engine, &call))                                                                           \
            return without_engine;                                                                                     \
        return call.ops->slot TE_LIST(call.runtime, TE_LIST_BARE arguments);                                           \
    }
#define TE_NOTHING(...)

#endif
