/*
 * What settings change, seen from outside: each goes into an engine through the environment, where a user puts it. How
 * they are read is the matter of settings_test.c.
 */
#include <dirent.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
/* after the above */
#include <cmocka.h>

#include "classic/internal.h"
#include "core/clock.h"
#include "core/local_segment.h"
#include "tests/unit/fake_control_port.h"
#include "wire/classic/tcp_header.h"

enum { MEMORY_BYTES = 4 << 20, DESCRIPTORS = 1024 };
#define WAIT_NS (TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND)

static char local_memory[MEMORY_BYTES], remote_memory[MEMORY_BYTES];

static struct te_classic *create(void)
{
    struct te_classic *classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 1);

    assert_non_null(classic);
    return classic;
}

/* Without a value the setting is left to its default. */
static struct te_classic *create_with(const char *name, const char *value)
{
    struct te_classic *classic;

    if (value != NULL)
        g_setenv(name, value, TRUE);
    classic = create();
    g_unsetenv(name);
    return classic;
}

static segment_id_t open_segment(struct te_classic *classic, const char *name)
{
    segment_id_t segment = te_classic_open_segment(classic, name);

    assert_true(segment > 0);
    return segment;
}

static batch_id_t submit(struct te_classic *classic, segment_id_t segment, int opcode, const void *remote,
                         size_t length, size_t count)
{
    batch_id_t batch = te_classic_allocate_batch_id(classic, count);
    struct transfer_request *requests = g_new0(struct transfer_request, count);

    for (size_t i = 0; i < count; i++)
        requests[i] = (struct transfer_request){.opcode = opcode,
                                                .source = local_memory,
                                                .target_id = segment,
                                                .target_offset = (uintptr_t)remote,
                                                .length = length};
    assert_int_equal(te_classic_submit_transfer(classic, batch, requests, count), 0);
    g_free(requests);
    return batch;
}

/* Between two engines of this process. */
static void transfer(struct te_classic *initiator, struct te_classic *target, int opcode)
{
    te_batch_status_t status = {.struct_size = sizeof(status)};
    batch_id_t batch;

    assert_int_equal(te_classic_register_local_memory(target, remote_memory, sizeof(remote_memory), "*", 1), 0);
    batch = submit(initiator, open_segment(initiator, target->engine->name), opcode, remote_memory,
                   sizeof(remote_memory), 1);
    assert_int_equal(te_classic_wait_batch(initiator, batch, WAIT_NS), 0);
    assert_int_equal(te_classic_batch_status(initiator, batch, &status), 0);
    assert_int_equal(status.completed, 1);
}

static uint16_t data_port(struct te_classic *classic)
{
    struct te_segment_descriptor *descriptor = te_local_segment_describe(classic->engine);
    uint16_t port = descriptor->tcp_data_port;

    te_segment_descriptor_unref(descriptor);
    return port;
}

/* ---- A peer whose data port is the test's ---- */

struct raw_peer {
    struct fake_control_port control;
    int listener;
};

static void raw_start(struct raw_peer *peer)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();

    fake_start(&peer->control);
    peer->listener = test_listen(&descriptor->tcp_data_port);
    g_free(descriptor->name);
    descriptor->name = g_strdup(peer->control.name);
    g_free(descriptor->protocol);
    descriptor->protocol = g_strdup("tcp");
    descriptor->tcp_protocol_version = 2;
    descriptor->buffer_count = 1;
    descriptor->buffers = g_new0(struct te_segment_buffer, 1);
    descriptor->buffers[0].address = (uintptr_t)remote_memory;
    descriptor->buffers[0].length = UINT64_C(1) << 30;
    descriptor->buffers[0].name = g_strdup(peer->control.name);
    pthread_mutex_lock(&peer->control.lock);
    peer->control.descriptor = descriptor;
    pthread_mutex_unlock(&peer->control.lock);
}

static void raw_stop(struct raw_peer *peer)
{
    close(peer->listener);
    fake_stop(&peer->control);
}

static int raw_accept(struct raw_peer *peer)
{
    int descriptor = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);

    assert_true(descriptor >= 0);
    test_socket_patience(descriptor);
    return descriptor;
}

static struct te_tcp_request raw_take_request(int descriptor)
{
    uint8_t bytes[TE_TCP_REQUEST_BYTES];

    assert_true(test_receive(descriptor, bytes, sizeof(bytes)));
    return te_tcp_request_decode(bytes);
}

/* ---- This process's sockets ---- */

static uint16_t local_port(int descriptor)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);

    if (getsockname(descriptor, (struct sockaddr *)&address, &length) != 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static uint16_t peer_port(int descriptor)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);

    if (getpeername(descriptor, (struct sockaddr *)&address, &length) != 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* ---- Control port ---- */

static void a_name_without_a_port_leads_to_the_handshake_port(void **state)
{
    struct raw_peer peer;
    struct te_classic *classic;
    char port[8];

    (void)state;
    raw_start(&peer);
    g_snprintf(port, sizeof(port), "%u", peer.control.port);
    classic = create_with("MC_HANDSHAKE_PORT", port);
    open_segment(classic, "127.0.0.1");
    assert_int_equal(fake_fetches(&peer.control), 1);
    te_classic_destroy(classic);
    raw_stop(&peer);
}

static unsigned system_limit(const char *path)
{
    char *text;
    unsigned limit;

    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    limit = (unsigned)strtoul(text, NULL, 10);
    g_free(text);
    return limit;
}

static void assert_backlog(const char *value, unsigned expected)
{
    struct te_classic *classic = create_with("MC_HANDSHAKE_LISTEN_BACKLOG", value);
    unsigned found = 0;

    for (int descriptor = 0; descriptor < DESCRIPTORS; descriptor++) {
        struct tcp_info information;
        socklen_t length = sizeof(information);

        if (local_port(descriptor) != te_classic_port(classic) || peer_port(descriptor) != 0 ||
            getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &information, &length) != 0)
            continue;
        /* Of a listening socket the kernel tells the length of its queue here. */
        assert_int_equal(information.tcpi_state, TCP_LISTEN);
        assert_int_equal(information.tcpi_sacked, expected);
        found++;
    }
    assert_true(found > 0);
    te_classic_destroy(classic);
}

static void the_backlog_is_the_control_ports(void **state)
{
    unsigned limit = system_limit("/proc/sys/net/core/somaxconn");

    (void)state;
    assert_backlog("7", MIN(7, limit));
    assert_backlog(NULL, MIN(128, limit));
    assert_backlog("2147483647", limit);
}

struct probing {
    struct te_classic *classic;
    const char *name;
    _Atomic bool ended;
    int result;
};

static void *probe(void *data)
{
    struct probing *probing = data;

    probing->result = te_classic_probe(probing->classic, probing->name);
    atomic_store(&probing->ended, true);
    return NULL;
}

/* Fills the queue of a listener, so that nobody else can connect. */
static void fill_queue(uint16_t port, int fillers[3])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 3; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_int_equal(connect(fillers[i], (struct sockaddr *)&address, sizeof(address)), -1);
        assert_int_equal(errno, EINPROGRESS);
    }
}

/* Of this process. */
static unsigned count_connecting(void)
{
    unsigned count = 0;

    for (int descriptor = 0; descriptor < DESCRIPTORS; descriptor++) {
        struct tcp_info information;
        socklen_t length = sizeof(information);

        if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &information, &length) == 0)
            count += information.tcpi_state == TCP_SYN_SENT;
    }
    return count;
}

/* Two engines call a host that does not answer; the patient one began first and is still waiting when the other has
 * given up. */
static void a_connect_is_given_up_after_its_time(void **state)
{
    struct probing probing = {0};
    struct te_classic *hasty = create_with("MC_HANDSHAKE_CONNECT_TIMEOUT", "1");
    int fillers[3];
    unsigned connecting;
    pthread_t thread;
    uint16_t port;
    int listener = test_listen(&port);
    char name[32];

    (void)state;
    g_snprintf(name, sizeof(name), "127.0.0.1:%u", port);
    assert_int_equal(listen(listener, 0), 0);
    fill_queue(port, fillers);
    connecting = count_connecting();
    probing.name = name;
    probing.classic = create_with("MC_HANDSHAKE_CONNECT_TIMEOUT", "3599");
    assert_int_equal(pthread_create(&thread, NULL, probe, &probing), 0);
    while (count_connecting() == connecting)
        usleep(1000);
    assert_int_equal(te_classic_probe(hasty, name), TE_SOCKET);
    assert_non_null(strstr(te_status_message(), "in time"));
    assert_false(atomic_load(&probing.ended));
    close(listener); /* the next attempt of the kernel is refused */
    pthread_join(thread, NULL);
    assert_int_equal(probing.result, TE_SOCKET);
    for (size_t i = 0; i < G_N_ELEMENTS(fillers); i++)
        close(fillers[i]);
    te_classic_destroy(hasty);
    te_classic_destroy(probing.classic);
}

/* ---- Threads ---- */

static unsigned count_threads(const char *prefix)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    unsigned count = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char *path = g_strdup_printf("/proc/self/task/%s/comm", entry->d_name), *name;

        if (g_file_get_contents(path, &name, NULL, NULL)) {
            count += g_str_has_prefix(name, prefix);
            g_free(name);
        }
        g_free(path);
    }
    closedir(folder);
    return count;
}

static void there_are_as_many_io_threads_as_asked_for(void **state)
{
    static const unsigned wanted[] = {1, 2, 5};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(wanted); i++) {
        char value[8];
        struct te_classic *target = create(), *classic;
        unsigned before = count_threads("te-io");

        g_snprintf(value, sizeof(value), "%u", wanted[i]);
        classic = create_with("TE_IO_THREADS", value);
        assert_int_equal(count_threads("te-io") - before, wanted[i]);
        transfer(classic, target, OPCODE_WRITE);
        te_classic_destroy(classic);
        assert_int_equal(count_threads("te-io"), before);
        te_classic_destroy(target);
    }
}

/* ---- TCP ---- */

static atomic_size_t largest_piece; /* room for the first part of what a target receives */

/* In the place of the C library's. */
int recvmmsg(int descriptor, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    size_t size = messages[0].msg_hdr.msg_iov[0].iov_len;

    if (size > atomic_load(&largest_piece))
        atomic_store(&largest_piece, size);
    return (int)syscall(SYS_recvmmsg, descriptor, messages, count, flags, timeout);
}

static void assert_piece(const char *value, size_t expected)
{
    struct te_classic *target = create_with("MC_TCP_SLICE_SIZE", value), *initiator = create();

    for (size_t i = 0; i < sizeof(local_memory); i++)
        local_memory[i] = (char)(i * 7 + i / 4096 + expected);
    atomic_store(&largest_piece, 0);
    transfer(initiator, target, OPCODE_WRITE);
    assert_memory_equal(remote_memory, local_memory, sizeof(local_memory));
    assert_int_equal(atomic_load(&largest_piece), expected);
    te_classic_destroy(initiator);
    te_classic_destroy(target);
}

static void a_target_takes_pieces_of_the_slice_size(void **state)
{
    (void)state;
    assert_piece("5000", 5000);
    assert_piece("65536", 65536);
    assert_piece(NULL, 1 << 20);
}

/* Both ends of the connections to a data port have it. */
static void assert_congestion_control(const char *value, const char *expected)
{
    struct te_classic *target = create_with("TE_TCP_LOCAL_CONGESTION_CONTROL", value);
    struct te_classic *initiator = create_with("TE_TCP_LOCAL_CONGESTION_CONTROL", value);
    uint16_t port = data_port(target);
    unsigned accepted = 0, connected = 0;

    transfer(initiator, target, OPCODE_WRITE);
    for (int descriptor = 0; descriptor < DESCRIPTORS; descriptor++) {
        bool from = peer_port(descriptor) == port, to = local_port(descriptor) == port && peer_port(descriptor) != 0;
        char name[16] = "";
        socklen_t length = sizeof(name);

        if (!from && !to)
            continue;
        assert_int_equal(getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
        assert_string_equal(name, expected);
        connected += from;
        accepted += to;
    }
    assert_true(connected > 0 && accepted > 0);
    te_classic_destroy(initiator);
    te_classic_destroy(target);
}

static void connections_within_a_host_have_the_congestion_control_asked_for(void **state)
{
    char *allowed, **names, own[16] = "";
    socklen_t length = sizeof(own);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_int_equal(getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, own, &length), 0);
    close(descriptor);
    assert_true(g_file_get_contents("/proc/sys/net/ipv4/tcp_allowed_congestion_control", &allowed, NULL, NULL));
    names = g_strsplit(g_strstrip(allowed), " ", -1);
    for (char **name = names; *name != NULL; name++)
        assert_congestion_control(*name, *name);
    assert_congestion_control(NULL, "reno");
    assert_congestion_control("", own);
    g_strfreev(names);
    g_free(allowed);
}

static void assert_version(const char *value, bool version_2)
{
    struct te_classic *classic = create_with("MC_TCP_PROTO", value);
    struct raw_peer peer;
    int descriptor;

    raw_start(&peer);
    submit(classic, open_segment(classic, peer.control.name), OPCODE_READ, remote_memory, 100, 1);
    descriptor = raw_accept(&peer);
    assert_int_equal(raw_take_request(descriptor).version_2, version_2);
    close(descriptor);
    te_classic_destroy(classic);
    raw_stop(&peer);
}

static void the_data_protocol_is_the_one_asked_for(void **state)
{
    (void)state;
    assert_version(NULL, true);
    assert_version("2", true);
    assert_version("1", false);
}

static void assert_connections(const char *value, unsigned expected)
{
    enum { READS = 12, LENGTH = 32 << 20, EXPECTED_MAX = 16 };
    struct te_classic *classic = create_with("MC_TCP_LANES_PER_PEER", value);
    struct raw_peer peer;
    struct pollfd more = {.events = POLLIN};
    int descriptors[EXPECTED_MAX];

    raw_start(&peer);
    submit(classic, open_segment(classic, peer.control.name), OPCODE_READ, remote_memory, LENGTH, READS);
    for (unsigned i = 0; i < expected; i++) {
        descriptors[i] = raw_accept(&peer);
        raw_take_request(descriptors[i]);
    }
    more.fd = peer.listener;
    assert_int_equal(poll(&more, 1, 0), 0);
    te_classic_destroy(classic);
    for (unsigned i = 0; i < expected; i++)
        close(descriptors[i]);
    raw_stop(&peer);
}

static void large_work_takes_as_many_connections_as_allowed(void **state)
{
    (void)state;
    assert_connections("1", 1);
    assert_connections("3", 3);
    assert_connections(NULL, 4);
    assert_connections("16", 16);
}

/* A connection of the engine to the peer that has been used and is idle. */
static int idle_connection(struct te_classic *classic, struct raw_peer *peer)
{
    batch_id_t batch = submit(classic, open_segment(classic, peer->control.name), OPCODE_READ, remote_memory, 1, 1);
    int descriptor = raw_accept(peer);
    uint8_t answer[TE_TCP_STATUS_BYTES + 1] = {0};

    raw_take_request(descriptor);
    te_tcp_status_encode(answer, TE_TCP_STATUS_OK);
    assert_true(test_send(descriptor, answer, sizeof(answer)));
    assert_int_equal(te_classic_wait_batch(classic, batch, WAIT_NS), 0);
    return descriptor;
}

/* The one that is to be kept for longer was there first and is still there when the other has gone. */
static void an_idle_connection_is_closed_after_its_time(void **state)
{
    struct te_classic *patient = create(), *hasty = create_with("TE_TCP_IDLE_TIMEOUT_SEC", "1");
    struct raw_peer peer;
    int kept, ended;
    char byte;

    (void)state;
    raw_start(&peer);
    kept = idle_connection(patient, &peer);
    ended = idle_connection(hasty, &peer);
    assert_int_equal(recv(ended, &byte, 1, 0), 0);
    assert_int_equal(recv(kept, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    close(ended);
    close(kept);
    te_classic_destroy(patient);
    te_classic_destroy(hasty);
    raw_stop(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_without_a_port_leads_to_the_handshake_port),
        cmocka_unit_test(the_backlog_is_the_control_ports),
        cmocka_unit_test(a_connect_is_given_up_after_its_time),
        cmocka_unit_test(there_are_as_many_io_threads_as_asked_for),
        cmocka_unit_test(a_target_takes_pieces_of_the_slice_size),
        cmocka_unit_test(connections_within_a_host_have_the_congestion_control_asked_for),
        cmocka_unit_test(the_data_protocol_is_the_one_asked_for),
        cmocka_unit_test(large_work_takes_as_many_connections_as_allowed),
        cmocka_unit_test(an_idle_connection_is_closed_after_its_time),
    };

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
