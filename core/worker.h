/*
 * Threads for calls that block: control calls to peers, name resolution. They come when there is work, up to a limit,
 * and leave when there has been none for a while. (GLib's pool would do, but the thread that GLib starts threads from
 * stays in the process for ever.)
 */
#ifndef TE_CORE_WORKER_H
#define TE_CORE_WORKER_H

#include "core/status.h"

struct te_worker_pool;

/* One thread is started at once, so that work given later is always done. TE_MEMORY when it cannot be. */
te_status te_worker_pool_new(unsigned maximum_threads, struct te_worker_pool **pool);

/* Does what is still waiting, ends all threads and frees. From now on only the pool's own jobs may give it more. NULL
 * is fine. */
void te_worker_pool_free(struct te_worker_pool *pool);

/* Calls function(data) in one of the pool's threads, first come, first served. Any thread; never blocks. */
void te_worker_run(struct te_worker_pool *pool, void (*function)(void *), void *data);

#endif
