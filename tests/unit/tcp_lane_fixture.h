/* What the tests of the TCP initiator share: an engine's parts around one transport, transfers, and the scripted peer,
 * a listening socket whose connections a test serves byte by byte. */
#ifndef TE_TESTS_UNIT_TCP_LANE_FIXTURE_H
#define TE_TESTS_UNIT_TCP_LANE_FIXTURE_H

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
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

enum { AREA_BYTES = 8 << 20 };
#define WATCHDOG_NS (30 * TE_NS_PER_SECOND)

struct fixture {
    struct te_engine engine;
    struct te_reactor *reactor;
    struct te_transport *transport;
    struct te_endpoint *endpoint;
    uint8_t *local, *remote; /* AREA_BYTES each; remote is registered */
    int listening;           /* of the scripted peer */
    uint16_t listening_port;
};

/* How the transport ended a slice, kept beside it for the test. */
struct outcome {
    enum te_slice_result result;
    bool ended;
};

static inline void finished(struct te_slice *slice, enum te_slice_result result, uint64_t bytes)
{
    struct outcome *outcome = slice->runtime_data;

    assert_false(outcome->ended);
    outcome->ended = true;
    outcome->result = result;
    te_slice_end(slice,
                 result == TE_RESULT_SUCCEEDED  ? TE_SLICE_SUCCEEDED
                 : result == TE_RESULT_CANCELED ? TE_SLICE_CANCELED
                                                : TE_SLICE_FAILED,
                 bytes);
}

static inline int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct te_settings *settings = &fixture->engine.settings;
    struct te_region region = {.length = AREA_BYTES, .permission = TE_GLOBAL_READ_WRITE, .location = "*"};

    settings->minimum_port = 15000;
    settings->maximum_port = 17000;
    settings->tcp_connection_pool = true;
    settings->tcp_lanes_per_peer = 4;
    settings->tcp_slice_size_bytes = 1 << 20;
    settings->tcp_silence_timeout_ms = 500;
    settings->tcp_fence_timeout_ms = 200;
    settings->tcp_idle_timeout_seconds = 300;
    settings->handshake_connect_timeout_seconds = 5;
    fixture->local = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fixture->remote = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < AREA_BYTES; i++) {
        fixture->local[i] = (uint8_t)(i * 31 + (i >> 9));
        fixture->remote[i] = (uint8_t)(i * 17 + (i >> 11) + 5);
    }
    fixture->engine.registry = te_registry_new();
    region.address = (uintptr_t)fixture->remote;
    assert_int_equal(te_registry_add(fixture->engine.registry, &region, 1), TE_OK);
    fixture->engine.batches = te_batch_table_new(&te_tcp_transport_ops.drive);
    assert_int_equal(te_reactor_new("test", 50000, &fixture->reactor), TE_OK);
    fixture->engine.reactors = &fixture->reactor;
    fixture->engine.reactor_count = 1;
    assert_int_equal(te_listen_any_port(15000, 17000, 64, &fixture->listening, &fixture->listening_port), TE_OK);
    *state = fixture;
    return 0;
}

static inline void start_transport(struct fixture *fixture)
{
    assert_int_equal(te_tcp_transport_ops.create(&fixture->engine, finished, &fixture->transport), TE_OK);
}

static inline void stop_transport(struct fixture *fixture)
{
    if (fixture->transport == NULL)
        return;
    if (fixture->endpoint != NULL)
        te_tcp_transport_ops.endpoint_close(fixture->endpoint);
    te_tcp_transport_ops.destroy(fixture->transport);
    fixture->transport = NULL;
    fixture->endpoint = NULL;
}

static inline int tear_down(void **state)
{
    struct fixture *fixture = *state;

    stop_transport(fixture);
    close(fixture->listening);
    te_reactor_free(fixture->reactor);
    te_batch_table_free(fixture->engine.batches);
    te_registry_free(fixture->engine.registry);
    munmap(fixture->local, AREA_BYTES);
    munmap(fixture->remote, AREA_BYTES);
    free(fixture);
    return 0;
}

/* Opens the endpoint at a port; port 0: this process's own target. */
static inline void open_endpoint(struct fixture *fixture, uint16_t port, int version)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();

    if (fixture->transport == NULL)
        start_transport(fixture);
    te_tcp_transport_ops.describe(fixture->transport, descriptor);
    if (port != 0)
        descriptor->tcp_data_port = port;
    descriptor->tcp_protocol_version = version;
    fixture->endpoint = te_tcp_transport_ops.endpoint_open(fixture->transport, descriptor, "127.0.0.1");
    assert_non_null(fixture->endpoint);
    assert_true(te_tcp_transport_ops.endpoint_matches(fixture->endpoint, descriptor, "127.0.0.1"));
    te_segment_descriptor_unref(descriptor);
}

struct transfer {
    enum te_opcode opcode;
    const void *local, *remote;
    uint64_t length;
    int64_t deadline_ns;
    struct outcome outcome;
};

static inline uint64_t submit_with_priority(struct fixture *fixture, struct transfer *transfers, size_t count,
                                            enum te_priority priority)
{
    struct te_reservation reservation;
    struct te_slice *slices = NULL, **tail = &slices;
    uint64_t id;

    assert_int_equal(te_batch_allocate(fixture->engine.batches, count, &id), TE_OK);
    assert_int_equal(te_batch_reserve(fixture->engine.batches, id, count, &reservation), TE_OK);
    for (size_t i = 0; i < count; i++) {
        struct te_task *task = te_reservation_task(&reservation, i);
        struct te_slice *slice = &task->first_slice;

        task->length = transfers[i].length;
        task->slice_count = 1;
        task->slices = slice;
        slice->task = task;
        slice->local_address = (uintptr_t)transfers[i].local;
        slice->remote_address = (uintptr_t)transfers[i].remote;
        slice->length = transfers[i].length;
        slice->opcode = transfers[i].opcode;
        slice->priority = priority;
        slice->deadline_ns = transfers[i].deadline_ns;
        slice->runtime_data = &transfers[i].outcome;
        slice->next = NULL;
        *tail = slice;
        tail = &slice->next;
    }
    te_batch_publish(&reservation, NULL, NULL);
    te_tcp_transport_ops.submit(fixture->endpoint, slices);
    return id;
}

static inline uint64_t submit(struct fixture *fixture, struct transfer *transfers, size_t count)
{
    return submit_with_priority(fixture, transfers, count, TE_TASK_PRIORITY_MEDIUM);
}

static inline void wait_for(struct fixture *fixture, uint64_t id)
{
    assert_int_equal(te_batch_wait(fixture->engine.batches, id, SIZE_MAX, WATCHDOG_NS), TE_OK);
}

static inline void cancel(struct fixture *fixture, uint64_t id, size_t task)
{
    assert_int_equal(te_task_request_cancel(fixture->engine.batches, id, task, NULL, NULL), TE_OK);
    te_tcp_transport_ops.cancel(fixture->transport);
}

static inline enum te_slice_result run_one(struct fixture *fixture, enum te_opcode opcode, const void *local,
                                           const void *remote, uint64_t length)
{
    struct transfer transfer = {.opcode = opcode, .local = local, .remote = remote, .length = length};
    uint64_t id = submit(fixture, &transfer, 1);

    wait_for(fixture, id);
    assert_int_equal(te_batch_release(fixture->engine.batches, id), TE_OK);
    return transfer.outcome.result;
}

/* The scripted peer */

static inline int accept_peer(struct fixture *fixture)
{
    struct pollfd entry = {.fd = fixture->listening, .events = POLLIN};
    int descriptor;

    assert_int_equal(poll(&entry, 1, (int)(WATCHDOG_NS / TE_NS_PER_MS)), 1);
    descriptor = accept(fixture->listening, NULL, NULL);
    assert_true(descriptor >= 0);
    test_socket_patience(descriptor);
    return descriptor;
}

static inline struct te_tcp_request take_request(int descriptor)
{
    uint8_t bytes[TE_TCP_REQUEST_BYTES];

    assert_true(test_receive(descriptor, bytes, sizeof(bytes)));
    return te_tcp_request_decode(bytes);
}

static inline void send_bytes(int descriptor, const void *bytes, size_t size)
{
    assert_true(test_send(descriptor, bytes, size));
}

static inline void send_status(int descriptor, uint32_t code)
{
    uint8_t frame[TE_TCP_STATUS_BYTES];

    te_tcp_status_encode(frame, code);
    send_bytes(descriptor, frame, sizeof(frame));
}

/* Reads to the end of what the initiator sends; false if it was a reset. */
static inline bool read_to_end(int descriptor)
{
    static uint8_t bytes[1 << 16];
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};

    for (;;) {
        ssize_t received;

        assert_int_equal(poll(&entry, 1, (int)(WATCHDOG_NS / TE_NS_PER_MS)), 1);
        received = recv(descriptor, bytes, sizeof(bytes), 0);
        if (received <= 0)
            return received == 0;
    }
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
