/* Time and givings-up: cancels, deadlines, silent peers, idle connections, the end of the transport. */
#include "core/clock.h"
#include "core/log.h"
#include "transports/tcp/socket_state.h"
#include "transports/tcp/tcp_private.h"

/* Whether the slice is to be given up now, and as what. */
static bool slice_is_over(const struct te_slice *slice, int64_t now_ns, enum te_slice_result *result)
{
    if (atomic_load_explicit(&slice->task->cancel_requested, memory_order_relaxed)) {
        *result = TE_RESULT_CANCELED;
        return true;
    }
    if (slice->deadline_ns != 0 && slice->deadline_ns <= now_ns) {
        *result = TE_RESULT_TIMED_OUT;
        return true;
    }
    return false;
}

static void give_up_waiting(struct lane *lane, int64_t now_ns)
{
    for (int i = 0; i < TE_TASK_PRIORITY_COUNT; i++) {
        struct te_slice *slices = lane->waiting[i].head;

        lane->waiting[i].head = NULL;
        lane->waiting[i].tail = &lane->waiting[i].head;
        while (slices != NULL) {
            struct te_slice *next = slices->next;
            enum te_slice_result result;

            if (slice_is_over(slices, now_ns, &result)) {
                lane->waiting_count--;
                lane_finish(lane, slices, result, 0);
            } else {
                slice_queue_append(&lane->waiting[i], slices);
                lane_note_deadline(lane, slices);
            }
            slices = next;
        }
    }
}

void lane_give_up_overdue(struct lane *lane, int64_t now_ns)
{
    lane->earliest_deadline_ns = 0;
    give_up_waiting(lane, now_ns);
    for (unsigned i = 0; i < lane->request_count; i++) {
        struct request *request = lane_request(lane, i);
        enum te_slice_result result;

        if (request->slice == NULL || request->fenced)
            continue;
        if (slice_is_over(request->slice, now_ns, &result)) {
            lane_give_up_request(lane, i, result);
            if (lane->state == LANE_CLOSED) {
                give_up_waiting(lane, now_ns); /* the others came back there */
                return;
            }
        } else {
            lane_note_deadline(lane, request->slice);
        }
    }
}

/* Bytes that the peer's kernel has taken count as progress, too. */
static void note_acknowledged(struct lane *lane, int64_t now_ns)
{
    uint64_t acknowledged = socket_acknowledged_bytes(lane->watch.descriptor);

    if (acknowledged == lane->acknowledged_seen)
        return;
    lane->acknowledged_seen = acknowledged;
    lane->progress_ns = now_ns;
}

/* A look that comes later than this tells of a pause of this process or host, for which the peer is not to blame. */
#define LOOKS_APART_NS (50 * TE_NS_PER_MS)

/* How long nothing has moved, as far as this process was there to see it. */
static void note_silence(struct lane *lane, int64_t now_ns)
{
    if (lane->progress_ns >= lane->looked_ns)
        lane->silent_ns = MIN(now_ns - lane->progress_ns, LOOKS_APART_NS);
    else
        lane->silent_ns += MIN(now_ns - lane->looked_ns, LOOKS_APART_NS);
    lane->looked_ns = now_ns;
}

/* Whether a reset would end what was given up and no write that somebody still wants. */
static bool only_fenced_writes(struct lane *lane)
{
    bool fenced = false;

    for (unsigned i = 0; i < lane->request_count; i++) {
        const struct request *request = lane_request(lane, i);

        if (request->write && request->slice != NULL && !request->fenced)
            return false;
        fenced |= request->fenced;
    }
    return fenced;
}

/* Also with a peer from which bytes that nobody wants keep dribbling in. */
static bool fence_is_over(const struct lane *lane, int64_t now_ns)
{
    const struct tcp_options *options = &lane->endpoint->transport->options;
    int64_t fenced_ns = now_ns - lane->fence_begin_ns;

    return (fenced_ns > options->fence_ns && lane->silent_ns > options->fence_ns) || fenced_ns > options->silence_ns;
}

void lane_look_at_clock(struct lane *lane)
{
    const struct tcp_options *options = &lane->endpoint->transport->options;
    int64_t now_ns = te_now_ns();

    if (lane->earliest_deadline_ns != 0 && lane->earliest_deadline_ns <= now_ns)
        lane_give_up_overdue(lane, now_ns);
    if ((lane->state != LANE_OPEN && lane->state != LANE_FENCING) || lane->request_count == 0) {
        if (lane->request_count == 0 && lane->waiting_count == 0)
            lane->carried_silence_ns = 0;
        lane_release_ring(lane, now_ns);
        return;
    }
    note_acknowledged(lane, now_ns);
    note_silence(lane, now_ns);
    if (only_fenced_writes(lane) && fence_is_over(lane, now_ns)) {
        lane_end_fenced(lane);
    } else if (lane->carried_silence_ns + lane->silent_ns > options->silence_ns && !lane_escape(lane)) {
        te_log_limited(TE_LOG_WARNING, "%s has neither taken nor answered anything for %.1f s: %u transfers fail",
                       lane->endpoint->text, (double)(lane->carried_silence_ns + lane->silent_ns) / 1e9,
                       atomic_load_explicit(&lane->outstanding, memory_order_relaxed));
        lane_give_up(lane, TE_RESULT_TIMED_OUT);
    }
}

static bool has_live_request(struct lane *lane)
{
    for (unsigned i = 0; i < lane->request_count; i++)
        if (lane_request(lane, i)->slice != NULL)
            return true;
    return false;
}

void lane_abandon(struct lane *lane, bool now)
{
    struct te_slice *slice;

    if (now) {
        lane_give_up(lane, TE_RESULT_CANCELED);
        return;
    }
    for (unsigned i = 0; i < lane->request_count && lane->state != LANE_CLOSED; i++)
        if (lane_request(lane, i)->slice != NULL && !lane_request(lane, i)->fenced)
            lane_give_up_request(lane, i, TE_RESULT_CANCELED);
    while ((slice = lane_pop_waiting(lane)) != NULL)
        lane_finish(lane, slice, TE_RESULT_CANCELED, 0);
    if (!has_live_request(lane))
        lane_give_up(lane, TE_RESULT_CANCELED);
}

void lane_close_if_idle(struct lane *lane)
{
    if (lane->state == LANE_OPEN && lane->request_count == 0 && lane->waiting_count == 0 &&
        te_now_ns() - lane->progress_ns > lane->endpoint->transport->options.idle_ns)
        lane_close_socket(lane, false);
}
