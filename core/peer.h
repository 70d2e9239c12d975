/*
 * Calls to a peer in whatever dialect it speaks. Which one that is is learnt from the first call that succeeds,
 * remembered, and forgotten when a call fails, as after a restart. A notification is sent in one dialect only: a peer
 * of which nothing is known is probed first, unless there is but one.
 */
#ifndef TE_CORE_PEER_H
#define TE_CORE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/segment_descriptor.h"
#include "core/status.h"

struct te_engine;
struct te_peer_memory;

struct te_peer_memory *te_peer_memory_new(void);
void te_peer_memory_free(struct te_peer_memory *peers);

/* As the functions of the same names in core/dialect.h. */
te_status te_peer_fetch_descriptor(struct te_engine *engine, const char *host, uint16_t port,
                                   struct te_segment_descriptor **descriptor);
te_status te_peer_notify(struct te_engine *engine, const char *host, uint16_t port, const char *name,
                         size_t name_length, const char *message, size_t message_length, bool *sent);
te_status te_peer_probe(struct te_engine *engine, const char *host, uint16_t port);

#endif
