/*
 * The classic dialect (classic specification 3): the service that answers on the control port, and the calls to peers.
 */
#ifndef TE_CLASSIC_DIALECT_H
#define TE_CLASSIC_DIALECT_H

#include <stddef.h>
#include <stdint.h>

#include "core/dialect.h"
#include "core/shared_text.h"
#include "core/status.h"
#include "wire/classic/handshake.h"

extern const struct te_dialect_ops te_classic_dialect;

/* Serves an accepted connection; see struct te_dialect_ops. */
void te_classic_serve(struct te_engine *engine, int descriptor, const uint8_t *bytes, size_t length);

/* One connection message to a peer (type 0), by which transport rdma connects its queue pairs; until there is one, used
 * by tests only. TE_METADATA: the peer rejected it, the message says why; else as of the
 * calls of struct te_dialect_ops. reply is cleared by the caller with te_handshake_clear(), on success only. */
te_status te_classic_connect_message(struct te_engine *engine, const char *host, uint16_t port,
                                     const struct te_handshake *request, struct te_handshake *reply);

/* The local descriptor as JSON text with its line feed, one reference for the caller; NULL while there is none. */
struct te_shared_text *te_classic_local_text(struct te_engine *engine);

#endif
