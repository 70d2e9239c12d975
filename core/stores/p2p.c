/* No store at all: a segment's name is the address of its owner, who is asked. */
#include <glib.h>

#include "core/engine.h"
#include "core/peer.h"
#include "core/stores/store.h"

static void close_p2p(struct te_store *store)
{
    g_free(store);
}

static te_status publish(struct te_store *store)
{
    (void)store;
    return TE_OK;
}

static void withdraw(struct te_store *store)
{
    (void)store;
}

static te_status find_address(struct te_store *store, const char *name, char host[TE_HOST_MAX], uint16_t *port)
{
    return te_server_name_split(name, (uint16_t)store->engine->settings.handshake_port, host, port);
}

static te_status find_segment(struct te_store *store, const char *name, struct te_segment_descriptor **descriptor)
{
    char host[TE_HOST_MAX];
    uint16_t port;
    te_status status = find_address(store, name, host, &port);

    if (status != TE_OK)
        return status;
    return te_peer_fetch_descriptor(store->engine, host, port, descriptor);
}

static const struct te_store_ops p2p_ops = {
    .names_are_addresses = true,
    .close = close_p2p,
    .publish = publish,
    .withdraw = withdraw,
    .find_segment = find_segment,
    .find_address = find_address,
};

struct te_store *te_store_open_p2p(struct te_engine *engine)
{
    struct te_store *store = g_new0(struct te_store, 1);

    store->ops = &p2p_ops;
    store->engine = engine;
    return store;
}
