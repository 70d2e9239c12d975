#include "core/segment.h"

#include <glib.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/peer_address.h"
#include "core/stores/store.h"
#include "core/worker.h"

enum {
    CHUNK_SEGMENTS = 1024,
    CHUNKS_MAX = 1024,
    UNUSED_MAX = 1024, /* segments without users of which the view is kept, in case they are opened again */
};

struct slice_list {
    struct te_slice *head, **tail;
};

struct te_segment {
    struct te_segment_table *table;
    char *name;

    /* Under the table's lock. */
    int32_t id;       /* negative until it has been opened with success; then never changed */
    unsigned users;   /* opens that were not closed */
    unsigned openers; /* calls of te_segment_open() under way */
    GList *unused;    /* its place in the table's list of segments without users, or NULL */

    GMutex lock;
    GCond fetch_ended;
    /* The rest is under this lock. */
    struct te_segment_view *view;
    uint32_t begun, ended; /* numbers of fetches, TE_FETCH_NUMBER_BITS wide */
    bool fetching;
    te_status last_status; /* of the fetch that ended last */
    char *last_message;
    struct slice_list waiting; /* for a fetch above waiting_after */
    struct slice_list covered; /* by the fetch that a worker is making for them */
    uint32_t waiting_after;
    bool resuming; /* a worker looks after the two lists */
};

struct te_segment_table {
    struct te_engine *engine;
    struct te_segment_hooks hooks;
    _Atomic bool stopped;
    _Atomic size_t resuming; /* segments that have slices waiting */

    GMutex lock;
    GHashTable *by_name;
    GQueue unused; /* the one closed first at the head */
    _Atomic(struct te_segment **) chunks[CHUNKS_MAX];
    _Atomic int32_t count; /* of ids given out */
};

/* Lists of slices */

static void list_clear(struct slice_list *list)
{
    list->head = NULL;
    list->tail = &list->head;
}

static void list_append(struct slice_list *list, struct te_slice *slices)
{
    *list->tail = slices;
    while (*list->tail != NULL)
        list->tail = &(*list->tail)->next;
}

static void list_move(struct slice_list *from, struct slice_list *to)
{
    if (from->head == NULL)
        return;
    *to->tail = from->head;
    to->tail = from->tail;
    list_clear(from);
}

static void list_filter(struct slice_list *list, struct slice_list *matching,
                        bool (*match)(const struct te_slice *, const void *), const void *data)
{
    struct te_slice *slice = list->head;

    list_clear(list);
    while (slice != NULL) {
        struct te_slice *next = slice->next;

        slice->next = NULL;
        list_append(match(slice, data) ? matching : list, slice);
        slice = next;
    }
}

/* Fetch numbers wrap. */

static bool is_newer(uint32_t number, uint32_t than)
{
    return (int32_t)((number << (32 - TE_FETCH_NUMBER_BITS)) - (than << (32 - TE_FETCH_NUMBER_BITS))) > 0;
}

static uint32_t number_after(uint32_t number, int32_t step)
{
    return (number + (uint32_t)step) & ((1U << TE_FETCH_NUMBER_BITS) - 1);
}

/* Views */

static int compare_ranges(const void *left_p, const void *right_p)
{
    const struct te_range *left = left_p, *right = right_p;

    return left->address < right->address ? -1 : left->address > right->address;
}

static struct te_segment_view *view_new(struct te_segment *segment, struct te_segment_descriptor *descriptor)
{
    struct te_segment_view *view = g_new0(struct te_segment_view, 1);

    atomic_init(&view->references, 1);
    view->segment = segment;
    view->descriptor = te_segment_descriptor_ref(descriptor);
    view->ranges = g_new(struct te_range, descriptor->buffer_count);
    view->range_count = descriptor->buffer_count;
    for (size_t i = 0; i < descriptor->buffer_count; i++)
        view->ranges[i] = (struct te_range){descriptor->buffers[i].address, descriptor->buffers[i].length};
    if (view->range_count > 1)
        qsort(view->ranges, view->range_count, sizeof(view->ranges[0]), compare_ranges);
    return view;
}

void te_segment_view_ref(struct te_segment_view *view, size_t count)
{
    atomic_fetch_add_explicit(&view->references, count, memory_order_relaxed);
}

void te_segment_view_unref(struct te_segment_view *view)
{
    const struct te_segment_hooks *hooks;

    if (view == NULL || atomic_fetch_sub_explicit(&view->references, 1, memory_order_acq_rel) != 1)
        return;
    hooks = &view->segment->table->hooks;
    if (view->attachment != NULL)
        hooks->detach(hooks->data, view->attachment);
    te_segment_descriptor_unref(view->descriptor);
    g_free(view->ranges);
    g_free(view);
}

bool te_segment_view_covers(const struct te_segment_view *view, uint64_t address, uint64_t length)
{
    size_t low = 0, high = view->range_count;

    /* The last range that begins at or before address. */
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (view->ranges[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    address -= view->ranges[low - 1].address;
    return length <= view->ranges[low - 1].length && address <= view->ranges[low - 1].length - length;
}

/* Under the segment's lock; the old view is for the caller to release outside of it. */
static struct te_segment_view *swap_view(struct te_segment *segment, struct te_segment_view *view)
{
    struct te_segment_view *old = segment->view;

    segment->view = view;
    return old;
}

static void drop_view(struct te_segment *segment)
{
    struct te_segment_view *old;

    g_mutex_lock(&segment->lock);
    old = swap_view(segment, NULL);
    g_mutex_unlock(&segment->lock);
    te_segment_view_unref(old);
}

struct te_segment_view *te_segment_view_get(struct te_segment *segment, uint32_t *fetch)
{
    struct te_segment_view *view;

    g_mutex_lock(&segment->lock);
    view = segment->view;
    if (view != NULL)
        te_segment_view_ref(view, 1);
    if (fetch != NULL)
        *fetch = segment->begun;
    g_mutex_unlock(&segment->lock);
    return view;
}

/* Segments */

static struct te_segment *segment_new(struct te_segment_table *table, const char *name)
{
    struct te_segment *segment = g_new0(struct te_segment, 1);

    segment->table = table;
    segment->name = g_strdup(name);
    segment->id = -1;
    g_mutex_init(&segment->lock);
    g_cond_init(&segment->fetch_ended);
    list_clear(&segment->waiting);
    list_clear(&segment->covered);
    return segment;
}

static void segment_free(struct te_segment *segment)
{
    te_segment_view_unref(segment->view);
    g_mutex_clear(&segment->lock);
    g_cond_clear(&segment->fetch_ended);
    g_free(segment->last_message);
    g_free(segment->name);
    g_free(segment);
}

/* Under the table's lock. TE_TOO_MANY_REQUESTS when a million segments are open. */
static te_status give_id(struct te_segment_table *table, struct te_segment *segment)
{
    int32_t id = atomic_load_explicit(&table->count, memory_order_relaxed);
    _Atomic(struct te_segment **) *chunk = &table->chunks[id / CHUNK_SEGMENTS];

    if (id == CHUNK_SEGMENTS * CHUNKS_MAX)
        return te_fail(TE_TOO_MANY_REQUESTS, "more than %d segments", id);
    if (id % CHUNK_SEGMENTS == 0)
        atomic_store_explicit(chunk, g_new0(struct te_segment *, CHUNK_SEGMENTS), memory_order_relaxed);
    atomic_load_explicit(chunk, memory_order_relaxed)[id % CHUNK_SEGMENTS] = segment;
    segment->id = id;
    atomic_store_explicit(&table->count, id + 1, memory_order_release);
    return TE_OK;
}

struct te_segment *te_segment_find(struct te_segment_table *table, int64_t id)
{
    if (id < 0 || id >= atomic_load_explicit(&table->count, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(&table->chunks[id / CHUNK_SEGMENTS], memory_order_relaxed)[id % CHUNK_SEGMENTS];
}

bool te_segment_is_local(const struct te_segment *segment)
{
    return segment->id == 0;
}

const char *te_segment_name(const struct te_segment *segment)
{
    return segment->name;
}

void *te_segment_hook_data(const struct te_segment *segment)
{
    return segment->table->hooks.data;
}

struct te_segment_table *te_segment_table_new(struct te_engine *engine, const struct te_segment_hooks *hooks)
{
    struct te_segment_table *table = g_new0(struct te_segment_table, 1);

    table->engine = engine;
    table->hooks = *hooks;
    g_mutex_init(&table->lock);
    table->by_name = g_hash_table_new(g_str_hash, g_str_equal);
    g_queue_init(&table->unused);
    give_id(table, segment_new(table, engine->name));
    return table;
}

void te_segment_table_free(struct te_segment_table *table)
{
    int32_t count = atomic_load(&table->count);

    for (int32_t id = 0; id < count; id++)
        segment_free(te_segment_find(table, id));
    for (size_t i = 0; i < CHUNKS_MAX; i++)
        g_free(atomic_load_explicit(&table->chunks[i], memory_order_relaxed));
    g_queue_clear(&table->unused);
    g_hash_table_unref(table->by_name);
    g_mutex_clear(&table->lock);
    g_free(table);
}

void te_segment_table_set_local(struct te_segment_table *table, struct te_segment_descriptor *descriptor,
                                const char *data_host)
{
    struct te_segment *segment = te_segment_find(table, 0);
    struct te_segment_view *view = view_new(segment, descriptor);
    struct te_segment_view *old;

    g_strlcpy(view->data_host, data_host, sizeof(view->data_host));
    view->attachment = table->hooks.attach(table->hooks.data, view);
    g_mutex_lock(&segment->lock);
    old = swap_view(segment, view);
    g_mutex_unlock(&segment->lock);
    te_segment_view_unref(old);
}

void te_segment_table_clear(struct te_segment_table *table)
{
    int32_t count = atomic_load_explicit(&table->count, memory_order_acquire);

    for (int32_t id = 0; id < count; id++)
        drop_view(te_segment_find(table, id));
}

/* Fetching */

/* Asks the owner and makes a view of the answer. Blocks. */
static te_status fetch_view(struct te_segment *segment, struct te_segment_view **view_p)
{
    struct te_segment_table *table = segment->table;
    struct te_store *store = table->engine->store;
    struct te_segment_descriptor *descriptor;
    struct te_segment_view *view;
    char host[TE_HOST_MAX];
    uint16_t port;
    te_status status = store->ops->find_segment(store, segment->name, &descriptor);

    if (status != TE_OK)
        return status;
    view = view_new(segment, descriptor);
    te_segment_descriptor_unref(descriptor);
    if (store->ops->find_address(store, segment->name, host, &port) == TE_OK)
        te_peer_data_host(table->engine, view->descriptor, host, view->data_host);
    view->attachment = table->hooks.attach(table->hooks.data, view);
    *view_p = view;
    return TE_OK;
}

/* Called with the segment's lock, which it lets go of meanwhile. */
static void fetch(struct te_segment *segment)
{
    uint32_t number = segment->begun = number_after(segment->begun, 1);
    struct te_segment_view *view = NULL;
    te_status status;

    segment->fetching = true;
    g_mutex_unlock(&segment->lock);
    status = fetch_view(segment, &view);
    g_mutex_lock(&segment->lock);
    if (status == TE_OK)
        view = swap_view(segment, view);
    segment->last_status = status;
    g_free(segment->last_message);
    segment->last_message = status == TE_OK ? NULL : g_strdup(te_status_message());
    segment->ended = number;
    segment->fetching = false;
    g_cond_broadcast(&segment->fetch_ended);
    if (view == NULL)
        return;
    g_mutex_unlock(&segment->lock);
    te_segment_view_unref(view);
    g_mutex_lock(&segment->lock);
}

te_status te_segment_refresh(struct te_segment *segment, uint32_t after)
{
    te_status status;

    if (te_segment_is_local(segment))
        return TE_OK;
    g_mutex_lock(&segment->lock);
    while (!is_newer(segment->ended, after)) {
        if (segment->fetching)
            g_cond_wait(&segment->fetch_ended, &segment->lock);
        else
            fetch(segment);
    }
    status = segment->last_status;
    if (status != TE_OK)
        te_fail(status, "%s", segment->last_message);
    g_mutex_unlock(&segment->lock);
    return status;
}

bool te_segment_refreshed(struct te_segment *segment, uint32_t after, te_status *status)
{
    bool refreshed;

    g_mutex_lock(&segment->lock);
    refreshed = te_segment_is_local(segment) || is_newer(segment->ended, after);
    if (refreshed)
        *status = segment->last_status;
    g_mutex_unlock(&segment->lock);
    return refreshed;
}

/* Slices that wait */

static void resume_waiting(void *data)
{
    struct te_segment *segment = data;
    struct te_segment_table *table = segment->table;

    g_mutex_lock(&segment->lock);
    for (;;) {
        struct te_segment_view *view;
        struct te_slice *slices;
        uint32_t after = segment->waiting_after;
        te_status status;

        list_move(&segment->waiting, &segment->covered);
        if (segment->covered.head == NULL)
            break;
        g_mutex_unlock(&segment->lock);
        status = te_segment_refresh(segment, after);
        g_mutex_lock(&segment->lock);
        slices = segment->covered.head;
        list_clear(&segment->covered);
        g_mutex_unlock(&segment->lock);
        view = te_segment_view_get(segment, NULL);
        if (slices != NULL)
            table->hooks.resume(table->hooks.data, slices, status, view);
        te_segment_view_unref(view);
        g_mutex_lock(&segment->lock);
    }
    segment->resuming = false;
    atomic_fetch_sub_explicit(&table->resuming, 1, memory_order_relaxed);
    g_mutex_unlock(&segment->lock);
}

void te_segment_await(struct te_segment *segment, struct te_slice *slices, uint32_t after)
{
    struct te_segment_table *table = segment->table;
    bool start = false;

    g_mutex_lock(&segment->lock);
    if (!atomic_load_explicit(&table->stopped, memory_order_relaxed)) {
        if (segment->waiting.head == NULL || is_newer(after, segment->waiting_after))
            segment->waiting_after = after;
        list_append(&segment->waiting, slices);
        slices = NULL;
        start = !segment->resuming;
        if (start) {
            segment->resuming = true;
            atomic_fetch_add_explicit(&table->resuming, 1, memory_order_relaxed);
            te_worker_run(table->engine->workers, resume_waiting, segment);
        }
    }
    g_mutex_unlock(&segment->lock);
    if (slices != NULL)
        table->hooks.resume(table->hooks.data, slices, TE_SOCKET, NULL);
}

struct te_slice *te_segment_withdraw(struct te_segment_table *table,
                                     bool (*match)(const struct te_slice *slice, const void *data), const void *data)
{
    int32_t count = atomic_load_explicit(&table->count, memory_order_acquire);
    struct slice_list matching;

    list_clear(&matching);
    if (atomic_load_explicit(&table->resuming, memory_order_relaxed) == 0)
        return NULL;
    for (int32_t id = 0; id < count; id++) {
        struct te_segment *segment = te_segment_find(table, id);

        g_mutex_lock(&segment->lock);
        list_filter(&segment->covered, &matching, match, data);
        list_filter(&segment->waiting, &matching, match, data);
        g_mutex_unlock(&segment->lock);
    }
    return matching.head;
}

static bool match_all(const struct te_slice *slice, const void *data)
{
    (void)slice;
    (void)data;
    return true;
}

struct te_slice *te_segment_table_stop(struct te_segment_table *table)
{
    int32_t count = atomic_load_explicit(&table->count, memory_order_acquire);

    atomic_store_explicit(&table->stopped, true, memory_order_relaxed);
    /* Whoever saw the table running holds the lock of its segment until its slices are in the list. */
    for (int32_t id = 0; id < count; id++) {
        struct te_segment *segment = te_segment_find(table, id);

        g_mutex_lock(&segment->lock);
        g_mutex_unlock(&segment->lock);
    }
    return te_segment_withdraw(table, match_all, NULL);
}

/* Opening and closing */

static const char *skip_slashes(const char *name)
{
    return name + strspn(name, "/");
}

bool te_segment_is_own_name(struct te_segment_table *table, const char *name)
{
    const struct te_engine *engine = table->engine;
    char host[TE_HOST_MAX];
    uint16_t port;

    name = skip_slashes(name);
    if (strcmp(name, engine->name) == 0)
        return true;
    return engine->store->ops->names_are_addresses && te_server_name_split(name, 0, host, &port) == TE_OK &&
           port == engine->port && strcmp(host, engine->host) == 0;
}

/* A segment to be opened, found or made; counted among its openers. */
static struct te_segment *begin_open(struct te_segment_table *table, const char *name)
{
    struct te_segment *segment;

    g_mutex_lock(&table->lock);
    segment = g_hash_table_lookup(table->by_name, name);
    if (segment == NULL) {
        segment = segment_new(table, name);
        g_hash_table_insert(table->by_name, segment->name, segment);
    }
    segment->openers++;
    g_mutex_unlock(&table->lock);
    return segment;
}

/* Counts a user if status is TE_OK; a segment that was never opened with success goes with its last opener. */
static te_status end_open(struct te_segment_table *table, struct te_segment *segment, te_status status, int32_t *id)
{
    bool remove;

    g_mutex_lock(&table->lock);
    segment->openers--;
    if (status == TE_OK && segment->id < 0)
        status = give_id(table, segment);
    if (status == TE_OK) {
        if (segment->unused != NULL) {
            g_queue_delete_link(&table->unused, segment->unused);
            segment->unused = NULL;
        }
        segment->users++;
        *id = segment->id;
    }
    remove = segment->id < 0 && segment->openers == 0;
    if (remove)
        g_hash_table_remove(table->by_name, segment->name);
    g_mutex_unlock(&table->lock);
    if (remove)
        segment_free(segment);
    return status;
}

te_status te_segment_open(struct te_segment_table *table, const char *name, bool fresh, int32_t *id)
{
    struct te_segment *segment;
    te_status status = TE_OK;
    uint32_t after;
    bool known;

    name = skip_slashes(name);
    if (name[0] == '\0')
        return te_fail(TE_INVALID_ARGUMENT, "empty segment name");
    if (te_segment_is_own_name(table, name)) {
        *id = 0;
        return TE_OK;
    }
    segment = begin_open(table, name);
    g_mutex_lock(&segment->lock);
    known = segment->view != NULL;
    after = segment->begun;
    if (!fresh && segment->fetching)
        after = number_after(after, -1); /* that one will do */
    g_mutex_unlock(&segment->lock);
    if (!known || fresh)
        status = te_segment_refresh(segment, after);
    if (known)
        status = TE_OK;
    return end_open(table, segment, status, id);
}

void te_segment_close(struct te_segment_table *table, int32_t id)
{
    struct te_segment *segment = te_segment_find(table, id);
    struct te_segment *oldest = NULL;

    if (segment == NULL || id == 0)
        return;
    g_mutex_lock(&table->lock);
    if (segment->users > 0 && --segment->users == 0) {
        g_queue_push_tail(&table->unused, segment);
        segment->unused = g_queue_peek_tail_link(&table->unused);
    }
    if (g_queue_get_length(&table->unused) > UNUSED_MAX) {
        oldest = g_queue_pop_head(&table->unused);
        oldest->unused = NULL;
    }
    g_mutex_unlock(&table->lock);
    if (oldest != NULL)
        drop_view(oldest);
}

/* An open segment, which lasts, or NULL. */
static struct te_segment *find_by_name(struct te_segment_table *table, const char *name)
{
    struct te_segment *segment;

    g_mutex_lock(&table->lock);
    segment = g_hash_table_lookup(table->by_name, name);
    if (segment != NULL && segment->id < 0)
        segment = NULL;
    g_mutex_unlock(&table->lock);
    return segment;
}

void te_segment_forget(struct te_segment_table *table, const char *name)
{
    struct te_segment *segment = find_by_name(table, skip_slashes(name));

    if (segment != NULL)
        drop_view(segment);
}

te_status te_segment_ask(struct te_segment_table *table, const char *name, struct te_segment_descriptor **descriptor)
{
    struct te_store *store = table->engine->store;
    struct te_segment *segment;
    struct te_segment_view *view;
    uint32_t begun;
    te_status status;

    name = skip_slashes(name);
    if (name[0] == '\0')
        return te_fail(TE_INVALID_ARGUMENT, "empty segment name");
    segment = find_by_name(table, name);
    if (segment == NULL)
        return store->ops->find_segment(store, name, descriptor);
    te_segment_view_unref(te_segment_view_get(segment, &begun));
    status = te_segment_refresh(segment, begun);
    if (status != TE_OK)
        return status;
    view = te_segment_view_get(segment, NULL);
    if (view == NULL)
        return store->ops->find_segment(store, name, descriptor);
    *descriptor = te_segment_descriptor_ref(view->descriptor);
    te_segment_view_unref(view);
    return TE_OK;
}

/* Refreshing all */

struct sweep {
    GMutex lock;
    GCond ended;
    size_t left;
    size_t references;
};

struct sweep_job {
    struct sweep *sweep;
    struct te_segment *segment;
    uint32_t after;
};

/* With the sweep's lock, which it releases. */
static void leave_sweep(struct sweep *sweep)
{
    bool last = --sweep->references == 0;

    g_mutex_unlock(&sweep->lock);
    if (!last)
        return;
    g_mutex_clear(&sweep->lock);
    g_cond_clear(&sweep->ended);
    g_free(sweep);
}

static void refresh_one(void *data)
{
    struct sweep_job *job = data;
    struct sweep *sweep = job->sweep;

    te_segment_refresh(job->segment, job->after);
    g_free(job);
    g_mutex_lock(&sweep->lock);
    if (--sweep->left == 0)
        g_cond_signal(&sweep->ended);
    leave_sweep(sweep);
}

void te_segment_refresh_all(struct te_segment_table *table, int64_t timeout_ns)
{
    int32_t count = atomic_load_explicit(&table->count, memory_order_acquire);
    gint64 until = g_get_monotonic_time() + timeout_ns / 1000;
    struct sweep *sweep = g_new0(struct sweep, 1);

    g_mutex_init(&sweep->lock);
    g_cond_init(&sweep->ended);
    sweep->references = 1;
    for (int32_t id = 1; id < count; id++) {
        struct te_segment *segment = te_segment_find(table, id);
        uint32_t begun;
        struct te_segment_view *view = te_segment_view_get(segment, &begun);
        struct sweep_job *job;

        if (view == NULL)
            continue;
        te_segment_view_unref(view);
        job = g_new0(struct sweep_job, 1);
        *job = (struct sweep_job){sweep, segment, begun};
        g_mutex_lock(&sweep->lock);
        sweep->left++;
        sweep->references++;
        g_mutex_unlock(&sweep->lock);
        te_worker_run(table->engine->workers, refresh_one, job);
    }
    g_mutex_lock(&sweep->lock);
    while (sweep->left > 0)
        if (!g_cond_wait_until(&sweep->ended, &sweep->lock, until))
            break;
    leave_sweep(sweep);
}
