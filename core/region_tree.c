#include "core/region_tree.h"

#include <inttypes.h>
#include <string.h>

#include <glib.h>

/* SplitMix64: numbers that follow each other become priorities without order. */
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

struct te_region_entry *te_region_tree_find(const struct te_region_node *node, uint64_t address)
{
    struct te_region_entry *best = NULL;

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

void te_region_tree_free(struct te_region_node *node)
{
    if (node == NULL)
        return;
    te_region_tree_free(node->left);
    te_region_tree_free(node->right);
    g_free(node->entry);
    g_free(node);
}

void te_retired_free(struct te_retired *retired)
{
    while (retired != NULL) {
        struct te_retired *next = retired->next;

        g_free(retired);
        retired = next;
    }
}

static void push(struct te_retired **list, struct te_retired *item)
{
    item->next = *list;
    *list = item;
}

static struct te_region_node *edit_new_node(struct te_region_edit *edit)
{
    struct te_region_node *node = g_try_new0(struct te_region_node, 1);

    if (node == NULL) {
        edit->out_of_memory = true;
        return NULL;
    }
    push(&edit->nodes_made, &node->retired);
    return node;
}

/* A node that this edit may change: the same or a copy. Out of memory: the node as it is; the edit is going to be
 * undone and the caller must not change it. */
static struct te_region_node *edit_own(struct te_region_edit *edit, struct te_region_node *node)
{
    struct te_region_node *copy;

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

static void edit_drop(struct te_region_edit *edit, struct te_region_node *node)
{
    if (node->edit == edit->number)
        node->entry = NULL;
    else
        push(&edit->nodes_replaced, &node->retired);
}

static struct te_region_node *insert(struct te_region_edit *edit, struct te_region_node *node,
                                     struct te_region_node *added)
{
    struct te_region_node *child;

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
static struct te_region_node *join(struct te_region_edit *edit, struct te_region_node *left,
                                   struct te_region_node *right)
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
static struct te_region_node *detach(struct te_region_edit *edit, struct te_region_node *node, uint64_t address)
{
    if (node->address == address) {
        struct te_region_node *rest = join(edit, node->left, node->right);

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

void te_region_edit_undo(struct te_region_edit *edit)
{
    te_retired_free(edit->nodes_made);
    te_retired_free(edit->entries_made);
}

struct te_retired *te_region_edit_take_dropped(struct te_region_edit *edit)
{
    struct te_retired *dropped = NULL;

    for (struct te_retired *made = edit->nodes_made, *next; made != NULL; made = next) {
        next = made->next;
        if (((struct te_region_node *)made)->entry == NULL)
            push(&dropped, made);
    }
    return dropped;
}

static te_status check_region(const struct te_region_edit *edit, const struct te_region *region)
{
    const struct te_region_entry *below;

    if (region->length == 0)
        return te_fail(TE_INVALID_ARGUMENT, "a region of length 0 cannot be registered");
    if (region->address == 0)
        return te_fail(TE_INVALID_ARGUMENT, "a region at address 0 cannot be registered");
    if (region->length > UINT64_MAX - region->address)
        return te_fail(TE_INVALID_ARGUMENT,
                       "the region at 0x%" PRIx64 " of %" PRIu64 " bytes exceeds the address space", region->address,
                       region->length);
    below = te_region_tree_find(edit->root, last_byte(region));
    if (below != NULL && last_byte(&below->region) >= region->address)
        return te_fail(TE_ADDRESS_OVERLAPPED,
                       "the region at 0x%" PRIx64 " of %" PRIu64 " bytes overlaps the registered one at 0x%" PRIx64
                       " of %" PRIu64 " bytes",
                       region->address, region->length, below->region.address, below->region.length);
    return TE_OK;
}

static struct te_region_entry *edit_new_entry(struct te_region_edit *edit, const struct te_region *region,
                                              uint64_t order)
{
    const char *location = region->location != NULL ? region->location : "";
    size_t location_bytes = strlen(location) + 1;
    struct te_region_entry *entry = g_try_malloc(sizeof(*entry) + location_bytes);

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

te_status te_region_edit_add(struct te_region_edit *edit, const struct te_region *region, uint64_t order)
{
    te_status status = check_region(edit, region);
    struct te_region_entry *entry;
    struct te_region_node *node;

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

te_status te_region_edit_remove(struct te_region_edit *edit, uint64_t address)
{
    struct te_region_entry *entry = te_region_tree_find(edit->root, address);

    if (entry == NULL || entry->region.address != address)
        return te_fail(TE_ADDRESS_NOT_REGISTERED, "no region that starts at 0x%" PRIx64 " is registered", address);
    edit->root = detach(edit, edit->root, address);
    if (edit->out_of_memory)
        return te_fail(TE_MEMORY, "no memory to unregister a region");
    push(&edit->entries_removed, &entry->retired);
    return TE_OK;
}
