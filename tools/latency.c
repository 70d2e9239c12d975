#include "latency.h"

static unsigned int bucket_of(uint64_t value)
{
    if (value >> TE_LATENCY_STEP_BITS == 0)
        return (unsigned int)value;
    unsigned int power = 63 - (unsigned int)__builtin_clzll(value);
    unsigned int shift = power - TE_LATENCY_STEP_BITS;
    return ((shift + 1) << TE_LATENCY_STEP_BITS) + (unsigned int)(value >> shift) - (1U << TE_LATENCY_STEP_BITS);
}

/* The middle of a bucket. */
static double value_of(unsigned int bucket)
{
    unsigned int row = bucket >> TE_LATENCY_STEP_BITS;
    if (row == 0)
        return bucket;
    uint64_t step = (bucket & ((1U << TE_LATENCY_STEP_BITS) - 1)) + (1U << TE_LATENCY_STEP_BITS);
    return ((double)step + 0.5) * (double)(1ULL << (row - 1));
}

void te_latency_add(struct te_latency *latency, int64_t nanoseconds)
{
    if (nanoseconds < 0)
        nanoseconds = 0;
    latency->count++;
    latency->buckets[bucket_of((uint64_t)nanoseconds)]++;
    if (nanoseconds > latency->maximum_ns)
        latency->maximum_ns = nanoseconds;
}

void te_latency_merge(struct te_latency *into, const struct te_latency *from)
{
    into->count += from->count;
    for (unsigned int i = 0; i < TE_LATENCY_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    if (from->maximum_ns > into->maximum_ns)
        into->maximum_ns = from->maximum_ns;
}

double te_latency_quantile_ns(const struct te_latency *latency, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)latency->count), seen = 0;
    if (wanted >= latency->count)
        return (double)latency->maximum_ns;
    for (unsigned int i = 0; i < TE_LATENCY_BUCKETS; i++) {
        seen += latency->buckets[i];
        if (seen > wanted)
            return value_of(i);
    }
    return 0;
}
