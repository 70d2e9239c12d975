/* Additions to transfer_engine_c.h, on the same handles. (The shape only; documented by whoever owns capi/.) */
#ifndef TRANSFER_ENGINE_EXT_H
#define TRANSFER_ENGINE_EXT_H

#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TE_PRIORITY_DEFAULT (-1) /* medium */

typedef struct te_submit_options {
    size_t struct_size;
    int32_t priority;           /* 0 high, 1 medium, 2 low, -1 default */
    uint32_t reserved;          /* 0 */
    uint64_t deadline_ns;       /* from now; 0 = none */
    const char *transport_hint; /* NULL = any; else a protocol that must be used */
} te_submit_options_t;

typedef struct te_batch_status {
    size_t struct_size;
    int32_t status;             /* WAITING until all tasks are terminal, then COMPLETED, FAILED, CANCELED or TIMEOUT */
    uint32_t reserved;
    size_t tasks, waiting, completed, failed, canceled, timed_out;
    uint64_t transferred_bytes;
} te_batch_status_t;

#ifdef __cplusplus
}
#endif

#endif
