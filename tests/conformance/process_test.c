/* The engine and its process: signals, limits, fork, shutdown. Callers' behaviour 39; bug reports P*; what the contract
 * says of the host program. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };

/* ---- callers' behaviours ---- */

static void b39_the_limit_of_open_files_is_raised(void **state)
{
    (void)state;
    struct rlimit before;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    transfer_engine_t engine = engine_new();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, limit.rlim_max);
    assert_int_equal(limit.rlim_max, before.rlim_max);
    engine_delete(engine);
    setrlimit(RLIMIT_NOFILE, &before);
}

static void b39_no_signal_is_raised_or_handled(void **state)
{
    (void)state;
    struct sigaction before[NSIG];
    sigset_t mask_before;
    sigset_t mask_after;
    memset(&mask_before, 0, sizeof(mask_before));
    memset(&mask_after, 0, sizeof(mask_after));
    short_timeouts();
    signal(SIGPIPE, SIG_DFL); /* would end this program */
    for (int number = 1; number < NSIG; number++)
        sigaction(number, NULL, &before[number]);
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(4 * MIB);
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    raw_peer_behave(peer, RAW_CLOSE_HALF_WAY, 0);
    for (int round = 0; round < 100; round++)
        assert_int_equal(transfer(engine, round % 2, local, segment, (uintptr_t)peer->memory, MIB), FAILED);
    raw_peer_behave_control(peer, RAW_CONTROL_CLOSE);
    for (int round = 0; round < 20; round++)
        assert_true(te_probe(engine, peer->name) < 0);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction after;
        if (sigaction(number, NULL, &after) == 0)
            assert_ptr_equal(after.sa_handler, before[number].sa_handler);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    assert_memory_equal(&mask_before, &mask_after, sizeof(mask_before));
}

/* The mask of blocked signals of a thread of this process, 0 if it has ended; and its name. */
static unsigned long long blocked_signals(pid_t thread, char name[32])
{
    char path[64];
    char line[256];
    unsigned long long blocked = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)thread);
    FILE *file = fopen(path, "re");
    name[0] = '\0';
    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file)) {
        sscanf(line, "Name: %31s", name);
        sscanf(line, "SigBlk: %llx", &blocked);
    }
    fclose(file);
    return blocked;
}

static void contract_engine_threads_take_no_signals_of_the_program(void **state)
{
    (void)state;
    size_t before = running_threads();
    struct pair pair = pair_new(KIB);
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), COMPLETED);
    assert_true(running_threads() > before);
    size_t seen = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        char name[32];
        pid_t thread = (pid_t)atoi(entry->d_name);
        if (thread <= 0 || thread == gettid())
            continue;
        unsigned long long blocked = blocked_signals(thread, name);
        if (name[0] == '\0' || (under_sanitizer() && strncmp(name, "te-", 3) != 0))
            continue; /* it has ended, or is the sanitizer's own */
        seen++;
        assert_true(blocked & (1ULL << (SIGTERM - 1)));
        assert_true(blocked & (1ULL << (SIGUSR1 - 1)));
        assert_true(blocked & (1ULL << (SIGALRM - 1)));
    }
    closedir(folder);
    assert_true(seen > 0);
}

static void contract_descriptors_are_not_inherited(void **state)
{
    (void)state;
    struct pair pair = pair_new(KIB);
    batch_id_t batch = batch_new(pair.engine, 1);
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), COMPLETED);
    assert_true(te_event_fd(pair.engine) >= 0);
    assert_true(te_batch_event_fd(pair.engine, batch) >= 0);
    for (int descriptor = 3; descriptor < 1000; descriptor++) {
        int flags = fcntl(descriptor, F_GETFD);
        char path[64];
        char target[256];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        if (flags < 0 || length < 0)
            continue;
        target[length] = '\0';
        if (strncmp(target, "socket:", 7) == 0 || strncmp(target, "anon_inode:", 11) == 0)
            assert_true(flags & FD_CLOEXEC);
    }
}

/* ---- bug reports ---- */

static void report_p02_a_graceful_shutdown(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t index = 0; index < 2; index++) {
        for (int twice = 0; twice < 2; twice++) {
            int status;
            struct target *target = target_start();
            target_memory(target, SIZE);
            assert_string_equal(target_command(target, "graceful"), "0");
            assert_string_equal(target_command(target, "graceful"), "0");
            assert_int_equal(kill(target->pid, signals[index]), 0);
            if (twice)
                kill(target->pid, signals[index]);
            assert_int_equal(waitpid(target->pid, &status, 0), target->pid);
            target->pid = 0;
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 128 + signals[index]);
        }
    }
}

/* The number'th thread of a process that does not block SIGTERM (one sent to a thread that does waits there), or 0. */
static int thread_that_takes_signals(pid_t process, int number)
{
    char path[64];
    char line[256];
    for (int thread = process; thread < process + 200; thread++) {
        unsigned long long blocked = 0;
        snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)process, thread);
        FILE *file = fopen(path, "re");
        while (file && fgets(line, sizeof(line), file))
            sscanf(line, "SigBlk: %llx", &blocked);
        if (!file)
            continue;
        fclose(file);
        if (!(blocked & (1ULL << (SIGTERM - 1))) && number-- == 0)
            return thread;
    }
    return 0;
}

static void report_p02_the_signal_may_reach_any_thread(void **state)
{
    (void)state;
    int count = 0;
    for (;; count++) {
        int status;
        struct target *target = target_start();
        assert_string_equal(target_command(target, "graceful"), "0");
        int thread = thread_that_takes_signals(target->pid, count);
        if (thread == 0)
            break; /* no more threads */
        assert_int_equal(syscall(SYS_tgkill, target->pid, thread, SIGTERM), 0);
        assert_int_equal(waitpid(target->pid, &status, 0), target->pid);
        target->pid = 0;
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
    }
    assert_true(count > 0);
}

static void report_p02_a_shutdown_with_transfers_under_way(void **state)
{
    (void)state;
    short_timeouts();
    struct pair pair = pair_new(64 * MIB);
    char name[NAME_SIZE];
    int status;
    uint8_t *mine = memory_new_registered(pair.engine, 64 * MIB);
    engine_name(pair.engine, name);
    assert_string_equal(target_command(pair.target, "graceful"), "0");
    for (int round = 0; round < 8; round++) {
        size_t place = (size_t)round * 8 * MIB; /* the first half of it for one direction, the other for the other */
        target_submit(pair.target, name, round % 2, pair.remote.there + place, (uintptr_t)mine + place, 4 * MIB);
        submit_one(pair.engine, round % 2, pair.local + place, pair.segment, pair.remote.there + place + 4 * MIB,
                   4 * MIB);
    }
    assert_int_equal(kill(pair.target->pid, SIGTERM), 0);
    assert_int_equal(waitpid(pair.target->pid, &status, 0), pair.target->pid);
    pair.target->pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
}

static void report_p03_a_forked_child_disturbs_nobody(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    char name[NAME_SIZE];
    uint8_t *mine = memory_new_registered(pair.engine, SIZE);
    engine_name(pair.engine, name);
    for (int round = 0; round < 4; round++) {
        batch_id_t batch = pair_submit(&pair, WRITE, SIZE);
        pid_t child = fork();
        if (child == 0) {
            struct transfer_status status;
            int bad = 0;
            alarm(20);
            bad += getTransferStatus(pair.engine, batch, 0, &status) != 1; /* refused, not a crash, not a hang */
            bad += openSegment(pair.engine, name) >= 0;
            bad += registerLocalMemory(pair.engine, pair.local, 100, "*", 1) >= 0;
            if (round % 2)
                destroyTransferEngine(pair.engine);
            _exit(bad);
        }
        assert_true(child > 0);
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), 0);
        assert_int_equal(finish(pair.engine, batch, 0), COMPLETED);
        assert_int_equal(freeBatchID(pair.engine, batch), 0);
        for (int again = 0; again < 10; again++)
            assert_int_equal(pair_transfer(&pair, again % 2, SIZE), COMPLETED);
        assert_int_equal(target_transfer(pair.target, name, WRITE, pair.remote.there, (uintptr_t)mine, SIZE),
                         COMPLETED);
    }
}

static void contract_a_child_that_lives_on_does_not_hold_connections(void **state)
{
    (void)state;
    /* A forked child has copies of the parent's sockets. The target must see the parent's end all the same. */
    struct pair pair = pair_new(SIZE);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
    int hold[2];
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(hold[1]);
        alarm(60);
        _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(hold[0]);
    batch_id_t batch = pair_submit(&pair, WRITE, SIZE);
    assert_int_equal(te_cancel_batch(pair.engine, batch), 0);
    assert_true(is_terminal(finish(pair.engine, batch, 0)));
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
    engine_delete(pair.engine); /* is not held up by the child */
    target_exit(pair.target);
    close(hold[1]);
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

static void contract_exit_with_an_engine_alive(void **state)
{
    (void)state;
    /* A program may end without destroying: T10 had a terminate there. */
    for (int round = 0; round < 3; round++) {
        int status;
        struct pair pair = pair_new(16 * MIB);
        char name[NAME_SIZE];
        uint8_t *mine = memory_new_registered(pair.engine, 16 * MIB);
        engine_name(pair.engine, name);
        for (int index = 0; index < 4; index++)
            target_submit(pair.target, name, index % 2, pair.remote.there + (size_t)index * 4 * MIB,
                          (uintptr_t)mine + (size_t)index * 4 * MIB, 4 * MIB);
        ssize_t written = write(pair.target->commands, "leave\n", 6); /* exit() with all of it alive */
        assert_int_equal(written, 6);
        assert_int_equal(waitpid(pair.target->pid, &status, 0), pair.target->pid);
        pair.target->pid = 0;
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        targets_kill_all();
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(b39_the_limit_of_open_files_is_raised),
        TEST(b39_no_signal_is_raised_or_handled),
        TEST(contract_engine_threads_take_no_signals_of_the_program),
        TEST(contract_descriptors_are_not_inherited),
        TEST(contract_a_child_that_lives_on_does_not_hold_connections),
        TEST(contract_exit_with_an_engine_alive),
        TEST(report_p02_a_graceful_shutdown),
        TEST(report_p02_the_signal_may_reach_any_thread),
        TEST(report_p02_a_shutdown_with_transfers_under_way),
        TEST(report_p03_a_forked_child_disturbs_nobody),
    };
    return RUN_TESTS(tests, argc, argv);
}
