/*
 * The tree under the memory registry: regions by address, immutable once published. It is a treap (a binary search tree
 * by address that is also a heap by a pseudo-random priority), hence balanced whatever the order of registration. A
 * change copies the nodes on the way to it, each once.
 *
 * Whoever publishes a tree decides when what a change replaced may be freed. None of these functions locks.
 */
#ifndef TE_CORE_REGION_TREE_H
#define TE_CORE_REGION_TREE_H

#include "core/memory_registry.h"

/* First member of everything that waits for readers before it is freed. */
struct te_retired {
    struct te_retired *next;
    uint64_t epoch;
};

struct te_region_entry {
    struct te_retired retired;
    struct te_region region;
    char location[];
};

struct te_region_node {
    struct te_retired retired;
    uint64_t address;
    uint64_t priority;
    uint64_t edit; /* number of the edit that made it; that edit may still change it */
    struct te_region_entry *entry;
    struct te_region_node *left, *right;
};

/* A change that is being prepared: zero but for root and number. Then either publish root and retire what was replaced
 * and removed, or undo it. */
struct te_region_edit {
    uint64_t number; /* higher than that of any published edit */
    struct te_region_node *root;
    struct te_retired *nodes_made; /* those that fell out of the tree again have no entry */
    struct te_retired *entries_made;
    struct te_retired *nodes_replaced; /* published ones */
    struct te_retired *entries_removed;
    bool out_of_memory;
};

/* The region with the highest start that is not above address, or NULL. */
struct te_region_entry *te_region_tree_find(const struct te_region_node *node, uint64_t address);
/* With its entries. */
void te_region_tree_free(struct te_region_node *node);

/* As te_registry_add() and te_registry_remove() with one region. After a failure the edit must be undone. */
te_status te_region_edit_add(struct te_region_edit *edit, const struct te_region *region, uint64_t order);
te_status te_region_edit_remove(struct te_region_edit *edit, uint64_t address);
void te_region_edit_undo(struct te_region_edit *edit);

/* Before the edit is published: those nodes that it made and dropped again, to be freed. */
struct te_retired *te_region_edit_take_dropped(struct te_region_edit *edit);

void te_retired_free(struct te_retired *retired);

#endif
