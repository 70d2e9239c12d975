/* The blocking and listening half of core/net/address.h. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
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

/* Waits for events until the deadline; TE_TIMED_OUT or TE_OK. */
static te_status wait_ready(int descriptor, short events, int64_t deadline_ns)
{
    struct pollfd entry = {.fd = descriptor, .events = events};

    for (;;) {
        int64_t left_ns = deadline_ns - te_now_ns();
        int64_t left_ms = left_ns / TE_NS_PER_MS + 1;
        int ready;

        if (left_ns <= 0)
            return TE_TIMED_OUT;
        ready = poll(&entry, 1, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
        if (ready > 0)
            return TE_OK;
        if (ready < 0 && errno != EINTR)
            return te_fail(TE_SOCKET, "poll: %s", strerror(errno));
    }
}

static void set_no_delay(int descriptor)
{
    int on = 1;

    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

te_status te_connect(const struct te_address *address, int64_t deadline_ns, int *descriptor)
{
    char text[TE_ADDRESS_TEXT_MAX];
    int error = 0;
    socklen_t length = sizeof(error);
    te_status status;
    int fd;

    te_address_text(address, text, sizeof(text));
    fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return te_fail(TE_SOCKET, "cannot make a socket: %s", strerror(errno));
    set_no_delay(fd);
    if (connect(fd, (const struct sockaddr *)&address->storage, address->length) != 0) {
        if (errno != EINPROGRESS && errno != EINTR) {
            status = te_fail(TE_SOCKET, "cannot connect to %s: %s", text, strerror(errno));
            goto close_socket;
        }
        status = wait_ready(fd, POLLOUT, deadline_ns);
        if (status == TE_TIMED_OUT)
            te_fail(status, "cannot connect to %s: no answer in time", text);
        if (status != TE_OK)
            goto close_socket;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
            status = te_fail(TE_SOCKET, "cannot connect to %s: %s", text, strerror(error));
            goto close_socket;
        }
    }
    *descriptor = fd;
    return TE_OK;

close_socket:
    close(fd);
    return status;
}

te_status te_send_all(int descriptor, const void *bytes, size_t size, int64_t deadline_ns)
{
    const char *position = bytes;

    while (size > 0) {
        ssize_t sent = send(descriptor, position, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent > 0) {
            position += sent;
            size -= (size_t)sent;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return te_fail(TE_SOCKET, "cannot send: %s", strerror(errno));
        te_status status = wait_ready(descriptor, POLLOUT, deadline_ns);
        if (status != TE_OK)
            return status == TE_TIMED_OUT ? te_fail(status, "the peer takes nothing") : status;
    }
    return TE_OK;
}

te_status te_receive_all(int descriptor, void *bytes, size_t size, int64_t deadline_ns)
{
    char *position = bytes;

    while (size > 0) {
        ssize_t received = recv(descriptor, position, size, MSG_DONTWAIT);

        if (received > 0) {
            position += received;
            size -= (size_t)received;
            continue;
        }
        if (received == 0)
            return te_fail(TE_SOCKET, "the peer closed the connection %zu bytes early", size);
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return te_fail(TE_SOCKET, "cannot receive: %s", strerror(errno));
        te_status status = wait_ready(descriptor, POLLIN, deadline_ns);
        if (status != TE_OK)
            return status == TE_TIMED_OUT ? te_fail(status, "the peer does not answer") : status;
    }
    return TE_OK;
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

te_status te_listen_port(uint16_t port, int backlog, int *descriptor)
{
    int fd = bind_port(port);
    int error;

    if (fd < 0)
        return te_fail(TE_SOCKET, "cannot bind port %u: %s", port, strerror(-fd));
    if (listen(fd, backlog) != 0) {
        error = errno;
        close(fd);
        return te_fail(TE_SOCKET, "cannot listen on port %u: %s", port, strerror(error));
    }
    *descriptor = fd;
    return TE_OK;
}
