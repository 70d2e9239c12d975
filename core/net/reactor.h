/*
 * A thread that waits for descriptors and timers. Transports and control services of both runtimes run on it.
 *
 * Handlers are called in the reactor's thread only, edge triggered: they read and write until EAGAIN or until their
 * budget is spent, in which case they call te_reactor_again(). After activity the thread polls for a while before it
 * sleeps: first of all the watch that was hot last, by calling it directly, which saves the system call that would tell
 * of it. Whether polling pays is learnt from whether it did before.
 */
#ifndef TE_CORE_NET_REACTOR_H
#define TE_CORE_NET_REACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

struct te_reactor;

/* Embed it in the object that owns the descriptor. */
struct te_watch {
    int descriptor;
    /* events: EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLERR, EPOLLHUP; 0 when called because of te_reactor_again() or while
     * polling. */
    void (*ready)(struct te_watch *watch, uint32_t events);
    struct te_watch *next_again; /* the reactor's */
    bool again;
};

/* spin_ns: how long it polls after activity before it sleeps. name: for the thread, at most 15 characters. */
te_status te_reactor_new(const char *name, int64_t spin_ns, struct te_reactor **reactor);
/* Stops the thread and frees. Watches must have been removed, or their owners be gone for good. */
void te_reactor_free(struct te_reactor *reactor);

/* Any thread. events as for epoll, without EPOLLET, which is always set. */
te_status te_reactor_add(struct te_reactor *reactor, struct te_watch *watch, uint32_t events);
te_status te_reactor_change(struct te_reactor *reactor, struct te_watch *watch, uint32_t events);
/* In the reactor's thread: no call of ready follows. From another thread use te_reactor_run() to get there. */
void te_reactor_remove(struct te_reactor *reactor, struct te_watch *watch);

/* Any thread: the descriptor is about to be closed. Closing alone does not do while a forked process holds it, too. A
 * call of ready may still be under way or follow. */
void te_reactor_forget(struct te_reactor *reactor, struct te_watch *watch);

/* Reactor's thread: calls ready(watch, 0) in the next round, after others had their turn. */
void te_reactor_again(struct te_reactor *reactor, struct te_watch *watch);
/* Reactor's thread: the watch did something; poll for more, and ask this watch first. NULL: ask none first. */
void te_reactor_hot(struct te_reactor *reactor, struct te_watch *watch);

/* Runs function(data) in the reactor's thread, soon; te_reactor_run_wait() returns when it has run (directly if called
 * there). What is still queued when the reactor is freed runs before te_reactor_free() returns. */
void te_reactor_run(struct te_reactor *reactor, void (*function)(void *), void *data);
void te_reactor_run_wait(struct te_reactor *reactor, void (*function)(void *), void *data);
bool te_reactor_is_current(const struct te_reactor *reactor);

/* A timer that fires once, in the reactor's thread, to the millisecond. All of these: reactor's thread only. */
struct te_timer {
    int64_t due_ns; /* monotonic; 0 = not armed */
    void (*fire)(struct te_timer *timer);
    size_t position; /* the reactor's */
};
void te_reactor_timer_set(struct te_reactor *reactor, struct te_timer *timer, int64_t due_ns);
void te_reactor_timer_clear(struct te_reactor *reactor, struct te_timer *timer);

#endif
