/* enableGracefulShutdown: SIGTERM, SIGINT and a normal exit destroy the engines that asked for it. Nothing of this
 * exists in a process until the first call. */
#ifndef TE_SHIM_GRACEFUL_SHUTDOWN_H
#define TE_SHIM_GRACEFUL_SHUTDOWN_H

#include "shim/runtime_ops.h"

/* Adds an engine. The first call of a process installs the handlers, the exit handler and the thread that does the
 * work, because destroying is nothing for a signal handler. In a forked child that has not called it again, either
 * signal ends the child at once. */
te_status te_graceful_shutdown_enable(transfer_engine_t engine);

#endif
