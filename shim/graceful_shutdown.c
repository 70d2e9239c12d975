#include "shim/graceful_shutdown.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#include "core/log.h"
#include "core/status.h"
#include "shim/engine_handle.h"

enum { STOP_WATCHING = 0 };

static const int handled_signals[] = {SIGTERM, SIGINT};
enum { HANDLED_SIGNALS = sizeof(handled_signals) / sizeof(handled_signals[0]) };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool enabled;            /* under lock */
static bool exit_registered;    /* under lock; survives a fork, as the registration does */
static pthread_t watcher;       /* valid while enabled */
static int wake_descriptors[2]; /* a pipe of signal numbers to the watcher; valid while enabled */
static struct sigaction replaced[HANDLED_SIGNALS];

/* What the signal handler looks at: the descriptor to write to, or -1 when no watcher is there (in a forked child). */
static atomic_int wake_descriptor = -1;
static atomic_int signals_seen;

/* Runs in any thread at any point: only async-signal-safe calls. A second signal, or one without a watcher, ends the
 * process at once. */
static void handle_signal(int number)
{
    unsigned char byte = (unsigned char)number;
    int saved_errno = errno;
    int descriptor = atomic_load(&wake_descriptor);

    if (descriptor < 0 || atomic_fetch_add(&signals_seen, 1) > 0 || write(descriptor, &byte, 1) != 1)
        _exit(128 + number);
    errno = saved_errno;
}

static void *watch(void *unused)
{
    unsigned char number;
    ssize_t got;

    (void)unused;
    do
        got = read(wake_descriptors[0], &number, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1 || number == STOP_WATCHING)
        return NULL;
    te_engine_handle_destroy_marked();
    _exit(128 + number);
}

/* At a normal exit, and when the library is unloaded. */
static void end_watching(void)
{
    unsigned char stop = STOP_WATCHING;

    pthread_mutex_lock(&lock);
    if (enabled) {
        for (size_t i = 0; i < HANDLED_SIGNALS; i++) {
            struct sigaction present;

            if (sigaction(handled_signals[i], NULL, &present) == 0 && present.sa_handler == handle_signal)
                sigaction(handled_signals[i], &replaced[i], NULL);
        }
        if (write(wake_descriptors[1], &stop, 1) == 1)
            pthread_join(watcher, NULL);
        atomic_store(&wake_descriptor, -1);
        close(wake_descriptors[0]);
        close(wake_descriptors[1]);
        enabled = false;
    }
    pthread_mutex_unlock(&lock);
    te_engine_handle_destroy_marked();
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* The watcher is not there; the handlers are, and end the child at once. */
static void after_fork_in_child(void)
{
    atomic_store(&wake_descriptor, -1);
    atomic_store(&signals_seen, 0);
    if (enabled) {
        close(wake_descriptors[0]);
        close(wake_descriptors[1]);
        enabled = false;
    }
    pthread_mutex_unlock(&lock);
}

/* Starts the watcher with every signal blocked, so that handlers run in the program's own threads. */
static int start_watcher(void)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&watcher, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static te_status start_watching(void)
{
    struct sigaction action = {.sa_handler = handle_signal, .sa_flags = SA_RESTART};
    unsigned char stop = STOP_WATCHING;
    int error;

    if (pipe2(wake_descriptors, O_CLOEXEC) != 0)
        return te_fail(TE_CONTEXT, "graceful shutdown: no pipe: %s", g_strerror(errno));
    error = start_watcher();
    if (error != 0) {
        te_fail(TE_CONTEXT, "graceful shutdown: no thread: %s", g_strerror(error));
        goto close_pipe;
    }
    if (!exit_registered) {
        exit_registered =
            atexit(end_watching) == 0 && pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
        if (!exit_registered) {
            te_fail(TE_MEMORY, "graceful shutdown: no room for an exit handler");
            goto stop_watcher;
        }
    }
    atomic_store(&wake_descriptor, wake_descriptors[1]);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < HANDLED_SIGNALS; i++)
        sigaction(handled_signals[i], &action, &replaced[i]);
    return TE_OK;

stop_watcher:
    if (write(wake_descriptors[1], &stop, 1) == 1)
        pthread_join(watcher, NULL);
close_pipe:
    close(wake_descriptors[0]);
    close(wake_descriptors[1]);
    return TE_CONTEXT;
}

te_status te_graceful_shutdown_enable(transfer_engine_t engine)
{
    te_status status = TE_OK;

    if (!te_engine_handle_mark(engine))
        return TE_INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    if (!enabled) {
        status = start_watching();
        enabled = status == TE_OK;
    }
    pthread_mutex_unlock(&lock);
    if (status != TE_OK)
        te_log(TE_LOG_ERROR, "%s", te_status_message());
    return status;
}
