#include "wire/classic/descriptor.h"

#include <limits.h>
#include <string.h>

#include <json-c/json.h>

#include "wire/classic/json_text.h"
#include "wire/classic/priority_matrix.h"

/* How a protocol shapes its descriptor, and what a reader refuses. */
struct protocol {
    const char *name;
    bool written;           /* else it can only be read */
    bool keys;              /* the full form with keys, devices and matrix */
    bool key_per_device;    /* keys and devices must be equal in number */
    bool devices;           /* has a list of devices */
    const char *device_gid; /* the member that is kept as gid, or NULL */
    bool device_name_needed, device_gid_needed;
    const char *buffer_name;
    const char *buffer_address; /* or NULL */
    bool name_needed, address_needed, length_needed;
    bool name_of_memory_needed; /* shm_name: buffers without it are left out */
    bool device_id_needed;      /* not negative */
    bool segments_needed;       /* tseg: not empty */
};

#define PLAIN_BUFFERS                                                                                                  \
    .buffer_name = "name", .buffer_address = "addr", .name_needed = true, .address_needed = true, .length_needed = true
#define DEVICES_WITH_KEYS                                                                                              \
    .written = true, .keys = true, .devices = true, .device_gid = "gid", .device_name_needed = true,                   \
    .device_gid_needed = true, PLAIN_BUFFERS

static const struct protocol protocols[] = {
    {.name = "tcp", .written = true, PLAIN_BUFFERS},
    {.name = "rdma", .key_per_device = true, DEVICES_WITH_KEYS},
    {.name = "efa", .key_per_device = true, DEVICES_WITH_KEYS},
    {.name = "cxi", .key_per_device = true, DEVICES_WITH_KEYS},
    {.name = "barex", DEVICES_WITH_KEYS},
    {.name = "ub",
     .devices = true,
     .device_gid = "eid",
     .buffer_name = "name",
     .buffer_address = "addr",
     .segments_needed = true},
    {.name = "nvlink", .name_of_memory_needed = true, PLAIN_BUFFERS},
    {.name = "nvlink_intra", .name_of_memory_needed = true, PLAIN_BUFFERS},
    {.name = "hip", .name_of_memory_needed = true, PLAIN_BUFFERS},
    {.name = "maca", .name_of_memory_needed = true, PLAIN_BUFFERS},
    {.name = "musa", .name_of_memory_needed = true, PLAIN_BUFFERS},
    {.name = "ubshmem", .name_of_memory_needed = true, PLAIN_BUFFERS},
    {.name = "sunrise_link", .name_of_memory_needed = true, PLAIN_BUFFERS},
    {.name = "nccl", .device_id_needed = true, PLAIN_BUFFERS},
    {.name = "ascend", .devices = true, .device_name_needed = true, PLAIN_BUFFERS},
    {.name = "cxl", .buffer_name = "name", .buffer_address = "offset", .name_needed = true, .length_needed = true},
    {.name = "nvmeof", .buffer_name = "file_path"},
};

static const struct protocol *find_protocol(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(protocols); i++)
        if (strcmp(protocols[i].name, name) == 0)
            return &protocols[i];
    return NULL;
}

void te_descriptor_format_time(char text[TE_DESCRIPTOR_TIME_BYTES], const struct timespec *real_time)
{
    struct tm local = {0};
    size_t length;

    localtime_r(&real_time->tv_sec, &local);
    length = strftime(text, TE_DESCRIPTOR_TIME_BYTES, "%Y-%m-%d %H:%M:%S", &local);
    g_snprintf(text + length, TE_DESCRIPTOR_TIME_BYTES - length, ".%06ld", real_time->tv_nsec / 1000);
}

static void write_keys(GString *text, const char *key, const uint64_t *keys, size_t count)
{
    te_json_key(text, key);
    te_json_begin_array(text);
    for (size_t i = 0; i < count; i++)
        te_json_unsigned(text, keys[i]);
    te_json_end_array(text);
}

static void write_buffers(GString *text, const struct te_segment_descriptor *descriptor, bool keys)
{
    te_json_key(text, "buffers");
    te_json_begin_array(text);
    for (size_t i = 0; i < descriptor->buffer_count; i++) {
        const struct te_segment_buffer *buffer = &descriptor->buffers[i];

        te_json_begin_object(text);
        te_json_key(text, "addr");
        te_json_unsigned(text, buffer->address);
        te_json_key(text, "length");
        te_json_unsigned(text, buffer->length);
        if (keys)
            write_keys(text, "lkey", buffer->local_keys, buffer->key_count);
        te_json_key(text, "name");
        te_json_string(text, buffer->name);
        if (keys)
            write_keys(text, "rkey", buffer->remote_keys, buffer->key_count);
        te_json_end_object(text);
    }
    te_json_end_array(text);
}

static void write_devices(GString *text, const struct te_segment_descriptor *descriptor)
{
    te_json_key(text, "devices");
    te_json_begin_array(text);
    for (size_t i = 0; i < descriptor->device_count; i++) {
        const struct te_segment_device *device = &descriptor->devices[i];

        te_json_begin_object(text);
        te_json_key(text, "gid");
        te_json_string(text, device->gid);
        te_json_key(text, "lid");
        te_json_unsigned(text, device->lid);
        te_json_key(text, "name");
        te_json_string(text, device->name);
        te_json_end_object(text);
    }
    te_json_end_array(text);
}

static void write_text(GString *text, const char *key, const char *value)
{
    te_json_key(text, key);
    te_json_string(text, value);
}

te_status te_descriptor_write(GString *text, const struct te_segment_descriptor *descriptor, const char *timestamp)
{
    const struct protocol *protocol = find_protocol(descriptor->protocol);

    if (!protocol || !protocol->written)
        return te_fail(TE_INVALID_ARGUMENT, "a descriptor of protocol \"%s\" cannot be written", descriptor->protocol);
    te_json_begin_object(text);
    write_buffers(text, descriptor, protocol->keys);
    if (protocol->keys)
        write_devices(text, descriptor);
    write_text(text, "name", descriptor->name);
    if (protocol->keys) {
        te_json_key(text, "priority_matrix");
        te_json_raw(text, descriptor->priority_matrix ? descriptor->priority_matrix : "null");
    }
    write_text(text, "protocol", descriptor->protocol);
    write_text(text, "rdma_server_name", descriptor->rdma_server_name);
    if (descriptor->tcp_data_host[0] != '\0')
        write_text(text, "tcp_data_host", descriptor->tcp_data_host);
    te_json_key(text, "tcp_data_port");
    te_json_unsigned(text, descriptor->tcp_data_port);
    te_json_key(text, "tcp_proto_version");
    te_json_signed(text, descriptor->tcp_protocol_version);
    write_text(text, "timestamp", timestamp);
    te_json_end_object(text);
    return TE_OK;
}

static te_status refuse(const char *what)
{
    return te_fail(TE_MALFORMED_JSON, "segment descriptor refused: %s", what);
}

/* One element more, so that no allocation is empty. NULL: no memory, and te_fail() has been called. */
static void *allocate(size_t count, size_t size)
{
    void *array = g_try_malloc0_n(count + 1, size);

    if (!array)
        te_fail(TE_MEMORY, "no memory for %zu elements of a segment descriptor", count);
    return array;
}

static te_status replace_text(struct json_object *value, char **text)
{
    char *fresh;
    te_status status = te_json_to_text(value, &fresh, NULL);

    if (status != TE_OK)
        return status;
    g_free(*text);
    *text = fresh;
    return TE_OK;
}

/* A list entry must be an object to have members; `null` has none. */
static te_status list_entry(struct json_object *list, size_t index, struct json_object **entry)
{
    *entry = json_object_array_get_idx(list, index);
    if (*entry && !json_object_is_type(*entry, json_type_object))
        return refuse("a list has something else where an object is expected");
    return TE_OK;
}

static te_status read_keys(struct json_object *list, uint64_t **keys, size_t *count)
{
    size_t length;
    te_status status = te_json_array_length(list, &length);

    if (status != TE_OK)
        return status;
    *keys = allocate(length, sizeof(**keys));
    if (!*keys)
        return TE_MEMORY;
    for (size_t i = 0; status == TE_OK && i < length; i++)
        status = te_json_to_unsigned(json_object_array_get_idx(list, i), UINT64_MAX, &(*keys)[i]);
    if (status == TE_OK)
        *count = length;
    return status;
}

static te_status read_both_keys(struct json_object *entry, const struct protocol *protocol, size_t device_count,
                                struct te_segment_buffer *buffer)
{
    size_t local_count = 0, remote_count = 0;
    te_status status = read_keys(te_json_member(entry, "lkey"), &buffer->local_keys, &local_count);

    if (status == TE_OK)
        status = read_keys(te_json_member(entry, "rkey"), &buffer->remote_keys, &remote_count);
    if (status != TE_OK)
        return status;
    if (remote_count > 0 && remote_count != local_count)
        return refuse("a buffer has different numbers of keys");
    if (remote_count > 0 && protocol->key_per_device && remote_count != device_count)
        return refuse("a buffer has not one key for each device");
    buffer->key_count = remote_count;
    if (remote_count == 0) {
        g_clear_pointer(&buffer->local_keys, g_free);
        g_clear_pointer(&buffer->remote_keys, g_free);
    }
    return TE_OK;
}

/* *wanted is false for an entry that readers leave out: over TCP also a region at address 0, which a real reader
 * refuses together with the whole descriptor, although its owner's other regions are as good as ever. */
static te_status check_peculiarities(struct json_object *entry, const struct protocol *protocol, bool *wanted)
{
    struct json_object *address = protocol->buffer_address ? te_json_member(entry, protocol->buffer_address) : NULL;
    int64_t device_id = 0;
    size_t segments = 1;
    te_status status = TE_OK;

    *wanted = !(strcmp(protocol->name, "tcp") == 0 && json_object_is_type(address, json_type_int) &&
                json_object_get_uint64(address) == 0 && json_object_get_int64(address) == 0);
    if (!*wanted)
        return TE_OK;
    if (protocol->name_of_memory_needed) {
        char *name;

        status = te_json_to_text(te_json_member(entry, "shm_name"), &name, NULL);
        if (status != TE_OK)
            return status;
        *wanted = name[0] != '\0';
        g_free(name);
    }
    if (protocol->device_id_needed)
        status = te_json_to_signed(te_json_member(entry, "device_id"), INT_MIN, INT_MAX, &device_id);
    if (protocol->segments_needed)
        status = te_json_array_length(te_json_member(entry, "tseg"), &segments);
    if (status != TE_OK)
        return status;
    if (device_id < 0 || segments == 0)
        return refuse("a buffer lacks its device or its segments");
    return TE_OK;
}

static te_status read_buffer(struct json_object *entry, const struct protocol *protocol, size_t device_count,
                             struct te_segment_buffer *buffer)
{
    te_status status = te_json_to_text(te_json_member(entry, protocol->buffer_name), &buffer->name, NULL);

    if (status == TE_OK && protocol->buffer_address)
        status = te_json_to_unsigned(te_json_member(entry, protocol->buffer_address), UINT64_MAX, &buffer->address);
    if (status == TE_OK)
        status = te_json_to_unsigned(te_json_member(entry, "length"), UINT64_MAX, &buffer->length);
    if (status == TE_OK && protocol->keys)
        status = read_both_keys(entry, protocol, device_count, buffer);
    if (status != TE_OK)
        return status;
    buffer->permission = TE_GLOBAL_READ_WRITE;
    if ((protocol->name_needed && buffer->name[0] == '\0') || (protocol->address_needed && buffer->address == 0) ||
        (protocol->length_needed && buffer->length == 0))
        return refuse("a buffer lacks name, address or length");
    return TE_OK;
}

/* The count runs along, so that a half-read descriptor can be freed. */
static te_status read_buffers(struct json_object *list, const struct protocol *protocol,
                              struct te_segment_descriptor *descriptor)
{
    size_t length;
    te_status status = te_json_array_length(list, &length);

    if (status != TE_OK)
        return status;
    descriptor->buffers = allocate(length, sizeof(*descriptor->buffers));
    if (!descriptor->buffers)
        return TE_MEMORY;
    for (size_t i = 0; status == TE_OK && i < length; i++) {
        struct json_object *entry;
        bool wanted;

        status = list_entry(list, i, &entry);
        if (status == TE_OK)
            status = check_peculiarities(entry, protocol, &wanted);
        if (status == TE_OK && wanted)
            status = read_buffer(entry, protocol, descriptor->device_count,
                                 &descriptor->buffers[descriptor->buffer_count++]);
    }
    return status;
}

static te_status read_device(struct json_object *entry, const struct protocol *protocol,
                             struct te_segment_device *device)
{
    uint64_t lid;
    te_status status = te_json_to_text(te_json_member(entry, "name"), &device->name, NULL);

    if (status == TE_OK)
        status = te_json_to_unsigned(te_json_member(entry, "lid"), UINT32_MAX, &lid);
    if (status == TE_OK)
        status = te_json_to_text(protocol->device_gid ? te_json_member(entry, protocol->device_gid) : NULL,
                                 &device->gid, NULL);
    if (status != TE_OK)
        return status;
    device->lid = (uint16_t)lid;
    if ((protocol->device_name_needed && device->name[0] == '\0') ||
        (protocol->device_gid_needed && device->gid[0] == '\0'))
        return refuse("a device lacks name or gid");
    return TE_OK;
}

static te_status read_devices(struct json_object *list, const struct protocol *protocol,
                              struct te_segment_descriptor *descriptor)
{
    size_t length;
    te_status status = te_json_array_length(list, &length);

    if (status != TE_OK)
        return status;
    descriptor->devices = allocate(length, sizeof(*descriptor->devices));
    if (!descriptor->devices)
        return TE_MEMORY;
    for (size_t i = 0; status == TE_OK && i < length; i++) {
        struct json_object *entry;

        status = list_entry(list, i, &entry);
        if (status == TE_OK)
            status = read_device(entry, protocol, &descriptor->devices[descriptor->device_count++]);
    }
    return status;
}

static te_status read_common(struct json_object *root, struct te_segment_descriptor *descriptor)
{
    const struct {
        const char *key;
        char **text;
    } texts[] = {
        {"name", &descriptor->name},
        {"protocol", &descriptor->protocol},
        {"rdma_server_name", &descriptor->rdma_server_name},
        {"tcp_data_host", &descriptor->tcp_data_host},
        {"timestamp", &descriptor->timestamp},
    };
    int64_t port, version;
    te_status status = TE_OK;

    for (size_t i = 0; status == TE_OK && i < G_N_ELEMENTS(texts); i++)
        status = replace_text(te_json_member(root, texts[i].key), texts[i].text);
    if (status == TE_OK)
        status = te_json_to_signed(te_json_member(root, "tcp_data_port"), INT_MIN, INT_MAX, &port);
    if (status != TE_OK)
        return status;
    descriptor->tcp_data_port = port < 0 || port > UINT16_MAX ? 0 : (uint16_t)port;
    if (!te_json_has(root, "tcp_proto_version"))
        return TE_OK;
    status = te_json_to_signed(te_json_member(root, "tcp_proto_version"), INT_MIN, INT_MAX, &version);
    if (status == TE_OK)
        descriptor->tcp_protocol_version = (int)version;
    return status;
}

static te_status read_root(struct json_object *root, struct te_segment_descriptor *descriptor)
{
    const struct protocol *protocol;
    te_status status = read_common(root, descriptor);

    if (status != TE_OK)
        return status;
    protocol = find_protocol(descriptor->protocol);
    if (!protocol)
        return refuse("unknown protocol");
    if (protocol->devices)
        status = read_devices(te_json_member(root, "devices"), protocol, descriptor);
    if (status == TE_OK)
        status = read_buffers(te_json_member(root, "buffers"), protocol, descriptor);
    if (status == TE_OK && protocol->keys)
        status = te_priority_matrix_normalize(te_json_member(root, "priority_matrix"), &descriptor->priority_matrix);
    return status;
}

te_status te_descriptor_read(const char *text, size_t length, struct te_segment_descriptor **descriptor)
{
    struct te_segment_descriptor *result;
    struct json_object *root;
    te_status status = te_json_parse_object(text, length, &root);

    if (status != TE_OK)
        return status;
    result = te_segment_descriptor_new();
    status = read_root(root, result);
    json_object_put(root);
    if (status != TE_OK) {
        te_segment_descriptor_unref(result);
        return status;
    }
    *descriptor = result;
    return TE_OK;
}
