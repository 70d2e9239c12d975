/* The serving half: the loop of one reactor, and the connections of peers on it. */
#ifndef TE_TRANSPORTS_TCP_TARGET_PRIVATE_H
#define TE_TRANSPORTS_TCP_TARGET_PRIVATE_H

#include "core/memory_registry.h"
#include "core/net/reactor.h"
#include "transports/tcp/tcp_private.h"

enum { HEADERS_AT_ONCE = 64 }; /* requests taken from the socket in one call while the peer only reads */

struct answer {
    uint64_t address, left; /* data that follows the status frame */
    uint8_t status[TE_TCP_STATUS_BYTES];
    uint8_t status_left;
    bool read; /* data follows */
};

struct service_loop {
    const struct tcp_options *options;
    struct te_reactor *reactor;
    struct te_registry_reader *reader;
    struct connection *connections;
    struct te_timer sweep;
    int pipe[2]; /* read end, write end; neither blocks. Empty between uses */
    bool closed;
};

struct connection {
    struct te_watch watch; /* first: the reactor hands it back */
    struct service_loop *loop;
    struct connection *next, **link;

    uint8_t input[HEADERS_AT_ONCE * TE_TCP_REQUEST_BYTES];
    unsigned input_end;

    uint64_t body_address, body_left; /* of the write being taken */
    bool body_version_2;
    bool writes; /* the last request was a write: take one header at a time, its body follows */

    struct answer *answers;
    unsigned answer_first, answer_count, answer_capacity; /* ring */
    unsigned reads_unsent;                                /* of the answers, those with data */

    int64_t progress_ns;
    bool hang_up;   /* the reactor told of the end: read until it is reached */
    bool ended;     /* the peer sends no more */
    bool draining;  /* refused: answers are sent out, input is thrown away */
    bool shut_down; /* draining, and everything is sent */
};

/* All of these in the reactor's thread. */

/* Owns descriptor if it succeeds; NULL: no memory. The caller adds the watch. */
struct connection *connection_new(struct service_loop *loop, int descriptor);
void connection_close(struct connection *connection);
/* How long it may go on without progress. */
int64_t connection_patience_seconds(const struct connection *connection);
/* The peer's address, for messages. */
const char *connection_peer_text(const struct connection *connection, char text[TE_ADDRESS_TEXT_MAX]);

#endif
