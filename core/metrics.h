/*
 * The statistics line (classic specification 8.4): how much the tasks of an engine moved in each interval, and how long
 * they took from submit to end. The line begins like that of Mooncake's engine, so that what reads the one reads the
 * other. An interval in which no task ended has no line.
 */
#ifndef TE_CORE_METRICS_H
#define TE_CORE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/task.h"

struct te_metrics;
struct te_reactor;

/* All counters are 0. The name is copied. */
struct te_metrics *te_metrics_new(const char *engine_name);
/* No other thread may use it, and it must have been stopped if it was started. NULL is fine. */
void te_metrics_free(struct te_metrics *metrics);

/* Counts a task that has ended. Any thread, without a lock. If it did not complete, it only counts as failed. */
void te_metrics_count(struct te_metrics *metrics, enum te_opcode opcode, bool completed, uint64_t bytes,
                      int64_t latency_ns);

/* The line for what was counted since the last call, for g_free(); NULL: nothing was. A task that is counted meanwhile
 * may be in this line in part and in the next with the rest. elapsed_ns > 0: since the last call. */
char *te_metrics_take_line(struct te_metrics *metrics, int64_t elapsed_ns);

/* From now on logs the line at each interval, in the reactor's thread. */
void te_metrics_start(struct te_metrics *metrics, struct te_reactor *reactor, int64_t interval_ns);
/* Afterwards none is logged any more; waits for one that is being logged. While the reactor still runs. */
void te_metrics_stop(struct te_metrics *metrics);

#endif
