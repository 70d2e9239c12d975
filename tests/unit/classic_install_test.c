/* Installing transports: one that fails leaves the engine as it was (docs/decisions.md, 9.2 (5)). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The file itself, in place of the library's object: so the tests install transports that no build has. */
#include "classic/runtime.c"

/* ---- A transport and a store that fail on demand ---- */

struct te_transport {
    int unused;
};

static struct {
    te_status create_status;
    te_status publish_status;
    struct te_transport transport;
    int created, destroyed, published;
} fake;

static te_status fake_create(struct te_engine *engine, te_slice_finished_function finished,
                             struct te_transport **transport)
{
    (void)engine;
    (void)finished;
    if (fake.create_status != TE_OK)
        return te_fail(fake.create_status, "no such device");
    fake.created++;
    *transport = &fake.transport;
    return TE_OK;
}

static void fake_destroy(struct te_transport *transport)
{
    assert_ptr_equal(transport, &fake.transport);
    fake.destroyed++;
}

static void fake_describe(struct te_transport *transport, struct te_segment_descriptor *descriptor)
{
    assert_ptr_equal(transport, &fake.transport);
    g_free(descriptor->rdma_server_name);
    descriptor->rdma_server_name = g_strdup("fake");
}

static struct te_endpoint *fake_endpoint_open(struct te_transport *transport,
                                              const struct te_segment_descriptor *descriptor, const char *resolved_host)
{
    (void)transport;
    (void)descriptor;
    (void)resolved_host;
    return NULL;
}

static const struct te_transport_ops fake_transport_ops = {
    .name = "fake",
    .create = fake_create,
    .destroy = fake_destroy,
    .describe = fake_describe,
    .endpoint_open = fake_endpoint_open,
};

static te_status fake_publish(struct te_store *store)
{
    (void)store;
    fake.published++;
    return fake.publish_status == TE_OK ? TE_OK : te_fail(fake.publish_status, "the store is gone");
}

/* ---- The engine ---- */

struct fixture {
    struct te_classic *classic;
    struct te_store_ops store_ops;
    uint8_t memory[64], source[64];
};

static struct fixture *fixture_new(int auto_discover)
{
    struct fixture *fixture = test_calloc(1, sizeof(*fixture));

    memset(&fake, 0, sizeof(fake));
    fixture->classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, auto_discover);
    assert_non_null(fixture->classic);
    fixture->store_ops = *fixture->classic->engine->store->ops;
    fixture->store_ops.publish = fake_publish;
    fixture->classic->engine->store->ops = &fixture->store_ops;
    return fixture;
}

static void fixture_free(struct fixture *fixture)
{
    te_classic_destroy(fixture->classic);
    assert_int_equal(fake.destroyed, fake.created);
    test_free(fixture);
}

static te_status install_fake(struct fixture *fixture, struct installed **handle)
{
    te_status status;

    pthread_mutex_lock(&fixture->classic->install_lock);
    status = install(fixture->classic, &fake_transport_ops, handle);
    pthread_mutex_unlock(&fixture->classic->install_lock);
    return status;
}

static void assert_described(struct fixture *fixture, const char *protocol, bool by_fake)
{
    struct te_segment_descriptor *descriptor = te_local_segment_describe(fixture->classic->engine);

    assert_non_null(descriptor);
    assert_string_equal(descriptor->protocol, protocol);
    assert_true(descriptor->tcp_data_port > 0);
    assert_string_equal(descriptor->rdma_server_name, by_fake ? "fake" : "");
    te_segment_descriptor_unref(descriptor);
}

/* What only tcp can do here: a transfer through the own segment. */
static void assert_tcp_works(struct fixture *fixture)
{
    struct transfer_request request = {
        .opcode = OPCODE_WRITE,
        .source = fixture->source,
        .target_offset = (uintptr_t)fixture->memory,
        .length = sizeof(fixture->memory),
    };
    struct transfer_status status;
    batch_id_t batch = te_classic_allocate_batch_id(fixture->classic, 1);

    memset(fixture->source, 0x5a, sizeof(fixture->source));
    memset(fixture->memory, 0, sizeof(fixture->memory));
    assert_int_equal(
        te_classic_register_local_memory(fixture->classic, fixture->memory, sizeof(fixture->memory), NULL, 1), 0);
    assert_int_equal(te_classic_submit_transfer(fixture->classic, batch, &request, 1), 0);
    assert_int_equal(te_classic_wait_task(fixture->classic, batch, 0, 60 * TE_NS_PER_SECOND, &status), 0);
    assert_int_equal(status.status, STATUS_COMPLETED);
    assert_memory_equal(fixture->memory, fixture->source, sizeof(fixture->memory));
    assert_int_equal(te_classic_free_batch_id(fixture->classic, batch), 0);
}

/* ---- Tests ---- */

static void a_second_transport_is_described_with_the_first(void **state)
{
    struct fixture *fixture = fixture_new(1);
    struct installed *handle = NULL;

    (void)state;
    assert_int_equal(install_fake(fixture, &handle), TE_OK);
    assert_ptr_equal(handle->transport, &fake.transport);
    assert_int_equal(fake.published, 1);
    assert_described(fixture, "fake", true);
    fixture_free(fixture);
}

static void a_second_transport_that_is_not_created_leaves_the_first(void **state)
{
    struct fixture *fixture = fixture_new(1);
    struct installed *handle = NULL;

    (void)state;
    fake.create_status = TE_DEVICE_NOT_FOUND;
    assert_int_equal(install_fake(fixture, &handle), TE_DEVICE_NOT_FOUND);
    assert_null(handle);
    assert_int_equal(fake.published, 0);
    assert_described(fixture, "tcp", false);
    assert_tcp_works(fixture);
    fixture_free(fixture);
}

static void a_second_transport_that_is_not_published_leaves_the_first(void **state)
{
    struct fixture *fixture = fixture_new(1);
    struct installed *handle = NULL;

    (void)state;
    fake.publish_status = TE_METADATA;
    assert_int_equal(install_fake(fixture, &handle), TE_METADATA);
    assert_null(handle);
    assert_int_equal(fake.created, 1);
    assert_int_equal(fake.destroyed, 1);
    assert_int_equal(atomic_load(&fixture->classic->installed_count), 1);
    assert_described(fixture, "tcp", false);
    fake.publish_status = TE_OK;
    assert_tcp_works(fixture);
    fixture_free(fixture);
}

static void a_first_transport_that_is_not_published_is_not_installed(void **state)
{
    struct fixture *fixture = fixture_new(0);

    (void)state;
    fake.publish_status = TE_METADATA;
    assert_null(te_classic_install_transport(fixture->classic, "tcp", NULL));
    assert_string_equal(te_status_message(), "the store is gone");
    assert_int_equal(atomic_load(&fixture->classic->installed_count), 0);
    assert_false(te_local_segment_exists(fixture->classic->engine));
    fake.publish_status = TE_OK;
    assert_non_null(te_classic_install_transport(fixture->classic, "tcp", NULL));
    assert_int_equal(fake.published, 2);
    assert_tcp_works(fixture);
    fixture_free(fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_transport_is_described_with_the_first),
        cmocka_unit_test(a_second_transport_that_is_not_created_leaves_the_first),
        cmocka_unit_test(a_second_transport_that_is_not_published_leaves_the_first),
        cmocka_unit_test(a_first_transport_that_is_not_published_is_not_installed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
