#include "shim/runtime_choice.h"

#include "core/log.h"
#include "core/settings.h"
#include "core/status.h"
#include "shim/engine_handle.h"

const struct te_runtime_ops *te_runtime_choose(void)
{
    struct te_settings settings;
    bool use_tent;

    if (te_settings_load(&settings) != TE_OK)
        return NULL;
    use_tent = settings.use_tent;
    te_settings_clear(&settings);
    if (use_tent) {
        te_fail(TE_NOT_IMPLEMENTED,
                "MC_USE_TENT asks for the TENT runtime, which this library does not contain; unset it "
                "to use the classic runtime");
        te_log(TE_LOG_ERROR, "%s", te_status_message());
        return NULL;
    }
    return &te_classic_ops;
}

transfer_engine_t te_runtime_create(const struct te_runtime_ops *ops, const char *connection, const char *local_name,
                                    const char *host, uint64_t rpc_port, int auto_discover)
{
    transfer_engine_t handle;
    void *runtime;

    if (!connection || !local_name) {
        te_fail(TE_INVALID_ARGUMENT, "createTransferEngine needs %s",
                connection ? "a name for the local server" : "a metadata connection string");
        return NULL;
    }
    runtime = ops->create(connection, local_name, host, rpc_port, auto_discover);
    if (!runtime)
        return NULL;
    if (te_engine_handle_add(ops, runtime, &handle) != TE_OK) {
        ops->destroy(runtime);
        return NULL;
    }
    return handle;
}
