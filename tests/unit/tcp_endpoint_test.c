/* Endpoints that nobody uses any more, from inside: when they may serve another address. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/segment_descriptor.h"
#include "tests/unit/socket_helpers.h"
#include "transports/tcp/tcp_private.h"

#define PATIENCE_NS (TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND)

static uint8_t local[4096], remote[4096];

struct fixture {
    struct te_engine engine;
    struct te_reactor *reactor;
    struct te_transport *transport;
};

static void finished(struct te_slice *slice, enum te_slice_result result, uint64_t bytes)
{
    te_slice_end(slice, result == TE_RESULT_SUCCEEDED ? TE_SLICE_SUCCEEDED : TE_SLICE_FAILED, bytes);
}

static int set_up(void **state)
{
    struct fixture *fixture = test_calloc(1, sizeof(*fixture));
    struct te_settings *settings = &fixture->engine.settings;
    struct te_region region = {
        .address = (uintptr_t)remote, .length = sizeof(remote), .permission = TE_GLOBAL_READ_WRITE, .location = "*"};

    settings->minimum_port = 15000;
    settings->maximum_port = 17000;
    settings->tcp_connection_pool = true;
    settings->tcp_lanes_per_peer = 1;
    settings->tcp_slice_size_bytes = 1 << 20;
    settings->tcp_silence_timeout_ms = 30000;
    settings->tcp_fence_timeout_ms = 200;
    settings->tcp_idle_timeout_seconds = 300;
    settings->handshake_connect_timeout_seconds = 5;
    fixture->engine.registry = te_registry_new();
    assert_int_equal(te_registry_add(fixture->engine.registry, &region, 1), TE_OK);
    fixture->engine.batches = te_batch_table_new(&te_tcp_transport_ops.drive);
    assert_int_equal(te_reactor_new("test", 50000, &fixture->reactor), TE_OK);
    fixture->engine.reactors = &fixture->reactor;
    fixture->engine.reactor_count = 1;
    assert_int_equal(te_tcp_transport_ops.create(&fixture->engine, finished, &fixture->transport), TE_OK);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    te_tcp_transport_ops.destroy(fixture->transport);
    te_reactor_free(fixture->reactor);
    te_batch_table_free(fixture->engine.batches);
    te_registry_free(fixture->engine.registry);
    test_free(fixture);
    return 0;
}

/* Of this process's own target, which is reached by every address of the loopback network. */
static struct te_endpoint *open_at(struct fixture *fixture, const char *host)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();
    struct te_endpoint *endpoint;

    te_tcp_transport_ops.describe(fixture->transport, descriptor);
    endpoint = te_tcp_transport_ops.endpoint_open(fixture->transport, descriptor, host);
    assert_non_null(endpoint);
    te_segment_descriptor_unref(descriptor);
    return endpoint;
}

static void assert_moves(struct fixture *fixture, struct te_endpoint *endpoint)
{
    struct te_reservation reservation;
    struct te_task *task;
    enum te_task_state task_state;
    uint64_t id, bytes;

    assert_int_equal(te_batch_allocate(fixture->engine.batches, 1, &id), TE_OK);
    assert_int_equal(te_batch_reserve(fixture->engine.batches, id, 1, &reservation), TE_OK);
    task = te_reservation_task(&reservation, 0);
    task->length = sizeof(local);
    task->first_slice.local_address = (uintptr_t)local;
    task->first_slice.remote_address = (uintptr_t)remote;
    task->first_slice.length = sizeof(local);
    task->first_slice.opcode = TE_OPCODE_WRITE;
    task->first_slice.priority = TE_TASK_PRIORITY_MEDIUM;
    te_batch_publish(&reservation, NULL, NULL);
    te_tcp_transport_ops.submit(endpoint, &task->first_slice);
    assert_int_equal(te_batch_wait(fixture->engine.batches, id, SIZE_MAX, PATIENCE_NS), TE_OK);
    assert_int_equal(te_task_status(fixture->engine.batches, id, 0, &task_state, &bytes), TE_OK);
    assert_int_equal(task_state, TE_TASK_COMPLETED);
    assert_int_equal(te_batch_release(fixture->engine.batches, id), TE_OK);
}

/* As a thread that polls a task of long ago, or has just reported the last end. */
static void own(struct lane *lane)
{
    while (atomic_exchange(&lane->owned, 1) != 0)
        sched_yield();
}

static void an_unused_endpoint_serves_another_address(void **state)
{
    struct fixture *fixture = *state;
    struct te_endpoint *first = open_at(fixture, "127.0.0.1"), *second;

    assert_moves(fixture, first);
    transport_tidy_endpoints(fixture->transport);
    second = open_at(fixture, "127.0.0.2");
    assert_ptr_not_equal(second, first);
    assert_ptr_equal(open_at(fixture, "127.0.0.1"), first);
    te_tcp_transport_ops.endpoint_close(first);
    te_tcp_transport_ops.endpoint_close(first);
    /* The reactor may be at the lane for a moment. */
    do {
        transport_tidy_endpoints(fixture->transport);
    } while (g_queue_is_empty(&fixture->transport->free_endpoints));
    assert_int_equal(first->lanes[0]->state, LANE_CLOSED);
    assert_ptr_equal(open_at(fixture, "127.0.0.3"), first);
    assert_moves(fixture, first);
    te_tcp_transport_ops.endpoint_close(first);
    te_tcp_transport_ops.endpoint_close(second);
}

static void a_lane_that_is_owned_keeps_its_endpoint_from_others(void **state)
{
    struct fixture *fixture = *state;
    struct te_endpoint *first = open_at(fixture, "127.0.0.1"), *same, *other;
    struct lane *lane;

    assert_moves(fixture, first);
    te_tcp_transport_ops.endpoint_close(first);
    lane = first->lanes[0];
    own(lane);
    transport_tidy_endpoints(fixture->transport);
    transport_tidy_endpoints(fixture->transport);
    same = open_at(fixture, "127.0.0.1");
    other = open_at(fixture, "127.0.0.2");
    assert_ptr_not_equal(same, first);
    assert_ptr_not_equal(other, first);
    assert_moves(fixture, same);
    assert_moves(fixture, other);

    atomic_store(&lane->owned, 0);
    do {
        transport_tidy_endpoints(fixture->transport);
    } while (g_queue_is_empty(&fixture->transport->free_endpoints));
    assert_int_equal(lane->state, LANE_CLOSED);
    te_tcp_transport_ops.endpoint_close(same);
    te_tcp_transport_ops.endpoint_close(other);
    other = open_at(fixture, "127.0.0.3");
    assert_ptr_equal(other, first);
    assert_moves(fixture, other);
    te_tcp_transport_ops.endpoint_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_unused_endpoint_serves_another_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lane_that_is_owned_keeps_its_endpoint_from_others, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
