/* The serving half: accepts peers, hands them to the reactors, closes those that stopped in the middle of something. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "transports/tcp/target_private.h"

enum { LISTEN_BACKLOG = 1024, SWEEP_SECONDS = 5 };

struct tcp_target {
    struct te_acceptor *acceptor;
    struct service_loop *loops;
    size_t loop_count;
    unsigned next_loop;
    uint16_t port;
};

/* Closes connections that stopped in the middle of something. */
static void sweep(struct te_timer *timer)
{
    struct service_loop *loop = (struct service_loop *)((char *)timer - offsetof(struct service_loop, sweep));
    int64_t now_ns = te_now_ns();

    for (struct connection *connection = loop->connections, *next; connection != NULL; connection = next) {
        char peer[TE_ADDRESS_TEXT_MAX];

        next = connection->next;
        if (now_ns - connection->progress_ns <= connection_patience_seconds(connection) * TE_NS_PER_SECOND)
            continue;
        if (!connection->draining)
            te_log_limited(TE_LOG_WARNING, "%s stalled in the middle of a request: connection closed",
                           connection_peer_text(connection, peer));
        connection_close(connection);
    }
    if (loop->connections != NULL)
        te_reactor_timer_set(loop->reactor, timer, now_ns + SWEEP_SECONDS * TE_NS_PER_SECOND);
}

/* Life */

struct arrival {
    struct service_loop *loop;
    int descriptor;
};

static void serve_arrival(void *data)
{
    struct arrival *arrival = data;
    struct service_loop *loop = arrival->loop;
    struct connection *connection = loop->closed ? NULL : connection_new(loop, arrival->descriptor);

    if (connection == NULL) {
        close(arrival->descriptor);
    } else {
        socket_prepare(loop->options, connection->watch.descriptor);
        if (te_reactor_add(loop->reactor, &connection->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) != TE_OK) {
            te_log_limited(TE_LOG_ERROR, "cannot serve a peer: %s", te_status_message());
            connection_close(connection);
        } else if (loop->sweep.due_ns == 0) {
            te_reactor_timer_set(loop->reactor, &loop->sweep, te_now_ns() + SWEEP_SECONDS * TE_NS_PER_SECOND);
        }
    }
    g_free(arrival);
}

static void accepted(void *data, int descriptor)
{
    struct tcp_target *target = data;
    struct service_loop *loop = &target->loops[target->next_loop++ % target->loop_count];
    struct arrival *arrival = g_new(struct arrival, 1);

    arrival->loop = loop;
    arrival->descriptor = descriptor;
    if (te_reactor_is_current(loop->reactor))
        serve_arrival(arrival);
    else
        te_reactor_run(loop->reactor, serve_arrival, arrival);
}

static void loop_close(void *data)
{
    struct service_loop *loop = data;

    loop->closed = true;
    while (loop->connections != NULL)
        connection_close(loop->connections);
    te_reactor_timer_clear(loop->reactor, &loop->sweep);
}

static void loops_free(struct tcp_target *target)
{
    for (size_t i = 0; i < target->loop_count; i++) {
        te_reactor_run_wait(target->loops[i].reactor, loop_close, &target->loops[i]);
        if (target->loops[i].reader != NULL)
            te_registry_reader_free(target->loops[i].reader);
        for (size_t end = 0; end < 2; end++)
            if (target->loops[i].pipe[end] >= 0)
                close(target->loops[i].pipe[end]);
    }
    g_free(target->loops);
}

te_status tcp_target_new(struct te_transport *transport, struct tcp_target **target_p)
{
    struct te_engine *engine = transport->engine;
    struct tcp_target *target = g_new0(struct tcp_target, 1);
    int listening_socket;
    te_status status;

    target->loop_count = engine->reactor_count;
    target->loops = g_new0(struct service_loop, target->loop_count);
    for (size_t i = 0; i < target->loop_count; i++) {
        target->loops[i].options = &transport->options;
        target->loops[i].reactor = engine->reactors[i];
        target->loops[i].sweep.fire = sweep;
        target->loops[i].pipe[0] = target->loops[i].pipe[1] = -1;
    }
    for (size_t i = 0; i < target->loop_count; i++) {
        target->loops[i].reader = te_registry_reader_new(engine->registry);
        if (target->loops[i].reader == NULL) {
            status = te_fail(TE_MEMORY, "no memory to serve peers");
            goto free_loops;
        }
        if (pipe2(target->loops[i].pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
            status = te_fail(TE_SOCKET, "no pipe to serve peers with: %s", g_strerror(errno));
            goto free_loops;
        }
    }
    status = te_listen_any_port((uint16_t)engine->settings.minimum_port, (uint16_t)engine->settings.maximum_port,
                                LISTEN_BACKLOG, &listening_socket, &target->port);
    if (status != TE_OK)
        goto free_loops;
    status = te_acceptor_new(engine->reactors[0], listening_socket, accepted, target, &target->acceptor);
    if (status != TE_OK)
        goto free_loops;
    *target_p = target;
    return TE_OK;

free_loops:
    loops_free(target);
    g_free(target);
    return status;
}

void tcp_target_free(struct tcp_target *target)
{
    te_acceptor_free(target->acceptor);
    loops_free(target);
    g_free(target);
}

uint16_t tcp_target_port(const struct tcp_target *target)
{
    return target->port;
}
