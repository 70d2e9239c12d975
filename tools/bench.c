/* te bench: the roles, and the command line that its initiators share. */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "te.h"

enum { MAXIMUM_BATCH = 1 << 20, MAXIMUM_THREADS = 256 };
static const size_t default_cold_region = (size_t)256 << 20;

/* The command line before it is understood. */
struct raw_options {
    char *sizes, *operation, *wait, *buffers, *region;
    int batch, threads;
    double seconds;
    gint64 count;
    gboolean verify, json;
};

static bool choose(const char *option, const char *text, const char *const *names, int *choice)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i])) {
            *choice = i;
            return true;
        }
    g_autofree char *list = g_strjoinv(", ", (char **)names);
    te_complain("--%s=%s is not known: choose one of %s", option, text, list);
    return false;
}

static bool understand(const struct raw_options *raw, struct te_load *load)
{
    static const char *const waits[] = {"spin", "wait", "event", NULL};
    static const char *const buffers[] = {"hot", "batch", "cold", NULL};
    int wait = TE_LOAD_SPIN, layout = TE_LOAD_BATCH;
    if ((raw->wait && !choose("wait", raw->wait, waits, &wait)) ||
        (raw->buffers && !choose("buffers", raw->buffers, buffers, &layout)))
        return false;
    *load = (struct te_load){.wait = (enum te_load_wait)wait,
                             .buffers = (enum te_load_buffers)layout,
                             .region = default_cold_region,
                             .seconds = raw->seconds,
                             .batches = (uint64_t)MAX(raw->count, 0),
                             .batch = (size_t)raw->batch,
                             .threads = (size_t)raw->threads,
                             .verify = raw->verify,
                             .progress = isatty(STDERR_FILENO)};
    if (raw->region && !te_size_parse(raw->region, "region", &load->region))
        return false;
    if (raw->batch < 1 || raw->batch > MAXIMUM_BATCH || raw->threads < 1 || raw->threads > MAXIMUM_THREADS) {
        te_complain("--batch goes from 1 to %d, --threads from 1 to %d", MAXIMUM_BATCH, MAXIMUM_THREADS);
        return false;
    }
    if (raw->count < 0 || !(raw->seconds > 0 && raw->seconds < 1e6)) {
        te_complain("--count and --seconds must be more than 0");
        return false;
    }
    if (load->verify && load->buffers == TE_LOAD_HOT) {
        te_complain("--verify needs a block per request: use --buffers=batch or --buffers=cold");
        return false;
    }
    return true;
}

static void add_load(GArray *loads, struct te_load load, size_t size, size_t batch, int opcode)
{
    load.size = size;
    load.batch = batch;
    load.opcode = opcode;
    g_array_append_val(loads, load);
}

static void add_matrix(GArray *loads, const struct te_load *load)
{
    static const struct {
        size_t size, batch;
    } cases[] = {{64, 1}, {4 << 10, 1}, {64 << 10, 16}, {1 << 20, 16}};
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        add_load(loads, *load, cases[i].size, cases[i].batch, OPCODE_WRITE);
        add_load(loads, *load, cases[i].size, cases[i].batch, OPCODE_READ);
    }
}

static bool add_listed(GArray *loads, const struct te_load *load, const char *sizes, const char *operation)
{
    static const char *const operations[] = {"read", "write", "both", NULL};
    int choice;
    if (!choose("operation", operation, operations, &choice))
        return false;
    g_auto(GStrv) list = g_strsplit(sizes, ",", -1);
    for (char **text = list; *text; text++) {
        size_t size;
        if (!te_size_parse(*text, "size", &size))
            return false;
        if (choice != OPCODE_READ)
            add_load(loads, *load, size, load->batch, OPCODE_WRITE);
        if (choice != OPCODE_WRITE)
            add_load(loads, *load, size, load->batch, OPCODE_READ);
    }
    return true;
}

static bool fill_plan(struct te_bench_plan *plan, const struct raw_options *raw, bool default_matrix)
{
    struct te_load load;
    if (!understand(raw, &load))
        return false;
    g_autoptr(GArray) loads = g_array_new(FALSE, FALSE, sizeof(struct te_load));
    if (default_matrix && !raw->sizes && !raw->operation)
        add_matrix(loads, &load);
    else if (!add_listed(loads, &load, raw->sizes ? raw->sizes : "64K", raw->operation ? raw->operation : "both"))
        return false;
    for (guint i = 0; i < loads->len; i++) {
        const struct te_load *one = &g_array_index(loads, struct te_load, i);
        size_t local = te_load_local_bytes(one), remote = te_load_remote_bytes(one);
        if (local == 0 || local > SIZE_MAX >> 1) {
            te_complain("that many bytes at once are more than any machine has; give a smaller --size or --batch");
            return false;
        }
        plan->local_bytes = MAX(plan->local_bytes, local);
        plan->remote_bytes = MAX(plan->remote_bytes, remote);
    }
    plan->json = raw->json;
    plan->count = loads->len;
    plan->loads = (struct te_load *)g_array_free(g_steal_pointer(&loads), FALSE);
    return true;
}

bool te_bench_plan_parse(struct te_bench_plan *plan, int *argc, char ***argv, const char *title, const char *arguments,
                         const char *summary, bool default_matrix)
{
    memset(plan, 0, sizeof(*plan));
    struct raw_options raw = {.batch = 16, .threads = 1, .seconds = default_matrix ? 0.5 : 5};
    const GOptionEntry entries[] = {
        {"size", 's', 0, G_OPTION_ARG_STRING, &raw.sizes, "Bytes of a request, several with commas (64K)", "SIZE,..."},
        {"batch", 'b', 0, G_OPTION_ARG_INT, &raw.batch, "Requests of a batch (16)", "N"},
        {"threads", 't', 0, G_OPTION_ARG_INT, &raw.threads, "Threads, each with one batch in flight (1)", "N"},
        {"operation", 'o', 0, G_OPTION_ARG_STRING, &raw.operation, "read, write or both (both)", "OPERATION"},
        {"seconds", 0, 0, G_OPTION_ARG_DOUBLE, &raw.seconds, "How long each measurement runs", "S"},
        {"count", 'n', 0, G_OPTION_ARG_INT64, &raw.count, "Batches per thread, instead of --seconds", "N"},
        {"wait", 0, 0, G_OPTION_ARG_STRING, &raw.wait,
         "How the caller waits: spin on getTransferStatus, wait in te_wait_batch, event descriptor (spin)", "MODE"},
        {"buffers", 0, 0, G_OPTION_ARG_STRING, &raw.buffers,
         "hot: one block for all requests; batch: one for each; cold: ever new ones (batch)", "LAYOUT"},
        {"region", 0, 0, G_OPTION_ARG_STRING, &raw.region, "What --buffers=cold walks through (256M)", "SIZE"},
        {"verify", 0, 0, G_OPTION_ARG_NONE, &raw.verify, "Compare every byte; the speed then includes that", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &raw.json, "Print one JSON object per measurement", NULL},
        {"name", 0, 0, G_OPTION_ARG_STRING, &plan->node.host, "Address of this host for peers (127.0.0.1)", "HOST"},
        {"metadata", 0, 0, G_OPTION_ARG_STRING, &plan->node.metadata, "Metadata service (P2PHANDSHAKE)", "CONNECTION"},
        {"protocol", 0, 0, G_OPTION_ARG_STRING, &plan->node.protocol, "Transport (tcp)", "NAME"},
        {0},
    };
    bool works =
        te_options_parse(argc, argv, entries, title, arguments, summary) && fill_plan(plan, &raw, default_matrix);
    g_free(raw.sizes);
    g_free(raw.operation);
    g_free(raw.wait);
    g_free(raw.buffers);
    g_free(raw.region);
    if (!works)
        te_bench_plan_clear(plan);
    return works;
}

void te_bench_plan_clear(struct te_bench_plan *plan)
{
    te_node_options_clear(&plan->node);
    g_free(plan->loads);
    memset(plan, 0, sizeof(*plan));
}

bool te_bench_plan_run(struct te_bench_plan *plan, struct te_node *node, const char *peer_name,
                       double (*peer_cpu_seconds)(void *), void *peer_data)
{
    struct te_peer_buffer peer;
    struct te_load_result *result = g_new0(struct te_load_result, 1);
    bool works = te_node_open_peer(node, peer_name, &peer);
    if (works && !plan->json)
        te_report_table_head();
    for (size_t i = 0; works && i < plan->count; i++) {
        struct te_load *load = &plan->loads[i];
        load->peer_cpu_seconds = peer_cpu_seconds;
        load->peer_data = peer_data;
        works = te_load_run(load, node, &peer, result);
        if (works)
            (plan->json ? te_report_json : te_report_table_row)(load, result);
    }
    g_free(result);
    return works;
}

int te_bench_main(int argc, char **argv)
{
    static const struct {
        const char *name, *summary;
        int (*run)(int, char **);
    } roles[] = {
        {"local", "starts a target on this host and measures a small table", te_bench_local_main},
        {"target", "offers memory to initiators until it is stopped", te_bench_target_main},
        {"initiator", "reads from and writes to a target, `te` or any other engine", te_bench_initiator_main},
    };
    const char *role = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < G_N_ELEMENTS(roles); i++)
        if (!strcmp(role, roles[i].name))
            return roles[i].run(argc - 1, argv + 1);
    bool asked = !strcmp(role, "--help") || !strcmp(role, "-h");
    if (!asked)
        te_complain(*role ? "there is no role %s" : "give a role%s", role);
    FILE *stream = asked ? stdout : stderr;
    fputs("Usage: te bench ROLE [OPTION...]\n\n", stream);
    for (size_t i = 0; i < G_N_ELEMENTS(roles); i++)
        fprintf(stream, "  %-10s %s\n", roles[i].name, roles[i].summary);
    fputs("\n`te bench ROLE --help` lists the options.\n", stream);
    return asked ? TE_EXIT_DONE : TE_EXIT_USAGE;
}
