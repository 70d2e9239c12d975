/* Each case runs in a process of its own, which says through a pipe which engines were destroyed. */
#include "shim/graceful_shutdown.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/status.h"
#include "fake_runtime.h"
#include "shim/engine_handle.h"

enum { WATCHDOG_SECONDS = 60 };

static int destroyed_pipe[2];

static void tell_destroyed(struct fake_runtime *runtime)
{
    unsigned char number = (unsigned char)(runtime - fake_runtimes);

    if (write(destroyed_pipe[1], &number, 1) != 1)
        abort();
}

static transfer_engine_t add(void)
{
    transfer_engine_t handle;

    if (te_engine_handle_add(&te_classic_ops, fake_new(), &handle) != TE_OK)
        abort();
    return handle;
}

static void enable(transfer_engine_t engine)
{
    if (te_graceful_shutdown_enable(engine) != TE_OK)
        abort();
}

struct outcome {
    int status;              /* as of waitpid */
    size_t destroyed;        /* how many engines */
    unsigned char which[16]; /* in which order they were made */
};

/* Runs a body in a child and waits for its end. */
static struct outcome run(void (*body)(void))
{
    struct outcome outcome = {0};
    pid_t child;
    ssize_t got;

    assert_int_equal(pipe(destroyed_pipe), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(destroyed_pipe[0]);
        alarm(WATCHDOG_SECONDS);
        atomic_store(&fake_runtimes_used, 0);
        fake_destroy_hook = tell_destroyed;
        body();
        _exit(99);
    }
    close(destroyed_pipe[1]);
    got = read(destroyed_pipe[0], outcome.which, 1);
    while (got == 1) {
        outcome.destroyed++;
        got = read(destroyed_pipe[0], &outcome.which[outcome.destroyed], 1);
    }
    close(destroyed_pipe[0]);
    assert_int_equal(waitpid(child, &outcome.status, 0), child);
    return outcome;
}

static void wait_for_the_end(void)
{
    for (;;)
        pause();
}

static void end_by(int number)
{
    transfer_engine_t first = add();

    add();
    enable(first);
    enable(add());
    kill(getpid(), number);
    wait_for_the_end();
}

static void end_by_term(void)
{
    end_by(SIGTERM);
}

static void end_by_interrupt(void)
{
    end_by(SIGINT);
}

static void test_a_signal_destroys_what_asked_for_it(void **state)
{
    struct outcome outcome = run(end_by_term);

    (void)state;
    assert_true(WIFEXITED(outcome.status));
    assert_int_equal(WEXITSTATUS(outcome.status), 128 + SIGTERM);
    assert_int_equal(outcome.destroyed, 2);
    assert_int_equal(outcome.which[0], 0);
    assert_int_equal(outcome.which[1], 2);
    outcome = run(end_by_interrupt);
    assert_int_equal(WEXITSTATUS(outcome.status), 128 + SIGINT);
    assert_int_equal(outcome.destroyed, 2);
}

static void end_normally(void)
{
    enable(add());
    enable(add());
    exit(3);
}

static void test_a_normal_exit_destroys_them(void **state)
{
    struct outcome outcome = run(end_normally);

    (void)state;
    assert_true(WIFEXITED(outcome.status));
    assert_int_equal(WEXITSTATUS(outcome.status), 3);
    assert_int_equal(outcome.destroyed, 2);
}

static void destroy_before_exit(void)
{
    transfer_engine_t engine = add();

    enable(engine);
    enable(engine);
    te_engine_handle_destroy(engine);
    if (te_graceful_shutdown_enable(engine) != TE_INVALID_ARGUMENT)
        _exit(98);
    exit(0);
}

static void test_a_destroyed_engine_is_not_destroyed_again(void **state)
{
    struct outcome outcome = run(destroy_before_exit);

    (void)state;
    assert_int_equal(outcome.status, 0);
    assert_int_equal(outcome.destroyed, 1);
}

static void never_enabled(void)
{
    struct sigaction action;

    add();
    if (sigaction(SIGTERM, NULL, &action) != 0 || action.sa_handler != SIG_DFL)
        _exit(98);
    raise(SIGTERM);
}

static void test_nothing_is_installed_without_being_asked(void **state)
{
    struct outcome outcome = run(never_enabled);

    (void)state;
    assert_true(WIFSIGNALED(outcome.status));
    assert_int_equal(WTERMSIG(outcome.status), SIGTERM);
    assert_int_equal(outcome.destroyed, 0);
}

#ifndef __SANITIZE_THREAD__
static void fork_and_signal_the_child(void)
{
    int status;
    pid_t child;

    enable(add());
    child = fork();
    if (child == 0) {
        alarm(WATCHDOG_SECONDS);
        raise(SIGTERM);
        wait_for_the_end();
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        _exit(98);
    _exit(WEXITSTATUS(status));
}

static void test_a_forked_child_ends_at_once(void **state)
{
    struct outcome outcome = run(fork_and_signal_the_child);

    (void)state;
    assert_int_equal(WEXITSTATUS(outcome.status), 128 + SIGTERM);
    assert_int_equal(outcome.destroyed, 0);
}

static void fork_and_enable_in_the_child(void)
{
    int status;
    pid_t child;

    enable(add());
    child = fork();
    if (child == 0) {
        alarm(WATCHDOG_SECONDS);
        enable(add());
        raise(SIGINT);
        wait_for_the_end();
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        _exit(98);
    _exit(WEXITSTATUS(status));
}

static void test_a_forked_child_may_ask_for_itself(void **state)
{
    struct outcome outcome = run(fork_and_enable_in_the_child);

    (void)state;
    assert_int_equal(WEXITSTATUS(outcome.status), 128 + SIGINT);
    assert_int_equal(outcome.destroyed, 1);
    assert_int_equal(outcome.which[0], 1);
}

#endif

static void stuck(struct fake_runtime *runtime)
{
    tell_destroyed(runtime);
    kill(getpid(), SIGTERM);
    wait_for_the_end();
}

static void signal_twice(void)
{
    fake_destroy_hook = stuck;
    enable(add());
    kill(getpid(), SIGINT);
    wait_for_the_end();
}

static void test_a_second_signal_does_not_wait(void **state)
{
    struct outcome outcome = run(signal_twice);

    (void)state;
    assert_true(WIFEXITED(outcome.status));
    assert_int_equal(WEXITSTATUS(outcome.status), 128 + SIGTERM);
    assert_int_equal(outcome.destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_signal_destroys_what_asked_for_it),
        cmocka_unit_test(test_a_normal_exit_destroys_them),
        cmocka_unit_test(test_a_destroyed_engine_is_not_destroyed_again),
        cmocka_unit_test(test_nothing_is_installed_without_being_asked),
#ifndef __SANITIZE_THREAD__ /* it delivers no signals and starts no threads in the child of a program with threads */
        cmocka_unit_test(test_a_forked_child_ends_at_once),
        cmocka_unit_test(test_a_forked_child_may_ask_for_itself),
#endif
        cmocka_unit_test(test_a_second_signal_does_not_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
