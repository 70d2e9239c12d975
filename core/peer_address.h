/*
 * Which addresses of a peer to use, given what it says of itself and the address under which it was opened.
 *
 * The released wheel follows the peer's own words: data goes to tcp_data_host, or to the host that was opened when
 * there is none; notifications go to the host and port of the descriptor's name. So do we, except where these words
 * cannot be meant for us: an unresolvable name, or a wildcard or loopback address of a peer that was opened elsewhere.
 * Then the address that was opened is used.
 */
#ifndef TE_CORE_PEER_ADDRESS_H
#define TE_CORE_PEER_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#include "core/net/address.h"
#include "core/segment_descriptor.h"

struct te_engine;

/* Host for data connections as numeric text, or "" when the descriptor offers no data port or nothing resolves. When a
 * name has several addresses, the first one that accepts a connection on the data port. Blocks: resolver, and at most a
 * second for each address. */
void te_peer_data_host(struct te_engine *engine, const struct te_segment_descriptor *descriptor,
                       const char *opened_host, char host[TE_HOST_MAX]);

struct te_peer_target {
    char host[TE_HOST_MAX];
    uint16_t port;
};
enum { TE_PEER_TARGETS = 2 };

/* Where to send control messages, in the order in which to try; returns how many. Blocks in the resolver. */
size_t te_peer_control_targets(struct te_engine *engine, const struct te_segment_descriptor *descriptor,
                               const char *opened_host, uint16_t opened_port,
                               struct te_peer_target targets[TE_PEER_TARGETS]);

#endif
