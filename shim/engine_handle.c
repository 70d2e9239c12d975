#include "shim/engine_handle.h"

#include <assert.h>
#include <pthread.h>
#include <time.h>

#include "core/clock.h"
#include "core/status.h"

/* Handle: mark (16 bits), generation (38), slot (10). State of a slot: generation, phase (3). */
enum { SLOT_BITS = 10, GENERATION_BITS = 38, PHASE_BITS = 3 };
#define HANDLE_MARK     UINT64_C(0x7e5e)
#define GENERATION_MASK ((UINT64_C(1) << GENERATION_BITS) - 1)

static_assert(TE_MAX_ENGINES == 1 << SLOT_BITS, "a slot number fills its bits");
static_assert(sizeof(transfer_engine_t) == sizeof(uint64_t), "a handle is 64 bits wide");

enum phase { FREE, RESERVED, LIVE, CLOSING, INHERITED };

/* Calls inside an engine are counted in several places, chosen by thread, so that busy-polling threads do not fight for
 * one cache line. */
enum { COUNTERS = 16, CACHE_LINE_BYTES = 64 };

struct counter {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t inside;
};

struct slot {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t state;
    const struct te_runtime_ops *ops;
    void *runtime;
    atomic_bool marked;
    struct counter counters[COUNTERS];
};

/* Untouched entries cost address space only. */
static struct slot slots[TE_MAX_ENGINES];
static pthread_once_t watch_forks_once = PTHREAD_ONCE_INIT;

static uint64_t make_state(uint64_t generation, enum phase phase)
{
    return generation << PHASE_BITS | phase;
}

static uint64_t state_generation(uint64_t state)
{
    return state >> PHASE_BITS;
}

static enum phase state_phase(uint64_t state)
{
    return (enum phase)(state & ((1 << PHASE_BITS) - 1));
}

static transfer_engine_t make_handle(uint64_t generation, size_t slot)
{
    return (transfer_engine_t)(uintptr_t)(HANDLE_MARK << (SLOT_BITS + GENERATION_BITS) | generation << SLOT_BITS |
                                          slot);
}

/* The slot that a handle names and the generation it must have, or NULL if it is no handle. */
static struct slot *find_slot(transfer_engine_t handle, uint64_t *generation)
{
    uint64_t bits = (uint64_t)(uintptr_t)handle;

    if (bits >> (SLOT_BITS + GENERATION_BITS) != HANDLE_MARK)
        return NULL;
    *generation = bits >> SLOT_BITS & GENERATION_MASK;
    return &slots[bits & (TE_MAX_ENGINES - 1)];
}

/* The child has one thread and it is in no call: what other threads had counted or begun does not exist here. */
static void forked_child(void)
{
    for (size_t i = 0; i < TE_MAX_ENGINES; i++) {
        struct slot *slot = &slots[i];
        uint64_t state = atomic_load(&slot->state);

        if (state_generation(state) == 0)
            continue;
        for (size_t j = 0; j < COUNTERS; j++)
            atomic_store(&slot->counters[j].inside, 0);
        if (state_phase(state) == LIVE)
            atomic_store(&slot->state, make_state(state_generation(state), INHERITED));
        else if (state_phase(state) != INHERITED)
            atomic_store(&slot->state, make_state(state_generation(state), FREE));
    }
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked_child);
}

te_status te_engine_handle_add(const struct te_runtime_ops *ops, void *runtime, transfer_engine_t *handle)
{
    pthread_once(&watch_forks_once, watch_forks);
    for (size_t i = 0; i < TE_MAX_ENGINES; i++) {
        struct slot *slot = &slots[i];
        uint64_t state = atomic_load(&slot->state);
        uint64_t generation = (state_generation(state) + 1) & GENERATION_MASK;

        if (generation == 0)
            generation = 1;
        if (state_phase(state) != FREE ||
            !atomic_compare_exchange_strong(&slot->state, &state, make_state(generation, RESERVED)))
            continue;
        slot->ops = ops;
        slot->runtime = runtime;
        atomic_store(&slot->marked, false);
        atomic_store(&slot->state, make_state(generation, LIVE));
        *handle = make_handle(generation, i);
        return TE_OK;
    }
    return te_fail(TE_TOO_MANY_REQUESTS, "%d engines exist in this process, that is the most", TE_MAX_ENGINES);
}

static bool refuse(const struct slot *slot, uint64_t generation)
{
    uint64_t state = slot ? atomic_load(&slot->state) : 0;

    if (slot && state == make_state(generation, INHERITED))
        te_fail(TE_INVALID_ARGUMENT,
                "the engine belongs to the parent of this process; a forked child must create its own");
    else if (slot && generation != 0 && generation <= state_generation(state))
        te_fail(TE_INVALID_ARGUMENT, "the engine has been destroyed");
    else
        te_fail(TE_INVALID_ARGUMENT, "not an engine");
    return false;
}

static struct counter *counter_of_this_thread(struct slot *slot)
{
    /* Thread descriptors lie a stack apart; the upper bits of the product mix all of the address. */
    uint64_t mixed = (uint64_t)pthread_self() * UINT64_C(0x9e3779b97f4a7c15);

    return &slot->counters[mixed >> 60];
}

bool te_engine_enter(transfer_engine_t handle, struct te_engine_call *call)
{
    uint64_t generation = 0;
    struct slot *slot = find_slot(handle, &generation);
    struct counter *counter;

    call->inside = NULL;
    if (!slot || atomic_load(&slot->state) != make_state(generation, LIVE))
        return refuse(slot, generation);
    /* Count first, then look again: either destroy sees the count or this sees that it is closing. */
    counter = counter_of_this_thread(slot);
    atomic_fetch_add(&counter->inside, 1);
    if (atomic_load(&slot->state) != make_state(generation, LIVE)) {
        atomic_fetch_sub(&counter->inside, 1);
        return refuse(slot, generation);
    }
    call->ops = slot->ops;
    call->runtime = slot->runtime;
    call->inside = &counter->inside;
    return true;
}

void te_engine_leave(struct te_engine_call *call)
{
    if (call->inside)
        atomic_fetch_sub(call->inside, 1);
}

/* Waits until no call is inside. Only destroy pays for it, so it looks again at growing intervals instead of making
 * every call signal its end. */
static void wait_for_calls(struct slot *slot)
{
    for (size_t i = 0; i < COUNTERS; i++) {
        struct timespec pause = {.tv_nsec = 1000};

        while (atomic_load(&slot->counters[i].inside) != 0) {
            nanosleep(&pause, NULL);
            if (pause.tv_nsec < TE_NS_PER_MS)
                pause.tv_nsec *= 2;
        }
    }
}

bool te_engine_handle_destroy(transfer_engine_t handle)
{
    uint64_t generation = 0;
    struct slot *slot = find_slot(handle, &generation);
    uint64_t expected = make_state(generation, LIVE);

    if (!slot)
        return refuse(slot, generation);
    if (atomic_compare_exchange_strong(&slot->state, &expected, make_state(generation, CLOSING))) {
        wait_for_calls(slot);
        slot->ops->destroy(slot->runtime);
    } else if (expected != make_state(generation, INHERITED)) {
        return refuse(slot, generation);
    }
    atomic_store(&slot->state, make_state(generation, FREE));
    return true;
}

bool te_engine_handle_mark(transfer_engine_t handle)
{
    struct te_engine_call call;
    uint64_t generation = 0;
    bool live = te_engine_enter(handle, &call);

    if (live)
        atomic_store(&find_slot(handle, &generation)->marked, true);
    te_engine_leave(&call);
    return live;
}

void te_engine_handle_destroy_marked(void)
{
    for (size_t i = 0; i < TE_MAX_ENGINES; i++) {
        uint64_t state = atomic_load(&slots[i].state);

        if (state_phase(state) == LIVE && atomic_load(&slots[i].marked))
            te_engine_handle_destroy(make_handle(state_generation(state), i));
    }
}
