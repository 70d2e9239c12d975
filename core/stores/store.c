#include "core/stores/store.h"

#include <string.h>

te_status te_store_open(struct te_engine *engine, const char *connection, struct te_store **store)
{
    const char *scheme_end = strstr(connection, "://");

    if (strcmp(connection, "P2PHANDSHAKE") == 0) {
        *store = te_store_open_p2p(engine);
        return TE_OK;
    }
    if (connection[0] == '\0')
        return te_fail(TE_INVALID_ARGUMENT, "the connection string is empty; use P2PHANDSHAKE");
    if (scheme_end == NULL)
        return te_fail(TE_INVALID_ARGUMENT,
                       "connection string \"%s\" names an etcd server: metadata servers (etcd, redis, http) are not "
                       "supported yet; use P2PHANDSHAKE (in capitals)",
                       connection);
    if (strncmp(connection, "etcd://", 7) == 0 || strncmp(connection, "redis://", 8) == 0 ||
        strncmp(connection, "http://", 7) == 0 || strncmp(connection, "https://", 8) == 0)
        return te_fail(TE_INVALID_ARGUMENT,
                       "metadata servers (etcd, redis, http) are not supported yet, %.*s:// neither; use P2PHANDSHAKE",
                       (int)(scheme_end - connection), connection);
    return te_fail(TE_INVALID_ARGUMENT, "unknown scheme %.*s:// in the connection string; use P2PHANDSHAKE",
                   (int)(scheme_end - connection), connection);
}

void te_store_close(struct te_store *store)
{
    if (store != NULL)
        store->ops->close(store);
}
