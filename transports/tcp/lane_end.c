/*
 * How a connection ends, and what becomes of the slices it carried.
 *
 *   event                         first request             other requests on the wire         waiting slices
 *   ----------------------------  ------------------------  ---------------------------------  ------------------
 *   the peer refuses a request    REJECTED                  not looked at by the peer: again   stay
 *   the peer closes, an error     see result_after_break    see result_after_break             stay, new connection
 *   a read is given up            its own result at once; what still comes is thrown away
 *   a write is given up, unsent   its own result at once
 *   ... sent whole                SUCCEEDED when it is answered, or its own result after the peer's close or a reset
 *   ... sent in part              its own result when the peer closes what is half-closed now, or after a reset
 *   the peer is silent            TIMED_OUT                 TIMED_OUT                          TIMED_OUT
 *
 * The reset comes when nothing has moved for the fence time-out, or when the given-up write is older than the silence
 * time-out whatever moves; but not while a write that somebody still wants is on the wire, since that would fail with
 * it.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "transports/tcp/tcp_private.h"

void lane_close_socket(struct lane *lane, bool rudely)
{
    if (lane->state == LANE_CLOSED)
        return;
    te_reactor_forget(patrol_reactor(lane->patrol), &lane->watch);
    te_socket_close(lane->watch.descriptor, rudely);
    lane->watch.descriptor = -1;
    lane->state = LANE_CLOSED;
    lane->watched = false;
    lane->send_blocked = false;
    /* Whoever sleeps on this connection would not notice the next one. */
    atomic_store_explicit(&lane->sleeper, false, memory_order_relaxed);
    atomic_store_explicit(&lane->open, false, memory_order_relaxed);
    atomic_store_explicit(&lane->refuses, false, memory_order_relaxed);
    atomic_store_explicit(&lane->burdened, false, memory_order_relaxed);
}

/* A read may be tried again; a write not, since nobody can tell whether the peer has stored it: what its host has
 * acknowledged says less than what it has taken. answered: bytes of the answer had come. A version-1 peer refuses by
 * closing, so there the first request is not tried again. */
static enum te_slice_result result_after_break(const struct lane *lane, const struct request *request, bool first,
                                               bool answered)
{
    if (request->fenced)
        return request->result;
    if (request->write || (first && (answered || lane->protocol_version == 1)))
        return TE_RESULT_BROKEN;
    return TE_RESULT_NOT_SENT;
}

static void end_requests(struct lane *lane)
{
    bool answered = lane->receive_offset > 0;

    for (bool first = true; lane->request_count > 0; first = false) {
        struct request request = lane_pop_request(lane);

        if (request.slice != NULL)
            lane_finish(lane, request.slice, result_after_break(lane, &request, first, first && answered), 0);
    }
    lane->send_index = 0;
    lane->send_offset = 0;
    lane->receive_offset = 0;
}

static bool live_write_on_wire(struct lane *lane)
{
    for (unsigned i = 0; i < lane->request_count; i++)
        if (lane_request(lane, i)->write && lane_request(lane, i)->slice != NULL)
            return true;
    return false;
}

void lane_broken(struct lane *lane, int error)
{
    if (lane->request_count > 0 && lane->state == LANE_OPEN)
        te_log_limited(TE_LOG_WARNING, "connection to %s broke with %u requests on the wire: %s", lane->endpoint->text,
                       lane->request_count, error == 0 ? "closed by the peer" : strerror(error));
    /* Politely, what the kernel still has of a write would go out after the write has failed. */
    lane_close_socket(lane, live_write_on_wire(lane));
    end_requests(lane);
}

void lane_garbled(struct lane *lane)
{
    struct request request;

    te_log_limited(TE_LOG_ERROR, "%s answers with something that is no status frame: connection closed",
                   lane->endpoint->text);
    lane_close_socket(lane, true);
    request = lane_pop_request(lane);
    if (request.slice != NULL)
        lane_finish(lane, request.slice, request.fenced ? request.result : TE_RESULT_BROKEN, 0);
    end_requests(lane);
}

/* Takes what is on the wire back to the waiting ones, in order; the ones that were given up end. */
static void recall_requests(struct lane *lane)
{
    lane->send_index = 0;
    lane->send_offset = 0;
    lane->receive_offset = 0;
    while (lane->request_count > 0) {
        struct request *request = lane_request(lane, lane->request_count - 1);

        if (request->slice == NULL || request->fenced) {
            lane_drop_request(lane);
            if (request->slice != NULL)
                lane_finish(lane, request->slice, request->result, 0);
        } else {
            lane_recall_request(lane);
        }
    }
}

void lane_rejected(struct lane *lane, uint32_t code)
{
    struct request request = lane_pop_request(lane);

    te_log_limited(TE_LOG_WARNING,
                   "%s refuses (code %u) to %s %" G_GUINT64_FORMAT " bytes at 0x%" G_GINT64_MODIFIER "x",
                   lane->endpoint->text, code, request.write ? "take" : "give", request.length, request.remote_address);
    endpoint_narrow(lane->endpoint);
    lane_close_socket(lane, live_write_on_wire(lane));
    if (request.slice != NULL)
        lane_finish(lane, request.slice, request.fenced ? request.result : TE_RESULT_REJECTED, 0);
    recall_requests(lane);
}

void lane_give_up(struct lane *lane, enum te_slice_result result)
{
    struct te_slice *slice;

    lane_close_socket(lane, true);
    while (lane->request_count > 0) {
        struct request request = lane_pop_request(lane);

        if (request.slice != NULL)
            lane_finish(lane, request.slice, request.fenced ? request.result : result, 0);
    }
    lane->send_index = 0;
    lane->send_offset = 0;
    while ((slice = lane_pop_waiting(lane)) != NULL)
        lane_finish(lane, slice, result, 0);
}

/* Sends no more, although the request at send_index is not sent whole; the peer sees it cut and closes when it is
 * through. */
static void cut(struct lane *lane)
{
    shutdown(lane->watch.descriptor, SHUT_WR);
    lane->state = LANE_FENCING;
    atomic_store_explicit(&lane->open, false, memory_order_relaxed);
    atomic_store_explicit(&lane->refuses, true, memory_order_relaxed);
}

static void give_up_read(struct lane *lane, struct request *request, enum te_slice_result result)
{
    struct te_slice *slice = request->slice;

    request->slice = NULL;
    atomic_store_explicit(&lane->burdened, true, memory_order_relaxed);
    lane_finish(lane, slice, result, 0);
    /* Better a new connection than waiting for so much that nobody wants. */
    if (lane->state == LANE_OPEN && request->length > DISCARD_LIMIT_BYTES && !live_write_on_wire(lane)) {
        lane_close_socket(lane, true);
        recall_requests(lane);
    }
}

void lane_end_fenced(struct lane *lane)
{
    int64_t silent_ns = lane->carried_silence_ns + lane->silent_ns;

    lane_close_socket(lane, true);
    recall_requests(lane);
    lane->carried_silence_ns = silent_ns;
}

bool lane_escape(struct lane *lane)
{
    if (lane->state != LANE_OPEN || lane_request(lane, 0)->slice != NULL || live_write_on_wire(lane))
        return false;
    lane_close_socket(lane, true);
    recall_requests(lane);
    return true;
}

static bool has_fenced_request(struct lane *lane)
{
    for (unsigned i = 0; i < lane->request_count; i++)
        if (lane_request(lane, i)->fenced)
            return true;
    return false;
}

void lane_give_up_request(struct lane *lane, unsigned index, enum te_slice_result result)
{
    struct request *request = lane_request(lane, index);

    if (!request->write) {
        give_up_read(lane, request, result);
        return;
    }
    if (!has_fenced_request(lane))
        lane->fence_begin_ns = te_now_ns();
    request->fenced = true;
    request->result = result;
    atomic_store_explicit(&lane->burdened, true, memory_order_relaxed); /* writes elsewhere do not delay the reset */
    if (index == lane->send_index && lane->state == LANE_OPEN)
        cut(lane);
}

void lane_connect_failed(struct lane *lane, int error)
{
    struct te_slice *slice;

    te_log_limited(TE_LOG_WARNING, "cannot connect to %s: %s", lane->endpoint->text, strerror(error));
    lane_close_socket(lane, false);
    if (endpoint_has_other_open_lane(lane->endpoint, lane)) {
        /* This lane is one too many for now; the others go on. */
        atomic_store_explicit(&lane->refuses, true, memory_order_relaxed);
        while ((slice = lane_pop_waiting(lane)) != NULL) {
            lane_account_leaving(lane, slice);
            slice->next = NULL;
            if (!endpoint_replace(lane->endpoint, slice))
                lane->endpoint->transport->finished(slice, TE_RESULT_NOT_SENT, 0);
        }
        atomic_store_explicit(&lane->refuses, false, memory_order_relaxed);
        return;
    }
    while ((slice = lane_pop_waiting(lane)) != NULL)
        lane_finish(lane, slice, TE_RESULT_NOT_SENT, 0);
}
