#include "core/net/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/net/address.h"

enum { ACCEPTS_PER_ROUND = 64 };
#define RETRY_NS (50 * TE_NS_PER_MS) /* when not even the reserve could be had */

struct te_acceptor {
    struct te_watch watch;
    struct te_reactor *reactor;
    struct te_timer retry;
    int reserve; /* a descriptor to give up when there are no others, so that a newcomer can be turned away */
    void (*accepted)(void *data, int descriptor);
    void *data;
};

/* Out of descriptors: without this the connection would stay in the queue. False: there was none, which the system
 * cannot tell without a descriptor at hand. */
static bool turn_away(struct te_acceptor *acceptor)
{
    int descriptor;
    bool taken;

    if (acceptor->reserve < 0)
        acceptor->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (acceptor->reserve < 0) {
        te_reactor_timer_set(acceptor->reactor, &acceptor->retry, te_now_ns() + RETRY_NS);
        return false;
    }
    close(acceptor->reserve);

    descriptor = accept4(acceptor->watch.descriptor, NULL, NULL, SOCK_CLOEXEC);
    taken = descriptor >= 0;
    if (taken) {
        te_log_limited(TE_LOG_ERROR,
                       "out of file descriptors: a peer's connection is refused; raise the limit (ulimit -n)");
        close(descriptor);
    }
    acceptor->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return taken;
}

static void accept_ready(struct te_watch *watch, uint32_t events)
{
    struct te_acceptor *acceptor = (struct te_acceptor *)watch;
    int on = 1;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        int descriptor = accept4(watch->descriptor, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (descriptor >= 0) {
            setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            acceptor->accepted(acceptor->data, descriptor);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) && !turn_away(acceptor))
            return;
        /* Anything else concerns the one connection that was taken off the queue. */
    }
    te_reactor_again(acceptor->reactor, watch);
}

static void try_again(struct te_timer *timer)
{
    struct te_acceptor *acceptor = (void *)((char *)timer - offsetof(struct te_acceptor, retry));

    accept_ready(&acceptor->watch, 0);
}

static void remove_watch(void *data)
{
    struct te_acceptor *acceptor = data;

    te_reactor_timer_clear(acceptor->reactor, &acceptor->retry);
    te_reactor_remove(acceptor->reactor, &acceptor->watch);
}

te_status te_acceptor_new(struct te_reactor *reactor, int listening_socket, void (*accepted)(void *, int), void *data,
                          struct te_acceptor **acceptor_p)
{
    struct te_acceptor *acceptor = g_new0(struct te_acceptor, 1);
    te_status status;

    acceptor->watch.descriptor = listening_socket;
    acceptor->watch.ready = accept_ready;
    acceptor->retry.fire = try_again;
    acceptor->reactor = reactor;
    acceptor->accepted = accepted;
    acceptor->data = data;
    acceptor->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *acceptor_p = acceptor;
    status = te_reactor_add(reactor, &acceptor->watch, EPOLLIN);
    if (status != TE_OK) {
        *acceptor_p = NULL;
        if (acceptor->reserve >= 0)
            close(acceptor->reserve);
        close(listening_socket);
        g_free(acceptor);
    }
    return status;
}

void te_acceptor_free(struct te_acceptor *acceptor)
{
    if (acceptor == NULL)
        return;
    te_reactor_run_wait(acceptor->reactor, remove_watch, acceptor);
    te_socket_close(acceptor->watch.descriptor, false);
    if (acceptor->reserve >= 0)
        close(acceptor->reserve);
    g_free(acceptor);
}
