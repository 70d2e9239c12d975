#include "core/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* An IPv6 literal, optionally with %scope, in the first length bytes of text. */
static bool is_ipv6_literal(const char *text, size_t length)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr ignored;
    const char *scope = memchr(text, '%', length);

    if (scope != NULL)
        length = (size_t)(scope - text);
    if (length == 0 || length >= sizeof(copy))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return inet_pton(AF_INET6, copy, &ignored) == 1;
}

/* All digits, 0..65535, nothing else; anything else is default_port. */
static uint16_t parse_port(const char *text, uint16_t default_port)
{
    uint32_t port = 0;

    if (*text == '\0')
        return default_port;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return default_port;
        port = port * 10 + (uint32_t)(*text - '0');
        if (port > UINT16_MAX)
            return default_port;
    }
    return (uint16_t)port;
}

static te_status copy_host(char host[TE_HOST_MAX], const char *text, size_t length)
{
    if (length >= TE_HOST_MAX)
        return te_fail(TE_INVALID_ARGUMENT, "host name of %zu characters is too long (at most %d)", length,
                       TE_HOST_MAX - 1);
    memcpy(host, text, length);
    host[length] = '\0';
    return TE_OK;
}

te_status te_server_name_split(const char *name, uint16_t default_port, char host[TE_HOST_MAX], uint16_t *port)
{
    size_t length = strlen(name);
    const char *colon = NULL;
    const char *percent = NULL;
    size_t host_length = length;
    te_status status;

    if (name[0] == '[') {
        const char *bracket = strchr(name, ']');

        if (bracket != NULL && is_ipv6_literal(name + 1, (size_t)(bracket - name - 1))) {
            status = copy_host(host, name + 1, (size_t)(bracket - name - 1));
            colon = strchr(bracket, ':');
            if (status == TE_OK)
                *port = colon != NULL ? parse_port(colon + 1, default_port) : default_port;
            return status;
        }
    }
    percent = strchr(name, '%');
    if (percent != NULL)
        colon = strchr(percent, ':');
    if (colon != NULL && is_ipv6_literal(name, (size_t)(colon - name))) {
        host_length = (size_t)(colon - name);
    } else {
        colon = NULL;
        if (!is_ipv6_literal(name, length)) {
            colon = strrchr(name, ':');
            if (colon != NULL)
                host_length = (size_t)(colon - name);
        }
    }
    status = copy_host(host, name, host_length);
    if (status == TE_OK)
        *port = colon != NULL ? parse_port(colon + 1, default_port) : default_port;
    return status;
}

void te_server_name_join(const char *host, uint16_t port, char *name, size_t size)
{
    if (is_ipv6_literal(host, strlen(host)))
        snprintf(name, size, "[%s]:%u", host, port);
    else
        snprintf(name, size, "%s:%u", host, port);
}

/* Adds those of one family to the found addresses; returns how many there are then. */
static size_t add_addresses(const struct addrinfo *list, int family, struct te_address *addresses, size_t capacity,
                            size_t found)
{
    for (const struct addrinfo *entry = list; entry != NULL && found < capacity; entry = entry->ai_next) {
        if (entry->ai_family != family || entry->ai_addrlen > sizeof(addresses[found].storage))
            continue;
        memcpy(&addresses[found].storage, entry->ai_addr, entry->ai_addrlen);
        addresses[found].length = entry->ai_addrlen;
        found++;
    }
    return found;
}

te_status te_address_resolve(const char *host, uint16_t port, bool ipv6_first, struct te_address *addresses,
                             size_t capacity, size_t *count)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    char service[8];
    size_t found;
    int error;

    if (host[0] == '\0')
        return te_fail(TE_DNS, "empty host name");
    snprintf(service, sizeof(service), "%u", port);
    error = getaddrinfo(host, service, &hints, &list);
    if (error != 0) {
        hints.ai_flags = 0;
        error = getaddrinfo(host, service, &hints, &list);
    }
    if (error != 0)
        return te_fail(TE_DNS, "cannot resolve host name \"%s\": %s", host, gai_strerror(error));
    found = add_addresses(list, ipv6_first ? AF_INET6 : AF_INET, addresses, capacity, 0);
    found = add_addresses(list, ipv6_first ? AF_INET : AF_INET6, addresses, capacity, found);
    freeaddrinfo(list);
    if (found == 0)
        return te_fail(TE_DNS, "host name \"%s\" has no address", host);
    *count = found;
    return TE_OK;
}

void te_address_host(const struct te_address *address, char *text, size_t size)
{
    const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)&address->storage)->sin6_addr;

    /* An IPv4 peer of a socket that serves both families. */
    if (address->storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(ipv6)) {
        snprintf(text, size, "%u.%u.%u.%u", ipv6->s6_addr[12], ipv6->s6_addr[13], ipv6->s6_addr[14], ipv6->s6_addr[15]);
        return;
    }
    if (getnameinfo((const struct sockaddr *)&address->storage, address->length, text, (socklen_t)size, NULL, 0,
                    NI_NUMERICHOST) != 0)
        snprintf(text, size, "?");
}

uint16_t te_address_port(const struct te_address *address)
{
    if (address->storage.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->storage)->sin6_port);
    if (address->storage.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&address->storage)->sin_port);
    return 0;
}

void te_address_text(const struct te_address *address, char *text, size_t size)
{
    char host[TE_HOST_MAX];

    te_address_host(address, host, sizeof(host));
    te_server_name_join(host, te_address_port(address), text, size);
}

/* Compares hosts; an IPv4 address equals its IPv4-mapped form. */
static bool same_host(const struct sockaddr_storage *left, const struct sockaddr_storage *right)
{
    struct in6_addr addresses[2];
    const struct sockaddr_storage *sides[2] = {left, right};

    for (int i = 0; i < 2; i++) {
        if (sides[i]->ss_family == AF_INET6) {
            addresses[i] = ((const struct sockaddr_in6 *)sides[i])->sin6_addr;
        } else if (sides[i]->ss_family == AF_INET) {
            memset(&addresses[i], 0, sizeof(addresses[i]));
            addresses[i].s6_addr[10] = addresses[i].s6_addr[11] = 0xff;
            memcpy(&addresses[i].s6_addr[12], &((const struct sockaddr_in *)sides[i])->sin_addr, 4);
        } else {
            return false;
        }
    }
    return memcmp(&addresses[0], &addresses[1], sizeof(addresses[0])) == 0;
}

bool te_address_is_local(int connected_socket)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_length = sizeof(own), peer_length = sizeof(peer);

    if (getsockname(connected_socket, (struct sockaddr *)&own, &own_length) != 0 ||
        getpeername(connected_socket, (struct sockaddr *)&peer, &peer_length) != 0)
        return false;
    if (own.ss_family == AF_INET && peer.ss_family == AF_INET &&
        (ntohl(((struct sockaddr_in *)&peer)->sin_addr.s_addr) >> 24) == 127)
        return true;
    return same_host(&own, &peer);
}
