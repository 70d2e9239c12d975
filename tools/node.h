/* A process's own part in a transfer: an engine with one registered region. */
#ifndef TE_TOOLS_NODE_H
#define TE_TOOLS_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_ext.h"

enum { TE_NODE_NAME_MAX = 512 };

struct te_node_options {
    char *metadata; /* NULL: P2PHANDSHAKE */
    char *host;     /* NULL: 127.0.0.1; with a metadata store, the segment name */
    char *protocol; /* NULL: tcp */
};
void te_node_options_clear(struct te_node_options *options);

struct te_node {
    transfer_engine_t engine;
    char name[TE_NODE_NAME_MAX]; /* what peers open */
    unsigned char *memory;       /* size bytes, touched, registered; NULL if size is 0 */
    size_t size;
};

/* Complains, with what to do, and returns false if it does not work. */
bool te_node_open(struct te_node *node, const struct te_node_options *options, size_t size);
void te_node_close(struct te_node *node);

/* Opens a peer's segment and finds its first buffer. Complains when it cannot. */
struct te_peer_buffer {
    segment_id_t segment;
    uint64_t address;
    size_t size;
};
bool te_node_open_peer(const struct te_node *node, const char *name, struct te_peer_buffer *buffer);

/* Fills size bytes, a multiple of 8 or not, with numbers that depend on seed and position. */
void te_pattern_fill(unsigned char *bytes, size_t size, uint64_t seed);

/* "COMPLETED" and so on. */
const char *te_task_status_text(int status);

#endif
