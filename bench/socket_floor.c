/*
 * The floor: the exchanges of the classic TCP data plane (version 2) between two processes on bare sockets, with
 * nothing around them. A request is a header of 24 bytes, a write's followed by its body; the answer is 8 bytes, a
 * read's followed by its body. Both sides know what comes next, so that every system call moves as much as it can.
 *
 *   socket_floor [--case=OPERATION:SIZE:BATCH,...] [--client=spin|block] [--server=spin|block] [--congestion=NAME]
 *                [--buffers=hot|batch|cold] [--seconds=S]
 *
 * One JSON object per case, with the keys of `te bench --json`.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
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

enum { MAXIMUM_BATCH = 256, WARM_UP_BATCHES = 20 };
static const size_t cold_region = (size_t)256 << 20;

struct floor_case {
    bool write;
    size_t size, batch;
};

struct options {
    bool client_spins, server_spins;
    const char *congestion, *buffers;
    double seconds;
};

/* One end of the connection. */
struct side {
    int descriptor;
    int epoll; /* -1: block in the call itself */
    bool spins;
    unsigned char *memory;
    size_t region, position;
    const struct floor_case *what;
    bool reuse;                                         /* every request moves the same block */
    unsigned char small[MAXIMUM_BATCH * REQUEST_BYTES]; /* requests, answers */
};

static unsigned char *next_block(struct side *side)
{
    unsigned char *block = side->memory + side->position;
    if (!side->reuse)
        side->position = (side->position + side->what->size) % side->region;
    return block;
}

/* Moves on over what has been transferred. */
static void advance(struct iovec **parts, size_t *count, size_t bytes)
{
    while (*count > 0 && bytes >= (*parts)->iov_len) {
        bytes -= (*parts)->iov_len;
        (*parts)++;
        (*count)--;
    }
    if (*count > 0) {
        (*parts)->iov_base = (unsigned char *)(*parts)->iov_base + bytes;
        (*parts)->iov_len -= bytes;
    }
}

static void wait_for(struct side *side, uint32_t events)
{
    struct epoll_event event = {.events = events};
    if (side->spins)
        return;
    if (epoll_ctl(side->epoll, EPOLL_CTL_MOD, side->descriptor, &event))
        te_bench_die("epoll_ctl");
    epoll_wait(side->epoll, &event, 1, -1);
}

/* False when the peer has closed. */
static bool move_all(struct side *side, bool send, struct iovec *parts, size_t count)
{
    int flags = (side->spins || side->epoll >= 0 ? MSG_DONTWAIT : 0) | MSG_NOSIGNAL;
    while (count > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t moved = send ? sendmsg(side->descriptor, &message, flags) : recvmsg(side->descriptor, &message, flags);
        if (moved > 0)
            advance(&parts, &count, (size_t)moved);
        else if (moved < 0 && errno == EAGAIN)
            wait_for(side, send ? EPOLLOUT : EPOLLIN);
        else
            return false;
    }
    return true;
}

static bool send_parts(struct side *side, struct iovec *parts, size_t count)
{
    return move_all(side, true, parts, count);
}

static bool receive_parts(struct side *side, struct iovec *parts, size_t count)
{
    return move_all(side, false, parts, count);
}

static bool client_batch(struct side *side)
{
    const struct floor_case *what = side->what;
    struct iovec parts[2 * MAXIMUM_BATCH];
    if (what->write) {
        for (size_t i = 0; i < what->batch; i++) {
            struct iovec request[] = {{side->small, REQUEST_BYTES}, {next_block(side), what->size}};
            if (!send_parts(side, request, 2))
                return false;
        }
        struct iovec answers = {side->small, ANSWER_BYTES * what->batch};
        return receive_parts(side, &answers, 1);
    }
    struct iovec requests = {side->small, REQUEST_BYTES * what->batch};
    for (size_t i = 0; i < what->batch; i++) {
        parts[2 * i] = (struct iovec){side->small, ANSWER_BYTES};
        parts[2 * i + 1] = (struct iovec){next_block(side), what->size};
    }
    return send_parts(side, &requests, 1) && receive_parts(side, parts, 2 * what->batch);
}

static bool server_write(struct side *side)
{
    struct iovec request[] = {{side->small, REQUEST_BYTES}, {next_block(side), side->what->size}};
    struct iovec answer = {side->small, ANSWER_BYTES};
    return receive_parts(side, request, 2) && send_parts(side, &answer, 1);
}

/* Takes as many requests as have come, and answers each. */
static bool server_read(struct side *side)
{
    size_t have = 0;
    while (have == 0 || have % REQUEST_BYTES) {
        int flags = side->spins || side->epoll >= 0 ? MSG_DONTWAIT : 0;
        ssize_t received = recv(side->descriptor, side->small + have, sizeof(side->small) - have, flags);
        if (received > 0)
            have += (size_t)received;
        else if (received < 0 && errno == EAGAIN)
            wait_for(side, EPOLLIN);
        else
            return false;
    }
    for (size_t i = 0; i < have / REQUEST_BYTES; i++) {
        struct iovec answer[] = {{side->small, ANSWER_BYTES}, {next_block(side), side->what->size}};
        if (!send_parts(side, answer, 2))
            return false;
    }
    return true;
}

/* Two that spin must not share a core, which a scheduler does not always see at once. */
static void keep_apart(bool server)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(server ? cores - 1 : 0, &set);
    if (cores > 1)
        sched_setaffinity(0, sizeof(set), &set); /* in a container it may be refused: then the scheduler decides */
}

static void set_up_side(struct side *side, const struct options *options, const struct floor_case *what)
{
    side->what = what;
    side->reuse = !strcmp(options->buffers, "hot");
    side->region = !strcmp(options->buffers, "cold") ? cold_region / what->size * what->size : what->size * what->batch;
    side->memory = te_bench_memory(side->region);
}

static void serve(int listening_socket, const struct options *options, const struct floor_case *what)
{
    struct side side = {.epoll = -1, .spins = options->server_spins};
    if (options->client_spins && options->server_spins)
        keep_apart(true);
    set_up_side(&side, options, what);
    side.descriptor = te_bench_accept(listening_socket);
    if (!side.spins) {
        struct epoll_event event = {.events = EPOLLIN};
        side.epoll = epoll_create1(EPOLL_CLOEXEC);
        if (side.epoll < 0 || epoll_ctl(side.epoll, EPOLL_CTL_ADD, side.descriptor, &event))
            te_bench_die("epoll");
    }
    while (what->write ? server_write(&side) : server_read(&side))
        continue;
}

static void measure(struct side *side, const struct options *options, pid_t server)
{
    static struct te_latency latency;
    uint64_t batches = 0;
    memset(&latency, 0, sizeof(latency));
    for (int i = 0; i < WARM_UP_BATCHES; i++)
        if (!client_batch(side))
            te_bench_die("warming up");
    double before = te_bench_cpu_seconds(getpid()), server_before = te_bench_cpu_seconds(server);
    int64_t start_ns = te_bench_now_ns(), end_ns = start_ns + (int64_t)(options->seconds * 1e9), now_ns = start_ns;
    while (now_ns < end_ns) {
        int64_t begin_ns = now_ns;
        if (!client_batch(side))
            te_bench_die("exchange");
        now_ns = te_bench_now_ns();
        te_latency_add(&latency, now_ns - begin_ns);
        batches++;
    }
    const struct floor_case *what = side->what;
    printf("{\"program\":\"floor\",\"operation\":\"%s\",\"size\":%zu,\"batch\":%zu,\"client\":\"%s\",\"server\":\"%s\","
           "\"congestion\":\"%s\",\"buffers\":\"%s\",",
           what->write ? "write" : "read", what->size, what->batch, options->client_spins ? "spin" : "block",
           options->server_spins ? "spin" : "block", options->congestion, options->buffers);
    te_bench_print_figures(&latency, (double)(now_ns - start_ns) / 1e9, batches, batches * what->batch * what->size,
                           te_bench_cpu_seconds(getpid()) - before, te_bench_cpu_seconds(server) - server_before);
}

static void run_case(const struct floor_case *what, const struct options *options)
{
    int listening_socket = te_bench_listen(options->congestion);
    pid_t server = fork();
    if (server < 0)
        te_bench_die("fork");
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(listening_socket, options, what);
        _exit(0);
    }
    struct side side = {.epoll = -1, .spins = options->client_spins};
    set_up_side(&side, options, what);
    side.descriptor = te_bench_connect(listening_socket, options->congestion);
    measure(&side, options, server);
    close(side.descriptor);
    close(listening_socket);
    waitpid(server, NULL, 0);
}

static bool parse_case(const char *text, struct floor_case *what)
{
    char operation[8];
    if (sscanf(text, "%7[a-z]:%zu:%zu", operation, &what->size, &what->batch) != 3)
        return false;
    what->write = !strcmp(operation, "write");
    return (what->write || !strcmp(operation, "read")) && what->size > 0 && what->batch > 0 &&
           what->batch <= MAXIMUM_BATCH && what->size <= cold_region / what->batch;
}

static bool parse(int argc, char **argv, struct options *options, char **cases)
{
    static const struct option names[] = {
        {"case", required_argument, NULL, 'x'},
        {"client", required_argument, NULL, 'c'},
        {"server", required_argument, NULL, 's'},
        {"congestion", required_argument, NULL, 'g'},
        {"buffers", required_argument, NULL, 'b'},
        {"seconds", required_argument, NULL, 't'},
        {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (option == 'x')
            *cases = optarg;
        else if (option == 'c')
            options->client_spins = !strcmp(optarg, "spin");
        else if (option == 's')
            options->server_spins = !strcmp(optarg, "spin");
        else if (option == 'g')
            options->congestion = optarg;
        else if (option == 'b')
            options->buffers = optarg;
        else if (option == 't')
            options->seconds = atof(optarg);
        else
            return false;
    }
    return optind == argc && options->seconds > 0;
}

int main(int argc, char **argv)
{
    struct options options = {
        .client_spins = true, .server_spins = true, .congestion = "", .buffers = "hot", .seconds = 1};
    char default_cases[] = "write:64:1,read:4096:1,write:65536:16,read:65536:16,write:1048576:16,read:1048576:16";
    char *cases = default_cases, *rest = NULL;
    if (!parse(argc, argv, &options, &cases)) {
        fprintf(stderr,
                "usage: %s [--case=read|write:SIZE:BATCH,...] [--client=spin|block] [--server=spin|block]\n"
                "    [--congestion=NAME] [--buffers=hot|batch|cold] [--seconds=S]\n",
                argv[0]);
        return 2;
    }
    if (options.client_spins && options.server_spins)
        keep_apart(false);
    for (char *text = strtok_r(cases, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        struct floor_case what;
        if (!parse_case(text, &what)) {
            fprintf(stderr, "%s is no case, which are like read:65536:16\n", text);
            return 2;
        }
        run_case(&what, &options);
    }
    return 0;
}
