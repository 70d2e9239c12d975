/* Accepts connections on a listening socket. Survives running out of descriptors: it then closes the newcomer and goes
 * on. */
#ifndef TE_CORE_NET_ACCEPTOR_H
#define TE_CORE_NET_ACCEPTOR_H

#include "core/net/reactor.h"

struct te_acceptor;

/* accepted() runs in the reactor's thread with a non-blocking, close-on-exec, no-delay socket that it then owns.
 * Owns listening_socket from the call on, also on failure. */
te_status te_acceptor_new(struct te_reactor *reactor, int listening_socket,
                          void (*accepted)(void *data, int descriptor), void *data, struct te_acceptor **acceptor);
/* Any thread but one that the reactor waits for. No accepted() follows. NULL is fine. */
void te_acceptor_free(struct te_acceptor *acceptor);

#endif
