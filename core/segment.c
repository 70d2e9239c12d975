/* Segments: ids, views, opening and closing. */
#include "core/segment_private.h"

#include <stdlib.h>
#include <string.h>

#include "core/condition.h"
#include "core/engine.h"
#include "core/stores/store.h"

/* Segments without users of which the view is kept, in case they are opened again. */
enum { UNUSED_MAX = 1024 };

/* Views */

static int compare_ranges(const void *left_p, const void *right_p)
{
    const struct te_range *left = left_p, *right = right_p;

    return left->address < right->address ? -1 : left->address > right->address;
}

struct te_segment_view *te_segment_view_new(struct te_segment *segment, struct te_segment_descriptor *descriptor)
{
    struct te_segment_view *view = g_new0(struct te_segment_view, 1);

    atomic_init(&view->references, 1);
    view->segment = segment;
    view->descriptor = te_segment_descriptor_ref(descriptor);
    /* Without memory for them nothing is covered, so that each request is sent as one. */
    view->ranges = g_try_new(struct te_range, descriptor->buffer_count);
    view->range_count = view->ranges != NULL ? descriptor->buffer_count : 0;
    for (size_t i = 0; i < view->range_count; i++)
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

struct te_segment_view *te_segment_swap_view(struct te_segment *segment, struct te_segment_view *view)
{
    struct te_segment_view *old = segment->view;

    segment->view = view;
    return old;
}

static void drop_view(struct te_segment *segment)
{
    struct te_segment_view *old;

    pthread_mutex_lock(&segment->lock);
    old = te_segment_swap_view(segment, NULL);
    pthread_mutex_unlock(&segment->lock);
    te_segment_view_unref(old);
}

struct te_segment_view *te_segment_view_get(struct te_segment *segment, uint32_t *fetch)
{
    struct te_segment_view *view;

    pthread_mutex_lock(&segment->lock);
    view = segment->view;
    if (view != NULL)
        te_segment_view_ref(view, 1);
    if (fetch != NULL)
        *fetch = segment->begun;
    pthread_mutex_unlock(&segment->lock);
    return view;
}

/* Segments */

void te_segment_note_call(struct te_segment *segment, te_status status)
{
    atomic_store_explicit(&segment->doubtful, status != TE_OK, memory_order_relaxed);
}

enum te_work_rank te_segment_work_rank(const struct te_segment *segment)
{
    return atomic_load_explicit(&segment->doubtful, memory_order_relaxed) ? TE_WORK_PROMPT_DOUBTFUL : TE_WORK_PROMPT;
}

static struct te_segment *segment_new(struct te_segment_table *table, const char *name)
{
    struct te_segment *segment = g_new0(struct te_segment, 1);

    segment->table = table;
    segment->name = g_strdup(name);
    segment->id = -1;
    pthread_mutex_init(&segment->lock, NULL);
    te_condition_init(&segment->fetch_ended);
    te_slice_list_clear(&segment->waiting);
    te_slice_list_clear(&segment->covered);
    return segment;
}

static void segment_free(struct te_segment *segment)
{
    te_segment_view_unref(segment->view);
    pthread_mutex_destroy(&segment->lock);
    pthread_cond_destroy(&segment->fetch_ended);
    g_free(segment->last_message);
    g_free(segment->name);
    g_free(segment);
}

/* Under the table's lock. TE_TOO_MANY_REQUESTS when a million segments are open. */
static te_status give_id(struct te_segment_table *table, struct te_segment *segment)
{
    int32_t id = atomic_load_explicit(&table->count, memory_order_relaxed);
    _Atomic(struct te_segment **) *chunk = &table->chunks[id / TE_CHUNK_SEGMENTS];

    if (id == TE_CHUNK_SEGMENTS * TE_CHUNKS_MAX)
        return te_fail(TE_TOO_MANY_REQUESTS, "more than %d segments", id);
    if (id % TE_CHUNK_SEGMENTS == 0)
        atomic_store_explicit(chunk, g_new0(struct te_segment *, TE_CHUNK_SEGMENTS), memory_order_relaxed);
    atomic_load_explicit(chunk, memory_order_relaxed)[id % TE_CHUNK_SEGMENTS] = segment;
    segment->id = id;
    atomic_store_explicit(&table->count, id + 1, memory_order_release);
    return TE_OK;
}

struct te_segment *te_segment_find(struct te_segment_table *table, int64_t id)
{
    if (id < 0 || id >= atomic_load_explicit(&table->count, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(&table->chunks[id / TE_CHUNK_SEGMENTS], memory_order_relaxed)[id % TE_CHUNK_SEGMENTS];
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
    pthread_mutex_init(&table->lock, NULL);
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
    for (size_t i = 0; i < TE_CHUNKS_MAX; i++)
        g_free(atomic_load_explicit(&table->chunks[i], memory_order_relaxed));
    g_queue_clear(&table->unused);
    g_hash_table_unref(table->by_name);
    pthread_mutex_destroy(&table->lock);
    g_free(table);
}

void te_segment_table_set_local(struct te_segment_table *table, struct te_segment_descriptor *descriptor,
                                const char *data_host)
{
    struct te_segment *segment = te_segment_find(table, 0);
    struct te_segment_view *view = te_segment_view_new(segment, descriptor);
    struct te_segment_view *old;

    g_strlcpy(view->data_host, data_host, sizeof(view->data_host));
    view->attachment = table->hooks.attach(table->hooks.data, view);
    pthread_mutex_lock(&segment->lock);
    old = te_segment_swap_view(segment, view);
    pthread_mutex_unlock(&segment->lock);
    te_segment_view_unref(old);
}

void te_segment_table_clear(struct te_segment_table *table)
{
    int32_t count = atomic_load_explicit(&table->count, memory_order_acquire);

    for (int32_t id = 0; id < count; id++)
        drop_view(te_segment_find(table, id));
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

    pthread_mutex_lock(&table->lock);
    segment = g_hash_table_lookup(table->by_name, name);
    if (segment == NULL) {
        segment = segment_new(table, name);
        g_hash_table_insert(table->by_name, segment->name, segment);
    }
    segment->openers++;
    pthread_mutex_unlock(&table->lock);
    return segment;
}

/* Counts a user if status is TE_OK; a segment that was never opened with success goes with its last opener. */
static te_status end_open(struct te_segment_table *table, struct te_segment *segment, te_status status, int32_t *id)
{
    bool remove;

    pthread_mutex_lock(&table->lock);
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
    pthread_mutex_unlock(&table->lock);
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
    pthread_mutex_lock(&segment->lock);
    known = segment->view != NULL;
    after = segment->begun;
    if (!fresh && segment->fetching)
        after = te_fetch_number(after, -1); /* that one will do */
    pthread_mutex_unlock(&segment->lock);
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
    pthread_mutex_lock(&table->lock);
    if (segment->users > 0 && --segment->users == 0) {
        g_queue_push_tail(&table->unused, segment);
        segment->unused = g_queue_peek_tail_link(&table->unused);
    }
    if (g_queue_get_length(&table->unused) > UNUSED_MAX) {
        oldest = g_queue_pop_head(&table->unused);
        oldest->unused = NULL;
    }
    pthread_mutex_unlock(&table->lock);
    if (oldest != NULL)
        drop_view(oldest);
}

/* An open segment, which lasts, or NULL. */
static struct te_segment *find_by_name(struct te_segment_table *table, const char *name)
{
    struct te_segment *segment;

    pthread_mutex_lock(&table->lock);
    segment = g_hash_table_lookup(table->by_name, name);
    if (segment != NULL && segment->id < 0)
        segment = NULL;
    pthread_mutex_unlock(&table->lock);
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
