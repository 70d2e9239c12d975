#include "core/peer_address.h"

#include <glib.h>
#include <netinet/in.h>
#include <string.h>

#include "core/clock.h"
#include "core/engine.h"
#include "core/exchange.h"

enum { ADDRESSES_MAX = 8 };
#define TRY_NS TE_NS_PER_SECOND

enum scope { SCOPE_ANYWHERE, SCOPE_LOOPBACK, SCOPE_WILDCARD };

static enum scope scope_of_ipv4(uint32_t address)
{
    if (address == INADDR_ANY)
        return SCOPE_WILDCARD;
    return address >> 24 == 127 ? SCOPE_LOOPBACK : SCOPE_ANYWHERE;
}

static enum scope scope_of(const struct te_address *address)
{
    const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)&address->storage)->sin6_addr;
    uint32_t mapped;

    if (address->storage.ss_family == AF_INET)
        return scope_of_ipv4(ntohl(((const struct sockaddr_in *)&address->storage)->sin_addr.s_addr));
    if (IN6_IS_ADDR_V4MAPPED(ipv6)) {
        memcpy(&mapped, &ipv6->s6_addr[12], sizeof(mapped));
        return scope_of_ipv4(ntohl(mapped));
    }
    if (IN6_IS_ADDR_UNSPECIFIED(ipv6))
        return SCOPE_WILDCARD;
    return IN6_IS_ADDR_LOOPBACK(ipv6) ? SCOPE_LOOPBACK : SCOPE_ANYWHERE;
}

/* The addresses of a host that the peer names, unless they cannot be meant for a peer that was opened at opened_host.
 */
static size_t resolve_meant(const struct te_engine *engine, const char *host, uint16_t port, const char *opened_host,
                            struct te_address addresses[ADDRESSES_MAX])
{
    bool ipv6_first = engine->settings.use_ipv6;
    struct te_address opened[ADDRESSES_MAX];
    size_t count, opened_count;

    /* A number, which the system would take for an IPv4 address, is what the released wheel ignores. */
    if (strspn(host, "0123456789") == strlen(host) ||
        te_address_resolve(host, port, ipv6_first, addresses, ADDRESSES_MAX, &count) != TE_OK)
        return 0;
    if (scope_of(&addresses[0]) == SCOPE_ANYWHERE || strcmp(host, opened_host) == 0)
        return count;
    if (scope_of(&addresses[0]) == SCOPE_LOOPBACK &&
        te_address_resolve(opened_host, port, ipv6_first, opened, ADDRESSES_MAX, &opened_count) == TE_OK &&
        scope_of(&opened[0]) == SCOPE_ANYWHERE)
        return 0;
    return scope_of(&addresses[0]) == SCOPE_WILDCARD ? 0 : count;
}

/* The first address that accepts a connection; the very first if none does. */
static size_t first_reachable(struct te_engine *engine, const struct te_address *addresses, size_t count)
{
    for (size_t i = 0; count > 1 && i < count; i++) {
        struct te_exchange exchange;

        if (te_exchange_connect(&exchange, engine, &addresses[i], te_now_ns() + TRY_NS) != TE_OK)
            continue;
        te_exchange_close(&exchange);
        return i;
    }
    return 0;
}

void te_peer_data_host(struct te_engine *engine, const struct te_segment_descriptor *descriptor,
                       const char *opened_host, char host[TE_HOST_MAX])
{
    struct te_address addresses[ADDRESSES_MAX];
    uint16_t port = descriptor->tcp_data_port;
    bool ipv6_first = engine->settings.use_ipv6;
    size_t count;

    host[0] = '\0';
    if (port == 0)
        return;
    count = resolve_meant(engine, descriptor->tcp_data_host, port, opened_host, addresses);
    if (count == 0 && te_address_resolve(opened_host, port, ipv6_first, addresses, ADDRESSES_MAX, &count) != TE_OK)
        return;
    te_address_host(&addresses[first_reachable(engine, addresses, count)], host, TE_HOST_MAX);
}

size_t te_peer_control_targets(struct te_engine *engine, const struct te_segment_descriptor *descriptor,
                               const char *opened_host, uint16_t opened_port,
                               struct te_peer_target targets[TE_PEER_TARGETS])
{
    struct te_address addresses[ADDRESSES_MAX];
    struct te_peer_target *named = &targets[0];
    size_t count = 0;

    if (te_server_name_split(descriptor->name, (uint16_t)engine->settings.handshake_port, named->host, &named->port) ==
            TE_OK &&
        resolve_meant(engine, named->host, named->port, opened_host, addresses) > 0)
        count = 1;
    if (count == 1 && strcmp(named->host, opened_host) == 0 && named->port == opened_port)
        return count;
    g_strlcpy(targets[count].host, opened_host, TE_HOST_MAX);
    targets[count].port = opened_port;
    return count + 1;
}
