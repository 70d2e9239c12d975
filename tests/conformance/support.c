#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "black_hole.h"
#include "raw_peer.h"
#include "target.h"

extern char **environ;

enum { MAXIMUM_ENGINES = 256, MAXIMUM_MEMORIES = 1024, WATCHDOG_SECONDS = 30 };

static transfer_engine_t engines[MAXIMUM_ENGINES];
static struct {
    void *start;
    size_t size;
} memories[MAXIMUM_MEMORIES];
static size_t memory_count;
static const char *running_test = "?";
static void (*end_function)(void *data);
static void *end_data;

/* ---- life of a test ---- */

bool under_sanitizer(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

unsigned slowness(void)
{
    const char *text = getenv("TE_TEST_SLOWNESS");
    unsigned given = text ? (unsigned)strtoul(text, NULL, 10) : 0;
    if (given > 0)
        return given;
    return under_sanitizer() ? 4 : 1;
}

static void barked(int number)
{
    static const char message[] = "\nwatchdog: this test hangs: ";
    (void)number;
    ssize_t written = write(STDERR_FILENO, message, sizeof(message) - 1);
    written += write(STDERR_FILENO, running_test, strlen(running_test));
    written += write(STDERR_FILENO, "\n", 1);
    (void)written;
    targets_kill_all();
    _exit(124);
}

void watchdog(unsigned seconds)
{
    signal(SIGALRM, barked);
    alarm(seconds * slowness());
}

static bool is_setting(const char *entry)
{
    return (strncmp(entry, "MC_", 3) == 0 || strncmp(entry, "TE_", 3) == 0) && strncmp(entry, "TE_TEST_", 8) != 0;
}

static void reset_environment(void)
{
    for (size_t index = 0; environ[index];) {
        char name[NAME_SIZE];
        size_t length = strcspn(environ[index], "=");
        if (!is_setting(environ[index]) || length >= sizeof(name)) {
            index++;
            continue;
        }
        memcpy(name, environ[index], length);
        name[length] = '\0';
        unsetenv(name);
    }
    const char *runtime = getenv("TE_TEST_RUNTIME");
    if (runtime && strcmp(runtime, "tent") == 0)
        setenv("MC_USE_TENT", "1", 1);
    setenv("MC_LOG_LEVEL", "WARNING", 1);
}

te_setting_t setting_named(const char *name)
{
    te_setting_t setting = {.struct_size = sizeof(setting)};
    size_t index = 0;
    int result;
    while ((result = te_setting_at(index, &setting)) == 1 && strcmp(setting.name, name) != 0)
        index++;
    if (result != 1)
        fail_msg("%s: %d %s", name, result, te_last_error());
    return setting;
}

void short_timeouts(void)
{
    char seconds[16];
    snprintf(seconds, sizeof(seconds), "%u", under_sanitizer() ? 3 : 1);
    setenv("MC_TCP_PROGRESS_TIMEOUT_SEC", seconds, 1);
    setenv("MC_TCP_STATUS_TIMEOUT_SEC", seconds, 1);
    setenv("TE_TCP_SILENCE_TIMEOUT_MS", "500", 1);
    setenv("TE_TCP_FENCE_TIMEOUT_MS", "200", 1);
    setenv("TE_HANDSHAKE_REPLY_TIMEOUT_MS", under_sanitizer() ? "3000" : "1000", 1);
    setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", seconds, 1);
}

void at_test_end(void (*function)(void *data), void *data)
{
    end_function = function;
    end_data = data;
}

int test_begin(void **state)
{
    running_test = *state;
    reset_environment();
    watchdog(WATCHDOG_SECONDS);
    return 0;
}

int test_end(void **state)
{
    (void)state;
    if (end_function)
        end_function(end_data);
    end_function = NULL;
    /* A test that failed may have left transfers to a peer that is stopped: let go of the peers first. */
    targets_kill_all();
    raw_peers_stop_all();
    black_holes_close_all();
    for (size_t index = 0; index < MAXIMUM_ENGINES; index++) {
        transfer_engine_t engine = engines[index];
        engines[index] = NULL;
        if (engine)
            destroyTransferEngine(engine);
    }
    while (memory_count > 0) {
        memory_count--;
        munmap(memories[memory_count].start, memories[memory_count].size);
    }
    alarm(0);
    return 0;
}

int run_program(const struct CMUnitTest *tests, size_t count, int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests(argv[0], tests, count, NULL, NULL);
}

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- engines ---- */

transfer_engine_t engine_try_new(const char *connection, const char *local_name, int auto_discover)
{
    transfer_engine_t engine = createTransferEngine(connection, local_name, "", 0, auto_discover);
    for (size_t index = 0; engine && index < MAXIMUM_ENGINES; index++) {
        if (!engines[index]) {
            engines[index] = engine;
            return engine;
        }
    }
    assert_null(engine);
    return NULL;
}

transfer_engine_t engine_new_named(const char *local_name)
{
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", local_name, 0);
    assert_non_null(engine);
    assert_non_null(installTransport(engine, "tcp", NULL));
    return engine;
}

transfer_engine_t engine_new(void)
{
    return engine_new_named("127.0.0.1");
}

void engine_delete(transfer_engine_t engine)
{
    for (size_t index = 0; index < MAXIMUM_ENGINES; index++) {
        if (engines[index] == engine)
            engines[index] = NULL;
    }
    destroyTransferEngine(engine);
}

void engine_name(transfer_engine_t engine, char name[NAME_SIZE])
{
    assert_int_equal(getLocalIpAndPort(engine, name, NAME_SIZE), 0);
}

segment_id_t engine_open(transfer_engine_t engine, const char *name)
{
    segment_id_t segment = openSegment(engine, name);
    if (segment < 0)
        print_error("openSegment(%s) = %d\n", name, segment);
    assert_true(segment >= 0);
    return segment;
}

/* ---- memory ---- */

void *memory_new(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (size + page - 1) / page * page + 2 * page;
    assert_true(memory_count < MAXIMUM_MEMORIES);
    char *start = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(start != MAP_FAILED);
    assert_int_equal(mprotect(start + page, whole - 2 * page, PROT_READ | PROT_WRITE), 0);
    memories[memory_count].start = start;
    memories[memory_count].size = whole;
    memory_count++;
    return start + page;
}

void *memory_new_registered(transfer_engine_t engine, size_t size)
{
    void *memory = memory_new(size);
    assert_int_equal(registerLocalMemory(engine, memory, size, "*", 1), 0);
    return memory;
}

static uint8_t pattern_byte(size_t position, uint64_t seed)
{
    uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15u + position / 8 * 0xD1B54A32D192ED03u;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word ^= word >> 27;
    return (uint8_t)(word >> (position % 8 * 8));
}

void pattern_fill(void *memory, size_t size, uint64_t seed)
{
    uint8_t *bytes = memory;
    for (size_t position = 0; position < size; position++)
        bytes[position] = pattern_byte(position, seed);
}

size_t pattern_mismatch(const void *memory, size_t size, uint64_t seed)
{
    const uint8_t *bytes = memory;
    size_t position = 0;
    while (position < size && bytes[position] == pattern_byte(position, seed))
        position++;
    return position;
}

size_t byte_mismatch(const void *memory, size_t size, uint8_t byte)
{
    const uint8_t *bytes = memory;
    size_t position = 0;
    while (position < size && bytes[position] == byte)
        position++;
    return position;
}

/* ---- transfers ---- */

struct transfer_request request_of(int opcode, void *local, segment_id_t segment, uint64_t remote, size_t length)
{
    struct transfer_request request = {
        .opcode = opcode, .source = local, .target_id = segment, .target_offset = remote, .length = length};
    return request;
}

batch_id_t batch_new(transfer_engine_t engine, size_t capacity)
{
    batch_id_t batch = allocateBatchID(engine, capacity);
    assert_true(batch != INVALID_BATCH);
    return batch;
}

batch_id_t submit_one(transfer_engine_t engine, int opcode, void *local, segment_id_t segment, uint64_t remote,
                      size_t length)
{
    batch_id_t batch = batch_new(engine, 1);
    struct transfer_request request = request_of(opcode, local, segment, remote, length);
    assert_int_equal(submitTransfer(engine, batch, &request, 1), 0);
    return batch;
}

int task_status(transfer_engine_t engine, batch_id_t batch, size_t task)
{
    struct transfer_status status = {.status = -1};
    assert_int_equal(getTransferStatus(engine, batch, task, &status), 0);
    return status.status;
}

uint64_t task_bytes(transfer_engine_t engine, batch_id_t batch, size_t task)
{
    struct transfer_status status = {.status = -1};
    assert_int_equal(getTransferStatus(engine, batch, task, &status), 0);
    return status.transferred_bytes;
}

bool is_terminal(int status)
{
    return status != WAITING && status != PENDING;
}

int finish(transfer_engine_t engine, batch_id_t batch, size_t task)
{
    for (unsigned round = 0;; round++) {
        struct transfer_status status = {.status = -1};
        int result = getTransferStatus(engine, batch, task, &status);
        if (result != 0)
            return -abs(result);
        if (is_terminal(status.status))
            return status.status;
        poll_pause(round);
    }
}

int transfer(transfer_engine_t engine, int opcode, void *local, segment_id_t segment, uint64_t remote, size_t length)
{
    batch_id_t batch = allocateBatchID(engine, 1);
    if (batch == INVALID_BATCH)
        return -1000;
    struct transfer_request request = request_of(opcode, local, segment, remote, length);
    int result = submitTransfer(engine, batch, &request, 1);
    if (result != 0) {
        freeBatchID(engine, batch);
        return -abs(result);
    }
    int status = finish(engine, batch, 0);
    result = freeBatchID(engine, batch);
    return result == 0 ? status : -2000 - abs(result);
}

int free_when_done(transfer_engine_t engine, batch_id_t batch)
{
    int result;
    AWAIT((result = freeBatchID(engine, batch)) != 4);
    return result;
}

void poll_pause(unsigned round)
{
    if (round < 200) {
        sched_yield();
        return;
    }
    struct timespec pause = {.tv_nsec = round < 1000 ? 50000 : 1000000};
    nanosleep(&pause, NULL);
}

notify_msg_t *await_notifications(transfer_engine_t engine, int count)
{
    notify_msg_t *all = calloc((size_t)count + 1, sizeof(*all));
    assert_non_null(all);
    int have = 0;
    for (unsigned round = 0; have < count; round++) {
        int more = -1;
        notify_msg_t *taken = getNotifsFromEngine(engine, &more);
        assert_true(more >= 0);
        assert_true((more == 0) == (taken == NULL));
        assert_true(have + more <= count);
        for (int index = 0; index < more; index++) {
            assert_non_null(taken[index].name);
            assert_non_null(taken[index].msg);
            all[have++] = taken[index];
        }
        free(taken);
        if (more == 0)
            poll_pause(round);
    }
    return all;
}

void assert_transfers(transfer_engine_t from, transfer_engine_t to, const char *opened_as)
{
    enum { SIZE = 100000 };
    uint8_t *source = memory_new(SIZE);
    uint8_t *back = memory_new(SIZE);
    uint8_t *remote = memory_new_registered(to, SIZE);
    segment_id_t segment = engine_open(from, opened_as);
    pattern_fill(source, SIZE, 7);
    assert_int_equal(transfer(from, WRITE, source, segment, (uintptr_t)remote, SIZE), COMPLETED);
    assert_pattern(remote, SIZE, 7);
    assert_int_equal(transfer(from, READ, back, segment, (uintptr_t)remote, SIZE), COMPLETED);
    assert_pattern(back, SIZE, 7);
    assert_int_equal(unregisterLocalMemory(to, remote), 0);
}

void assert_works(transfer_engine_t engine)
{
    char name[NAME_SIZE];
    engine_name(engine, name);
    assert_transfers(engine_new(), engine, name);
}

bool host_has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = descriptor >= 0 && bind(descriptor, (struct sockaddr *)&address, sizeof(address)) == 0;
    if (descriptor >= 0)
        close(descriptor);
    return has;
}

/* ---- this process ---- */

static size_t count_entries(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    size_t count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count - 2;
}

size_t open_descriptors(void)
{
    return count_entries("/proc/self/fd") - 1;
}

size_t running_threads(void)
{
    return count_entries("/proc/self/task");
}

size_t resident_bytes(void)
{
    unsigned long total = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t settled(size_t (*measure)(void), size_t expected)
{
    size_t value = measure();
    for (unsigned round = 0; value > expected && round < 3000; round++) {
        poll_pause(round);
        value = measure();
    }
    return value;
}

size_t settled_threads(size_t expected)
{
    return settled(running_threads, expected);
}

size_t settled_descriptors(size_t expected)
{
    return settled(open_descriptors, expected);
}

void run_threads(size_t count, void *(*function)(void *), void *data, size_t stride)
{
    pthread_t threads[64];
    assert_true(count <= sizeof(threads) / sizeof(threads[0]));
    for (size_t index = 0; index < count; index++)
        assert_int_equal(pthread_create(&threads[index], NULL, function, (char *)data + index * stride), 0);
    for (size_t index = 0; index < count; index++)
        pthread_join(threads[index], NULL);
}
