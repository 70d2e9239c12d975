/* Plain blocking sockets on loopback for tests; every wait ends after a generous time, as a failure. And a log that
 * does not go through GLib, whose writer formats the time with localtime(), a race in the eyes of the thread sanitizer.
 */
#ifndef TE_TESTS_UNIT_SOCKET_HELPERS_H
#define TE_TESTS_UNIT_SOCKET_HELPERS_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <glib.h>

#include "core/log.h"

enum { TEST_PATIENCE_SECONDS = 30 };

static inline void test_log(int level, const char *message, void *unused)
{
    (void)unused;
    fprintf(stderr, "[%d] %s\n", level, message);
}

static inline int test_use_log(void **state)
{
    (void)state;
    te_log_set_function(test_log, NULL);
    return 0;
}

static inline void test_socket_patience(int descriptor)
{
    struct timeval patience = {.tv_sec = TEST_PATIENCE_SECONDS};

    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

/* A connection that sends each piece at once, or -1. */
static inline int test_connect_address(const void *address, socklen_t length)
{
    const struct sockaddr *peer = address;
    int descriptor = socket(peer->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (descriptor < 0)
        return -1;
    test_socket_patience(descriptor);
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(descriptor, peer, length) == 0)
        return descriptor;
    close(descriptor);
    return -1;
}

/* The same to 127.0.0.1. */
static inline int test_connect(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return test_connect_address(&address, sizeof(address));
}

/* A listening socket on 127.0.0.1 with a free port of five digits. */
static inline int test_listen(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *port = 0;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(descriptor, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(descriptor, 128) != 0 ||
        getsockname(descriptor, (struct sockaddr *)&address, &length) != 0) {
        close(descriptor);
        return -1;
    }
    test_socket_patience(descriptor);
    *port = ntohs(address.sin_port);
    return descriptor;
}

static inline bool test_send(int descriptor, const void *bytes, size_t size)
{
    const char *position = bytes;

    while (size > 0) {
        ssize_t sent = send(descriptor, position, size, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        position += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Receives size bytes; false if the peer closes or nothing comes. */
static inline bool test_receive(int descriptor, void *bytes, size_t size)
{
    char *position = bytes;

    while (size > 0) {
        ssize_t received = recv(descriptor, position, size, 0);

        if (received <= 0)
            return false;
        position += received;
        size -= (size_t)received;
    }
    return true;
}

/* Everything until the peer ends the connection; *reset says that it did so with a reset. False: nothing came in time.
 */
static inline bool test_receive_to_end(int descriptor, GString *bytes, bool *reset)
{
    char piece[65536];

    for (;;) {
        ssize_t received = recv(descriptor, piece, sizeof(piece), 0);

        if (received > 0) {
            g_string_append_len(bytes, piece, received);
            continue;
        }
        *reset = received < 0 && errno == ECONNRESET;
        return received == 0 || *reset;
    }
}

#endif
