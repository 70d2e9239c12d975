#include "raw_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

enum { MAXIMUM_PEERS = 16, MAXIMUM_CONNECTIONS = 4096, MAXIMUM_REQUESTS = 16384, PIECE = 64 * 1024, TYPES = 4 };

struct connection {
    struct peer *peer;
    pthread_t thread;
    int descriptor;
    bool open;
};

/* The public part first. */
struct peer {
    struct raw_peer shown;
    char host[NAME_SIZE];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t control_thread, data_thread;
    int control_listener, data_listener;
    char *descriptor;
    enum raw_behaviour behaviour;
    unsigned behaviour_left; /* 0: for ever */
    enum raw_control_behaviour control_behaviour;
    bool released, stopping; /* released: since the last raw_peer_behave() */
    unsigned releases;       /* calls of raw_peer_release() */
    bool seen_after_release[256];
    struct connection *connections;
    size_t connection_count;
    unsigned open_connections;
    unsigned data_connections;
    struct raw_request_seen *requests;
    bool *requests_done;
    unsigned request_count;
    unsigned control_calls[TYPES];
    char *last_call[TYPES];
};

static struct peer *peers[MAXIMUM_PEERS];

static struct peer *inside(struct raw_peer *peer)
{
    return (struct peer *)peer;
}

/* ---- connections ---- */

static void close_connection(struct connection *connection, bool data)
{
    struct peer *peer = connection->peer;
    pthread_mutex_lock(&peer->lock);
    close(connection->descriptor);
    connection->open = false;
    if (data)
        peer->open_connections--;
    pthread_cond_broadcast(&peer->changed);
    pthread_mutex_unlock(&peer->lock);
}

/* Waits for a release after the given ones; false when the peer is being stopped. */
static bool await_release(struct peer *peer, unsigned before)
{
    pthread_mutex_lock(&peer->lock);
    while (peer->releases == before && !peer->stopping)
        pthread_cond_wait(&peer->changed, &peer->lock);
    bool stopping = peer->stopping;
    pthread_mutex_unlock(&peer->lock);
    return !stopping;
}

/* *port 0: any free one. */
static int listen_at(const char *host, int *port)
{
    struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6, .sin6_port = ipv4.sin_port};
    bool is_ipv4 = inet_pton(AF_INET, host, &ipv4.sin_addr) == 1;
    assert_true(is_ipv4 || inet_pton(AF_INET6, host, &ipv6.sin6_addr) == 1);
    struct sockaddr *address = is_ipv4 ? (struct sockaddr *)&ipv4 : (struct sockaddr *)&ipv6;
    socklen_t size = is_ipv4 ? sizeof(ipv4) : sizeof(ipv6);
    int descriptor = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(descriptor >= 0);
    /* So that somebody else can take the port when the peer has stopped. */
    int on = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(descriptor, address, size), 0);
    assert_int_equal(listen(descriptor, 1024), 0);
    assert_int_equal(getsockname(descriptor, address, &size), 0);
    *port = ntohs(is_ipv4 ? ipv4.sin_port : ipv6.sin6_port);
    return descriptor;
}

/* Accepts until the listener is shut down; each connection gets a thread. */
static void accept_all(struct peer *peer, int listener, void *(*serve)(void *), bool data)
{
    for (;;) {
        int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (descriptor < 0 && errno == EINTR)
            continue;
        if (descriptor < 0)
            return;
        int on = 1;
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        pthread_mutex_lock(&peer->lock);
        struct connection *connection = &peer->connections[peer->connection_count];
        if (peer->stopping || peer->connection_count == MAXIMUM_CONNECTIONS) {
            pthread_mutex_unlock(&peer->lock);
            close(descriptor);
            continue;
        }
        connection->peer = peer;
        connection->descriptor = descriptor;
        connection->open = true;
        if (pthread_create(&connection->thread, NULL, serve, connection) == 0) {
            peer->connection_count++;
            peer->data_connections += data;
            peer->open_connections += data;
        } else {
            close(descriptor);
        }
        pthread_cond_broadcast(&peer->changed);
        pthread_mutex_unlock(&peer->lock);
    }
}

/* ---- data port ---- */

static enum raw_behaviour take_behaviour(struct peer *peer)
{
    enum raw_behaviour behaviour = peer->behaviour;
    if (peer->behaviour_left > 0 && --peer->behaviour_left == 0)
        peer->behaviour = RAW_SERVE;
    return behaviour;
}

static bool in_memory(const struct peer *peer, uint64_t address, uint64_t length)
{
    uint64_t start = (uint64_t)(uintptr_t)peer->shown.memory;
    return length > 0 && address >= start && length <= peer->shown.memory_size &&
           address - start <= peer->shown.memory_size - length;
}

static void pause_briefly(void)
{
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
}

/* Takes size bytes of a body and stores them if the request is in range. */
static bool take_body(struct peer *peer, int descriptor, struct raw_request_seen *request, uint64_t size, bool slowly)
{
    uint8_t piece[PIECE];
    while (size > 0) {
        size_t limit = slowly ? KIB : sizeof(piece);
        size_t wanted = size < limit ? (size_t)size : limit;
        ssize_t taken = recv(descriptor, piece, wanted, 0);
        if (taken < 0 && errno == EINTR)
            continue;
        if (taken <= 0)
            return false;
        if (slowly)
            pause_briefly();
        pthread_mutex_lock(&peer->lock);
        for (ssize_t index = 0; peer->released && index < taken; index++)
            peer->seen_after_release[piece[index]] = true;
        pthread_mutex_unlock(&peer->lock);
        if (in_memory(peer, request->address, request->length))
            memcpy((uint8_t *)(uintptr_t)request->address + request->body_bytes, piece, (size_t)taken);
        request->body_bytes += (uint64_t)taken;
        size -= (uint64_t)taken;
    }
    return true;
}

static bool give_body(struct peer *peer, int descriptor, const struct raw_request_seen *request, uint64_t from,
                      uint64_t size, bool slowly)
{
    static const uint8_t filler[PIECE];
    bool real = in_memory(peer, request->address, request->length);
    while (size > 0) {
        size_t limit = slowly ? KIB : PIECE;
        size_t count = size < limit ? (size_t)size : limit;
        const uint8_t *bytes = real ? (const uint8_t *)(uintptr_t)request->address + from : filler;
        if (!raw_send(descriptor, bytes, count))
            return false;
        if (slowly)
            pause_briefly();
        from += count;
        size -= count;
    }
    return true;
}

static bool send_status(int descriptor, uint64_t status)
{
    return raw_send(descriptor, &status, sizeof(status));
}

/* Whether the initiator has closed or reset by the time that a byte would be sent to it. */
static bool is_gone(int descriptor)
{
    char byte;
    ssize_t peeked = recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

static bool serve_write(struct peer *peer, int descriptor, struct raw_request_seen *request,
                        enum raw_behaviour behaviour)
{
    uint64_t first =
        behaviour == RAW_CLOSE_HALF_WAY || behaviour == RAW_STALL_HALF_WAY ? request->length / 2 : request->length;
    if (!take_body(peer, descriptor, request, first, behaviour == RAW_TRICKLE))
        return false;
    if (behaviour == RAW_CLOSE_HALF_WAY || behaviour == RAW_LOSE_ACKNOWLEDGEMENT)
        return false;
    if (behaviour == RAW_STALL_HALF_WAY || behaviour == RAW_STALL_BEFORE_STATUS) {
        if (!await_release(peer, request->releases))
            return false;
        request->refused_rest =
            !take_body(peer, descriptor, request, request->length - first, false) || is_gone(descriptor);
        if (request->refused_rest)
            return false;
    }
    if (!(request->opcode & 0x80))
        return true;
    request->acknowledged = send_status(descriptor, RAW_STATUS_OK);
    return request->acknowledged;
}

static bool serve_read(struct peer *peer, int descriptor, struct raw_request_seen *request,
                       enum raw_behaviour behaviour)
{
    if (behaviour == RAW_LOSE_ACKNOWLEDGEMENT)
        return false;
    if (behaviour == RAW_STALL_BEFORE_STATUS) {
        if (!await_release(peer, request->releases))
            return false;
        request->refused_rest = is_gone(descriptor);
    }
    if ((request->opcode & 0x80) && !send_status(descriptor, RAW_STATUS_OK))
        return false;
    uint64_t first =
        behaviour == RAW_CLOSE_HALF_WAY || behaviour == RAW_STALL_HALF_WAY ? request->length / 2 : request->length;
    if (!give_body(peer, descriptor, request, 0, first, behaviour == RAW_TRICKLE) || behaviour == RAW_CLOSE_HALF_WAY)
        return false;
    if (behaviour == RAW_STALL_HALF_WAY) {
        if (!await_release(peer, request->releases))
            return false;
        request->refused_rest = is_gone(descriptor);
        return give_body(peer, descriptor, request, first, request->length - first, false);
    }
    return true;
}

static bool serve_request(struct peer *peer, int descriptor, struct raw_request_seen *request,
                          enum raw_behaviour behaviour)
{
    static const char magic[] = "NOTMAGIC";
    bool version_2 = request->opcode & 0x80;
    if (behaviour == RAW_CLOSE_AT_ONCE)
        return false;
    if (behaviour == RAW_BAD_MAGIC)
        return raw_send(descriptor, magic, RAW_STATUS_SIZE);
    if (behaviour == RAW_REJECT || behaviour == RAW_STATUS_TWO ||
        (behaviour == RAW_SERVE && !in_memory(peer, request->address, request->length))) {
        if (version_2)
            send_status(descriptor, behaviour == RAW_STATUS_TWO ? RAW_STATUS_REJECTED + 1 : RAW_STATUS_REJECTED);
        return false;
    }
    if ((request->opcode & 0x7f) == 1)
        return serve_write(peer, descriptor, request, behaviour);
    return serve_read(peer, descriptor, request, behaviour);
}

static void *serve_data(void *argument)
{
    struct connection *connection = argument;
    struct peer *peer = connection->peer;
    uint8_t header[RAW_HEADER_SIZE];
    bool more = true;
    while (more && raw_receive(connection->descriptor, header, sizeof(header)) == sizeof(header)) {
        struct raw_request_seen request = {.opcode = header[16]};
        memcpy(&request.length, header, 8);
        memcpy(&request.address, header + 8, 8);
        memcpy(request.padding, header + 17, sizeof(request.padding));

        pthread_mutex_lock(&peer->lock);
        unsigned index = peer->request_count;
        bool kept = index < MAXIMUM_REQUESTS;
        request.releases = peer->releases;
        if (kept)
            peer->requests[index] = request;
        peer->request_count += kept;
        enum raw_behaviour behaviour = take_behaviour(peer);
        pthread_cond_broadcast(&peer->changed);
        pthread_mutex_unlock(&peer->lock);

        more = serve_request(peer, connection->descriptor, &request, behaviour);

        pthread_mutex_lock(&peer->lock);
        if (kept) {
            peer->requests[index] = request;
            peer->requests_done[index] = true;
        }
        pthread_cond_broadcast(&peer->changed);
        pthread_mutex_unlock(&peer->lock);
    }
    close_connection(connection, true);
    return NULL;
}

/* ---- control port ---- */

static void answer(struct peer *peer, int descriptor, uint8_t type, enum raw_control_behaviour behaviour,
                   unsigned releases)
{
    static const char *const replies[TYPES] = {"{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\","
                                               "\"payload\":\"\",\"peer_nic_path\":\"\",\"qp_num\":[],"
                                               "\"reply_msg\":\"\"}\n",
                                               NULL, "{\"name\":\"\",\"notify_msg\":\"success\"}\n",
                                               "{\"status\":\"success\"}\n"};
    uint64_t oversized = 2 * MIB;
    pthread_mutex_lock(&peer->lock);
    char *text = strdup(type == RAW_METADATA ? peer->descriptor : replies[type % TYPES]);
    pthread_mutex_unlock(&peer->lock);
    switch (behaviour) {
    case RAW_CONTROL_SERVE:
        raw_send_text(descriptor, type, text);
        break;
    case RAW_CONTROL_NULL:
        raw_send_text(descriptor, type, "null\n");
        break;
    case RAW_CONTROL_WRONG_TYPE:
        raw_send_text(descriptor, (uint8_t)(type ^ 1), text);
        break;
    case RAW_CONTROL_OVERSIZED:
        raw_send(descriptor, &oversized, sizeof(oversized));
        raw_at_end(descriptor);
        break;
    case RAW_CONTROL_HALF: {
        uint64_t count = strlen(text) + 1;
        raw_send(descriptor, &count, sizeof(count));
        raw_send(descriptor, &type, 1);
        raw_send(descriptor, text, strlen(text) / 2);
        await_release(peer, releases);
        break;
    }
    case RAW_CONTROL_SILENT:
        await_release(peer, releases);
        break;
    case RAW_CONTROL_CLOSE:
        break;
    }
    free(text);
}

static void *serve_control(void *argument)
{
    struct connection *connection = argument;
    struct peer *peer = connection->peer;
    size_t length;
    char *payload = raw_receive_frame(connection->descriptor, &length);
    if (payload && (uint8_t)payload[0] < TYPES) {
        uint8_t type = (uint8_t)payload[0];
        pthread_mutex_lock(&peer->lock);
        peer->control_calls[type]++;
        free(peer->last_call[type]);
        peer->last_call[type] = strdup(payload + 1);
        enum raw_control_behaviour behaviour = peer->control_behaviour;
        unsigned releases = peer->releases;
        pthread_cond_broadcast(&peer->changed);
        pthread_mutex_unlock(&peer->lock);
        answer(peer, connection->descriptor, type, behaviour, releases);
    }
    free(payload);
    close_connection(connection, false);
    return NULL;
}

static void *accept_control(void *argument)
{
    struct peer *peer = argument;
    accept_all(peer, peer->control_listener, serve_control, false);
    return NULL;
}

static void *accept_data(void *argument)
{
    struct peer *peer = argument;
    accept_all(peer, peer->data_listener, serve_data, true);
    return NULL;
}

/* ---- life ---- */

char *raw_descriptor(const struct raw_peer *peer, const char *name, const char *data_host, int protocol_version)
{
    char *text = NULL;
    char host_field[NAME_SIZE + 32] = "";
    if (data_host)
        snprintf(host_field, sizeof(host_field), "\"tcp_data_host\":\"%s\",", data_host);
    int length = asprintf(&text,
                          "{\"buffers\":[{\"addr\":%llu,\"length\":%zu,\"name\":\"%s\"}],\"name\":\"%s\",\"protocol\":"
                          "\"tcp\",\"rdma_server_name\":\"\",%s\"tcp_data_port\":%d,\"tcp_proto_version\":%d,"
                          "\"timestamp\":\"2026-01-01 00:00:00.000000\"}\n",
                          (unsigned long long)(uintptr_t)peer->memory, peer->memory_size, name, name, host_field,
                          peer->data_port, protocol_version);
    assert_true(length > 0);
    return text;
}

struct raw_peer *raw_peer_start_on(const char *host, int control_port, int data_port)
{
    size_t place = 0;
    while (place < MAXIMUM_PEERS && peers[place])
        place++;
    assert_true(place < MAXIMUM_PEERS);
    struct peer *peer = calloc(1, sizeof(*peer));
    assert_non_null(peer);
    peer->connections = calloc(MAXIMUM_CONNECTIONS, sizeof(*peer->connections));
    peer->requests = calloc(MAXIMUM_REQUESTS, sizeof(*peer->requests));
    peer->requests_done = calloc(MAXIMUM_REQUESTS, sizeof(*peer->requests_done));
    peer->shown.memory_size = MIB;
    peer->shown.memory = calloc(1, peer->shown.memory_size);
    assert_true(peer->connections && peer->requests && peer->requests_done && peer->shown.memory);
    pthread_mutex_init(&peer->lock, NULL);
    pthread_cond_init(&peer->changed, NULL);
    snprintf(peer->host, sizeof(peer->host), "%s", host);
    peer->shown.control_port = control_port;
    peer->shown.data_port = data_port;
    peer->control_listener = listen_at(host, &peer->shown.control_port);
    peer->data_listener = listen_at(host, &peer->shown.data_port);
    snprintf(peer->shown.name, sizeof(peer->shown.name), "%.100s:%d", host, peer->shown.control_port);
    peer->descriptor = raw_descriptor(&peer->shown, peer->shown.name, NULL, 2);
    peers[place] = peer;
    assert_int_equal(pthread_create(&peer->control_thread, NULL, accept_control, peer), 0);
    assert_int_equal(pthread_create(&peer->data_thread, NULL, accept_data, peer), 0);
    return &peer->shown;
}

struct raw_peer *raw_peer_start_at(const char *host)
{
    return raw_peer_start_on(host, 0, 0);
}

struct raw_peer *raw_peer_start(void)
{
    return raw_peer_start_at("127.0.0.1");
}

static void shut_down(struct peer *peer)
{
    pthread_mutex_lock(&peer->lock);
    peer->stopping = true;
    shutdown(peer->control_listener, SHUT_RDWR);
    shutdown(peer->data_listener, SHUT_RDWR);
    for (size_t index = 0; index < peer->connection_count; index++) {
        if (peer->connections[index].open)
            shutdown(peer->connections[index].descriptor, SHUT_RDWR);
    }
    pthread_cond_broadcast(&peer->changed);
    pthread_mutex_unlock(&peer->lock);
    pthread_join(peer->control_thread, NULL);
    pthread_join(peer->data_thread, NULL);
    for (size_t index = 0; index < peer->connection_count; index++)
        pthread_join(peer->connections[index].thread, NULL);
    close(peer->control_listener);
    close(peer->data_listener);
}

void raw_peer_stop(struct raw_peer *shown)
{
    struct peer *peer = inside(shown);
    for (size_t index = 0; index < MAXIMUM_PEERS; index++) {
        if (peers[index] == peer)
            peers[index] = NULL;
    }
    shut_down(peer);
    for (size_t type = 0; type < TYPES; type++)
        free(peer->last_call[type]);
    free(peer->descriptor);
    free(peer->shown.memory);
    free(peer->requests_done);
    free(peer->requests);
    free(peer->connections);
    pthread_cond_destroy(&peer->changed);
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}

void raw_peers_stop_all(void)
{
    for (size_t index = 0; index < MAXIMUM_PEERS; index++) {
        if (peers[index])
            raw_peer_stop(&peers[index]->shown);
    }
}

/* ---- what a test says and asks ---- */

void raw_peer_publish(struct raw_peer *shown, const char *descriptor)
{
    struct peer *peer = inside(shown);
    pthread_mutex_lock(&peer->lock);
    free(peer->descriptor);
    peer->descriptor = strdup(descriptor);
    pthread_mutex_unlock(&peer->lock);
}

void raw_peer_behave(struct raw_peer *shown, enum raw_behaviour behaviour, unsigned times)
{
    struct peer *peer = inside(shown);
    pthread_mutex_lock(&peer->lock);
    peer->behaviour = behaviour;
    peer->behaviour_left = times;
    peer->released = false;
    pthread_mutex_unlock(&peer->lock);
}

void raw_peer_behave_control(struct raw_peer *shown, enum raw_control_behaviour behaviour)
{
    struct peer *peer = inside(shown);
    pthread_mutex_lock(&peer->lock);
    peer->control_behaviour = behaviour;
    peer->released = false;
    pthread_mutex_unlock(&peer->lock);
}

void raw_peer_release(struct raw_peer *shown)
{
    struct peer *peer = inside(shown);
    pthread_mutex_lock(&peer->lock);
    peer->released = true;
    peer->releases++;
    pthread_cond_broadcast(&peer->changed);
    pthread_mutex_unlock(&peer->lock);
}

static unsigned locked_value(struct peer *peer, const unsigned *value)
{
    pthread_mutex_lock(&peer->lock);
    unsigned copy = *value;
    pthread_mutex_unlock(&peer->lock);
    return copy;
}

unsigned raw_peer_connections(struct raw_peer *peer)
{
    return locked_value(inside(peer), &inside(peer)->data_connections);
}

unsigned raw_peer_open_connections(struct raw_peer *peer)
{
    return locked_value(inside(peer), &inside(peer)->open_connections);
}

unsigned raw_peer_control_calls(struct raw_peer *peer, enum raw_message type)
{
    return locked_value(inside(peer), &inside(peer)->control_calls[type]);
}

unsigned raw_peer_requests(struct raw_peer *peer)
{
    return locked_value(inside(peer), &inside(peer)->request_count);
}

struct raw_request_seen raw_peer_request(struct raw_peer *shown, unsigned index, bool done)
{
    struct peer *peer = inside(shown);
    pthread_mutex_lock(&peer->lock);
    while (peer->request_count <= index || (done && !peer->requests_done[index]))
        pthread_cond_wait(&peer->changed, &peer->lock);
    struct raw_request_seen request = peer->requests[index];
    pthread_mutex_unlock(&peer->lock);
    return request;
}

bool raw_peer_saw_byte(struct raw_peer *shown, uint8_t byte)
{
    struct peer *peer = inside(shown);
    pthread_mutex_lock(&peer->lock);
    while (peer->open_connections > 0)
        pthread_cond_wait(&peer->changed, &peer->lock);
    bool seen = peer->seen_after_release[byte];
    pthread_mutex_unlock(&peer->lock);
    return seen;
}

char *raw_peer_last_call(struct raw_peer *shown, enum raw_message type)
{
    struct peer *peer = inside(shown);
    pthread_mutex_lock(&peer->lock);
    char *text = strdup(peer->last_call[type] ? peer->last_call[type] : "");
    pthread_mutex_unlock(&peer->lock);
    return text;
}

/* ---- an engine and a peer that stalls ---- */

struct stalling stalling_new(size_t size)
{
    struct stalling stalling = {
        .engine = engine_new(), .peer = raw_peer_start(), .local = memory_new(size), .size = size};
    stalling.segment = engine_open(stalling.engine, stalling.peer->name);
    raw_peer_behave(stalling.peer, RAW_STALL_HALF_WAY, 0);
    return stalling;
}

batch_id_t stalling_submit(const struct stalling *stalling)
{
    unsigned before = raw_peer_requests(stalling->peer);
    batch_id_t batch = submit_one(stalling->engine, READ, stalling->local, stalling->segment,
                                  (uintptr_t)stalling->peer->memory, stalling->size);
    raw_peer_request(stalling->peer, before, false);
    return batch;
}
