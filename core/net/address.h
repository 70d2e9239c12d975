/* Server names, addresses and sockets. */
#ifndef TE_CORE_NET_ADDRESS_H
#define TE_CORE_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/status.h"

struct te_address {
    struct sockaddr_storage storage;
    socklen_t length;
};

enum { TE_HOST_MAX = 256, TE_ADDRESS_TEXT_MAX = 300 };

/* Splits a server name by the classic rules (grammar in the classic specification, section 1.5): brackets, bare IPv6
 * literals, scopes, last colon. A missing or malformed port gives default_port. TE_INVALID_ARGUMENT when host does not
 * fit. */
te_status te_server_name_split(const char *name, uint16_t default_port, char host[TE_HOST_MAX], uint16_t *port);
/* "host:port", the host in brackets if it is an IPv6 literal. Writes at most size bytes, NUL included. */
void te_server_name_join(const char *host, uint16_t port, char *name, size_t size);

/* Resolves a host to at most capacity addresses, numeric ones without any look-up: all IPv4 ones and then all IPv6
 * ones, or the other way round. Blocks as the system's resolver does. TE_DNS. */
te_status te_address_resolve(const char *host, uint16_t port, bool ipv6_first, struct te_address *addresses,
                             size_t capacity, size_t *count);
/* Numeric text without port; for messages and as resolved_host. */
void te_address_host(const struct te_address *address, char *text, size_t size);
uint16_t te_address_port(const struct te_address *address);
/* "host:port" for messages. */
void te_address_text(const struct te_address *address, char *text, size_t size);
/* Whether packets to it stay on this host: loopback, or equal to the socket's own local address. */
bool te_address_is_local(int connected_socket);

/* Ends a connection or a listening socket for good, also when a forked process holds the descriptor, too: politely, or
 * rudely with a reset, after which the peer drops what it has not taken yet. */
void te_socket_close(int descriptor, bool rudely);

/* A listening, non-blocking socket on a random free port of [minimum, maximum] (at most 500 tries), for IPv6 and IPv4
 * where the system has both. TE_SOCKET. */
te_status te_listen_any_port(uint16_t minimum, uint16_t maximum, int backlog, int *descriptor, uint16_t *port);

#endif
