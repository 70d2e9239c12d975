/*
 * The other process of target.h: an engine that does what the lines of its standard input say, one reply line each. It
 * ends with its input or with the process that started it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "raw_wire.h"
#include "transfer_engine_c.h"

static transfer_engine_t engine;

static void destroy(void)
{
    if (engine)
        destroyTransferEngine(engine);
    engine = NULL;
}

static bool create(const char *host, char name[128])
{
    engine = createTransferEngine("P2PHANDSHAKE", host, "", 0, 0);
    if (!engine)
        return false;
    if (installTransport(engine, "tcp", NULL) && getLocalIpAndPort(engine, name, 128) == 0)
        return true;
    destroy();
    return false;
}

static void command_create(const char *line)
{
    char host[128];
    char name[128];
    char text[16];
    int minimum;
    int maximum;
    int port;
    int other_than;
    if (sscanf(line, "create %127s %d %d %d %d", host, &minimum, &maximum, &port, &other_than) != 5) {
        puts("bad create");
        return;
    }
    if (minimum > 0) {
        snprintf(text, sizeof(text), "%d", minimum);
        setenv("MC_MIN_RPC_PORT", text, 1);
        snprintf(text, sizeof(text), "%d", maximum);
        setenv("MC_MAX_RPC_PORT", text, 1);
    }
    for (int attempt = 0; attempt < 400; attempt++) {
        if (!create(host, name))
            continue;
        int got = atoi(strrchr(name, ':') + 1);
        if (port == 0 || (got == port && raw_data_port_of(name) != other_than)) {
            printf("%s %d\n", name, got);
            return;
        }
        destroy();
    }
    puts("cannot create");
}

static unsigned long long map(const char *line)
{
    char path[128];
    size_t size;
    size_t times;
    if (sscanf(line, "map %127s %zu %zu", path, &size, &times) != 3)
        return 0;
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    char *start = mmap(NULL, size * times, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        times = 0;
    for (size_t index = 0; index < times; index++) {
        void *place = start + index * size;
        if (mmap(place, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0) != place)
            start = MAP_FAILED;
    }
    close(descriptor);
    return start == MAP_FAILED ? 0 : (unsigned long long)(uintptr_t)start;
}

static int register_memory(const char *line)
{
    unsigned long long address;
    size_t length;
    int accessible;
    if (sscanf(line, "register %llu %zu %d", &address, &length, &accessible) != 3)
        return -9999;
    return registerLocalMemory(engine, (void *)(uintptr_t)address, length, "*", accessible);
}

static int unregister_memory(const char *line)
{
    unsigned long long address;
    if (sscanf(line, "unregister %llu", &address) != 1)
        return -9999;
    return unregisterLocalMemory(engine, (void *)(uintptr_t)address);
}

static void command_notifications(void)
{
    int count = 0;
    notify_msg_t *messages = getNotifsFromEngine(engine, &count);
    printf("%d\n", count);
    for (int index = 0; index < count; index++)
        printf("%s=%s\n", messages[index].name, messages[index].msg);
    freeNotifsMsgBuf(messages, count);
}

static int submit(const char *line, batch_id_t *batch)
{
    char word[16];
    char name[128];
    int opcode;
    unsigned long long address;
    unsigned long long remote;
    size_t length;
    if (sscanf(line, "%15s %127s %d %llu %llu %zu", word, name, &opcode, &address, &remote, &length) != 6)
        return -9999;
    segment_id_t segment = openSegment(engine, name);
    if (segment < 0)
        return segment;
    *batch = allocateBatchID(engine, 1);
    struct transfer_request request = {.opcode = opcode,
                                       .source = (void *)(uintptr_t)address,
                                       .target_id = segment,
                                       .target_offset = remote,
                                       .length = length};
    return -abs(submitTransfer(engine, *batch, &request, 1));
}

static int transfer(const char *line)
{
    batch_id_t batch;
    int result = submit(line, &batch);
    struct transfer_status status = {0};
    while (result == 0 && status.status == 0) {
        struct timespec pause = {.tv_nsec = 20000};
        result = -abs(getTransferStatus(engine, batch, 0, &status));
        nanosleep(&pause, NULL);
    }
    if (result != 0)
        return result;
    result = freeBatchID(engine, batch);
    return result == 0 ? status.status : -result;
}

static int notify(char *line)
{
    char name[128];
    char sender[128];
    char message[2048];
    if (sscanf(line, "notify %127s %127s %2047[^\n]", name, sender, message) != 3)
        return -9999;
    segment_id_t segment = openSegment(engine, name);
    if (segment < 0)
        return segment;
    notify_msg_t text = {.name = sender, .msg = message};
    return genNotifyInEngine(engine, (uint64_t)segment, text);
}

/* Leaves room for so many more descriptors; negative: lifts the limit again. */
static int limit_descriptors(const char *line)
{
    static struct rlimit before;
    int more;
    if (sscanf(line, "limit %d", &more) != 1)
        return -9999;
    if (before.rlim_cur == 0)
        getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit limit = before;
    if (more >= 0) {
        int next = dup(STDIN_FILENO); /* the lowest free number */
        close(next);
        limit.rlim_cur = (rlim_t)(next + more);
    }
    return setrlimit(RLIMIT_NOFILE, &limit);
}

/* Kilobytes of resident memory. */
static long resident(void)
{
    unsigned long total = 0;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return -1;
    if (fscanf(file, "%lu %lu", &total, &pages) != 2)
        pages = 0;
    fclose(file);
    return (long)(pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024);
}

static bool starts(const char *line, const char *word)
{
    size_t length = strlen(word);
    return strncmp(line, word, length) == 0 && (line[length] == ' ' || line[length] == '\n');
}

static bool obey(char *line)
{
    batch_id_t batch;
    if (starts(line, "exit"))
        return false;
    if (starts(line, "create"))
        command_create(line);
    else if (starts(line, "map"))
        printf("%llu\n", map(line));
    else if (starts(line, "register"))
        printf("%d\n", register_memory(line));
    else if (starts(line, "unregister"))
        printf("%d\n", unregister_memory(line));
    else if (starts(line, "notifications"))
        command_notifications();
    else if (starts(line, "transfer"))
        printf("%d\n", transfer(line));
    else if (starts(line, "submit"))
        printf("%d\n", submit(line, &batch));
    else if (starts(line, "notify"))
        printf("%d\n", notify(line));
    else if (starts(line, "limit"))
        printf("%d\n", limit_descriptors(line));
    else if (starts(line, "resident"))
        printf("%ld\n", resident());
    else if (starts(line, "graceful"))
        enableGracefulShutdown(engine), puts("0");
    else if (starts(line, "leave"))
        exit(0);
    else if (starts(line, "destroy"))
        destroy(), puts("0");
    else
        puts("unknown command");
    fflush(stdout);
    return true;
}

/* Sleeps in poll(): a signal that comes meanwhile is handled at once, under the thread sanitizer too. */
static bool read_line(char *line, size_t size)
{
    size_t length = 0;
    while (length + 1 < size) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        poll(&input, 1, -1);
        ssize_t taken = read(STDIN_FILENO, line + length, 1);
        if (taken < 0 && errno == EINTR)
            continue;
        if (taken <= 0)
            return false;
        if (line[length++] == '\n')
            break;
    }
    line[length] = '\0';
    return true;
}

int main(void)
{
    char line[4096];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read_line(line, sizeof(line)) && obey(line))
        ;
    destroy();
    return 0;
}
