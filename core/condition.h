/* Condition variables with deadlines of te_now_ns(). */
#ifndef TE_CORE_CONDITION_H
#define TE_CORE_CONDITION_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"

static inline void te_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* False once the deadline has passed. */
static inline bool te_condition_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = deadline_ns / TE_NS_PER_SECOND,
        .tv_nsec = deadline_ns % TE_NS_PER_SECOND,
    };

    return pthread_cond_timedwait(condition, lock, &deadline) != ETIMEDOUT;
}

#endif
