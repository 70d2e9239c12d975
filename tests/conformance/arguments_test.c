/* Arguments and settings that are wrong, odd or meaningless at the start: classic specification 9.1 to 9.3. */
#include "raw_peer.h"
#include "support.h"

static int port_of(const char *name)
{
    const char *colon = strrchr(name, ':');
    assert_non_null(colon);
    return atoi(colon + 1);
}

static void s9_1_4_unusable_metadata_services_fail_with_a_reason(void **state)
{
    (void)state;
    static const char *const connections[] = {"",
                                              "p2phandshake",
                                              "P2PHANDSHAKE ",
                                              "foo://a",
                                              "://",
                                              "etcd://",
                                              "redis://127.0.0.1:1",
                                              "http://127.0.0.1:1/metadata",
                                              "https://127.0.0.1:1/metadata",
                                              "\xff\xfe",
                                              "P2PHANDSHAKE://127.0.0.1"};
    for (size_t index = 0; index < sizeof(connections) / sizeof(connections[0]); index++) {
        assert_null(engine_try_new(connections[index], "127.0.0.1", 0));
        assert_string_not_equal(te_last_error(), "");
    }
}

static void s9_1_5_null_arguments_are_errors(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    assert_null(engine_try_new(NULL, "127.0.0.1", 0));
    assert_null(engine_try_new("P2PHANDSHAKE", NULL, 0));
    assert_null(installTransport(engine, NULL, NULL));
    assert_null(installTransport(NULL, "tcp", NULL));
    assert_int_equal(uninstallTransport(engine, NULL), ERR_INVALID_ARGUMENT);
    transfer_engine_t without_host = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 0);
    assert_non_null(without_host);
    destroyTransferEngine(without_host);
    destroyTransferEngine(NULL);
    assert_works(engine);
}

static void s9_1_8_a_log_directory_disturbs_nobody(void **state)
{
    (void)state;
    setenv("MC_LOG_DIR", "/nonexistent/folder", 1);
    assert_works(engine_new());
    setenv("MC_LOG_DIR", "/tmp", 1);
    assert_works(engine_new());
}

static void s9_2_5_a_transport_that_fails_to_install_leaves_the_segment(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_new();
    uint8_t *memory = memory_new_registered(engine, KIB);
    assert_null(installTransport(engine, "nosuch", NULL));
    assert_string_not_equal(te_last_error(), "");
    assert_null(installTransport(engine, "", NULL));
    assert_null(installTransport(engine, "efa", NULL));
    engine_name(engine, name);
    transfer_engine_t other = engine_new();
    uint8_t *source = memory_new(KIB);
    pattern_fill(source, KIB, 1);
    assert_int_equal(transfer(other, WRITE, source, engine_open(other, name), (uintptr_t)memory, KIB), COMPLETED);
    assert_pattern(memory, KIB, 1);
    assert_works(engine);
}

static void s9_2_14_a_published_port_is_listened_on(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        char name[NAME_SIZE];
        transfer_engine_t engine = engine_new();
        engine_name(engine, name);
        int descriptor = raw_connect_data(name);
        assert_true(descriptor >= 0);
        close(descriptor);
        engine_delete(engine);
    }
}

static void s9_2_16_an_engine_for_ipv6_still_resolves_ipv4(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t target = engine_new();
    engine_name(target, name);
    setenv("MC_USE_IPV6", "1", 1);
    assert_transfers(engine_new_named("::1"), target, name);
    unsetenv("MC_USE_IPV6");
}

static void s9_3_1_uninstall_does_nothing_and_says_0(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    assert_int_equal(uninstallTransport(engine, "tcp"), 0);
    assert_int_equal(uninstallTransport(engine, "nosuch"), 0);
    assert_works(engine);
}

static void s9_3_7_host_and_port_arguments_are_ignored(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "256.1.2.3", 70000, 0);
    assert_non_null(engine);
    assert_int_equal(getLocalIpAndPort(engine, name, sizeof(name)), 0);
    assert_int_equal(strncmp(name, "127.0.0.1:", 10), 0);
    destroyTransferEngine(engine);
}

static void s9_3_9_settings_are_read_at_create(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    engine_new();
    setenv("MC_MIN_RPC_PORT", "17700", 1);
    setenv("MC_MAX_RPC_PORT", "17705", 1);
    engine_name(engine_new(), name);
    assert_in_range(port_of(name), 17700, 17705);
    unsetenv("MC_MIN_RPC_PORT");
    unsetenv("MC_MAX_RPC_PORT");
    engine_name(engine_new(), name);
    assert_in_range(port_of(name), 15000, 17000);
}

static void s9_3_18_a_malformed_topology_file_still_gives_tcp(void **state)
{
    (void)state;
    char path[] = "/tmp/topologyXXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, "[1,{", 4), 4);
    close(descriptor);
    setenv("MC_CUSTOM_TOPO_JSON", path, 1);
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 1);
    unlink(path);
    assert_non_null(engine);
    assert_works(engine);
    setenv("MC_CUSTOM_TOPO_JSON", "/nonexistent/topology.json", 1);
    engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 1);
    assert_non_null(engine);
    assert_works(engine);
    assert_int_equal(discoverTopology(engine), 0);
}

static void contract_no_function_crashes_without_an_engine(void **state)
{
    (void)state;
    char text[64];
    int count = 7;
    size_t room = 1;
    uint64_t address;
    nic_load_stat_t load;
    struct transfer_status status;
    notify_msg_t message = {.name = "a", .msg = "b"};
    buffer_entry_t entry = {.addr = text, .length = 1};
    void *addresses[] = {text};
    struct transfer_request request = request_of(WRITE, text, 0, 1, 1);
    te_batch_status_t whole = {.struct_size = sizeof(whole)};
    assert_int_equal(getLocalIpAndPort(NULL, text, sizeof(text)), ERR_INVALID_ARGUMENT);
    assert_int_equal(discoverTopology(NULL), ERR_INVALID_ARGUMENT);
    assert_int_equal(uninstallTransport(NULL, "tcp"), ERR_INVALID_ARGUMENT);
    assert_true(openSegment(NULL, "a:1") < 0);
    assert_true(openSegmentNoCache(NULL, "a:1") < 0);
    assert_int_equal(warmupEfaSegment(NULL, "a:1"), 0);
    assert_true(closeSegment(NULL, 1) < 0);
    assert_true(removeLocalSegment(NULL, "a:1") < 0);
    assert_true(registerLocalMemory(NULL, text, 1, "*", 1) < 0);
    assert_true(unregisterLocalMemory(NULL, text) < 0);
    assert_true(registerLocalMemoryBatch(NULL, &entry, 1, "*") < 0);
    assert_true(unregisterLocalMemoryBatch(NULL, addresses, 1) < 0);
    assert_true(allocateBatchID(NULL, 1) == INVALID_BATCH);
    assert_int_equal(submitTransfer(NULL, 1, &request, 1), 1);
    assert_int_equal(submitTransferWithNotify(NULL, 1, &request, 1, message), 1);
    assert_int_equal(getTransferStatus(NULL, 1, 0, &status), 1);
    assert_null(getNotifsFromEngine(NULL, &count));
    assert_int_equal(freeNotifsMsgBuf(NULL, 0), 0);
    assert_true(genNotifyInEngine(NULL, 0, message) < 0);
    assert_int_equal(freeBatchID(NULL, 1), 1);
    assert_true(syncSegmentCache(NULL) < 0);
    assert_true(getNicLoadStats(NULL, &load, &room) < 0);
    assert_true(showLinks(NULL, text, sizeof(text), 0) < 0);
    enableGracefulShutdown(NULL);
    assert_true(te_port(NULL) < 0);
    assert_true(te_probe(NULL, "127.0.0.1:1") < 0);
    assert_true(te_submit(NULL, 1, &request, 1, NULL) < 0);
    assert_true(te_batch_status(NULL, 1, &whole) < 0);
    assert_true(te_wait_batch(NULL, 1, 0) < 0);
    assert_true(te_wait_task(NULL, 1, 0, 0, &status) < 0);
    assert_true(te_event_fd(NULL) < 0);
    assert_true(te_batch_event_fd(NULL, 1) < 0);
    assert_true(te_cancel_task(NULL, 1, 0) < 0);
    assert_true(te_cancel_batch(NULL, 1) < 0);
    assert_true(te_remote_buffers(NULL, 1, &entry, &room) < 0);
    assert_true(te_first_buffer_address(NULL, "127.0.0.1:1", &address) < 0);
}

static void contract_no_function_crashes_on_null_arguments(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    batch_id_t batch = batch_new(engine, 4);
    notify_msg_t nothing = {NULL, NULL};
    struct transfer_request request = request_of(WRITE, NULL, 0, 0, 16);
    size_t one = 1;
    assert_true(openSegment(engine, NULL) < 0);
    assert_true(openSegment(engine, "") < 0);
    assert_true(openSegment(engine, "///") < 0);
    assert_true(openSegmentNoCache(engine, NULL) < 0);
    assert_true(openSegmentNoCache(engine, "") < 0);
    assert_int_equal(warmupEfaSegment(engine, NULL), 0);
    assert_true(removeLocalSegment(engine, NULL) < 0);
    assert_true(removeLocalSegment(engine, "") < 0);
    assert_true(registerLocalMemory(engine, NULL, 1, "*", 1) < 0);
    assert_true(unregisterLocalMemory(engine, NULL) < 0);
    assert_true(registerLocalMemoryBatch(engine, NULL, 1, "*") < 0);
    assert_int_equal(registerLocalMemoryBatch(engine, NULL, 0, "*"), 0);
    assert_true(unregisterLocalMemoryBatch(engine, NULL, 1) < 0);
    assert_int_equal(unregisterLocalMemoryBatch(engine, NULL, 0), 0);
    assert_int_equal(submitTransfer(engine, batch, NULL, 1), 1);
    assert_int_equal(submitTransfer(engine, batch, NULL, 0), 0);
    assert_int_equal(submitTransfer(engine, batch, &request, 1), 1);
    assert_int_equal(submitTransferWithNotify(engine, batch, &request, 1, nothing), 1);
    assert_int_equal(getTransferStatus(engine, batch, 0, NULL), 1);
    assert_null(getNotifsFromEngine(engine, NULL));
    assert_true(genNotifyInEngine(engine, 0, nothing) < 0);
    assert_true(getNicLoadStats(engine, NULL, NULL) < 0);
    assert_true(showLinks(engine, NULL, 10, 0) < 0);
    assert_true(te_probe(engine, NULL) < 0);
    assert_true(te_probe(engine, "") < 0);
    assert_true(te_submit(engine, batch, NULL, 1, NULL) < 0);
    assert_true(te_batch_status(engine, batch, NULL) < 0);
    assert_true(te_remote_buffers(engine, 0, NULL, NULL) < 0);
    assert_true(te_remote_buffers(engine, 0, NULL, &one) < 0);
    assert_true(te_first_buffer_address(engine, NULL, NULL) < 0);
    assert_int_equal(freeBatchID(engine, batch), 0);
    assert_works(engine);
}

static void contract_inspection_answers(void **state)
{
    (void)state;
    char text[16384];
    nic_load_stat_t load[4];
    size_t count = 4;
    transfer_engine_t engine = engine_new();
    assert_int_equal(getNicLoadStats(engine, load, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(showLinks(engine, text, sizeof(text), 0), 0);
    assert_non_null(strstr(text, "=== Local NICs ==="));
    assert_int_equal(showLinks(engine, text, sizeof(text), 1), 0);
    assert_non_null(strstr(text, "\"local_nics\""));
    memset(text, 0x7e, sizeof(text));
    assert_int_equal(showLinks(engine, text, 5, 0), 0);
    assert_int_equal(strlen(text), 4);
    assert_int_equal(text[5], 0x7e);
    assert_true(showLinks(engine, text, 0, 0) < 0);
}

static void report_m13_no_connection_string_aborts_the_process(void **state)
{
    (void)state;
    static const char *const connections[] = {"etcd://127.0.0.1:1", "redis://127.0.0.1:1", "foo://bar", "", NULL};
    for (size_t index = 0; index < sizeof(connections) / sizeof(connections[0]); index++)
        assert_null(engine_try_new(connections[index], "127.0.0.1", 1));
}

/* Counts the warnings that begin with a text. Settings are read in the thread that asks for them. */
struct expected_warning {
    char beginning[NAME_SIZE];
    unsigned seen;
};

static void count_warning(int level, const char *message, void *user_data)
{
    struct expected_warning *expected = user_data;
    if (level == TE_LOG_LEVEL_WARNING && strncmp(message, expected->beginning, strlen(expected->beginning)) == 0)
        expected->seen++;
}

static void stop_counting(void *data)
{
    (void)data;
    te_set_log_callback(NULL, NULL);
}

static void report_k08_bad_numbers_keep_the_default(void **state)
{
    (void)state;
    static const char *const names[] = {"MC_TCP_SLICE_SIZE",
                                        "MC_TCP_LANES_PER_PEER",
                                        "MC_HANDSHAKE_PORT",
                                        "MC_HANDSHAKE_LISTEN_BACKLOG",
                                        "MC_HANDSHAKE_CONNECT_TIMEOUT",
                                        "MC_HANDSHAKE_MAX_LENGTH",
                                        "MC_TCP_STATUS_TIMEOUT_SEC",
                                        "MC_TCP_PROGRESS_TIMEOUT_SEC",
                                        "MC_SLICE_TIMEOUT",
                                        "MC_TE_METRIC_INTERVAL_SECONDS"};
    static const char *const without_effect[] = {"MC_SLICE_SIZE", "MC_IB_PORT"};
    static const char *const values[] = {"", "abc", "-2", "0", "1e30", " 5 6", "99999999999999999999", "0x10"};
    static struct expected_warning expected;
    at_test_end(stop_counting, NULL);
    te_set_log_callback(count_warning, &expected);
    for (size_t value = 0; value < sizeof(values) / sizeof(values[0]); value++) {
        for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
            snprintf(expected.beginning, sizeof(expected.beginning), "%s=%s is not a whole number in ", names[index],
                     values[value]);
            expected.seen = 0;
            setenv(names[index], values[value], 1);
            te_setting_t setting = setting_named(names[index]);
            if (strcmp(setting.value, setting.default_value) != 0 || setting.source != TE_SETTING_FROM_DEFAULT ||
                expected.seen != 1)
                fail_msg("%s=%s: value %s from %d, %u warnings", names[index], values[value], setting.value,
                         setting.source, expected.seen);
        }
        for (size_t index = 0; index < sizeof(without_effect) / sizeof(without_effect[0]); index++) {
            setenv(without_effect[index], values[value], 1);
            assert_string_equal(setting_named(without_effect[index]).value, "");
        }
        assert_works(engine_new());
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(s9_1_4_unusable_metadata_services_fail_with_a_reason),
        TEST(s9_1_5_null_arguments_are_errors),
        TEST(s9_1_8_a_log_directory_disturbs_nobody),
        TEST(s9_2_5_a_transport_that_fails_to_install_leaves_the_segment),
        TEST(s9_2_14_a_published_port_is_listened_on),
        TEST(s9_2_16_an_engine_for_ipv6_still_resolves_ipv4),
        TEST(s9_3_1_uninstall_does_nothing_and_says_0),
        TEST(s9_3_7_host_and_port_arguments_are_ignored),
        TEST(s9_3_9_settings_are_read_at_create),
        TEST(s9_3_18_a_malformed_topology_file_still_gives_tcp),
        TEST(contract_no_function_crashes_without_an_engine),
        TEST(contract_no_function_crashes_on_null_arguments),
        TEST(contract_inspection_answers),
        TEST(report_m13_no_connection_string_aborts_the_process),
        TEST(report_k08_bad_numbers_keep_the_default),
    };
    return RUN_TESTS(tests, argc, argv);
}
