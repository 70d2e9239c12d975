/* The statistics line (classic specification 8.4). */
#include "core/metrics.h"

#include <stdio.h>
#include <transfer_engine_c.h>
#include <transfer_engine_ext.h>

#include "tests/unit/task_helpers.h"

enum { MEBIBYTE = 1 << 20 };

#define SECOND TE_NS_PER_SECOND

#define expect_line(metrics, elapsed_ns, expected)                                                                     \
    do {                                                                                                               \
        char *line_ = te_metrics_take_line(metrics, elapsed_ns);                                                       \
        assert_non_null(line_);                                                                                        \
        assert_string_equal(line_, expected);                                                                          \
        g_free(line_);                                                                                                 \
    } while (0)

static void count_reads(struct te_metrics *metrics, unsigned count, int64_t latency_ns)
{
    for (unsigned i = 0; i < count; i++)
        te_metrics_count(metrics, TE_OPCODE_READ, true, 0, latency_ns);
}

/* ---- The text ---- */

static void the_line_has_rates_latencies_and_counts(void **state)
{
    struct te_metrics *metrics = te_metrics_new("host:1");

    (void)state;
    te_metrics_count(metrics, TE_OPCODE_READ, true, 9 * MEBIBYTE, 9000);
    te_metrics_count(metrics, TE_OPCODE_READ, true, 1 * MEBIBYTE, 9000);
    te_metrics_count(metrics, TE_OPCODE_WRITE, true, 15 * MEBIBYTE / 2, 700 * 1000);
    te_metrics_count(metrics, TE_OPCODE_WRITE, false, 5 * MEBIBYTE, 1);
    expect_line(metrics, 2 * SECOND,
                "[Metrics] Transfer Engine Stats (over last 2s): Throughput: 8.75 MB/s"
                " | Latency Distribution (count=3): 0-10μs:66.7%, 500-1000μs:33.3%"
                " | engine host:1: reads 2 (5.00 MB/s), writes 1 (3.75 MB/s), failed 1");
    te_metrics_free(metrics);
}

static void what_was_taken_is_not_counted_again(void **state)
{
    struct te_metrics *metrics = te_metrics_new("host:1");

    (void)state;
    assert_null(te_metrics_take_line(metrics, SECOND));
    count_reads(metrics, 1, 0);
    te_metrics_count(metrics, TE_OPCODE_WRITE, true, 1, 1);
    te_metrics_count(metrics, TE_OPCODE_READ, false, 0, 1);
    g_free(te_metrics_take_line(metrics, SECOND));
    assert_null(te_metrics_take_line(metrics, SECOND));
    te_metrics_count(metrics, TE_OPCODE_READ, false, 0, 1);
    expect_line(metrics, 5003 * TE_NS_PER_MS,
                "[Metrics] Transfer Engine Stats (over last 5s): Throughput: 0.00 MB/s"
                " | engine host:1: reads 0 (0.00 MB/s), writes 0 (0.00 MB/s), failed 1");
    te_metrics_free(metrics);
}

/* A latency of just a bound is below it; one nanosecond more is above. */
static void each_bound_belongs_to_the_range_below(void **state)
{
    static const unsigned bounds_us[] = {10,     20,      50,      100,     200,     500,    1000,
                                         2000,   5000,    10000,   20000,   50000,   100000, 200000,
                                         500000, 1000000, 2000000, 5000000, 10000000};
    struct te_metrics *metrics = te_metrics_new("host:1");

    (void)state;
    for (unsigned i = 0; i < G_N_ELEMENTS(bounds_us); i++) {
        char below[128], above[128];
        char *line;

        g_snprintf(below, sizeof(below), "(count=1): %u-%uμs:100.0%% | ", i > 0 ? bounds_us[i - 1] : 0, bounds_us[i]);
        if (i + 1 < G_N_ELEMENTS(bounds_us))
            g_snprintf(above, sizeof(above), "(count=1): %u-%uμs:100.0%% | ", bounds_us[i], bounds_us[i + 1]);
        else
            g_snprintf(above, sizeof(above), "(count=1): >%uμs:100.0%% | ", bounds_us[i]);
        count_reads(metrics, 1, (int64_t)bounds_us[i] * 1000);
        line = te_metrics_take_line(metrics, SECOND);
        assert_non_null(strstr(line, below));
        g_free(line);
        count_reads(metrics, 1, (int64_t)bounds_us[i] * 1000 + 1);
        line = te_metrics_take_line(metrics, SECOND);
        assert_non_null(strstr(line, above));
        g_free(line);
    }
    te_metrics_free(metrics);
}

static void shares_below_a_thousandth_are_left_out(void **state)
{
    struct te_metrics *metrics = te_metrics_new("host:1");

    (void)state;
    count_reads(metrics, 999, 1);
    count_reads(metrics, 1, 15000 * SECOND);
    expect_line(metrics, SECOND,
                "[Metrics] Transfer Engine Stats (over last 1s): Throughput: 0.00 MB/s"
                " | Latency Distribution (count=1000): 0-10μs:99.9%, >10000000μs:0.1%"
                " | engine host:1: reads 1000 (0.00 MB/s), writes 0 (0.00 MB/s), failed 0");
    count_reads(metrics, 1, 60 * 1000);
    count_reads(metrics, 1000, 30 * 1000);
    expect_line(metrics, SECOND,
                "[Metrics] Transfer Engine Stats (over last 1s): Throughput: 0.00 MB/s"
                " | Latency Distribution (count=1001): 20-50μs:99.9%"
                " | engine host:1: reads 1001 (0.00 MB/s), writes 0 (0.00 MB/s), failed 0");
    te_metrics_free(metrics);
}

/* ---- What tasks count ---- */

static void add_one(void *data, bool succeeded)
{
    (void)succeeded;
    ++*(unsigned *)data;
}

static void each_task_counts_once_when_it_has_ended(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    struct te_metrics *metrics = te_metrics_new("host:1");
    struct te_reservation reservation;
    struct te_task *task;
    struct te_slice *slices;
    unsigned done = 0;
    uint64_t id;
    char *line;

    (void)state;
    te_batch_table_measure(table, metrics);
    id = allocate(table, 8);

    /* Nothing to move: no measurement. */
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
    te_batch_publish(&reservation, NULL, NULL);
    assert_null(te_metrics_take_line(metrics, SECOND));

    /* Two slices, one task. */
    assert_int_equal(te_batch_reserve(table, id, 1, &reservation), TE_OK);
    task = te_reservation_task(&reservation, 0);
    task->length = 2 * TASK_BYTES;
    slices = split(task, 2);
    slices[0].opcode = slices[1].opcode = TE_OPCODE_WRITE;
    te_batch_publish(&reservation, NULL, NULL);
    te_slice_end(&slices[0], TE_SLICE_SUCCEEDED, TASK_BYTES);
    assert_null(te_metrics_take_line(metrics, SECOND));
    te_slice_end(&slices[1], TE_SLICE_SUCCEEDED, TASK_BYTES);
    line = te_metrics_take_line(metrics, SECOND);
    assert_non_null(line);
    assert_non_null(strstr(line, "(count=1): "));
    assert_non_null(strstr(line, ": reads 0 (0.00 MB/s), writes 1 (0.00 MB/s), failed 0"));
    g_free(line);

    /* All that did not complete is failed; the function of a submission is called as ever. */
    task = submit_with(table, id, 1, add_one, &done);
    end(task, TE_SLICE_SUCCEEDED);
    assert_int_equal(done, 1);
    end(submit(table, id, 1), TE_SLICE_FAILED);
    end(submit(table, id, 1), TE_SLICE_TIMED_OUT);
    task = submit(table, id, 1);
    te_task_request_cancel(table, id, SIZE_MAX, NULL, NULL);
    end(task, TE_SLICE_CANCELED);
    line = te_metrics_take_line(metrics, SECOND);
    assert_non_null(strstr(line, "(count=1): "));
    assert_non_null(strstr(line, ": reads 1 (0.00 MB/s), writes 0 (0.00 MB/s), failed 3"));
    g_free(line);

    /* One that never ends leaks nothing. */
    submit(table, id, 1);
    te_batch_table_free(table);
    te_metrics_free(metrics);
}

static void latency_runs_from_submit_to_end(void **state)
{
    struct te_batch_table *table = te_batch_table_new(NULL);
    struct te_metrics *metrics = te_metrics_new("host:1");
    struct te_task *task;
    int64_t begin_ns;
    char *line;

    (void)state;
    te_batch_table_measure(table, metrics);
    task = submit(table, allocate(table, 1), 1);
    begin_ns = te_now_ns();
    while (te_now_ns() - begin_ns <= 10 * TE_NS_PER_MS)
        ;
    end(task, TE_SLICE_SUCCEEDED);
    line = te_metrics_take_line(metrics, SECOND);
    /* The shares of all ranges up to 10 ms are missing, so it is in a later one. */
    assert_non_null(strstr(line, "(count=1): "));
    assert_true(strtoll(strstr(line, "(count=1): ") + strlen("(count=1): "), NULL, 10) >= 10000);
    g_free(line);
    te_batch_table_free(table);
    te_metrics_free(metrics);
}

/* ---- Several threads ---- */

enum { THREADS = 4, TASKS_PER_THREAD = 5000 };

struct crowd {
    struct te_batch_table *table;
    _Atomic unsigned running;
};

static void *run_tasks(void *data)
{
    struct crowd *crowd = data;
    uint64_t id = allocate(crowd->table, TASKS_PER_THREAD);

    for (int i = 0; i < TASKS_PER_THREAD; i++)
        end(submit(crowd->table, id, 1), i % 2 == 0 ? TE_SLICE_SUCCEEDED : TE_SLICE_FAILED);
    atomic_fetch_sub(&crowd->running, 1);
    return NULL;
}

static uint64_t number_after(const char *line, const char *label)
{
    const char *found = strstr(line, label);

    return found != NULL ? strtoull(found + strlen(label), NULL, 10) : 0;
}

static void nothing_is_lost_between_threads(void **state)
{
    struct crowd crowd = {.table = te_batch_table_new(NULL), .running = THREADS};
    struct te_metrics *metrics = te_metrics_new("host:1");
    uint64_t latencies = 0, reads = 0, failed = 0;
    pthread_t threads[THREADS];
    bool last;

    (void)state;
    te_batch_table_measure(crowd.table, metrics);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_tasks, &crowd), 0);
    do {
        char *line;

        last = atomic_load(&crowd.running) == 0;
        line = te_metrics_take_line(metrics, SECOND);
        if (line == NULL)
            continue;
        latencies += number_after(line, "(count=");
        reads += number_after(line, "reads ");
        failed += number_after(line, "failed ");
        g_free(line);
    } while (!last);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(latencies, THREADS * TASKS_PER_THREAD / 2);
    assert_int_equal(reads, THREADS * TASKS_PER_THREAD / 2);
    assert_int_equal(failed, THREADS * TASKS_PER_THREAD / 2);
    te_batch_table_free(crowd.table);
    te_metrics_free(metrics);
}

/* ---- Engines ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned lines;
    int level;
    char text[1024]; /* of the latest */
    unsigned mentions;
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void hear(int level, const char *message, void *user_data)
{
    (void)user_data;
    pthread_mutex_lock(&heard.lock);
    if (g_str_has_prefix(message, "[Metrics]")) {
        heard.lines++;
        heard.level = level;
        g_strlcpy(heard.text, message, sizeof(heard.text));
        pthread_cond_signal(&heard.changed);
    } else if (strcasestr(message, "metric") != NULL) {
        heard.mentions++;
    }
    pthread_mutex_unlock(&heard.lock);
}

/* Returns what had been said of statistics so far, other than such lines. */
static unsigned count_mentions(void)
{
    unsigned count;

    pthread_mutex_lock(&heard.lock);
    count = heard.mentions;
    pthread_mutex_unlock(&heard.lock);
    return count;
}

/* Waits for that many lines in all; returns the latest, for g_free(), and its level. */
static char *await_line(unsigned number, int *level)
{
    struct timespec until;
    int result = 0;
    char *text;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WATCHDOG_NS / TE_NS_PER_SECOND;
    pthread_mutex_lock(&heard.lock);
    while (heard.lines < number && result == 0)
        result = pthread_cond_timedwait(&heard.changed, &heard.lock, &until);
    text = g_strdup(heard.text);
    *level = heard.level;
    pthread_mutex_unlock(&heard.lock);
    assert_int_equal(result, 0);
    return text;
}

static char memory[2][MEBIBYTE];

static transfer_engine_t create(char *name, size_t size)
{
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);

    assert_non_null(engine);
    assert_int_equal(getLocalIpAndPort(engine, name, size), 0);
    assert_int_equal(registerLocalMemory(engine, memory, sizeof(memory), "*", 1), 0);
    return engine;
}

/* One write and one read that complete, one read of what is not registered; all to the engine itself. */
static void transfer(transfer_engine_t engine, const char *name)
{
    int32_t segment = openSegment(engine, name);
    struct transfer_request requests[] = {
        {OPCODE_WRITE, memory[0], segment, (uintptr_t)memory[1], MEBIBYTE},
        {OPCODE_READ, memory[0], segment, (uintptr_t)memory[1], MEBIBYTE / 2},
        {OPCODE_READ, memory[0], segment, 4096, 1},
    };
    batch_id_t batch = allocateBatchID(engine, 3);

    /* Each by itself: they use the same memory. */
    for (size_t i = 0; i < 3; i++) {
        transfer_status_t status;

        assert_int_equal(submitTransfer(engine, batch, &requests[i], 1), 0);
        assert_int_equal(te_wait_task(engine, batch, i, WATCHDOG_NS, &status), 0);
        assert_int_equal(status.status, i < 2 ? STATUS_COMPLETED : STATUS_FAILED);
    }
    assert_int_equal(freeBatchID(engine, batch), 0);
}

static void an_engine_logs_the_line_if_it_is_asked_to(void **state)
{
    transfer_engine_t silent, talking;
    char silent_name[64], name[64];
    char *own;

    (void)state;
    te_set_log_callback(hear, NULL);
    g_setenv("MC_TE_METRIC_INTERVAL_SECONDS", "1", TRUE);
    silent = create(silent_name, sizeof(silent_name));
    assert_int_equal(count_mentions(), 0);
    g_setenv("MC_TE_METRIC", "on", TRUE);
    talking = create(name, sizeof(name));
    own = g_strdup_printf(" | engine %s: ", name);

    for (unsigned line = 1; line <= 2; line++) {
        char *text;
        int level;

        transfer(silent, silent_name);
        transfer(talking, name);
        text = await_line(line, &level);
        assert_int_equal(level, TE_LOG_LEVEL_INFO);
        assert_non_null(strstr(text, own));
        g_free(text);
    }
    destroyTransferEngine(talking);
    destroyTransferEngine(silent);
    assert_int_equal(count_mentions(), 0);
    g_free(own);
}

/* What is destroyed within an interval has no line, and does not wait for its end. */
static void destroying_does_not_wait_for_the_interval(void **state)
{
    transfer_engine_t engine;
    unsigned before;
    char name[64];

    (void)state;
    te_set_log_callback(hear, NULL);
    g_setenv("MC_TE_METRIC", "1", TRUE);
    g_setenv("MC_TE_METRIC_INTERVAL_SECONDS", "2147483647", TRUE);
    before = heard.lines;
    engine = create(name, sizeof(name));
    transfer(engine, name);
    destroyTransferEngine(engine);
    assert_int_equal(heard.lines, before);
}

static int restore(void **state)
{
    (void)state;
    te_set_log_callback(NULL, NULL);
    g_unsetenv("MC_TE_METRIC");
    g_unsetenv("MC_TE_METRIC_INTERVAL_SECONDS");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_has_rates_latencies_and_counts),
        cmocka_unit_test(what_was_taken_is_not_counted_again),
        cmocka_unit_test(each_bound_belongs_to_the_range_below),
        cmocka_unit_test(shares_below_a_thousandth_are_left_out),
        cmocka_unit_test(each_task_counts_once_when_it_has_ended),
        cmocka_unit_test(latency_runs_from_submit_to_end),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test_teardown(an_engine_logs_the_line_if_it_is_asked_to, restore),
        cmocka_unit_test_teardown(destroying_does_not_wait_for_the_interval, restore),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
