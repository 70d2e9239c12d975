/* The TCP transport: the classic data protocol, versions 1 and 2, as initiator and as target (classic specification 4).
 */
#ifndef TE_TRANSPORTS_TCP_TCP_H
#define TE_TRANSPORTS_TCP_TCP_H

#include "transports/transport.h"

extern const struct te_transport_ops te_tcp_transport_ops;

#endif
