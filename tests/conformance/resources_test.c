/* What engines, connections and batches cost, and that it is given back: reliability target R5, bug reports T09, T29.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };

struct usage {
    size_t descriptors, threads, resident;
};

static struct usage usage_now(struct usage expected)
{
    struct usage usage = {.descriptors = settled_descriptors(expected.descriptors),
                          .threads = settled_threads(expected.threads),
                          .resident = resident_bytes()};
    return usage;
}

/* Runs a round warm, then count times, and compares what the process holds before and after. */
static void assert_gives_back(void (*round)(void *data), void *data, size_t count)
{
    struct usage zero = {0, 0, 0};
    for (size_t index = 0; index < 50; index++)
        round(data);
    struct usage before = usage_now(zero);
    for (size_t index = 0; index < count; index++)
        round(data);
    struct usage after = usage_now(before);
    print_message("descriptors %zu -> %zu, threads %zu -> %zu, resident %zu -> %zu KiB\n", before.descriptors,
                  after.descriptors, before.threads, after.threads, before.resident / KIB, after.resident / KIB);
    assert_int_equal(after.descriptors, before.descriptors);
    assert_int_equal(after.threads, before.threads);
    if (!under_sanitizer()) /* they keep freed memory for a while */
        assert_true(after.resident < before.resident + 3 * MIB);
}

static size_t rounds(void)
{
    return under_sanitizer() ? 200 : 1000;
}

static void create_and_destroy(void *data)
{
    (void)data;
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
    assert_non_null(engine);
    assert_non_null(installTransport(engine, "tcp", NULL));
    destroyTransferEngine(engine);
}

static void r5_create_and_destroy(void **state)
{
    (void)state;
    watchdog(90);
    assert_gives_back(create_and_destroy, NULL, rounds());
}

static void create_use_and_destroy(void *data)
{
    struct pair *pair = data;
    char name[NAME_SIZE];
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    assert_non_null(engine);
    assert_int_equal(registerLocalMemory(engine, pair->local, SIZE, "cpu:0", 1), 0);
    segment_id_t segment = openSegment(engine, pair->target->name);
    assert_true(segment > 0);
    assert_int_equal(transfer(engine, WRITE, pair->local, segment, pair->remote.there, SIZE), COMPLETED);
    engine_name(engine, name);
    segment_id_t back = openSegment(pair->engine, name);
    assert_true(back > 0);
    assert_int_equal(transfer(pair->engine, READ, pair->local + KIB, back, (uintptr_t)pair->local, 100), COMPLETED);
    notify_msg_t message = {.name = "n", .msg = "m"};
    assert_int_equal(genNotifyInEngine(engine, LOCAL_SEGMENT, message), 0); /* never fetched */
    batch_id_t batch = allocateBatchID(engine, 100);                        /* never freed: report T29 */
    assert_true(te_event_fd(engine) >= 0);
    assert_true(te_batch_event_fd(engine, batch) >= 0);
    struct transfer_request request = request_of(READ, pair->local, segment, pair->remote.there, SIZE);
    assert_int_equal(submitTransfer(engine, batch, &request, 1), 0); /* maybe under way */
    destroyTransferEngine(engine);
    assert_int_equal(removeLocalSegment(pair->engine, name), 0);
}

static void r5_and_report_t29_create_use_and_destroy(void **state)
{
    (void)state;
    watchdog(100);
    struct pair pair = pair_new(SIZE);
    assert_gives_back(create_use_and_destroy, &pair, rounds() / 2);
}

static void transfer_and_part(void *data)
{
    struct pair *pair = data;
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    segment_id_t segment = openSegment(engine, pair->target->name);
    assert_int_equal(transfer(engine, WRITE, pair->local, segment, pair->remote.there, KIB), COMPLETED);
    destroyTransferEngine(engine);
}

static void r5_a_target_with_a_thousand_visitors(void **state)
{
    (void)state;
    watchdog(90);
    struct pair pair = pair_new(SIZE);
    for (size_t index = 0; index < 50; index++)
        transfer_and_part(&pair);
    size_t before = target_resident_bytes(pair.target);
    for (size_t index = 0; index < rounds(); index++)
        transfer_and_part(&pair);
    size_t after = target_resident_bytes(pair.target);
    print_message("resident in the target %zu -> %zu KiB\n", before / KIB, after / KIB);
    assert_true(under_sanitizer() || after < before + 3 * MIB);
    char command[64];
    unsigned count = 0;
    snprintf(command, sizeof(command), "ls /proc/%d/fd | wc -l", (int)pair.target->pid);
    FILE *output = popen(command, "re");
    assert_non_null(output);
    assert_int_equal(fscanf(output, "%u", &count), 1);
    pclose(output);
    assert_true(count < 100);
}

static void open_and_fail(void *data)
{
    transfer_engine_t engine = *(transfer_engine_t *)data;
    assert_true(openSegment(engine, "127.0.0.1:1") < 0);
    assert_true(te_probe(engine, "127.0.0.1:1") < 0);
}

static void r5_a_thousand_failing_opens(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    assert_gives_back(open_and_fail, &engine, rounds());
}

static void submit_and_free(void *data)
{
    struct pair *pair = data;
    for (int index = 0; index < 20; index++) {
        batch_id_t batch = submit_one(pair->engine, index % 2, pair->local + index * KIB, pair->segment,
                                      pair->remote.there + (size_t)index * KIB, KIB);
        if (index % 3 == 0) {
            freeBatchID(pair->engine, batch); /* while busy, perhaps */
        } else {
            assert_true(te_batch_event_fd(pair->engine, batch) >= 0);
            assert_int_equal(te_wait_batch(pair->engine, batch, -1), 0);
            assert_int_equal(freeBatchID(pair->engine, batch), 0);
        }
    }
    assert_int_equal(pair_transfer(pair, WRITE, 100), COMPLETED);
}

static void r5_batches(void **state)
{
    (void)state;
    watchdog(90);
    struct pair pair = pair_new(SIZE);
    assert_gives_back(submit_and_free, &pair, rounds());
}

static void r5_event_descriptors_of_batches_freed_while_busy(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
    size_t before = open_descriptors();
    for (int round = 0; round < 2000; round++) {
        batch_id_t batch = pair_submit(&pair, WRITE, SIZE);
        assert_true(te_batch_event_fd(pair.engine, batch) >= 0);
        freeBatchID(pair.engine, batch);
        if (round % 16 == 0)
            assert_int_equal(pair_transfer(&pair, WRITE, KIB), COMPLETED);
    }
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), COMPLETED);
    assert_true(settled_descriptors(before + 64) <= before + 64);
}

static void fail_transfers(void *data)
{
    struct pair *pair = data;
    for (int index = 0; index < 4; index++)
        assert_int_equal(transfer(pair->engine, index % 2, pair->local, pair->segment, 64, KIB), FAILED);
}

static void r5_failing_transfers(void **state)
{
    (void)state;
    watchdog(90);
    struct pair pair = pair_new(SIZE);
    assert_gives_back(fail_transfers, &pair, rounds());
}

static void *allocate_and_free(void *data)
{
    transfer_engine_t engine = *(transfer_engine_t *)data;
    batch_id_t held[16] = {0};
    for (size_t round = 0; round < 20000; round++) {
        batch_id_t *place = &held[round * 7 % 16];
        if (*place != 0 && freeBatchID(engine, *place) != 0)
            return NULL;
        *place = allocateBatchID(engine, round % 5);
        if (*place == INVALID_BATCH || *place == 0)
            return NULL;
    }
    for (size_t index = 0; index < 16; index++) {
        if (held[index] != 0 && freeBatchID(engine, held[index]) != 0)
            return NULL;
    }
    return data;
}

static void report_t09_threads_allocate_and_free(void **state)
{
    (void)state;
    enum { THREADS = 16 };
    watchdog(60);
    pthread_t threads[THREADS];
    transfer_engine_t engine = engine_new();
    for (size_t index = 0; index < THREADS; index++)
        assert_int_equal(pthread_create(&threads[index], NULL, allocate_and_free, &engine), 0);
    for (size_t index = 0; index < THREADS; index++) {
        void *result;
        pthread_join(threads[index], &result);
        assert_non_null(result);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(r5_create_and_destroy),
        TEST(r5_and_report_t29_create_use_and_destroy),
        TEST(r5_a_target_with_a_thousand_visitors),
        TEST(r5_a_thousand_failing_opens),
        TEST(r5_batches),
        TEST(r5_event_descriptors_of_batches_freed_while_busy),
        TEST(r5_failing_transfers),
        TEST(report_t09_threads_allocate_and_free),
    };
    return RUN_TESTS(tests, argc, argv);
}
