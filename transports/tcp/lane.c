#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "transports/tcp/socket_state.h"
#include "transports/tcp/tcp_private.h"

enum {
    YIELD_EVERY = 4, /* fruitless polls in a row until the processor is offered to others */
};
#define POLLED_NS      (100 * TE_NS_PER_MS / 1000) /* after a poll, this long, more are expected */
#define EMPTY_PAUSE_NS 400                         /* a lane found empty is not asked again for so long */

/* Watching */

void lane_set_watched(struct lane *lane, bool watched)
{
    if (lane->state == LANE_CLOSED || lane->watched == watched)
        return;
    if (te_reactor_change(patrol_reactor(lane->patrol), &lane->watch,
                          watched ? EPOLLIN | EPOLLOUT | EPOLLRDHUP : EPOLLRDHUP) == TE_OK)
        lane->watched = watched;
}

/* Connecting */

static void lane_connected(struct lane *lane)
{
    lane->state = LANE_OPEN;
    atomic_store_explicit(&lane->open, true, memory_order_relaxed);
    lane->send_blocked = false;
    lane->progress_ns = te_now_ns();
    atomic_store_explicit(&lane->endpoint->local,
                          socket_prepare(&lane->endpoint->transport->options, lane->watch.descriptor),
                          memory_order_relaxed);
    lane->acknowledged_seen = socket_acknowledged_bytes(lane->watch.descriptor);
}

static void lane_connect(struct lane *lane)
{
    struct te_endpoint *endpoint = lane->endpoint;
    int on = 1;
    int error;
    int descriptor = socket(endpoint->address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (descriptor < 0) {
        lane_connect_failed(lane, errno);
        return;
    }
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    error =
        connect(descriptor, (struct sockaddr *)&endpoint->address.storage, endpoint->address.length) == 0 ? 0 : errno;
    lane->watch.descriptor = descriptor;
    lane->state = LANE_CONNECTING;
    lane->protocol_version = endpoint->protocol_version;
    lane->watched = true;
    lane->connect_due_ns = te_now_ns() + endpoint->transport->options.connect_ns;
    if ((error != 0 && error != EINPROGRESS) ||
        te_reactor_add(patrol_reactor(lane->patrol), &lane->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) != TE_OK) {
        lane_connect_failed(lane, error != 0 ? error : ENOMEM);
        return;
    }
    if (error == 0)
        lane_connected(lane);
}

static void lane_check_connect(struct lane *lane)
{
    struct pollfd entry = {.fd = lane->watch.descriptor, .events = POLLOUT};
    int error = 0;
    socklen_t length = sizeof(error);

    if (poll(&entry, 1, 0) == 1) {
        getsockopt(lane->watch.descriptor, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error == 0)
            lane_connected(lane);
        else
            lane_connect_failed(lane, error);
    } else if (te_now_ns() >= lane->connect_due_ns) {
        lane_connect_failed(lane, ETIMEDOUT);
    }
}

/* Ownership */

static bool lane_own(struct lane *lane)
{
    return atomic_load_explicit(&lane->owned, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&lane->owned, 1, memory_order_seq_cst) == 0;
}

/* Slices for a lane that is being fenced go elsewhere, if there is a place. */
static void pass_on_waiting(struct lane *lane)
{
    struct slice_queue slices = {.tail = &slices.head};
    struct te_slice *slice;

    while ((slice = lane_pop_waiting(lane)) != NULL) {
        lane_account_leaving(lane, slice);
        slice_queue_append(&slices, slice);
    }
    if (slices.head == NULL || endpoint_replace(lane->endpoint, slices.head))
        return;
    for (slice = slices.head; slice != NULL;) {
        struct te_slice *next = slice->next;

        atomic_fetch_add_explicit(&lane->outstanding_bytes, slice->length, memory_order_relaxed);
        atomic_fetch_add_explicit(&lane->outstanding, 1, memory_order_relaxed);
        slice_queue_append(&lane->waiting[slice->priority], slice);
        lane->waiting_count++;
        slice = next;
    }
    /* Who canceled meanwhile may not have seen them. */
    atomic_fetch_or_explicit(&lane->attention, ATTENTION_CANCEL, memory_order_seq_cst);
}

static void attend(struct lane *lane, uint32_t attention)
{
    if (attention & (ATTENTION_ABANDON | ATTENTION_RESET))
        lane_abandon(lane, (attention & ATTENTION_RESET) != 0);
    if (attention & ATTENTION_CANCEL)
        lane_give_up_overdue(lane, te_now_ns());
    if (attention & ATTENTION_TIME)
        lane_look_at_clock(lane);
    if (attention & ATTENTION_IDLE)
        lane_close_if_idle(lane);
    if (attention & ATTENTION_WATCH)
        lane_set_watched(lane, true);
}

/* What the owner does. True if bytes moved. */
static bool lane_work(struct lane *lane, uint32_t attention)
{
    bool moved = false;

    lane_take_inbox(lane);
    if (attention & ~(uint32_t)(ATTENTION_SUBMIT | ATTENTION_READY))
        attend(lane, attention);
    if (lane->state == LANE_FENCING && lane->waiting_count > 0)
        pass_on_waiting(lane);
    if (lane->state == LANE_OPEN && lane->request_count == 0 && lane->waiting_count > 0)
        lane_check_idle(lane); /* a peer that went meanwhile must not cost a write */
    if (lane->state == LANE_CLOSED && lane->waiting_count > 0)
        lane_connect(lane);
    if (lane->state == LANE_CONNECTING)
        lane_check_connect(lane);
    if (lane->state == LANE_OPEN)
        moved |= lane_send(lane);
    /* Right after a submission there is nothing to be had yet. */
    if ((lane->state == LANE_OPEN || lane->state == LANE_FENCING) && attention != ATTENTION_SUBMIT &&
        (lane->request_count > 0 || (attention & ATTENTION_READY) != 0)) {
        moved |= lane_receive(lane);
        if (lane->state == LANE_CLOSED && lane->waiting_count > 0)
            lane_connect(lane);
        if (lane->state == LANE_OPEN)
            moved |= lane_send(lane);
    }
    return moved;
}

/* Works off attention and what is left meanwhile, then lets go. */
static bool lane_work_and_release(struct lane *lane, uint32_t attention)
{
    bool moved = false;

    te_task_signal_begin();
    for (;;) {
        moved |= lane_work(lane, attention);
        attention = atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst);
        if (attention != 0)
            continue;
        atomic_store_explicit(&lane->owned, 0, memory_order_seq_cst);
        if (atomic_load_explicit(&lane->attention, memory_order_seq_cst) == 0 || !lane_own(lane))
            break;
        attention = atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst);
    }
    te_task_signal_end();
    return moved;
}

void lane_drive(struct lane *lane, uint32_t attention)
{
    if (attention != 0)
        atomic_fetch_or_explicit(&lane->attention, attention, memory_order_seq_cst);
    if (lane_own(lane))
        lane_work_and_release(lane, atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst));
}

/* Whoever takes the note lets go of the lane only after acting on it: to own it afterwards means that it is closed. */
bool lane_retire(struct lane *lane)
{
    atomic_fetch_or_explicit(&lane->attention, ATTENTION_ABANDON, memory_order_seq_cst);
    if (!lane_own(lane))
        return false;
    lane_work_and_release(lane, atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst));
    return true;
}

void lane_submit(struct lane *lane, struct te_slice *slices)
{
    struct te_slice *first = slices;
    struct te_slice *reversed = NULL;
    struct te_slice *latest;
    uint64_t bytes = 0;
    uint32_t count = 0;

    while (slices != NULL) {
        struct te_slice *next = slices->next;

        bytes += slices->length;
        count++;
        atomic_store_explicit(&slices->task->driver, lane, memory_order_release);
        slices->next = reversed;
        reversed = slices;
        slices = next;
    }
    atomic_fetch_add_explicit(&lane->outstanding_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&lane->outstanding, count, memory_order_seq_cst); /* see lane_take_inbox() */
    latest = atomic_load_explicit(&lane->inbox, memory_order_relaxed);
    do {
        first->next = latest;
    } while (!atomic_compare_exchange_weak_explicit(&lane->inbox, &latest, reversed, memory_order_release,
                                                    memory_order_relaxed));
    atomic_store_explicit(&lane->driven_ns, te_now_ns(), memory_order_relaxed);
    patrol_add(lane);
    lane_drive(lane, ATTENTION_SUBMIT);
}

void lane_poll(void *data)
{
    struct lane *lane = data;
    int64_t empty_ns = atomic_load_explicit(&lane->empty_ns, memory_order_relaxed);
    int64_t now_ns;
    unsigned looks;

    if (empty_ns != 0 && te_now_ns() - empty_ns < EMPTY_PAUSE_NS)
        return;
    now_ns = te_now_ns();
    atomic_store_explicit(&lane->polled_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&lane->driven_ns, now_ns, memory_order_relaxed);
    if (!lane_own(lane))
        return;
    if (lane_work_and_release(lane, atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst))) {
        atomic_store_explicit(&lane->empty_ns, 0, memory_order_relaxed);
        atomic_store_explicit(&lane->empty_looks, 0, memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&lane->empty_ns, te_now_ns(), memory_order_relaxed);
    looks = atomic_fetch_add_explicit(&lane->empty_looks, 1, memory_order_relaxed);
    if (looks % YIELD_EVERY == YIELD_EVERY - 1)
        sched_yield();
}

/* A thread that polls or sleeps on the lane itself gets there first and must not have to share the processor with the
 * reactor. */
static bool is_polled(struct lane *lane)
{
    return atomic_load_explicit(&lane->sleeper, memory_order_relaxed) ||
           te_now_ns() - atomic_load_explicit(&lane->polled_ns, memory_order_relaxed) < POLLED_NS;
}

static void lane_ready(struct te_watch *watch, uint32_t events)
{
    struct lane *lane = (struct lane *)watch;
    bool polled = is_polled(lane);

    if (events == 0 && polled)
        return;
    atomic_fetch_or_explicit(&lane->attention, ATTENTION_READY, memory_order_seq_cst);
    if (!lane_own(lane))
        return;
    atomic_store_explicit(&lane->driven_ns, te_now_ns(), memory_order_relaxed);
    if (polled)
        lane_set_watched(lane, false);
    if (lane_work_and_release(lane, atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst)) && !polled)
        te_reactor_hot(patrol_reactor(lane->patrol), watch);
}

/* Sleeping callers */

bool lane_claim(void *data, struct pollfd *descriptor)
{
    struct lane *lane = data;
    bool claimed;

    if (atomic_exchange_explicit(&lane->sleeper, true, memory_order_acq_rel))
        return false;
    claimed = lane_own(lane);
    if (claimed && lane->state != LANE_CLOSED && lane_is_answered_early(lane)) {
        /* More bytes would end every poll() at once, and nobody can take them. The reactor hears of changes only. */
        atomic_store_explicit(&lane->sleeper, false, memory_order_release);
        atomic_store_explicit(&lane->polled_ns, 0, memory_order_relaxed);
        lane_set_watched(lane, true);
        lane_work_and_release(lane, atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst));
        return false;
    }
    if (claimed) {
        claimed = lane->state != LANE_CLOSED;
        if (claimed) {
            lane_set_watched(lane, false);
            descriptor->fd = lane->watch.descriptor;
            descriptor->events = POLLIN | POLLRDHUP;
            if (lane->state == LANE_CONNECTING || lane->send_blocked)
                descriptor->events |= POLLOUT;
        }
        lane_work_and_release(lane, atomic_exchange_explicit(&lane->attention, 0, memory_order_seq_cst));
    }
    if (!claimed)
        atomic_store_explicit(&lane->sleeper, false, memory_order_release);
    return claimed;
}

void lane_unclaim(void *data)
{
    struct lane *lane = data;

    atomic_store_explicit(&lane->driven_ns, te_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&lane->sleeper, false, memory_order_release);
    if (atomic_load_explicit(&lane->outstanding, memory_order_acquire) > 0)
        lane_drive(lane, ATTENTION_WATCH);
}

/* Life */

struct lane *lane_new(struct te_endpoint *endpoint, struct patrol *patrol)
{
    struct lane *lane = g_new0(struct lane, 1);

    lane->endpoint = endpoint;
    lane->patrol = patrol;
    lane->watch.descriptor = -1;
    lane->watch.ready = lane_ready;
    for (int i = 0; i < TE_TASK_PRIORITY_COUNT; i++)
        lane->waiting[i].tail = &lane->waiting[i].head;
    return lane;
}

void lane_free(struct lane *lane)
{
    if (lane->state != LANE_CLOSED)
        close(lane->watch.descriptor);
    g_free(lane->requests);
    g_free(lane);
}
