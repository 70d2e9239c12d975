/* What a lane holds: slices that wait, by priority, and the ring of requests that are on the wire. */
#include "core/clock.h"
#include "transports/tcp/tcp_private.h"

enum {
    REQUESTS_MIN = 16, /* first capacity of the ring */
    HIGH_TURNS = 16,   /* of 21 slices taken while all classes wait, so many are of high priority ... */
    MEDIUM_TURNS = 4,  /* ... and so many of medium */
    LOW_TURNS = 1
};
#define RING_KEPT_NS (20 * TE_NS_PER_MS) /* how long a large ring outlives the last request */

void slice_queue_append(struct slice_queue *queue, struct te_slice *slice)
{
    slice->next = NULL;
    *queue->tail = slice;
    queue->tail = &slice->next;
}

struct te_slice *lane_pop_waiting(struct lane *lane)
{
    static const enum te_priority first_choice[HIGH_TURNS + MEDIUM_TURNS + LOW_TURNS] = {
        [3] = TE_TASK_PRIORITY_MEDIUM,  [8] = TE_TASK_PRIORITY_MEDIUM, [13] = TE_TASK_PRIORITY_MEDIUM,
        [18] = TE_TASK_PRIORITY_MEDIUM, [20] = TE_TASK_PRIORITY_LOW, /* all others: high */
    };
    enum te_priority choice = first_choice[lane->turn];

    if (lane->waiting_count == 0)
        return NULL;
    lane->turn = (lane->turn + 1) % G_N_ELEMENTS(first_choice);
    if (lane->waiting[choice].head == NULL)
        for (choice = TE_TASK_PRIORITY_HIGH; lane->waiting[choice].head == NULL;)
            choice++;

    struct slice_queue *queue = &lane->waiting[choice];
    struct te_slice *slice = queue->head;

    queue->head = slice->next;
    if (queue->head == NULL)
        queue->tail = &queue->head;
    lane->waiting_count--;
    return slice;
}

void lane_unpop_waiting(struct lane *lane, struct te_slice *slice)
{
    struct slice_queue *queue = &lane->waiting[slice->priority];

    slice->next = queue->head;
    queue->head = slice;
    if (slice->next == NULL)
        queue->tail = &slice->next;
    lane->waiting_count++;
}

void lane_note_deadline(struct lane *lane, const struct te_slice *slice)
{
    if (slice->deadline_ns != 0 && (lane->earliest_deadline_ns == 0 || slice->deadline_ns < lane->earliest_deadline_ns))
        lane->earliest_deadline_ns = slice->deadline_ns;
}

void lane_take_inbox(struct lane *lane)
{
    struct te_slice *latest_first = atomic_exchange_explicit(&lane->inbox, NULL, memory_order_acquire);
    struct te_slice *slices = NULL;

    while (latest_first != NULL) {
        struct te_slice *next = latest_first->next;

        latest_first->next = slices;
        slices = latest_first;
        latest_first = next;
    }
    while (slices != NULL) {
        struct te_slice *next = slices->next;

        /* Who cancels sets the flag and then visits the lanes that hold slices: one of the two sees the other. */
        if (atomic_load_explicit(&slices->task->cancel_requested, memory_order_seq_cst)) {
            lane_finish(lane, slices, TE_RESULT_CANCELED, 0);
        } else {
            slice_queue_append(&lane->waiting[slices->priority], slices);
            lane->waiting_count++;
            lane_note_deadline(lane, slices);
        }
        slices = next;
    }
}

/* The ring of requests on the wire */

struct request *lane_request(struct lane *lane, unsigned index)
{
    return &lane->requests[(lane->request_first + index) & (lane->request_capacity - 1)];
}

void lane_push_request(struct lane *lane, struct te_slice *slice)
{
    if (lane->request_count == lane->request_capacity) {
        unsigned capacity = lane->request_capacity == 0 ? REQUESTS_MIN : lane->request_capacity * 2;
        struct request *requests = g_new(struct request, capacity);

        for (unsigned i = 0; i < lane->request_count; i++)
            requests[i] = *lane_request(lane, i);
        g_free(lane->requests);
        lane->requests = requests;
        lane->request_capacity = capacity;
        lane->request_first = 0;
    }
    *lane_request(lane, lane->request_count++) = (struct request){
        .slice = slice,
        .local_address = slice->local_address,
        .remote_address = slice->remote_address,
        .length = slice->length,
        .write = slice->opcode == TE_OPCODE_WRITE,
    };
    lane->wire_bytes += slice->length;
}

struct request lane_pop_request(struct lane *lane)
{
    struct request request = *lane_request(lane, 0);

    lane->request_first = (lane->request_first + 1) & (lane->request_capacity - 1);
    lane->request_count--;
    lane->wire_bytes -= request.length;
    lane->receive_offset = 0;
    if (lane->request_count == 0)
        atomic_store_explicit(&lane->burdened, false, memory_order_relaxed);
    if (lane->send_index > 0)
        lane->send_index--;
    else
        lane->send_offset = 0;
    return request;
}

void lane_drop_request(struct lane *lane)
{
    lane->wire_bytes -= lane_request(lane, --lane->request_count)->length;
}

void lane_recall_request(struct lane *lane)
{
    struct te_slice *slice = lane_request(lane, lane->request_count - 1)->slice;

    lane_drop_request(lane);
    lane_unpop_waiting(lane, slice);
}

void lane_account_leaving(struct lane *lane, const struct te_slice *slice)
{
    atomic_fetch_sub_explicit(&lane->outstanding_bytes, slice->length, memory_order_relaxed);
    atomic_fetch_sub_explicit(&lane->outstanding, 1, memory_order_release);
}

void lane_finish(struct lane *lane, struct te_slice *slice, enum te_slice_result result, uint64_t bytes)
{
    lane_account_leaving(lane, slice);
    lane->endpoint->transport->finished(slice, result, bytes);
}

/* A peer that has nothing to do costs little memory. */
void lane_release_ring(struct lane *lane, int64_t now_ns)
{
    if (lane->request_count > 0 || lane->request_capacity <= REQUESTS_MIN || now_ns - lane->progress_ns < RING_KEPT_NS)
        return;
    g_free(lane->requests);
    lane->requests = NULL;
    lane->request_capacity = lane->request_first = 0;
}
