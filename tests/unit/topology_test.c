/* The topology matrix, and what showLinks makes of it (classic specification 6.1 and 1.7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/topology.h"

static const char example[] =
    "{\"cuda:0\":[[\"mlx5_1\"],[\"mlx5_0\"]], \"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]], \"cpu:1\":[[],[\"mlx5_1\"]]}";

static const char example_text[] = "=== Local NICs ===\n"
                                   "  mlx5_0  (topology only; RDMA transport not initialized)\n"
                                   "  mlx5_1  (topology only; RDMA transport not initialized)\n"
                                   "\n"
                                   "=== Topology (NIC Selection) ===\n"
                                   "  cpu:0 -> preferred: [mlx5_0]  available: [mlx5_1]\n"
                                   "  cpu:1 -> preferred: []  available: [mlx5_1]\n"
                                   "  cuda:0 -> preferred: [mlx5_1]  available: [mlx5_0]\n";
static const char empty_text[] = "=== Local NICs ===\n  (no RDMA devices found)\n";

/* Frees the topology. */
static void expect_shown(struct te_topology *topology, const char *expected)
{
    GString *text = g_string_new(NULL);

    te_topology_show(topology, text);
    assert_string_equal(text->str, expected);
    g_string_free(text, TRUE);
    te_topology_free(topology);
}

static void the_text_form_is_the_real_one(void **state)
{
    struct te_topology *topology;

    (void)state;
    expect_shown(te_topology_new(), empty_text);
    assert_int_equal(te_topology_parse(example, strlen(example), &topology), TE_OK);
    expect_shown(topology, example_text);
}

/* Line for line what jsoncpp 1.9.5 writes with an indentation of two spaces. */
static void the_json_form_is_the_real_one(void **state)
{
    static const char one[] = "{\"cpu:0\":[[\"a\"],[\"b\"]],\"cpu:1\":[[],[\"b\"]]}";
    struct te_topology *topology = te_topology_new();
    GString *text = g_string_new(NULL);

    (void)state;
    te_topology_show_json(topology, text);
    assert_string_equal(text->str, "{\n  \"local_nics\" : [],\n  \"topology\" : null\n}");
    te_topology_free(topology);
    g_string_truncate(text, 0);
    assert_int_equal(te_topology_parse(one, strlen(one), &topology), TE_OK);
    te_topology_show_json(topology, text);
    assert_string_equal(text->str, "{\n"
                                   "  \"local_nics\" : \n"
                                   "  [\n"
                                   "    {\n"
                                   "      \"device\" : \"a\",\n"
                                   "      \"gid\" : \"\",\n"
                                   "      \"gid_index\" : -1,\n"
                                   "      \"numa\" : -1,\n"
                                   "      \"port\" : 0,\n"
                                   "      \"source\" : \"topology\",\n"
                                   "      \"speed_gbps\" : 0\n"
                                   "    },\n"
                                   "    {\n"
                                   "      \"device\" : \"b\",\n"
                                   "      \"gid\" : \"\",\n"
                                   "      \"gid_index\" : -1,\n"
                                   "      \"numa\" : -1,\n"
                                   "      \"port\" : 0,\n"
                                   "      \"source\" : \"topology\",\n"
                                   "      \"speed_gbps\" : 0\n"
                                   "    }\n"
                                   "  ],\n"
                                   "  \"topology\" : \n"
                                   "  {\n"
                                   "    \"cpu:0\" : \n"
                                   "    [\n"
                                   "      [\n"
                                   "        \"a\"\n"
                                   "      ],\n"
                                   "      [\n"
                                   "        \"b\"\n"
                                   "      ]\n"
                                   "    ],\n"
                                   "    \"cpu:1\" : \n"
                                   "    [\n"
                                   "      [],\n"
                                   "      [\n"
                                   "        \"b\"\n"
                                   "      ]\n"
                                   "    ]\n"
                                   "  }\n"
                                   "}");
    te_topology_free(topology);
    g_string_free(text, TRUE);
}

static void malformed_matrices_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "5",
        "\"x\"",
        "{",
        "{\"cpu:0\":[]}",
        "{\"cpu:0\":[[\"a\"]]}",
        "{\"cpu:0\":[[\"a\"],[\"b\"],[]]}",
        "{\"cpu:0\":[\"a\",\"b\"]}",
        "{\"cpu:0\":[[1],[]]}",
        "{\"cpu:0\":{\"a\":1}}",
        "{\"cpu:0\":null}",
        "nul",
        "xyz",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    };
    static const char *const empty[] = {"null", "{}", " { } ", "/* none */ {}"};
    struct te_topology *topology;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        assert_int_equal(te_topology_parse(bad[i], strlen(bad[i]), &topology), TE_MALFORMED_JSON);
    for (size_t i = 0; i < G_N_ELEMENTS(empty); i++) {
        assert_int_equal(te_topology_parse(empty[i], strlen(empty[i]), &topology), TE_OK);
        expect_shown(topology, empty_text);
    }
}

static void a_file_is_read(void **state)
{
    char path[] = "/tmp/te-topology-XXXXXX";
    struct te_topology *topology;
    int descriptor = mkstemp(path);

    (void)state;
    assert_true(descriptor >= 0);
    assert_int_equal(te_topology_read(path, &topology), TE_METADATA);
    assert_int_equal(write(descriptor, example, strlen(example)), strlen(example));
    assert_int_equal(te_topology_read(path, &topology), TE_OK);
    expect_shown(topology, example_text);
    assert_int_equal(write(descriptor, "}", 1), 1); /* text after the value is no error */
    assert_int_equal(te_topology_read(path, &topology), TE_OK);
    te_topology_free(topology);
    close(descriptor);
    unlink(path);
    assert_int_equal(te_topology_read(path, &topology), TE_METADATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_form_is_the_real_one),
        cmocka_unit_test(the_json_form_is_the_real_one),
        cmocka_unit_test(malformed_matrices_are_refused),
        cmocka_unit_test(a_file_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
