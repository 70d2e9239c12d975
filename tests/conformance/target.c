#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "raw_wire.h"

extern char **environ;

enum { MAXIMUM_TARGETS = 32, REPLY_SIZE = 1 << 20, RESTART_PORTS = 4, RANGES_FIRST = 18000, RANGES_LAST = 32000 };

static struct target targets[MAXIMUM_TARGETS];
static size_t target_count;
static char reply_buffer[REPLY_SIZE];

static struct {
    void *start;
    size_t size;
    int descriptor;
} shared[256];
static size_t shared_count;

/* ---- commands ---- */

static void write_all(int descriptor, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(descriptor, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        assert_true(written > 0);
        text += written;
        length -= (size_t)written;
    }
}

static const char *read_line(int descriptor)
{
    size_t length = 0;
    for (;;) {
        ssize_t taken = read(descriptor, reply_buffer + length, 1);
        if (taken < 0 && errno == EINTR)
            continue;
        if (taken <= 0)
            fail_msg("the target process died");
        if (reply_buffer[length] == '\n')
            break;
        length++;
        assert_true(length < sizeof(reply_buffer));
    }
    reply_buffer[length] = '\0';
    return reply_buffer;
}

const char *target_command(struct target *target, const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    assert_true(length > 0 && (size_t)length < sizeof(line) - 1);
    line[length] = '\n';
    write_all(target->commands, line, (size_t)length + 1);
    return read_line(target->replies);
}

static long long command_number(struct target *target, const char *line)
{
    const char *reply = target_command(target, "%s", line);
    char *end;
    long long number = strtoll(reply, &end, 10);
    if (end == reply || *end != '\0')
        fail_msg("the target answered '%s' to '%s'", reply, line);
    return number;
}

/* ---- processes ---- */

static void spawn_process(struct target *target)
{
    int commands[2];
    int replies[2];
    assert_int_equal(pipe2(commands, O_CLOEXEC), 0);
    assert_int_equal(pipe2(replies, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, commands[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, replies[1], STDOUT_FILENO);
    char program[] = TE_TARGET_PROCESS;
    char *arguments[] = {program, NULL};
    assert_int_equal(posix_spawn(&target->pid, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(commands[0]);
    close(replies[1]);
    target->commands = commands[1];
    target->replies = replies[0];
}

/* port 0: any. Otherwise engines are made until one has that control port and another data port than other_than. */
static bool try_create_engine(struct target *target, int port, int other_than)
{
    const char *reply = target_command(target, "create %s %d %d %d %d", target->host, target->minimum_port,
                                       target->maximum_port, port, other_than);
    if (sscanf(reply, "%127s %d", target->name, &target->port) != 2)
        return false;
    target->data_port = raw_data_port_of(target->name);
    return true;
}

static void create_engine(struct target *target, int port, int other_than)
{
    if (!try_create_engine(target, port, other_than))
        fail_msg("the target could not create its engine");
}

static struct target *new_target(const char *local_name)
{
    assert_true(target_count < MAXIMUM_TARGETS);
    struct target *target = &targets[target_count++];
    memset(target, 0, sizeof(*target));
    snprintf(target->host, sizeof(target->host), "%s", local_name);
    spawn_process(target);
    return target;
}

struct target *target_start_named(const char *local_name)
{
    struct target *target = new_target(local_name);
    create_engine(target, 0, 0);
    return target;
}

struct target *target_start(void)
{
    return target_start_named("127.0.0.1");
}

struct target *target_start_restartable(void)
{
    struct target *target = new_target("127.0.0.1");
    for (int attempt = 0;; attempt++) {
        /* Programs that run at the same time must not choose the same ports. */
        uint64_t number = ((uint64_t)now_ns() / 1000 + (uint64_t)getpid() * 7919 + (uint64_t)attempt * 104729) %
                          (RANGES_LAST - RANGES_FIRST);
        target->minimum_port = RANGES_FIRST + (int)(number / RESTART_PORTS * RESTART_PORTS);
        target->maximum_port = target->minimum_port + RESTART_PORTS - 1;
        if (try_create_engine(target, 0, 0))
            return target;
        assert_true(attempt < 20);
    }
}

static void bury(struct target *target)
{
    close(target->commands);
    close(target->replies);
    target->commands = target->replies = -1;
    target->pid = 0;
}

void target_kill(struct target *target)
{
    assert_int_equal(kill(target->pid, SIGKILL), 0);
    assert_int_equal(waitpid(target->pid, NULL, 0), target->pid);
    bury(target);
}

void target_stop(struct target *target)
{
    int status;
    assert_int_equal(kill(target->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(target->pid, &status, WUNTRACED), target->pid);
    assert_true(WIFSTOPPED(status));
}

void target_continue(struct target *target)
{
    assert_int_equal(kill(target->pid, SIGCONT), 0);
}

void target_destroy_engine(struct target *target)
{
    assert_int_equal(command_number(target, "destroy"), 0);
}

void target_exit(struct target *target)
{
    int status;
    assert_int_equal(command_number(target, "destroy"), 0);
    write_all(target->commands, "exit\n", 5);
    assert_int_equal(waitpid(target->pid, &status, 0), target->pid);
    bury(target);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void target_restart(struct target *target)
{
    assert_int_equal(target->pid, 0);
    assert_true(target->minimum_port > 0);
    char before[NAME_SIZE];
    snprintf(before, sizeof(before), "%s", target->name);
    spawn_process(target);
    create_engine(target, target->port, target->data_port);
    assert_string_equal(target->name, before);
}

void targets_kill_all(void)
{
    for (size_t index = 0; index < target_count; index++) {
        if (targets[index].pid > 0) {
            kill(targets[index].pid, SIGKILL);
            waitpid(targets[index].pid, NULL, 0);
            close(targets[index].commands);
            close(targets[index].replies);
            targets[index].pid = 0;
        }
    }
    target_count = 0;
    while (shared_count > 0) {
        shared_count--;
        munmap(shared[shared_count].start, shared[shared_count].size);
        close(shared[shared_count].descriptor);
    }
}

/* ---- memory ---- */

static uint64_t map_there(struct target *target, const struct shared_memory *memory, size_t times)
{
    char line[NAME_SIZE];
    snprintf(line, sizeof(line), "map /proc/%d/fd/%d %zu %zu", (int)getpid(), memory->descriptor, memory->size, times);
    uint64_t address = (uint64_t)command_number(target, line);
    assert_true(address != 0);
    return address;
}

struct shared_memory target_map_repeated(struct target *target, size_t size, size_t times)
{
    struct shared_memory memory = {.size = size};
    memory.descriptor = memfd_create("test", MFD_CLOEXEC);
    assert_true(memory.descriptor >= 0);
    assert_int_equal(ftruncate(memory.descriptor, (off_t)size), 0);
    memory.here = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.descriptor, 0);
    assert_true((void *)memory.here != MAP_FAILED);
    assert_true(shared_count < sizeof(shared) / sizeof(shared[0]));
    shared[shared_count].start = memory.here;
    shared[shared_count].size = size;
    shared[shared_count].descriptor = memory.descriptor;
    shared_count++;

    memory.there = map_there(target, &memory, times);
    return memory;
}

uint64_t target_map_existing(struct target *target, const struct shared_memory *memory)
{
    return map_there(target, memory, 1);
}

struct shared_memory target_map(struct target *target, size_t size)
{
    return target_map_repeated(target, size, 1);
}

struct shared_memory target_memory(struct target *target, size_t size)
{
    struct shared_memory memory = target_map(target, size);
    assert_int_equal(target_register(target, memory.there, size, 1), 0);
    return memory;
}

int target_register(struct target *target, uint64_t address, size_t length, int remote_accessible)
{
    char line[NAME_SIZE];
    snprintf(line, sizeof(line), "register %llu %zu %d", (unsigned long long)address, length, remote_accessible);
    return (int)command_number(target, line);
}

int target_unregister(struct target *target, uint64_t address)
{
    char line[NAME_SIZE];
    snprintf(line, sizeof(line), "unregister %llu", (unsigned long long)address);
    return (int)command_number(target, line);
}

/* ---- the target as sender and receiver ---- */

char *target_notifications(struct target *target)
{
    int count = (int)command_number(target, "notifications");
    size_t size = 1;
    char *text = calloc(1, 1);
    for (int index = 0; index < count; index++) {
        const char *line = read_line(target->replies);
        size_t length = strlen(line);
        text = realloc(text, size + length + 1);
        assert_non_null(text);
        memcpy(text + size - 1, line, length);
        text[size - 1 + length] = '\n';
        text[size + length] = '\0';
        size += length + 1;
    }
    return text;
}

static long long transfer_command(struct target *target, const char *word, const char *name, int opcode,
                                  uint64_t address, uint64_t remote, size_t length)
{
    char line[512];
    snprintf(line, sizeof(line), "%s %s %d %llu %llu %zu", word, name, opcode, (unsigned long long)address,
             (unsigned long long)remote, length);
    return command_number(target, line);
}

int target_transfer(struct target *target, const char *name, int opcode, uint64_t address, uint64_t remote,
                    size_t length)
{
    return (int)transfer_command(target, "transfer", name, opcode, address, remote, length);
}

void target_submit(struct target *target, const char *name, int opcode, uint64_t address, uint64_t remote,
                   size_t length)
{
    assert_int_equal(transfer_command(target, "submit", name, opcode, address, remote, length), 0);
}

int target_notify(struct target *target, const char *name, const char *sender, const char *message)
{
    char line[4096];
    snprintf(line, sizeof(line), "notify %s %s %s", name, sender, message);
    return (int)command_number(target, line);
}

void target_limit_descriptors(struct target *target, int more)
{
    char line[NAME_SIZE];
    snprintf(line, sizeof(line), "limit %d", more);
    assert_int_equal(command_number(target, line), 0);
}

size_t target_resident_bytes(struct target *target)
{
    return (size_t)command_number(target, "resident") * KIB;
}

/* ---- pairs ---- */

static struct pair pair_with(struct target *target, size_t size)
{
    struct pair pair = {.target = target, .size = size};
    pair.engine = engine_new();
    pair.local = memory_new(size);
    pair.remote = target_memory(target, size);
    pair.segment = engine_open(pair.engine, target->name);
    return pair;
}

struct pair pair_new(size_t size)
{
    return pair_with(target_start(), size);
}

struct pair pair_new_restartable(size_t size)
{
    return pair_with(target_start_restartable(), size);
}

int pair_transfer(struct pair *pair, int opcode, size_t length)
{
    return transfer(pair->engine, opcode, pair->local, pair->segment, pair->remote.there, length);
}

batch_id_t pair_submit(struct pair *pair, int opcode, size_t length)
{
    return submit_one(pair->engine, opcode, pair->local, pair->segment, pair->remote.there, length);
}

void pair_settle(struct pair *pair)
{
    enum { SIZE = 256 * KIB, ROUNDS = 4 };
    struct shared_memory marker = target_memory(pair->target, SIZE);
    transfer_engine_t engine = engine_new();
    uint8_t *source = memory_new(SIZE);
    segment_id_t segment = engine_open(engine, pair->target->name);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        pattern_fill(source, SIZE, round);
        assert_int_equal(transfer(engine, WRITE, source, segment, marker.there, SIZE), COMPLETED);
        assert_pattern(marker.here, SIZE, round);
    }
    engine_delete(engine);
}
