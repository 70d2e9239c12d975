/* The sockets of core/net/address.h: their end, and listening. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/net/address.h"

void te_socket_close(int descriptor, bool rudely)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};

    if (rudely) {
        /* Takes the connection down at once, whoever else holds the descriptor. */
        if (connect(descriptor, &nowhere, sizeof(nowhere)) != 0)
            setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    } else {
        shutdown(descriptor, SHUT_RDWR);
    }
    close(descriptor);
}

/* A socket bound to the port on all addresses, IPv6 and IPv4 together where the system has IPv6. Negative: errno.
 * Connections of a process that is gone do not keep the port from us; a live listener does, now or at the call of
 * listen. */
static int bind_port(uint16_t port)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1, off = 0, error;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
            bind(fd, (struct sockaddr *)&any6, sizeof(any6)) == 0)
            return fd;
        error = errno;
        close(fd);
        if (error == EADDRINUSE)
            return -error;
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, (struct sockaddr *)&any4, sizeof(any4)) == 0)
        return fd;
    error = errno;
    close(fd);
    return -error;
}

enum { PORT_TRIES = 500 };

static uint32_t random_number(void)
{
    uint32_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        number = (uint32_t)te_now_ns();
    return number;
}

te_status te_listen_any_port(uint16_t minimum, uint16_t maximum, int backlog, int *descriptor, uint16_t *port)
{
    uint32_t range = (uint32_t)maximum - minimum + 1;
    uint32_t offset = random_number() % range;
    int error = EADDRINUSE;

    /* A random start and then one port after the other: no port is asked twice while others are untried. */
    for (uint32_t attempt = 0; attempt < PORT_TRIES && attempt < range; attempt++) {
        uint16_t candidate = (uint16_t)(minimum + (offset + attempt) % range);
        int fd = bind_port(candidate);

        if (fd < 0) {
            error = -fd;
            if (error != EADDRINUSE && error != EACCES)
                break;
            continue;
        }
        if (listen(fd, backlog) == 0) {
            *descriptor = fd;
            *port = candidate;
            return TE_OK;
        }
        error = errno;
        close(fd);
        if (error != EADDRINUSE)
            break;
    }
    return te_fail(TE_SOCKET, "no free port between %u and %u: %s", minimum, maximum, strerror(error));
}
