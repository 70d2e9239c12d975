/* The functions of transfer_engine_c.h. */
#include "capi/export.h"

#include <stdlib.h>

#include "core/log.h"
#include "core/status.h"
#include "shim/graceful_shutdown.h"
#include "shim/runtime_choice.h"

transfer_engine_t createTransferEngine(const char *metadata_conn_string, const char *local_server_name,
                                       const char *ip_or_host_name, uint64_t rpc_port, int auto_discover)
{
    const struct te_runtime_ops *ops = te_runtime_choose();

    if (!ops)
        return NULL;
    return te_runtime_create(ops, metadata_conn_string, local_server_name, ip_or_host_name, rpc_port, auto_discover);
}

void destroyTransferEngine(transfer_engine_t engine)
{
    if (engine && !te_engine_handle_destroy(engine))
        te_log(TE_LOG_WARNING, "destroyTransferEngine: %s", te_status_message());
}

void enableGracefulShutdown(transfer_engine_t engine)
{
    te_graceful_shutdown_enable(engine);
}

int freeNotifsMsgBuf(notify_msg_t *msg, int size)
{
    for (int i = 0; msg && i < size; i++) {
        free(msg[i].name);
        free(msg[i].msg);
    }
    free(msg);
    return TE_OK;
}

#define FORWARD_c(...)         TE_FORWARD(__VA_ARGS__)
#define FORWARD_ext(...)       TE_NOTHING()
#define FORWARD_ext_sized(...) TE_NOTHING()
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments)                                       \
    FORWARD_##kind(slot, name, result, without_engine, parameters, arguments)
#include "shim/calls.def"
