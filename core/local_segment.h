/*
 * What this engine publishes of itself: made from the registry and the installed transports when a peer asks, and kept
 * until one of them changes. Any number of registrations in a row thus cost one rebuild.
 */
#ifndef TE_CORE_LOCAL_SEGMENT_H
#define TE_CORE_LOCAL_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/segment_descriptor.h"
#include "core/shared_text.h"
#include "core/status.h"

struct te_dialect_ops;
struct te_engine;
struct te_local_segment;
struct te_transport;

enum { TE_ENGINE_TRANSPORTS = 8 };

struct te_local_segment *te_local_segment_new(void);
void te_local_segment_free(struct te_local_segment *local);

/* Adds the part of an installed transport, which the last one gives the protocol. The strings must last.
 * TE_INVALID_ARGUMENT when there are too many. */
te_status te_local_segment_add(struct te_engine *engine, const char *protocol, struct te_transport *transport,
                               void (*describe)(struct te_transport *, struct te_segment_descriptor *));
/* Takes the part of one transport back, which is about to be destroyed; the others' stay. */
void te_local_segment_remove(struct te_engine *engine, const struct te_transport *transport);
/* All transports are about to be destroyed: nothing is published any more. */
void te_local_segment_withdraw(struct te_engine *engine);

/* Whether a transport has been added. */
bool te_local_segment_exists(struct te_engine *engine);

/* The current descriptor, one reference for the caller; NULL while there is no transport. Lists the regions that peers
 * may reach, in the order of their registration. Any thread. */
struct te_segment_descriptor *te_local_segment_describe(struct te_engine *engine);

/* The current descriptor in the form of a dialect, one reference for the caller; NULL while there is no transport or
 * when encode, which is called only after a change, returns NULL. */
struct te_shared_text *
te_local_segment_text(struct te_engine *engine, const struct te_dialect_ops *dialect,
                      struct te_shared_text *(*encode)(const struct te_segment_descriptor *descriptor));

#endif
