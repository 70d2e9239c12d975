#ifndef TE_CORE_CLOCK_H
#define TE_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TE_NS_PER_SECOND INT64_C(1000000000)
#define TE_NS_PER_MS     INT64_C(1000000)

/* Monotonic nanoseconds; costs no system call. */
static inline int64_t te_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * TE_NS_PER_SECOND + now.tv_nsec;
}

#endif
