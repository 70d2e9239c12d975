/* Registration. TCP needs nothing of its own: a region in the registry is reachable. */
#include "classic/internal.h"

#include "core/log.h"
#include "core/stores/store.h"

static const char *location_or_any(const char *location)
{
    return location != NULL ? location : "*";
}

/* Peers learn of the change; in peer-to-peer mode when they ask. */
static te_status published(struct te_classic *classic)
{
    struct te_store *store = classic->engine->store;

    return store->ops->publish(store);
}

static te_status add_regions(struct te_classic *classic, const struct te_region *regions, size_t count)
{
    te_status status = te_registry_add(classic->engine->registry, regions, count);

    if (status == TE_OK)
        return published(classic);
    te_log_limited(TE_LOG_WARNING,
                   "registration of %zu region(s), the first of %" G_GUINT64_FORMAT " bytes at 0x%" G_GINT64_MODIFIER
                   "x, is refused: %s",
                   count, regions[0].length, regions[0].address, te_status_message());
    return status;
}

int te_classic_register_local_memory(struct te_classic *classic, void *address, size_t length, const char *location,
                                     int remote_accessible)
{
    struct te_region region = {
        .address = (uint64_t)(uintptr_t)address,
        .length = length,
        .permission = remote_accessible ? TE_GLOBAL_READ_WRITE : TE_LOCAL_READ_WRITE,
        .location = location_or_any(location),
    };

    return add_regions(classic, &region, 1);
}

int te_classic_unregister_local_memory(struct te_classic *classic, void *address)
{
    uint64_t start = (uint64_t)(uintptr_t)address;
    te_status status = te_registry_remove(classic->engine->registry, &start, 1, NULL);

    if (status == TE_OK)
        return published(classic);
    te_log_limited(TE_LOG_WARNING, "unregistration of %p is refused: %s", address, te_status_message());
    return status;
}

int te_classic_register_local_memory_batch(struct te_classic *classic, buffer_entry_t *buffers, size_t count,
                                           const char *location)
{
    struct te_region *regions;
    te_status status;

    if (count == 0)
        return TE_OK;
    if (buffers == NULL)
        return te_fail(TE_INVALID_ARGUMENT, "the list of buffers is a null pointer");
    regions = g_try_new0(struct te_region, count);
    if (regions == NULL)
        return te_fail(TE_MEMORY, "no memory to register %zu regions", count);
    for (size_t i = 0; i < count; i++) {
        regions[i].address = (uint64_t)(uintptr_t)buffers[i].addr;
        regions[i].length = buffers[i].length;
        regions[i].permission = TE_GLOBAL_READ_WRITE;
        regions[i].location = location_or_any(location);
    }
    status = add_regions(classic, regions, count);
    g_free(regions);
    return status;
}

/* One after the other, so that those that are known go even if others are not. */
static te_status remove_each(struct te_classic *classic, const uint64_t *starts, size_t count)
{
    te_status first_failure = TE_OK;

    for (size_t i = 0; i < count; i++) {
        te_status status = te_registry_remove(classic->engine->registry, &starts[i], 1, NULL);

        if (status != TE_OK)
            te_log_limited(TE_LOG_WARNING, "unregistration of 0x%" G_GINT64_MODIFIER "x is refused: %s", starts[i],
                           te_status_message());
        if (first_failure == TE_OK)
            first_failure = status;
    }
    return first_failure;
}

int te_classic_unregister_local_memory_batch(struct te_classic *classic, void **addresses, size_t count)
{
    uint64_t *starts;
    te_status status, publish_status;

    if (count == 0)
        return TE_OK;
    if (addresses == NULL)
        return te_fail(TE_INVALID_ARGUMENT, "the list of addresses is a null pointer");
    starts = g_try_new(uint64_t, count);
    if (starts == NULL)
        return te_fail(TE_MEMORY, "no memory to unregister %zu regions", count);
    for (size_t i = 0; i < count; i++)
        starts[i] = (uint64_t)(uintptr_t)addresses[i];
    status = te_registry_remove(classic->engine->registry, starts, count, NULL);
    if (status == TE_ADDRESS_NOT_REGISTERED)
        status = remove_each(classic, starts, count);
    g_free(starts);
    publish_status = published(classic);
    return status != TE_OK ? status : publish_status;
}
