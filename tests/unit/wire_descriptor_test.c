/* The segment descriptor as JSON, classic specification 2.5 and 6.1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/classic/descriptor.h"
#include "wire/classic/json_text.h"

/* GLib's allocators that may fail, as the library sees them: the one numbered fail_at fails. */
static long allocations, fail_at = -1;
static size_t largest_bytes;

static void *allocate(size_t bytes)
{
    largest_bytes = MAX(largest_bytes, bytes);
    return allocations++ == fail_at ? NULL : calloc(1, bytes > 0 ? bytes : 1);
}

gpointer g_try_malloc(gsize bytes)
{
    return allocate(bytes);
}

gpointer g_try_malloc_n(gsize count, gsize bytes)
{
    return allocate(count * bytes);
}

gpointer g_try_malloc0_n(gsize count, gsize bytes)
{
    return allocate(count * bytes);
}

/* As the released wheel writes it. */
#define WHEEL                                                                                                          \
    "{\"buffers\":[{\"addr\":139714260475920,\"length\":1048576,\"name\":\"127.0.0.1:15638\"}],"                       \
    "\"name\":\"127.0.0.1:15638\",\"protocol\":\"tcp\",\"rdma_server_name\":\"\",\"tcp_data_host\":\"127.0.0.1\","     \
    "\"tcp_data_port\":15525,\"tcp_proto_version\":2,\"timestamp\":\"2026-11-30 00:45:09.093490\"}"
#define RDMA(protocol)                                                                                                 \
    "{\"buffers\":[{\"addr\":139637976727552,\"length\":1048576,\"lkey\":[257,258],\"name\":\"cpu:0\","                \
    "\"rkey\":[513,18446744073709551615]},{\"addr\":4096,\"length\":1,\"lkey\":[],\"name\":\"cpu:1\",\"rkey\":[]}],"   \
    "\"devices\":[{\"gid\":\"fe:80:00:00:00:00:00:00:0a:0b:0c:ff:fe:0d:0e:0f\",\"lid\":7,\"name\":\"mlx5_0\"},"        \
    "{\"gid\":\"fe:80\",\"lid\":65535,\"name\":\"mlx5_1\"}],\"name\":\"hostA:15001\",\"priority_matrix\":"             \
    "{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]],\"cpu:1\":[[],[]]},\"protocol\":\"" protocol "\","                         \
    "\"rdma_server_name\":\"192.168.1.1:15001\",\"tcp_data_port\":0,\"tcp_proto_version\":1,\"timestamp\":\"t\"}"

static te_status read_text(const char *text, struct te_segment_descriptor **descriptor)
{
    return te_descriptor_read(text, strlen(text), descriptor);
}

static struct te_segment_descriptor *must_read(const char *text)
{
    struct te_segment_descriptor *descriptor;

    if (read_text(text, &descriptor) != TE_OK) {
        print_error("refused: %s\n", text);
        fail();
    }
    return descriptor;
}

static char *write_again(const struct te_segment_descriptor *descriptor)
{
    GString *text = g_string_new(NULL);

    assert_int_equal(te_descriptor_write(text, descriptor, descriptor->timestamp), TE_OK);
    return g_string_free(text, FALSE);
}

static void test_round_trips(void **state)
{
    static const char *const texts[] = {WHEEL, RDMA("rdma"), RDMA("efa"), RDMA("cxi"), RDMA("barex")};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        struct te_segment_descriptor *descriptor = must_read(texts[i]);
        char *again = write_again(descriptor);

        assert_string_equal(again, texts[i]);
        g_free(again);
        te_segment_descriptor_unref(descriptor);
    }
}

static void test_what_a_tcp_descriptor_says(void **state)
{
    struct te_segment_descriptor *descriptor = must_read(WHEEL);

    (void)state;
    assert_string_equal(descriptor->name, "127.0.0.1:15638");
    assert_string_equal(descriptor->protocol, "tcp");
    assert_string_equal(descriptor->tcp_data_host, "127.0.0.1");
    assert_string_equal(descriptor->rdma_server_name, "");
    assert_string_equal(descriptor->timestamp, "2026-11-30 00:45:09.093490");
    assert_int_equal(descriptor->tcp_data_port, 15525);
    assert_int_equal(descriptor->tcp_protocol_version, 2);
    assert_int_equal(descriptor->buffer_count, 1);
    assert_true(descriptor->buffers[0].address == 139714260475920);
    assert_true(descriptor->buffers[0].length == 1048576);
    assert_string_equal(descriptor->buffers[0].name, "127.0.0.1:15638");
    assert_int_equal(descriptor->buffers[0].permission, TE_GLOBAL_READ_WRITE);
    assert_int_equal(descriptor->device_count, 0);
    te_segment_descriptor_unref(descriptor);
}

static void test_what_an_rdma_descriptor_says(void **state)
{
    struct te_segment_descriptor *descriptor = must_read(RDMA("rdma"));

    (void)state;
    assert_string_equal(descriptor->rdma_server_name, "192.168.1.1:15001");
    assert_int_equal(descriptor->device_count, 2);
    assert_string_equal(descriptor->devices[0].name, "mlx5_0");
    assert_int_equal(descriptor->devices[1].lid, 65535);
    assert_string_equal(descriptor->devices[1].gid, "fe:80");
    assert_int_equal(descriptor->buffer_count, 2);
    assert_int_equal(descriptor->buffers[0].key_count, 2);
    assert_true(descriptor->buffers[0].remote_keys[1] == UINT64_MAX);
    assert_true(descriptor->buffers[0].local_keys[1] == 258);
    assert_int_equal(descriptor->buffers[1].key_count, 0);
    assert_null(descriptor->buffers[1].remote_keys);
    te_segment_descriptor_unref(descriptor);
}

static void test_absent_fields(void **state)
{
    struct te_segment_descriptor *descriptor = must_read("{\"protocol\":\"tcp\"}");

    (void)state;
    assert_string_equal(descriptor->name, "");
    assert_string_equal(descriptor->tcp_data_host, "");
    assert_string_equal(descriptor->rdma_server_name, "");
    assert_string_equal(descriptor->timestamp, "");
    assert_int_equal(descriptor->tcp_data_port, 0);
    assert_int_equal(descriptor->tcp_protocol_version, 1);
    assert_int_equal(descriptor->buffer_count, 0);
    te_segment_descriptor_unref(descriptor);
}

/* Each of them is opened by the real engine. */
static void test_accepted_oddities(void **state)
{
    static const char *const texts[] = {
        "{\"protocol\":\"tcp\",\"name\":5,\"tcp_data_host\":6,\"rdma_server_name\":7,\"timestamp\":8}",
        "/* c */ {\"protocol\":\"rdma\",\"protocol\":\"tcp\"} xyz",
        "{\"protocol\":\"tcp\",\"foo\":[null],\"buffers\":{}}",
        "{\"protocol\":\"tcp\",\"buffers\":[{\"addr\":0,\"length\":1,\"name\":\"a\"}]}",
        "{\"protocol\":\"tcp\",\"buffers\":null,\"tcp_data_port\":null,\"tcp_proto_version\":2.9}",
        "{\"protocol\":\"tcp\",\"buffers\":[{\"addr\":4096.5,\"length\":1e3,\"name\":1,\"bar\":{}}]}",
        "{\"protocol\":\"tcp\",\"tcp_data_port\":70000,\"devices\":5,\"priority_matrix\":5}",
        "{\"protocol\":\"tcp\",\"tcp_data_port\":-1}",
        "\xef\xbb\xbf{\"protocol\":\"tcp\",}",
        "{\"protocol\":\"rdma\",\"buffers\":[]}",
        "{\"protocol\":\"rdma\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"a\"}],\"devices\":[{\"name\":\"a\","
        "\"gid\":\"b\"}],\"priority_matrix\":{}}",
        "{\"protocol\":\"rdma\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"a\",\"lkey\":[1,2]}]}",
        "{\"protocol\":\"barex\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"a\",\"lkey\":[1,2],\"rkey\":[3,4]}]}",
        "{\"protocol\":\"nvlink\",\"buffers\":[{\"shm_name\":\"\"},{},null,{\"addr\":1,\"length\":1,\"name\":\"a\","
        "\"shm_name\":\"00\"}]}",
        "{\"protocol\":\"nccl\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"a\",\"device_id\":0}]}",
        "{\"protocol\":\"ub\",\"devices\":[{\"name\":\"a\",\"eid\":\"b\"}],\"buffers\":[{\"addr\":1,\"length\":1,"
        "\"name\":\"a\",\"tseg\":[\"x\"]}]}",
        "{\"protocol\":\"ascend\",\"devices\":[{\"name\":\"a\",\"lid\":1}],\"buffers\":[{\"addr\":1,\"length\":1,"
        "\"name\":\"a\",\"device_id\":-1}]}",
        "{\"protocol\":\"cxl\",\"cxl_base_addr\":5,\"buffers\":[{\"offset\":0,\"length\":1,\"name\":\"a\"}]}",
        "{\"protocol\":\"nvmeof\",\"buffers\":[{\"file_path\":\"\",\"length\":0},{}]}",
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
        te_segment_descriptor_unref(must_read(texts[i]));
}

static void test_what_odd_values_read_as(void **state)
{
    struct te_segment_descriptor *descriptor =
        must_read("{\"protocol\":\"tcp\",\"name\":5,\"tcp_data_port\":70000,\"tcp_proto_version\":2.9,"
                  "\"buffers\":[{\"addr\":4096.5,\"length\":1e3,\"name\":true}]}");

    (void)state;
    assert_string_equal(descriptor->name, "5");
    assert_int_equal(descriptor->tcp_data_port, 0);
    assert_int_equal(descriptor->tcp_protocol_version, 2);
    assert_int_equal(descriptor->buffers[0].address, 4096);
    assert_int_equal(descriptor->buffers[0].length, 1000);
    assert_string_equal(descriptor->buffers[0].name, "true");
    te_segment_descriptor_unref(descriptor);

    descriptor = must_read("{\"protocol\":\"hip\",\"buffers\":[{},{\"addr\":1,\"length\":2,\"name\":\"a\","
                           "\"shm_name\":\"00\"}]}");
    assert_int_equal(descriptor->buffer_count, 1);
    assert_int_equal(descriptor->buffers[0].length, 2);
    te_segment_descriptor_unref(descriptor);

    descriptor = must_read("{\"protocol\":\"cxl\",\"buffers\":[{\"offset\":64,\"length\":1,\"name\":\"a\"}]}");
    assert_int_equal(descriptor->buffers[0].address, 64);
    te_segment_descriptor_unref(descriptor);

    descriptor = must_read("{\"protocol\":\"nvmeof\",\"buffers\":[{\"file_path\":\"/f\",\"length\":3}]}");
    assert_string_equal(descriptor->buffers[0].name, "/f");
    assert_int_equal(descriptor->buffers[0].address, 0);
    te_segment_descriptor_unref(descriptor);
}

#define TCP_BUFFER(fields) "{\"protocol\":\"tcp\",\"buffers\":[{" fields "}]}"
#define RDMA_BUFFER(fields)                                                                                            \
    "{\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":\"g\"}],\"buffers\":[{" fields "}]}"

static void test_refusals(void **state)
{
    static const char *const texts[] = {
        "",
        "hello",
        "null",
        "[1]",
        "\"s\"",
        "5",
        "{}",
        "{\"protocol\":\"foo\"}",
        "{\"protocol\":\"TCP\"}",
        "{\"protocol\":\"\"}",
        "{\"protocol\":null}",
        "{\"protocol\":5}",
        "{\"protocol\":[\"tcp\"]}",
        "{\"protocol\":\"tcp\",\"name\":{}}",
        "{\"protocol\":\"tcp\",\"rdma_server_name\":{}}",
        "{\"protocol\":\"tcp\",\"tcp_data_host\":[]}",
        "{\"protocol\":\"tcp\",\"timestamp\":[]}",
        "{\"protocol\":\"tcp\",\"tcp_data_port\":\"5\"}",
        "{\"protocol\":\"tcp\",\"tcp_data_port\":4294967296}",
        "{\"protocol\":\"tcp\",\"tcp_proto_version\":\"2\"}",
        "{\"protocol\":\"tcp\",\"buffers\":{\"a\":1}}",
        "{\"protocol\":\"tcp\",\"buffers\":5}",
        "{\"protocol\":\"tcp\",\"buffers\":[5]}",
        "{\"protocol\":\"tcp\",\"buffers\":[null]}",
        TCP_BUFFER("\"addr\":0.5,\"length\":1,\"name\":\"a\""),
        TCP_BUFFER("\"addr\":1,\"length\":1"),
        TCP_BUFFER("\"addr\":1,\"length\":1,\"name\":\"\""),
        TCP_BUFFER("\"length\":1,\"name\":\"a\""),
        TCP_BUFFER("\"addr\":1,\"length\":0,\"name\":\"a\""),
        TCP_BUFFER("\"addr\":1,\"name\":\"a\""),
        TCP_BUFFER("\"addr\":\"1\",\"length\":1,\"name\":\"a\""),
        TCP_BUFFER("\"addr\":-1,\"length\":1,\"name\":\"a\""),
        TCP_BUFFER("\"addr\":1,\"length\":[],\"name\":\"a\""),
        TCP_BUFFER("\"addr\":1,\"length\":1,\"name\":{}"),
        TCP_BUFFER("\"addr\":1,\"length\":1,\"name\":\"a\"},{"),
        RDMA_BUFFER(""),
        RDMA_BUFFER("\"addr\":1,\"length\":1,\"name\":\"a\",\"rkey\":[1],\"lkey\":[]"),
        RDMA_BUFFER("\"addr\":1,\"length\":1,\"name\":\"a\",\"rkey\":[1,2],\"lkey\":[1,2]"),
        RDMA_BUFFER("\"addr\":1,\"length\":1,\"name\":\"a\",\"rkey\":[-1],\"lkey\":[1]"),
        RDMA_BUFFER("\"addr\":1,\"length\":1,\"name\":\"a\",\"rkey\":[\"1\"],\"lkey\":[1]"),
        RDMA_BUFFER("\"addr\":1,\"length\":1,\"name\":\"a\",\"rkey\":5"),
        "{\"protocol\":\"barex\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"a\",\"lkey\":[1],\"rkey\":[3,4]}]}",
        "{\"protocol\":\"rdma\",\"devices\":[{\"name\":\"\",\"gid\":\"g\"}]}",
        "{\"protocol\":\"efa\",\"devices\":[{\"name\":\"d\"}]}",
        "{\"protocol\":\"cxi\",\"devices\":[{\"name\":\"d\",\"gid\":\"\"}]}",
        "{\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":\"g\",\"lid\":-1}]}",
        "{\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":\"g\",\"lid\":\"1\"}]}",
        "{\"protocol\":\"rdma\",\"devices\":5}",
        "{\"protocol\":\"rdma\",\"devices\":[[]]}",
        "{\"protocol\":\"rdma\",\"priority_matrix\":[]}",
        "{\"protocol\":\"rdma\",\"priority_matrix\":5}",
        "{\"protocol\":\"rdma\",\"priority_matrix\":{\"cpu:0\":[[{}],[]]}}",
        "{\"protocol\":\"nvlink\",\"buffers\":[{\"shm_name\":\"00\",\"addr\":0,\"length\":1,\"name\":\"a\"}]}",
        "{\"protocol\":\"nvlink\",\"buffers\":[{\"shm_name\":{},\"addr\":1,\"length\":1,\"name\":\"a\"}]}",
        "{\"protocol\":\"nccl\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"a\",\"device_id\":-1}]}",
        "{\"protocol\":\"ub\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"a\"}]}",
        "{\"protocol\":\"ascend\",\"devices\":[{\"lid\":1}]}",
        "{\"protocol\":\"ascend\",\"buffers\":[{\"addr\":0,\"length\":1,\"name\":\"a\"}]}",
        "{\"protocol\":\"cxl\",\"buffers\":[{\"offset\":1,\"length\":0,\"name\":\"a\"}]}",
        "{\"protocol\":\"cxl\",\"buffers\":[{\"offset\":1,\"length\":1}]}",
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        struct te_segment_descriptor *descriptor = NULL;

        if (read_text(texts[i], &descriptor) != TE_MALFORMED_JSON || descriptor) {
            print_error("not refused: %s\n", texts[i]);
            fail();
        }
    }
}

static void assert_matrix(const char *matrix, const char *expected)
{
    char *text = g_strdup_printf("{\"protocol\":\"rdma\",\"priority_matrix\":%s}", matrix);
    struct te_segment_descriptor *descriptor = must_read(text);

    if (expected)
        assert_string_equal(descriptor->priority_matrix, expected);
    else
        assert_null(descriptor->priority_matrix);
    te_segment_descriptor_unref(descriptor);
    g_free(text);
}

static void test_priority_matrix(void **state)
{
    (void)state;
    assert_matrix("null", NULL);
    assert_matrix("{}", NULL);
    assert_matrix("{\"b\":[[],[\"x\",\"y\"]],\"a\":[[\"\xc3\xa9\"],[5]]}",
                  "{\"a\":[[\"\\u00e9\"],[\"5\"]],\"b\":[[],[\"x\",\"y\"]]}");
    assert_matrix("{\"c\":[[],[]],\"b\":[[]],\"a\":[[],[]]}", "{\"a\":[[],[]]}");
    assert_matrix("{\"a\":[5,[]],\"b\":[[],[]]}", NULL);
    assert_matrix("{\"a\":{\"x\":1},\"b\":[[],[]]}", NULL);
    assert_matrix("{\"\":[[],[]],\"\\\"\":[[],[]]}", "{\"\":[[],[]],\"\\\"\":[[],[]]}");
}

/* The longest text that the names may come to is asked for at once, and its lack is told. */
static void test_memory_for_a_matrix_is_asked_for(void **state)
{
    GString *matrix = g_string_new("{\"protocol\":\"rdma\",\"priority_matrix\":{\"cpu:0\":[[");
    struct te_segment_descriptor *descriptor = NULL;
    te_status status;

    (void)state;
    for (int i = 0; i < 300; i++)
        g_string_append(matrix, i == 0 ? "\"\xff\"" : ",\"\xff\"");
    g_string_append(matrix, "],[1e300,true,null]]}}");
    fail_at = 0;
    do {
        allocations = 0;
        largest_bytes = 0;
        status = read_text(matrix->str, &descriptor);
        fail_at++;
    } while (status == TE_MEMORY);
    fail_at = -1;
    assert_int_equal(status, TE_OK);
    assert_true(strlen(descriptor->priority_matrix) > 300 * strlen("\\ufffd"));
    assert_true(largest_bytes > strlen(descriptor->priority_matrix));
    te_segment_descriptor_unref(descriptor);
    g_string_free(matrix, TRUE);
}

static void test_other_protocols_are_not_written(void **state)
{
    static const char *const protocols[] = {"", "foo", "nvlink", "nvmeof", "ub", "ascend", "cxl", "nccl"};
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();
    GString *text = g_string_new(NULL);

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(protocols); i++) {
        g_free(descriptor->protocol);
        descriptor->protocol = g_strdup(protocols[i]);
        assert_int_equal(te_descriptor_write(text, descriptor, ""), TE_INVALID_ARGUMENT);
        assert_int_equal(text->len, 0);
    }
    g_string_free(text, TRUE);
    te_segment_descriptor_unref(descriptor);
}

static char *random_text(GRand *random)
{
    static const char *const parts[] = {"a", "0", ":", "\"", "\\", "\n", "\x7f", "\xc3\xa9", "\xf0\xbd\xb1\xa0", "/"};
    GString *text = g_string_new("x");

    for (int i = g_rand_int_range(random, 0, 12); i > 0; i--)
        g_string_append(text, parts[g_rand_int_range(random, 0, G_N_ELEMENTS(parts))]);
    return g_string_free(text, FALSE);
}

static uint64_t random_number(GRand *random)
{
    return ((uint64_t)g_rand_int(random) << 32 | g_rand_int(random)) >> g_rand_int_range(random, 0, 64) | 1;
}

static void replace(char **text, char *by)
{
    g_free(*text);
    *text = by;
}

static struct te_segment_descriptor *random_descriptor(GRand *random)
{
    static const char *const protocols[] = {"tcp", "rdma", "efa", "cxi", "barex"};
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();
    bool keys;

    replace(&descriptor->protocol, g_strdup(protocols[g_rand_int_range(random, 0, G_N_ELEMENTS(protocols))]));
    keys = strcmp(descriptor->protocol, "tcp") != 0;
    replace(&descriptor->name, random_text(random));
    replace(&descriptor->timestamp, random_text(random));
    replace(&descriptor->rdma_server_name, random_text(random));
    if (g_rand_boolean(random))
        replace(&descriptor->tcp_data_host, random_text(random));
    descriptor->tcp_data_port = (uint16_t)g_rand_int(random);
    descriptor->tcp_protocol_version = g_rand_int_range(random, -1, 4);
    descriptor->device_count = keys ? (size_t)g_rand_int_range(random, 0, 4) : 0;
    descriptor->devices = g_new0(struct te_segment_device, descriptor->device_count + 1);
    for (size_t i = 0; i < descriptor->device_count; i++) {
        descriptor->devices[i].name = random_text(random);
        descriptor->devices[i].gid = random_text(random);
        descriptor->devices[i].lid = (uint16_t)g_rand_int(random);
    }
    descriptor->buffer_count = (size_t)g_rand_int_range(random, 0, 6);
    descriptor->buffers = g_new0(struct te_segment_buffer, descriptor->buffer_count + 1);
    for (size_t i = 0; i < descriptor->buffer_count; i++) {
        struct te_segment_buffer *buffer = &descriptor->buffers[i];

        buffer->name = random_text(random);
        buffer->address = random_number(random);
        buffer->length = random_number(random);
        buffer->permission = TE_GLOBAL_READ_WRITE;
        buffer->key_count = keys ? descriptor->device_count : 0;
        buffer->local_keys = g_new0(uint64_t, buffer->key_count + 1);
        buffer->remote_keys = g_new0(uint64_t, buffer->key_count + 1);
        for (size_t k = 0; k < buffer->key_count; k++) {
            buffer->local_keys[k] = random_number(random);
            buffer->remote_keys[k] = random_number(random);
        }
    }
    return descriptor;
}

static void assert_same(const struct te_segment_descriptor *left, const struct te_segment_descriptor *right)
{
    assert_string_equal(left->name, right->name);
    assert_string_equal(left->protocol, right->protocol);
    assert_string_equal(left->timestamp, right->timestamp);
    assert_string_equal(left->rdma_server_name, right->rdma_server_name);
    assert_string_equal(left->tcp_data_host, right->tcp_data_host);
    assert_int_equal(left->tcp_data_port, right->tcp_data_port);
    assert_int_equal(left->tcp_protocol_version, right->tcp_protocol_version);
    assert_int_equal(left->device_count, right->device_count);
    for (size_t i = 0; i < left->device_count; i++) {
        assert_string_equal(left->devices[i].name, right->devices[i].name);
        assert_string_equal(left->devices[i].gid, right->devices[i].gid);
        assert_int_equal(left->devices[i].lid, right->devices[i].lid);
    }
    assert_int_equal(left->buffer_count, right->buffer_count);
    for (size_t i = 0; i < left->buffer_count; i++) {
        assert_string_equal(left->buffers[i].name, right->buffers[i].name);
        assert_true(left->buffers[i].address == right->buffers[i].address);
        assert_true(left->buffers[i].length == right->buffers[i].length);
        assert_int_equal(left->buffers[i].key_count, right->buffers[i].key_count);
        for (size_t k = 0; k < left->buffers[i].key_count; k++) {
            assert_true(left->buffers[i].local_keys[k] == right->buffers[i].local_keys[k]);
            assert_true(left->buffers[i].remote_keys[k] == right->buffers[i].remote_keys[k]);
        }
    }
}

static void test_random_round_trips(void **state)
{
    GRand *random = g_rand_new_with_seed(7);

    (void)state;
    for (size_t round = 0; round < 3000; round++) {
        struct te_segment_descriptor *descriptor = random_descriptor(random), *read;
        char *text = write_again(descriptor);

        read = must_read(text);
        assert_same(descriptor, read);
        te_segment_descriptor_unref(read);
        te_segment_descriptor_unref(descriptor);
        g_free(text);
    }
    g_rand_free(random);
}

/* Cut anywhere it is refused. Damaged in any one byte it is refused or says something that can be written again. */
static void assert_survives_damage(const char *original)
{
    size_t length = strlen(original);
    char *text = g_strdup(original);
    struct te_segment_descriptor *descriptor;

    for (size_t cut = 0; cut < length; cut++) {
        char *piece = g_memdup2(text, MAX(cut, 1));

        assert_int_equal(te_descriptor_read(piece, cut, &descriptor), TE_MALFORMED_JSON);
        g_free(piece);
    }
    for (size_t at = 0; at < length; at++) {
        for (unsigned byte = 0; byte < 256; byte += at % 7 + 1) {
            te_status status;

            text[at] = (char)byte;
            status = te_descriptor_read(text, length, &descriptor);
            assert_true(status == TE_OK || status == TE_MALFORMED_JSON);
            if (status == TE_OK) {
                char *again = write_again(descriptor);
                struct te_segment_descriptor *second = must_read(again);
                char *third = write_again(second);

                assert_string_equal(third, again);
                g_free(third);
                te_segment_descriptor_unref(second);
                te_segment_descriptor_unref(descriptor);
                g_free(again);
            }
        }
        text[at] = original[at];
    }
    g_free(text);
}

static void test_damage(void **state)
{
    (void)state;
    assert_survives_damage(WHEEL);
    assert_survives_damage(RDMA("rdma"));
}

/* Far more buffers than anybody has: a writer or reader that is not linear does not come to an end here. */
static void test_many_buffers(void **state)
{
    enum { BUFFERS = 200000 };
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new(), *read;
    char *text;

    (void)state;
    replace(&descriptor->protocol, g_strdup("tcp"));
    descriptor->buffers = g_new0(struct te_segment_buffer, BUFFERS);
    descriptor->buffer_count = BUFFERS;
    for (size_t i = 0; i < BUFFERS; i++)
        descriptor->buffers[i] = (struct te_segment_buffer){
            .name = g_strdup("127.0.0.1:15001"), .address = 0x7f0000000000 + i * 4096, .length = 4096};
    text = write_again(descriptor);
    read = must_read(text);
    assert_same(descriptor, read);
    te_segment_descriptor_unref(read);
    te_segment_descriptor_unref(descriptor);
    g_free(text);
}

static void test_time_text(void **state)
{
    const struct timespec moment = {.tv_sec = 1796000000, .tv_nsec = 1234999};
    char text[TE_DESCRIPTOR_TIME_BYTES];

    (void)state;
    setenv("TZ", "UTC", 1);
    tzset();
    te_descriptor_format_time(text, &moment);
    assert_string_equal(text, "2026-11-30 00:53:20.001234");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_what_a_tcp_descriptor_says),
        cmocka_unit_test(test_what_an_rdma_descriptor_says),
        cmocka_unit_test(test_absent_fields),
        cmocka_unit_test(test_accepted_oddities),
        cmocka_unit_test(test_what_odd_values_read_as),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_priority_matrix),
        cmocka_unit_test(test_memory_for_a_matrix_is_asked_for),
        cmocka_unit_test(test_other_protocols_are_not_written),
        cmocka_unit_test(test_random_round_trips),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_many_buffers),
        cmocka_unit_test(test_time_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
