/* The insides of segments: included by segment.c and segment_fetch.c only. */
#ifndef TE_CORE_SEGMENT_PRIVATE_H
#define TE_CORE_SEGMENT_PRIVATE_H

#include <glib.h>
#include <pthread.h>

#include "core/segment.h"

enum {
    TE_CHUNK_SEGMENTS = 1024,
    TE_CHUNKS_MAX = 1024,
};

struct te_slice_list {
    struct te_slice *head, **tail;
};

struct te_segment {
    struct te_segment_table *table;
    char *name;
    _Atomic bool doubtful; /* the last call to its owner has failed */

    /* Under the table's lock. */
    int32_t id;       /* negative until it has been opened with success; then never changed */
    unsigned users;   /* opens that were not closed */
    unsigned openers; /* calls of te_segment_open() under way */
    GList *unused;    /* its place in the table's list of segments without users, or NULL */

    pthread_mutex_t lock;
    pthread_cond_t fetch_ended;
    /* The rest is under this lock. */
    struct te_segment_view *view;
    uint32_t begun, ended; /* numbers of fetches, TE_FETCH_NUMBER_BITS wide */
    bool fetching;
    te_status last_status; /* of the fetch that ended last */
    char *last_message;
    struct te_slice_list waiting; /* for a fetch above waiting_after */
    struct te_slice_list covered; /* by the fetch that a worker is making for them */
    uint32_t waiting_after;
    bool resuming; /* a worker looks after the two lists */
};

struct te_segment_table {
    struct te_engine *engine;
    struct te_segment_hooks hooks;
    _Atomic bool stopped;
    _Atomic size_t resuming; /* segments that have slices waiting */

    pthread_mutex_t lock;
    GHashTable *by_name;
    GQueue unused; /* the one closed first at the head */
    _Atomic(struct te_segment **) chunks[TE_CHUNKS_MAX];
    _Atomic int32_t count; /* of ids given out */
};

static inline void te_slice_list_clear(struct te_slice_list *list)
{
    list->head = NULL;
    list->tail = &list->head;
}

/* Numbers of fetches wrap. */
static inline bool te_fetch_is_newer(uint32_t number, uint32_t than)
{
    return (int32_t)((number << (32 - TE_FETCH_NUMBER_BITS)) - (than << (32 - TE_FETCH_NUMBER_BITS))) > 0;
}

static inline uint32_t te_fetch_number(uint32_t number, int32_t step)
{
    return (number + (uint32_t)step) & ((1U << TE_FETCH_NUMBER_BITS) - 1);
}

/* A view with one reference, without data_host and attachment. */
struct te_segment_view *te_segment_view_new(struct te_segment *segment, struct te_segment_descriptor *descriptor);
/* Under the segment's lock; the old view is for the caller to release outside of it. */
struct te_segment_view *te_segment_swap_view(struct te_segment *segment, struct te_segment_view *view);

#endif
