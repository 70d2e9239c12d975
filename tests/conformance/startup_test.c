/* Creating, naming, installing: callers' behaviours 1 to 10, and what bug reports say of them. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

/* ---- helpers ---- */

/* Binds a TCP port as another program would; port 0 takes a free one. */
static int take_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t size = sizeof(address);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(descriptor >= 0);
    if (bind(descriptor, (struct sockaddr *)&address, size) != 0) {
        close(descriptor);
        return -1;
    }
    assert_int_equal(listen(descriptor, 1), 0);
    assert_int_equal(getsockname(descriptor, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return descriptor;
}

/* A name that has an address of each family: getaddrinfo() below says so to the library, too. */
#define DUAL_STACK_NAME "dual-stack.test"

/* In place of the system's: the library calls it. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **result)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!node || strcmp(node, DUAL_STACK_NAME) != 0 || (hints && hints->ai_flags & AI_NUMERICHOST))
        return next(node, service, hints, result);
    int error = next("::1", service, hints, result);
    return error ? error : next("127.0.0.1", service, hints, &(*result)->ai_next); /* freed with the first */
}

/* An address of this machine that means something only together with an interface: "fe80::1%lo". */
static bool link_local_address(char text[NAME_SIZE])
{
    struct ifaddrs *all;
    bool found = false;
    assert_int_equal(getifaddrs(&all), 0);
    for (struct ifaddrs *entry = all; entry && !found; entry = entry->ifa_next) {
        char address[INET6_ADDRSTRLEN];
        struct sockaddr_in6 own;
        if (!entry->ifa_addr || entry->ifa_addr->sa_family != AF_INET6 || !(entry->ifa_flags & IFF_UP))
            continue;
        memcpy(&own, entry->ifa_addr, sizeof(own));
        if (!IN6_IS_ADDR_LINKLOCAL(&own.sin6_addr))
            continue;
        inet_ntop(AF_INET6, &own.sin6_addr, address, sizeof(address));
        snprintf(text, NAME_SIZE, "%s%%%s", address, entry->ifa_name);
        found = true;
    }
    freeifaddrs(all);
    return found;
}

static int port_of(const char *name)
{
    const char *colon = strrchr(name, ':');
    assert_non_null(colon);
    return atoi(colon + 1);
}

/* Takes two ports next to each other and makes them the range of engines. */
static void take_two_ports(int taken[2])
{
    char text[16];
    for (int port = 17020 + (int)(getpid() % 400) * 2;; port += 2) {
        int next = port + 1;
        assert_true(port < 18000);
        taken[0] = take_port(&port);
        taken[1] = take_port(&next);
        if (taken[0] >= 0 && taken[1] >= 0) {
            snprintf(text, sizeof(text), "%d", port);
            setenv("MC_MIN_RPC_PORT", text, 1);
            snprintf(text, sizeof(text), "%d", next);
            setenv("MC_MAX_RPC_PORT", text, 1);
            return;
        }
        close(taken[0]);
        close(taken[1]);
    }
}

static void b01_p2phandshake_ignores_the_port(void **state)
{
    (void)state;
    int port = 0;
    int taken = take_port(&port);
    char local_name[NAME_SIZE];
    char name[NAME_SIZE];
    snprintf(local_name, sizeof(local_name), "127.0.0.1:%d", port);
    transfer_engine_t engine = engine_new_named(local_name); /* although somebody has that port */
    close(taken);
    engine_name(engine, name);
    assert_int_equal(strncmp(name, "127.0.0.1:", 10), 0);
    assert_in_range(port_of(name), 15000, 17000);
    assert_int_not_equal(port_of(name), port);
    assert_int_equal(te_port(engine), port_of(name));
    taken = take_port(&port); /* the port in the name stays free for the caller's own server */
    assert_true(taken >= 0);
    close(taken);
    assert_transfers(engine_new(), engine, name);
}

static void b01_a_name_without_port_is_fine_and_the_range_can_be_set(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    setenv("MC_MIN_RPC_PORT", "17500", 1);
    setenv("MC_MAX_RPC_PORT", "17600", 1);
    transfer_engine_t engine = engine_new_named("127.0.0.1");
    engine_name(engine, name);
    assert_in_range(port_of(name), 17500, 17600);
    assert_in_range(raw_data_port_of(name), 17500, 17600);
}

static void b02_auto_discovery_leaves_a_working_tcp(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 1);
    assert_non_null(engine);
    engine_name(engine, name);
    assert_transfers(engine_new(), engine, name);
    transfer_engine_t other = engine_new();
    engine_name(other, name);
    assert_transfers(engine, other, name);
}

static void b03_force_tcp_counts_by_presence_and_is_read_at_create(void **state)
{
    (void)state;
    setenv("MC_FORCE_TCP", "0", 1);
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0);
    assert_non_null(engine);
    unsetenv("MC_FORCE_TCP");
    assert_works(engine); /* nobody called installTransport */
}

static void b04_a_bare_host_and_port_is_etcd(void **state)
{
    (void)state;
    /* Nothing listens on port 1: whether or not etcd is supported, this must end with a reason that names it. */
    assert_null(engine_try_new("127.0.0.1:1", "127.0.0.1", 0));
    assert_non_null(strstr(te_last_error(), "etcd"));
}

static void b05_four_engines_in_one_process_are_independent(void **state)
{
    (void)state;
    transfer_engine_t engines[4];
    char names[4][NAME_SIZE];
    for (size_t index = 0; index < 4; index++) {
        engines[index] = engine_new();
        engine_name(engines[index], names[index]);
        for (size_t other = 0; other < index; other++)
            assert_string_not_equal(names[index], names[other]);
    }
    for (size_t from = 0; from < 4; from++) {
        for (size_t to = 0; to < 4; to++)
            assert_transfers(engines[from], engines[to], names[to]);
    }
    engine_delete(engines[1]);
    assert_transfers(engines[0], engines[2], names[2]);
    assert_transfers(engines[2], engines[3], names[3]);
}

static void b05_many_processes_at_once(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    struct target *targets[COUNT];
    transfer_engine_t engine = engine_new();
    uint8_t *source = memory_new(KIB);
    pattern_fill(source, KIB, 5);
    for (size_t index = 0; index < COUNT; index++)
        targets[index] = target_start();
    for (size_t index = 0; index < COUNT; index++) {
        struct shared_memory memory = target_memory(targets[index], KIB);
        segment_id_t segment = engine_open(engine, targets[index]->name);
        assert_int_equal(transfer(engine, WRITE, source, segment, memory.there, KIB), COMPLETED);
        assert_pattern(memory.here, KIB, 5);
    }
}

static void b05_failed_creation_leaves_nothing_behind(void **state)
{
    (void)state;
    engine_delete(engine_new());
    size_t threads = settled_threads(1);
    size_t descriptors = settled_descriptors(0);
    for (int round = 0; round < 8; round++) {
        assert_null(engine_try_new("nonsense://127.0.0.1", "127.0.0.1", 0));
        assert_null(engine_try_new("", "127.0.0.1", 0));
        assert_null(engine_try_new("p2phandshake", "127.0.0.1", 0));
    }
    assert_int_equal(settled_threads(threads), threads);
    assert_int_equal(settled_descriptors(descriptors), descriptors);
    /* Late: the engine gets its port and has its threads, and then there is no second port for the data. */
    int taken[2];
    take_two_ports(taken);
    close(taken[0]);
    for (int round = 0; round < 8; round++)
        assert_null(engine_try_new("P2PHANDSHAKE", "127.0.0.1", 1));
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0);
    assert_non_null(engine);
    assert_null(installTransport(engine, "tcp", NULL));
    engine_delete(engine);
    close(taken[1]);
    unsetenv("MC_MIN_RPC_PORT");
    unsetenv("MC_MAX_RPC_PORT");
    assert_int_equal(settled_threads(threads), threads);
    assert_int_equal(settled_descriptors(descriptors), descriptors);
    assert_works(engine_new());
}

static void b06_all_usual_local_names_are_legal(void **state)
{
    (void)state;
    static const struct {
        const char *local, *opened;
    } cases[] = {
        {"0.0.0.0", "127.0.0.1"},     {"localhost", "localhost"},       {"127.0.0.1:12345", "127.0.0.1"},
        {"localhost", "127.0.0.1"},   {"127.0.0.1", "localhost"},       {"0.0.0.0:0", "localhost"},
        {"127.0.0.1:0", "127.0.0.1"}, {"127.0.0.1:99999", "127.0.0.1"},
    };
    for (size_t index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
        char name[NAME_SIZE];
        transfer_engine_t engine = engine_new_named(cases[index].local);
        snprintf(name, sizeof(name), "%s:%d", cases[index].opened, te_port(engine));
        assert_transfers(engine_new(), engine, name);
    }
}

static void b06_the_name_of_this_host_is_legal(void **state)
{
    (void)state;
    char host[64];
    char name[NAME_SIZE];
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", host, 0);
    assert_non_null(engine);
    assert_non_null(installTransport(engine, "tcp", NULL));
    engine_name(engine, name);
    assert_int_equal(strncmp(name, host, strlen(host)), 0);
    snprintf(name, sizeof(name), "127.0.0.1:%d", te_port(engine));
    assert_transfers(engine_new(), engine, name);
}

static void b07_a_device_that_does_not_exist_does_not_disturb_tcp(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0);
    assert_non_null(engine);
    void *arguments[] = {"{\"cpu:0\":[[\"lo\"],[\"nosuch0\"]]}", NULL};
    assert_non_null(installTransport(engine, "tcp", arguments));
    assert_works(engine);
}

static void b08_a_transport_that_is_there_is_returned_again(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 1);
    assert_non_null(engine);
    transport_t first = installTransport(engine, "tcp", NULL);
    assert_non_null(first);
    assert_ptr_equal(installTransport(engine, "tcp", NULL), first);
    void *nothing[] = {NULL, NULL};
    assert_ptr_equal(installTransport(engine, "tcp", nothing), first);
    assert_int_equal(uninstallTransport(engine, "tcp"), 0);
    assert_ptr_equal(installTransport(engine, "tcp", NULL), first);
    assert_works(engine);
}

static void b08_only_the_first_argument_is_read(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0);
    assert_non_null(engine);
    char *page = memory_new((size_t)sysconf(_SC_PAGESIZE)); /* what follows it is inaccessible */
    void **arguments = (void **)(page + sysconf(_SC_PAGESIZE) - sizeof(void *));
    *arguments = NULL;
    assert_non_null(installTransport(engine, "tcp", arguments));
    assert_works(engine);
}

static void b09_and_report_k06_texts_are_copied_before_return(void **state)
{
    (void)state;
    char connection[] = "P2PHANDSHAKE";
    char local[] = "127.0.0.1";
    char host[] = "127.0.0.1";
    char protocol[] = "tcp";
    char location[] = "cpu:0";
    char name[NAME_SIZE];
    transfer_engine_t engine = createTransferEngine(connection, local, host, 1, 0);
    assert_non_null(engine);
    memset(connection, 'x', sizeof(connection));
    memset(local, 'x', sizeof(local));
    memset(host, 'x', sizeof(host));
    assert_non_null(installTransport(engine, protocol, NULL));
    memset(protocol, 'x', sizeof(protocol));
    assert_non_null(installTransport(engine, "tcp", NULL));
    uint8_t *memory = memory_new(KIB);
    assert_int_equal(registerLocalMemory(engine, memory, KIB, location, 1), 0);
    memset(location, 'x', sizeof(location));
    transfer_engine_t other = engine_new();
    engine_name(engine, name);
    segment_id_t segment = engine_open(other, name);
    memset(name, 'x', sizeof(name));
    uint8_t *source = memory_new(KIB);
    assert_int_equal(transfer(other, WRITE, source, segment, (uintptr_t)memory, KIB), COMPLETED);
    assert_int_equal(syncSegmentCache(other), 0);
    assert_int_equal(transfer(other, WRITE, source, segment, (uintptr_t)memory, KIB), COMPLETED);
    destroyTransferEngine(engine);
}

static void b10_the_address_is_cut_and_terminated(void **state)
{
    (void)state;
    char whole[NAME_SIZE];
    char buffer[64];
    transfer_engine_t engine = engine_new();
    engine_name(engine, whole);
    for (size_t room = 1; room < sizeof(buffer); room++) {
        size_t expected = strlen(whole) < room ? strlen(whole) : room - 1;
        memset(buffer, 0x7e, sizeof(buffer));
        assert_int_equal(getLocalIpAndPort(engine, buffer, room), 0);
        assert_int_equal(strlen(buffer), expected);
        assert_memory_equal(buffer, whole, expected);
        assert_bytes(buffer + expected + 1, sizeof(buffer) - expected - 1, 0x7e);
    }
    assert_int_equal(getLocalIpAndPort(engine, buffer, 0), ERR_INVALID_ARGUMENT);
    assert_int_equal(getLocalIpAndPort(engine, NULL, 64), ERR_INVALID_ARGUMENT);
}

/* Where the machine has no IPv6, opening such a name must fail with a reason; the rest of the test is skipped. */
static void assert_transfers_over_ipv6(transfer_engine_t from, transfer_engine_t to, const char *opened_as)
{
    if (host_has_ipv6()) {
        assert_transfers(from, to, opened_as);
        return;
    }
    assert_true(openSegment(from, opened_as) < 0);
    assert_string_not_equal(te_last_error(), "");
    print_message("skip: this machine has no IPv6\n");
    skip();
}

static void b10_an_ipv6_address_has_no_brackets_and_can_be_opened(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    char bracketed[NAME_SIZE];
    setenv("MC_USE_IPV6", "1", 1);
    transfer_engine_t engine = engine_new_named("::1");
    engine_name(engine, name);
    assert_int_equal(strncmp(name, "::1:", 4), 0);
    snprintf(bracketed, sizeof(bracketed), "[::1]:%d", te_port(engine));
    assert_transfers_over_ipv6(engine_new_named("[::1]:0"), engine, bracketed);
    assert_transfers_over_ipv6(engine_new_named("::1"), engine, name);
}

static void e12_eight_failures_then_a_good_start(void **state)
{
    (void)state;
    engine_delete(engine_new());
    size_t threads = settled_threads(1);
    size_t descriptors = settled_descriptors(0);
    int taken[2];
    take_two_ports(taken); /* all that the engine may use */
    for (int round = 0; round < 8; round++) {
        assert_null(engine_try_new("P2PHANDSHAKE", "127.0.0.1", 1));
        assert_string_not_equal(te_last_error(), "");
    }
    close(taken[0]);
    close(taken[1]);
    assert_int_equal(settled_threads(threads), threads);
    assert_int_equal(settled_descriptors(descriptors), descriptors);
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 1);
    assert_non_null(engine);
    unsetenv("MC_MIN_RPC_PORT"); /* there is no room for a second one */
    unsetenv("MC_MAX_RPC_PORT");
    assert_works(engine);
}

static void contract_malformed_ranges_of_ports_fall_back(void **state)
{
    (void)state;
    static const char *const ranges[][2] = {{"100", "200"}, {"40000", "40100"}, {"17000", "16000"}, {"abc", "-1"}};
    for (size_t index = 0; index < sizeof(ranges) / sizeof(ranges[0]); index++) {
        char name[NAME_SIZE];
        setenv("MC_MIN_RPC_PORT", ranges[index][0], 1);
        setenv("MC_MAX_RPC_PORT", ranges[index][1], 1);
        engine_name(engine_new(), name);
        assert_in_range(port_of(name), 15000, 17000);
    }
}

static void *use_from_a_thread(void *data)
{
    transfer_engine_t engine = *(transfer_engine_t *)data;
    for (int round = 0; round < 100; round++) {
        char name[NAME_SIZE];
        if (getLocalIpAndPort(engine, name, sizeof(name)) != 0 || te_port(engine) <= 0)
            return NULL;
        if (!installTransport(engine, "tcp", NULL))
            return NULL;
        if (openSegment(engine, name) != 0)
            return NULL;
        if (discoverTopology(engine) != 0 || syncSegmentCache(engine) != 0)
            return NULL;
    }
    return data;
}

static void contract_start_up_calls_may_come_from_any_thread_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    transfer_engine_t engine = engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0);
    assert_non_null(engine);
    for (size_t index = 0; index < 4; index++)
        assert_int_equal(pthread_create(&threads[index], NULL, use_from_a_thread, &engine), 0);
    for (size_t index = 0; index < 4; index++) {
        void *result;
        pthread_join(threads[index], &result);
        assert_non_null(result);
    }
}

static void report_m17_ipv6_names_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {"::1", "[::1]", "[::1]:15000"};
    setenv("MC_USE_IPV6", "1", 1);
    for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++) {
        char name[NAME_SIZE];
        transfer_engine_t engine = engine_new_named(names[index]);
        engine_name(engine, name);
        assert_transfers_over_ipv6(engine_new_named("::1"), engine, name);
        assert_int_equal(openSegment(engine, name), 0);
    }
}

static void report_m17_link_local_names_keep_their_scope(void **state)
{
    (void)state;
    char address[NAME_SIZE];
    if (!link_local_address(address)) {
        print_message("skip: no interface of this machine has a link-local IPv6 address\n");
        skip();
    }
    for (int bracketed = 0; bracketed < 2; bracketed++) {
        char local[NAME_SIZE + 2];
        char expected[2 * NAME_SIZE];
        char name[NAME_SIZE];
        snprintf(local, sizeof(local), bracketed ? "[%s]" : "%s", address);
        transfer_engine_t engine = engine_new_named(local);
        engine_name(engine, name);
        snprintf(expected, sizeof(expected), "%s:%d", address, te_port(engine));
        assert_string_equal(name, expected);
        assert_transfers(engine_new_named(local), engine, name);
        snprintf(expected, sizeof(expected), "[%s]:%d", address, te_port(engine));
        assert_transfers(engine_new(), engine, expected);
        assert_int_equal(openSegment(engine, name), LOCAL_SEGMENT);
    }
}

static void report_m17_a_dual_stack_name_is_served_by_either_address(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    uint8_t *local = memory_new(KIB);
    for (int ipv6_first = 0; ipv6_first < 2; ipv6_first++) {
        char name[NAME_SIZE];
        if (ipv6_first)
            setenv("MC_USE_IPV6", "1", 1);
        transfer_engine_t engine = engine_new_named(DUAL_STACK_NAME);
        engine_name(engine, name);
        assert_int_equal(strncmp(name, DUAL_STACK_NAME ":", strlen(DUAL_STACK_NAME ":")), 0);
        assert_transfers(engine_new(), engine, name);
        /* Peers that listen at one of the two only. */
        for (size_t index = 0; index < (host_has_ipv6() ? 2 : 1); index++) {
            struct raw_peer *peer = raw_peer_start_at(hosts[index]);
            snprintf(name, sizeof(name), DUAL_STACK_NAME ":%d", peer->control_port);
            char *descriptor = raw_descriptor(peer, name, DUAL_STACK_NAME, 2);
            raw_peer_publish(peer, descriptor);
            free(descriptor);
            segment_id_t segment = engine_open(engine, name);
            assert_int_equal(transfer(engine, WRITE, local, segment, (uintptr_t)peer->memory, KIB), COMPLETED);
            raw_peer_stop(peer);
        }
    }
}

static void report_m19_the_address_that_was_given_is_published(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_new_named("127.0.0.2");
    engine_name(engine, name);
    assert_int_equal(strncmp(name, "127.0.0.2:", 10), 0);
    char *descriptor = raw_call(name, RAW_METADATA, "{}");
    assert_non_null(descriptor);
    assert_non_null(strstr(descriptor, name));
    free(descriptor);
    assert_transfers(engine_new(), engine, name);
}

static void report_m20_what_is_published_is_what_was_bound(void **state)
{
    (void)state;
    int port = 0;
    int taken = take_port(&port);
    char local[NAME_SIZE];
    char name[NAME_SIZE];
    snprintf(local, sizeof(local), "127.0.0.1:%d", port);
    transfer_engine_t engine = engine_new_named(local);
    engine_name(engine, name);
    assert_int_not_equal(port_of(name), port);
    assert_transfers(engine_new(), engine, name);
    close(taken);
}

static void report_m21_the_own_descriptor_is_there_after_init(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_new_named("127.0.0.1");
    uint8_t *memory = memory_new_registered(engine, KIB);
    engine_name(engine, name);
    assert_int_equal(openSegment(engine, name), LOCAL_SEGMENT);
    uint64_t address = 0;
    assert_int_equal(te_first_buffer_address(engine, name, &address), 0);
    assert_int_equal(address, (uintptr_t)memory);
}

static void report_m26_an_engine_answers_when_create_returns(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        char name[NAME_SIZE];
        transfer_engine_t engine = engine_new();
        engine_name(engine, name);
        char *descriptor = raw_call(name, RAW_METADATA, "{}");
        char *notified = raw_call(name, RAW_NOTIFY, "{\"name\":\"n\",\"notify_msg\":\"m\"}\n");
        assert_non_null(descriptor);
        assert_non_null(strstr(descriptor, "\"protocol\":\"tcp\""));
        assert_non_null(notified);
        notify_msg_t *messages = await_notifications(engine, 1);
        assert_string_equal(messages[0].name, "n");
        assert_string_equal(messages[0].msg, "m");
        freeNotifsMsgBuf(messages, 1);
        free(descriptor);
        free(notified);
        engine_delete(engine);
    }
}

static void *create_use_destroy(void *data)
{
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    bool good = engine && use_from_a_thread(&engine) != NULL;
    destroyTransferEngine(engine);
    *(bool *)data = good;
    return NULL;
}

static void report_p07_many_engines_started_at_once(void **state)
{
    (void)state;
    enum { COUNT = 16 };
    bool good[COUNT] = {false};
    run_threads(COUNT, create_use_destroy, good, sizeof(good[0]));
    for (size_t index = 0; index < COUNT; index++)
        assert_true(good[index]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(b01_p2phandshake_ignores_the_port),
        TEST(b01_a_name_without_port_is_fine_and_the_range_can_be_set),
        TEST(b02_auto_discovery_leaves_a_working_tcp),
        TEST(b03_force_tcp_counts_by_presence_and_is_read_at_create),
        TEST(b04_a_bare_host_and_port_is_etcd),
        TEST(b05_four_engines_in_one_process_are_independent),
        TEST(b05_many_processes_at_once),
        TEST(b05_failed_creation_leaves_nothing_behind),
        TEST(b06_all_usual_local_names_are_legal),
        TEST(b06_the_name_of_this_host_is_legal),
        TEST(b07_a_device_that_does_not_exist_does_not_disturb_tcp),
        TEST(b08_a_transport_that_is_there_is_returned_again),
        TEST(b08_only_the_first_argument_is_read),
        TEST(b09_and_report_k06_texts_are_copied_before_return),
        TEST(b10_the_address_is_cut_and_terminated),
        TEST(b10_an_ipv6_address_has_no_brackets_and_can_be_opened),
        TEST(e12_eight_failures_then_a_good_start),
        TEST(contract_malformed_ranges_of_ports_fall_back),
        TEST(contract_start_up_calls_may_come_from_any_thread_at_once),
        TEST(report_m17_ipv6_names_round_trip),
        TEST(report_m17_link_local_names_keep_their_scope),
        TEST(report_m17_a_dual_stack_name_is_served_by_either_address),
        TEST(report_m19_the_address_that_was_given_is_published),
        TEST(report_m20_what_is_published_is_what_was_bound),
        TEST(report_m21_the_own_descriptor_is_there_after_init),
        TEST(report_m26_an_engine_answers_when_create_returns),
        TEST(report_p07_many_engines_started_at_once),
    };
    return RUN_TESTS(tests, argc, argv);
}
