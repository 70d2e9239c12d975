#include "core/local_segment.h"

#include <glib.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "core/engine.h"

struct part {
    const char *protocol;
    struct te_transport *transport;
    void (*describe)(struct te_transport *, struct te_segment_descriptor *);
};

struct text {
    const struct te_dialect_ops *dialect;
    const struct te_segment_descriptor *of; /* whose text it is */
    struct te_shared_text *bytes;
};

struct te_local_segment {
    pthread_mutex_t lock;
    struct part parts[TE_ENGINE_TRANSPORTS];
    size_t part_count;
    struct te_segment_descriptor *descriptor; /* NULL: to be made anew */
    uint64_t registry_version;                /* that descriptor belongs to */
    struct text texts[TE_ENGINE_DIALECTS];
};

struct te_local_segment *te_local_segment_new(void)
{
    struct te_local_segment *local = g_new0(struct te_local_segment, 1);

    pthread_mutex_init(&local->lock, NULL);
    return local;
}

static void forget(struct te_local_segment *local)
{
    for (size_t i = 0; i < G_N_ELEMENTS(local->texts); i++) {
        te_shared_text_unref(local->texts[i].bytes);
        local->texts[i].bytes = NULL;
        local->texts[i].of = NULL;
    }
    te_segment_descriptor_unref(local->descriptor);
    local->descriptor = NULL;
}

void te_local_segment_free(struct te_local_segment *local)
{
    forget(local);
    pthread_mutex_destroy(&local->lock);
    g_free(local);
}

te_status te_local_segment_add(struct te_engine *engine, const char *protocol, struct te_transport *transport,
                               void (*describe)(struct te_transport *, struct te_segment_descriptor *))
{
    struct te_local_segment *local = engine->local;
    te_status status = TE_OK;

    pthread_mutex_lock(&local->lock);
    if (local->part_count < G_N_ELEMENTS(local->parts)) {
        local->parts[local->part_count++] = (struct part){protocol, transport, describe};
        forget(local);
    } else {
        status = te_fail(TE_INVALID_ARGUMENT, "an engine has room for %d transports", TE_ENGINE_TRANSPORTS);
    }
    pthread_mutex_unlock(&local->lock);
    return status;
}

void te_local_segment_remove(struct te_engine *engine, const struct te_transport *transport)
{
    struct te_local_segment *local = engine->local;
    size_t kept = 0;

    pthread_mutex_lock(&local->lock);
    for (size_t i = 0; i < local->part_count; i++)
        if (local->parts[i].transport != transport)
            local->parts[kept++] = local->parts[i];
    local->part_count = kept;
    forget(local);
    pthread_mutex_unlock(&local->lock);
}

void te_local_segment_withdraw(struct te_engine *engine)
{
    struct te_local_segment *local = engine->local;

    pthread_mutex_lock(&local->lock);
    local->part_count = 0;
    forget(local);
    pthread_mutex_unlock(&local->lock);
}

bool te_local_segment_exists(struct te_engine *engine)
{
    struct te_local_segment *local = engine->local;
    bool exists;

    pthread_mutex_lock(&local->lock);
    exists = local->part_count > 0;
    pthread_mutex_unlock(&local->lock);
    return exists;
}

static void replace(char **text, const char *by)
{
    g_free(*text);
    *text = g_strdup(by);
}

static te_status list_buffers(struct te_engine *engine, struct te_segment_descriptor *descriptor, uint64_t *version)
{
    size_t count = 0;
    struct te_region *regions = te_registry_list(engine->registry, &count, version);

    if (regions == NULL)
        return te_fail(TE_MEMORY, "no memory to list the registered regions");
    descriptor->buffers = g_new0(struct te_segment_buffer, count);
    for (size_t i = 0; i < count; i++) {
        struct te_segment_buffer *buffer = &descriptor->buffers[descriptor->buffer_count];

        if (regions[i].permission == TE_LOCAL_READ_WRITE)
            continue;
        buffer->address = regions[i].address;
        buffer->length = regions[i].length;
        buffer->permission = regions[i].permission;
        buffer->name = g_strdup(engine->name);
        descriptor->buffer_count++;
    }
    g_free(regions);
    return TE_OK;
}

/* Under the lock. Without memory for a new descriptor the last one stays. */
static void refresh(struct te_engine *engine, struct te_local_segment *local)
{
    struct te_segment_descriptor *descriptor;
    uint64_t version;

    if (local->descriptor != NULL && local->registry_version == te_registry_version(engine->registry))
        return;
    if (local->part_count == 0) {
        forget(local);
        return;
    }
    descriptor = te_segment_descriptor_new();
    replace(&descriptor->name, engine->name);
    replace(&descriptor->protocol, local->parts[local->part_count - 1].protocol);
    replace(&descriptor->tcp_data_host, engine->host);
    if (list_buffers(engine, descriptor, &version) != TE_OK) {
        te_segment_descriptor_unref(descriptor);
        return;
    }
    for (size_t i = 0; i < local->part_count; i++)
        local->parts[i].describe(local->parts[i].transport, descriptor);
    forget(local);
    local->registry_version = version;
    local->descriptor = descriptor;
}

struct te_segment_descriptor *te_local_segment_describe(struct te_engine *engine)
{
    struct te_local_segment *local = engine->local;
    struct te_segment_descriptor *descriptor = NULL;

    pthread_mutex_lock(&local->lock);
    refresh(engine, local);
    if (local->descriptor != NULL)
        descriptor = te_segment_descriptor_ref(local->descriptor);
    pthread_mutex_unlock(&local->lock);
    return descriptor;
}

struct te_shared_text *
te_local_segment_text(struct te_engine *engine, const struct te_dialect_ops *dialect,
                      struct te_shared_text *(*encode)(const struct te_segment_descriptor *descriptor))
{
    struct te_local_segment *local = engine->local;
    struct te_shared_text *bytes = NULL;

    pthread_mutex_lock(&local->lock);
    refresh(engine, local);
    for (size_t i = 0; local->descriptor != NULL && i < G_N_ELEMENTS(local->texts); i++) {
        struct text *text = &local->texts[i];

        if (text->dialect == NULL)
            text->dialect = dialect;
        if (text->dialect != dialect)
            continue;
        if (text->of != local->descriptor) {
            text->bytes = encode(local->descriptor);
            text->of = local->descriptor;
        }
        if (text->bytes != NULL)
            bytes = te_shared_text_ref(text->bytes);
        break;
    }
    pthread_mutex_unlock(&local->lock);
    return bytes;
}
