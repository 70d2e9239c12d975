/* The object of a connection message, request and reply alike (classic specification 3.3). */
#ifndef TE_WIRE_CLASSIC_HANDSHAKE_H
#define TE_WIRE_CLASSIC_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "core/status.h"

/* All memory comes from GLib. A text that is NULL is written as "", the optional ones not at all. */
struct te_handshake {
    char *payload;
    char *local_nic_path; /* of the sender */
    char *peer_nic_path;  /* of the addressee */
    char *local_gid;
    uint16_t local_lid;
    uint32_t *queue_pairs;
    size_t queue_pair_count;
    bool has_ready_ack; /* the sender can acknowledge readiness */
    bool ready_ack;
    char *reply_message; /* of a reply: not empty = rejected, and why */

    char *efa_address; /* optional */
    char *cxi_address; /* optional */
    bool has_barex_port;
    int32_t barex_port;
    uint32_t *jetties; /* written unless NULL */
    size_t jetty_count;
};

/* Frees what it points to and empties it. An empty one (all zero) is what an engine answers that has only TCP. */
void te_handshake_clear(struct te_handshake *handshake);

/* Appends the object with its line feed to an empty text. */
void te_handshake_write(GString *text, const struct te_handshake *handshake);

/* Reads into an uninitialised structure; optional texts that are absent are NULL, all others are not.
 * TE_MALFORMED_JSON: no JSON or a wrong type (a root of `null` is empty). TE_MEMORY. On failure nothing is left to
 * free. */
te_status te_handshake_read(const char *text, size_t length, struct te_handshake *handshake);

#endif
