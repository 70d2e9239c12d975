/*
 * What a transfer costs as things grow: one run for one axis and one count, to be compared with the run for count 1.
 *
 *   growth --axis=peers|around|regions|tasks [--count=N] [--seconds=S]
 *
 * peers     N engines in another process are open, one of them is read from, one 4 KiB read at a time
 * around    the same, but they are read from in turn, with a pause before each read in which the target falls asleep,
 * as it would long have done when its turn comes; the pause is not counted regions   N registered regions of 4 KiB on
 * both sides, read one at a time in a scattered order tasks     N reads of 4 KiB in flight in one batch
 *
 * One JSON object: time and CPU per transfer, and what the open peers took of this process: memory, descriptors,
 * threads. MC_MIN_RPC_PORT and MC_MAX_RPC_PORT must leave room for two ports per engine.
 */
#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "bench/common.h"
#include "transfer_engine_ext.h"

enum { BLOCK = 4096, NAME_MAX_BYTES = 128 };
/* A prime: steps through the regions so that neighbours in time are not neighbours in memory. */
enum { STRIDE = 7919 };

enum { PAUSE_US = 300 };

enum axis { AXIS_PEERS, AXIS_AROUND, AXIS_REGIONS, AXIS_TASKS };
static const char *const axis_names[] = {"peers", "around", "regions", "tasks"};

struct options {
    enum axis axis;
    size_t count;
    double seconds;
};

/* What the target process tells about each engine, through a pipe. */
struct target {
    char name[NAME_MAX_BYTES];
    uint64_t address;
    segment_id_t segment; /* filled in by the initiator */
};

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "growth: %s: %s\n", what, te_last_error());
    exit(1);
}

/* Registered one by one, so that they are that many regions. */
static void register_regions(transfer_engine_t engine, unsigned char *memory, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (registerLocalMemory(engine, memory + i * BLOCK, BLOCK, "*", 1))
            fail("a region cannot be registered");
}

static transfer_engine_t new_engine(void)
{
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 0, 0);
    if (!engine || !installTransport(engine, "tcp", NULL))
        fail("an engine cannot be created");
    return engine;
}

static size_t regions_of(const struct options *options)
{
    return options->axis == AXIS_REGIONS ? options->count : 1;
}

static size_t targets_of(const struct options *options)
{
    return options->axis == AXIS_PEERS || options->axis == AXIS_AROUND ? options->count : 1;
}

/* Offers the engines until the initiator goes. */
static void offer(const struct options *options, int pipe_end)
{
    size_t count = targets_of(options), regions = regions_of(options);
    for (size_t i = 0; i < count; i++) {
        unsigned char *memory = te_bench_memory(regions * BLOCK);
        transfer_engine_t engine = new_engine();
        struct target target = {.address = (uint64_t)(uintptr_t)memory};
        register_regions(engine, memory, regions);
        snprintf(target.name, sizeof(target.name), "127.0.0.1:%d", te_port(engine));
        if (write(pipe_end, &target, sizeof(target)) != sizeof(target))
            te_bench_die("pipe");
    }
    for (;;)
        pause();
}

static size_t resident_bytes(pid_t process)
{
    char path[64];
    unsigned long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)process);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%*u %lu", &pages) != 1)
        te_bench_die(path);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t entries_of(const char *folder)
{
    size_t count = 0;
    DIR *directory = opendir(folder);
    if (!directory)
        te_bench_die(folder);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void run_batch(transfer_engine_t engine, struct transfer_request *requests, size_t count)
{
    batch_id_t batch = allocateBatchID(engine, count);
    if (batch == INVALID_BATCH || submitTransfer(engine, batch, requests, count))
        fail("submit");
    for (size_t task = 0; task < count;) {
        struct transfer_status status;
        if (getTransferStatus(engine, batch, task, &status))
            fail("status");
        if (status.status == STATUS_WAITING)
            continue;
        if (status.status != STATUS_COMPLETED)
            fail("a transfer did not complete");
        task++;
    }
    freeBatchID(engine, batch);
}

/* The place of the nth transfer: which peer or which region. */
static void aim(struct transfer_request *request, const struct options *options, const struct target *targets,
                unsigned char *memory, uint64_t number)
{
    const struct target *target = &targets[options->axis == AXIS_AROUND ? number % options->count : 0];
    size_t region = options->axis == AXIS_REGIONS ? number * STRIDE % options->count : 0;
    *request = (struct transfer_request){.opcode = OPCODE_READ,
                                         .source = memory + region * BLOCK,
                                         .target_id = target->segment,
                                         .target_offset = target->address + region * BLOCK,
                                         .length = BLOCK};
}

static void open_all(transfer_engine_t engine, const struct options *options, struct target *targets,
                     unsigned char *memory)
{
    for (size_t i = 0; i < targets_of(options); i++) {
        struct transfer_request request;
        targets[i].segment = openSegment(engine, targets[i].name);
        if (targets[i].segment < 0)
            fail(targets[i].name);
        aim(&request, options, &targets[i], memory, 0);
        run_batch(engine, &request, 1);
    }
}

static void measure(transfer_engine_t engine, const struct options *options, const struct target *targets,
                    unsigned char *memory, pid_t target_process, struct te_latency *latency)
{
    size_t batch = options->axis == AXIS_TASKS ? options->count : 1;
    struct transfer_request *requests = calloc(batch, sizeof(*requests));
    if (!requests)
        te_bench_die("memory");
    uint64_t transfers = 0;
    int64_t sum_ns = 0;
    double before = te_bench_cpu_seconds(getpid()), target_before = te_bench_cpu_seconds(target_process);
    int64_t start_ns = te_bench_now_ns(), now_ns = start_ns;
    while (now_ns < start_ns + (int64_t)(options->seconds * 1e9)) {
        if (options->axis == AXIS_AROUND)
            usleep(PAUSE_US);
        int64_t begin_ns = te_bench_now_ns();
        for (size_t i = 0; i < batch; i++)
            aim(&requests[i], options, targets, memory, transfers++);
        run_batch(engine, requests, batch);
        now_ns = te_bench_now_ns();
        sum_ns += now_ns - begin_ns;
        te_latency_add(latency, (now_ns - begin_ns) / (int64_t)batch);
    }
    free(requests);
    double each = 1e6 / (double)transfers;
    printf("\"transfers\":%llu,\"transfer_us\":{\"mean\":%.3f,\"p50\":%.3f,\"p99\":%.3f},\"cpu_us\":%.3f,"
           "\"target_cpu_us\":%.3f,",
           (unsigned long long)transfers, (double)sum_ns / 1e9 * each, te_latency_quantile_ns(latency, 0.5) / 1e3,
           te_latency_quantile_ns(latency, 0.99) / 1e3, (te_bench_cpu_seconds(getpid()) - before) * each,
           (te_bench_cpu_seconds(target_process) - target_before) * each);
}

static void initiate(const struct options *options, struct target *targets, pid_t target_process)
{
    static struct te_latency latency;
    unsigned char *memory = te_bench_memory(regions_of(options) * BLOCK);
    transfer_engine_t engine = new_engine();
    register_regions(engine, memory, regions_of(options));
    size_t before = resident_bytes(getpid()), target_before = resident_bytes(target_process);
    size_t descriptors = entries_of("/proc/self/fd");
    open_all(engine, options, targets, memory);
    size_t after = resident_bytes(getpid()), target_after = resident_bytes(target_process);
    double peers = (double)targets_of(options);
    printf("{\"program\":\"growth\",\"axis\":\"%s\",\"count\":%zu,\"bytes_per_peer\":%.0f,"
           "\"target_bytes_per_peer\":%.0f,\"descriptors_per_peer\":%.3f,\"threads\":%zu,",
           axis_names[options->axis], options->count, ((double)after - (double)before) / peers,
           ((double)target_after - (double)target_before) / peers,
           ((double)entries_of("/proc/self/fd") - (double)descriptors) / peers, entries_of("/proc/self/task") - 2);
    measure(engine, options, targets, memory, target_process, &latency);
    printf("\"resident_bytes\":%zu}\n", resident_bytes(getpid()));
    fflush(stdout);
    destroyTransferEngine(engine);
}

static void receive_targets(int pipe_end, struct target *targets, size_t count)
{
    for (size_t bytes = 0; bytes < count * sizeof(*targets);) {
        ssize_t got = read(pipe_end, (char *)targets + bytes, count * sizeof(*targets) - bytes);
        if (got <= 0)
            te_bench_die("the target process did not come up");
        bytes += (size_t)got;
    }
}

static bool parse(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"axis", required_argument, NULL, 'a'},
        {"count", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},
        {NULL, 0, NULL, 0},
    };
    bool axis_known = false;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (option == 'a') {
            for (int i = 0; i <= AXIS_TASKS; i++)
                if (!strcmp(optarg, axis_names[i])) {
                    options->axis = (enum axis)i;
                    axis_known = true;
                }
        } else if (option == 'c') {
            options->count = strtoul(optarg, NULL, 10);
        } else if (option == 's') {
            options->seconds = atof(optarg);
        } else {
            return false;
        }
    }
    return axis_known && optind == argc && options->count > 0 && options->count <= 1000000 && options->seconds > 0;
}

int main(int argc, char **argv)
{
    struct options options = {.count = 1, .seconds = 1};
    int ends[2];
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: %s --axis=peers|around|regions|tasks [--count=N] [--seconds=S]\n", argv[0]);
        return 2;
    }
    struct target *targets = calloc(targets_of(&options), sizeof(*targets));
    if (!targets || pipe(ends))
        te_bench_die("start");
    pid_t target_process = fork(); /* before there is an engine */
    if (target_process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        offer(&options, ends[1]);
    }
    close(ends[1]);
    receive_targets(ends[0], targets, targets_of(&options));
    initiate(&options, targets, target_process);
    kill(target_process, SIGKILL);
    waitpid(target_process, NULL, 0);
    return 0;
}
