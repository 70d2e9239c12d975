/*
 * What a process publishes of itself, in the one form that runtimes and transports know. Both wire dialects are read
 * into it and written from it. Immutable once shared; reference counted.
 */
#ifndef TE_CORE_SEGMENT_DESCRIPTOR_H
#define TE_CORE_SEGMENT_DESCRIPTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/memory_registry.h"

struct te_segment_buffer {
    uint64_t address;
    uint64_t length;
    char *name; /* classic: the segment name (tcp) or a location such as "cpu:0" (rdma) */
    enum te_permission permission;
    uint64_t *remote_keys; /* one per entry of devices, or none */
    uint64_t *local_keys;
    size_t key_count;
};

struct te_segment_device {
    char *name;
    uint16_t lid;
    char *gid;
};

struct te_segment_descriptor {
    _Atomic unsigned references; /* use te_segment_descriptor_ref() and _unref() */
    char *name;                  /* as the owner calls itself */
    char *protocol;              /* "tcp", "rdma", ... */
    char *tcp_data_host;         /* "" when not published */
    uint16_t tcp_data_port;      /* 0 when there is none */
    int tcp_protocol_version;    /* 1 when not published */
    char *rdma_server_name;      /* "" when not published */
    char *timestamp;
    char *priority_matrix; /* JSON text, or NULL */
    struct te_segment_buffer *buffers;
    size_t buffer_count;
    struct te_segment_device *devices;
    size_t device_count;
};

/* An empty one with one reference: strings "" (protocol too), version 1. All memory comes from GLib. */
struct te_segment_descriptor *te_segment_descriptor_new(void);
struct te_segment_descriptor *te_segment_descriptor_ref(struct te_segment_descriptor *descriptor);
/* NULL is fine. */
void te_segment_descriptor_unref(struct te_segment_descriptor *descriptor);

#endif
