#include "node.h"

#include <string.h>
#include <sys/mman.h>

#include "te.h"

void te_node_options_clear(struct te_node_options *options)
{
    g_free(options->metadata);
    g_free(options->host);
    g_free(options->protocol);
    memset(options, 0, sizeof(*options));
}

/* The segment name: with a metadata store it is the name given, else host and control port. */
static bool name_node(struct te_node *node, const char *metadata, const char *host)
{
    if (strcmp(metadata, "P2PHANDSHAKE")) {
        g_strlcpy(node->name, host, sizeof(node->name));
        return true;
    }
    int port = te_port(node->engine);
    if (port <= 0) {
        te_complain("the engine has no port: %s", te_last_error());
        return false;
    }
    g_autofree char *bare = *host == '[' ? g_strndup(host + 1, strcspn(host + 1, "]")) : g_strdup(host);
    bool literal6 = strchr(bare, ':') && strchr(bare, ':') != strrchr(bare, ':');
    if (!literal6)
        bare[strcspn(bare, ":")] = '\0';
    g_snprintf(node->name, sizeof(node->name), literal6 ? "[%s]:%d" : "%s:%d", bare, port);
    return true;
}

static bool add_memory(struct te_node *node, size_t size)
{
    char words[TE_SIZE_TEXT_MAX];
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        te_complain("no memory for a region of %s; give a smaller --region, --size or --batch",
                    te_size_text(size, words));
        return false;
    }
    memset(memory, 1, size); /* the first touch of a page must not be measured */
    if (registerLocalMemory(node->engine, memory, size, "*", 1)) {
        te_complain("the region of %s could not be registered: %s", te_size_text(size, words), te_last_error());
        munmap(memory, size);
        return false;
    }
    node->memory = memory;
    node->size = size;
    return true;
}

bool te_node_open(struct te_node *node, const struct te_node_options *options, size_t size)
{
    const char *metadata = options->metadata ? options->metadata : "P2PHANDSHAKE";
    const char *host = options->host ? options->host : "127.0.0.1";
    const char *protocol = options->protocol ? options->protocol : "tcp";
    memset(node, 0, sizeof(*node));
    node->engine = createTransferEngine(metadata, host, host, 0, 0);
    if (!node->engine) {
        te_complain("no engine could be created: %s", te_last_error());
        return false;
    }
    if (!installTransport(node->engine, protocol, NULL)) {
        te_complain("transport %s cannot run here: %s; `te info` shows which can", protocol, te_last_error());
        te_node_close(node);
        return false;
    }
    if (!name_node(node, metadata, host) || (size && !add_memory(node, size))) {
        te_node_close(node);
        return false;
    }
    return true;
}

void te_node_close(struct te_node *node)
{
    if (node->memory)
        unregisterLocalMemory(node->engine, node->memory);
    if (node->engine)
        destroyTransferEngine(node->engine);
    if (node->memory)
        munmap(node->memory, node->size);
    memset(node, 0, sizeof(*node));
}

bool te_node_open_peer(const struct te_node *node, const char *name, struct te_peer_buffer *buffer)
{
    segment_id_t segment = openSegment(node->engine, name);
    if (segment < 0) {
        te_complain("%s cannot be opened: %s\n    Is that process running, and is the name the one it printed? "
                    "`te probe %s` asks it; `te bench target` starts one.",
                    name, te_last_error(), name);
        return false;
    }
    buffer_entry_t entry;
    size_t count = 1;
    if (te_remote_buffers(node->engine, segment, &entry, &count) < 0 || count == 0) {
        te_complain("%s offers no memory; it must register a buffer first", name);
        closeSegment(node->engine, segment);
        return false;
    }
    *buffer =
        (struct te_peer_buffer){.segment = segment, .address = (uint64_t)(uintptr_t)entry.addr, .size = entry.length};
    return true;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ value >> 27) * 0x94D049BB133111EBULL;
    return value ^ value >> 31;
}

void te_pattern_fill(unsigned char *bytes, size_t size, uint64_t seed)
{
    uint64_t state = mix(seed + 1);
    for (size_t offset = 0; offset < size; offset += sizeof(uint64_t)) {
        state += 0x9E3779B97F4A7C15ULL;
        uint64_t word = mix(state);
        memcpy(bytes + offset, &word, MIN(sizeof(word), size - offset));
    }
}

const char *te_task_status_text(int status)
{
    static const char *const names[] = {"WAITING", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"};
    return status >= 0 && status < (int)G_N_ELEMENTS(names) ? names[status] : "unknown";
}
