/* A histogram of durations in nanoseconds: constant memory, values kept to better than 1 %. */
#ifndef TE_TOOLS_LATENCY_H
#define TE_TOOLS_LATENCY_H

#include <stdint.h>

enum { TE_LATENCY_STEP_BITS = 7, TE_LATENCY_BUCKETS = (64 - TE_LATENCY_STEP_BITS + 1) << TE_LATENCY_STEP_BITS };

struct te_latency {
    uint64_t count;
    int64_t maximum_ns;
    uint64_t buckets[TE_LATENCY_BUCKETS]; /* each power of two is cut into 2^TE_LATENCY_STEP_BITS steps */
};

void te_latency_add(struct te_latency *latency, int64_t nanoseconds);
void te_latency_merge(struct te_latency *into, const struct te_latency *from);
/* The smallest duration that the given share (0..1) of all does not exceed; 0 if there is none. */
double te_latency_quantile_ns(const struct te_latency *latency, double share);

#endif
