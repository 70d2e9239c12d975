/* The commands that have to do with memory. */
#include "te_peer.h"
#include "te_peer_pattern.h"

#include <sys/mman.h>

#include "transfer_engine_c.h"

/* All zero; NULL when there is no memory. */
static struct memory *memory_new(size_t size)
{
    size_t mapped = size > 0 ? size : 1;
    void *bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return NULL;
    struct memory *memory = g_new0(struct memory, 1);
    memory->bytes = bytes;
    memory->size = size;
    return memory;
}

void memory_free(struct memory *memory)
{
    munmap(memory->bytes, memory->size > 0 ? memory->size : 1);
    g_free(memory);
}

bool memory_has(const struct memory *memory, uint64_t offset, uint64_t length)
{
    return offset <= memory->size && length <= memory->size - offset;
}

struct memory *memory_of(struct peer *peer, json_object *object)
{
    uint64_t index = number_of(object, "buf", 0);
    if (index >= peer->memories->len) {
        refuse(peer, "no buffer %" G_GUINT64_FORMAT, index);
        return NULL;
    }
    return g_ptr_array_index(peer->memories, index);
}

/* The part of a region that the command names by "buf", "off" and "len"; NULL after refusing. */
static uint8_t *part(struct peer *peer, size_t *length)
{
    struct memory *memory = memory_of(peer, peer->command);
    if (!memory)
        return NULL;
    uint64_t offset = number(peer, "off", 0);
    *length = number(peer, "len", offset <= memory->size ? memory->size - offset : 0);
    if (!memory_has(memory, offset, *length)) {
        refuse(peer, "%" G_GUINT64_FORMAT "+%zu is outside of a buffer of %zu bytes", offset, *length, memory->size);
        return NULL;
    }
    return memory->bytes + offset;
}

/* Allocates and fills memory as the command says; NULL after refusing. It belongs to peer. */
static struct memory *allocate(struct peer *peer, size_t size)
{
    struct memory *memory = memory_new(size);
    if (!memory) {
        refuse(peer, "no %zu bytes of memory", size);
        return NULL;
    }
    g_ptr_array_add(peer->memories, memory);
    if (!pattern_fill(memory->bytes, size, peer->command))
        refuse(peer, "malformed hex digits");
    return memory;
}

static void answer_memory(struct peer *peer, const struct memory *memory)
{
    answer_number(peer, "buf", peer->memories->len - 1);
    answer_unsigned(peer, "addr", (uintptr_t)memory->bytes);
    answer_unsigned(peer, "size", memory->size);
}

void run_register(struct peer *peer)
{
    const char *location = text(peer, "location", "*");
    int accessible = (int)number(peer, "remote_accessible", 1);
    size_t size = number(peer, "size", 0);
    if (given(peer, "addr")) {
        void *address = (void *)(uintptr_t)number(peer, "addr", 0);
        answer_result(peer, registerLocalMemory(peer->engine, address, size, location, accessible));
        return;
    }
    struct memory *memory = allocate(peer, size);
    if (refused(peer))
        return;
    answer_result(peer, registerLocalMemory(peer->engine, memory->bytes, size, location, accessible));
    answer_memory(peer, memory);
}

void run_register_batch(struct peer *peer)
{
    json_object *sizes = needed_array(peer, "sizes");
    if (!sizes)
        return;
    size_t count = json_object_array_length(sizes);
    buffer_entry_t *entries = g_new0(buffer_entry_t, count + 1);
    json_object *numbers = json_object_new_array(), *addresses = json_object_new_array();
    for (size_t i = 0; i < count && !refused(peer); i++) {
        struct memory *memory = allocate(peer, json_object_get_uint64(json_object_array_get_idx(sizes, i)));
        if (!memory)
            break;
        entries[i] = (buffer_entry_t){memory->bytes, memory->size};
        json_object_array_add(numbers, json_object_new_int64(peer->memories->len - 1));
        json_object_array_add(addresses, json_object_new_uint64((uintptr_t)memory->bytes));
    }
    if (!refused(peer))
        answer_result(peer, registerLocalMemoryBatch(peer->engine, entries, count, text(peer, "location", "*")));
    json_object_object_add(peer->reply, "bufs", numbers);
    json_object_object_add(peer->reply, "addrs", addresses);
    g_free(entries);
}

void run_allocate(struct peer *peer)
{
    struct memory *memory = allocate(peer, number(peer, "size", 0));
    if (!refused(peer))
        answer_memory(peer, memory);
}

void run_unregister(struct peer *peer)
{
    void *address = (void *)(uintptr_t)number(peer, "addr", 0);
    if (!given(peer, "addr")) {
        struct memory *memory = memory_of(peer, peer->command);
        if (!memory)
            return;
        address = memory->bytes;
    }
    answer_result(peer, unregisterLocalMemory(peer->engine, address));
}

void run_unregister_batch(struct peer *peer)
{
    json_object *list = needed_array(peer, given(peer, "addrs") ? "addrs" : "bufs");
    if (!list)
        return;
    size_t count = json_object_array_length(list);
    void **addresses = g_new0(void *, count + 1);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = json_object_get_uint64(json_object_array_get_idx(list, i));
        if (given(peer, "addrs"))
            addresses[i] = (void *)(uintptr_t)value;
        else if (value < peer->memories->len)
            addresses[i] = ((struct memory *)g_ptr_array_index(peer->memories, value))->bytes;
    }
    answer_result(peer, unregisterLocalMemoryBatch(peer->engine, addresses, count));
    g_free(addresses);
}

void run_fill(struct peer *peer)
{
    size_t length;
    uint8_t *bytes = part(peer, &length);
    if (bytes && !pattern_fill(bytes, length, peer->command))
        refuse(peer, "malformed hex digits");
}

void run_checksum(struct peer *peer)
{
    size_t length;
    uint8_t *bytes = part(peer, &length);
    if (!bytes)
        return;
    char *digits = bytes_sha256(bytes, length);
    answer_text(peer, "sha256", digits);
    g_free(digits);
}

void run_peek(struct peer *peer)
{
    size_t length;
    uint8_t *bytes = part(peer, &length);
    if (!bytes)
        return;
    char *digits = bytes_hex(bytes, length);
    answer_text(peer, "hex", digits);
    g_free(digits);
}
