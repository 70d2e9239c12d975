#include "core/peer.h"

#include <glib.h>
#include <pthread.h>

#include "core/engine.h"

struct te_peer_memory {
    pthread_mutex_t lock;
    GHashTable *dialects; /* "host:port" to const struct te_dialect_ops */
};

struct te_peer_memory *te_peer_memory_new(void)
{
    struct te_peer_memory *peers = g_new0(struct te_peer_memory, 1);

    pthread_mutex_init(&peers->lock, NULL);
    peers->dialects = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    return peers;
}

void te_peer_memory_free(struct te_peer_memory *peers)
{
    g_hash_table_unref(peers->dialects);
    pthread_mutex_destroy(&peers->lock);
    g_free(peers);
}

static const struct te_dialect_ops *recall(struct te_peer_memory *peers, const char *key)
{
    const struct te_dialect_ops *dialect;

    pthread_mutex_lock(&peers->lock);
    dialect = g_hash_table_lookup(peers->dialects, key);
    pthread_mutex_unlock(&peers->lock);
    return dialect;
}

static void remember(struct te_peer_memory *peers, const char *key, const struct te_dialect_ops *dialect)
{
    pthread_mutex_lock(&peers->lock);
    if (dialect != NULL)
        g_hash_table_replace(peers->dialects, g_strdup(key), (void *)dialect);
    else
        g_hash_table_remove(peers->dialects, key);
    pthread_mutex_unlock(&peers->lock);
}

/* One call, for the loop below to make in one dialect after the other. */
struct call {
    struct te_engine *engine;
    const char *host;
    uint16_t port;
    te_status (*make)(struct call *call, const struct te_dialect_ops *dialect);
    struct te_segment_descriptor **descriptor;
    const char *name, *message;
    size_t name_length, message_length;
    bool *sent; /* NULL: it may be made in one dialect after the other */
};

/* The dialect that is known first, then the others, until one is understood. */
static te_status make_call(struct call *call)
{
    struct te_engine *engine = call->engine;
    char key[TE_ADDRESS_TEXT_MAX];
    const struct te_dialect_ops *known;
    te_status status = TE_SOCKET;

    te_server_name_join(call->host, call->port, key, sizeof(key));
    known = recall(engine->peers, key);
    for (size_t i = 0; i <= engine->dialect_count; i++) {
        const struct te_dialect_ops *dialect = i == 0 ? known : engine->dialects[i - 1];

        if (dialect == NULL || (i > 0 && dialect == known))
            continue;
        status = call->make(call, dialect);
        if (status == TE_OK) {
            remember(engine->peers, key, dialect);
            return TE_OK;
        }
        if (status == TE_DNS || call->sent != NULL)
            break;
    }
    remember(engine->peers, key, NULL);
    return status;
}

static te_status make_fetch(struct call *call, const struct te_dialect_ops *dialect)
{
    return dialect->fetch_descriptor(call->engine, call->host, call->port, call->descriptor);
}

static te_status make_notify(struct call *call, const struct te_dialect_ops *dialect)
{
    return dialect->notify(call->engine, call->host, call->port, call->name, call->name_length, call->message,
                           call->message_length, call->sent);
}

static te_status make_probe(struct call *call, const struct te_dialect_ops *dialect)
{
    return dialect->probe(call->engine, call->host, call->port);
}

te_status te_peer_fetch_descriptor(struct te_engine *engine, const char *host, uint16_t port,
                                   struct te_segment_descriptor **descriptor)
{
    struct call call = {.engine = engine, .host = host, .port = port, .make = make_fetch, .descriptor = descriptor};

    return make_call(&call);
}

te_status te_peer_probe(struct te_engine *engine, const char *host, uint16_t port)
{
    struct call call = {.engine = engine, .host = host, .port = port, .make = make_probe};

    return make_call(&call);
}

static bool is_known(struct te_engine *engine, const char *host, uint16_t port)
{
    char key[TE_ADDRESS_TEXT_MAX];

    te_server_name_join(host, port, key, sizeof(key));
    return recall(engine->peers, key) != NULL;
}

te_status te_peer_notify(struct te_engine *engine, const char *host, uint16_t port, const char *name,
                         size_t name_length, const char *message, size_t message_length, bool *sent)
{
    struct call call = {
        .engine = engine,
        .host = host,
        .port = port,
        .make = make_notify,
        .name = name,
        .name_length = name_length,
        .message = message,
        .message_length = message_length,
        .sent = sent,
    };

    *sent = false;
    /* A peer may take a message in without understanding it, and what may have been taken must not be sent again. */
    if (engine->dialect_count > 1 && !is_known(engine, host, port)) {
        te_status status = te_peer_probe(engine, host, port);

        if (status != TE_OK)
            return status;
    }
    return make_call(&call);
}
