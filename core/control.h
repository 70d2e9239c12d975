/*
 * The port that an engine advertises. A connection is looked at until its dialect is recognised and is then that
 * dialect's. Any number are served side by side in one reactor; a silent or slow one holds up nobody and is closed
 * after a while; what all of them together may keep in memory is bounded.
 *
 * All functions but te_control_open() and te_control_close(): reactor's thread.
 */
#ifndef TE_CORE_CONTROL_H
#define TE_CORE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/net/reactor.h"
#include "core/status.h"

struct te_control;
struct te_engine;

/* Sets engine->control and serves on engine->reactors[0] at once. Owns listening_socket from the call on, also on
 * failure. */
te_status te_control_open(struct te_engine *engine, int listening_socket);
/* Any thread but the reactor's. Closes the port and all connections. */
void te_control_close(struct te_engine *engine);

/* A connection that is being served; embedded in what a dialect keeps of it. */
struct te_control_session {
    struct te_watch watch; /* descriptor and ready() set by the owner */
    struct te_timer timer; /* fire() set by the owner */
    struct te_control *control;
    size_t charge; /* bytes of memory accounted for */
    struct te_control_session *next, *previous;
    /* The port closes: calls te_control_session_end() and frees. */
    void (*abort)(struct te_control_session *session);
};

/* Starts to watch for events; on failure the descriptor stays the caller's. */
te_status te_control_session_begin(struct te_engine *engine, struct te_control_session *session, uint32_t events);
/* Takes it off the list, clears the timer, releases its charge, and closes the descriptor (unless keep_descriptor). */
void te_control_session_end(struct te_control_session *session, bool keep_descriptor);

/* Accounts for bytes of memory in all. False: all connections together would hold too much; close this one. */
bool te_control_session_charge(struct te_control_session *session, size_t bytes);

/* Sets the timer to delay_ns from now. */
void te_control_session_timeout(struct te_control_session *session, int64_t delay_ns);

/* Warns that the peer's connection is closed without an answer, and why; does not close it. */
void te_control_session_log_refusal(const struct te_control_session *session, const char *why);

#endif
