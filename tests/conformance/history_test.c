/*
 * A random history, checked by a model: threads submit transfers of random size and kind to two targets, cancel, free
 * early, let deadlines pass, while the targets are killed, stopped and restarted. Reliability targets R1 and R2: every
 * task is submitted once and terminal once; what completed has moved its bytes; once a task has ended, its destination
 * belongs to the thread again and changes no more.
 *
 * Each thread owns some slots: a piece of local memory and a piece of each target's memory. One task at a time uses a
 * slot, so the model knows what each byte must be. After the end of a task its destination is overwritten and looked at
 * again when the slot is used next.
 *
 * TE_TEST_SEED repeats a history (its timing aside). TE_TEST_HISTORY_SECONDS sets its length, 15 by default.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support.h"
#include "target.h"

enum {
    THREADS = 4,
    TARGETS = 2,
    SLOTS = 6,
    SLOT_SIZE = 256 * KIB,
    THREAD_SIZE = SLOTS * SLOT_SIZE,
    WHOLE_SIZE = THREADS * THREAD_SIZE,
    MARK = 0xa5
};

struct random {
    uint64_t state;
};

static uint64_t next(struct random *random)
{
    random->state += 0x9E3779B97F4A7C15u;
    uint64_t word = random->state;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
}

static uint64_t below(struct random *random, uint64_t limit)
{
    return next(random) % limit;
}

/* A target as the threads see it. The memory stays the same while processes come and go; its address there changes. */
struct place {
    struct target *target;
    struct shared_memory memory;
    _Atomic uint64_t there;
    _Atomic unsigned disturbed; /* counts the begins and ends of misfortunes: odd while there is one */
    segment_id_t segment;
};

struct history {
    int64_t begin_ns;
    transfer_engine_t engine;
    struct place places[TARGETS];
    atomic_bool stop;
    _Atomic uint64_t failures; /* of the model */
};

struct slot {
    bool busy, checked; /* checked: its destination was overwritten with MARK after the last task */
    int place;
    int opcode;
    size_t length;
    uint64_t seed;
    uint8_t *local, *remote;
    batch_id_t batch;
    bool canceled, freed, busy_free, deadline;
    unsigned disturbed;
    int64_t submitted_ns;
};

struct worker {
    struct history *history;
    struct random random;
    size_t number;
    uint8_t *local;
    struct slot slots[SLOTS];
    uint64_t submitted, completed, failed, canceled, refused;
};

static double seconds_since(int64_t begin_ns, int64_t at_ns)
{
    return (double)(at_ns - begin_ns) / 1e9;
}

static void wrong(struct worker *worker, const struct slot *slot, const char *what, long value)
{
    if (atomic_fetch_add(&worker->history->failures, 1) < 20)
        print_error("WRONG at %.3f s: thread %zu, %s of %zu bytes to target %d since %.3f s, seed %llu: %s (%ld)%s%s, "
                    "last error '%s'\n",
                    seconds_since(worker->history->begin_ns, now_ns()), worker->number,
                    slot->opcode == READ ? "read" : "write", slot->length, slot->place,
                    seconds_since(worker->history->begin_ns, slot->submitted_ns), (unsigned long long)slot->seed, what,
                    value, slot->canceled ? ", canceled" : "", slot->busy_free ? ", freed while busy" : "",
                    te_last_error());
}

static uint8_t *destination(const struct slot *slot)
{
    return slot->opcode == READ ? slot->local : slot->remote;
}

static void submit(struct worker *worker, size_t index)
{
    struct slot *slot = &worker->slots[index];
    struct history *history = worker->history;
    /* What the last task left behind is still as this thread left it. */
    if (slot->checked && byte_mismatch(destination(slot), SLOT_SIZE, MARK) != SLOT_SIZE)
        wrong(worker, slot, "bytes changed after the end at", (long)byte_mismatch(destination(slot), SLOT_SIZE, MARK));
    struct place *place;
    *slot = (struct slot){.busy = true, .local = slot->local, .seed = next(&worker->random)};
    slot->place = (int)below(&worker->random, TARGETS);
    place = &history->places[slot->place];
    slot->opcode = (int)below(&worker->random, 2);
    static const size_t limits[] = {64, 4096, 65537, SLOT_SIZE};
    slot->length = 1 + below(&worker->random, limits[below(&worker->random, 4)]);
    slot->remote = place->memory.here + worker->number * THREAD_SIZE + index * SLOT_SIZE;
    memset(destination(slot), MARK, SLOT_SIZE);
    pattern_fill(slot->opcode == READ ? slot->remote : slot->local, slot->length, slot->seed);
    slot->disturbed = atomic_load(&place->disturbed);
    slot->deadline = below(&worker->random, 20) == 0;

    uint64_t there = atomic_load(&place->there) + worker->number * THREAD_SIZE + index * SLOT_SIZE;
    struct transfer_request request = request_of(slot->opcode, slot->local, place->segment, there, slot->length);
    te_submit_options_t options = {.struct_size = sizeof(options),
                                   .priority = (int32_t)below(&worker->random, 4),
                                   .deadline_ns = slot->deadline ? 1 + below(&worker->random, 3000000) : 0};
    slot->submitted_ns = now_ns();
    slot->batch = allocateBatchID(history->engine, 1);
    int result = te_submit(history->engine, slot->batch, &request, 1, &options);
    if (result != 0) {
        wrong(worker, slot, "submit", result);
        slot->busy = false;
        return;
    }
    worker->submitted++;
    if (below(&worker->random, 12) == 0) {
        te_cancel_task(history->engine, slot->batch, 0);
        slot->canceled = true;
    }
    if (below(&worker->random, 12) == 0) {
        result = freeBatchID(history->engine, slot->batch);
        if (result != 0 && result != 4)
            wrong(worker, slot, "early free", result);
        slot->busy_free = result == 4;
        slot->freed = result == 0; /* then the task was over, with an end that nobody saw */
    }
}

static void check_end(struct worker *worker, struct slot *slot, int status, uint64_t bytes)
{
    unsigned disturbed = atomic_load(&worker->history->places[slot->place].disturbed);
    bool allowed = slot->deadline || slot->disturbed % 2 == 1 || disturbed != slot->disturbed;
    uint8_t *end = destination(slot);
    switch (status) {
    case COMPLETED:
        worker->completed++;
        if (bytes != slot->length)
            wrong(worker, slot, "completed with bytes", (long)bytes);
        if (pattern_mismatch(end, slot->length, slot->seed) != slot->length)
            wrong(worker, slot, "completed, but wrong at", (long)pattern_mismatch(end, slot->length, slot->seed));
        break;
    case FAILED:
        worker->failed++;
        if (!allowed)
            wrong(worker, slot, "failed for no reason", 0);
        break;
    case CANCELED:
        worker->canceled++;
        if (!slot->canceled)
            wrong(worker, slot, "canceled by nobody", 0);
        break;
    default:
        wrong(worker, slot, "state", status);
    }
    if (byte_mismatch(end + slot->length, SLOT_SIZE - slot->length, MARK) != SLOT_SIZE - slot->length)
        wrong(worker, slot, "bytes behind the range", 0);
}

/* Looks whether the task has ended; if so checks it and takes the memory back. */
static void reap(struct worker *worker, struct slot *slot)
{
    transfer_engine_t engine = worker->history->engine;
    struct transfer_status status = {.status = -1};
    if (!slot->freed) {
        int result = getTransferStatus(engine, slot->batch, 0, &status);
        if (result != 0) {
            wrong(worker, slot, "status", result);
            slot->busy = false;
            return;
        }
        if (!is_terminal(status.status))
            return;
        check_end(worker, slot, status.status, status.transferred_bytes);
    }
    memset(destination(slot), MARK, SLOT_SIZE); /* from now on nothing may change it */
    slot->checked = true;
    slot->busy = false;
    if (slot->freed)
        return;
    struct transfer_status again = {.status = -1};
    if (getTransferStatus(engine, slot->batch, 0, &again) != 0 || again.status != status.status)
        wrong(worker, slot, "a terminal state changed to", again.status);
    int result = freeBatchID(engine, slot->batch);
    if (result != 0)
        wrong(worker, slot, "free", result);
    if (getTransferStatus(engine, slot->batch, 0, &again) != 1)
        wrong(worker, slot, "status of a freed batch", again.status);
}

static void *work(void *data)
{
    struct worker *worker = data;
    for (unsigned idle = 0; !atomic_load(&worker->history->stop);) {
        struct slot *slot = &worker->slots[below(&worker->random, SLOTS)];
        if (!slot->busy) {
            submit(worker, (size_t)(slot - worker->slots));
            idle = 0;
        } else {
            reap(worker, slot);
            poll_pause(slot->busy ? idle++ : 0);
        }
    }
    for (size_t index = 0; index < SLOTS; index++)
        for (unsigned round = 0; worker->slots[index].busy; round++) {
            reap(worker, &worker->slots[index]);
            poll_pause(round);
        }
    return NULL;
}

static void map_again(struct place *place)
{
    place->memory.there = target_map_existing(place->target, &place->memory);
    assert_int_equal(target_register(place->target, place->memory.there, WHOLE_SIZE, 1), 0);
    atomic_store(&place->there, place->memory.there);
}

/* One misfortune. Tasks that are submitted until it is over may fail. */
static void disturb(struct place *place, struct random *random, int64_t begin_ns)
{
    int64_t from_ns = now_ns();
    bool kills = below(random, 2) == 0;
    atomic_fetch_add(&place->disturbed, 1);
    if (kills) {
        target_kill(place->target);
        poll_pause(2000);
        target_restart(place->target);
        map_again(place);
    } else {
        target_stop(place->target);
        for (uint64_t count = below(random, 2) ? 3000 : 50; count > 0; count--)
            poll_pause(2000); /* longer than the time-outs, or not */
        target_continue(place->target);
    }
    atomic_fetch_add(&place->disturbed, 1);
    print_message("%s %s from %.3f to %.3f s\n", place->target->name, kills ? "killed" : "stopped",
                  seconds_since(begin_ns, from_ns), seconds_since(begin_ns, now_ns()));
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static struct history history;
static struct worker workers[THREADS];
static pthread_t threads[THREADS];
static size_t thread_count;

static void stop_workers(void *data)
{
    (void)data;
    atomic_store(&history.stop, true);
    while (thread_count > 0)
        pthread_join(threads[--thread_count], NULL);
}

static void r1_and_r2_a_random_history(void **state)
{
    (void)state;
    uint64_t seconds = number_from("TE_TEST_HISTORY_SECONDS", 15);
    uint64_t seed = number_from("TE_TEST_SEED", (uint64_t)now_ns());
    struct random random = {seed};
    print_message("TE_TEST_SEED=%llu TE_TEST_HISTORY_SECONDS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)seconds);
    watchdog((unsigned)seconds + 60);
    short_timeouts();
    memset(&history, 0, sizeof(history));
    history.begin_ns = now_ns();
    history.engine = engine_new();
    for (size_t index = 0; index < TARGETS; index++) {
        struct place *place = &history.places[index];
        place->target = target_start_restartable();
        place->memory = target_memory(place->target, WHOLE_SIZE);
        atomic_store(&place->there, place->memory.there);
        place->segment = engine_open(history.engine, place->target->name);
    }
    at_test_end(stop_workers, NULL);
    for (size_t index = 0; index < THREADS; index++) {
        workers[index] = (struct worker){
            .history = &history, .random = {next(&random)}, .number = index, .local = memory_new(THREAD_SIZE)};
        for (size_t slot = 0; slot < SLOTS; slot++)
            workers[index].slots[slot].local = workers[index].local + slot * SLOT_SIZE;
        assert_int_equal(pthread_create(&threads[index], NULL, work, &workers[index]), 0);
        thread_count++;
    }
    int64_t end = now_ns() + (int64_t)seconds * 1000000000;
    while (now_ns() < end) {
        for (uint64_t calm = below(&random, 800); calm > 0 && now_ns() < end; calm--)
            poll_pause(2000);
        disturb(&history.places[below(&random, TARGETS)], &random, history.begin_ns);
    }
    stop_workers(NULL);
    uint64_t total[4] = {0};
    for (size_t index = 0; index < THREADS; index++) {
        total[0] += workers[index].submitted;
        total[1] += workers[index].completed;
        total[2] += workers[index].failed;
        total[3] += workers[index].canceled;
    }
    print_message(
        "%llu submitted: %llu completed, %llu failed, %llu canceled, the rest freed unseen; %u disturbances\n",
        (unsigned long long)total[0], (unsigned long long)total[1], (unsigned long long)total[2],
        (unsigned long long)total[3],
        (atomic_load(&history.places[0].disturbed) + atomic_load(&history.places[1].disturbed)) / 2);
    /* Nothing is left that could still move. */
    for (size_t index = 0; index < TARGETS; index++)
        target_destroy_engine(history.places[index].target);
    engine_delete(history.engine);
    for (size_t index = 0; index < THREADS; index++) {
        for (size_t slot = 0; slot < SLOTS; slot++) {
            struct slot *last = &workers[index].slots[slot];
            if (last->checked && byte_mismatch(destination(last), SLOT_SIZE, MARK) != SLOT_SIZE)
                wrong(&workers[index], last, "bytes changed after the end", 0);
        }
    }
    assert_int_equal(atomic_load(&history.failures), 0);
    assert_true(total[1] > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(r1_and_r2_a_random_history),
    };
    return RUN_TESTS(tests, argc, argv);
}
