/*
 * Where segments are looked up and published. One const table per kind, chosen by the connection string.
 *
 * All functions block, bounded by the settings, and may run in any thread but a reactor's.
 */
#ifndef TE_CORE_STORES_STORE_H
#define TE_CORE_STORES_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/net/address.h"
#include "core/segment_descriptor.h"
#include "core/status.h"

struct te_engine;
struct te_store;

struct te_store_ops {
    /* A segment's name is the address of its control port: nothing is published, the peer itself is asked. */
    bool names_are_addresses;

    void (*close)(struct te_store *store);
    /* Makes the engine findable: its present descriptor and its control address. Called after every change. Fails
     * whole: what was published before stays. */
    te_status (*publish)(struct te_store *store);
    void (*withdraw)(struct te_store *store);
    /* The descriptor of a segment, one reference for the caller. */
    te_status (*find_segment)(struct te_store *store, const char *name, struct te_segment_descriptor **descriptor);
    /* Host and port at which the segment's owner answers control calls. */
    te_status (*find_address)(struct te_store *store, const char *name, char host[TE_HOST_MAX], uint16_t *port);
};

/* Embedded at the start of each kind's own object. */
struct te_store {
    const struct te_store_ops *ops;
    struct te_engine *engine;
};

/* TE_INVALID_ARGUMENT, with a reason, for a connection string of no known kind. Contacts nobody. */
te_status te_store_open(struct te_engine *engine, const char *connection, struct te_store **store);
void te_store_close(struct te_store *store);

/* Peer to peer: connection string "P2PHANDSHAKE". */
struct te_store *te_store_open_p2p(struct te_engine *engine);

#endif
