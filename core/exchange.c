#include "core/exchange.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/net/address.h"
#include "core/engine.h"

/* TE_OK when the connection is ready for events. */
static te_status wait_ready(const struct te_exchange *exchange, short events, int64_t deadline_ns)
{
    struct pollfd entries[2] = {
        {.fd = exchange->descriptor, .events = events},
        {.fd = exchange->closing_descriptor, .events = POLLIN},
    };

    for (;;) {
        int64_t left_ms = (deadline_ns - te_now_ns() + TE_NS_PER_MS - 1) / TE_NS_PER_MS;
        int ready;

        if (left_ms <= 0)
            return te_fail(TE_TIMED_OUT, "the peer does not answer in time");
        ready = poll(entries, 2, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
        if (ready < 0 && errno != EINTR)
            return te_fail(TE_SOCKET, "poll: %s", strerror(errno));
        if (ready > 0 && entries[1].revents != 0)
            return te_fail(TE_SOCKET, "the engine is closing");
        if (ready > 0)
            return TE_OK;
    }
}

te_status te_exchange_connect(struct te_exchange *exchange, const struct te_engine *engine,
                              const struct te_address *address, int64_t connect_deadline_ns)
{
    int error = 0;
    socklen_t length = sizeof(error);
    te_status status;

    exchange->closing_descriptor = engine->closing_descriptor;
    exchange->deadline_ns = connect_deadline_ns;
    exchange->descriptor = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (exchange->descriptor < 0)
        return te_fail(TE_SOCKET, "cannot make a socket: %s", strerror(errno));
    if (connect(exchange->descriptor, (const struct sockaddr *)&address->storage, address->length) == 0)
        return TE_OK;
    if (errno != EINPROGRESS && errno != EINTR) {
        status = te_fail(TE_SOCKET, "cannot connect: %s", strerror(errno));
        goto close_descriptor;
    }
    status = wait_ready(exchange, POLLOUT, connect_deadline_ns);
    if (status != TE_OK)
        goto close_descriptor;
    if (getsockopt(exchange->descriptor, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    if (error == 0)
        return TE_OK;
    status = te_fail(TE_SOCKET, "cannot connect: %s", strerror(error));

close_descriptor:
    te_exchange_close(exchange);
    return status;
}

void te_exchange_close(struct te_exchange *exchange)
{
    te_socket_close(exchange->descriptor, false);
    exchange->descriptor = -1;
}

te_status te_exchange_send(const struct te_exchange *exchange, const void *bytes, size_t size)
{
    const char *position = bytes;

    while (size > 0) {
        ssize_t sent = send(exchange->descriptor, position, size, MSG_NOSIGNAL);
        te_status status;

        if (sent >= 0) {
            position += sent;
            size -= (size_t)sent;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return te_fail(TE_SOCKET, "cannot send: %s", strerror(errno));
        status = wait_ready(exchange, POLLOUT, exchange->deadline_ns);
        if (status != TE_OK)
            return status;
    }
    return TE_OK;
}

te_status te_exchange_receive(const struct te_exchange *exchange, void *bytes, size_t size, size_t *received)
{
    for (;;) {
        ssize_t count = recv(exchange->descriptor, bytes, size, 0);
        te_status status;

        if (count > 0) {
            *received = (size_t)count;
            return TE_OK;
        }
        if (count == 0)
            return te_fail(TE_SOCKET, "the peer closed the connection");
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return te_fail(TE_SOCKET, "cannot receive: %s", strerror(errno));
        status = wait_ready(exchange, POLLIN, exchange->deadline_ns);
        if (status != TE_OK)
            return status;
    }
}
