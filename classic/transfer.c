/* Submitting: the requests of one call become tasks and slices, all of them or none. */
#include "classic/internal.h"

#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/notification.h"

enum { SLICES_PER_TASK_MAX = 1024 };

/* How a call wants its requests to be posted. */
struct posting {
    enum te_priority priority;
    int64_t deadline_ns;          /* monotonic; 0 = none */
    const char *protocol;         /* that must be used; NULL = any */
    struct te_outgoing *outgoing; /* notification to be sent when all have completed; owned on success; may be NULL */
};

/* The slices of a call that go to one segment. */
struct group {
    struct te_segment *segment;
    struct te_segment_view *view; /* one reference; NULL: it must be fetched first */
    uint32_t fetch;
    struct te_slice *head, **tail;
    size_t slice_count;
};

struct groups {
    struct te_classic *classic;
    struct group first;     /* most calls have only this one */
    GPtrArray *others;      /* struct group, or NULL */
    GHashTable *by_segment; /* of the others */
    struct group *last;     /* that was looked for */
};

static void group_init(struct group *group, struct te_segment *segment)
{
    group->segment = segment;
    group->view = te_segment_view_get(segment, &group->fetch);
    group->head = NULL;
    group->tail = &group->head;
    group->slice_count = 0;
}

static void group_free(gpointer data)
{
    struct group *group = data;

    te_segment_view_unref(group->view);
    g_free(group);
}

static void groups_clear(struct groups *groups)
{
    te_segment_view_unref(groups->first.view);
    if (groups->others == NULL)
        return;
    g_ptr_array_unref(groups->others);
    g_hash_table_unref(groups->by_segment);
}

static struct group *find_other_group(struct groups *groups, struct te_segment *segment)
{
    struct group *group;

    if (groups->others == NULL) {
        groups->others = g_ptr_array_new_with_free_func(group_free);
        groups->by_segment = g_hash_table_new(NULL, NULL);
    }
    group = g_hash_table_lookup(groups->by_segment, segment);
    if (group == NULL) {
        group = g_new(struct group, 1);
        group_init(group, segment);
        g_ptr_array_add(groups->others, group);
        g_hash_table_insert(groups->by_segment, segment, group);
    }
    return group;
}

/* NULL: no such segment. */
static struct group *find_group(struct groups *groups, segment_id_t id)
{
    struct te_segment *segment = te_segment_find(groups->classic->engine->segments, id);

    if (segment == NULL)
        return NULL;
    if (groups->last == NULL)
        group_init(&groups->first, segment);
    if (groups->last == NULL || groups->first.segment == segment)
        groups->last = &groups->first;
    else if (groups->last->segment != segment)
        groups->last = find_other_group(groups, segment);
    return groups->last;
}

static te_status check_request(const struct transfer_request *request)
{
    if (request->opcode != OPCODE_READ && request->opcode != OPCODE_WRITE)
        return te_fail(TE_INVALID_ARGUMENT, "opcode %d is neither read (0) nor write (1)", request->opcode);
    if (request->length > UINT64_MAX - request->target_offset ||
        request->length > UINT64_MAX - (uint64_t)(uintptr_t)request->source)
        return te_fail(TE_INVALID_ARGUMENT, "a range of %" G_GUINT64_FORMAT " bytes wraps around the address space",
                       request->length);
    if (request->length > INT64_MAX)
        return te_fail(TE_INVALID_ARGUMENT, "a range of %" G_GUINT64_FORMAT " bytes is longer than any memory",
                       request->length);
    if (request->source == NULL && request->length > 0)
        return te_fail(TE_INVALID_ARGUMENT, "the local address is a null pointer");
    return TE_OK;
}

static te_status check_route(const struct group *group, const struct posting *posting)
{
    const struct route *route = group->view != NULL ? group->view->attachment : NULL;

    if (group->view == NULL)
        return TE_OK; /* shows when it has been fetched */
    if (route == NULL)
        return te_fail(TE_NOT_SUPPORTED_TRANSPORT, "no installed transport reaches %s, which offers %s",
                       te_segment_name(group->segment), group->view->descriptor->protocol);
    if (posting->protocol != NULL && strcmp(posting->protocol, route->installed->ops->name) != 0)
        return te_fail(TE_NOT_SUPPORTED_TRANSPORT, "%s is reached by %s, not by %s", te_segment_name(group->segment),
                       route->installed->ops->name, posting->protocol);
    return TE_OK;
}

/* A large request is cut so that several connections carry it, but only if the peer has published a region that holds
 * all of it: else it must be refused as a whole, and nothing of it may arrive. */
static size_t count_slices(struct te_classic *classic, const struct group *group,
                           const struct transfer_request *request, uint64_t *slice_bytes)
{
    uint64_t stripe = classic->engine->settings.tcp_stripe_bytes;

    *slice_bytes = request->length;
    if (stripe == 0 || request->length <= stripe || group->view == NULL ||
        !te_segment_view_covers(group->view, request->target_offset, request->length))
        return 1;
    *slice_bytes = MAX(stripe, request->length / SLICES_PER_TASK_MAX + 1);
    return (size_t)((request->length + *slice_bytes - 1) / *slice_bytes);
}

static te_status fill_task(struct te_classic *classic, struct te_task *task, struct group *group,
                           const struct transfer_request *request, const struct posting *posting)
{
    uint64_t slice_bytes;
    size_t count = count_slices(classic, group, request, &slice_bytes);
    struct te_slice *slices = &task->first_slice;

    task->length = request->length;
    task->segment_id = request->target_id;
    task->slice_count = 0;
    task->slices = slices;
    if (request->length == 0)
        return TE_OK;
    if (count > 1) {
        slices = g_try_new(struct te_slice, count);
        if (slices == NULL)
            return te_fail(TE_MEMORY, "no memory for %zu slices", count);
        task->slices = slices;
        task->own_slices = true;
    }
    task->slice_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        uint64_t offset = i * slice_bytes;

        slices[i] = (struct te_slice){
            .task = task,
            .local_address = (uint64_t)(uintptr_t)request->source + offset,
            .remote_address = request->target_offset + offset,
            .length = MIN(slice_bytes, request->length - offset),
            .opcode = request->opcode == OPCODE_READ ? TE_OPCODE_READ : TE_OPCODE_WRITE,
            .priority = posting->priority,
            .deadline_ns = posting->deadline_ns,
            .runtime_data = group->view,
            .attempts = group->fetch << ATTEMPT_BITS,
        };
        *group->tail = &slices[i];
        group->tail = &slices[i].next;
    }
    group->slice_count += count;
    return TE_OK;
}

static te_status fill_tasks(struct groups *groups, struct te_reservation *reservation,
                            const struct transfer_request *requests, size_t count, const struct posting *posting)
{
    for (size_t i = 0; i < count; i++) {
        struct te_task *task = te_reservation_task(reservation, i);
        struct group *group;
        te_status status = check_request(&requests[i]);

        if (status != TE_OK)
            return status;
        group = find_group(groups, requests[i].target_id);
        if (group == NULL)
            return te_fail(TE_INVALID_ARGUMENT, "no segment with id %d", requests[i].target_id);
        status = check_route(group, posting);
        if (status == TE_OK)
            status = fill_task(groups->classic, task, group, &requests[i], posting);
        if (status != TE_OK)
            return status;
    }
    return TE_OK;
}

static void send_group(struct te_classic *classic, struct group *group)
{
    if (group->head == NULL)
        return;
    if (group->view == NULL ||
        (classic->engine->settings.disable_metadata_cache && !te_segment_is_local(group->segment))) {
        for (struct te_slice *slice = group->head; slice != NULL; slice = slice->next)
            slice->runtime_data = NULL;
        classic_await(classic, group->segment, group->head, group->fetch);
        return;
    }
    te_segment_view_ref(group->view, group->slice_count);
    classic_send(group->view, group->head);
}

static void submission_done(void *data, bool succeeded)
{
    if (succeeded)
        te_notifier_post(data);
    else
        te_outgoing_free(data);
}

/* MC_SLICE_TIMEOUT bounds every transfer that has no earlier deadline. */
static void limit_time(struct te_classic *classic, struct posting *posting)
{
    int64_t limit_seconds = classic->engine->settings.slice_timeout_seconds;
    int64_t latest_ns = te_now_ns() + limit_seconds * TE_NS_PER_SECOND;

    if (limit_seconds > 0 && (posting->deadline_ns == 0 || posting->deadline_ns > latest_ns))
        posting->deadline_ns = latest_ns;
}

/* Owns posting->outgoing if it succeeds. */
static te_status post(struct te_classic *classic, batch_id_t batch, const struct transfer_request *requests,
                      size_t count, struct posting *posting)
{
    struct groups groups = {.classic = classic};
    struct te_reservation reservation;
    te_status status;

    if (requests == NULL && count > 0)
        return te_fail(TE_INVALID_ARGUMENT, "the list of requests is a null pointer");
    limit_time(classic, posting);
    status = te_batch_reserve(classic->engine->batches, batch, count, &reservation);
    if (status != TE_OK)
        return status;
    status = fill_tasks(&groups, &reservation, requests, count, posting);
    if (status != TE_OK) {
        te_batch_abandon(&reservation);
    } else {
        te_batch_publish(&reservation, posting->outgoing != NULL ? submission_done : NULL, posting->outgoing);
        te_task_signal_begin();
        send_group(classic, &groups.first);
        for (guint i = 0; groups.others != NULL && i < groups.others->len; i++)
            send_group(classic, g_ptr_array_index(groups.others, i));
        te_task_signal_end();
    }
    groups_clear(&groups);
    return status;
}

static te_status report(te_status status, size_t count)
{
    if (status != TE_OK)
        te_log_limited(TE_LOG_WARNING, "%zu request(s) are not submitted: %s", count, te_status_message());
    return status;
}

int te_classic_submit_transfer(struct te_classic *classic, batch_id_t batch, struct transfer_request *requests,
                               size_t count)
{
    struct posting posting = {.priority = TE_TASK_PRIORITY_MEDIUM};

    return -report(post(classic, batch, requests, count, &posting), count);
}

int te_classic_submit_transfer_with_notify(struct te_classic *classic, batch_id_t batch,
                                           struct transfer_request *requests, size_t count, notify_msg_t message)
{
    struct posting posting = {.priority = TE_TASK_PRIORITY_MEDIUM};
    struct te_engine *engine = classic->engine;
    struct te_segment *segment;
    te_status status = TE_INVALID_ARGUMENT;

    if (count == 0 || requests == NULL)
        te_fail(status, "a notification needs a request that it follows");
    else if (message.name == NULL || message.msg == NULL)
        te_fail(status, "the text of a notification is a null pointer");
    else if ((segment = te_segment_find(engine->segments, requests[0].target_id)) == NULL)
        te_fail(status, "no segment with id %d", requests[0].target_id);
    else
        status = te_outgoing_new(engine->notifier, segment, message.name, message.msg, &posting.outgoing);
    if (status == TE_OK) {
        status = post(classic, batch, requests, count, &posting);
        if (status != TE_OK)
            te_outgoing_free(posting.outgoing);
    }
    return -report(status, count);
}

static void read_options(const te_submit_options_t *options, struct posting *posting)
{
    int64_t now_ns = te_now_ns();

    if (options->priority != TE_PRIORITY_DEFAULT)
        posting->priority = (enum te_priority)(options->priority - TE_PRIORITY_HIGH);
    if (options->deadline_ns != 0 && options->deadline_ns < (uint64_t)(INT64_MAX - now_ns))
        posting->deadline_ns = now_ns + (int64_t)options->deadline_ns;
    if (options->transport_hint != NULL && options->transport_hint[0] != '\0')
        posting->protocol = options->transport_hint;
}

static bool is_installed(struct te_classic *classic, const char *protocol)
{
    size_t count = atomic_load_explicit(&classic->installed_count, memory_order_acquire);

    for (size_t i = 0; i < count; i++)
        if (strcmp(classic->installed[i].ops->name, protocol) == 0)
            return true;
    return false;
}

int te_classic_submit(struct te_classic *classic, batch_id_t batch, const struct transfer_request *requests,
                      size_t count, const te_submit_options_t *options)
{
    struct posting posting = {.priority = TE_TASK_PRIORITY_MEDIUM};
    te_status status;

    if (options != NULL)
        read_options(options, &posting);
    if (posting.protocol != NULL && !is_installed(classic, posting.protocol))
        status = te_fail(TE_NOT_SUPPORTED_TRANSPORT, "transport %s is not installed", posting.protocol);
    else
        status = post(classic, batch, requests, count, &posting);
    return report(status, count);
}
