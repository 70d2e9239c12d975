/* The state that one engine's runtime, transports and control services share. */
#ifndef TE_CORE_ENGINE_H
#define TE_CORE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dialect.h"
#include "core/memory_registry.h"
#include "core/net/reactor.h"
#include "core/settings.h"
#include "core/status.h"
#include "core/task.h"

struct te_engine {
    struct te_settings settings;
    struct te_registry *registry;
    struct te_batch_table *batches;
    struct te_reactor **reactors; /* reactors[0] also runs the control port */
    size_t reactor_count;
};

#endif
