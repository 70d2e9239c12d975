#ifndef TE_TRANSPORTS_TCP_SOCKET_STATE_H
#define TE_TRANSPORTS_TCP_SOCKET_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that the peer's host has acknowledged since the connection was made; UINT64_MAX if that cannot be said. */
uint64_t socket_acknowledged_bytes(int descriptor);
/* Whether the connection is over, for example because the peer has reset it, although there may be bytes to read. */
bool socket_is_closed(int descriptor);

#endif
