/* te demo: what the library is for, in a few seconds: memory of another process is written and read, it gets a
 * notification, checksums are compared, speeds are measured. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "companion.h"
#include "load.h"
#include "te.h"

enum { TRANSFER_BYTES = 16 << 20, REGION_BYTES = 2 * TRANSFER_BYTES, NOTIFICATION_PATIENCE_MS = 5000 };
static const int64_t patience_ns = 60LL * 1000000000;
static char notification_name[] = "demo", notification_text[] = "the data is there";

struct demo {
    struct te_companion companion;
    struct te_node node;
    struct te_peer_buffer peer;
};

static bool step(const char *what, bool works)
{
    printf("  %-62s %s\n", what, works ? "ok" : "FAILED");
    fflush(stdout);
    return works;
}

/* The checksum in an answer of the companion, or NULL. */
static char *take_checksum(struct json_object *answer)
{
    char *checksum = answer ? g_strdup(json_object_get_string(json_object_object_get(answer, "sha256"))) : NULL;
    json_object_put(answer);
    return checksum;
}

static bool transfer(struct demo *demo, int opcode, size_t offset, bool notify)
{
    transfer_engine_t engine = demo->node.engine;
    struct transfer_request request = {.opcode = opcode,
                                       .source = demo->node.memory + offset,
                                       .target_id = demo->peer.segment,
                                       .target_offset = demo->peer.address + offset,
                                       .length = TRANSFER_BYTES};
    struct transfer_status status = {.status = STATUS_WAITING};
    batch_id_t batch = allocateBatchID(engine, 1);
    int code = notify ? submitTransferWithNotify(engine, batch, &request, 1,
                                                 (notify_msg_t){notification_name, notification_text})
                      : submitTransfer(engine, batch, &request, 1);
    if (code) {
        te_complain("the transfer could not be submitted: %s (%d)", te_last_error(), code);
        freeBatchID(engine, batch);
        return false;
    }
    code = te_wait_task(engine, batch, 0, patience_ns, &status);
    if (code || status.status != STATUS_COMPLETED)
        te_complain("the transfer ended as %s (%d)", te_task_status_text(status.status), code);
    freeBatchID(engine, batch);
    return code == 0 && status.status == STATUS_COMPLETED;
}

/* Same bytes at the same offset on both sides? */
static bool compare(struct demo *demo, size_t offset)
{
    g_autofree char *here = g_compute_checksum_for_data(G_CHECKSUM_SHA256, demo->node.memory + offset, TRANSFER_BYTES);
    g_autofree char *there =
        take_checksum(te_companion_ask(&demo->companion, "checksum %zu %d", offset, TRANSFER_BYTES));
    bool same = there && !strcmp(here, there);
    printf("     SHA-256 here %.16s..., there %.16s...\n", here, there ? there : "unknown");
    return same;
}

/* How many notifications the peer got since it was last asked; -1 if one of them is not ours. */
static int count_notifications(struct demo *demo)
{
    struct json_object *answer = te_companion_ask(&demo->companion, "notifications");
    struct json_object *list = answer ? json_object_object_get(answer, "notifications") : NULL;
    int count = list ? (int)json_object_array_length(list) : -1;
    for (int i = 0; i < count; i++) {
        struct json_object *one = json_object_array_get_idx(list, (size_t)i);
        if (strcmp(json_object_get_string(json_object_object_get(one, "name")), notification_name) ||
            strcmp(json_object_get_string(json_object_object_get(one, "message")), notification_text))
            count = -1;
    }
    json_object_put(answer);
    return count;
}

/* The notification follows the data without anybody asking for it; only when it is there is up to the network. */
static bool notification_arrives(struct demo *demo)
{
    int count = 0;
    for (int waited = 0; count == 0 && waited < NOTIFICATION_PATIENCE_MS; waited++) {
        count = count_notifications(demo);
        if (count == 0)
            g_usleep(1000);
    }
    return count == 1;
}

static bool move_and_check(struct demo *demo)
{
    te_pattern_fill(demo->node.memory, TRANSFER_BYTES, 1);
    if (!step("WRITE 16 MiB into the other process, with a notification", transfer(demo, OPCODE_WRITE, 0, true)) ||
        !step("the bytes there are the bytes here", compare(demo, 0)) ||
        !step("the notification came after the data", notification_arrives(demo)))
        return false;
    struct json_object *filled = te_companion_ask(&demo->companion, "fill 2 %d %d", TRANSFER_BYTES, TRANSFER_BYTES);
    bool works = filled;
    json_object_put(filled);
    return works && step("READ 16 MiB from the other process", transfer(demo, OPCODE_READ, TRANSFER_BYTES, false)) &&
           step("the bytes here are the bytes there", compare(demo, TRANSFER_BYTES)) &&
           step("no notification came twice", count_notifications(demo) == 0);
}

static bool measure(struct demo *demo)
{
    static const struct {
        size_t size, batch;
    } cases[] = {{64, 1}, {4 << 10, 1}, {64 << 10, 16}, {1 << 20, 16}};
    struct te_load_result *result = g_new0(struct te_load_result, 1);
    char words[TE_SIZE_TEXT_MAX];
    bool works = true;
    printf("\n  %-22s %20s %20s\n", "one thread, spinning", "WRITE", "READ");
    for (size_t i = 0; works && i < G_N_ELEMENTS(cases); i++) {
        struct te_load load = {.size = cases[i].size,
                               .batch = cases[i].batch,
                               .threads = 1,
                               .wait = TE_LOAD_SPIN,
                               .buffers = TE_LOAD_BATCH,
                               .seconds = 0.3};
        printf("  %8s x %-11zu", te_size_text(load.size, words), load.batch);
        for (int opcode = OPCODE_WRITE; works && opcode >= OPCODE_READ; opcode--) {
            load.opcode = opcode;
            works = te_load_run(&load, &demo->node, &demo->peer, result);
            if (works && load.batch == 1)
                printf(" %17.1f us", te_latency_quantile_ns(&result->latency, 0.5) / 1e3);
            else if (works)
                printf(" %15.2f GB/s", (double)result->bytes / result->seconds / 1e9);
        }
        printf("\n");
        fflush(stdout);
    }
    g_free(result);
    return works;
}

static bool run(struct demo *demo)
{
    printf("  this is process %d, named %s\n  the other is process %d, named %s\n", (int)getpid(), demo->node.name,
           (int)demo->companion.process, demo->companion.name);
    return step("the other process answers a probe", te_probe(demo->node.engine, demo->companion.name) == 0) &&
           step("its memory can be opened", te_node_open_peer(&demo->node, demo->companion.name, &demo->peer)) &&
           move_and_check(demo) && measure(demo);
}

int te_demo_main(int argc, char **argv)
{
    const GOptionEntry entries[] = {{0}};
    if (!te_options_parse(&argc, &argv, entries, "demo", NULL,
                          "Exchanges data between two processes on this host and checks that it is right."))
        return TE_EXIT_USAGE;
    struct demo demo = {0};
    struct te_node_options options = {0};
    printf("transfer_engine %s: two processes on this host exchange memory over TCP\n", te_version());
    fflush(stdout);
    bool works = te_companion_start(&demo.companion, &options, REGION_BYTES);
    if (works) {
        works = te_node_open(&demo.node, &options, REGION_BYTES);
        if (works) {
            works = run(&demo);
            te_node_close(&demo.node);
        }
        works = te_companion_stop(&demo.companion) && works;
    }
    printf("\n%s\n", works ? "Everything worked." : "Something is wrong; the lines above say what.");
    return works ? TE_EXIT_DONE : TE_EXIT_FAILED;
}
