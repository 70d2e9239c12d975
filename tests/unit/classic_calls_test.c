/* The results of the classic runtime's calls (classic specification 1.4), in one process. */
#include "tests/unit/wire_vector.h"

#include <dirent.h>
#include <sys/mman.h>

#include "classic/internal.h"
#include "core/clock.h"
#include "tests/unit/socket_helpers.h"

#define PATIENCE_NS (TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND)

static struct te_classic *create(void)
{
    struct te_classic *classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 1);

    assert_non_null(classic);
    return classic;
}

static int32_t open_peer(struct te_classic *classic, struct te_classic *peer)
{
    char name[64];

    assert_int_equal(te_classic_get_local_ip_and_port(peer, name, sizeof(name)), 0);
    return te_classic_open_segment(classic, name);
}

static int status_of(struct te_classic *classic, batch_id_t batch, size_t task)
{
    struct transfer_status status;

    assert_int_equal(te_classic_wait_task(classic, batch, task, PATIENCE_NS, &status), 0);
    return status.status;
}

/* ---- Creating and destroying ---- */

static void bad_arguments_create_nothing(void **state)
{
    static const char *const connections[] = {"",          "p2phandshake",       "etcd://h:1", "h:1", "redis://h",
                                              "http://h/", "https://h/metadata", "foo://h:1",  "://", "P2PHANDSHAKE "};
    char long_name[1000];

    (void)state;
    memset(long_name, 'x', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    for (size_t i = 0; i < G_N_ELEMENTS(connections); i++) {
        assert_null(te_classic_create(connections[i], "127.0.0.1", NULL, 0, 1));
        assert_true(strlen(te_status_message()) > 0);
    }
    assert_null(te_classic_create(NULL, "127.0.0.1", NULL, 0, 1));
    assert_null(te_classic_create("P2PHANDSHAKE", NULL, NULL, 0, 1));
    assert_null(te_classic_create("P2PHANDSHAKE", long_name, NULL, 0, 1));
}

static unsigned count_entries(const char *folder)
{
    DIR *entries = opendir(folder);
    unsigned count = 0;

    assert_non_null(entries);
    while (readdir(entries) != NULL)
        count++;
    closedir(entries);
    return count;
}

/* Report and caller's expectation: failed creations and whole lives leave no thread and no descriptor. */
static void nothing_is_left_behind(void **state)
{
    unsigned descriptors, threads;
    static char memory[4096], source[4096];

    (void)state;
    te_classic_destroy(create());
    descriptors = count_entries("/proc/self/fd");
    threads = count_entries("/proc/self/task");
    for (int i = 0; i < 8; i++) {
        struct te_classic *classic, *target;
        struct transfer_request request = {
            .opcode = OPCODE_WRITE, .source = source, .target_offset = (uintptr_t)memory, .length = sizeof(memory)};
        notify_msg_t message = {"a", "b"};
        batch_id_t batch;

        assert_null(te_classic_create("foo://", "127.0.0.1", NULL, 0, 1));
        classic = create();
        target = create();
        assert_int_equal(te_classic_register_local_memory(target, memory, sizeof(memory), "*", 1), 0);
        request.target_id = open_peer(classic, target);
        batch = te_classic_allocate_batch_id(classic, 4);
        assert_true(te_classic_event_fd(classic) >= 0);
        assert_true(te_classic_batch_event_fd(classic, batch) >= 0);
        assert_int_equal(te_classic_submit_transfer_with_notify(classic, batch, &request, 1, message), 0);
        if (i % 2)
            assert_int_equal(te_classic_wait_batch(classic, batch, PATIENCE_NS), 0);
        te_classic_destroy(i % 4 < 2 ? classic : target);
        te_classic_destroy(i % 4 < 2 ? target : classic);
    }
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    assert_int_equal(count_entries("/proc/self/task"), threads);
}

/* With room for the control port alone, installing tcp fails and takes the engine with it. */
static void without_a_free_port_there_is_no_engine(void **state)
{
    unsigned descriptors, threads;

    (void)state;
    te_classic_destroy(create());
    descriptors = count_entries("/proc/self/fd");
    threads = count_entries("/proc/self/task");
    g_setenv("MC_MIN_RPC_PORT", "61234", TRUE);
    g_setenv("MC_MAX_RPC_PORT", "61234", TRUE);
    for (int i = 0; i < 8; i++) {
        assert_null(te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 1));
        assert_non_null(strstr(te_status_message(), "61234"));
    }
    g_unsetenv("MC_MIN_RPC_PORT");
    g_unsetenv("MC_MAX_RPC_PORT");
    te_classic_destroy(create());
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    assert_int_equal(count_entries("/proc/self/task"), threads);
}

static void *create_and_destroy(void *unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++)
        te_classic_destroy(create());
    return NULL;
}

/* Report P07. */
static void many_engines_at_once(void **state)
{
    enum { THREADS = 16 };
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, create_and_destroy, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void names_and_ports_are_what_they_say(void **state)
{
    static const struct {
        const char *local, *host;
    } cases[] = {{"127.0.0.1", "127.0.0.1"},
                 {"127.0.0.1:12345", "127.0.0.1"},
                 {"h:99999", "h"},
                 {"[::1]:7", "::1"},
                 {"::1", "::1"},
                 {"", ""},
                 {":5", ""}};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct te_classic *classic = te_classic_create("P2PHANDSHAKE", cases[i].local, NULL, 0, 1);
        char expected[64], name[64], cut[6];
        int port;

        assert_non_null(classic);
        port = te_classic_port(classic);
        assert_in_range(port, 15000, 17000);
        g_snprintf(expected, sizeof(expected), "%s:%d", cases[i].host, port);
        memset(name, '#', sizeof(name));
        assert_int_equal(te_classic_get_local_ip_and_port(classic, name, sizeof(name)), 0);
        assert_string_equal(name, expected);
        assert_int_equal(name[strlen(name) + 1], '#');
        assert_int_equal(te_classic_get_local_ip_and_port(classic, cut, sizeof(cut)), 0);
        assert_int_equal(strncmp(cut, expected, 5), 0);
        assert_int_equal(strlen(cut), MIN(strlen(expected), 5));
        assert_int_equal(te_classic_get_local_ip_and_port(classic, NULL, 5), -1);
        assert_int_equal(te_classic_get_local_ip_and_port(classic, name, 0), -1);
        /* The own name, in whatever way it is written, is segment 0. */
        assert_int_equal(te_classic_open_segment(classic, expected), 0);
        assert_int_equal(te_classic_open_segment(classic, classic->engine->name), 0);
        te_classic_destroy(classic);
    }
}

static void transports_are_installed_once(void **state)
{
    struct te_classic *classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 0);
    char *bad_matrix[] = {"{\"cpu:0\":[]}"}, *matrix[] = {"{\"cpu:0\":[[\"eth0\"],[]]}"}, *none[] = {NULL};
    char text[512];
    transport_t handle;

    (void)state;
    assert_int_equal(te_classic_open_segment(classic, classic->engine->name), -1);
    assert_null(te_classic_install_transport(classic, "rdma", NULL));
    assert_null(te_classic_install_transport(classic, "efa", NULL));
    assert_null(te_classic_install_transport(classic, "bogus", NULL));
    assert_null(te_classic_install_transport(classic, "", NULL));
    assert_null(te_classic_install_transport(classic, NULL, NULL));
    assert_null(te_classic_install_transport(classic, "tcp", (void **)bad_matrix));
    handle = te_classic_install_transport(classic, "tcp", (void **)matrix);
    assert_non_null(handle);
    assert_ptr_equal(te_classic_install_transport(classic, "tcp", NULL), handle);
    assert_ptr_equal(te_classic_install_transport(classic, "tcp", (void **)none), handle);
    assert_ptr_equal(te_classic_install_transport(classic, "tcp", (void **)bad_matrix), handle);
    assert_int_equal(te_classic_uninstall_transport(classic, "tcp"), 0);
    assert_int_equal(te_classic_uninstall_transport(classic, NULL), -1);
    assert_int_equal(te_classic_open_segment(classic, classic->engine->name), 0);
    assert_int_equal(te_classic_show_links(classic, text, sizeof(text), 0), 0);
    assert_non_null(strstr(text, "  eth0  (topology only; RDMA transport not initialized)\n"));
    assert_int_equal(te_classic_discover_topology(classic), 0);
    assert_int_equal(te_classic_show_links(classic, text, sizeof(text), 0), 0);
    assert_string_equal(text, "=== Local NICs ===\n  (no RDMA devices found)\n");
    assert_int_equal(te_classic_show_links(classic, text, 10, 1), 0);
    assert_string_equal(text, "{\n  \"loca");
    assert_int_equal(te_classic_show_links(classic, NULL, 10, 1), -1);
    assert_int_equal(te_classic_show_links(classic, text, 0, 1), -1);
    te_classic_destroy(classic);
}

/* ---- Memory ---- */

static void registration_results(void **state)
{
    static char memory[6 * 4096];
    struct te_classic *classic = create();
    void *list[] = {memory, memory + 4096, (void *)1, memory + 2 * 4096};
    buffer_entry_t good[] = {{memory, 4096}, {memory + 4096, 4096}, {memory + 2 * 4096, 4096}};
    buffer_entry_t twice[] = {{memory, 4096}, {memory + 8192, 4096}, {memory, 4096}};
    buffer_entry_t empty[] = {{memory, 4096}, {memory + 8192, 0}};

    (void)state;
    assert_int_equal(te_classic_register_local_memory(classic, memory, 0, "*", 1), -1);
    assert_int_equal(te_classic_register_local_memory(classic, NULL, 4096, "*", 1), -1);
    assert_int_equal(te_classic_register_local_memory(classic, memory, SIZE_MAX, "*", 1), -1);
    assert_int_equal(te_classic_register_local_memory(classic, memory, 4096, NULL, 1), 0);
    assert_int_equal(te_classic_register_local_memory(classic, memory, 4096, "*", 1), -7);
    assert_int_equal(te_classic_register_local_memory(classic, memory + 1, 10, "*", 1), -7);
    assert_int_equal(te_classic_register_local_memory(classic, memory + 4096, 4096, "cpu:0", 1), 0);
    assert_int_equal(te_classic_unregister_local_memory(classic, memory + 1), -3);
    assert_int_equal(te_classic_unregister_local_memory(classic, memory), 0);
    assert_int_equal(te_classic_unregister_local_memory(classic, memory), -3);
    assert_int_equal(te_classic_unregister_local_memory(classic, memory + 4096), 0);

    assert_int_equal(te_classic_register_local_memory_batch(classic, NULL, 0, "*"), 0);
    assert_int_equal(te_classic_register_local_memory_batch(classic, NULL, 1, "*"), -1);
    assert_int_equal(te_classic_register_local_memory_batch(classic, twice, 3, "*"), -7);
    assert_int_equal(te_classic_register_local_memory_batch(classic, empty, 2, "*"), -1);
    assert_int_equal(te_classic_register_local_memory_batch(classic, good, 3, "*"), 0);
    /* One unknown address: reported, and the others are gone. */
    assert_int_equal(te_classic_unregister_local_memory_batch(classic, list, 4), -3);
    assert_int_equal(te_classic_register_local_memory_batch(classic, good, 3, "*"), 0);
    assert_int_equal(te_classic_unregister_local_memory_batch(classic, NULL, 0), 0);
    assert_int_equal(te_classic_unregister_local_memory_batch(classic, NULL, 1), -1);
    te_classic_destroy(classic);
}

static void note_long_descriptor(int level, const char *message, void *data)
{
    _Atomic unsigned *noted = data;

    test_log(level, message, NULL);
    if (level == TE_LOG_WARNING && strstr(message, "with 20000 regions") != NULL &&
        strstr(message, "MC_HANDSHAKE_MAX_LENGTH") != NULL)
        (*noted)++;
}

/* Reports B08 and 9.2 item 11: not quadratic, and the peer sees them all, if it reads that much; who registers them is
 * told. */
static void twenty_thousand_regions(void **state)
{
    enum { REGIONS = 20000, BYTES = 64 };
    struct te_classic *classic = create(), *target = create();
    char *memory = g_malloc(REGIONS * BYTES);
    buffer_entry_t *listed = g_new(buffer_entry_t, REGIONS);
    size_t count = REGIONS;
    _Atomic unsigned noted = 0;

    (void)state;
    g_setenv("MC_HANDSHAKE_MAX_LENGTH", "4194304", TRUE);
    te_classic_destroy(classic);
    classic = create();
    g_unsetenv("MC_HANDSHAKE_MAX_LENGTH");
    for (size_t i = 0; i < REGIONS; i++) /* neither sorted nor adjacent in order */
        assert_int_equal(te_classic_register_local_memory(target, memory + (i * 7919 % REGIONS) * BYTES, BYTES, "*", 1),
                         0);
    te_log_set_function(note_long_descriptor, &noted);
    assert_int_equal(te_classic_remote_buffers(classic, open_peer(classic, target), listed, &count), 0);
    assert_int_equal(noted, 1);
    assert_int_equal(count, REGIONS);
    for (size_t i = 0; i < REGIONS; i++)
        assert_ptr_equal(listed[i].addr, memory + (i * 7919 % REGIONS) * BYTES);
    te_classic_destroy(classic);
    te_classic_destroy(target);
    test_use_log(NULL);
    g_free(listed);
    g_free(memory);
}

static void what_a_peer_has_registered_is_told(void **state)
{
    static char memory[3][4096];
    struct te_classic *classic = create(), *target = create();
    int32_t segment = open_peer(classic, target);
    buffer_entry_t listed[2] = {{NULL, 0}, {NULL, 0}};
    const char *target_name = target->engine->name, *own_name = classic->engine->name;
    size_t count = 0;
    uint64_t address = 99;

    (void)state;
    assert_int_equal(te_classic_first_buffer_address(classic, target_name, &address), TE_ADDRESS_NOT_REGISTERED);
    assert_int_equal(address, 99);
    for (int i = 2; i >= 0; i--)
        assert_int_equal(te_classic_register_local_memory(target, memory[i], 4096, "*", 1), 0);
    assert_int_equal(te_classic_first_buffer_address(classic, target_name, &address), 0);
    assert_int_equal(address, (uintptr_t)memory[2]);
    assert_int_equal(te_classic_remote_buffers(classic, segment, NULL, &count), 0);
    assert_int_equal(count, 3);
    count = 2;
    assert_int_equal(te_classic_remote_buffers(classic, segment, listed, &count), 0);
    assert_int_equal(count, 3);
    assert_ptr_equal(listed[0].addr, memory[2]);
    assert_ptr_equal(listed[1].addr, memory[1]);
    assert_int_equal(te_classic_unregister_local_memory(target, memory[2]), 0);
    assert_int_equal(te_classic_first_buffer_address(classic, target_name, &address), 0);
    assert_int_equal(address, (uintptr_t)memory[1]);

    assert_int_equal(te_classic_register_local_memory(classic, memory[2], 4096, "*", 1), 0);
    assert_int_equal(te_classic_first_buffer_address(classic, own_name, &address), 0);
    assert_int_equal(address, (uintptr_t)memory[2]);
    count = 0;
    assert_int_equal(te_classic_remote_buffers(classic, LOCAL_SEGMENT, NULL, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(te_classic_remote_buffers(classic, segment, NULL, &count), -1);
    count = 0;
    assert_int_equal(te_classic_remote_buffers(classic, 7, NULL, &count), TE_METADATA);
    assert_int_equal(te_classic_remote_buffers(classic, segment, NULL, NULL), -1);
    assert_int_equal(te_classic_first_buffer_address(classic, "", &address), -1);
    assert_int_equal(te_classic_first_buffer_address(classic, NULL, &address), -1);
    assert_int_equal(te_classic_first_buffer_address(classic, target_name, NULL), -1);
    te_classic_destroy(target);
    assert_true(te_classic_first_buffer_address(classic, "127.0.0.1:1", &address) < 0);
    te_classic_destroy(classic);
}

/* ---- Transfers ---- */

static void nothing_of_a_refused_submit_is_posted(void **state)
{
    static char memory[4096], source[4096];
    struct te_classic *classic = create(), *target = create();
    te_submit_options_t options = {.struct_size = sizeof(options), .priority = TE_PRIORITY_DEFAULT};
    struct transfer_request good = {
        .opcode = OPCODE_WRITE, .source = source, .target_offset = (uintptr_t)memory, .length = 16};
    struct transfer_request requests[3], bad[7];
    notify_msg_t message = {"a", "b"}, no_text = {"a", NULL};
    te_batch_status_t status = {.struct_size = sizeof(status)};
    batch_id_t batch = te_classic_allocate_batch_id(classic, 4);

    (void)state;
    memset(memory, 0, sizeof(memory));
    memset(source, 1, sizeof(source));
    assert_int_equal(te_classic_register_local_memory(target, memory, sizeof(memory), "*", 1), 0);
    good.target_id = open_peer(classic, target);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        bad[i] = good;
    bad[0].opcode = 2;
    bad[1].opcode = -1;
    bad[2].target_id = 77;
    bad[3].target_id = -1;
    bad[4].target_offset = UINT64_MAX - 3;
    bad[5].length = UINT64_MAX;
    bad[6].source = NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        requests[0] = requests[1] = good;
        requests[2] = bad[i];
        assert_int_equal(te_classic_submit_transfer(classic, batch, requests, 3), 1);
        assert_int_equal(te_classic_submit(classic, batch, requests, 3, NULL), -1);
    }
    requests[2] = good;
    assert_int_equal(te_classic_submit_transfer(classic, batch, NULL, 1), 1);
    assert_int_equal(te_classic_submit_transfer(classic, 0, requests, 3), 1);
    assert_int_equal(te_classic_submit_transfer(classic, INVALID_BATCH, requests, 3), 1);
    assert_int_equal(te_classic_submit_transfer(classic, batch + 1, requests, 3), 1);
    assert_int_equal(te_classic_submit_transfer(classic, batch + 1, NULL, 0), 1);
    assert_int_equal(te_classic_submit_transfer_with_notify(classic, batch, requests, 0, message), 1);
    assert_int_equal(te_classic_submit_transfer_with_notify(classic, batch, requests, 3, no_text), 1);
    options.transport_hint = "rdma";
    assert_int_equal(te_classic_submit(classic, batch, requests, 3, &options), TE_NOT_SUPPORTED_TRANSPORT);
    assert_int_equal(te_classic_batch_status(classic, batch, &status), 0);
    assert_int_equal(status.tasks, 0);
    assert_int_equal(status.status, STATUS_COMPLETED);
    for (size_t i = 0; i < sizeof(memory); i++)
        assert_int_equal(memory[i], 0);

    assert_int_equal(te_classic_submit_transfer(classic, batch, NULL, 0), 0);
    options.transport_hint = "tcp";
    assert_int_equal(te_classic_submit(classic, batch, requests, 3, &options), 0);
    assert_int_equal(te_classic_submit_transfer(classic, batch, requests, 2), 2);
    options.transport_hint = "";
    assert_int_equal(te_classic_submit(classic, batch, requests, 1, &options), 0);
    assert_int_equal(te_classic_wait_batch(classic, batch, PATIENCE_NS), 0);
    assert_int_equal(te_classic_batch_status(classic, batch, &status), 0);
    assert_int_equal(status.completed, 4);
    assert_int_equal(status.transferred_bytes, 64);
    assert_int_equal(te_classic_free_batch_id(classic, batch), 0);
    assert_int_equal(te_classic_free_batch_id(classic, batch), 1);
    te_classic_destroy(classic);
    te_classic_destroy(target);
}

static void status_and_wait_know_what_does_not_exist(void **state)
{
    struct te_classic *classic = create();
    batch_id_t batch = te_classic_allocate_batch_id(classic, 0);
    te_batch_status_t batch_status = {.struct_size = sizeof(batch_status)};
    struct transfer_status status = {.status = 42};

    (void)state;
    assert_true(batch != 0 && batch < UINT64_C(1) << 63);
    assert_int_equal(te_classic_allocate_batch_id(classic, SIZE_MAX), INVALID_BATCH);
    assert_int_equal(te_classic_get_transfer_status(classic, batch, 0, &status), 1);
    assert_int_equal(te_classic_get_transfer_status(classic, batch, SIZE_MAX, &status), 1);
    assert_int_equal(te_classic_get_transfer_status(classic, 0, 0, &status), 1);
    assert_int_equal(te_classic_get_transfer_status(classic, batch, 0, NULL), 1);
    assert_int_equal(te_classic_wait_task(classic, batch, SIZE_MAX, 0, &status), -1);
    assert_int_equal(te_classic_wait_task(classic, batch, 0, 0, &status), -1);
    assert_int_equal(te_classic_wait_batch(classic, batch + 1, 0), -1);
    assert_int_equal(te_classic_wait_batch(classic, batch, 0), 0);
    assert_int_equal(te_classic_batch_status(classic, 0, &batch_status), -1);
    assert_int_equal(te_classic_batch_event_fd(classic, 0), -1);
    assert_int_equal(te_classic_batch_event_fd(classic, batch + 1), -1);
    assert_int_equal(te_classic_cancel_task(classic, batch, SIZE_MAX), -1);
    assert_int_equal(te_classic_cancel_task(classic, batch, 0), -1);
    assert_int_equal(te_classic_cancel_batch(classic, batch), 0);
    assert_int_equal(te_classic_cancel_batch(classic, batch + 1), -1);
    assert_int_equal(te_classic_free_batch_id(classic, 0), 1);
    assert_int_equal(te_classic_free_batch_id(classic, batch), 0);
    assert_int_equal(status.status, 42);
    te_classic_destroy(classic);
}

static void memory_kept_from_peers_is_kept_from_them(void **state)
{
    static char memory[4096], source[64];
    struct te_classic *classic = create(), *target = create();
    struct transfer_request request = {.source = source, .target_offset = (uintptr_t)memory, .length = sizeof(source)};
    batch_id_t batch = te_classic_allocate_batch_id(classic, 2);

    (void)state;
    memset(memory, 0, sizeof(memory));
    memset(source, 1, sizeof(source));
    assert_int_equal(te_classic_register_local_memory(target, memory, sizeof(memory), "*", 0), 0);
    request.target_id = open_peer(classic, target);
    for (int opcode = OPCODE_READ; opcode <= OPCODE_WRITE; opcode++) {
        request.opcode = opcode;
        assert_int_equal(te_classic_submit_transfer(classic, batch, &request, 1), 0);
        assert_int_equal(status_of(classic, batch, (size_t)opcode), STATUS_FAILED);
    }
    for (size_t i = 0; i < sizeof(memory); i++)
        assert_int_equal(memory[i], 0);
    assert_int_equal(source[0], 1);
    te_classic_destroy(classic);
    te_classic_destroy(target);
}

/* A large request is cut only if one region holds all of it: over two regions it is refused, and nothing arrives. */
static void large_requests(void **state)
{
    enum { BYTES = 24 * 1024 * 1024 };
    struct te_classic *classic = create(), *target = create();
    char *memory = g_malloc0(BYTES), *source = g_malloc(BYTES);
    struct transfer_request request = {
        .opcode = OPCODE_WRITE, .source = source, .target_offset = (uintptr_t)memory, .length = BYTES};
    batch_id_t batch = te_classic_allocate_batch_id(classic, 4);

    (void)state;
    assert_true(BYTES > 2 * classic->engine->settings.tcp_stripe_bytes);
    for (size_t i = 0; i < BYTES; i++)
        source[i] = (char)(i * 31 >> 7);
    assert_int_equal(te_classic_register_local_memory(target, memory, BYTES / 2, "*", 1), 0);
    assert_int_equal(te_classic_register_local_memory(target, memory + BYTES / 2, BYTES / 2, "*", 1), 0);
    request.target_id = open_peer(classic, target);
    assert_int_equal(te_classic_submit_transfer(classic, batch, &request, 1), 0);
    assert_int_equal(status_of(classic, batch, 0), STATUS_FAILED);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(memory[i], 0);
    assert_int_equal(te_classic_unregister_local_memory(target, memory), 0);
    assert_int_equal(te_classic_unregister_local_memory(target, memory + BYTES / 2), 0);
    assert_int_equal(te_classic_register_local_memory(target, memory, BYTES, "*", 1), 0);
    /* The region is not in the descriptor that is known here: one slice. Then it is: several. */
    assert_int_equal(te_classic_submit_transfer(classic, batch, &request, 1), 0);
    assert_int_equal(status_of(classic, batch, 1), STATUS_COMPLETED);
    assert_memory_equal(memory, source, BYTES);
    memset(memory, 0, BYTES);
    assert_int_equal(te_classic_sync_segment_cache(classic), 0);
    assert_int_equal(te_classic_submit_transfer(classic, batch, &request, 1), 0);
    assert_int_equal(status_of(classic, batch, 2), STATUS_COMPLETED);
    assert_memory_equal(memory, source, BYTES);
    memset(source, 0, BYTES);
    request.opcode = OPCODE_READ;
    assert_int_equal(te_classic_submit_transfer(classic, batch, &request, 1), 0);
    assert_int_equal(status_of(classic, batch, 3), STATUS_COMPLETED);
    assert_memory_equal(memory, source, BYTES);
    te_classic_destroy(classic);
    te_classic_destroy(target);
    g_free(memory);
    g_free(source);
}

static void one_batch_may_go_to_many_segments(void **state)
{
    enum { TARGETS = 12, REQUESTS = 600 };
    static char memory[TARGETS][4096], source[4096];
    struct te_classic *targets[TARGETS], *classic = create();
    struct transfer_request requests[REQUESTS];
    te_batch_status_t status = {.struct_size = sizeof(status)};
    batch_id_t batch = te_classic_allocate_batch_id(classic, REQUESTS);

    (void)state;
    memset(memory, 0, sizeof(memory));
    memset(source, 3, sizeof(source));
    for (int i = 0; i < TARGETS; i++) {
        targets[i] = i == 0 ? classic : create();
        assert_int_equal(te_classic_register_local_memory(targets[i], memory[i], sizeof(memory[i]), "*", 1), 0);
        assert_int_equal(open_peer(classic, targets[i]), i);
    }
    for (int i = 0; i < REQUESTS; i++) /* the twelfth is dead */
        requests[i] = (struct transfer_request){.opcode = OPCODE_WRITE,
                                                .source = source,
                                                .target_id = i % TARGETS,
                                                .target_offset = (uintptr_t)memory[i % TARGETS] + i,
                                                .length = 64};
    te_classic_destroy(targets[TARGETS - 1]);
    assert_int_equal(te_classic_submit_transfer(classic, batch, requests, REQUESTS), 0);
    assert_int_equal(te_classic_wait_batch(classic, batch, PATIENCE_NS), 0);
    assert_int_equal(te_classic_batch_status(classic, batch, &status), 0);
    assert_int_equal(status.failed, REQUESTS / TARGETS);
    assert_int_equal(status.completed, REQUESTS - REQUESTS / TARGETS);
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(status_of(classic, batch, (size_t)i),
                         i % TARGETS == TARGETS - 1 ? STATUS_FAILED : STATUS_COMPLETED);
    for (int i = 0; i < TARGETS - 1; i++)
        assert_int_equal(memory[i][REQUESTS - TARGETS + i + 63], 3);
    for (int i = 1; i < TARGETS - 1; i++)
        te_classic_destroy(targets[i]);
    te_classic_destroy(classic);
}

static void notifications_to_oneself_and_their_texts(void **state)
{
    struct te_classic *classic = create();
    notify_msg_t message = {"", ""}, *arrived;
    int count = 5;

    (void)state;
    assert_int_equal(te_classic_gen_notify_in_engine(classic, LOCAL_SEGMENT, message), 0);
    message = (notify_msg_t){"\xff\x01 name\n", "\xe2\x82\xac \"\\/"};
    assert_int_equal(te_classic_gen_notify_in_engine(classic, LOCAL_SEGMENT, message), 0);
    arrived = te_classic_get_notifs_from_engine(classic, &count);
    assert_int_equal(count, 2);
    assert_string_equal(arrived[0].name, "");
    assert_string_equal(arrived[0].msg, "");
    assert_string_equal(arrived[1].name, message.name);
    assert_string_equal(arrived[1].msg, message.msg);
    for (int i = 0; i < count; i++) {
        free(arrived[i].name);
        free(arrived[i].msg);
    }
    free(arrived);
    assert_null(te_classic_get_notifs_from_engine(classic, NULL));
    te_classic_destroy(classic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_arguments_create_nothing),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(without_a_free_port_there_is_no_engine),
        cmocka_unit_test(many_engines_at_once),
        cmocka_unit_test(names_and_ports_are_what_they_say),
        cmocka_unit_test(transports_are_installed_once),
        cmocka_unit_test(registration_results),
        cmocka_unit_test(twenty_thousand_regions),
        cmocka_unit_test(what_a_peer_has_registered_is_told),
        cmocka_unit_test(nothing_of_a_refused_submit_is_posted),
        cmocka_unit_test(status_and_wait_know_what_does_not_exist),
        cmocka_unit_test(memory_kept_from_peers_is_kept_from_them),
        cmocka_unit_test(large_requests),
        cmocka_unit_test(one_batch_may_go_to_many_segments),
        cmocka_unit_test(notifications_to_oneself_and_their_texts),
    };

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
