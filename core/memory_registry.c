/*
 * Writers prepare a change of the tree under the lock and swap the root.
 *
 * Reclamation: `epoch` counts published changes. A reader announces the epoch it saw before it loads the root. What a
 * change replaced is stamped with the epoch before that change; a reader that announced a later epoch, or announces
 * itself after the writer looked, cannot see it any more.
 */
#include "core/memory_registry.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <glib.h>

#include "core/region_tree.h"

struct te_registry_reader {
    _Alignas(64) _Atomic uint64_t epoch; /* 0 while outside */
    struct te_registry *registry;
    struct te_registry_reader *next; /* set before publication; readers are freed with the registry only */
    bool used;                       /* under the lock */
};

struct te_registry {
    _Atomic(struct te_region_node *) root;
    _Atomic uint64_t epoch; /* from 1; the version that callers see */
    _Atomic(struct te_registry_reader *) readers;

    pthread_mutex_t lock; /* for writers, and for what follows */
    uint64_t next_order;
    size_t count;
    struct te_retired *oldest_retired, **retired_end;
};

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

void te_registry_free(struct te_registry *registry)
{
    if (registry == NULL)
        return;
    for (struct te_registry_reader *reader = atomic_load(&registry->readers), *next; reader != NULL; reader = next) {
        next = reader->next;
        free(reader);
    }
    te_region_tree_free(atomic_load(&registry->root));
    te_retired_free(registry->oldest_retired);
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
static struct te_retired *take_reclaimable(struct te_registry *registry)
{
    uint64_t oldest = oldest_reader_epoch(registry);
    struct te_retired *first = registry->oldest_retired;
    struct te_retired **end = &first;

    while (*end != NULL && (*end)->epoch < oldest)
        end = &(*end)->next;
    registry->oldest_retired = *end;
    if (*end == NULL)
        registry->retired_end = &registry->oldest_retired;
    *end = NULL;
    return first;
}

static void edit_begin(struct te_registry *registry, struct te_region_edit *edit)
{
    pthread_mutex_lock(&registry->lock);
    *edit = (struct te_region_edit){.number = atomic_load(&registry->epoch), .root = atomic_load(&registry->root)};
}

static void edit_undo(struct te_registry *registry, struct te_region_edit *edit)
{
    pthread_mutex_unlock(&registry->lock);
    te_region_edit_undo(edit);
}

static void retire_all(struct te_registry *registry, struct te_retired *list, uint64_t epoch)
{
    while (list != NULL) {
        struct te_retired *item = list;

        list = item->next;
        item->epoch = epoch;
        item->next = NULL;
        *registry->retired_end = item;
        registry->retired_end = &item->next;
    }
}

/* Publishes and unlocks. Returns the highest epoch that a reader who still sees the old tree can have announced. */
static uint64_t edit_commit(struct te_registry *registry, struct te_region_edit *edit)
{
    struct te_retired *dropped = te_region_edit_take_dropped(edit), *reclaimable;
    uint64_t epoch;

    atomic_store(&registry->root, edit->root);
    epoch = atomic_fetch_add(&registry->epoch, 1);
    retire_all(registry, edit->nodes_replaced, epoch);
    retire_all(registry, edit->entries_removed, epoch);
    reclaimable = take_reclaimable(registry);
    pthread_mutex_unlock(&registry->lock);

    te_retired_free(dropped);
    te_retired_free(reclaimable);
    return epoch;
}

te_status te_registry_add(struct te_registry *registry, const struct te_region *regions, size_t count)
{
    struct te_region_edit edit;

    if (count == 0)
        return TE_OK;
    edit_begin(registry, &edit);
    for (size_t i = 0; i < count; i++) {
        te_status status = te_region_edit_add(&edit, &regions[i], registry->next_order + i);

        if (status != TE_OK) {
            edit_undo(registry, &edit);
            return status;
        }
    }
    registry->next_order += count;
    registry->count += count;
    edit_commit(registry, &edit);
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
    struct te_retired *reclaimable;

    pthread_mutex_lock(&registry->lock);
    reclaimable = take_reclaimable(registry);
    pthread_mutex_unlock(&registry->lock);
    te_retired_free(reclaimable);
}

te_status te_registry_remove(struct te_registry *registry, const uint64_t *addresses, size_t count,
                             struct te_region *removed)
{
    struct te_region_edit edit;
    size_t at = count;

    if (count == 0)
        return TE_OK;
    edit_begin(registry, &edit);
    for (size_t i = 0; i < count; i++) {
        te_status status = te_region_edit_remove(&edit, addresses[i]);

        if (status != TE_OK) {
            edit_undo(registry, &edit);
            return status;
        }
    }
    for (struct te_retired *item = edit.entries_removed; item != NULL && removed != NULL; item = item->next) {
        removed[--at] = ((struct te_region_entry *)item)->region;
        removed[at].location = NULL;
    }
    registry->count -= count;
    wait_for_readers(registry, edit_commit(registry, &edit));
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
    const struct te_region_entry *entry = te_region_tree_find(atomic_load(&reader->registry->root), address);

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

static size_t location_bytes_of(const struct te_region_node *node)
{
    if (node == NULL)
        return 0;
    return location_bytes_of(node->left) + location_bytes_of(node->right) + strlen(node->entry->location) + 1;
}

/* Appends the regions of the tree to *next and their locations to *text. */
static void copy_regions(const struct te_region_node *node, struct te_region **next, char **text)
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
    const struct te_region_node *root;
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
