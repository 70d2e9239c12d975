/*
 * Makes a chosen call of the library fail, once: the nth call of a function that libtransfer_engine.so makes itself.
 * The functions are replaced by definitions in the test program, which the loader finds first. Calls from elsewhere
 * (the test, GLib, the C library) go through untouched. Memory counts where the library means to survive its lack:
 * g_try_*, malloc and its kin; what GLib allocates by itself ends the process by GLib's own rule and is left alone.
 */
#ifndef TESTS_FAULT_FAULT_H
#define TESTS_FAULT_FAULT_H

#include <stdbool.h>

enum fault_kind {
    FAULT_SOCKET,
    FAULT_BIND,
    FAULT_LISTEN,
    FAULT_CONNECT,
    FAULT_ACCEPT,
    FAULT_GETSOCKNAME,
    FAULT_SETSOCKOPT,
    FAULT_EPOLL_CREATE,
    FAULT_EPOLL_CTL,
    FAULT_EVENTFD,
    FAULT_PTHREAD_CREATE,
    FAULT_GETADDRINFO,
    FAULT_OPEN,
    FAULT_SEND,
    FAULT_RECEIVE,
    FAULT_MEMORY,
    FAULT_KINDS
};

const char *fault_name(enum fault_kind kind);
/* The nth call (from 1) of that kind from now on fails. nth 0: none. Counts anew. */
void fault_arm(enum fault_kind kind, unsigned nth);
/* Whether it has happened. */
bool fault_fired(void);
/* Calls of the armed kind since fault_arm(). */
unsigned fault_calls(void);

#endif
