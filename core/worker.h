/*
 * Threads for calls that block: control calls to peers, name resolution. They come when there is work, up to a limit,
 * and leave when there has been none for a while. (GLib's pool would do, but the thread that GLib starts threads from
 * stays in the process for ever.)
 *
 * A call to a dead peer holds its thread until it times out, so that with enough dead peers any number of threads is
 * held. So that these hold up nobody else, the rank of a job says what it may take: jobs of one rank and of those
 * behind it run in half as many threads as those of the rank before, and begin only when no job of a rank before waits.
 * Peers that have died are found out one time-out later and then cannot take the threads of the others.
 */
#ifndef TE_CORE_WORKER_H
#define TE_CORE_WORKER_H

#include "core/status.h"

struct te_worker_pool;

enum te_work_rank {
    TE_WORK_PROMPT,          /* somebody waits for it */
    TE_WORK_PROMPT_DOUBTFUL, /* likewise, but the last call to this peer has failed */
    TE_WORK_BACKGROUND,      /* nobody depends on it */
    TE_WORK_BACKGROUND_DOUBTFUL,
    TE_WORK_RANKS,
};

/* One thread is started at once, so that work given later is always done. TE_MEMORY when it cannot be. */
te_status te_worker_pool_new(unsigned maximum_threads, struct te_worker_pool **pool);

/* Does what is still waiting, ends all threads and frees. From now on only the pool's own jobs may give it more. NULL
 * is fine. */
void te_worker_pool_free(struct te_worker_pool *pool);

/* Calls function(data) in one of the pool's threads; within a rank first come, first served. Any thread; never blocks.
 */
void te_worker_run(struct te_worker_pool *pool, enum te_work_rank rank, void (*function)(void *), void *data);

#endif
