/* Results of `te bench` as a table for people and as JSON lines for programs. */
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "te.h"

static const char *const wait_names[] = {"spin", "wait", "event"};
static const char *const buffer_names[] = {"hot", "batch", "cold"};

static double rate(const struct te_load_result *result)
{
    return result->seconds > 0 ? (double)result->bytes / result->seconds / 1e9 : 0;
}

static double per_gigabyte(double cpu_seconds, const struct te_load_result *result)
{
    return result->bytes > 0 ? cpu_seconds / ((double)result->bytes / 1e9) : NAN;
}

static double microseconds(const struct te_load_result *result, double share)
{
    return te_latency_quantile_ns(&result->latency, share) / 1e3;
}

void te_report_table_head(void)
{
    printf("%-6s %14s %8s %10s %10s %10s %12s %12s\n", "", "size x batch", "threads", "GB/s", "p50 us", "p99 us",
           "CPU s/GB", "at the peer");
}

void te_report_table_row(const struct te_load *load, const struct te_load_result *result)
{
    char words[TE_SIZE_TEXT_MAX], peer_cpu[32] = "-";
    g_autofree char *blocks = g_strdup_printf("%s x %zu", te_size_text(load->size, words), load->batch);
    if (!isnan(result->peer_cpu_seconds))
        g_snprintf(peer_cpu, sizeof(peer_cpu), "%.3f", per_gigabyte(result->peer_cpu_seconds, result));
    printf("%-6s %14s %8zu %10.3f %10.1f %10.1f %12.3f %12s%s\n", load->opcode == OPCODE_READ ? "READ" : "WRITE",
           blocks, load->threads, rate(result), microseconds(result, 0.5), microseconds(result, 0.99),
           per_gigabyte(result->cpu_seconds, result), peer_cpu, load->verify ? "  verified" : "");
    fflush(stdout);
}

static void add_number(struct json_object *object, const char *key, double value)
{
    char text[64];
    if (isnan(value)) {
        json_object_object_add(object, key, NULL);
        return;
    }
    g_ascii_formatd(text, sizeof(text), "%.9g", value);
    json_object_object_add(object, key, json_object_new_double_s(value, text));
}

void te_report_json(const struct te_load *load, const struct te_load_result *result)
{
    struct json_object *line = json_object_new_object(), *latency = json_object_new_object();
    json_object_object_add(line, "operation", json_object_new_string(load->opcode == OPCODE_READ ? "read" : "write"));
    json_object_object_add(line, "size", json_object_new_uint64(load->size));
    json_object_object_add(line, "batch", json_object_new_uint64(load->batch));
    json_object_object_add(line, "threads", json_object_new_uint64(load->threads));
    json_object_object_add(line, "wait", json_object_new_string(wait_names[load->wait]));
    json_object_object_add(line, "buffers", json_object_new_string(buffer_names[load->buffers]));
    json_object_object_add(line, "verified", json_object_new_boolean(load->verify));
    add_number(line, "seconds", result->seconds);
    json_object_object_add(line, "batches", json_object_new_uint64(result->batches));
    json_object_object_add(line, "bytes", json_object_new_uint64(result->bytes));
    add_number(line, "gigabytes_per_second", rate(result));
    add_number(latency, "mean", result->batches ? result->sum_seconds * 1e6 / (double)result->batches : NAN);
    add_number(latency, "p50", microseconds(result, 0.5));
    add_number(latency, "p99", microseconds(result, 0.99));
    add_number(latency, "p999", microseconds(result, 0.999));
    add_number(latency, "maximum", (double)result->latency.maximum_ns / 1e3);
    json_object_object_add(line, "batch_latency_us", latency);
    add_number(line, "longest_gap_us", (double)result->longest_gap_ns / 1e3);
    add_number(line, "cpu_seconds", result->cpu_seconds);
    add_number(line, "peer_cpu_seconds", result->peer_cpu_seconds);
    add_number(line, "cpu_seconds_per_gigabyte", per_gigabyte(result->cpu_seconds, result));
    add_number(line, "peer_cpu_seconds_per_gigabyte", per_gigabyte(result->peer_cpu_seconds, result));
    puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN));
    fflush(stdout);
    json_object_put(line);
}
