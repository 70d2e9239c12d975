#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glib.h>

#include "core/segment_descriptor.h"

static void test_new_one_is_empty(void **state)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();

    (void)state;
    assert_string_equal(descriptor->name, "");
    assert_string_equal(descriptor->protocol, "");
    assert_string_equal(descriptor->tcp_data_host, "");
    assert_string_equal(descriptor->rdma_server_name, "");
    assert_string_equal(descriptor->timestamp, "");
    assert_int_equal(descriptor->tcp_data_port, 0);
    assert_int_equal(descriptor->tcp_protocol_version, 1);
    assert_null(descriptor->priority_matrix);
    assert_int_equal(descriptor->buffer_count, 0);
    assert_int_equal(descriptor->device_count, 0);
    te_segment_descriptor_unref(descriptor);
    te_segment_descriptor_unref(NULL);
}

static void test_all_of_it_is_freed(void **state)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();

    (void)state;
    descriptor->priority_matrix = g_strdup("{}");
    descriptor->buffers = g_new0(struct te_segment_buffer, 2);
    descriptor->buffer_count = 2;
    descriptor->buffers[0].name = g_strdup("cpu:0");
    descriptor->buffers[0].remote_keys = g_new0(uint64_t, 1);
    descriptor->buffers[0].local_keys = g_new0(uint64_t, 1);
    descriptor->devices = g_new0(struct te_segment_device, 1);
    descriptor->device_count = 1;
    descriptor->devices[0].name = g_strdup("mlx5_0");
    descriptor->devices[0].gid = g_strdup("fe:80");
    assert_ptr_equal(te_segment_descriptor_ref(descriptor), descriptor);
    te_segment_descriptor_unref(descriptor);
    assert_string_equal(descriptor->buffers[0].name, "cpu:0");
    te_segment_descriptor_unref(descriptor);
}

enum { THREADS = 4, ROUNDS = 20000 };

static gpointer use_it(gpointer data)
{
    struct te_segment_descriptor *descriptor = data;

    for (size_t i = 0; i < ROUNDS; i++) {
        te_segment_descriptor_ref(descriptor);
        te_segment_descriptor_unref(descriptor);
    }
    te_segment_descriptor_unref(descriptor);
    return NULL;
}

static void test_references_from_several_threads(void **state)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();
    GThread *threads[THREADS];

    (void)state;
    for (size_t i = 0; i < THREADS; i++)
        threads[i] = g_thread_new("user", use_it, te_segment_descriptor_ref(descriptor));
    for (size_t i = 0; i < THREADS; i++)
        g_thread_join(threads[i]);
    assert_int_equal(descriptor->references, 1);
    te_segment_descriptor_unref(descriptor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_one_is_empty),
        cmocka_unit_test(test_all_of_it_is_freed),
        cmocka_unit_test(test_references_from_several_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
