/* Which runtime an engine gets: chosen when it is created and never again. */
#ifndef TE_SHIM_RUNTIME_CHOICE_H
#define TE_SHIM_RUNTIME_CHOICE_H

#include <stdbool.h>

#include "shim/runtime_ops.h"

/* The table of the runtime that the settings ask for, or NULL with te_status_message() set: there is none in this
 * library, or the settings cannot be read. */
const struct te_runtime_ops *te_runtime_choose(void);

/* Creates a runtime and its handle; arguments of createTransferEngine. NULL with te_status_message() set. */
transfer_engine_t te_runtime_create(const struct te_runtime_ops *ops, const char *connection, const char *local_name,
                                    const char *host, uint64_t rpc_port, int auto_discover);

#endif
