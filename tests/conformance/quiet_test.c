/*
 * Terminal means quiet: once a task has ended, nothing of it moves any more. In each test a transfer is brought to its
 * end by some misfortune; at that moment its destination is overwritten (as a caller would who gives the memory to
 * somebody else); then whatever held the transfer up goes on, and the destination must stay as it is, until the peer
 * has worked through everything that lay before it and has destroyed its engine. Callers' behaviour 28, gap 1.
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SENTINEL = 0x5a, AFTERWARDS = 0xee, LARGE = 64 * MIB };

static const size_t lengths[] = {100, 64 * KIB + 1, LARGE};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* A look at memory that a transfer may be writing to. */
__attribute__((no_sanitize("thread"))) static uint8_t peek(const uint8_t *byte)
{
    return *(const volatile uint8_t *)byte;
}

struct watched {
    struct pair pair;
    int opcode;
    size_t length;
    uint8_t *destination;
    batch_id_t batch;
};

static struct watched watched_new(int opcode, size_t length)
{
    struct watched watched = {.opcode = opcode, .length = length};
    watched.pair = pair_new_restartable(length);
    watched.destination = opcode == READ ? watched.pair.local : watched.pair.remote.here;
    memset(opcode == READ ? watched.pair.remote.here : watched.pair.local, 0x11, length);
    return watched;
}

static void submit(struct watched *watched)
{
    watched->batch = pair_submit(&watched->pair, watched->opcode, watched->length);
}

/* Submits and waits until bytes arrive. */
static void submit_and_see_it_move(struct watched *watched)
{
    submit(watched);
    AWAIT(peek(watched->destination) == 0x11);
}

static void overwrite(struct watched *watched)
{
    memset(watched->destination, SENTINEL, watched->length);
    if (watched->opcode == WRITE)
        memset(watched->pair.local, AFTERWARDS, watched->length); /* the source is the caller's again as well */
}

/* The peer is alive: what it may still do to the destination has happened when this returns. */
static void assert_quiet(struct watched *watched)
{
    assert_bytes(watched->destination, watched->length, SENTINEL);
    pair_settle(&watched->pair);
    assert_bytes(watched->destination, watched->length, SENTINEL);
    target_destroy_engine(watched->pair.target);
    assert_bytes(watched->destination, watched->length, SENTINEL);
}

static void forget(struct watched *watched)
{
    engine_delete(watched->pair.engine);
    targets_kill_all();
}

#define FOR_EACH_CASE(opcode, index)                                                                                   \
    for (int opcode = READ; opcode <= WRITE; opcode++)                                                                 \
        for (size_t index = 0; index < LENGTHS; index++)

/* ---- the peer's side ends it ---- */

static void contract_quiet_when_the_peer_is_stopped_before(void **state)
{
    (void)state;
    watchdog(90);
    short_timeouts();
    FOR_EACH_CASE(opcode, index)
    {
        struct watched watched = watched_new(opcode, lengths[index]);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED); /* there is a connection */
        target_stop(watched.pair.target);
        submit(&watched);
        assert_int_equal(finish(watched.pair.engine, watched.batch, 0), FAILED);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        assert_int_equal(task_status(watched.pair.engine, watched.batch, 0), FAILED);
        forget(&watched);
    }
}

static void contract_quiet_when_the_peer_is_stopped_before_the_first_contact(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct watched watched = watched_new(opcode, 100);
        target_stop(watched.pair.target);
        submit(&watched); /* the kernel accepts the connection, the process does not */
        assert_int_equal(finish(watched.pair.engine, watched.batch, 0), FAILED);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        forget(&watched);
    }
}

static void contract_and_report_b06_quiet_when_the_peer_is_stopped_in_the_middle(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct watched watched = watched_new(opcode, LARGE);
        submit_and_see_it_move(&watched);
        target_stop(watched.pair.target);
        int status = finish(watched.pair.engine, watched.batch, 0);
        assert_true(status == FAILED || status == COMPLETED);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        forget(&watched);
    }
}

static void b28_and_e01_quiet_when_the_peer_is_killed(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    FOR_EACH_CASE(opcode, index)
    {
        struct watched watched = watched_new(opcode, lengths[index]);
        submit(&watched);
        target_kill(watched.pair.target);
        int status = finish(watched.pair.engine, watched.batch, 0);
        assert_true(status == FAILED || status == COMPLETED);
        overwrite(&watched);
        engine_delete(watched.pair.engine); /* nobody else is left to move anything */
        assert_bytes(watched.destination, watched.length, SENTINEL);
        targets_kill_all();
    }
}

static void contract_quiet_when_the_peer_restarts(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct watched watched = watched_new(opcode, LARGE);
        submit_and_see_it_move(&watched);
        target_kill(watched.pair.target);
        target_restart(watched.pair.target);
        int status = finish(watched.pair.engine, watched.batch, 0);
        assert_true(status == FAILED || status == COMPLETED);
        overwrite(&watched);
        assert_quiet(&watched);
        forget(&watched);
    }
}

static void contract_quiet_when_the_peer_unregisters(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct watched watched = watched_new(opcode, LARGE);
        submit_and_see_it_move(&watched);
        assert_int_equal(target_unregister(watched.pair.target, watched.pair.remote.there), 0);
        /* From here on the memory is the owner's: no peer's write may land, no peer may see what comes into it. */
        memset(watched.pair.remote.here, SENTINEL, LARGE);
        int status = finish(watched.pair.engine, watched.batch, 0);
        assert_true(status == FAILED || status == COMPLETED);
        pair_settle(&watched.pair);
        assert_bytes(watched.pair.remote.here, LARGE, SENTINEL);
        for (size_t position = 0; opcode == READ && position < LARGE; position++)
            assert_int_not_equal(watched.pair.local[position], SENTINEL);
        overwrite(&watched);
        assert_quiet(&watched);
        forget(&watched);
    }
}

static void contract_quiet_when_the_peer_destroys_its_engine(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct watched watched = watched_new(opcode, LARGE);
        submit_and_see_it_move(&watched);
        target_destroy_engine(watched.pair.target);
        memset(watched.pair.remote.here, SENTINEL, LARGE);
        int status = finish(watched.pair.engine, watched.batch, 0);
        assert_true(status == FAILED || status == COMPLETED);
        overwrite(&watched);
        engine_delete(watched.pair.engine);
        assert_bytes(watched.pair.remote.here, LARGE, SENTINEL);
        assert_bytes(watched.destination, LARGE, SENTINEL);
        targets_kill_all();
    }
}

/* ---- a foreign peer ---- */

static void contract_quiet_when_a_foreign_peer_stalls_half_way(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        for (int late = 0; late < 2; late++) {
            struct raw_peer *peer = raw_peer_start();
            transfer_engine_t engine = engine_new();
            uint8_t *local = memory_new(MIB);
            segment_id_t segment = engine_open(engine, peer->name);
            memset(local, 0x11, MIB);
            memset(peer->memory, 0x22, MIB);
            raw_peer_behave(peer, late ? RAW_STALL_BEFORE_STATUS : RAW_STALL_HALF_WAY, 1);
            batch_id_t batch = submit_one(engine, opcode, local, segment, (uintptr_t)peer->memory, MIB);
            assert_int_equal(finish(engine, batch, 0), FAILED);
            memset(local, AFTERWARDS, MIB);
            raw_peer_release(peer); /* it sends the rest, or takes what it can get */
            raw_peer_request(peer, 0, true);
            assert_false(raw_peer_saw_byte(peer, AFTERWARDS)); /* waits for the end of its connections */
            assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, 10), COMPLETED);
            assert_bytes(local, MIB, AFTERWARDS);
            assert_int_equal(freeBatchID(engine, batch), 0);
            engine_delete(engine);
            raw_peer_stop(peer);
        }
    }
}

static void contract_quiet_when_a_foreign_peer_closes_half_way(void **state)
{
    (void)state;
    static const enum raw_behaviour behaviours[] = {RAW_CLOSE_AT_ONCE,        RAW_CLOSE_HALF_WAY, RAW_REJECT,
                                                    RAW_LOSE_ACKNOWLEDGEMENT, RAW_STATUS_TWO,     RAW_BAD_MAGIC};
    transfer_engine_t engine = engine_new(); /* the usual time-outs: none of them is waited for */
    uint8_t *local = memory_new(MIB);
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        for (size_t index = 0; index < sizeof(behaviours) / sizeof(behaviours[0]); index++) {
            struct raw_peer *peer = raw_peer_start();
            segment_id_t segment = engine_open(engine, peer->name);
            memset(local, 0x11, MIB);
            raw_peer_behave(peer, behaviours[index], 0);
            batch_id_t batch = submit_one(engine, opcode, local, segment, (uintptr_t)peer->memory, MIB);
            assert_int_equal(finish(engine, batch, 0), FAILED);
            memset(local, AFTERWARDS, MIB);
            raw_peer_behave(peer, RAW_SERVE, 0);
            raw_peer_release(peer);
            assert_int_equal(transfer(engine, READ, local, segment, (uintptr_t)peer->memory, 0), COMPLETED);
            raw_peer_stop(peer);
            assert_bytes(local, MIB, AFTERWARDS);
            assert_int_equal(freeBatchID(engine, batch), 0);
        }
    }
}

static void report_s05_a_write_whose_acknowledgement_is_lost_is_not_repeated(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(KIB);
    for (int round = 0; round < 10; round++) {
        struct raw_peer *peer = raw_peer_start();
        segment_id_t segment = engine_open(engine, peer->name);
        if (round % 2) /* on a connection that has served before */
            assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, 5), COMPLETED);
        unsigned before = raw_peer_requests(peer);
        raw_peer_behave(peer, RAW_LOSE_ACKNOWLEDGEMENT, 1);
        memset(local, 0x40 + round, KIB);
        assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB), FAILED);
        assert_int_equal(raw_peer_requests(peer), before + 1);
        assert_bytes(peer->memory, KIB, (uint8_t)(0x40 + round)); /* it did arrive, which nobody can know */
        assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB), COMPLETED);
        raw_peer_stop(peer);
    }
}

/* ---- the caller's side ends it ---- */

static void contract_quiet_after_a_free_while_busy(void **state)
{
    (void)state;
    watchdog(60);
    short_timeouts();
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct watched watched = watched_new(opcode, 100);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
        target_stop(watched.pair.target);
        submit(&watched);
        assert_int_equal(freeBatchID(watched.pair.engine, watched.batch), 4);
        assert_int_equal(task_status(watched.pair.engine, watched.batch, 0), WAITING);
        assert_int_equal(free_when_done(watched.pair.engine, watched.batch), 0);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        forget(&watched);
    }
}

static void contract_quiet_after_cancel_with_a_stopped_peer(void **state)
{
    (void)state;
    watchdog(60);
    /* The usual time-outs: a cancel does not wait for them, only for the fence. */
    FOR_EACH_CASE(opcode, index)
    {
        struct watched watched = watched_new(opcode, lengths[index]);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
        target_stop(watched.pair.target);
        submit(&watched);
        assert_int_equal(te_cancel_batch(watched.pair.engine, watched.batch), 0);
        assert_int_equal(finish(watched.pair.engine, watched.batch, 0), CANCELED);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        assert_int_equal(freeBatchID(watched.pair.engine, watched.batch), 0);
        forget(&watched);
    }
}

static void contract_quiet_with_a_very_short_fence(void **state)
{
    (void)state;
    /* The peer is stopped for so short a time that it hardly notices. */
    setenv("TE_TCP_FENCE_TIMEOUT_MS", "100", 1); /* the least that is taken */
    struct watched watched = watched_new(WRITE, 100);
    for (int round = 0; round < 20; round++) {
        memset(watched.pair.local, 0x11, 100);
        assert_int_equal(pair_transfer(&watched.pair, WRITE, 100), COMPLETED);
        target_stop(watched.pair.target);
        submit(&watched);
        assert_int_equal(te_cancel_batch(watched.pair.engine, watched.batch), 0);
        assert_int_equal(finish(watched.pair.engine, watched.batch, 0), CANCELED);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
        assert_bytes(watched.destination, 100, SENTINEL);
        assert_int_equal(freeBatchID(watched.pair.engine, watched.batch), 0);
    }
    overwrite(&watched);
    assert_quiet(&watched);
}

static void contract_quiet_after_cancel_in_the_middle(void **state)
{
    (void)state;
    watchdog(60);
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct watched watched = watched_new(opcode, LARGE);
        submit_and_see_it_move(&watched);
        assert_int_equal(te_cancel_task(watched.pair.engine, watched.batch, 0), 0);
        int status = finish(watched.pair.engine, watched.batch, 0);
        assert_true(status == CANCELED || status == COMPLETED);
        overwrite(&watched);
        assert_quiet(&watched);
        forget(&watched);
    }
}

static void contract_quiet_after_a_deadline(void **state)
{
    (void)state;
    watchdog(60);
    FOR_EACH_CASE(opcode, index)
    {
        struct watched watched = watched_new(opcode, lengths[index]);
        te_submit_options_t options = {.struct_size = sizeof(options), .deadline_ns = 50000000};
        struct transfer_request request =
            request_of(opcode, watched.pair.local, watched.pair.segment, watched.pair.remote.there, lengths[index]);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
        target_stop(watched.pair.target);
        watched.batch = batch_new(watched.pair.engine, 1);
        assert_int_equal(te_submit(watched.pair.engine, watched.batch, &request, 1, &options), 0);
        assert_int_equal(finish(watched.pair.engine, watched.batch, 0), FAILED);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        forget(&watched);
    }
}

static void contract_quiet_after_destroy_with_a_stopped_peer(void **state)
{
    (void)state;
    watchdog(60);
    FOR_EACH_CASE(opcode, index)
    {
        struct watched watched = watched_new(opcode, lengths[index]);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
        target_stop(watched.pair.target);
        submit(&watched);
        engine_delete(watched.pair.engine);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        targets_kill_all();
    }
}

static void contract_quiet_after_destroy_in_the_middle(void **state)
{
    (void)state;
    watchdog(60);
    for (int round = 0; round < 6; round++) {
        struct watched watched = watched_new(round % 2, LARGE);
        submit_and_see_it_move(&watched);
        engine_delete(watched.pair.engine);
        overwrite(&watched);
        assert_quiet(&watched);
        targets_kill_all();
    }
}

static void contract_quiet_although_a_forked_child_holds_copies_of_the_sockets(void **state)
{
    (void)state;
    watchdog(60);
    FOR_EACH_CASE(opcode, index)
    {
        int hold[2];
        struct watched watched = watched_new(opcode, lengths[index]);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
        assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) { /* as the workers of a program do: it does nothing, and has everything */
            char byte;
            close(hold[1]);
            alarm(100);
            _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
        }
        assert_true(child > 0);
        close(hold[0]);
        target_stop(watched.pair.target);
        submit(&watched);
        assert_int_equal(te_cancel_batch(watched.pair.engine, watched.batch), 0);
        assert_int_equal(finish(watched.pair.engine, watched.batch, 0), CANCELED);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_quiet(&watched);
        forget(&watched);
        int status;
        close(hold[1]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void contract_quiet_when_the_peer_is_stopped_at_any_moment(void **state)
{
    (void)state;
    /* The peer may be stopped at any instruction: between looking and taking, too. */
    watchdog(90);
    setenv("TE_TCP_FENCE_TIMEOUT_MS", "100", 1);
    struct watched watched = watched_new(WRITE, LARGE);
    int rounds = under_sanitizer() ? 16 : 60; /* each goes over 64 MiB several times */
    for (int round = 0; round < rounds; round++) {
        memset(watched.destination, 0, LARGE);
        memset(watched.pair.local, 0x11, LARGE);
        submit(&watched);
        uint8_t *far = watched.destination + (size_t)(round % 16) * (LARGE / 16);
        AWAIT(peek(far) == 0x11 || is_terminal(task_status(watched.pair.engine, watched.batch, 0)));
        target_stop(watched.pair.target);
        assert_int_equal(te_cancel_batch(watched.pair.engine, watched.batch), 0);
        int status = finish(watched.pair.engine, watched.batch, 0);
        assert_true(status == CANCELED || status == COMPLETED);
        assert_int_equal(freeBatchID(watched.pair.engine, watched.batch), 0);
        overwrite(&watched);
        target_continue(watched.pair.target);
        assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
        assert_bytes(watched.destination, LARGE, SENTINEL);
    }
}

static void contract_quiet_for_a_queue_of_requests(void **state)
{
    (void)state;
    enum { COUNT = 256, EACH = 16 * KIB };
    watchdog(60);
    short_timeouts();
    struct watched watched = watched_new(WRITE, COUNT * EACH);
    struct transfer_request requests[COUNT];
    for (size_t index = 0; index < COUNT; index++)
        requests[index] = request_of(WRITE, watched.pair.local + index * EACH, watched.pair.segment,
                                     watched.pair.remote.there + index * EACH, EACH);
    watched.batch = batch_new(watched.pair.engine, COUNT);
    assert_int_equal(pair_transfer(&watched.pair, READ, 1), COMPLETED);
    target_stop(watched.pair.target);
    assert_int_equal(submitTransfer(watched.pair.engine, watched.batch, requests, COUNT), 0);
    /* Each destination is given away as soon as its own task has ended, whatever becomes of the others. */
    for (size_t index = 0; index < COUNT; index++) {
        assert_int_equal(finish(watched.pair.engine, watched.batch, index), FAILED);
        memset(watched.pair.remote.here + index * EACH, SENTINEL, EACH);
    }
    target_continue(watched.pair.target);
    assert_quiet(&watched);
}

/* ---- destroy against everything (gap 7) ---- */

static void *submit_and_poll(void *data)
{
    struct pair *pair = *(struct pair **)data;
    batch_id_t batch = allocateBatchID(pair->engine, 1);
    struct transfer_request request = request_of(WRITE, pair->local, pair->segment, pair->remote.there, pair->size);
    submitTransfer(pair->engine, batch, &request, 1);
    for (int round = 0; round < 200; round++) {
        struct transfer_status status;
        getTransferStatus(pair->engine, batch, 0, &status);
    }
    return NULL;
}

static void e07_destroy_right_after_other_threads_have_polled(void **state)
{
    (void)state;
    watchdog(60);
    for (int round = 0; round < 10; round++) {
        struct pair pair = pair_new(8 * MIB);
        struct pair *all[4] = {&pair, &pair, &pair, &pair};
        run_threads(4, submit_and_poll, all, sizeof(all[0]));
        engine_delete(pair.engine); /* with all of it running */
        targets_kill_all();
    }
}

static void e07_free_and_destroy_with_tasks_running(void **state)
{
    (void)state;
    watchdog(60);
    for (int round = 0; round < 10; round++) {
        struct pair pair = pair_new(8 * MIB);
        for (int index = 0; index < 8; index++) {
            batch_id_t batch = submit_one(pair.engine, index % 2, pair.local + index * MIB, pair.segment,
                                          pair.remote.there + (size_t)index * MIB, MIB);
            int result = freeBatchID(pair.engine, batch);
            assert_true(result == 0 || result == 4);
        }
        engine_delete(pair.engine);
        targets_kill_all();
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(contract_quiet_when_the_peer_is_stopped_before),
        TEST(contract_quiet_when_the_peer_is_stopped_before_the_first_contact),
        TEST(contract_and_report_b06_quiet_when_the_peer_is_stopped_in_the_middle),
        TEST(b28_and_e01_quiet_when_the_peer_is_killed),
        TEST(contract_quiet_when_the_peer_restarts),
        TEST(contract_quiet_when_the_peer_unregisters),
        TEST(contract_quiet_when_the_peer_destroys_its_engine),
        TEST(contract_quiet_when_a_foreign_peer_stalls_half_way),
        TEST(contract_quiet_when_a_foreign_peer_closes_half_way),
        TEST(contract_quiet_after_a_free_while_busy),
        TEST(contract_quiet_after_cancel_with_a_stopped_peer),
        TEST(contract_quiet_with_a_very_short_fence),
        TEST(contract_quiet_after_cancel_in_the_middle),
        TEST(contract_quiet_after_a_deadline),
        TEST(contract_quiet_after_destroy_with_a_stopped_peer),
        TEST(contract_quiet_after_destroy_in_the_middle),
        TEST(contract_quiet_although_a_forked_child_holds_copies_of_the_sockets),
        TEST(contract_quiet_when_the_peer_is_stopped_at_any_moment),
        TEST(contract_quiet_for_a_queue_of_requests),
        TEST(report_s05_a_write_whose_acknowledgement_is_lost_is_not_repeated),
        TEST(e07_destroy_right_after_other_threads_have_polled),
        TEST(e07_free_and_destroy_with_tasks_running),
    };
    return RUN_TESTS(tests, argc, argv);
}
