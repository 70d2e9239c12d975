/*
 * One request and its answer on a connection of its own, for calls that block. Every wait ends early once the engine is
 * closing, so that destroying an engine never waits for a dead peer.
 */
#ifndef TE_CORE_EXCHANGE_H
#define TE_CORE_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "core/net/address.h"
#include "core/status.h"

struct te_engine;

struct te_exchange {
    int descriptor; /* of the connection */
    int closing_descriptor;
    int64_t deadline_ns; /* of everything after the connect; monotonic */
};

/* Connects by connect_deadline_ns. The caller then sets deadline_ns and closes the descriptor. TE_SOCKET, TE_TIMED_OUT.
 */
te_status te_exchange_connect(struct te_exchange *exchange, const struct te_engine *engine,
                              const struct te_address *address, int64_t connect_deadline_ns);
void te_exchange_close(struct te_exchange *exchange);

/* Sends all of it. TE_SOCKET, TE_TIMED_OUT. Raises no signal. */
te_status te_exchange_send(const struct te_exchange *exchange, const void *bytes, size_t size);
/* Receives at least one byte and at most size. TE_SOCKET (also when the peer has closed), TE_TIMED_OUT. */
te_status te_exchange_receive(const struct te_exchange *exchange, void *bytes, size_t size, size_t *received);

#endif
