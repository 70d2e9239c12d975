/* A stream of transfers from this process to one buffer of a peer, and what it took. */
#ifndef TE_TOOLS_LOAD_H
#define TE_TOOLS_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "latency.h"
#include "node.h"

/* How a thread learns that its batch has ended. */
enum te_load_wait {
    TE_LOAD_SPIN,  /* getTransferStatus() in a loop */
    TE_LOAD_SLEEP, /* te_wait_batch() */
    TE_LOAD_EVENT, /* poll() on an event descriptor */
};

/* Which bytes the requests move; the same offsets on both sides. */
enum te_load_buffers {
    TE_LOAD_HOT,   /* all requests of a thread the same block */
    TE_LOAD_BATCH, /* each request of a batch its own block, each batch the same ones */
    TE_LOAD_COLD,  /* block after block through the thread's share of the region, round and round */
};

struct te_load {
    int opcode;     /* OPCODE_READ, OPCODE_WRITE */
    size_t size;    /* bytes of a request */
    size_t batch;   /* requests of a batch */
    size_t threads; /* each keeps one batch in flight */
    size_t region;  /* bytes that TE_LOAD_COLD walks through, all threads together */
    enum te_load_wait wait;
    enum te_load_buffers buffers;
    bool verify;      /* compares every byte of every batch; not with TE_LOAD_HOT */
    bool progress;    /* shows a line on the standard error output while it runs */
    double seconds;   /* how long, unless batches is given */
    uint64_t batches; /* per thread; 0: by time */
    /* CPU seconds of the peer so far, or NAN; NULL: not known. */
    double (*peer_cpu_seconds)(void *data);
    void *peer_data;
};

struct te_load_result {
    double seconds;
    uint64_t batches, bytes;
    double cpu_seconds, peer_cpu_seconds; /* NAN: not known */
    int64_t longest_gap_ns;               /* between two batches that ended in the same thread */
    struct te_latency latency;            /* of a batch, from allocateBatchID() until all is known to have ended */
    double sum_seconds;                   /* of these latencies */
};

/* Bytes that the peer's buffer must have; the node's region must have te_load_local_bytes(). 0: more than fits a
 * size_t. */
size_t te_load_remote_bytes(const struct te_load *load);
size_t te_load_local_bytes(const struct te_load *load);

/* Complains and returns false if a transfer fails, or a byte is wrong. */
bool te_load_run(const struct te_load *load, struct te_node *node, const struct te_peer_buffer *peer,
                 struct te_load_result *result);

#endif
