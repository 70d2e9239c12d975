/* Opening segments, and where the slices of a segment go. */
#include "classic/internal.h"

#include <string.h>

#include "core/clock.h"
#include "core/local_segment.h"
#include "core/log.h"
#include "core/peer.h"
#include "core/stores/store.h"

/* Everything listens on all addresses. */
#define LOCAL_DATA_HOST "127.0.0.1"

static const struct installed *find_installed(struct te_classic *classic, const char *protocol)
{
    size_t count = atomic_load_explicit(&classic->installed_count, memory_order_acquire);

    for (size_t i = 0; i < count; i++)
        if (strcmp(classic->installed[i].ops->name, protocol) == 0)
            return &classic->installed[i];
    return NULL;
}

void *classic_attach(void *data, const struct te_segment_view *view)
{
    const struct installed *installed = find_installed(data, view->descriptor->protocol);
    struct route *route;

    if (installed == NULL)
        return NULL;
    route = g_new0(struct route, 1);
    route->installed = installed;
    if (view->data_host[0] != '\0')
        route->endpoint = installed->ops->endpoint_open(installed->transport, view->descriptor, view->data_host);
    return route;
}

void classic_detach(void *data, void *attachment)
{
    struct route *route = attachment;

    (void)data;
    if (route->endpoint != NULL)
        route->installed->ops->endpoint_close(route->endpoint);
    g_free(route);
}

void classic_open_local(struct te_classic *classic, struct te_segment_descriptor *descriptor)
{
    te_segment_table_set_local(classic->engine->segments, descriptor, LOCAL_DATA_HOST);
}

static segment_id_t open_segment(struct te_classic *classic, const char *name, bool fresh)
{
    int32_t id;
    te_status status = TE_INVALID_ARGUMENT;

    if (name == NULL)
        te_fail(status, "the segment name is a null pointer");
    else if (!te_local_segment_exists(classic->engine))
        te_fail(status, "no transport is installed");
    else
        status = te_segment_open(classic->engine->segments, name, fresh, &id);
    if (status == TE_OK)
        return id;
    te_log_limited(TE_LOG_WARNING, "segment %s cannot be opened: %s", name != NULL ? name : "(null)",
                   te_status_message());
    return TE_INVALID_ARGUMENT;
}

segment_id_t te_classic_open_segment(struct te_classic *classic, const char *name)
{
    return open_segment(classic, name, false);
}

segment_id_t te_classic_open_segment_no_cache(struct te_classic *classic, const char *name)
{
    /* The empty name means all segments, and then fails. */
    if (name != NULL && name[0] == '\0')
        te_classic_sync_segment_cache(classic);
    return open_segment(classic, name, true);
}

int te_classic_warmup_efa_segment(struct te_classic *classic, const char *name)
{
    (void)classic;
    (void)name;
    return TE_OK;
}

int te_classic_close_segment(struct te_classic *classic, segment_id_t segment)
{
    te_segment_close(classic->engine->segments, segment);
    return TE_OK;
}

int te_classic_remove_local_segment(struct te_classic *classic, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return te_fail(TE_INVALID_ARGUMENT, "no segment name");
    te_segment_forget(classic->engine->segments, name);
    return TE_OK;
}

int64_t classic_call_ns(const struct te_classic *classic)
{
    const struct te_settings *settings = &classic->engine->settings;

    return (int64_t)settings->handshake_connect_timeout_seconds * TE_NS_PER_SECOND +
           (int64_t)settings->handshake_reply_timeout_ms * TE_NS_PER_MS;
}

int te_classic_sync_segment_cache(struct te_classic *classic)
{
    te_segment_refresh_all(classic->engine->segments, classic_call_ns(classic));
    return TE_OK;
}

int te_classic_probe(struct te_classic *classic, const char *name)
{
    struct te_engine *engine = classic->engine;
    char host[TE_HOST_MAX];
    uint16_t port;
    te_status status;

    if (name == NULL || name[0] == '\0')
        return te_fail(TE_INVALID_ARGUMENT, "no segment name");
    status = engine->store->ops->find_address(engine->store, name, host, &port);
    if (status == TE_OK)
        status = te_peer_probe(engine, host, port);
    return status == TE_TIMED_OUT ? TE_SOCKET : status;
}

/* What the owner of a name or of an open segment says now; for the own one, what we say. */
static te_status ask(struct te_classic *classic, const char *name, struct te_segment_descriptor **descriptor)
{
    struct te_engine *engine = classic->engine;
    te_status status;

    if (te_segment_is_own_name(engine->segments, name)) {
        *descriptor = te_local_segment_describe(engine);
        return *descriptor != NULL ? TE_OK : te_fail(TE_METADATA, "no transport is installed");
    }
    status = te_segment_ask(engine->segments, name, descriptor);
    return status == TE_TIMED_OUT ? TE_SOCKET : status;
}

int te_classic_remote_buffers(struct te_classic *classic, segment_id_t segment_id, buffer_entry_t *buffers,
                              size_t *count)
{
    struct te_segment *segment = te_segment_find(classic->engine->segments, segment_id);
    struct te_segment_descriptor *descriptor;
    te_status status;

    if (count == NULL || (buffers == NULL && *count != 0))
        return te_fail(TE_INVALID_ARGUMENT, "no room for the result");
    if (segment == NULL)
        return te_fail(TE_METADATA, "no segment with id %d", segment_id);
    status = ask(classic, te_segment_name(segment), &descriptor);
    if (status != TE_OK)
        return status;
    for (size_t i = 0; i < descriptor->buffer_count && i < *count; i++) {
        buffers[i].addr = (void *)(uintptr_t)descriptor->buffers[i].address;
        buffers[i].length = descriptor->buffers[i].length;
    }
    *count = descriptor->buffer_count;
    te_segment_descriptor_unref(descriptor);
    return TE_OK;
}

int te_classic_first_buffer_address(struct te_classic *classic, const char *name, uint64_t *address)
{
    struct te_segment_descriptor *descriptor;
    te_status status;

    if (name == NULL || name[0] == '\0' || address == NULL)
        return te_fail(TE_INVALID_ARGUMENT, "no segment name, or no room for the result");
    status = ask(classic, name, &descriptor);
    if (status != TE_OK)
        return status;
    if (descriptor->buffer_count > 0)
        *address = descriptor->buffers[0].address;
    else
        status = te_fail(TE_ADDRESS_NOT_REGISTERED, "%s has registered nothing", name);
    te_segment_descriptor_unref(descriptor);
    return status;
}
