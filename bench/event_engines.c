/*
 * epoll against io_uring, as the engine under a server of the classic TCP data plane: which of the two should drive its
 * sockets? One server thread and one client thread in two processes, over loopback.
 *
 *   event_engines [--rounds=N] [--seconds=S] [--congestion=NAME]
 *
 * answer   a request of 24 bytes is answered with 8 + 4096 bytes, on each of 1 or 64 connections at a time
 * stream   messages of 24 bytes + 1 MiB are taken in, 8 bytes answer each, 16 messages are under way
 *
 * The server sleeps when there is nothing to do, at once or after it has polled for 50 us. The client of "answer" on
 * one connection is also run on io_uring, since callers drive sockets themselves. One JSON object per run; rounds are
 * interleaved.
 */
#include <errno.h>
#include <getopt.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

enum { MAXIMUM_CONNECTIONS = 64, RING_ENTRIES = 256, STREAM_DEPTH = 16, WARM_UP_BATCHES = 20 };
enum { SMALL_BODY = 4096, LARGE_BODY = 1 << 20 };
static const int64_t polling_ns = 50000; /* how long a polling server goes on after something happened */

struct run {
    bool stream;
    bool server_on_ring, client_on_ring, server_sleeps;
    size_t connections;
    double seconds;
    const char *congestion;
};

struct connection {
    int descriptor;
    size_t received, sent; /* of the message in hand */
    unsigned char request[REQUEST_BYTES];
    struct msghdr incoming, outgoing; /* on the ring they must outlive the call */
    struct iovec in_parts[2], out_parts[2];
    int64_t begin_ns;
};

static unsigned char *body;
static unsigned char answer[ANSWER_BYTES];
static struct connection connections[MAXIMUM_CONNECTIONS];

static size_t incoming_bytes(const struct run *run)
{
    return REQUEST_BYTES + (run->stream ? LARGE_BODY : 0);
}

static size_t outgoing_bytes(const struct run *run)
{
    return ANSWER_BYTES + (run->stream ? 0 : SMALL_BODY);
}

/* The parts of a message from offset on. */
static void cut(struct iovec parts[2], struct msghdr *message, void *head, size_t head_bytes, size_t total,
                size_t offset)
{
    *message = (struct msghdr){.msg_iov = parts};
    if (offset < head_bytes)
        parts[message->msg_iovlen++] = (struct iovec){(unsigned char *)head + offset, head_bytes - offset};
    size_t skipped = offset > head_bytes ? offset - head_bytes : 0;
    if (total > head_bytes)
        parts[message->msg_iovlen++] = (struct iovec){body + skipped, total - head_bytes - skipped};
}

static void cut_incoming(const struct run *run, struct connection *connection)
{
    cut(connection->in_parts, &connection->incoming, connection->request, REQUEST_BYTES, incoming_bytes(run),
        connection->received);
}

static void cut_outgoing(const struct run *run, struct connection *connection)
{
    cut(connection->out_parts, &connection->outgoing, answer, ANSWER_BYTES, outgoing_bytes(run), connection->sent);
}

/* False when the peer has closed. */
static bool answer_now(const struct run *run, struct connection *connection)
{
    for (connection->sent = 0; connection->sent < outgoing_bytes(run);) {
        cut_outgoing(run, connection);
        ssize_t sent = sendmsg(connection->descriptor, &connection->outgoing, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return false;
        connection->sent += sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool drain(const struct run *run, struct connection *connection)
{
    for (;;) {
        cut_incoming(run, connection);
        ssize_t received = recvmsg(connection->descriptor, &connection->incoming, MSG_DONTWAIT);
        if (received < 0 && errno == EAGAIN)
            return true;
        if (received <= 0)
            return false;
        connection->received += (size_t)received;
        if (connection->received < incoming_bytes(run))
            continue;
        connection->received = 0;
        if (!answer_now(run, connection))
            return false;
    }
}

static bool goes_to_sleep(const struct run *run, int64_t active_ns)
{
    return run->server_sleeps || te_bench_now_ns() - active_ns > polling_ns;
}

static void serve_on_epoll(const struct run *run)
{
    struct epoll_event events[MAXIMUM_CONNECTIONS];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < run->connections; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = &connections[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].descriptor, &event))
            te_bench_die("epoll_ctl");
    }
    for (int64_t active_ns = 0;;) {
        int count = epoll_wait(epoll, events, MAXIMUM_CONNECTIONS, goes_to_sleep(run, active_ns) ? -1 : 0);
        if (count > 0 && !run->server_sleeps)
            active_ns = te_bench_now_ns();
        for (int i = 0; i < count; i++)
            if (!drain(run, events[i].data.ptr))
                return;
    }
}

/* Which operation a completion belongs to: the lowest bit of its user data. */
enum { RING_RECEIVE = 0, RING_SEND = 1 };

static void open_ring(struct io_uring *ring)
{
    struct io_uring_params parameters = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    int code = io_uring_queue_init_params(RING_ENTRIES, ring, &parameters);
    if (code) {
        errno = -code;
        te_bench_die("io_uring");
    }
}

static struct io_uring_sqe *next_entry(struct io_uring *ring, struct connection *connection, uintptr_t operation)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    if (!entry)
        te_bench_die("no submission entry");
    io_uring_sqe_set_data64(entry, (uintptr_t)connection | operation);
    return entry;
}

static void ring_receive(const struct run *run, struct io_uring *ring, struct connection *connection)
{
    struct io_uring_sqe *entry = next_entry(ring, connection, RING_RECEIVE);
    cut_incoming(run, connection);
    io_uring_prep_recvmsg(entry, connection->descriptor, &connection->incoming, MSG_WAITALL);
    io_uring_sqe_set_data64(entry, (uintptr_t)connection | RING_RECEIVE);
}

static void ring_answer(const struct run *run, struct io_uring *ring, struct connection *connection)
{
    struct io_uring_sqe *entry = next_entry(ring, connection, RING_SEND);
    cut_outgoing(run, connection);
    io_uring_prep_sendmsg(entry, connection->descriptor, &connection->outgoing, MSG_WAITALL | MSG_NOSIGNAL);
    io_uring_sqe_set_data64(entry, (uintptr_t)connection | RING_SEND);
}

/* Sends the entries and, unless it is to sleep, returns at once with what has completed. */
static void ring_turn(struct io_uring *ring, bool sleeps)
{
    int code = sleeps ? io_uring_submit_and_wait(ring, 1) : io_uring_submit_and_get_events(ring);
    if (code < 0 && code != -EINTR) {
        errno = -code;
        te_bench_die("io_uring_enter");
    }
}

static bool serve_completion(const struct run *run, struct io_uring *ring, const struct io_uring_cqe *completion)
{
    struct connection *connection = (struct connection *)(uintptr_t)(completion->user_data & ~(uintptr_t)1);
    if (completion->res <= 0)
        return false;
    if ((completion->user_data & 1) == RING_RECEIVE) {
        connection->received += (size_t)completion->res;
        if (connection->received == incoming_bytes(run)) {
            connection->received = 0;
            connection->sent = 0;
            ring_answer(run, ring, connection);
        }
        ring_receive(run, ring, connection);
    } else {
        connection->sent += (size_t)completion->res;
        if (connection->sent < outgoing_bytes(run))
            ring_answer(run, ring, connection);
    }
    return true;
}

static void serve_on_ring(const struct run *run)
{
    struct io_uring ring;
    open_ring(&ring);
    for (size_t i = 0; i < run->connections; i++)
        ring_receive(run, &ring, &connections[i]);
    for (int64_t active_ns = 0;;) {
        struct io_uring_cqe *completion;
        unsigned int head, seen = 0;
        bool open = true;
        ring_turn(&ring, goes_to_sleep(run, active_ns));
        io_uring_for_each_cqe(&ring, head, completion)
        {
            seen++;
            open = open && serve_completion(run, &ring, completion);
        }
        io_uring_cq_advance(&ring, seen);
        if (seen > 0 && !run->server_sleeps)
            active_ns = te_bench_now_ns();
        if (!open)
            return;
    }
}

static void send_bytes(struct connection *connection, const void *bytes, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t count =
            send(connection->descriptor, (const unsigned char *)bytes + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN)
            te_bench_die("send");
        sent += count > 0 ? (size_t)count : 0;
    }
}

/* True when a whole answer has been taken. */
static bool take_answer(const struct run *run, struct connection *connection)
{
    size_t total = outgoing_bytes(run);
    ssize_t count = recv(connection->descriptor, body, total - connection->received, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN))
        te_bench_die("recv");
    connection->received += count > 0 ? (size_t)count : 0;
    if (connection->received < total)
        return false;
    connection->received = 0;
    return true;
}

static void ask(struct connection *connection)
{
    connection->begin_ns = te_bench_now_ns();
    send_bytes(connection, connection->request, REQUEST_BYTES);
}

/* Asks on every connection and asks again as answers come, until end_ns. */
static uint64_t ask_around(const struct run *run, struct te_latency *latency, int64_t end_ns)
{
    uint64_t answers = 0;
    size_t open = run->connections;
    for (size_t i = 0; i < run->connections; i++)
        ask(&connections[i]);
    while (open > 0) {
        for (size_t i = 0; i < run->connections; i++) {
            struct connection *connection = &connections[i];
            if (connection->begin_ns == 0 || !take_answer(run, connection))
                continue;
            int64_t now_ns = te_bench_now_ns();
            te_latency_add(latency, now_ns - connection->begin_ns);
            answers++;
            connection->begin_ns = 0;
            if (now_ns < end_ns)
                ask(connection);
            else
                open--;
        }
    }
    return answers;
}

/* One request and its answer, both operations handed over in one system call. */
static void ring_exchange(const struct run *run, struct io_uring *ring, struct connection *connection)
{
    struct io_uring_sqe *entry = next_entry(ring, connection, RING_SEND);
    io_uring_prep_send(entry, connection->descriptor, connection->request, REQUEST_BYTES, MSG_NOSIGNAL);
    io_uring_sqe_set_data64(entry, RING_SEND);
    entry = next_entry(ring, connection, RING_RECEIVE);
    io_uring_prep_recv(entry, connection->descriptor, body, outgoing_bytes(run), MSG_WAITALL);
    io_uring_sqe_set_data64(entry, RING_RECEIVE);
    for (int left = 2; left > 0;) {
        struct io_uring_cqe *completion;
        ring_turn(ring, false);
        while (io_uring_peek_cqe(ring, &completion) == 0) {
            if (completion->res <= 0)
                te_bench_die("exchange on the ring");
            io_uring_cqe_seen(ring, completion);
            left--;
        }
    }
}

static uint64_t ask_on_ring(const struct run *run, struct te_latency *latency, int64_t end_ns)
{
    static struct io_uring ring;
    static bool opened;
    if (!opened)
        open_ring(&ring);
    opened = true;
    uint64_t answers = 0;
    for (int64_t now_ns = te_bench_now_ns(); now_ns < end_ns; answers++) {
        int64_t begin_ns = now_ns;
        ring_exchange(run, &ring, &connections[0]);
        now_ns = te_bench_now_ns();
        te_latency_add(latency, now_ns - begin_ns);
    }
    return answers;
}

static uint64_t stream(const struct run *run, struct te_latency *latency, int64_t end_ns)
{
    struct connection *connection = &connections[0];
    uint64_t sent = 0, answered = 0;
    int64_t last_ns = te_bench_now_ns();
    while (last_ns < end_ns || answered < sent) {
        if (last_ns < end_ns && sent < answered + STREAM_DEPTH) {
            send_bytes(connection, connection->request, REQUEST_BYTES);
            send_bytes(connection, body, LARGE_BODY);
            sent++;
        }
        if (answered < sent && take_answer(run, connection)) {
            int64_t now_ns = te_bench_now_ns();
            te_latency_add(latency, now_ns - last_ns);
            last_ns = now_ns;
            answered++;
        }
    }
    return answered;
}

static uint64_t drive(const struct run *run, struct te_latency *latency, double seconds)
{
    int64_t end_ns = te_bench_now_ns() + (int64_t)(seconds * 1e9);
    if (run->stream)
        return stream(run, latency, end_ns);
    return run->client_on_ring ? ask_on_ring(run, latency, end_ns) : ask_around(run, latency, end_ns);
}

static void measure(const struct run *run, pid_t server)
{
    static struct te_latency latency;
    drive(run, &latency, 0.05);
    memset(&latency, 0, sizeof(latency));
    double before = te_bench_cpu_seconds(getpid()), server_before = te_bench_cpu_seconds(server);
    int64_t start_ns = te_bench_now_ns();
    uint64_t answers = drive(run, &latency, run->seconds);
    double seconds = (double)(te_bench_now_ns() - start_ns) / 1e9;
    printf("{\"program\":\"event_engines\",\"test\":\"%s\",\"connections\":%zu,\"server\":\"%s\",\"idle\":\"%s\","
           "\"client\":\"%s\",\"congestion\":\"%s\",",
           run->stream ? "stream" : "answer", run->connections, run->server_on_ring ? "io_uring" : "epoll",
           run->server_sleeps ? "sleep" : "poll", run->client_on_ring ? "io_uring" : "system calls", run->congestion);
    te_bench_print_figures(&latency, seconds, answers, answers * (run->stream ? LARGE_BODY : SMALL_BODY),
                           te_bench_cpu_seconds(getpid()) - before, te_bench_cpu_seconds(server) - server_before);
}

static void serve(const struct run *run, int listening_socket)
{
    for (size_t i = 0; i < run->connections; i++)
        connections[i].descriptor = te_bench_accept(listening_socket);
    (run->server_on_ring ? serve_on_ring : serve_on_epoll)(run);
}

/* In a process of its own, so that nothing of one run is left for the next. */
static void carry_out(const struct run *run)
{
    int listening_socket = te_bench_listen(run->congestion);
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(run, listening_socket);
        _exit(0);
    }
    for (size_t i = 0; i < run->connections; i++)
        connections[i].descriptor = te_bench_connect(listening_socket, run->congestion);
    measure(run, server);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    _exit(0);
}

static void carry_out_apart(const struct run *run)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        carry_out(run);
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
        te_bench_die("a run failed");
}

static void carry_out_round(double seconds, const char *congestion)
{
    for (int sleeps = 1; sleeps >= 0; sleeps--) {
        struct run run = {.server_sleeps = sleeps, .seconds = seconds, .congestion = congestion};
        for (int on_ring = 0; on_ring < 2; on_ring++) {
            run.server_on_ring = on_ring;
            for (run.connections = 1; run.connections <= MAXIMUM_CONNECTIONS; run.connections *= 64)
                carry_out_apart(&run);
        }
        run = (struct run){.server_sleeps = sleeps, .seconds = seconds, .congestion = congestion, .connections = 1};
        run.client_on_ring = true;
        carry_out_apart(&run);
        run.client_on_ring = false;
        run.stream = true;
        for (int on_ring = 0; on_ring < 2; on_ring++) {
            run.server_on_ring = on_ring;
            carry_out_apart(&run);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"rounds", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 's'},
        {"congestion", required_argument, NULL, 'g'},
        {NULL, 0, NULL, 0},
    };
    int rounds = 5;
    double seconds = 1;
    const char *congestion = "";
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (option == 'r')
            rounds = atoi(optarg);
        else if (option == 's')
            seconds = atof(optarg);
        else if (option == 'g')
            congestion = optarg;
        else
            return 2;
    }
    if (optind < argc || rounds < 1 || !(seconds > 0)) {
        fprintf(stderr, "usage: %s [--rounds=N] [--seconds=S] [--congestion=NAME]\n", argv[0]);
        return 2;
    }
    body = te_bench_memory(LARGE_BODY);
    for (int round = 0; round < rounds; round++)
        carry_out_round(seconds, congestion);
    return 0;
}
