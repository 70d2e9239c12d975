/*
 * Lanes with work are meant to be driven by the threads that want the result. The patrol sees to those that nobody
 * drives, and to time: deadlines, silence, fences. It ticks in a reactor, only while there are lanes to look after, and
 * less often while it finds all of them in good hands.
 */
#include <string.h>

#include "core/clock.h"
#include "transports/tcp/tcp_private.h"

#define TICK_MIN_NS  (1 * TE_NS_PER_MS)
#define TICK_MAX_NS  (8 * TE_NS_PER_MS)
#define NEGLECTED_NS (1 * TE_NS_PER_MS)      /* not driven for so long: the reactor takes over */
#define IDLE_NS      (50 * TE_NS_PER_MS)     /* without slices for so long: leaves the patrol */
#define TIDY_NS      (10 * TE_NS_PER_SECOND) /* how often idle connections are looked for */

struct patrol {
    struct te_transport *transport;
    struct te_reactor *reactor;
    _Atomic(struct lane *) incoming; /* latest first */
    _Atomic bool running;

    /* The rest belongs to the reactor's thread. */
    struct lane *lanes;
    struct te_timer tick;
    struct te_timer tidy; /* of the first patrol only */
    int64_t interval_ns;
};

static void take_incoming(struct patrol *patrol)
{
    struct lane *lane = atomic_exchange_explicit(&patrol->incoming, NULL, memory_order_acquire);

    while (lane != NULL) {
        struct lane *next = lane->patrol_next;

        lane->patrol_next = patrol->lanes;
        patrol->lanes = lane;
        lane = next;
    }
}

/* True if the lane was neglected. */
static bool look_after(struct lane *lane, int64_t now_ns)
{
    int64_t driven_ns = atomic_load_explicit(&lane->driven_ns, memory_order_relaxed);
    bool neglected = now_ns - driven_ns > NEGLECTED_NS && !atomic_load_explicit(&lane->sleeper, memory_order_relaxed);

    lane_drive(lane, ATTENTION_TIME | (neglected ? ATTENTION_WATCH : 0));
    return neglected;
}

static bool is_idle(const struct lane *lane, int64_t now_ns)
{
    struct lane *mutable = (struct lane *)lane;

    return atomic_load_explicit(&mutable->outstanding, memory_order_acquire) == 0 &&
           now_ns - atomic_load_explicit(&mutable->driven_ns, memory_order_relaxed) > IDLE_NS;
}

static void add_incoming(struct patrol *patrol, struct lane *lane)
{
    struct lane *latest = atomic_load_explicit(&patrol->incoming, memory_order_relaxed);

    do {
        lane->patrol_next = latest;
    } while (!atomic_compare_exchange_weak_explicit(&patrol->incoming, &latest, lane, memory_order_release,
                                                    memory_order_relaxed));
}

static void tick(struct te_timer *timer)
{
    struct patrol *patrol = (struct patrol *)((char *)timer - offsetof(struct patrol, tick));
    int64_t now_ns = te_now_ns();
    bool neglected = false;

    take_incoming(patrol);
    for (struct lane **link = &patrol->lanes; *link != NULL;) {
        struct lane *lane = *link;

        if (!is_idle(lane, now_ns)) {
            neglected |= look_after(lane, now_ns);
            link = &lane->patrol_next;
            continue;
        }
        lane_drive(lane, ATTENTION_TIME);
        *link = lane->patrol_next;
        atomic_store_explicit(&lane->patrolled, false, memory_order_seq_cst);
        /* A submission in between saw it patrolled. */
        if (atomic_load_explicit(&lane->outstanding, memory_order_seq_cst) > 0 &&
            !atomic_exchange_explicit(&lane->patrolled, true, memory_order_seq_cst))
            add_incoming(patrol, lane);
    }
    if (patrol->lanes == NULL) {
        atomic_store_explicit(&patrol->running, false, memory_order_seq_cst);
        if (atomic_load_explicit(&patrol->incoming, memory_order_seq_cst) == NULL ||
            atomic_exchange_explicit(&patrol->running, true, memory_order_seq_cst))
            return;
    }
    patrol->interval_ns = neglected ? TICK_MIN_NS : MIN(patrol->interval_ns * 2, TICK_MAX_NS);
    te_reactor_timer_set(patrol->reactor, timer, now_ns + patrol->interval_ns);
}

static void start(void *data)
{
    struct patrol *patrol = data;

    patrol->interval_ns = TICK_MIN_NS;
    te_reactor_timer_set(patrol->reactor, &patrol->tick, te_now_ns() + TICK_MIN_NS);
}

void patrol_add(struct lane *lane)
{
    struct patrol *patrol = lane->patrol;

    if (atomic_load_explicit(&lane->patrolled, memory_order_seq_cst) ||
        atomic_exchange_explicit(&lane->patrolled, true, memory_order_seq_cst))
        return;
    add_incoming(patrol, lane);
    if (!atomic_exchange_explicit(&patrol->running, true, memory_order_seq_cst))
        te_reactor_run(patrol->reactor, start, patrol);
}

static void tidy(struct te_timer *timer)
{
    struct patrol *patrol = (struct patrol *)((char *)timer - offsetof(struct patrol, tidy));

    transport_attend(patrol->transport, ATTENTION_IDLE, true);
    transport_tidy_endpoints(patrol->transport);
    te_reactor_timer_set(patrol->reactor, timer, te_now_ns() + TIDY_NS);
}

static void start_tidying(void *data)
{
    struct patrol *patrol = data;

    te_reactor_timer_set(patrol->reactor, &patrol->tidy, te_now_ns() + TIDY_NS);
}

void patrols_new(struct te_transport *transport)
{
    transport->patrols = g_new0(struct patrol, transport->engine->reactor_count);
    for (size_t i = 0; i < transport->engine->reactor_count; i++) {
        struct patrol *patrol = &transport->patrols[i];

        patrol->transport = transport;
        patrol->reactor = transport->engine->reactors[i];
        patrol->tick.fire = tick;
        patrol->tidy.fire = tidy;
    }
    te_reactor_run(transport->patrols[0].reactor, start_tidying, &transport->patrols[0]);
}

static void stop(void *data)
{
    struct patrol *patrol = data;

    te_reactor_timer_clear(patrol->reactor, &patrol->tick);
    te_reactor_timer_clear(patrol->reactor, &patrol->tidy);
}

void patrols_stop(struct te_transport *transport)
{
    for (size_t i = 0; i < transport->engine->reactor_count; i++)
        te_reactor_run_wait(transport->patrols[i].reactor, stop, &transport->patrols[i]);
}

struct patrol *patrol_for_new_lane(struct te_transport *transport)
{
    unsigned next = atomic_fetch_add_explicit(&transport->next_patrol, 1, memory_order_relaxed);

    return &transport->patrols[next % transport->engine->reactor_count];
}

struct te_reactor *patrol_reactor(const struct patrol *patrol)
{
    return patrol->reactor;
}
