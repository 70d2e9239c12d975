/*
 * What becomes of a slice that its transport gave back.
 *
 *   result               then
 *   -------------------  -------------------------------------------------------------------------------------------
 *   SUCCEEDED            done
 *   REJECTED             the peer's descriptor is fetched once; if it leads elsewhere, sent there once, else failed
 *   BROKEN, a read       likewise
 *   NOT_SENT             the descriptor is fetched once and the slice sent once more, wherever that leads
 *   BROKEN, a write      failed: it may have been applied, and must not be applied again
 *   TIMED_OUT            failed (timed out, where a deadline passed and MC_SLICE_TIMEOUT asks for that state)
 *   LOCAL_FAULT          failed
 *   CANCELED             canceled if that was asked for, else failed
 *
 * A slice that waits for a fetch is failed when that takes longer than a call may, be it that the call has to wait for
 * a thread or for the resolver.
 *
 * A fetch that began after the slice was submitted counts for it, whoever asked for it: a thousand slices that are
 * refused at once cost one fetch.
 */
#include "classic/internal.h"
#include "core/clock.h"
#include "core/log.h"

static const char *const reasons[] = {
    [TE_RESULT_SUCCEEDED] = "it succeeded",
    [TE_RESULT_REJECTED] = "the peer refuses the range: it is not registered there, or not as one region",
    [TE_RESULT_NOT_SENT] = "the peer cannot be reached",
    [TE_RESULT_BROKEN] = "the connection broke",
    [TE_RESULT_LOCAL_FAULT] = "the local memory cannot be accessed",
    [TE_RESULT_TIMED_OUT] = "the peer made no progress in time, or the deadline passed",
    [TE_RESULT_CANCELED] = "the engine is being destroyed",
};

static bool deadline_passed(const struct te_slice *slice)
{
    return slice->deadline_ns != 0 && te_now_ns() >= slice->deadline_ns;
}

static bool is_canceled(const struct te_slice *slice)
{
    return atomic_load_explicit(&slice->task->cancel_requested, memory_order_relaxed);
}

static void log_failure(struct te_classic *classic, const struct te_slice *slice, enum te_slice_result result)
{
    static struct te_log_site sites[G_N_ELEMENTS(reasons)];
    struct te_segment *segment = te_segment_find(classic->engine->segments, slice->task->segment_id);

    te_log_at_site(&sites[result], TE_LOG_WARNING,
                   "%s of %" G_GUINT64_FORMAT " bytes at 0x%" G_GINT64_MODIFIER "x of %s failed: %s",
                   slice->opcode == TE_OPCODE_READ ? "read" : "write", slice->length, slice->remote_address,
                   te_segment_name(segment), reasons[result]);
}

static void end_slice(struct te_classic *classic, struct te_slice *slice, enum te_slice_result result, uint64_t bytes)
{
    enum te_slice_outcome outcome = TE_SLICE_FAILED;

    if (result == TE_RESULT_SUCCEEDED)
        outcome = TE_SLICE_SUCCEEDED;
    else if (result == TE_RESULT_CANCELED && is_canceled(slice))
        outcome = TE_SLICE_CANCELED;
    else if (result == TE_RESULT_TIMED_OUT && deadline_passed(slice) &&
             classic->engine->settings.slice_timeout_seconds > 0)
        outcome = TE_SLICE_TIMED_OUT;
    if (outcome == TE_SLICE_FAILED)
        log_failure(classic, slice, result);
    te_segment_view_unref(slice->runtime_data);
    slice->runtime_data = NULL;
    te_slice_end(slice, outcome, bytes);
}

static bool may_go_elsewhere(const struct te_slice *slice, enum te_slice_result result)
{
    return result == TE_RESULT_REJECTED || result == TE_RESULT_NOT_SENT ||
           (result == TE_RESULT_BROKEN && slice->opcode == TE_OPCODE_READ);
}

static bool leads_elsewhere(const struct te_segment_view *old, const struct te_segment_view *fresh)
{
    const struct route *from = old->attachment, *to = fresh->attachment;

    if (from->endpoint == NULL || from->installed != to->installed)
        return true;
    return !from->installed->ops->endpoint_matches(from->endpoint, fresh->descriptor, fresh->data_host);
}

/* Decides about a slice that has waited: whether it is to be sent by the fresh view, to which it then refers. If not,
 * it has been ended. slice->stage says how its transport gave it back. */
static bool settle(struct te_classic *classic, struct te_slice *slice, te_status fetched, struct te_segment_view *fresh)
{
    struct te_segment_view *old = slice->runtime_data;
    enum te_slice_result result = old != NULL ? (enum te_slice_result)slice->stage : TE_RESULT_NOT_SENT;
    bool again = fresh != NULL && fresh->attachment != NULL;

    if (is_canceled(slice) || atomic_load_explicit(&classic->closing, memory_order_relaxed)) {
        result = TE_RESULT_CANCELED;
        again = false;
    } else if (deadline_passed(slice)) {
        result = TE_RESULT_TIMED_OUT;
        again = false;
    } else if (again && old != NULL) {
        again = fetched == TE_OK && (result == TE_RESULT_NOT_SENT || leads_elsewhere(old, fresh));
        slice->attempts |= ATTEMPT_LAST;
    }
    if (!again) {
        end_slice(classic, slice, result, 0);
        return false;
    }
    te_segment_view_ref(fresh, 1);
    te_segment_view_unref(old);
    slice->runtime_data = fresh;
    slice->next = NULL;
    return true;
}

void classic_send(struct te_segment_view *view, struct te_slice *slices)
{
    const struct route *route = view->attachment;

    if (route->endpoint != NULL) {
        route->installed->ops->submit(route->endpoint, slices);
        return;
    }
    while (slices != NULL) {
        struct te_slice *next = slices->next;

        classic_slice_finished(slices, TE_RESULT_NOT_SENT, 0);
        slices = next;
    }
}

void classic_resume(void *data, struct te_slice *slices, te_status status, struct te_segment_view *view)
{
    struct te_classic *classic = data;
    struct te_slice *head = NULL, **tail = &head;

    te_task_signal_begin();
    while (slices != NULL) {
        struct te_slice *next = slices->next;

        if (settle(classic, slices, status, view)) {
            *tail = slices;
            tail = &slices->next;
        }
        slices = next;
    }
    if (head != NULL)
        classic_send(view, head);
    te_task_signal_end();
}

/* The peer's descriptor decides; if nobody has asked for it since the slice was submitted, the slice waits for it. */
static void ask_again(struct te_classic *classic, struct te_slice *slice, enum te_slice_result result)
{
    struct te_segment *segment = ((struct te_segment_view *)slice->runtime_data)->segment;
    uint32_t submitted = slice->attempts >> ATTEMPT_BITS;
    te_status status;

    slice->next = NULL;
    slice->stage = result;
    if (te_segment_refreshed(segment, submitted, &status)) {
        struct te_segment_view *fresh = te_segment_view_get(segment, NULL);

        if (settle(classic, slice, status, fresh))
            classic_send(fresh, slice);
        te_segment_view_unref(fresh);
        return;
    }
    classic_await(classic, segment, slice, submitted);
}

void classic_slice_finished(struct te_slice *slice, enum te_slice_result result, uint64_t bytes)
{
    const struct te_segment_view *view = slice->runtime_data;
    struct te_classic *classic = te_segment_hook_data(view->segment);

    if (may_go_elsewhere(slice, result) && !(slice->attempts & ATTEMPT_LAST) && !te_segment_is_local(view->segment))
        ask_again(classic, slice, result);
    else
        end_slice(classic, slice, result, bytes);
}

void classic_end_waiting(struct te_classic *classic, struct te_slice *slices, enum te_slice_result result)
{
    te_task_signal_begin();
    while (slices != NULL) {
        struct te_slice *next = slices->next;

        end_slice(classic, slices, result, 0);
        slices = next;
    }
    te_task_signal_end();
}

/* Waiting slices, how long they may wait, and their deadlines */

struct arming {
    struct te_classic *classic;
    int64_t due_ns;
};

static void arm(void *data)
{
    struct arming *arming = data;
    struct te_timer *timer = &arming->classic->expiry_timer;

    if (!atomic_load(&arming->classic->closing) && (timer->due_ns == 0 || arming->due_ns < timer->due_ns))
        te_reactor_timer_set(arming->classic->engine->reactors[0], timer, arming->due_ns);
    g_free(arming);
}

void classic_await(struct te_classic *classic, struct te_segment *segment, struct te_slice *slices, uint32_t after)
{
    int64_t wait_due_ns = te_now_ns() + classic_call_ns(classic);
    int64_t due_ns = wait_due_ns;
    uint64_t cancel_count = atomic_load(&classic->cancel_count);
    bool canceled = false;
    struct arming *arming = g_new(struct arming, 1);

    for (struct te_slice *slice = slices; slice != NULL; slice = slice->next) {
        canceled |= is_canceled(slice);
        slice->wait_due_ns = wait_due_ns;
        if (slice->deadline_ns != 0 && slice->deadline_ns < due_ns)
            due_ns = slice->deadline_ns;
    }
    te_segment_await(segment, slices, after);
    /* Who canceled before they were in the list did not find them there. */
    if (canceled || atomic_load(&classic->cancel_count) != cancel_count)
        classic_end_canceled(classic);
    *arming = (struct arming){classic, due_ns};
    te_reactor_run(classic->engine->reactors[0], arm, arming);
}

struct expiry {
    int64_t now_ns;
    int64_t next_due_ns; /* of those that stay; 0 = none */
};

static bool is_due(const struct te_slice *slice, const void *data)
{
    struct expiry *expiry = *(struct expiry *const *)data;
    int64_t due_ns = slice->wait_due_ns;

    if (slice->deadline_ns != 0 && slice->deadline_ns < due_ns)
        due_ns = slice->deadline_ns;
    if (due_ns <= expiry->now_ns)
        return true;
    if (expiry->next_due_ns == 0 || due_ns < expiry->next_due_ns)
        expiry->next_due_ns = due_ns;
    return false;
}

void classic_expire(struct te_timer *timer)
{
    struct te_classic *classic = (void *)((char *)timer - offsetof(struct te_classic, expiry_timer));
    struct expiry expiry = {.now_ns = te_now_ns()};
    struct expiry *expiry_p = &expiry;

    classic_end_waiting(classic, te_segment_withdraw(classic->engine->segments, is_due, &expiry_p),
                        TE_RESULT_TIMED_OUT);
    if (expiry.next_due_ns != 0)
        te_reactor_timer_set(classic->engine->reactors[0], timer, expiry.next_due_ns);
}

static bool match_canceled(const struct te_slice *slice, const void *data)
{
    (void)data;
    return is_canceled(slice);
}

void classic_end_canceled(struct te_classic *classic)
{
    classic_end_waiting(classic, te_segment_withdraw(classic->engine->segments, match_canceled, NULL),
                        TE_RESULT_CANCELED);
}
