/*
 * Regions live in a treap (a binary search tree by address that is also a heap by a pseudo-random priority, hence
 * balanced whatever the order of registration). Published nodes never change. A writer copies the nodes on the way to
 * its change, once per call, and swaps the root.
 *
 * Reclamation: `epoch` counts published changes. A reader announces the epoch it saw before it loads the root. What a
 * change replaced is stamped with the epoch before that change; a reader that announced a later epoch, or announces
 * itself after the writer looked, cannot see it any more.
 */
#include "core/memory_registry.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <glib.h>

/* First member of everything that waits for readers before it is freed. */
struct retired {
    struct retired *next;
    uint64_t epoch;
};

struct entry {
    struct retired retired;
    struct te_region region;
    char location[];
};

struct node {
    struct retired retired;
    uint64_t address;
    uint64_t priority;
    uint64_t edit; /* number of the edit that made it; that edit may still change it */
    struct entry *entry;
    struct node *left, *right;
};

struct te_registry_reader {
    _Alignas(64) _Atomic uint64_t epoch; /* 0 while outside */
    struct te_registry *registry;
    struct te_registry_reader *next; /* set before publication; readers are freed with the registry only */
    bool used;                       /* under the lock */
};

struct te_registry {
    _Atomic(struct node *) root;
    _Atomic uint64_t epoch; /* from 1; the version that callers see */
    _Atomic(struct te_registry_reader *) readers;

    pthread_mutex_t lock; /* for writers, and for what follows */
    uint64_t next_order;
    size_t count;
    struct retired *oldest_retired, **retired_end;
};

/* A change that is being prepared. Holds the lock from begin to commit or undo. */
struct edit {
    struct te_registry *registry;
    uint64_t number;
    struct node *root;
    struct retired *nodes_made; /* those that fell out of the tree again have no entry */
    struct retired *entries_made;
    struct retired *nodes_replaced; /* published ones */
    struct retired *entries_removed;
    bool out_of_memory;
};

static uint64_t scatter(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint64_t last_byte(const struct te_region *region)
{
    return region->address + (region->length - 1);
}

/* The region with the highest start that is not above address. */
static struct entry *find_at_or_below(const struct node *node, uint64_t address)
{
    struct entry *best = NULL;

    while (node != NULL) {
        if (node->address <= address) {
            best = node->entry;
            node = node->right;
        } else {
            node = node->left;
        }
    }
    return best;
}

struct te_registry *te_registry_new(void)
{
    struct te_registry *registry = g_try_new0(struct te_registry, 1);

    if (registry == NULL) {
        te_fail(TE_MEMORY, "no memory for a memory registry");
        return NULL;
    }
    atomic_init(&registry->epoch, 1);
    pthread_mutex_init(&registry->lock, NULL);
    registry->retired_end = &registry->oldest_retired;
    return registry;
}

static void free_tree(struct node *node)
{
    if (node == NULL)
        return;
    free_tree(node->left);
    free_tree(node->right);
    g_free(node->entry);
    g_free(node);
}

static void free_list(struct retired *retired)
{
    while (retired != NULL) {
        struct retired *next = retired->next;

        g_free(retired);
        retired = next;
    }
}

void te_registry_free(struct te_registry *registry)
{
    if (registry == NULL)
        return;
    for (struct te_registry_reader *reader = atomic_load(&registry->readers), *next; reader != NULL; reader = next) {
        next = reader->next;
        free(reader);
    }
    free_tree(atomic_load(&registry->root));
    free_list(registry->oldest_retired);
    pthread_mutex_destroy(&registry->lock);
    g_free(registry);
}

/* The lowest epoch that a reader inside has announced. */
static uint64_t oldest_reader_epoch(struct te_registry *registry)
{
    uint64_t oldest = UINT64_MAX;

    for (struct te_registry_reader *reader = atomic_load(&registry->readers); reader != NULL; reader = reader->next) {
        uint64_t epoch = atomic_load(&reader->epoch);

        if (epoch != 0 && epoch < oldest)
            oldest = epoch;
    }
    return oldest;
}

/* Takes what no reader can hold any more off the list, for the caller to free without the lock. */
static struct retired *take_reclaimable(struct te_registry *registry)
{
    uint64_t oldest = oldest_reader_epoch(registry);
    struct retired *first = registry->oldest_retired;
    struct retired **end = &first;

    while (*end != NULL && (*end)->epoch < oldest)
        end = &(*end)->next;
    registry->oldest_retired = *end;
    if (*end == NULL)
        registry->retired_end = &registry->oldest_retired;
    *end = NULL;
    return first;
}

static void push(struct retired **list, struct retired *item)
{
    item->next = *list;
    *list = item;
}

static void edit_begin(struct edit *edit, struct te_registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    *edit = (struct edit){
        .registry = registry, .number = atomic_load(&registry->epoch), .root = atomic_load(&registry->root)};
}

static struct node *edit_new_node(struct edit *edit)
{
    struct node *node = g_try_new0(struct node, 1);

    if (node == NULL) {
        edit->out_of_memory = true;
        return NULL;
    }
    push(&edit->nodes_made, &node->retired);
    return node;
}

/* A node that this edit may change: the same or a copy. Out of memory: the node as it is; the edit is going to be
 * undone and the caller must not change it. */
static struct node *edit_own(struct edit *edit, struct node *node)
{
    struct node *copy;

    if (node->edit == edit->number)
        return node;
    copy = edit_new_node(edit);
    if (copy == NULL)
        return node;
    copy->address = node->address;
    copy->priority = node->priority;
    copy->edit = edit->number;
    copy->entry = node->entry;
    copy->left = node->left;
    copy->right = node->right;
    push(&edit->nodes_replaced, &node->retired);
    return copy;
}

static void edit_drop(struct edit *edit, struct node *node)
{
    if (node->edit == edit->number)
        node->entry = NULL;
    else
        push(&edit->nodes_replaced, &node->retired);
}

static struct node *insert(struct edit *edit, struct node *node, struct node *added)
{
    struct node *child;

    if (node == NULL)
        return added;
    node = edit_own(edit, node);
    if (edit->out_of_memory)
        return node;
    if (added->address < node->address) {
        child = insert(edit, node->left, added);
        node->left = child;
        if (child->priority <= node->priority || edit->out_of_memory)
            return node;
        node->left = child->right;
        child->right = node;
    } else {
        child = insert(edit, node->right, added);
        node->right = child;
        if (child->priority <= node->priority || edit->out_of_memory)
            return node;
        node->right = child->left;
        child->left = node;
    }
    return child;
}

/* All addresses in left are below those in right. */
static struct node *join(struct edit *edit, struct node *left, struct node *right)
{
    if (left == NULL)
        return right;
    if (right == NULL)
        return left;
    if (left->priority > right->priority) {
        left = edit_own(edit, left);
        if (!edit->out_of_memory)
            left->right = join(edit, left->right, right);
        return left;
    }
    right = edit_own(edit, right);
    if (!edit->out_of_memory)
        right->left = join(edit, left, right->left);
    return right;
}

/* The address is in the tree. */
static struct node *detach(struct edit *edit, struct node *node, uint64_t address)
{
    if (node->address == address) {
        struct node *rest = join(edit, node->left, node->right);

        edit_drop(edit, node);
        return rest;
    }
    node = edit_own(edit, node);
    if (edit->out_of_memory)
        return node;
    if (address < node->address)
        node->left = detach(edit, node->left, address);
    else
        node->right = detach(edit, node->right, address);
    return node;
}

static void edit_undo(struct edit *edit)
{
    pthread_mutex_unlock(&edit->registry->lock);
    free_list(edit->nodes_made);
    free_list(edit->entries_made);
}

static void retire_all(struct te_registry *registry, struct retired *list, uint64_t epoch)
{
    while (list != NULL) {
        struct retired *item = list;

        list = item->next;
        item->epoch = epoch;
        item->next = NULL;
        *registry->retired_end = item;
        registry->retired_end = &item->next;
    }
}

static struct retired *take_dropped_nodes(struct edit *edit)
{
    struct retired *dropped = NULL;

    for (struct retired *made = edit->nodes_made, *next; made != NULL; made = next) {
        next = made->next;
        if (((struct node *)made)->entry == NULL)
            push(&dropped, made);
    }
    return dropped;
}

/* Publishes and unlocks. Returns the highest epoch that a reader who still sees the old tree can have announced. */
static uint64_t edit_commit(struct edit *edit)
{
    struct te_registry *registry = edit->registry;
    struct retired *dropped = take_dropped_nodes(edit), *reclaimable;
    uint64_t epoch;

    atomic_store(&registry->root, edit->root);
    epoch = atomic_fetch_add(&registry->epoch, 1);
    retire_all(registry, edit->nodes_replaced, epoch);
    retire_all(registry, edit->entries_removed, epoch);
    reclaimable = take_reclaimable(registry);
    pthread_mutex_unlock(&registry->lock);

    free_list(dropped);
    free_list(reclaimable);
    return epoch;
}

static te_status check_region(const struct edit *edit, const struct te_region *region)
{
    const struct entry *below;

    if (region->length == 0)
        return te_fail(TE_INVALID_ARGUMENT, "a region of length 0 cannot be registered");
    if (region->address == 0)
        return te_fail(TE_INVALID_ARGUMENT, "a region at address 0 cannot be registered");
    if (region->length > UINT64_MAX - region->address)
        return te_fail(TE_INVALID_ARGUMENT,
                       "the region at 0x%" PRIx64 " of %" PRIu64 " bytes exceeds the address space", region->address,
                       region->length);
    below = find_at_or_below(edit->root, last_byte(region));
    if (below != NULL && last_byte(&below->region) >= region->address)
        return te_fail(TE_ADDRESS_OVERLAPPED,
                       "the region at 0x%" PRIx64 " of %" PRIu64 " bytes overlaps the registered one at 0x%" PRIx64
                       " of %" PRIu64 " bytes",
                       region->address, region->length, below->region.address, below->region.length);
    return TE_OK;
}

static struct entry *edit_new_entry(struct edit *edit, const struct te_region *region, uint64_t order)
{
    const char *location = region->location != NULL ? region->location : "";
    size_t location_bytes = strlen(location) + 1;
    struct entry *entry = g_try_malloc(sizeof(*entry) + location_bytes);

    if (entry == NULL) {
        edit->out_of_memory = true;
        return NULL;
    }
    push(&edit->entries_made, &entry->retired);
    entry->region = *region;
    entry->region.order = order;
    entry->region.location = entry->location;
    memcpy(entry->location, location, location_bytes);
    return entry;
}

static te_status edit_add(struct edit *edit, const struct te_region *region, uint64_t order)
{
    te_status status = check_region(edit, region);
    struct entry *entry;
    struct node *node;

    if (status != TE_OK)
        return status;
    entry = edit_new_entry(edit, region, order);
    node = edit_new_node(edit);
    if (!edit->out_of_memory) {
        node->address = region->address;
        node->priority = scatter(order);
        node->edit = edit->number;
        node->entry = entry;
        edit->root = insert(edit, edit->root, node);
    }
    if (edit->out_of_memory)
        return te_fail(TE_MEMORY, "no memory to register a region");
    return TE_OK;
}

te_status te_registry_add(struct te_registry *registry, const struct te_region *regions, size_t count)
{
    struct edit edit;

    if (count == 0)
        return TE_OK;
    edit_begin(&edit, registry);
    for (size_t i = 0; i < count; i++) {
        te_status status = edit_add(&edit, &regions[i], registry->next_order + i);

        if (status != TE_OK) {
            edit_undo(&edit);
            return status;
        }
    }
    registry->next_order += count;
    registry->count += count;
    edit_commit(&edit);
    return TE_OK;
}

static te_status edit_remove(struct edit *edit, uint64_t address)
{
    struct entry *entry = find_at_or_below(edit->root, address);

    if (entry == NULL || entry->region.address != address)
        return te_fail(TE_ADDRESS_NOT_REGISTERED, "no region that starts at 0x%" PRIx64 " is registered", address);
    edit->root = detach(edit, edit->root, address);
    if (edit->out_of_memory)
        return te_fail(TE_MEMORY, "no memory to unregister a region");
    push(&edit->entries_removed, &entry->retired);
    return TE_OK;
}

/* A reader stays inside for as long as one non-blocking call takes, but its thread may have lost its processor. */
static void wait_for_readers(struct te_registry *registry, uint64_t epoch)
{
    const struct timespec pause = {.tv_nsec = 50000};
    int rounds = 0;

    while (oldest_reader_epoch(registry) <= epoch) {
        if (rounds++ < 100)
            sched_yield();
        else
            nanosleep(&pause, NULL);
    }
}

static void reclaim(struct te_registry *registry)
{
    struct retired *reclaimable;

    pthread_mutex_lock(&registry->lock);
    reclaimable = take_reclaimable(registry);
    pthread_mutex_unlock(&registry->lock);
    free_list(reclaimable);
}

te_status te_registry_remove(struct te_registry *registry, const uint64_t *addresses, size_t count,
                             struct te_region *removed)
{
    struct edit edit;
    size_t at = count;

    if (count == 0)
        return TE_OK;
    edit_begin(&edit, registry);
    for (size_t i = 0; i < count; i++) {
        te_status status = edit_remove(&edit, addresses[i]);

        if (status != TE_OK) {
            edit_undo(&edit);
            return status;
        }
    }
    for (struct retired *item = edit.entries_removed; item != NULL && removed != NULL; item = item->next) {
        removed[--at] = ((struct entry *)item)->region;
        removed[at].location = NULL;
    }
    registry->count -= count;
    wait_for_readers(registry, edit_commit(&edit));
    reclaim(registry);
    return TE_OK;
}

struct te_registry_reader *te_registry_reader_new(struct te_registry *registry)
{
    struct te_registry_reader *reader;

    pthread_mutex_lock(&registry->lock);
    for (reader = atomic_load(&registry->readers); reader != NULL && reader->used; reader = reader->next)
        ;
    if (reader == NULL) {
        reader = aligned_alloc(alignof(struct te_registry_reader), sizeof(*reader));
        if (reader == NULL)
            goto unlock;
        *reader = (struct te_registry_reader){.registry = registry, .next = atomic_load(&registry->readers)};
        atomic_store(&registry->readers, reader);
    }
    reader->used = true;
unlock:
    pthread_mutex_unlock(&registry->lock);
    if (reader == NULL)
        te_fail(TE_MEMORY, "no memory for a reader of the memory registry");
    return reader;
}

void te_registry_reader_free(struct te_registry_reader *reader)
{
    if (reader == NULL)
        return;
    pthread_mutex_lock(&reader->registry->lock);
    reader->used = false;
    pthread_mutex_unlock(&reader->registry->lock);
}

static bool permits(enum te_permission permission, enum te_access access)
{
    return permission == TE_GLOBAL_READ_WRITE || (permission == TE_GLOBAL_READ_ONLY && access == TE_ACCESS_REMOTE_READ);
}

const struct te_region *te_registry_look_up(struct te_registry_reader *reader, uint64_t address, uint64_t length,
                                            enum te_access access)
{
    const struct entry *entry = find_at_or_below(atomic_load(&reader->registry->root), address);

    /* entry->region.address <= address */
    if (entry == NULL || length == 0 || address - entry->region.address >= entry->region.length ||
        length > entry->region.length - (address - entry->region.address))
        return NULL;
    return permits(entry->region.permission, access) ? &entry->region : NULL;
}

const struct te_region *te_registry_enter(struct te_registry_reader *reader, uint64_t address, uint64_t length,
                                          enum te_access access)
{
    atomic_store(&reader->epoch, atomic_load(&reader->registry->epoch));
    return te_registry_look_up(reader, address, length, access);
}

void te_registry_leave(struct te_registry_reader *reader)
{
    atomic_store_explicit(&reader->epoch, 0, memory_order_release);
}

uint64_t te_registry_version(struct te_registry *registry)
{
    return atomic_load(&registry->epoch);
}

static size_t location_bytes_of(const struct node *node)
{
    if (node == NULL)
        return 0;
    return location_bytes_of(node->left) + location_bytes_of(node->right) + strlen(node->entry->location) + 1;
}

/* Appends the regions of the tree to *next and their locations to *text. */
static void copy_regions(const struct node *node, struct te_region **next, char **text)
{
    if (node == NULL)
        return;
    copy_regions(node->left, next, text);
    **next = node->entry->region;
    (*next)->location = *text;
    *text = stpcpy(*text, node->entry->location) + 1;
    (*next)++;
    copy_regions(node->right, next, text);
}

static int compare_order(const void *left, const void *right)
{
    uint64_t left_order = ((const struct te_region *)left)->order;
    uint64_t right_order = ((const struct te_region *)right)->order;

    return left_order < right_order ? -1 : left_order > right_order;
}

struct te_region *te_registry_list(struct te_registry *registry, size_t *count, uint64_t *version)
{
    const struct node *root;
    struct te_region *regions, *next;
    char *text;

    pthread_mutex_lock(&registry->lock);
    root = atomic_load(&registry->root);
    regions = g_try_malloc(registry->count * sizeof(*regions) + location_bytes_of(root) + 1);
    if (regions == NULL)
        goto unlock;
    next = regions;
    text = (char *)(regions + registry->count);
    copy_regions(root, &next, &text);
    *count = registry->count;
    *version = atomic_load(&registry->epoch);
unlock:
    pthread_mutex_unlock(&registry->lock);
    if (regions == NULL) {
        te_fail(TE_MEMORY, "no memory to list the registered regions");
        return NULL;
    }
    qsort(regions, *count, sizeof(*regions), compare_order);
    return regions;
}
