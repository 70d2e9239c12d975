/* Many threads use one engine in every way at once while its peer is restarted again and again. */
#include "tests/unit/wire_vector.h"

#include "classic/internal.h"
#include "core/clock.h"
#include "core/local_segment.h"
#include "tests/unit/fake_control_port.h"

#define PATIENCE_NS (TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND)

enum { SUBMITTERS = 3, AREA_BYTES = 64 * 1024, RESTARTS = 12, REQUESTS = 32 };
static char memory[SUBMITTERS][AREA_BYTES], source[SUBMITTERS][AREA_BYTES];

struct stress {
    struct fake_control_port fake;
    struct te_classic *classic;
    int32_t segment;
    _Atomic bool stop;
    _Atomic unsigned completed, failed, canceled;
};

struct submitter {
    struct stress *stress;
    int index;
    pthread_t thread;
};

static struct te_classic *create_target(void)
{
    struct te_classic *target = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 1);

    assert_non_null(target);
    assert_int_equal(te_classic_register_local_memory(target, memory, sizeof(memory), "*", 1), 0);
    return target;
}

/* Batches of writes, now and then canceled, freed before they have ended, or with a notification. */
static void *submit(void *data)
{
    struct submitter *submitter = data;
    struct stress *stress = submitter->stress;
    struct transfer_request requests[REQUESTS];
    notify_msg_t message = {"name", "text"};

    for (unsigned round = 0; !atomic_load(&stress->stop); round++) {
        batch_id_t batch = te_classic_allocate_batch_id(stress->classic, REQUESTS);
        te_batch_status_t status = {.struct_size = sizeof(status)};

        for (int i = 0; i < REQUESTS; i++)
            requests[i] = (struct transfer_request){
                .opcode = OPCODE_WRITE,
                .source = source[submitter->index] + i * (AREA_BYTES / REQUESTS),
                .target_id = stress->segment,
                .target_offset = (uintptr_t)memory[submitter->index] + (uint64_t)i * (AREA_BYTES / REQUESTS),
                .length = AREA_BYTES / REQUESTS,
            };
        if (round % 4 == 0)
            assert_int_equal(
                te_classic_submit_transfer_with_notify(stress->classic, batch, requests, REQUESTS, message), 0);
        else
            assert_int_equal(te_classic_submit_transfer(stress->classic, batch, requests, REQUESTS), 0);
        if (round % 3 == 0)
            assert_int_equal(te_classic_cancel_batch(stress->classic, batch), 0);
        if (round % 16 == 5) {
            assert_in_range(te_classic_free_batch_id(stress->classic, batch), 0, 4);
            continue;
        }
        assert_int_equal(te_classic_wait_batch(stress->classic, batch, PATIENCE_NS), 0);
        assert_int_equal(te_classic_batch_status(stress->classic, batch, &status), 0);
        assert_int_equal(status.completed + status.failed + status.canceled, REQUESTS);
        atomic_fetch_add(&stress->completed, (unsigned)status.completed);
        atomic_fetch_add(&stress->failed, (unsigned)status.failed);
        atomic_fetch_add(&stress->canceled, (unsigned)status.canceled);
        assert_int_equal(te_classic_free_batch_id(stress->classic, batch), 0);
    }
    return NULL;
}

static void *open_and_close(void *data)
{
    struct stress *stress = data;

    while (!atomic_load(&stress->stop)) {
        int32_t id = te_classic_open_segment(stress->classic, stress->fake.name);

        if (id >= 0)
            assert_int_equal(id, stress->segment);
        te_classic_open_segment_no_cache(stress->classic, stress->fake.name);
        te_classic_open_segment(stress->classic, "127.0.0.1:1");
        te_classic_sync_segment_cache(stress->classic);
        te_classic_close_segment(stress->classic, stress->segment);
        te_classic_remove_local_segment(stress->classic, stress->fake.name);
    }
    return NULL;
}

static void *register_and_ask(void *data)
{
    static char own[16][4096];
    struct stress *stress = data;

    while (!atomic_load(&stress->stop)) {
        size_t count = 0;
        uint64_t address;
        int arrived;

        for (int i = 0; i < 16; i++)
            assert_int_equal(te_classic_register_local_memory(stress->classic, own[i], sizeof(own[i]), "*", 1), 0);
        assert_int_equal(te_classic_remote_buffers(stress->classic, LOCAL_SEGMENT, NULL, &count), 0);
        te_classic_first_buffer_address(stress->classic, stress->fake.name, &address);
        te_classic_probe(stress->classic, stress->classic->engine->name);
        for (int i = 0; i < 16; i++)
            assert_int_equal(te_classic_unregister_local_memory(stress->classic, own[i]), 0);
        assert_null(te_classic_get_notifs_from_engine(stress->classic, &arrived));
    }
    return NULL;
}

static void everything_at_once(void **state)
{
    struct stress stress = {.segment = 1};
    struct submitter submitters[SUBMITTERS];
    struct te_classic *target = create_target();
    pthread_t opener, registrar;

    (void)state;
    memset(source, 1, sizeof(source));
    fake_start(&stress.fake);
    fake_lead_to(&stress.fake, target);
    stress.classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 1);
    assert_non_null(stress.classic);
    assert_int_equal(te_classic_open_segment(stress.classic, stress.fake.name), stress.segment);
    for (int i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){.stress = &stress, .index = i};
        assert_int_equal(pthread_create(&submitters[i].thread, NULL, submit, &submitters[i]), 0);
    }
    assert_int_equal(pthread_create(&opener, NULL, open_and_close, &stress), 0);
    assert_int_equal(pthread_create(&registrar, NULL, register_and_ask, &stress), 0);
    for (int i = 0; i < RESTARTS; i++) {
        unsigned completed = atomic_load(&stress.completed);

        /* Each peer must be found and used, or the test ends by its time-out. */
        while (atomic_load(&stress.completed) < completed + 4 * REQUESTS)
            g_usleep(1000);
        te_classic_destroy(target);
        target = create_target();
        fake_lead_to(&stress.fake, target);
    }
    atomic_store(&stress.stop, true);
    for (int i = 0; i < SUBMITTERS; i++)
        pthread_join(submitters[i].thread, NULL);
    pthread_join(opener, NULL);
    pthread_join(registrar, NULL);
    print_message("%u completed, %u failed, %u canceled\n", atomic_load(&stress.completed), atomic_load(&stress.failed),
                  atomic_load(&stress.canceled));
    te_classic_destroy(stress.classic);
    te_classic_destroy(target);
    fake_stop(&stress.fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_at_once)};

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
