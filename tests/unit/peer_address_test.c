/* Which addresses of a peer are used (core/peer_address.h): the table of the released wheel, and where it cannot be
 * followed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "core/engine.h"
#include "core/peer_address.h"
#include "tests/unit/both_families.h"
#include "tests/unit/socket_helpers.h"

static struct te_engine engine = {.settings = {.handshake_port = 12001}, .closing_descriptor = -1};

static struct te_segment_descriptor *describe(const char *name, const char *data_host, uint16_t data_port)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();

    g_free(descriptor->name);
    descriptor->name = g_strdup(name);
    g_free(descriptor->tcp_data_host);
    descriptor->tcp_data_host = g_strdup(data_host);
    descriptor->tcp_data_port = data_port;
    return descriptor;
}

static void data_host(void **state)
{
    static const struct {
        const char *name, *data_host, *opened, *expected;
    } cases[] = {
        {"127.0.0.1:15000", "", "127.0.0.1", "127.0.0.1"},
        {"127.0.0.1:15000", "12345", "127.0.0.1", "127.0.0.1"},
        {"127.0.0.1:15000", "127.0.0.2", "127.0.0.1", "127.0.0.2"},
        {"127.0.0.3:15000", "", "127.0.0.1", "127.0.0.1"},
        {"127.0.0.3:15000", "127.0.0.2", "127.0.0.1", "127.0.0.2"},
        {"", "", "127.0.0.1", "127.0.0.1"},
        {"no-such-host.invalid:1", "no-such-host.invalid", "127.0.0.1", "127.0.0.1"},
        {"192.0.2.1:15000", "192.0.2.1", "192.0.2.9", "192.0.2.1"},
        {"192.0.2.1:15000", "192.0.2.1", "127.0.0.1", "192.0.2.1"},
        /* Not meant for somebody who came another way. */
        {"0.0.0.0:15000", "0.0.0.0", "127.0.0.2", "127.0.0.2"},
        {"0.0.0.0:15000", "0.0.0.0", "192.0.2.9", "192.0.2.9"},
        {"[::]:15000", "::", "192.0.2.9", "192.0.2.9"},
        {"127.0.0.1:15000", "127.0.0.1", "192.0.2.9", "192.0.2.9"},
        {"[::1]:15000", "::1", "192.0.2.9", "192.0.2.9"},
        {"[::1]:15000", "::1", "::1", "::1"},
        {"x:1", "::ffff:127.0.0.1", "192.0.2.9", "192.0.2.9"},
        {"x:1", "", "no-such-host.invalid", ""},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct te_segment_descriptor *descriptor = describe(cases[i].name, cases[i].data_host, 15001);
        char host[TE_HOST_MAX] = "?";

        te_peer_data_host(&engine, descriptor, cases[i].opened, host);
        if (strcmp(host, cases[i].expected) != 0)
            print_error("case %zu\n", i);
        assert_string_equal(host, cases[i].expected);
        te_segment_descriptor_unref(descriptor);
    }
}

static void no_data_port_no_data_host(void **state)
{
    struct te_segment_descriptor *descriptor = describe("127.0.0.1:15000", "127.0.0.1", 0);
    char host[TE_HOST_MAX] = "?";

    (void)state;
    te_peer_data_host(&engine, descriptor, "127.0.0.1", host);
    assert_string_equal(host, "");
    te_segment_descriptor_unref(descriptor);
}

static struct te_engine ipv6_engine = {.settings = {.handshake_port = 12001, .use_ipv6 = true},
                                       .closing_descriptor = -1};

/* A name with an IPv6 and an IPv4 address, of a peer that listens on the latter alone. */
static void the_address_that_answers_is_taken(void **state)
{
    struct te_segment_descriptor *descriptor;
    char host[TE_HOST_MAX] = "?";
    uint16_t port;
    int listener = test_listen(&port);

    (void)state;
    descriptor = describe(BOTH_TEST ":15000", BOTH_TEST, port);
    te_peer_data_host(&ipv6_engine, descriptor, BOTH_TEST, host);
    assert_string_equal(host, "127.0.0.1");
    te_segment_descriptor_unref(descriptor);
    close(listener);
}

/* Where nobody listens, the first address is taken: of the name that the peer gives, or of the opened one. */
static void one_family_comes_first(void **state)
{
    static const char *const names[] = {BOTH_TEST, ""};
    uint16_t port;

    (void)state;
    close(test_listen(&port));
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        struct te_segment_descriptor *descriptor = describe(BOTH_TEST ":15000", names[i], port);
        char host[TE_HOST_MAX] = "?";

        te_peer_data_host(&engine, descriptor, BOTH_TEST, host);
        assert_string_equal(host, "127.0.0.1");
        te_peer_data_host(&ipv6_engine, descriptor, BOTH_TEST, host);
        assert_string_equal(host, "::1");
        te_segment_descriptor_unref(descriptor);
    }
}

static void control_targets(void **state)
{
    static const struct {
        const char *name, *opened;
        uint16_t opened_port;
        size_t count;
        const char *hosts[2];
        uint16_t ports[2];
    } cases[] = {
        {"127.0.0.1:15000", "127.0.0.1", 15000, 1, {"127.0.0.1"}, {15000}},
        {"127.0.0.3:15000", "127.0.0.1", 15000, 2, {"127.0.0.3", "127.0.0.1"}, {15000, 15000}},
        {"127.0.0.1:15000", "127.0.0.1", 15001, 2, {"127.0.0.1", "127.0.0.1"}, {15000, 15001}},
        {"192.0.2.1", "192.0.2.9", 15000, 2, {"192.0.2.1", "192.0.2.9"}, {12001, 15000}},
        {"0.0.0.0:15000", "192.0.2.9", 15000, 1, {"192.0.2.9"}, {15000}},
        {"127.0.0.1:15000", "192.0.2.9", 15000, 1, {"192.0.2.9"}, {15000}},
        {"no-such-host.invalid:5", "127.0.0.1", 15000, 1, {"127.0.0.1"}, {15000}},
        {":5", "127.0.0.1", 15000, 1, {"127.0.0.1"}, {15000}},
        {"", "127.0.0.1", 15000, 1, {"127.0.0.1"}, {15000}},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct te_segment_descriptor *descriptor = describe(cases[i].name, "", 15001);
        struct te_peer_target targets[TE_PEER_TARGETS];
        size_t count = te_peer_control_targets(&engine, descriptor, cases[i].opened, cases[i].opened_port, targets);

        if (count != cases[i].count)
            print_error("case %zu\n", i);
        assert_int_equal(count, cases[i].count);
        for (size_t j = 0; j < count; j++) {
            assert_string_equal(targets[j].host, cases[i].hosts[j]);
            assert_int_equal(targets[j].port, cases[i].ports[j]);
        }
        te_segment_descriptor_unref(descriptor);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_host),
        cmocka_unit_test(no_data_port_no_data_host),
        cmocka_unit_test(the_address_that_answers_is_taken),
        cmocka_unit_test(one_family_comes_first),
        cmocka_unit_test(control_targets),
    };

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
