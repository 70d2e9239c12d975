/* Segments: asking their owners, and the slices that wait for the answer. */
#include "core/segment_private.h"

#include "core/condition.h"
#include "core/engine.h"
#include "core/peer_address.h"
#include "core/stores/store.h"

/* Lists of slices */

static void list_append(struct te_slice_list *list, struct te_slice *slices)
{
    *list->tail = slices;
    while (*list->tail != NULL)
        list->tail = &(*list->tail)->next;
}

static void list_move(struct te_slice_list *from, struct te_slice_list *to)
{
    if (from->head == NULL)
        return;
    *to->tail = from->head;
    to->tail = from->tail;
    te_slice_list_clear(from);
}

static void list_filter(struct te_slice_list *list, struct te_slice_list *matching,
                        bool (*match)(const struct te_slice *, const void *), const void *data)
{
    struct te_slice *slice = list->head;

    te_slice_list_clear(list);
    while (slice != NULL) {
        struct te_slice *next = slice->next;

        slice->next = NULL;
        list_append(match(slice, data) ? matching : list, slice);
        slice = next;
    }
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
    view = te_segment_view_new(segment, descriptor);
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
    uint32_t number = segment->begun = te_fetch_number(segment->begun, 1);
    struct te_segment_view *view = NULL;
    te_status status;

    segment->fetching = true;
    pthread_mutex_unlock(&segment->lock);
    status = fetch_view(segment, &view);
    te_segment_note_call(segment, status);
    pthread_mutex_lock(&segment->lock);
    if (status == TE_OK)
        view = te_segment_swap_view(segment, view);
    segment->last_status = status;
    g_free(segment->last_message);
    segment->last_message = status == TE_OK ? NULL : g_strdup(te_status_message());
    segment->ended = number;
    segment->fetching = false;
    pthread_cond_broadcast(&segment->fetch_ended);
    if (view == NULL)
        return;
    pthread_mutex_unlock(&segment->lock);
    te_segment_view_unref(view);
    pthread_mutex_lock(&segment->lock);
}

te_status te_segment_refresh(struct te_segment *segment, uint32_t after)
{
    te_status status;

    if (te_segment_is_local(segment))
        return TE_OK;
    pthread_mutex_lock(&segment->lock);
    while (!te_fetch_is_newer(segment->ended, after)) {
        if (segment->fetching)
            pthread_cond_wait(&segment->fetch_ended, &segment->lock);
        else
            fetch(segment);
    }
    status = segment->last_status;
    if (status != TE_OK)
        te_fail(status, "%s", segment->last_message);
    pthread_mutex_unlock(&segment->lock);
    return status;
}

bool te_segment_refreshed(struct te_segment *segment, uint32_t after, te_status *status)
{
    bool refreshed;

    pthread_mutex_lock(&segment->lock);
    refreshed = te_segment_is_local(segment) || te_fetch_is_newer(segment->ended, after);
    if (refreshed)
        *status = segment->last_status;
    pthread_mutex_unlock(&segment->lock);
    return refreshed;
}

/* Slices that wait */

static void resume_waiting(void *data)
{
    struct te_segment *segment = data;
    struct te_segment_table *table = segment->table;

    pthread_mutex_lock(&segment->lock);
    for (;;) {
        struct te_segment_view *view;
        struct te_slice *slices;
        uint32_t after = segment->waiting_after;
        te_status status;

        list_move(&segment->waiting, &segment->covered);
        if (segment->covered.head == NULL)
            break;
        pthread_mutex_unlock(&segment->lock);
        status = te_segment_refresh(segment, after);
        pthread_mutex_lock(&segment->lock);
        slices = segment->covered.head;
        te_slice_list_clear(&segment->covered);
        pthread_mutex_unlock(&segment->lock);
        view = te_segment_view_get(segment, NULL);
        if (slices != NULL)
            table->hooks.resume(table->hooks.data, slices, status, view);
        te_segment_view_unref(view);
        pthread_mutex_lock(&segment->lock);
    }
    segment->resuming = false;
    atomic_fetch_sub_explicit(&table->resuming, 1, memory_order_relaxed);
    pthread_mutex_unlock(&segment->lock);
}

void te_segment_await(struct te_segment *segment, struct te_slice *slices, uint32_t after)
{
    struct te_segment_table *table = segment->table;
    bool start = false;

    pthread_mutex_lock(&segment->lock);
    if (!atomic_load_explicit(&table->stopped, memory_order_relaxed)) {
        if (segment->waiting.head == NULL || te_fetch_is_newer(after, segment->waiting_after))
            segment->waiting_after = after;
        list_append(&segment->waiting, slices);
        slices = NULL;
        start = !segment->resuming;
        if (start) {
            segment->resuming = true;
            atomic_fetch_add_explicit(&table->resuming, 1, memory_order_seq_cst);
            te_worker_run(table->engine->workers, te_segment_work_rank(segment), resume_waiting, segment);
        }
    }
    pthread_mutex_unlock(&segment->lock);
    if (slices != NULL)
        table->hooks.resume(table->hooks.data, slices, TE_SOCKET, NULL);
}

struct te_slice *te_segment_withdraw(struct te_segment_table *table,
                                     bool (*match)(const struct te_slice *slice, const void *data), const void *data)
{
    int32_t count = atomic_load_explicit(&table->count, memory_order_acquire);
    struct te_slice_list matching;

    te_slice_list_clear(&matching);
    if (atomic_load_explicit(&table->resuming, memory_order_seq_cst) == 0)
        return NULL;
    for (int32_t id = 0; id < count; id++) {
        struct te_segment *segment = te_segment_find(table, id);

        pthread_mutex_lock(&segment->lock);
        list_filter(&segment->covered, &matching, match, data);
        list_filter(&segment->waiting, &matching, match, data);
        pthread_mutex_unlock(&segment->lock);
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

        pthread_mutex_lock(&segment->lock);
        pthread_mutex_unlock(&segment->lock);
    }
    return te_segment_withdraw(table, match_all, NULL);
}

/* Refreshing all */

struct sweep {
    pthread_mutex_t lock;
    pthread_cond_t ended;
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

    pthread_mutex_unlock(&sweep->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&sweep->lock);
    pthread_cond_destroy(&sweep->ended);
    g_free(sweep);
}

static void refresh_one(void *data)
{
    struct sweep_job *job = data;
    struct sweep *sweep = job->sweep;

    te_segment_refresh(job->segment, job->after);
    g_free(job);
    pthread_mutex_lock(&sweep->lock);
    if (--sweep->left == 0)
        pthread_cond_signal(&sweep->ended);
    leave_sweep(sweep);
}

void te_segment_refresh_all(struct te_segment_table *table, int64_t timeout_ns)
{
    int32_t count = atomic_load_explicit(&table->count, memory_order_acquire);
    int64_t end_ns = te_now_ns() + timeout_ns;
    struct sweep *sweep = g_new0(struct sweep, 1);

    pthread_mutex_init(&sweep->lock, NULL);
    te_condition_init(&sweep->ended);
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
        pthread_mutex_lock(&sweep->lock);
        sweep->left++;
        sweep->references++;
        pthread_mutex_unlock(&sweep->lock);
        te_worker_run(table->engine->workers,
                      te_segment_work_rank(segment) == TE_WORK_PROMPT ? TE_WORK_BACKGROUND
                                                                      : TE_WORK_BACKGROUND_DOUBTFUL,
                      refresh_one, job);
    }
    pthread_mutex_lock(&sweep->lock);
    while (sweep->left > 0)
        if (!te_condition_wait_until(&sweep->ended, &sweep->lock, end_ns))
            break;
    leave_sweep(sweep);
}
