#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "transports/tcp/tcp_private.h"

enum { PARTS_PER_REQUEST = 3 };
#define SEND_AT_ONCE (UINT64_C(4) << 20)

/* Version 1 has no acknowledgement: a write is followed by a read of its last byte. The peer serves in order, so the
 * answer says that the write has been stored, and a refused write ends the connection before it. */
static uint64_t request_bytes(const struct lane *lane, const struct request *request)
{
    if (!request->write)
        return TE_TCP_REQUEST_BYTES;
    return TE_TCP_REQUEST_BYTES + request->length + (lane->protocol_version == 1 ? TE_TCP_REQUEST_BYTES : 0);
}

/* One sendmsg in the making. */
struct outgoing {
    struct iovec parts[VECTOR_MAX];
    uint8_t headers[VECTOR_MAX][TE_TCP_REQUEST_BYTES];
    unsigned part_count, header_count;
    uint64_t total;
};

/* Adds a part without its first *skip bytes, which are taken off *skip. */
static void add_part(struct outgoing *outgoing, const void *bytes, uint64_t size, uint64_t *skip)
{
    uint64_t skipped = MIN(*skip, size);

    *skip -= skipped;
    if (skipped == size)
        return;
    outgoing->parts[outgoing->part_count].iov_base = (void *)((uintptr_t)bytes + skipped);
    outgoing->parts[outgoing->part_count++].iov_len = size - skipped;
    outgoing->total += size - skipped;
}

static void add_header(struct outgoing *outgoing, const struct te_tcp_request *header, uint64_t *skip)
{
    uint8_t *bytes = outgoing->headers[outgoing->header_count++];

    te_tcp_request_encode(bytes, header);
    add_part(outgoing, bytes, TE_TCP_REQUEST_BYTES, skip);
}

static void add_request(struct outgoing *outgoing, const struct lane *lane, const struct request *request,
                        uint64_t skip)
{
    struct te_tcp_request header = {
        .length = request->length,
        .address = request->remote_address,
        .write = request->write,
        .version_2 = lane->protocol_version >= 2,
    };

    add_header(outgoing, &header, &skip);
    if (!request->write)
        return;
    add_part(outgoing, (const void *)(uintptr_t)request->local_address, request->length, &skip);
    if (lane->protocol_version == 1) {
        header = (struct te_tcp_request){.length = 1, .address = request->remote_address + request->length - 1};
        add_header(outgoing, &header, &skip);
    }
}

static bool may_add(const struct lane *lane, const struct outgoing *outgoing)
{
    unsigned window = atomic_load_explicit(&lane->endpoint->window, memory_order_relaxed);

    return lane->waiting_count > 0 && lane->request_count < window && lane->wire_bytes < WINDOW_BYTES &&
           outgoing->part_count + PARTS_PER_REQUEST <= VECTOR_MAX && outgoing->header_count + 2 <= VECTOR_MAX &&
           outgoing->total < SEND_AT_ONCE && !(lane->one_by_one && outgoing->part_count > 0);
}

static void gather(struct lane *lane, struct outgoing *outgoing)
{
    outgoing->part_count = outgoing->header_count = 0;
    outgoing->total = 0;
    if (lane->send_index < lane->request_count)
        add_request(outgoing, lane, lane_request(lane, lane->send_index), lane->send_offset);
    while (may_add(lane, outgoing)) {
        lane_push_request(lane, lane_pop_waiting(lane));
        add_request(outgoing, lane, lane_request(lane, lane->request_count - 1), 0);
    }
}

static void account_sent(struct lane *lane, uint64_t sent)
{
    while (sent > 0) {
        const struct request *request = lane_request(lane, lane->send_index);
        uint64_t left = request_bytes(lane, request) - lane->send_offset;

        if (sent < left) {
            lane->send_offset += sent;
            return;
        }
        sent -= left;
        lane->send_index++;
        lane->send_offset = 0;
    }
}

/* Requests of which nothing was sent wait again: what is in the ring is on the wire, at least in part. */
static void recall_unsent(struct lane *lane)
{
    while (lane->request_count > lane->send_index + (lane->send_offset > 0 ? 1 : 0))
        lane_recall_request(lane);
}

/* The kernel may find out that memory is missing before it has taken anything, also of what comes before it: requests
 * are then sent alone until the culprit is found. */
static void local_fault(struct lane *lane)
{
    struct te_slice *slice;

    if (!lane->one_by_one) {
        recall_unsent(lane);
        lane->one_by_one = true;
        return;
    }
    lane->one_by_one = false;
    if (lane->send_offset > 0) {
        lane_give_up_request(lane, lane->send_index, TE_RESULT_LOCAL_FAULT);
        return;
    }
    slice = lane_request(lane, lane->request_count - 1)->slice;
    lane_drop_request(lane);
    lane_finish(lane, slice, TE_RESULT_LOCAL_FAULT, 0);
}

/* Nothing is on the wire, so what was to be sent is given back instead of being tried again here: if another attempt
 * would fail likewise, it is the last one. */
static void give_back_unsent(struct lane *lane)
{
    while (lane->request_count > 0) {
        struct te_slice *slice = lane_request(lane, lane->request_count - 1)->slice;

        lane_drop_request(lane);
        lane_finish(lane, slice, TE_RESULT_NOT_SENT, 0);
    }
}

/* True if sending can go on at once. */
static bool send_failed(struct lane *lane, int error)
{
    if (error == EFAULT) {
        local_fault(lane);
        return true;
    }
    if (error == EINTR || error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM) {
        recall_unsent(lane);
        lane->send_blocked = error != EINTR;
        return error == EINTR;
    }
    if (lane->send_index == 0 && lane->send_offset == 0)
        give_back_unsent(lane);
    else
        recall_unsent(lane);
    /* A refusal may be waiting to be read; it says more than the error. */
    lane_receive(lane);
    if (lane->state == LANE_OPEN)
        lane_broken(lane, error);
    return false;
}

bool lane_send(struct lane *lane)
{
    bool moved = false;

    for (unsigned calls = 0; lane->state == LANE_OPEN && calls < CALLS_MAX; calls++) {
        struct outgoing outgoing;
        struct msghdr message = {.msg_iov = outgoing.parts};
        ssize_t sent;

        gather(lane, &outgoing);
        if (outgoing.part_count == 0) {
            lane->one_by_one = false;
            break;
        }
        message.msg_iovlen = outgoing.part_count;
        sent = sendmsg(lane->watch.descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (send_failed(lane, errno))
                continue;
            break;
        }
        /* Fewer bytes than given may mean a full socket or missing memory: the next call tells. */
        moved = true;
        lane->send_blocked = false;
        lane->progress_ns = te_now_ns();
        account_sent(lane, (uint64_t)sent);
        recall_unsent(lane);
    }
    return moved;
}
