/*
 * The segments that an engine has opened: ids, what is known of each at present, and asking for it anew.
 *
 * What is known is a view: immutable, reference counted, replaced as a whole. Slices under way keep the view they were
 * sent with. Fetches of one segment are numbered; at most one runs at a time and everybody who needs a newer answer
 * waits for the same one. A dead peer holds up nobody but those who wait for it.
 *
 * Any function may be called in any thread; those that block say so.
 */
#ifndef TE_CORE_SEGMENT_H
#define TE_CORE_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/net/address.h"
#include "core/segment_descriptor.h"
#include "core/status.h"
#include "core/task.h"
#include "core/worker.h"

struct te_engine;
struct te_segment;
struct te_segment_table;

enum { TE_FETCH_NUMBER_BITS = 30 }; /* numbers of fetches wrap at this width */

struct te_range {
    uint64_t address;
    uint64_t length;
};

struct te_segment_view {
    _Atomic size_t references; /* use te_segment_view_ref() and _unref() */
    struct te_segment *segment;
    struct te_segment_descriptor *descriptor;
    char data_host[TE_HOST_MAX]; /* numeric; empty when no data connection is possible */
    void *attachment;            /* the runtime's, made by its attach hook */
    struct te_range *ranges;     /* of the descriptor's buffers, by address; none if memory was short */
    size_t range_count;
};

/* The runtime's side. Called without any lock. */
struct te_segment_hooks {
    void *data;
    /* A view is about to become current: returns its attachment, or NULL. Must not block. */
    void *(*attach)(void *data, const struct te_segment_view *view);
    void (*detach)(void *data, void *attachment);
    /* Slices that waited for a fetch (a list linked by next) go on: with the present view, which may be NULL and is
     * lent for the call, and the status of that fetch. In a worker's thread. */
    void (*resume)(void *data, struct te_slice *slices, te_status status, struct te_segment_view *view);
};

struct te_segment_table *te_segment_table_new(struct te_engine *engine, const struct te_segment_hooks *hooks);
/* No slice may be waiting. */
void te_segment_table_free(struct te_segment_table *table);

/* The engine's own segment, id 0, becomes usable: transfers to it go to data_host. */
void te_segment_table_set_local(struct te_segment_table *table, struct te_segment_descriptor *descriptor,
                                const char *data_host);
/* From now on nothing waits any more: te_segment_await() hands slices to resume at once. Returns those that waited. */
struct te_slice *te_segment_table_stop(struct te_segment_table *table);
/* Drops all present views (their attachments are detached once the slices that use them have ended). */
void te_segment_table_clear(struct te_segment_table *table);

/* Opens a segment by name (leading slashes are skipped) and counts a user. Asks the owner if nothing is known, or, when
 * fresh, in any case; in the latter, a failure to ask is ignored if something is known. Blocks. TE_INVALID_ARGUMENT:
 * empty name; else what the store says. */
te_status te_segment_open(struct te_segment_table *table, const char *name, bool fresh, int32_t *id);
/* One user less. Without users the segment stays usable; what is known of it may be dropped and fetched again later. */
void te_segment_close(struct te_segment_table *table, int32_t id);
/* Drops what is known of the segment of that name, if any. */
void te_segment_forget(struct te_segment_table *table, const char *name);
/* Fetches all that are known, side by side. Blocks, at most timeout_ns; goes on by itself after that. */
void te_segment_refresh_all(struct te_segment_table *table, int64_t timeout_ns);
/* Whether the name, in whatever way it is written, is the engine's own. */
bool te_segment_is_own_name(struct te_segment_table *table, const char *name);
/* Asks the owner of that name now, whether it is open or not. Blocks. */
te_status te_segment_ask(struct te_segment_table *table, const char *name, struct te_segment_descriptor **descriptor);

/* NULL: no such segment. Takes no lock; the result lasts as long as the table. */
struct te_segment *te_segment_find(struct te_segment_table *table, int64_t id);
bool te_segment_is_local(const struct te_segment *segment);
const char *te_segment_name(const struct te_segment *segment);
/* The data of the hooks. */
void *te_segment_hook_data(const struct te_segment *segment);

/* The present view, one reference for the caller, or NULL. *fetch is the number of the latest fetch that has begun. */
struct te_segment_view *te_segment_view_get(struct te_segment *segment, uint32_t *fetch);
void te_segment_view_ref(struct te_segment_view *view, size_t count);
void te_segment_view_unref(struct te_segment_view *view);
/* How a call to the segment's owner went. Those to one that did not answer last time give way to others. */
void te_segment_note_call(struct te_segment *segment, te_status status);
/* The rank of a call to the owner that somebody waits for (core/worker.h). */
enum te_work_rank te_segment_work_rank(const struct te_segment *segment);
/* Whether one buffer of the descriptor is known to contain the whole range. */
bool te_segment_view_covers(const struct te_segment_view *view, uint64_t address, uint64_t length);

/* Makes sure that a fetch with a number above after has ended, and returns its status. Blocks. */
te_status te_segment_refresh(struct te_segment *segment, uint32_t after);
/* Whether such a fetch has ended already; if so, its status. */
bool te_segment_refreshed(struct te_segment *segment, uint32_t after, te_status *status);
/* Lets slices (a list linked by next) wait for such a fetch, which a worker makes; then they are handed to resume. */
void te_segment_await(struct te_segment *segment, struct te_slice *slices, uint32_t after);
/* Takes those slices that match out of all waiting lists; returns them as a list. */
struct te_slice *te_segment_withdraw(struct te_segment_table *table,
                                     bool (*match)(const struct te_slice *slice, const void *data), const void *data);

#endif
