/* The classic runtime as an ops table. */
#include "shim/runtime_ops.h"

#include "classic/runtime.h"

static void *create(const char *connection, const char *local_name, const char *host, uint64_t rpc_port,
                    int auto_discover)
{
    return te_classic_create(connection, local_name, host, rpc_port, auto_discover);
}

static void destroy(void *runtime)
{
    te_classic_destroy(runtime);
}

#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments)                                       \
    static result slot TE_LIST(void *runtime, TE_LIST_BARE parameters)                                                 \
    {                                                                                                                  \
        return te_classic_##slot TE_LIST(runtime, TE_LIST_BARE arguments);                                             \
    }
#include "shim/calls.def"

const struct te_runtime_ops te_classic_ops = {
    .name = "classic",
    .create = create,
    .destroy = destroy,
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments) .slot = slot,
#include "shim/calls.def"
};
