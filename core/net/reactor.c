#include "core/net/reactor.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"

enum {
    EVENTS_PER_ROUND = 64,
    SPIN_CREDIT_MAX = 8,   /* polling phases that may fail in a row before polling is given up ... */
    SPIN_RETRY_PERIOD = 32 /* ... and then tried again once in so many */
};

struct command {
    void (*function)(void *);
    void *data;
};

struct te_reactor {
    int epoll;
    int wake_event;
    int64_t spin_ns;
    pthread_t thread;
    _Atomic bool stop;

    _Atomic bool wake_pending;
    pthread_mutex_t commands_lock;
    GArray *commands; /* struct command, under commands_lock */

    /* The rest belongs to the reactor's thread. */
    GPtrArray *timers; /* a binary heap of struct te_timer, earliest first */
    struct te_watch *again_head, **again_tail;
    struct te_watch *hot;
    bool active; /* something happened in this round */
    int spin_credit;
    unsigned spin_refusals;
    struct epoll_event events[EVENTS_PER_ROUND];
    int event_count, event_next;
};

/* Timers: a binary heap; timer->position is its index. */

static struct te_timer *timer_at(struct te_reactor *reactor, size_t index)
{
    return g_ptr_array_index(reactor->timers, index);
}

static void timer_place(struct te_reactor *reactor, size_t index, struct te_timer *timer)
{
    g_ptr_array_index(reactor->timers, index) = timer;
    timer->position = index;
}

static void timer_sift_up(struct te_reactor *reactor, struct te_timer *timer)
{
    size_t index = timer->position;

    while (index > 0 && timer_at(reactor, (index - 1) / 2)->due_ns > timer->due_ns) {
        timer_place(reactor, index, timer_at(reactor, (index - 1) / 2));
        index = (index - 1) / 2;
    }
    timer_place(reactor, index, timer);
}

static void timer_sift_down(struct te_reactor *reactor, struct te_timer *timer)
{
    size_t index = timer->position;
    size_t count = reactor->timers->len;

    for (;;) {
        size_t child = 2 * index + 1;

        if (child >= count)
            break;
        if (child + 1 < count && timer_at(reactor, child + 1)->due_ns < timer_at(reactor, child)->due_ns)
            child++;
        if (timer_at(reactor, child)->due_ns >= timer->due_ns)
            break;
        timer_place(reactor, index, timer_at(reactor, child));
        index = child;
    }
    timer_place(reactor, index, timer);
}

void te_reactor_timer_clear(struct te_reactor *reactor, struct te_timer *timer)
{
    struct te_timer *last;
    size_t index = timer->position;

    if (timer->due_ns == 0)
        return;
    timer->due_ns = 0;
    last = timer_at(reactor, reactor->timers->len - 1);
    g_ptr_array_set_size(reactor->timers, (int)reactor->timers->len - 1);
    if (last == timer)
        return;
    timer_place(reactor, index, last);
    timer_sift_up(reactor, last);
    timer_sift_down(reactor, last);
}

void te_reactor_timer_set(struct te_reactor *reactor, struct te_timer *timer, int64_t due_ns)
{
    te_reactor_timer_clear(reactor, timer);
    timer->due_ns = due_ns > 0 ? due_ns : 1;
    g_ptr_array_add(reactor->timers, timer);
    timer->position = reactor->timers->len - 1;
    timer_sift_up(reactor, timer);
}

static void fire_timers(struct te_reactor *reactor)
{
    int64_t now = te_now_ns();

    while (reactor->timers->len > 0 && timer_at(reactor, 0)->due_ns <= now) {
        struct te_timer *timer = timer_at(reactor, 0);

        te_reactor_timer_clear(reactor, timer);
        timer->fire(timer);
    }
}

/* Commands */

static void wake(struct te_reactor *reactor)
{
    uint64_t one = 1;

    if (atomic_exchange_explicit(&reactor->wake_pending, true, memory_order_acq_rel))
        return;
    while (write(reactor->wake_event, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

void te_reactor_run(struct te_reactor *reactor, void (*function)(void *), void *data)
{
    struct command command = {function, data};

    pthread_mutex_lock(&reactor->commands_lock);
    g_array_append_val(reactor->commands, command);
    pthread_mutex_unlock(&reactor->commands_lock);
    wake(reactor);
}

static void run_commands(struct te_reactor *reactor)
{
    GArray *commands;
    uint64_t count;

    while (read(reactor->wake_event, &count, sizeof(count)) < 0 && errno == EINTR)
        ;
    atomic_store_explicit(&reactor->wake_pending, false, memory_order_seq_cst);
    pthread_mutex_lock(&reactor->commands_lock);
    commands = reactor->commands;
    reactor->commands = g_array_new(FALSE, FALSE, sizeof(struct command));
    pthread_mutex_unlock(&reactor->commands_lock);
    for (guint i = 0; i < commands->len; i++) {
        struct command *command = &g_array_index(commands, struct command, i);

        command->function(command->data);
    }
    g_array_free(commands, TRUE);
}

struct rendezvous {
    void (*function)(void *);
    void *data;
    pthread_mutex_t lock;
    pthread_cond_t condition;
    bool done;
};

static void run_rendezvous(void *data)
{
    struct rendezvous *rendezvous = data;

    rendezvous->function(rendezvous->data);
    pthread_mutex_lock(&rendezvous->lock);
    rendezvous->done = true;
    pthread_cond_signal(&rendezvous->condition);
    pthread_mutex_unlock(&rendezvous->lock);
}

void te_reactor_run_wait(struct te_reactor *reactor, void (*function)(void *), void *data)
{
    struct rendezvous rendezvous = {.function = function, .data = data};

    if (te_reactor_is_current(reactor)) {
        function(data);
        return;
    }
    pthread_mutex_init(&rendezvous.lock, NULL);
    pthread_cond_init(&rendezvous.condition, NULL);
    te_reactor_run(reactor, run_rendezvous, &rendezvous);
    pthread_mutex_lock(&rendezvous.lock);
    while (!rendezvous.done)
        pthread_cond_wait(&rendezvous.condition, &rendezvous.lock);
    pthread_mutex_unlock(&rendezvous.lock);
    pthread_cond_destroy(&rendezvous.condition);
    pthread_mutex_destroy(&rendezvous.lock);
}

bool te_reactor_is_current(const struct te_reactor *reactor)
{
    return pthread_equal(pthread_self(), reactor->thread);
}

/* Watches */

static te_status control(struct te_reactor *reactor, int operation, struct te_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events | EPOLLET, .data.ptr = watch};

    if (epoll_ctl(reactor->epoll, operation, watch->descriptor, &event) != 0)
        return te_fail(TE_SOCKET, "epoll_ctl: %s", strerror(errno));
    return TE_OK;
}

te_status te_reactor_add(struct te_reactor *reactor, struct te_watch *watch, uint32_t events)
{
    return control(reactor, EPOLL_CTL_ADD, watch, events);
}

te_status te_reactor_change(struct te_reactor *reactor, struct te_watch *watch, uint32_t events)
{
    return control(reactor, EPOLL_CTL_MOD, watch, events);
}

void te_reactor_remove(struct te_reactor *reactor, struct te_watch *watch)
{
    epoll_ctl(reactor->epoll, EPOLL_CTL_DEL, watch->descriptor, NULL);
    if (reactor->hot == watch)
        reactor->hot = NULL;
    for (int i = reactor->event_next; i < reactor->event_count; i++)
        if (reactor->events[i].data.ptr == watch)
            reactor->events[i] = (struct epoll_event){0};
    if (!watch->again)
        return;
    for (struct te_watch **link = &reactor->again_head; *link != NULL; link = &(*link)->next_again) {
        if (*link != watch)
            continue;
        *link = watch->next_again;
        if (reactor->again_tail == &watch->next_again)
            reactor->again_tail = link;
        break;
    }
    watch->again = false;
}

void te_reactor_forget(struct te_reactor *reactor, struct te_watch *watch)
{
    epoll_ctl(reactor->epoll, EPOLL_CTL_DEL, watch->descriptor, NULL);
}

void te_reactor_again(struct te_reactor *reactor, struct te_watch *watch)
{
    if (watch->again)
        return;
    watch->again = true;
    watch->next_again = NULL;
    *reactor->again_tail = watch;
    reactor->again_tail = &watch->next_again;
}

void te_reactor_hot(struct te_reactor *reactor, struct te_watch *watch)
{
    reactor->hot = watch;
    reactor->active = true;
}

/* The loop */

/* Calls those that asked for it before this round; what they ask for anew waits for the next. */
static void run_again(struct te_reactor *reactor)
{
    struct te_watch *last = NULL;

    if (reactor->again_head == NULL)
        return;
    for (struct te_watch *watch = reactor->again_head; watch != NULL; watch = watch->next_again)
        last = watch;
    for (bool more = true; more && reactor->again_head != NULL;) {
        struct te_watch *watch = reactor->again_head;

        more = watch != last;
        reactor->again_head = watch->next_again;
        if (reactor->again_head == NULL)
            reactor->again_tail = &reactor->again_head;
        watch->again = false;
        watch->ready(watch, 0);
    }
}

static void wait_for_events(struct te_reactor *reactor, int timeout_ms)
{
    int count = epoll_wait(reactor->epoll, reactor->events, EVENTS_PER_ROUND, timeout_ms);
    bool woken = false;

    if (count < 0) {
        if (errno != EINTR)
            te_log_limited(TE_LOG_ERROR, "epoll_wait: %s", strerror(errno));
        return;
    }
    reactor->event_count = count;
    for (reactor->event_next = 0; reactor->event_next < reactor->event_count;) {
        struct epoll_event *event = &reactor->events[reactor->event_next++];
        struct te_watch *watch = event->data.ptr;

        if (watch != NULL)
            watch->ready(watch, event->events);
        else if (event->events != 0)
            woken = true;
    }
    reactor->event_count = reactor->event_next = 0;
    reactor->active |= woken;
    /* The event may come after its commands: who wakes sets the flag first, and may be held up before it writes. */
    if (woken || atomic_load_explicit(&reactor->wake_pending, memory_order_acquire))
        run_commands(reactor);
}

/* Whether a polling phase is worth it: learnt from the last ones. */
static bool may_spin(struct te_reactor *reactor)
{
    if (reactor->spin_ns == 0)
        return false;
    if (reactor->spin_credit > 0)
        return true;
    return ++reactor->spin_refusals % SPIN_RETRY_PERIOD == 0;
}

/* Polls until something happens or spin_ns have passed. */
static void spin(struct te_reactor *reactor)
{
    int64_t end_ns = te_now_ns() + reactor->spin_ns;

    reactor->active = false;
    for (unsigned round = 1; !reactor->active; round++) {
        if (reactor->hot != NULL)
            reactor->hot->ready(reactor->hot, 0);
        if (reactor->active || reactor->again_head != NULL)
            break;
        if (round % 4 == 0 || reactor->hot == NULL)
            wait_for_events(reactor, 0);
        if (round % 8 == 0) {
            if (te_now_ns() >= end_ns)
                break;
            sched_yield();
        }
    }
    if (reactor->active && reactor->spin_credit < SPIN_CREDIT_MAX)
        reactor->spin_credit++;
    else if (!reactor->active && reactor->spin_credit > 0)
        reactor->spin_credit--;
}

static int timeout_until_timer(struct te_reactor *reactor)
{
    int64_t left_ns;

    if (reactor->again_head != NULL)
        return 0;
    if (reactor->timers->len == 0)
        return -1;
    left_ns = timer_at(reactor, 0)->due_ns - te_now_ns();
    if (left_ns <= 0)
        return 0;
    return (int)MIN(left_ns / TE_NS_PER_MS + 1, (int64_t)G_MAXINT);
}

static void *run(void *data)
{
    struct te_reactor *reactor = data;

    while (!atomic_load_explicit(&reactor->stop, memory_order_acquire)) {
        fire_timers(reactor);
        run_again(reactor);
        if (reactor->active && reactor->again_head == NULL && may_spin(reactor)) {
            spin(reactor);
            continue;
        }
        reactor->active = false;
        wait_for_events(reactor, timeout_until_timer(reactor));
    }
    run_commands(reactor);
    return NULL;
}

te_status te_reactor_new(const char *name, int64_t spin_ns, struct te_reactor **reactor_p)
{
    struct te_reactor *reactor = g_new0(struct te_reactor, 1);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    sigset_t all, old;
    te_status status;
    int error;

    reactor->spin_ns = spin_ns;
    reactor->spin_credit = SPIN_CREDIT_MAX / 2;
    reactor->again_tail = &reactor->again_head;
    reactor->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (reactor->epoll < 0) {
        status = te_fail(TE_CONTEXT, "epoll_create1: %s", strerror(errno));
        goto free_reactor;
    }
    reactor->wake_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (reactor->wake_event < 0) {
        status = te_fail(TE_CONTEXT, "eventfd: %s", strerror(errno));
        goto close_epoll;
    }
    if (epoll_ctl(reactor->epoll, EPOLL_CTL_ADD, reactor->wake_event, &event) != 0) {
        status = te_fail(TE_CONTEXT, "epoll_ctl: %s", strerror(errno));
        goto close_wake_event;
    }
    reactor->timers = g_ptr_array_new();
    reactor->commands = g_array_new(FALSE, FALSE, sizeof(struct command));
    pthread_mutex_init(&reactor->commands_lock, NULL);

    /* Signals are the application's business. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&reactor->thread, NULL, run, reactor);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        status = te_fail(TE_CONTEXT, "cannot start an I/O thread: %s", strerror(error));
        goto free_containers;
    }
    pthread_setname_np(reactor->thread, name);
    *reactor_p = reactor;
    return TE_OK;

free_containers:
    pthread_mutex_destroy(&reactor->commands_lock);
    g_array_free(reactor->commands, TRUE);
    g_ptr_array_free(reactor->timers, TRUE);
close_wake_event:
    close(reactor->wake_event);
close_epoll:
    close(reactor->epoll);
free_reactor:
    g_free(reactor);
    return status;
}

void te_reactor_free(struct te_reactor *reactor)
{
    atomic_store_explicit(&reactor->stop, true, memory_order_release);
    wake(reactor);
    pthread_join(reactor->thread, NULL);
    pthread_mutex_destroy(&reactor->commands_lock);
    g_array_free(reactor->commands, TRUE);
    g_ptr_array_free(reactor->timers, TRUE);
    close(reactor->wake_event);
    close(reactor->epoll);
    g_free(reactor);
}
