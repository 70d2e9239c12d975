#include "raw_wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SECONDS = 10, FRAME_LIMIT = 64 * 1024 * 1024 };

/* The wire is little-endian; so is every machine that this runs on. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian");

int raw_connect(const char *host, int port)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    snprintf(service, sizeof(service), "%d", port);
    if (getaddrinfo(host, service, &hints, &found) != 0)
        return -1;
    int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = SECONDS};
    int on = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    int result;
    do {
        result = connect(descriptor, found->ai_addr, found->ai_addrlen);
    } while (result != 0 && errno == EINTR);
    freeaddrinfo(found);
    if (result == 0)
        return descriptor;
    close(descriptor);
    return -1;
}

static bool split(const char *name, char host[128], int *port)
{
    const char *colon = strrchr(name, ':');
    if (!colon || (size_t)(colon - name) >= 128)
        return false;
    size_t length = (size_t)(colon - name);
    if (length >= 2 && name[0] == '[' && name[length - 1] == ']') {
        name++;
        length -= 2;
    }
    memcpy(host, name, length);
    host[length] = '\0';
    *port = atoi(colon + 1);
    return true;
}

int raw_connect_name(const char *name)
{
    char host[128];
    int port;
    return split(name, host, &port) ? raw_connect(host, port) : -1;
}

bool raw_send(int descriptor, const void *bytes, size_t size)
{
    const char *next = bytes;
    while (size > 0) {
        ssize_t sent = send(descriptor, next, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        next += sent;
        size -= (size_t)sent;
    }
    return true;
}

size_t raw_receive(int descriptor, void *bytes, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t taken = recv(descriptor, (char *)bytes + have, size - have, 0);
        if (taken < 0 && errno == EINTR)
            continue;
        if (taken <= 0)
            break;
        have += (size_t)taken;
    }
    return have;
}

bool raw_at_end(int descriptor)
{
    char byte;
    ssize_t taken;
    do {
        taken = recv(descriptor, &byte, 1, 0);
    } while (taken < 0 && errno == EINTR);
    return taken == 0 || (taken < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

/* ---- control port ---- */

bool raw_send_frame(int descriptor, uint8_t type, const void *text, size_t length)
{
    uint64_t count = length + 1;
    char *frame = malloc(length + RAW_FRAME_HEAD_SIZE);
    if (!frame)
        return false;
    memcpy(frame, &count, sizeof(count));
    frame[8] = (char)type;
    memcpy(frame + RAW_FRAME_HEAD_SIZE, text, length);
    bool sent = raw_send(descriptor, frame, length + RAW_FRAME_HEAD_SIZE);
    free(frame);
    return sent;
}

bool raw_send_text(int descriptor, uint8_t type, const char *text)
{
    return raw_send_frame(descriptor, type, text, strlen(text));
}

char *raw_receive_frame(int descriptor, size_t *length)
{
    uint64_t count;
    if (raw_receive(descriptor, &count, sizeof(count)) != sizeof(count) || count == 0 || count > FRAME_LIMIT)
        return NULL;
    char *payload = malloc(count + 1);
    if (payload && raw_receive(descriptor, payload, count) == count) {
        payload[count] = '\0';
        *length = count;
        return payload;
    }
    free(payload);
    return NULL;
}

char *raw_call_bytes(const char *name, uint8_t type, const void *text, size_t length)
{
    int descriptor = raw_connect_name(name);
    if (descriptor < 0)
        return NULL;
    size_t reply_length;
    char *reply = NULL;
    if (raw_send_frame(descriptor, type, text, length))
        reply = raw_receive_frame(descriptor, &reply_length);
    close(descriptor);
    if (reply && (uint8_t)reply[0] == type) {
        memmove(reply, reply + 1, reply_length);
        return reply;
    }
    free(reply);
    return NULL;
}

char *raw_call(const char *name, uint8_t type, const char *text)
{
    return raw_call_bytes(name, type, text, strlen(text));
}

long long raw_number_of(const char *text, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *found = strstr(text, quoted);
    return found ? strtoll(found + strlen(quoted), NULL, 10) : -1;
}

/* ---- data port ---- */

int raw_data_port_of(const char *name)
{
    char *descriptor = raw_call(name, RAW_METADATA, "{}");
    int port = descriptor ? (int)raw_number_of(descriptor, "tcp_data_port") : -1;
    free(descriptor);
    return port;
}

int raw_connect_data(const char *name)
{
    char host[128];
    int port;
    if (!split(name, host, &port))
        return -1;
    port = raw_data_port_of(name);
    return port > 0 ? raw_connect(host, port) : -1;
}

void raw_request(uint8_t header[RAW_HEADER_SIZE], uint8_t opcode, uint64_t address, uint64_t length)
{
    memset(header, 0, RAW_HEADER_SIZE);
    memcpy(header, &length, sizeof(length));
    memcpy(header + 8, &address, sizeof(address));
    header[16] = opcode;
}

bool raw_send_request(int descriptor, uint8_t opcode, uint64_t address, uint64_t length)
{
    uint8_t header[RAW_HEADER_SIZE];
    raw_request(header, opcode, address, length);
    return raw_send(descriptor, header, sizeof(header));
}

uint64_t raw_receive_status(int descriptor)
{
    uint64_t status;
    return raw_receive(descriptor, &status, sizeof(status)) == sizeof(status) ? status : 0;
}
