#include "core/segment_descriptor.h"

#include <glib.h>

struct te_segment_descriptor *te_segment_descriptor_new(void)
{
    struct te_segment_descriptor *descriptor = g_new0(struct te_segment_descriptor, 1);

    atomic_init(&descriptor->references, 1);
    descriptor->name = g_strdup("");
    descriptor->protocol = g_strdup("");
    descriptor->tcp_data_host = g_strdup("");
    descriptor->tcp_protocol_version = 1;
    descriptor->rdma_server_name = g_strdup("");
    descriptor->timestamp = g_strdup("");
    return descriptor;
}

struct te_segment_descriptor *te_segment_descriptor_ref(struct te_segment_descriptor *descriptor)
{
    atomic_fetch_add_explicit(&descriptor->references, 1, memory_order_relaxed);
    return descriptor;
}

static void free_descriptor(struct te_segment_descriptor *descriptor)
{
    for (size_t i = 0; i < descriptor->buffer_count; i++) {
        g_free(descriptor->buffers[i].name);
        g_free(descriptor->buffers[i].remote_keys);
        g_free(descriptor->buffers[i].local_keys);
    }
    for (size_t i = 0; i < descriptor->device_count; i++) {
        g_free(descriptor->devices[i].name);
        g_free(descriptor->devices[i].gid);
    }
    g_free(descriptor->buffers);
    g_free(descriptor->devices);
    g_free(descriptor->name);
    g_free(descriptor->protocol);
    g_free(descriptor->tcp_data_host);
    g_free(descriptor->rdma_server_name);
    g_free(descriptor->timestamp);
    g_free(descriptor->priority_matrix);
    g_free(descriptor);
}

void te_segment_descriptor_unref(struct te_segment_descriptor *descriptor)
{
    if (descriptor && atomic_fetch_sub_explicit(&descriptor->references, 1, memory_order_acq_rel) == 1)
        free_descriptor(descriptor);
}
