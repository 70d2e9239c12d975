/*
 * The registered memory of one engine.
 *
 * Regions never overlap; touching ones are legal and stay apart. Writers are serialised by a lock. Readers take no
 * lock: they walk an immutable balanced tree whose root is swapped by writers. A reader holds what it found between
 * te_registry_enter() and te_registry_leave(); te_registry_remove() returns only when no reader holds a region it
 * removed, so that "unregistered" means that no transfer of ours touches the memory any more.
 */
#ifndef TE_CORE_MEMORY_REGISTRY_H
#define TE_CORE_MEMORY_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* The three that TENT's calls know; classic's give the first and the last. */
enum te_permission { TE_LOCAL_READ_WRITE, TE_GLOBAL_READ_ONLY, TE_GLOBAL_READ_WRITE };
enum te_access { TE_ACCESS_REMOTE_READ, TE_ACCESS_REMOTE_WRITE };

enum { TE_REGION_DRIVERS = 8 }; /* slots for the keys of transports that register memory with a device */

struct te_region {
    uint64_t address;
    uint64_t length;
    enum te_permission permission;
    uint64_t order;                       /* counts registrations; descriptors list regions by it */
    const char *location;                 /* as the caller gave it; owned by the registry */
    void *driver_keys[TE_REGION_DRIVERS]; /* set once by the owner of the slot before the region is published */
};

struct te_registry;
struct te_registry_reader;

/* NULL with te_fail() called: no memory. */
struct te_registry *te_registry_new(void);
/* No reader may be inside. Readers are freed with it, and must not be used or freed later. */
void te_registry_free(struct te_registry *registry);

/* Adds all of them or none. driver_keys and order of the given entries are ignored except that driver_keys are copied.
 * TE_INVALID_ARGUMENT: length 0, address 0, or address + length wraps. TE_ADDRESS_OVERLAPPED: with a registered one or
 * with each other. TE_MEMORY. Pages are not touched. count 0 is fine. */
te_status te_registry_add(struct te_registry *registry, const struct te_region *regions, size_t count);

/* Removes the regions that start at these addresses: all of them or none (TE_ADDRESS_NOT_REGISTERED, also for a doubled
 * address). Waits until no reader holds them: at most as long as one non-blocking socket call takes. Must not be called
 * between enter and leave. removed, if not NULL, receives copies (location excepted) for the caller to release driver
 * keys, of which transports that register memory with a device (rdma) have one per region. */
te_status te_registry_remove(struct te_registry *registry, const uint64_t *addresses, size_t count,
                             struct te_region *removed);

/* One per thread that serves peers; any number. NULL with te_fail() called: no memory. */
struct te_registry_reader *te_registry_reader_new(struct te_registry *registry);
void te_registry_reader_free(struct te_registry_reader *reader);

/* The one region that contains all of [address, address + length) and permits the access, or NULL (also when length is
 * 0 or the sum wraps). Wait-free. Whatever it returns, te_registry_leave() must follow; enter must not be nested on one
 * reader. */
const struct te_region *te_registry_enter(struct te_registry_reader *reader, uint64_t address, uint64_t length,
                                          enum te_access access);
/* Another range, between enter (whatever that returned) and leave. */
const struct te_region *te_registry_look_up(struct te_registry_reader *reader, uint64_t address, uint64_t length,
                                            enum te_access access);
void te_registry_leave(struct te_registry_reader *reader);

/* A counter that changes with every change of the set, to cache what was derived from it. */
uint64_t te_registry_version(struct te_registry *registry);

/* All regions in registration order, in a g_malloc'ed array for the caller to g_free; locations are copied into the
 * same block. *version is the version that the list belongs to. Never NULL but for lack of memory (te_fail() called).
 */
struct te_region *te_registry_list(struct te_registry *registry, size_t *count, uint64_t *version);

#endif
