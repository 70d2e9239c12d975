/* The reactor and the acceptor. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
/* after the above */
#include <cmocka.h>

#include "core/clock.h"
#include "core/net/acceptor.h"
#include "core/net/address.h"
#include "core/net/reactor.h"
#include "tests/unit/socket_helpers.h"

enum { WATCHDOG_MS = 20000 };

static struct te_reactor *reactor;
static int done; /* an eventfd that handlers signal */

static int set_up(void **state)
{
    (void)state;
    done = eventfd(0, EFD_CLOEXEC);
    return te_reactor_new("test", 20000, &reactor);
}

static int tear_down(void **state)
{
    (void)state;
    te_reactor_free(reactor);
    close(done);
    return 0;
}

static void signal_done(void)
{
    uint64_t one = 1;

    assert_int_equal(write(done, &one, sizeof(one)), sizeof(one));
}

static void wait_done(void)
{
    struct pollfd entry = {.fd = done, .events = POLLIN};
    uint64_t count;

    assert_int_equal(poll(&entry, 1, WATCHDOG_MS), 1);
    assert_int_equal(read(done, &count, sizeof(count)), sizeof(count));
}

/* Commands */

static void add_one(void *data)
{
    assert_true(te_reactor_is_current(reactor));
    ++*(int *)data;
}

static void *run_a_thousand(void *data)
{
    for (int i = 0; i < 1000; i++)
        te_reactor_run(reactor, add_one, data);
    return NULL;
}

static void test_commands_run_once_and_in_order(void **state)
{
    pthread_t threads[4];
    int counts[4] = {0}, last = 0;

    (void)state;
    assert_false(te_reactor_is_current(reactor));
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_a_thousand, &counts[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    /* Whatever was queued before has run when this returns. */
    te_reactor_run_wait(reactor, add_one, &last);
    assert_int_equal(last, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(counts[i], 1000);
}

static void nest(void *data)
{
    te_reactor_run_wait(reactor, add_one, data); /* at once: this is its thread */
}

static void test_commands_may_nest(void **state)
{
    int count = 0;

    (void)state;
    te_reactor_run_wait(reactor, nest, &count);
    assert_int_equal(count, 1);
}

/* Timers */

enum { TIMERS = 40 };

static struct te_timer timers[TIMERS];
static int fired[TIMERS], fired_count;

static void fire(struct te_timer *timer)
{
    assert_int_equal(timer->due_ns, 0);
    fired[fired_count++] = (int)(timer - timers);
    if (fired_count == TIMERS / 2)
        signal_done();
}

/* Even ones are due in reverse order, odd ones are taken back. */
static void set_timers(void *data)
{
    int64_t now_ns = te_now_ns();

    (void)data;
    for (int i = 0; i < TIMERS; i++) {
        timers[i].fire = fire;
        te_reactor_timer_set(reactor, &timers[i], now_ns + TE_NS_PER_SECOND);
    }
    for (int i = 0; i < TIMERS; i++)
        te_reactor_timer_set(reactor, &timers[i], now_ns + (TIMERS - i) * TE_NS_PER_MS / 4);
    for (int i = 1; i < TIMERS; i += 2)
        te_reactor_timer_clear(reactor, &timers[i]);
    te_reactor_timer_clear(reactor, &timers[1]); /* not armed: nothing */
}

static void test_timers_fire_in_order_and_once(void **state)
{
    (void)state;
    fired_count = 0;
    te_reactor_run(reactor, set_timers, NULL);
    wait_done();
    for (int i = 0; i < TIMERS / 2; i++)
        assert_int_equal(fired[i], TIMERS - 2 - 2 * i);
}

/* Watches */

struct echo {
    struct te_watch watch;
    int other; /* end of the pair */
    unsigned calls, again;
    bool remove_other;
    struct echo *peer;
};

static void echo_open(struct echo *echo, void (*ready)(struct te_watch *, uint32_t))
{
    int ends[2];

    memset(echo, 0, sizeof(*echo));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    echo->watch.descriptor = ends[0];
    echo->watch.ready = ready;
    echo->other = ends[1];
    assert_int_equal(te_reactor_add(reactor, &echo->watch, EPOLLIN), TE_OK);
}

static void remove_watch(void *data)
{
    te_reactor_remove(reactor, data);
}

static void echo_close(struct echo *echo)
{
    te_reactor_run_wait(reactor, remove_watch, &echo->watch);
    close(echo->watch.descriptor);
    close(echo->other);
}

/* Takes one byte a round, so that it needs te_reactor_again() for the rest. */
static void take_one(struct te_watch *watch, uint32_t events)
{
    struct echo *echo = (struct echo *)watch;
    char byte;

    (void)events;
    echo->calls++;
    if (read(watch->descriptor, &byte, 1) != 1)
        return;
    te_reactor_hot(reactor, watch);
    if (byte == 'z') {
        signal_done();
        return;
    }
    te_reactor_again(reactor, watch);
    te_reactor_again(reactor, watch); /* once more changes nothing */
}

static void test_again_goes_on_where_no_event_comes(void **state)
{
    struct echo echo;

    (void)state;
    echo_open(&echo, take_one);
    assert_int_equal(write(echo.other, "aaaaaaaaaz", 10), 10);
    wait_done();
    echo_close(&echo);
    assert_true(echo.calls >= 10);
}

/* The first of the two that is called removes the other. */
static void remove_peer(struct te_watch *watch, uint32_t events)
{
    struct echo *echo = (struct echo *)watch;

    if (events == 0)
        return;
    echo->calls++;
    te_reactor_remove(reactor, &echo->peer->watch);
    signal_done();
}

static void make_both_ready(void *data)
{
    struct echo *echoes = data;

    for (int i = 0; i < 2; i++)
        assert_int_equal(write(echoes[i].other, "x", 1), 1);
}

static void test_a_removed_watch_is_not_called(void **state)
{
    struct echo echoes[2];

    (void)state;
    for (int round = 0; round < 50; round++) {
        int nothing = 0;

        for (int i = 0; i < 2; i++) {
            echo_open(&echoes[i], remove_peer);
            echoes[i].peer = &echoes[1 - i];
        }
        te_reactor_run_wait(reactor, make_both_ready, echoes);
        wait_done();
        te_reactor_run_wait(reactor, add_one, &nothing);
        for (int i = 0; i < 2; i++)
            echo_close(&echoes[i]);
        assert_int_equal(echoes[0].calls + echoes[1].calls, 1);
    }
}

/* The acceptor */

static int accepted_descriptor;

static void accepted(void *data, int descriptor)
{
    (void)data;
    accepted_descriptor = descriptor;
    signal_done();
}

static int connect_to(uint16_t port)
{
    int descriptor = test_connect(port);

    assert_true(descriptor >= 0);
    return descriptor;
}

static int next_descriptor(void)
{
    int descriptor = dup(done);

    assert_true(descriptor >= 0);
    close(descriptor);
    return descriptor;
}

static void expect_end(int descriptor)
{
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    char byte;

    assert_int_equal(poll(&entry, 1, WATCHDOG_MS), 1);
    assert_true(read(descriptor, &byte, 1) <= 0);
}

static void test_acceptor_survives_running_out_of_descriptors(void **state)
{
    struct te_acceptor *acceptor;
    struct rlimit limit, low;
    uint16_t port;
    int listening, first, second, third, settled = 0;

    (void)state;
    assert_int_equal(te_listen_any_port(15000, 17000, 16, &listening, &port), TE_OK);
    assert_int_equal(te_acceptor_new(reactor, listening, accepted, NULL, &acceptor), TE_OK);
    first = connect_to(port);
    wait_done();
    /* Room for the connecting end, none for the accepted one. The acceptor is through with its round: each of its calls
     * takes a descriptor for a moment. */
    te_reactor_run_wait(reactor, add_one, &settled);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)next_descriptor() + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    second = connect_to(port);
    expect_end(second);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    close(accepted_descriptor);
    third = connect_to(port);
    wait_done();
    close(accepted_descriptor);
    te_acceptor_free(acceptor);
    close(first);
    close(second);
    close(third);
}

/* A thread may be held up between saying that there are commands and waking the reactor, which meanwhile runs them. The
 * late event must not keep the reactor busy. write() and epoll_wait() of this program stand before those of libc. */

static sem_t held, go_on;
static atomic_bool hold_next_write;
static _Atomic unsigned waits;
static ssize_t (*next_write)(int, const void *, size_t);
static int (*next_epoll_wait)(int, struct epoll_event *, int, int);

__attribute__((constructor)) static void find_next(void)
{
    *(void **)&next_write = dlsym(RTLD_NEXT, "write");
    *(void **)&next_epoll_wait = dlsym(RTLD_NEXT, "epoll_wait");
}

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    if (atomic_exchange(&hold_next_write, false)) {
        sem_post(&held);
        sem_wait(&go_on);
    }
    return next_write(descriptor, bytes, size);
}

int epoll_wait(int epoll, struct epoll_event *events, int capacity, int timeout_ms)
{
    atomic_fetch_add(&waits, 1);
    return next_epoll_wait(epoll, events, capacity, timeout_ms);
}

static void signal_from_command(void *data)
{
    (void)data;
    signal_done();
}

static void *wake_late(void *data)
{
    te_reactor_run(reactor, signal_from_command, data);
    return NULL;
}

static void test_an_event_that_comes_late_ends(void **state)
{
    int64_t end_ns = te_now_ns() + 10 * TE_NS_PER_SECOND;
    struct timespec pause = {.tv_nsec = 20 * TE_NS_PER_MS};
    struct echo echo;
    pthread_t thread;
    unsigned before;

    (void)state;
    assert_int_equal(sem_init(&held, 0, 0), 0);
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    echo_open(&echo, take_one);
    atomic_store(&hold_next_write, true);
    assert_int_equal(pthread_create(&thread, NULL, wake_late, NULL), 0);
    sem_wait(&held);
    /* Any other event makes the reactor look for commands. */
    assert_int_equal(send(echo.other, "x", 1, 0), 1);
    wait_done();
    sem_post(&go_on);
    pthread_join(thread, NULL);
    do {
        before = atomic_load(&waits);
        nanosleep(&pause, NULL);
    } while (atomic_load(&waits) != before && te_now_ns() < end_ns);
    echo_close(&echo);
    sem_destroy(&held);
    sem_destroy(&go_on);
    assert_true(te_now_ns() < end_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commands_run_once_and_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_commands_may_nest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_event_that_comes_late_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_timers_fire_in_order_and_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_again_goes_on_where_no_event_comes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_removed_watch_is_not_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_acceptor_survives_running_out_of_descriptors, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
