/* What the programs on bare sockets share: connections over loopback, time, cases, JSON lines. */
#ifndef TE_BENCH_COMMON_H
#define TE_BENCH_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/latency.h"

enum { REQUEST_BYTES = 24, ANSWER_BYTES = 8 };

/* Prints the message and errno's text, and exits with 1. */
_Noreturn void te_bench_die(const char *what);

int64_t te_bench_now_ns(void);
/* User and system time of a process that has not ended. */
double te_bench_cpu_seconds(pid_t process);

/* size bytes that have been touched. */
unsigned char *te_bench_memory(size_t size);

/* A listening socket on 127.0.0.1 and a free port; congestion: NULL or "" leaves the kernel's choice. */
int te_bench_listen(const char *congestion);
int te_bench_connect(int listening_socket, const char *congestion);
/* Without delay, as te_bench_connect() makes them. */
int te_bench_accept(int listening_socket);

/* The keys that all programs print: rate, latencies, CPU; follows an object that is still open. */
void te_bench_print_figures(const struct te_latency *latency, double seconds, uint64_t batches, uint64_t bytes,
                            double cpu_seconds, double peer_cpu_seconds);

#endif
