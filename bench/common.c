#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void te_bench_die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

int64_t te_bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double te_bench_cpu_seconds(pid_t process)
{
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &used))
        te_bench_die("CPU time");
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

unsigned char *te_bench_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        te_bench_die("memory");
    memset(memory, 1, size);
    return memory;
}

static void set_up(int descriptor, const char *congestion)
{
    int one = 1;
    if (setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
        te_bench_die("TCP_NODELAY");
    if (congestion && *congestion &&
        setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)))
        te_bench_die(congestion);
}

int te_bench_listen(const char *congestion)
{
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (descriptor < 0)
        te_bench_die("socket");
    set_up(descriptor, congestion);
    if (bind(descriptor, (struct sockaddr *)&address, sizeof(address)) || listen(descriptor, 128))
        te_bench_die("listen");
    return descriptor;
}

int te_bench_connect(int listening_socket, const char *congestion)
{
    struct sockaddr_in address;
    socklen_t length = sizeof(address);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || getsockname(listening_socket, (struct sockaddr *)&address, &length))
        te_bench_die("socket");
    set_up(descriptor, congestion);
    if (connect(descriptor, (struct sockaddr *)&address, length))
        te_bench_die("connect");
    return descriptor;
}

int te_bench_accept(int listening_socket)
{
    int descriptor = accept4(listening_socket, NULL, NULL, SOCK_CLOEXEC);
    if (descriptor < 0)
        te_bench_die("accept");
    set_up(descriptor, NULL); /* the congestion control is inherited */
    return descriptor;
}

void te_bench_print_figures(const struct te_latency *latency, double seconds, uint64_t batches, uint64_t bytes,
                            double cpu_seconds, double peer_cpu_seconds)
{
    double gigabytes = (double)bytes / 1e9;
    printf("\"seconds\":%.6f,\"batches\":%llu,\"bytes\":%llu,\"gigabytes_per_second\":%.6f,"
           "\"batch_latency_us\":{\"mean\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"maximum\":%.3f},"
           "\"cpu_seconds\":%.6f,\"peer_cpu_seconds\":%.6f,"
           "\"cpu_seconds_per_gigabyte\":%.6f,\"peer_cpu_seconds_per_gigabyte\":%.6f}\n",
           seconds, (unsigned long long)batches, (unsigned long long)bytes, gigabytes / seconds,
           seconds * 1e6 / (double)batches, te_latency_quantile_ns(latency, 0.5) / 1e3,
           te_latency_quantile_ns(latency, 0.99) / 1e3, (double)latency->maximum_ns / 1e3, cpu_seconds,
           peer_cpu_seconds, cpu_seconds / gigabytes, peer_cpu_seconds / gigabytes);
    fflush(stdout);
}
