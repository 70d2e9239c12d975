/*
 * One peer's connection to the serving half (classic specification 4.2 to 4.4).
 *
 * A connection carries requests one after another; they are answered in order. Bodies go between socket and registered
 * memory without a copy in between; only the kernel touches the memory, so that an unmapped page is an error and not a
 * signal. Every piece is checked against the registry again, inside an epoch that unregistration waits for.
 *
 * A peer that resets its connection has given its writes up. What it had sent before may still lie in the socket, above
 * all when this process was stopped for a while, so each piece is taken only from a connection that is not reset.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "transports/tcp/socket_state.h"
#include "transports/tcp/target_private.h"

enum {
    ANSWERS_MAX = 256, /* answers waiting to be sent; more requests are not read until there is room */
    ANSWERS_KEPT = 8,  /* capacity that an idle connection keeps */
    ANSWERS_TOGETHER = 16,
    DISCARDS_PER_TURN = 16,
    CALLS_PER_TURN = 256, /* made for one connection before the others have their turn, however little each moves */
    PARTIAL_REQUEST_SECONDS = 30, /* how long the rest of a request header may take */
    STALLED_BODY_SECONDS = 120,   /* how long a body or an answer may make no progress */
    DRAIN_SECONDS = 5,            /* how long a refused peer may take to close */
};
#define BYTES_TOGETHER (UINT64_C(256) << 10)
#define TURN_BYTES     (UINT64_C(8) << 20) /* moved for one connection before the others have their turn */

void connection_close(struct connection *connection)
{
    te_reactor_remove(connection->loop->reactor, &connection->watch);
    te_socket_close(connection->watch.descriptor, false);
    *connection->link = connection->next;
    if (connection->next != NULL)
        connection->next->link = connection->link;
    g_free(connection->answers);
    g_free(connection);
}

const char *connection_peer_text(const struct connection *connection, char text[TE_ADDRESS_TEXT_MAX])
{
    struct te_address address = {.length = sizeof(address.storage)};

    if (getpeername(connection->watch.descriptor, (struct sockaddr *)&address.storage, &address.length) == 0)
        te_address_text(&address, text, TE_ADDRESS_TEXT_MAX);
    else
        g_strlcpy(text, "a peer that is gone", TE_ADDRESS_TEXT_MAX);
    return text;
}

/* Answers */

static struct answer *answer_at(struct connection *connection, unsigned index)
{
    return &connection->answers[(connection->answer_first + index) & (connection->answer_capacity - 1)];
}

static void answer_push(struct connection *connection, uint32_t code, bool with_status, uint64_t address,
                        uint64_t length)
{
    struct answer *answer;

    if (connection->answer_count == connection->answer_capacity) {
        unsigned capacity = connection->answer_capacity == 0 ? ANSWERS_KEPT : connection->answer_capacity * 2;
        struct answer *answers = g_new(struct answer, capacity);

        for (unsigned i = 0; i < connection->answer_count; i++)
            answers[i] = *answer_at(connection, i);
        g_free(connection->answers);
        connection->answers = answers;
        connection->answer_first = 0;
        connection->answer_capacity = capacity;
    }
    answer = answer_at(connection, connection->answer_count++);
    answer->address = address;
    answer->left = length;
    answer->read = length > 0;
    connection->reads_unsent += answer->read;
    answer->status_left = with_status ? TE_TCP_STATUS_BYTES : 0;
    te_tcp_status_encode(answer->status, code);
}

static void answer_pop(struct connection *connection)
{
    connection->reads_unsent -= answer_at(connection, 0)->read;
    connection->answer_first = (connection->answer_first + 1) & (connection->answer_capacity - 1);
    if (--connection->answer_count == 0 && connection->answer_capacity > ANSWERS_KEPT) {
        g_free(connection->answers);
        connection->answers = NULL;
        connection->answer_capacity = connection->answer_first = 0;
    }
}

/* Refuses the current request: the answers so far and a rejection go out, then the peer is expected to close. Version 1
 * has no rejection: the connection then just ends. */
static void refuse(struct connection *connection, bool version_2)
{
    if (version_2)
        answer_push(connection, TE_TCP_STATUS_REJECTED, true, 0, 0);
    connection->body_left = 0;
    connection->input_end = 0;
    connection->draining = true;
    connection->progress_ns = te_now_ns();
}

static unsigned gather_answers(struct connection *connection, struct iovec *parts, size_t *total, bool alone)
{
    struct te_registry_reader *reader = connection->loop->reader;
    unsigned count = 0;

    *total = 0;
    for (unsigned i = 0; i < (alone ? 1 : connection->answer_count) && count + 2 <= VECTOR_MAX && *total < TURN_BYTES;
         i++) {
        struct answer *answer = answer_at(connection, i);

        if (answer->left > 0 &&
            te_registry_look_up(reader, answer->address, answer->left, TE_ACCESS_REMOTE_READ) == NULL)
            break;
        if (answer->status_left > 0) {
            parts[count].iov_base = answer->status + TE_TCP_STATUS_BYTES - answer->status_left;
            parts[count].iov_len = answer->status_left;
            *total += parts[count++].iov_len;
        }
        if (answer->left > 0) {
            parts[count].iov_base = (void *)(uintptr_t)answer->address;
            parts[count].iov_len = MIN(answer->left, TURN_BYTES);
            *total += parts[count++].iov_len;
            if (answer->left > TURN_BYTES)
                break;
        }
    }
    return count;
}

static void account_sent(struct connection *connection, size_t sent)
{
    while (connection->answer_count > 0) {
        struct answer *answer = answer_at(connection, 0);
        size_t part = MIN(sent, answer->status_left);

        answer->status_left -= (uint8_t)part;
        sent -= part;
        part = MIN(sent, answer->left);
        answer->left -= part;
        answer->address += part;
        sent -= part;
        if (answer->left > 0 || answer->status_left > 0)
            return;
        answer_pop(connection);
    }
}

/* The memory of the first answer was unregistered since it was promised, or is not mapped. False: nothing can be said
 * any more. */
static bool withdraw_answer(struct connection *connection, const char *why)
{
    char peer[TE_ADDRESS_TEXT_MAX];

    te_log_limited(TE_LOG_WARNING, "%s reads memory that %s: refused", connection_peer_text(connection, peer), why);
    if (connection->draining || answer_at(connection, 0)->status_left != TE_TCP_STATUS_BYTES)
        return false;
    connection->answer_count = connection->reads_unsent = 0;
    refuse(connection, true);
    return true;
}

enum flush { FLUSH_DONE, FLUSH_BLOCKED, FLUSH_FAILED };

/* One sendmsg; negative errno, 0 if the first answer's memory is gone. */
static ssize_t send_answers(struct connection *connection, bool alone)
{
    struct te_registry_reader *reader = connection->loop->reader;
    struct iovec parts[VECTOR_MAX];
    struct msghdr message = {.msg_iov = parts};
    size_t total;
    ssize_t sent = 0;

    te_registry_enter(reader, 0, 0, TE_ACCESS_REMOTE_READ);
    message.msg_iovlen = gather_answers(connection, parts, &total, alone);
    if (message.msg_iovlen > 0) {
        sent = sendmsg(connection->watch.descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            sent = -errno;
    }
    te_registry_leave(reader);
    return sent;
}

static enum flush flush_answers(struct connection *connection, uint64_t *moved)
{
    bool alone = false; /* some memory is not mapped: find out whose by sending answers one by one */

    while (connection->answer_count > 0) {
        ssize_t sent = send_answers(connection, alone);

        if (sent > 0) {
            account_sent(connection, (size_t)sent);
            *moved += (uint64_t)sent;
            connection->progress_ns = te_now_ns();
            if (*moved >= TURN_BYTES && connection->answer_count > 0) {
                te_reactor_again(connection->loop->reactor, &connection->watch);
                return FLUSH_BLOCKED;
            }
        } else if (sent == -EAGAIN || sent == -EWOULDBLOCK) {
            return FLUSH_BLOCKED;
        } else if (sent == -EFAULT && !alone) {
            alone = true;
        } else if (sent == 0 || sent == -EFAULT) {
            if (!withdraw_answer(connection, sent == 0 ? "was unregistered meanwhile" : "is registered but not mapped"))
                return FLUSH_FAILED;
            alone = false;
        } else if (sent != -EINTR) {
            return FLUSH_FAILED;
        }
    }
    return FLUSH_DONE;
}

/* Requests */

static bool range_permitted(struct connection *connection, uint64_t address, uint64_t length, enum te_access access)
{
    struct te_registry_reader *reader = connection->loop->reader;
    bool permitted = te_registry_enter(reader, address, length, access) != NULL;

    te_registry_leave(reader);
    return permitted;
}

static void take_request(struct connection *connection, const uint8_t *bytes)
{
    struct te_tcp_request request = te_tcp_request_decode(bytes);
    char peer[TE_ADDRESS_TEXT_MAX];

    connection->writes = request.write;
    if (!range_permitted(connection, request.address, request.length,
                         request.write ? TE_ACCESS_REMOTE_WRITE : TE_ACCESS_REMOTE_READ)) {
        te_log_limited(TE_LOG_WARNING,
                       "%s wants to %s %" G_GUINT64_FORMAT " bytes at 0x%" G_GINT64_MODIFIER
                       "x, which is not memory registered for it: refused",
                       connection_peer_text(connection, peer), request.write ? "write" : "read", request.length,
                       request.address);
        refuse(connection, request.version_2);
    } else if (request.write) {
        connection->body_address = request.address;
        connection->body_left = request.length;
        connection->body_version_2 = request.version_2;
    } else {
        answer_push(connection, TE_TCP_STATUS_OK, request.version_2, request.address, request.length);
    }
}

/* Bytes of a body that came along with headers: stored by the kernel through a pipe, because only the kernel may find
 * out whether the memory is there. Rare: a peer that starts to write after it has been reading. */
static bool store_bytes(struct connection *connection, const uint8_t *bytes, size_t size)
{
    struct te_registry_reader *reader = connection->loop->reader;
    const int *ends = connection->loop->pipe;
    uint8_t waste[sizeof(connection->input)];
    char peer[TE_ADDRESS_TEXT_MAX];
    ssize_t written = 0;
    bool inside, stored;

    if (socket_is_closed(connection->watch.descriptor))
        return false;
    inside = te_registry_enter(reader, connection->body_address, connection->body_left, TE_ACCESS_REMOTE_WRITE) != NULL;
    if (inside)
        written = write(ends[1], bytes, size);
    stored =
        written == (ssize_t)size && read(ends[0], (void *)(uintptr_t)connection->body_address, size) == (ssize_t)size;
    te_registry_leave(reader);
    if (stored)
        return true;
    te_log_limited(TE_LOG_WARNING, "%s writes to memory that %s: refused", connection_peer_text(connection, peer),
                   inside ? "is registered but not mapped" : "was unregistered meanwhile");
    while (written > 0 && read(ends[0], waste, sizeof(waste)) > 0) /* what could not be stored is nobody else's */
        ;
    return false;
}

static void body_advance(struct connection *connection, uint64_t bytes)
{
    connection->body_address += bytes;
    connection->body_left -= bytes;
    if (connection->body_left == 0 && connection->body_version_2)
        answer_push(connection, TE_TCP_STATUS_OK, true, 0, 0);
}

/* A write must not overtake a read: what the read was promised has to be on its way before memory changes. */
static bool must_wait(const struct connection *connection, const uint8_t *bytes)
{
    return connection->reads_unsent > 0 && te_tcp_request_decode(bytes).write;
}

/* Works off what has been read, as far as there is room for answers. */
static void take_input(struct connection *connection)
{
    unsigned first = 0;

    while (!connection->draining && connection->answer_count < ANSWERS_MAX) {
        unsigned available = connection->input_end - first;

        if (connection->body_left > 0 && available > 0) {
            unsigned part = (unsigned)MIN(connection->body_left, available);

            if (!store_bytes(connection, connection->input + first, part)) {
                refuse(connection, connection->body_version_2);
                return;
            }
            first += part;
            body_advance(connection, part);
        } else if (connection->body_left == 0 && available >= TE_TCP_REQUEST_BYTES &&
                   !must_wait(connection, connection->input + first)) {
            first += TE_TCP_REQUEST_BYTES;
            take_request(connection, connection->input + first - TE_TCP_REQUEST_BYTES);
        } else {
            break;
        }
    }
    if (connection->draining || first == 0)
        return;
    connection->input_end -= first;
    memmove(connection->input, connection->input + first, connection->input_end);
}

/* A peer that has reset the connection has given its writes up, although what it had sent before may still lie in the
 * socket. Unlike recvmsg(), recvmmsg() looks for that first, and in the same system call: a process that is stopped and
 * goes on cannot come in between. */
static ssize_t receive_unless_reset(int descriptor, struct iovec *parts, size_t count)
{
    struct mmsghdr message = {.msg_hdr = {.msg_iov = parts, .msg_iovlen = count}};
    int messages = recvmmsg(descriptor, &message, 1, MSG_DONTWAIT, NULL);

    return messages == 1 ? (ssize_t)message.msg_len : -1;
}

enum receive { RECEIVE_MORE, RECEIVE_EMPTY, RECEIVE_FAILED };

/* One call: the rest of the body straight to its place, and what follows it. */
static enum receive receive_some(struct connection *connection, uint64_t *moved)
{
    struct te_registry_reader *reader = connection->loop->reader;
    struct iovec parts[2];
    size_t count = 0;
    uint64_t body = MIN(connection->body_left, connection->loop->options->piece_bytes);
    size_t room = connection->writes ? TE_TCP_REQUEST_BYTES : sizeof(connection->input);
    bool inside = true;
    char peer[TE_ADDRESS_TEXT_MAX];
    ssize_t received;
    int error;

    room = body < connection->body_left ? 0 : room - MIN(room, connection->input_end);
    if (body > 0) {
        parts[count].iov_base = (void *)(uintptr_t)connection->body_address;
        parts[count++].iov_len = body;
        inside =
            te_registry_enter(reader, connection->body_address, connection->body_left, TE_ACCESS_REMOTE_WRITE) != NULL;
    }
    if (room > 0) {
        parts[count].iov_base = connection->input + connection->input_end;
        parts[count++].iov_len = room;
    }
    received = inside ? receive_unless_reset(connection->watch.descriptor, parts, count) : -1;
    error = inside ? errno : EFAULT;
    if (body > 0)
        te_registry_leave(reader);

    if (received > 0) {
        uint64_t stored = MIN((uint64_t)received, body);

        connection->input_end += (unsigned)((uint64_t)received - stored);
        if (stored > 0)
            body_advance(connection, stored);
        *moved += (uint64_t)received;
        connection->progress_ns = te_now_ns();
        /* A body that came in part may have met memory that is not there: the next call tells. */
        return (uint64_t)received == body + room || stored < body || connection->hang_up ? RECEIVE_MORE : RECEIVE_EMPTY;
    }
    if (received == 0) {
        connection->ended = true;
        return RECEIVE_EMPTY;
    }
    if (error == EAGAIN || error == EWOULDBLOCK)
        return RECEIVE_EMPTY;
    if (error == EINTR)
        return RECEIVE_MORE;
    if (error != EFAULT)
        return RECEIVE_FAILED;
    te_log_limited(TE_LOG_WARNING, "%s writes to memory that %s: refused", connection_peer_text(connection, peer),
                   inside ? "is registered but not mapped" : "was unregistered meanwhile");
    refuse(connection, connection->body_version_2);
    return RECEIVE_MORE;
}

/* Throws input away until the peer closes. False: it has. */
static bool drain(struct connection *connection)
{
    if (!connection->shut_down) {
        connection->shut_down = true;
        shutdown(connection->watch.descriptor, SHUT_WR);
    }
    for (int i = 0; i < DISCARDS_PER_TURN; i++) {
        /* With MSG_TRUNC, TCP discards without copying. */
        ssize_t received = recv(connection->watch.descriptor, NULL, TURN_BYTES, MSG_DONTWAIT | MSG_TRUNC);

        if (received == 0 || (received < 0 && errno != EINTR))
            return received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
    te_reactor_again(connection->loop->reactor, &connection->watch);
    return true;
}

/* While more comes in, a few acknowledgements are kept to go out together: each alone is a packet, which costs as much
 * as tens of kilobytes of data. kept_bytes: received since the last ones went out. */
static bool may_keep_answers(const struct connection *connection, enum receive received, uint64_t kept_bytes)
{
    return received == RECEIVE_MORE && !connection->draining && !connection->ended && connection->reads_unsent == 0 &&
           connection->answer_count < ANSWERS_TOGETHER && kept_bytes < BYTES_TOGETHER;
}

/* Does what can be done now. False: the connection is to be closed. */
static bool serve(struct connection *connection, uint64_t *moved)
{
    enum receive received = RECEIVE_MORE;
    uint64_t flushed = *moved;

    for (unsigned calls = 0;; calls++) {
        bool turn_is_over = *moved >= TURN_BYTES || calls >= CALLS_PER_TURN;

        take_input(connection);
        if (turn_is_over || !may_keep_answers(connection, received, *moved - flushed)) {
            enum flush flush = flush_answers(connection, moved);

            if (flush != FLUSH_DONE)
                return flush == FLUSH_BLOCKED;
            flushed = *moved;
        }
        if (connection->draining)
            return drain(connection);
        if (connection->body_left == 0 && connection->input_end >= TE_TCP_REQUEST_BYTES)
            continue;
        if (connection->ended)
            return false;
        if (received == RECEIVE_EMPTY)
            return true;
        if (turn_is_over) {
            te_reactor_again(connection->loop->reactor, &connection->watch);
            return true;
        }
        received = receive_some(connection, moved);
        if (received == RECEIVE_FAILED)
            return false;
    }
}

static void connection_ready(struct te_watch *watch, uint32_t events)
{
    struct connection *connection = (struct connection *)watch;
    uint64_t moved = 0;

    if (events & EPOLLRDHUP)
        connection->hang_up = true;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0 || !serve(connection, &moved))
        connection_close(connection);
    else if (moved > 0)
        te_reactor_hot(connection->loop->reactor, watch);
}

int64_t connection_patience_seconds(const struct connection *connection)
{
    if (connection->draining)
        return DRAIN_SECONDS;
    if (connection->body_left > 0 || connection->answer_count > 0)
        return STALLED_BODY_SECONDS;
    if (connection->input_end > 0)
        return PARTIAL_REQUEST_SECONDS;
    return INT64_MAX / TE_NS_PER_SECOND; /* between requests a peer may stay for ever */
}

struct connection *connection_new(struct service_loop *loop, int descriptor)
{
    struct connection *connection = g_try_new0(struct connection, 1);

    if (connection == NULL)
        return NULL;
    connection->watch.descriptor = descriptor;
    connection->watch.ready = connection_ready;
    connection->loop = loop;
    connection->progress_ns = te_now_ns();
    connection->next = loop->connections;
    connection->link = &loop->connections;
    if (connection->next != NULL)
        connection->next->link = &connection->next;
    loop->connections = connection;
    return connection;
}
