#include "core/control.h"

#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/engine.h"
#include "core/log.h"
#include "core/net/acceptor.h"
#include "core/net/address.h"

#define RECOGNITION_TIMEOUT_NS (5 * TE_NS_PER_SECOND)
#define MEMORY_MAX_BYTES       ((size_t)256 * 1024 * 1024)

struct te_control {
    struct te_engine *engine;
    struct te_reactor *reactor;
    struct te_acceptor *acceptor;
    /* Reactor's thread. */
    struct te_control_session *sessions;
    size_t charged;
    bool closing;
};

/* Sessions */

te_status te_control_session_begin(struct te_engine *engine, struct te_control_session *session, uint32_t events)
{
    struct te_control *control = engine->control;
    te_status status;

    if (control == NULL || control->closing) {
        te_fail(TE_SOCKET, "the control port is closing");
        return TE_SOCKET;
    }
    status = te_reactor_add(control->reactor, &session->watch, events);
    if (status != TE_OK)
        return status;
    session->control = control;
    session->charge = 0;
    session->timer.due_ns = 0;
    session->previous = NULL;
    session->next = control->sessions;
    if (session->next != NULL)
        session->next->previous = session;
    control->sessions = session;
    return TE_OK;
}

void te_control_session_end(struct te_control_session *session, bool keep_descriptor)
{
    struct te_control *control = session->control;

    te_reactor_timer_clear(control->reactor, &session->timer);
    te_reactor_remove(control->reactor, &session->watch);
    if (session->previous != NULL)
        session->previous->next = session->next;
    else
        control->sessions = session->next;
    if (session->next != NULL)
        session->next->previous = session->previous;
    control->charged -= session->charge;
    if (!keep_descriptor)
        te_socket_close(session->watch.descriptor, false);
}

bool te_control_session_charge(struct te_control_session *session, size_t bytes)
{
    struct te_control *control = session->control;

    if (bytes > session->charge && bytes - session->charge > MEMORY_MAX_BYTES - control->charged)
        return false;
    control->charged = control->charged - session->charge + bytes;
    session->charge = bytes;
    return true;
}

void te_control_session_timeout(struct te_control_session *session, int64_t delay_ns)
{
    te_reactor_timer_set(session->control->reactor, &session->timer, te_now_ns() + delay_ns);
}

void te_control_session_log_refusal(const struct te_control_session *session, const char *why)
{
    struct te_address address = {.length = sizeof(address.storage)};
    char peer[TE_ADDRESS_TEXT_MAX] = "a peer that has gone";

    if (getpeername(session->watch.descriptor, (struct sockaddr *)&address.storage, &address.length) == 0)
        te_address_text(&address, peer, sizeof(peer));
    te_log_limited(TE_LOG_WARNING, "control port: connection from %s closed: %s", peer, why);
}

/* Connections whose dialect is not known yet */

struct newcomer {
    struct te_control_session session;
    uint8_t bytes[TE_DIALECT_RECOGNISE_BYTES];
    size_t length;
};

static void close_newcomer(struct newcomer *newcomer)
{
    te_control_session_end(&newcomer->session, false);
    g_free(newcomer);
}

static void refuse_newcomer(struct newcomer *newcomer, const char *why)
{
    te_control_session_log_refusal(&newcomer->session, why);
    close_newcomer(newcomer);
}

static void abort_newcomer(struct te_control_session *session)
{
    close_newcomer((struct newcomer *)session);
}

static void newcomer_late(struct te_timer *timer)
{
    struct te_control_session *session = (void *)((char *)timer - offsetof(struct te_control_session, timer));

    refuse_newcomer((struct newcomer *)session, "nothing recognisable came in time");
}

/* Hands the connection to the first dialect that takes it; one that cannot tell yet keeps it from those after it.
 * False: more bytes are needed. */
static bool recognise(struct newcomer *newcomer)
{
    struct te_engine *engine = newcomer->session.control->engine;

    for (size_t i = 0; i < engine->dialect_count; i++) {
        const struct te_dialect_ops *dialect = engine->dialects[i];
        enum te_recognition recognition = dialect->recognise(newcomer->bytes, newcomer->length);

        if (recognition == TE_RECOGNISE_YES) {
            te_control_session_end(&newcomer->session, true);
            dialect->serve(engine, newcomer->session.watch.descriptor, newcomer->bytes, newcomer->length);
            g_free(newcomer);
            return true;
        }
        if (recognition == TE_RECOGNISE_NEED_MORE && newcomer->length < sizeof(newcomer->bytes))
            return false;
    }
    refuse_newcomer(newcomer, "its first bytes are of no known protocol");
    return true;
}

static void newcomer_ready(struct te_watch *watch, uint32_t events)
{
    struct newcomer *newcomer = (struct newcomer *)watch;

    (void)events;
    for (;;) {
        ssize_t received = recv(watch->descriptor, newcomer->bytes + newcomer->length,
                                sizeof(newcomer->bytes) - newcomer->length, MSG_DONTWAIT);

        if (received > 0) {
            newcomer->length += (size_t)received;
            if (recognise(newcomer))
                return;
        } else if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        } else if (received == 0 || errno != EINTR) {
            /* Gone without a word, as port scanners and health checks do, is no news. */
            if (newcomer->length > 0)
                refuse_newcomer(newcomer, "it ended within its first bytes");
            else
                close_newcomer(newcomer);
            return;
        }
    }
}

static void accepted(void *data, int descriptor)
{
    struct te_control *control = data;
    struct newcomer *newcomer = g_try_new0(struct newcomer, 1);

    if (newcomer == NULL) {
        close(descriptor);
        return;
    }
    newcomer->session.watch.descriptor = descriptor;
    newcomer->session.watch.ready = newcomer_ready;
    newcomer->session.timer.fire = newcomer_late;
    newcomer->session.abort = abort_newcomer;
    if (te_control_session_begin(control->engine, &newcomer->session, EPOLLIN) != TE_OK) {
        close(descriptor);
        g_free(newcomer);
        return;
    }
    te_control_session_timeout(&newcomer->session, RECOGNITION_TIMEOUT_NS);
}

/* The port */

struct opening {
    struct te_control *control;
    int socket;
    te_status status;
};

/* In the reactor's thread, so that no connection is accepted before the engine knows its control port. */
static void start_accepting(void *data)
{
    struct opening *opening = data;
    struct te_control *control = opening->control;

    control->engine->control = control;
    opening->status = te_acceptor_new(control->reactor, opening->socket, accepted, control, &control->acceptor);
}

te_status te_control_open(struct te_engine *engine, int listening_socket)
{
    struct te_control *control = g_new0(struct te_control, 1);
    struct opening opening = {.control = control, .socket = listening_socket};

    control->engine = engine;
    control->reactor = engine->reactors[0];
    te_reactor_run_wait(control->reactor, start_accepting, &opening);
    if (opening.status == TE_OK)
        return TE_OK;
    engine->control = NULL;
    g_free(control);
    return te_fail(opening.status, "cannot watch the control port");
}

static void abort_all(void *data)
{
    struct te_control *control = data;

    control->closing = true;
    while (control->sessions != NULL)
        control->sessions->abort(control->sessions);
}

void te_control_close(struct te_engine *engine)
{
    struct te_control *control = engine->control;

    te_acceptor_free(control->acceptor);
    te_reactor_run_wait(control->reactor, abort_all, control);
    engine->control = NULL;
    g_free(control);
}
