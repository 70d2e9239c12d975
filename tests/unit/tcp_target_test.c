/* The TCP target against recorded exchanges of the real one, and against peers that misbehave. */
#include <arpa/inet.h>
#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
/* after the above */
#include <cmocka.h>

#include "core/clock.h"
#include "core/engine.h"
#include "core/net/address.h"
#include "core/segment_descriptor.h"
#include "tests/unit/socket_helpers.h"
#include "transports/tcp/tcp.h"
#include "wire/classic/tcp_header.h"

enum { BUFFER_BYTES = 1 << 20, ALIGNMENT = 1 << 24 };
#define RECORDED_BASE UINT64_C(0x200000000000)
#define WATCHDOG_NS   (20 * TE_NS_PER_SECOND)

struct fixture {
    struct te_engine engine;
    struct te_reactor *reactor;
    struct te_transport *transport;
    uint8_t *area;   /* twice ALIGNMENT */
    uint8_t *buffer; /* BUFFER_BYTES, aligned so that the recorded addresses keep their low bytes */
    uint16_t port;
};

static void finished(struct te_slice *slice, enum te_slice_result result, uint64_t bytes)
{
    (void)slice;
    (void)result;
    (void)bytes;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();

    fixture->engine.settings.minimum_port = 15000;
    fixture->engine.settings.maximum_port = 17000;
    fixture->engine.settings.tcp_connection_pool = true;
    fixture->engine.settings.tcp_lanes_per_peer = 4;
    fixture->engine.settings.tcp_slice_size_bytes = 1 << 20;
    fixture->engine.settings.tcp_silence_timeout_ms = 10000;
    fixture->engine.settings.handshake_connect_timeout_seconds = 5;
    fixture->engine.registry = te_registry_new();
    assert_int_equal(te_reactor_new("test", 0, &fixture->reactor), TE_OK);
    fixture->engine.reactors = &fixture->reactor;
    fixture->engine.reactor_count = 1;
    assert_int_equal(te_tcp_transport_ops.create(&fixture->engine, finished, &fixture->transport), TE_OK);
    te_tcp_transport_ops.describe(fixture->transport, descriptor);
    fixture->port = descriptor->tcp_data_port;
    te_segment_descriptor_unref(descriptor);

    fixture->area = mmap(NULL, 2 * ALIGNMENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(fixture->area, MAP_FAILED);
    fixture->buffer = (uint8_t *)(((uintptr_t)fixture->area + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
    for (size_t i = 0; i < BUFFER_BYTES; i++)
        fixture->buffer[i] = (uint8_t)(7 * i + 3 + (i >> 8));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    te_tcp_transport_ops.destroy(fixture->transport);
    te_reactor_free(fixture->reactor);
    te_registry_free(fixture->engine.registry);
    munmap(fixture->area, 2 * ALIGNMENT);
    free(fixture);
    return 0;
}

static void add_region(struct fixture *fixture, void *address, size_t length, enum te_permission permission)
{
    struct te_region region = {
        .address = (uintptr_t)address, .length = length, .permission = permission, .location = "*"};

    assert_int_equal(te_registry_add(fixture->engine.registry, &region, 1), TE_OK);
}

static void remove_region(struct fixture *fixture, void *address)
{
    uint64_t start = (uintptr_t)address;

    assert_int_equal(te_registry_remove(fixture->engine.registry, &start, 1, NULL), TE_OK);
}

static int connect_to(struct fixture *fixture)
{
    int descriptor = test_connect(fixture->port);

    assert_true(descriptor >= 0);
    return descriptor;
}

static void expect_bytes(int descriptor, const void *expected, size_t size)
{
    uint8_t *bytes = malloc(size);

    assert_true(test_receive(descriptor, bytes, size));
    assert_memory_equal(bytes, expected, size);
    free(bytes);
}

/* The peer closes: an end of stream or a reset. */
static void expect_end(int descriptor)
{
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    uint8_t byte;

    assert_int_equal(poll(&entry, 1, (int)(WATCHDOG_NS / TE_NS_PER_MS)), 1);
    assert_true(recv(descriptor, &byte, 1, 0) <= 0);
}

static void send_request(int descriptor, bool version_2, bool write, const void *address, uint64_t length)
{
    struct te_tcp_request request = {
        .length = length, .address = (uintptr_t)address, .write = write, .version_2 = version_2};
    uint8_t header[TE_TCP_REQUEST_BYTES] = {0};

    te_tcp_request_encode(header, &request);
    assert_true(test_send(descriptor, header, sizeof(header)));
}

static void expect_status(int descriptor, uint32_t code)
{
    uint8_t frame[TE_TCP_STATUS_BYTES];

    te_tcp_status_encode(frame, code);
    expect_bytes(descriptor, frame, sizeof(frame));
}

/* Recorded exchanges */

static size_t from_hex(const char *hex, uint8_t *bytes, size_t capacity)
{
    size_t size = strlen(hex) / 2;

    assert_true(size <= capacity);
    for (size_t i = 0; i < size; i++) {
        unsigned byte;

        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t)byte;
    }
    return size;
}

/* Requests name addresses of the recording; here the memory lies elsewhere. */
static void move_addresses(uint8_t *bytes, size_t size, const uint8_t *buffer)
{
    static const uint8_t recorded[5] = {0x00, 0x00, 0x20, 0x00, 0x00};

    for (size_t i = 0; i + 8 <= size; i++) {
        uint64_t low = bytes[i] | (uint64_t)bytes[i + 1] << 8 | (uint64_t)bytes[i + 2] << 16;

        if (memcmp(bytes + i + 3, recorded, sizeof(recorded)) == 0 && low < ALIGNMENT) {
            te_tcp_store_(bytes + i, (uintptr_t)buffer + low);
            i += 7;
        }
    }
}

static void play(struct fixture *fixture, const char *name)
{
    char *path = g_strdup_printf("%s/%s.json", TE_TEST_VECTORS, name);
    struct json_object *vector = json_object_from_file(path);
    struct json_object *sequence;
    uint8_t bytes[4096];
    int descriptor = connect_to(fixture);

    print_message("%s\n", name);
    assert_non_null(vector);
    assert_true(json_object_object_get_ex(vector, "sequence", &sequence));
    for (size_t i = 0; i < json_object_array_length(sequence); i++) {
        struct json_object *step = json_object_array_get_idx(sequence, i);
        struct json_object *hex, *direction;
        bool ours =
            json_object_object_get_ex(step, "dir", &direction) && strcmp(json_object_get_string(direction), "c2s") == 0;

        if (json_object_object_get_ex(step, "hex", &hex)) {
            size_t size = from_hex(json_object_get_string(hex), bytes, sizeof(bytes));

            if (ours) {
                move_addresses(bytes, size, fixture->buffer);
                assert_true(test_send(descriptor, bytes, size));
            } else {
                expect_bytes(descriptor, bytes, size);
            }
        } else if (ours) {
            shutdown(descriptor, SHUT_WR);
        } else {
            expect_end(descriptor);
        }
    }
    close(descriptor);
    json_object_put(vector);
    g_free(path);
}

static void test_recorded_exchanges(void **state)
{
    static const char *const names[] = {
        "classic-data-half-close-after-request",
        "classic-data-mixed-pipelined",
        "classic-data-opcode-0xff",
        "classic-data-opcode-2",
        "classic-data-padding-ignored",
        "classic-data-v1-write-read",
        "classic-data-v2-last-bytes",
        "classic-data-v2-write-read",
        "classic-err-data-body-cut",
        "classic-err-data-header-cut",
        "classic-err-data-v1-read-zero",
        "classic-err-data-v1-unregistered",
        "classic-err-data-v2-past-end",
        "classic-err-data-v2-read-zero",
        "classic-err-data-v2-unregistered",
        "classic-err-data-v2-wrap",
        "classic-err-data-v2-write-unregistered",
        "classic-err-data-v2-write-zero",
    };
    struct fixture *fixture = *state;

    add_region(fixture, fixture->buffer, BUFFER_BYTES, TE_GLOBAL_READ_WRITE);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        play(fixture, names[i]);
}

static void test_recorded_range_over_two_regions(void **state)
{
    struct fixture *fixture = *state;

    for (size_t offset = 0; offset < BUFFER_BYTES; offset += 4096)
        add_region(fixture, fixture->buffer + offset, 4096, TE_GLOBAL_READ_WRITE);
    play(fixture, "classic-err-data-v2-two-buffers");
}

/* Permissions and registration */

static void test_permissions_are_kept(void **state)
{
    struct fixture *fixture = *state;
    int descriptor;

    add_region(fixture, fixture->buffer, 4096, TE_LOCAL_READ_WRITE);
    add_region(fixture, fixture->buffer + 4096, 4096, TE_GLOBAL_READ_ONLY);
    for (int write = 0; write < 2; write++) {
        descriptor = connect_to(fixture);
        send_request(descriptor, true, write, fixture->buffer, 8);
        expect_status(descriptor, TE_TCP_STATUS_REJECTED);
        expect_end(descriptor);
        close(descriptor);
    }
    descriptor = connect_to(fixture);
    send_request(descriptor, true, false, fixture->buffer + 4096, 8);
    expect_status(descriptor, TE_TCP_STATUS_OK);
    expect_bytes(descriptor, fixture->buffer + 4096, 8);
    send_request(descriptor, true, true, fixture->buffer + 4096, 8);
    expect_status(descriptor, TE_TCP_STATUS_REJECTED);
    close(descriptor);
}

static void test_nothing_lands_after_unregistration(void **state)
{
    struct fixture *fixture = *state;
    int descriptor = connect_to(fixture);
    uint8_t *copy = malloc(BUFFER_BYTES);
    uint8_t *body = malloc(BUFFER_BYTES);

    memset(body, 0xa5, BUFFER_BYTES);
    add_region(fixture, fixture->buffer, BUFFER_BYTES, TE_GLOBAL_READ_WRITE);
    send_request(descriptor, true, true, fixture->buffer, BUFFER_BYTES);
    assert_true(test_send(descriptor, body, BUFFER_BYTES / 2));
    remove_region(fixture, fixture->buffer);
    memcpy(copy, fixture->buffer, BUFFER_BYTES);
    test_send(descriptor, body, BUFFER_BYTES / 2);
    expect_status(descriptor, TE_TCP_STATUS_REJECTED);
    expect_end(descriptor);
    assert_memory_equal(copy, fixture->buffer, BUFFER_BYTES);
    free(body);
    free(copy);
    close(descriptor);
}

static void test_unmapped_memory_is_an_error_of_the_request(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *hole = fixture->buffer + BUFFER_BYTES;
    uint8_t bytes[64] = {0};
    int descriptor;

    add_region(fixture, hole, 8192, TE_GLOBAL_READ_WRITE);
    assert_int_equal(mprotect(hole, 8192, PROT_NONE), 0); /* unmapped, it could become another thread's memory */
    descriptor = connect_to(fixture);
    send_request(descriptor, true, true, hole, sizeof(bytes));
    assert_true(test_send(descriptor, bytes, sizeof(bytes)));
    expect_status(descriptor, TE_TCP_STATUS_REJECTED);
    expect_end(descriptor);
    close(descriptor);
    /* Request and body in one piece take the other way into memory. */
    descriptor = connect_to(fixture);
    uint8_t both[TE_TCP_REQUEST_BYTES + 64] = {0};
    struct te_tcp_request request = {.length = 64, .address = (uintptr_t)hole, .write = true, .version_2 = true};

    te_tcp_request_encode(both, &request);
    assert_true(test_send(descriptor, both, sizeof(both)));
    expect_status(descriptor, TE_TCP_STATUS_REJECTED);
    close(descriptor);
    descriptor = connect_to(fixture);
    send_request(descriptor, true, false, hole, 64);
    /* A promise, perhaps, and the end. */
    if (test_receive(descriptor, bytes, TE_TCP_STATUS_BYTES))
        expect_end(descriptor);
    close(descriptor);
}

/* A read, and a write whose body comes in the same packet: that takes its own way into memory. */
static void send_read_and_write(int descriptor, const void *read, const void *written, const char body[4])
{
    struct te_tcp_request request = {.length = 4, .address = (uintptr_t)read, .version_2 = true};
    uint8_t bytes[2 * TE_TCP_REQUEST_BYTES + 4] = {0};

    te_tcp_request_encode(bytes, &request);
    request.write = true;
    request.address = (uintptr_t)written;
    te_tcp_request_encode(bytes + TE_TCP_REQUEST_BYTES, &request);
    memcpy(bytes + 2 * TE_TCP_REQUEST_BYTES, body, 4);
    assert_true(test_send(descriptor, bytes, sizeof(bytes)));
    expect_status(descriptor, TE_TCP_STATUS_OK);
    expect_bytes(descriptor, read, 4);
}

static void test_a_body_behind_a_read_needs_no_descriptor(void **state)
{
    struct fixture *fixture = *state;
    int descriptor = connect_to(fixture);
    struct rlimit before, none;
    int next;

    add_region(fixture, fixture->buffer, BUFFER_BYTES, TE_GLOBAL_READ_WRITE);
    /* Once before, so that the connection is accepted. */
    send_read_and_write(descriptor, fixture->buffer, fixture->buffer + 4096, "one");
    expect_status(descriptor, TE_TCP_STATUS_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    next = dup(descriptor);
    close(next);
    none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(dup(descriptor), -1);
    send_read_and_write(descriptor, fixture->buffer, fixture->buffer + 4096, "two");
    expect_status(descriptor, TE_TCP_STATUS_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_memory_equal(fixture->buffer + 4096, "two", 4);
    close(descriptor);
}

static void test_what_could_not_be_stored_goes_nowhere_else(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *hole = fixture->buffer + BUFFER_BYTES;
    int descriptor = connect_to(fixture);

    add_region(fixture, fixture->buffer, BUFFER_BYTES, TE_GLOBAL_READ_WRITE);
    add_region(fixture, hole, 8192, TE_GLOBAL_READ_WRITE);
    assert_int_equal(mprotect(hole, 8192, PROT_NONE), 0);
    send_read_and_write(descriptor, fixture->buffer, hole, "bad");
    expect_status(descriptor, TE_TCP_STATUS_REJECTED);
    close(descriptor);
    descriptor = connect_to(fixture);
    send_read_and_write(descriptor, fixture->buffer, fixture->buffer + 4096, "yes");
    expect_status(descriptor, TE_TCP_STATUS_OK);
    assert_memory_equal(fixture->buffer + 4096, "yes", 4);
    close(descriptor);
}

/* Peers that misbehave */

static void test_many_requests_in_pieces(void **state)
{
    enum { REQUESTS = 500 };
    struct fixture *fixture = *state;
    int descriptor = connect_to(fixture);
    uint8_t *stream = calloc(REQUESTS, TE_TCP_REQUEST_BYTES + 16);
    size_t size = 0;

    add_region(fixture, fixture->buffer, BUFFER_BYTES, TE_GLOBAL_READ_WRITE);
    for (int i = 0; i < REQUESTS; i++) {
        struct te_tcp_request request = {.length = 16,
                                         .address = (uintptr_t)fixture->buffer + 64 * (size_t)i,
                                         .write = i % 3 == 0,
                                         .version_2 = true};

        te_tcp_request_encode(stream + size, &request);
        size += TE_TCP_REQUEST_BYTES;
        if (request.write) {
            memset(stream + size, i, 16);
            size += 16;
        }
    }
    for (size_t sent = 0, step = 1; sent < size; sent += step, step = step * 7 % 301 + 1) {
        step = MIN(step, size - sent);
        assert_true(test_send(descriptor, stream + sent, step));
    }
    for (int i = 0; i < REQUESTS; i++) {
        uint8_t written[16];

        memset(written, i, sizeof(written));
        expect_status(descriptor, TE_TCP_STATUS_OK);
        if (i % 3 != 0)
            expect_bytes(descriptor, fixture->buffer + 64 * i, 16);
        else
            assert_memory_equal(fixture->buffer + 64 * i, written, sizeof(written));
    }
    free(stream);
    close(descriptor);
}

/* A read and then a write of the same memory, sent together: the read gets what was there before. */
static void test_a_write_does_not_overtake_a_read(void **state)
{
    struct fixture *fixture = *state;
    int descriptor = connect_to(fixture);
    uint8_t *before = malloc(BUFFER_BYTES);
    uint8_t *stream = calloc(1, 3 * TE_TCP_REQUEST_BYTES + BUFFER_BYTES);
    struct te_tcp_request request = {.length = BUFFER_BYTES, .address = (uintptr_t)fixture->buffer, .version_2 = true};

    add_region(fixture, fixture->buffer, BUFFER_BYTES, TE_GLOBAL_READ_WRITE);
    memcpy(before, fixture->buffer, BUFFER_BYTES);
    te_tcp_request_encode(stream, &request);
    request.write = true;
    te_tcp_request_encode(stream + TE_TCP_REQUEST_BYTES, &request);
    memset(stream + 2 * TE_TCP_REQUEST_BYTES, 0xee, BUFFER_BYTES);
    /* The start of the body comes along with both requests, the rest behind it. */
    assert_true(test_send(descriptor, stream, 2 * TE_TCP_REQUEST_BYTES + 500));
    expect_status(descriptor, TE_TCP_STATUS_OK);
    expect_bytes(descriptor, before, BUFFER_BYTES);
    assert_true(test_send(descriptor, stream + 2 * TE_TCP_REQUEST_BYTES + 500, BUFFER_BYTES - 500));
    expect_status(descriptor, TE_TCP_STATUS_OK);
    assert_memory_equal(fixture->buffer, stream + 2 * TE_TCP_REQUEST_BYTES, BUFFER_BYTES);
    free(stream);
    free(before);
    close(descriptor);
}

static void test_reader_that_does_not_read_disturbs_nobody(void **state)
{
    struct fixture *fixture = *state;
    int lazy = connect_to(fixture);
    int other;

    add_region(fixture, fixture->buffer, BUFFER_BYTES, TE_GLOBAL_READ_WRITE);
    for (int i = 0; i < 300; i++)
        send_request(lazy, true, false, fixture->buffer, BUFFER_BYTES);
    other = connect_to(fixture);
    send_request(other, true, false, fixture->buffer, 4096);
    expect_status(other, TE_TCP_STATUS_OK);
    expect_bytes(other, fixture->buffer, 4096);
    close(other);
    /* And it gets everything once it does. */
    for (int i = 0; i < 300; i++) {
        expect_status(lazy, TE_TCP_STATUS_OK);
        expect_bytes(lazy, fixture->buffer, BUFFER_BYTES);
    }
    close(lazy);
}

static void test_rejection_is_readable_behind_a_large_body(void **state)
{
    struct fixture *fixture = *state;
    int descriptor = connect_to(fixture);
    uint8_t *body = calloc(1, 4 * BUFFER_BYTES);

    send_request(descriptor, true, true, fixture->buffer, 4 * BUFFER_BYTES);
    assert_true(test_send(descriptor, body, 4 * BUFFER_BYTES));
    expect_status(descriptor, TE_TCP_STATUS_REJECTED);
    expect_end(descriptor);
    free(body);
    close(descriptor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_recorded_exchanges, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_recorded_range_over_two_regions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_permissions_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_lands_after_unregistration, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unmapped_memory_is_an_error_of_the_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_body_behind_a_read_needs_no_descriptor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_could_not_be_stored_goes_nowhere_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_requests_in_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_write_does_not_overtake_a_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reader_that_does_not_read_disturbs_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rejection_is_readable_behind_a_large_body, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
