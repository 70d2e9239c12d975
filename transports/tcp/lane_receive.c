#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "transports/tcp/tcp_private.h"

#define RECEIVE_AT_ONCE (UINT64_C(4) << 20)

static uint64_t status_bytes(const struct lane *lane)
{
    return lane->protocol_version >= 2 ? TE_TCP_STATUS_BYTES : 0;
}

/* Bytes after the status frame. */
static uint64_t body_bytes(const struct lane *lane, const struct request *request)
{
    if (!request->write)
        return request->length;
    return lane->protocol_version == 1 ? 1 : 0;
}

/* One recvmsg in the making; statuses[i] belongs to the i-th request of the ring. */
struct incoming {
    struct iovec parts[VECTOR_MAX];
    uint8_t statuses[VECTOR_MAX][TE_TCP_STATUS_BYTES];
    uint8_t sink[16 << 10]; /* where bytes go that nobody waits for */
    unsigned part_count, request_count;
    uint64_t total;
};

static void add_part(struct incoming *incoming, void *bytes, uint64_t size)
{
    incoming->parts[incoming->part_count].iov_base = bytes;
    incoming->parts[incoming->part_count++].iov_len = size;
    incoming->total += size;
}

/* Adds what is still to come of an answer of which the first skip bytes are there. False if not all of it had room. */
static bool add_answer(struct incoming *incoming, const struct lane *lane, const struct request *request,
                       uint8_t *status, uint64_t skip)
{
    uint64_t status_size = status_bytes(lane);
    uint64_t body = body_bytes(lane, request);
    uint64_t at;

    if (skip < status_size) {
        add_part(incoming, status + skip, status_size - skip);
        skip = status_size;
    }
    at = skip - status_size;
    if (request->slice != NULL && !request->write) {
        if (at < body)
            add_part(incoming, (void *)(uintptr_t)(request->local_address + at), body - at);
        return true;
    }
    while (at < body) {
        uint64_t part = MIN(body - at, sizeof(incoming->sink));

        if (incoming->part_count == VECTOR_MAX)
            return false;
        add_part(incoming, incoming->sink, part);
        at += part;
    }
    return true;
}

static void gather(const struct lane *lane, struct incoming *incoming, uint8_t *first_status, bool alone)
{
    bool whole = true;

    incoming->part_count = incoming->request_count = 0;
    incoming->total = 0;
    for (unsigned i = 0; whole && i < lane->request_count && incoming->part_count + 2 <= VECTOR_MAX &&
                         incoming->total < RECEIVE_AT_ONCE && !(alone && i > 0);
         i++) {
        const struct request *request = lane_request((struct lane *)lane, i);

        whole = add_answer(incoming, lane, request, i == 0 ? first_status : incoming->statuses[i],
                           i == 0 ? lane->receive_offset : 0);
        incoming->request_count++;
    }
}

static bool answer_is_complete(const struct lane *lane)
{
    const struct request *request = lane_request((struct lane *)lane, 0);

    return lane->receive_offset >= status_bytes(lane) + body_bytes(lane, request);
}

bool lane_is_answered_early(const struct lane *lane)
{
    return lane->request_count > 0 && lane->send_index == 0 && answer_is_complete(lane);
}

/* Ends the first request if it is both answered and sent whole; a peer may answer a write before it has taken all of
 * it. */
static bool complete_first(struct lane *lane)
{
    struct request done;

    if (!answer_is_complete(lane) || lane->send_index == 0)
        return false;
    done = lane_pop_request(lane);
    if (done.slice != NULL)
        lane_finish(lane, done.slice, TE_RESULT_SUCCEEDED, done.length);
    endpoint_widen(lane->endpoint);
    return true;
}

/* Looks at the status frame of the first request once it is complete. False: the lane is closed. */
static bool accept_status(struct lane *lane)
{
    uint32_t code;

    if (!te_tcp_status_decode(lane->status, &code))
        lane_garbled(lane);
    else if (code != TE_TCP_STATUS_OK)
        lane_rejected(lane, code);
    else
        return true;
    return false;
}

/* Works off received bytes. The lane may be closed afterwards. */
static void account_received(struct lane *lane, const struct incoming *incoming, uint64_t received)
{
    uint64_t status_size = status_bytes(lane);

    for (unsigned i = 0; received > 0 && i < incoming->request_count; i++) {
        const struct request *request = lane_request(lane, 0);
        uint64_t before = lane->receive_offset;
        uint64_t part = MIN(received, status_size + body_bytes(lane, request) - before);

        if (i > 0 && status_size > 0)
            memcpy(lane->status, incoming->statuses[i], MIN(part, status_size));
        lane->receive_offset += part;
        received -= part;
        if (before < status_size && lane->receive_offset >= status_size && !accept_status(lane))
            return;
        if (!complete_first(lane))
            return;
    }
}

/* Nothing is expected: whatever comes is the end. */
void lane_check_idle(struct lane *lane)
{
    uint8_t byte;
    ssize_t received = recv(lane->watch.descriptor, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

    if (received >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        lane_close_socket(lane, false);
}

/* The local buffer of the first read is not there. The rest of its answer is thrown away. */
static void local_fault(struct lane *lane)
{
    struct request *request = lane_request(lane, 0);
    struct te_slice *slice = request->slice;

    if (slice == NULL)
        return;
    request->slice = NULL;
    lane_finish(lane, slice, TE_RESULT_LOCAL_FAULT, 0);
}

static bool over_for_good(const struct lane *lane)
{
    return !lane->endpoint->transport->options.pool && lane->request_count == 0 && lane->state == LANE_OPEN;
}

bool lane_receive(struct lane *lane)
{
    bool moved = false;
    bool alone = false;

    if (lane->request_count == 0) {
        lane_check_idle(lane);
        return false;
    }
    for (unsigned calls = 0;
         (lane->state == LANE_OPEN || lane->state == LANE_FENCING) && lane->request_count > 0 && calls < CALLS_MAX;
         calls++) {
        struct incoming incoming;
        struct msghdr message = {.msg_iov = incoming.parts};
        ssize_t received;

        if (complete_first(lane))
            continue;
        gather(lane, &incoming, lane->status, alone);
        if (incoming.total == 0)
            break;
        message.msg_iovlen = incoming.part_count;
        received = recvmsg(lane->watch.descriptor, &message, MSG_DONTWAIT);
        if (received > 0) {
            moved = true;
            lane->progress_ns = te_now_ns();
            lane->carried_silence_ns = 0;
            account_received(lane, &incoming, (uint64_t)received);
            if ((uint64_t)received < incoming.total && !alone)
                break;
            alone = false;
        } else if (received == 0) {
            lane_broken(lane, 0);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EFAULT && !alone) {
            alone = true; /* it may be any of them: ask for the first one only */
        } else if (errno == EFAULT) {
            local_fault(lane);
            alone = false;
        } else if (errno != EINTR) {
            lane_broken(lane, errno);
        }
    }
    if (over_for_good(lane))
        lane_close_socket(lane, false);
    return moved;
}
