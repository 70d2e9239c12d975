/* The exported functions over a runtime that only counts. */
#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "core/log.h"
#include "core/status.h"
#include "fake_runtime.h"
#include "shim/engine_handle.h"

static int quiet(void **state)
{
    (void)state;
    unsetenv("MC_USE_TENT");
    te_log_set_level(TE_LOG_ERROR);
    fake_creation_fails = false;
    return 0;
}

static transfer_engine_t create(void)
{
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 0);

    assert_non_null(engine);
    return engine;
}

/* Every call of calls.def with a handle: does each reach its slot, or is each refused with its own result? */
static void call_everything(transfer_engine_t engine, bool live)
{
    notify_msg_t message = {0};
    struct transfer_request request = {0};
    struct transfer_status status;
    te_submit_options_t options = {.struct_size = sizeof(options)};
    te_batch_status_t batch_status = {.struct_size = sizeof(batch_status)};
    char text[8];
    int count = 5;
    size_t size = 0;
    uint64_t address;

#define EXPECT(slot, expression, refused)                                                                              \
    do {                                                                                                               \
        int before = atomic_load(&fake_calls[FAKE_##slot]);                                                            \
        int64_t result = (int64_t)(intptr_t)(expression);                                                              \
        assert_int_equal(result, live ? (int64_t)fake_result : (int64_t)(refused));                                    \
        assert_int_equal(atomic_load(&fake_calls[FAKE_##slot]), before + live);                                        \
    } while (0)
    EXPECT(get_local_ip_and_port, getLocalIpAndPort(engine, text, sizeof(text)), -1);
    EXPECT(discover_topology, discoverTopology(engine), -1);
    EXPECT(install_transport, installTransport(engine, "tcp", NULL), 0);
    EXPECT(uninstall_transport, uninstallTransport(engine, "tcp"), -1);
    EXPECT(open_segment, openSegment(engine, "peer:1"), -1);
    EXPECT(open_segment_no_cache, openSegmentNoCache(engine, "peer:1"), -1);
    EXPECT(warmup_efa_segment, warmupEfaSegment(engine, "peer:1"), 0);
    EXPECT(close_segment, closeSegment(engine, 1), -1);
    EXPECT(remove_local_segment, removeLocalSegment(engine, "peer:1"), -1);
    EXPECT(register_local_memory, registerLocalMemory(engine, text, sizeof(text), "*", 1), -1);
    EXPECT(unregister_local_memory, unregisterLocalMemory(engine, text), -1);
    EXPECT(register_local_memory_batch, registerLocalMemoryBatch(engine, NULL, 0, "*"), -1);
    EXPECT(unregister_local_memory_batch, unregisterLocalMemoryBatch(engine, NULL, 0), -1);
    EXPECT(allocate_batch_id, allocateBatchID(engine, 1), -1);
    EXPECT(submit_transfer, submitTransfer(engine, 1, &request, 1), 1);
    EXPECT(submit_transfer_with_notify, submitTransferWithNotify(engine, 1, &request, 1, message), 1);
    EXPECT(get_transfer_status, getTransferStatus(engine, 1, 0, &status), 1);
    EXPECT(get_notifs_from_engine, getNotifsFromEngine(engine, &count), 0);
    assert_int_equal(count, live ? 5 : 0);
    EXPECT(gen_notify_in_engine, genNotifyInEngine(engine, 0, message), -1);
    EXPECT(free_batch_id, freeBatchID(engine, 1), 1);
    EXPECT(sync_segment_cache, syncSegmentCache(engine), -1);
    EXPECT(get_nic_load_stats, getNicLoadStats(engine, NULL, &size), -1);
    EXPECT(show_links, showLinks(engine, text, sizeof(text), 0), -1);
    EXPECT(port, te_port(engine), -1);
    EXPECT(probe, te_probe(engine, "peer:1"), -1);
    EXPECT(submit, te_submit(engine, 1, &request, 1, &options), -1);
    EXPECT(batch_status, te_batch_status(engine, 1, &batch_status), -1);
    EXPECT(wait_batch, te_wait_batch(engine, 1, 0), -1);
    EXPECT(wait_task, te_wait_task(engine, 1, 0, 0, NULL), -1);
    EXPECT(event_fd, te_event_fd(engine), -1);
    EXPECT(batch_event_fd, te_batch_event_fd(engine, 1), -1);
    EXPECT(cancel_task, te_cancel_task(engine, 1, 0), -1);
    EXPECT(cancel_batch, te_cancel_batch(engine, 1), -1);
    EXPECT(remote_buffers, te_remote_buffers(engine, 1, NULL, &size), -1);
    EXPECT(first_buffer_address, te_first_buffer_address(engine, "peer:1", &address), -1);
#undef EXPECT
}

static void test_every_call_reaches_its_slot(void **state)
{
    transfer_engine_t engine = create();

    (void)state;
    memset(fake_calls, 0, sizeof(fake_calls));
    call_everything(engine, true);
    for (size_t slot = 0; slot < FAKE_SLOTS; slot++)
        assert_int_equal(fake_calls[slot], 1);
    destroyTransferEngine(engine);
}

static void test_every_call_refuses_what_is_no_engine(void **state)
{
    void *unreadable = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    transfer_engine_t destroyed = create();

    (void)state;
    destroyTransferEngine(destroyed);
    call_everything(NULL, false);
    call_everything((transfer_engine_t)(uintptr_t)1, false);
    call_everything((transfer_engine_t)(uintptr_t)-1, false);
    call_everything(unreadable, false);
    assert_string_equal(te_last_error(), "not an engine");
    call_everything(destroyed, false);
    assert_string_equal(te_last_error(), "the engine has been destroyed");
    enableGracefulShutdown(NULL);
    enableGracefulShutdown(unreadable);
    munmap(unreadable, 4096);
}

static void test_destroy_takes_anything(void **state)
{
    transfer_engine_t engine = create();
    struct fake_runtime *runtime = &fake_runtimes[fake_runtimes_used - 1];

    (void)state;
    destroyTransferEngine(NULL);
    destroyTransferEngine((transfer_engine_t)(uintptr_t)64);
    destroyTransferEngine(engine);
    destroyTransferEngine(engine);
    assert_int_equal(runtime->destroyed, 1);
}

static void test_creation_fails_with_a_reason(void **state)
{
    (void)state;
    assert_null(createTransferEngine(NULL, "127.0.0.1", "", 0, 0));
    assert_non_null(strstr(te_last_error(), "metadata connection string"));
    assert_null(createTransferEngine("P2PHANDSHAKE", NULL, "", 0, 0));
    assert_non_null(strstr(te_last_error(), "name for the local server"));
    fake_creation_fails = true;
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0));
    assert_string_equal(te_last_error(), "the fake fails as it was told");
}

static void test_a_runtime_that_is_not_there_is_refused(void **state)
{
    transfer_engine_t engine;

    (void)state;
    setenv("MC_USE_TENT", "1", 1);
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0));
    assert_non_null(strstr(te_last_error(), "TENT"));
    setenv("MC_USE_TENT", "0", 1);
    engine = create();
    destroyTransferEngine(engine);
}

static void test_engines_that_do_not_fit_are_destroyed_again(void **state)
{
    static transfer_engine_t engines[TE_MAX_ENGINES];
    size_t used;

    (void)state;
    for (size_t i = 0; i < TE_MAX_ENGINES; i++)
        engines[i] = create();
    used = fake_runtimes_used;
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0));
    assert_int_equal(fake_runtimes_used, used + 1);
    assert_int_equal(fake_runtimes[used].destroyed, 1);
    for (size_t i = 0; i < TE_MAX_ENGINES; i++)
        destroyTransferEngine(engines[i]);
}

/* ---- Structures with a size ------------------------------------------------------------------------------------- */

static te_submit_options_t seen_options;
static bool options_seen;

static int keep_options(void *runtime, batch_id_t batch, const struct transfer_request *requests, size_t count,
                        const te_submit_options_t *options)
{
    (void)runtime, (void)batch, (void)requests, (void)count;
    options_seen = options != NULL;
    if (options)
        seen_options = *options;
    return TE_OK;
}

static int report_batch(void *runtime, batch_id_t batch, te_batch_status_t *status)
{
    (void)runtime;
    assert_int_equal(status->struct_size, sizeof(*status));
    if (batch == 0)
        return TE_INVALID_ARGUMENT;
    *status = (te_batch_status_t){.struct_size = sizeof(*status), .status = 4, .tasks = 3, .completed = 3};
    return TE_OK;
}

static transfer_engine_t create_sized(void)
{
    static struct te_runtime_ops ops;
    transfer_engine_t engine;

    ops = te_classic_ops;
    ops.submit = keep_options;
    ops.batch_status = report_batch;
    assert_int_equal(te_engine_handle_add(&ops, fake_new(), &engine), TE_OK);
    return engine;
}

static void test_options_of_any_known_size_are_brought_to_one(void **state)
{
    struct {
        te_submit_options_t known;
        unsigned char later[24];
    } larger;
    transfer_engine_t engine = create_sized();

    (void)state;
    assert_int_equal(te_submit(engine, 1, NULL, 0, NULL), 0);
    assert_false(options_seen);
    memset(&larger, 0, sizeof(larger));
    larger.known = (te_submit_options_t){.struct_size = sizeof(larger), .priority = TE_PRIORITY_LOW, .deadline_ns = 5};
    assert_int_equal(te_submit(engine, 1, NULL, 0, &larger.known), 0);
    assert_true(options_seen);
    assert_int_equal(seen_options.struct_size, sizeof(seen_options));
    assert_int_equal(seen_options.priority, TE_PRIORITY_LOW);
    assert_int_equal(seen_options.deadline_ns, 5);
    larger.later[23] = 1;
    assert_int_equal(te_submit(engine, 1, NULL, 0, &larger.known), ERR_INVALID_ARGUMENT);
    destroyTransferEngine(engine);
}

static void test_options_that_make_no_sense_are_refused(void **state)
{
    static const te_submit_options_t good = {.struct_size = sizeof(good), .priority = TE_PRIORITY_DEFAULT};
    transfer_engine_t engine = create_sized();
    te_submit_options_t bad[6];

    (void)state;
    assert_int_equal(te_submit(engine, 1, NULL, 0, &good), 0);
    for (size_t i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].struct_size = 0;
    bad[1].struct_size--;
    bad[2].struct_size = SIZE_MAX;
    bad[3].reserved = 1;
    bad[4].priority = TE_PRIORITY_DEFAULT - 1;
    bad[5].priority = TE_PRIORITY_LOW + 1;
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(te_submit(engine, 1, NULL, 0, &bad[i]), ERR_INVALID_ARGUMENT);
    destroyTransferEngine(engine);
}

static void test_batch_status_fills_the_size_it_is_given(void **state)
{
    struct {
        te_batch_status_t known;
        unsigned char later[16];
        unsigned char beyond;
    } larger;
    transfer_engine_t engine = create_sized();

    (void)state;
    memset(&larger, 0xff, sizeof(larger));
    larger.known.struct_size = sizeof(larger.known) + sizeof(larger.later);
    assert_int_equal(te_batch_status(engine, 1, &larger.known), 0);
    assert_int_equal(larger.known.struct_size, sizeof(larger.known) + sizeof(larger.later));
    assert_int_equal(larger.known.status, STATUS_COMPLETED);
    assert_int_equal(larger.known.completed, 3);
    for (size_t i = 0; i < sizeof(larger.later); i++)
        assert_int_equal(larger.later[i], 0);
    assert_int_equal(larger.beyond, 0xff);

    larger.known.tasks = 99;
    assert_int_equal(te_batch_status(engine, 0, &larger.known), ERR_INVALID_ARGUMENT);
    larger.known.struct_size = sizeof(larger.known) - 1;
    assert_int_equal(te_batch_status(engine, 1, &larger.known), ERR_INVALID_ARGUMENT);
    larger.known.struct_size = SIZE_MAX;
    assert_int_equal(te_batch_status(engine, 1, &larger.known), ERR_INVALID_ARGUMENT);
    assert_int_equal(larger.known.tasks, 99);
    assert_int_equal(te_batch_status(engine, 1, NULL), ERR_INVALID_ARGUMENT);
    destroyTransferEngine(engine);
}

/* ---- Without an engine ------------------------------------------------------------------------------------------ */

static void test_notifications_are_freed_without_an_engine(void **state)
{
    notify_msg_t *messages = calloc(2, sizeof(*messages));

    (void)state;
    assert_int_equal(freeNotifsMsgBuf(NULL, 0), 0);
    assert_int_equal(freeNotifsMsgBuf(NULL, 5), 0);
    messages[0].name = strdup("name");
    messages[0].msg = strdup("");
    assert_int_equal(freeNotifsMsgBuf(messages, 2), 0);
    messages = calloc(1, sizeof(*messages));
    assert_int_equal(freeNotifsMsgBuf(messages, 0), 0);
    messages = calloc(1, sizeof(*messages));
    assert_int_equal(freeNotifsMsgBuf(messages, -1), 0);
}

static void test_version_is_that_of_the_tree(void **state)
{
    (void)state;
    assert_string_equal(te_version(), TE_VERSION);
}

static int heard_level;
static char heard[256];

static void hear(int level, const char *message, void *user_data)
{
    assert_ptr_equal(user_data, heard);
    heard_level = level;
    strncpy(heard, message, sizeof(heard) - 1);
}

static void test_log_goes_to_the_callback(void **state)
{
    (void)state;
    te_set_log_callback(hear, heard);
    setenv("MC_USE_TENT", "1", 1);
    assert_null(createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0));
    assert_int_equal(heard_level, TE_LOG_LEVEL_ERROR);
    assert_string_equal(heard, te_last_error());
    te_set_log_callback(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_every_call_reaches_its_slot, quiet),
        cmocka_unit_test_setup(test_every_call_refuses_what_is_no_engine, quiet),
        cmocka_unit_test_setup(test_destroy_takes_anything, quiet),
        cmocka_unit_test_setup(test_creation_fails_with_a_reason, quiet),
        cmocka_unit_test_setup(test_a_runtime_that_is_not_there_is_refused, quiet),
        cmocka_unit_test_setup(test_engines_that_do_not_fit_are_destroyed_again, quiet),
        cmocka_unit_test_setup(test_options_of_any_known_size_are_brought_to_one, quiet),
        cmocka_unit_test_setup(test_options_that_make_no_sense_are_refused, quiet),
        cmocka_unit_test_setup(test_batch_status_fills_the_size_it_is_given, quiet),
        cmocka_unit_test_setup(test_notifications_are_freed_without_an_engine, quiet),
        cmocka_unit_test_setup(test_version_is_that_of_the_tree, quiet),
        cmocka_unit_test_setup(test_log_goes_to_the_callback, quiet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
