#include "core/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>

#include <glib.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/net/reactor.h"

static const uint32_t bounds_us[] = {10,    20,    50,     100,    200,    500,     1000,    2000,    5000,    10000,
                                     20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000};

enum { BOUNDS = G_N_ELEMENTS(bounds_us), BUCKETS = BOUNDS + 1, OPCODES = TE_OPCODE_WRITE + 1 };

#define BYTES_PER_MEGABYTE (1024.0 * 1024.0) /* as Mooncake's engine has it */

struct te_metrics {
    _Atomic uint64_t tasks[OPCODES], bytes[OPCODES]; /* of those that completed */
    _Atomic uint64_t latencies[BUCKETS]; /* likewise: how many took at most bounds_us[i]; the last: longer */
    _Atomic uint64_t failed;

    char *engine_name;
    struct te_reactor *reactor;
    int64_t interval_ns;
    int64_t last_ns; /* when the last line was taken; reactor's thread */
    struct te_timer timer;
};

struct te_metrics *te_metrics_new(const char *engine_name)
{
    struct te_metrics *metrics = g_new0(struct te_metrics, 1);

    metrics->engine_name = g_strdup(engine_name);
    return metrics;
}

void te_metrics_free(struct te_metrics *metrics)
{
    if (metrics == NULL)
        return;
    g_free(metrics->engine_name);
    g_free(metrics);
}

static void add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static uint64_t take(_Atomic uint64_t *counter)
{
    return atomic_exchange_explicit(counter, 0, memory_order_relaxed);
}

static unsigned bucket_of(int64_t latency_ns)
{
    unsigned bucket = 0;

    while (bucket < BOUNDS && latency_ns > (int64_t)bounds_us[bucket] * 1000)
        bucket++;
    return bucket;
}

void te_metrics_count(struct te_metrics *metrics, enum te_opcode opcode, bool completed, uint64_t bytes,
                      int64_t latency_ns)
{
    if (!completed) {
        add(&metrics->failed, 1);
        return;
    }
    add(&metrics->tasks[opcode], 1);
    add(&metrics->bytes[opcode], bytes);
    add(&metrics->latencies[bucket_of(latency_ns)], 1);
}

/* With a decimal point in every locale. */
static void append_rate(GString *line, uint64_t bytes, int64_t elapsed_ns)
{
    double seconds = (double)elapsed_ns / (double)TE_NS_PER_SECOND;
    char text[G_ASCII_DTOSTR_BUF_SIZE];

    g_string_append(line, g_ascii_formatd(text, sizeof(text), "%.2f", (double)bytes / (BYTES_PER_MEGABYTE * seconds)));
    g_string_append(line, " MB/s");
}

/* Shares of less than a thousandth are left out. */
static void append_latencies(GString *line, const uint64_t counts[BUCKETS])
{
    const char *separator = "";
    uint64_t total = 0;

    for (unsigned i = 0; i < BUCKETS; i++)
        total += counts[i];
    if (total == 0)
        return;
    g_string_append_printf(line, " | Latency Distribution (count=%" PRIu64 "): ", total);
    for (unsigned i = 0; i < BUCKETS; i++) {
        uint64_t thousandths = (counts[i] * 1000 + total / 2) / total;

        if (counts[i] == 0 || counts[i] * 1000 < total)
            continue;
        g_string_append(line, separator);
        separator = ", ";
        if (i < BOUNDS)
            g_string_append_printf(line, "%u-%uμs", i > 0 ? bounds_us[i - 1] : 0, bounds_us[i]);
        else
            g_string_append_printf(line, ">%uμs", bounds_us[BOUNDS - 1]);
        g_string_append_printf(line, ":%" PRIu64 ".%" PRIu64 "%%", thousandths / 10, thousandths % 10);
    }
}

char *te_metrics_take_line(struct te_metrics *metrics, int64_t elapsed_ns)
{
    uint64_t reads = take(&metrics->tasks[TE_OPCODE_READ]), read_bytes = take(&metrics->bytes[TE_OPCODE_READ]);
    uint64_t writes = take(&metrics->tasks[TE_OPCODE_WRITE]), written_bytes = take(&metrics->bytes[TE_OPCODE_WRITE]);
    uint64_t failed = take(&metrics->failed), latencies[BUCKETS], counted = reads + writes + failed;
    GString *line;

    for (unsigned i = 0; i < BUCKETS; i++) {
        latencies[i] = take(&metrics->latencies[i]);
        counted += latencies[i];
    }
    if (counted == 0)
        return NULL;
    line = g_string_new(NULL);
    g_string_append_printf(line, "[Metrics] Transfer Engine Stats (over last %" PRId64 "s): Throughput: ",
                           (elapsed_ns + TE_NS_PER_SECOND / 2) / TE_NS_PER_SECOND);
    append_rate(line, read_bytes + written_bytes, elapsed_ns);
    append_latencies(line, latencies);
    g_string_append_printf(line, " | engine %s: reads %" PRIu64 " (", metrics->engine_name, reads);
    append_rate(line, read_bytes, elapsed_ns);
    g_string_append_printf(line, "), writes %" PRIu64 " (", writes);
    append_rate(line, written_bytes, elapsed_ns);
    g_string_append_printf(line, "), failed %" PRIu64, failed);
    return g_string_free(line, FALSE);
}

/* The rest runs in the reactor's thread. */

static void set_timer(struct te_metrics *metrics, int64_t now_ns)
{
    metrics->last_ns = now_ns;
    te_reactor_timer_set(metrics->reactor, &metrics->timer, now_ns + metrics->interval_ns);
}

static void log_line(struct te_timer *timer)
{
    struct te_metrics *metrics = (void *)((char *)timer - offsetof(struct te_metrics, timer));
    int64_t now_ns = te_now_ns();
    char *line = te_metrics_take_line(metrics, now_ns - metrics->last_ns);

    set_timer(metrics, now_ns);
    if (line != NULL)
        te_log(TE_LOG_INFO, "%s", line);
    g_free(line);
}

static void start(void *data)
{
    set_timer(data, te_now_ns());
}

static void stop(void *data)
{
    struct te_metrics *metrics = data;

    te_reactor_timer_clear(metrics->reactor, &metrics->timer);
}

void te_metrics_start(struct te_metrics *metrics, struct te_reactor *reactor, int64_t interval_ns)
{
    metrics->reactor = reactor;
    metrics->interval_ns = interval_ns;
    metrics->timer.fire = log_line;
    te_reactor_run_wait(reactor, start, metrics);
}

void te_metrics_stop(struct te_metrics *metrics)
{
    te_reactor_run_wait(metrics->reactor, stop, metrics);
}
