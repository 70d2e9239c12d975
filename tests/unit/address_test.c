/* Server names, and the sockets made from them. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
/* after the above */
#include <cmocka.h>

#include "core/net/address.h"
#include "tests/unit/both_families.h"
#include "tests/unit/socket_helpers.h"

static void test_split(void **state)
{
    /* The table of the classic specification 1.5, and more. */
    static const struct {
        const char *name, *host;
        uint16_t port;
    } cases[] = {
        {"a", "a", 12001},
        {"a:5", "a", 5},
        {"[::1]:7", "::1", 7},
        {"[::1]", "::1", 12001},
        {"::1", "::1", 12001},
        {"fe80::1%e:9", "fe80::1%e", 9},
        {"fe80::1%e", "fe80::1%e", 12001},
        {"[fe80::1%e]:9", "fe80::1%e", 9},
        {"[x]:3", "[x]", 3},
        {"a:b:c:4", "a:b:c", 4},
        {"h:0", "h", 0},
        {"h:65535", "h", 65535},
        {"h:65536", "h", 12001},
        {"h:+5", "h", 12001},
        {"h: 5", "h", 12001},
        {"h:5x", "h", 12001},
        {"h:99999999999999999999", "h", 12001},
        {"a:", "a", 12001},
        {"[::1]x:7", "::1", 7},
        {":5", "", 5},
        {"", "", 12001},
        {"[", "[", 12001},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[TE_HOST_MAX];
        uint16_t port = 1;

        assert_int_equal(te_server_name_split(cases[i].name, 12001, host, &port), TE_OK);
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
    }
}

static void test_split_refuses_long_hosts(void **state)
{
    char name[TE_HOST_MAX + 8], host[TE_HOST_MAX];
    uint16_t port = 1;

    (void)state;
    memset(name, 'h', sizeof(name));
    strcpy(name + TE_HOST_MAX, ":5");
    assert_int_equal(te_server_name_split(name, 12001, host, &port), TE_INVALID_ARGUMENT);
    strcpy(name + TE_HOST_MAX - 1, ":5");
    assert_int_equal(te_server_name_split(name, 12001, host, &port), TE_OK);
    assert_int_equal(strlen(host), TE_HOST_MAX - 1);
}

static void test_join_is_what_split_reads(void **state)
{
    static const char *const hosts[] = {"h", "127.0.0.1", "::1", "fe80::1%e", "a.b.c"};

    (void)state;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        char name[TE_ADDRESS_TEXT_MAX], host[TE_HOST_MAX];
        uint16_t port;

        te_server_name_join(hosts[i], 4711, name, sizeof(name));
        assert_int_equal(te_server_name_split(name, 12001, host, &port), TE_OK);
        assert_string_equal(host, hosts[i]);
        assert_int_equal(port, 4711);
    }
}

static void test_resolve(void **state)
{
    struct te_address addresses[4];
    char text[TE_ADDRESS_TEXT_MAX];
    size_t count = 0;

    (void)state;
    assert_int_equal(te_address_resolve("::1", 80, false, addresses, 4, &count), TE_OK);
    te_address_text(&addresses[0], text, sizeof(text));
    assert_string_equal(text, "[::1]:80");
    assert_int_equal(te_address_resolve("localhost", 81, false, addresses, 4, &count), TE_OK);
    assert_int_equal(te_address_port(&addresses[0]), 81);
    assert_int_equal(te_address_resolve("", 80, false, addresses, 4, &count), TE_DNS);
    assert_int_equal(te_address_resolve("no such host", 80, false, addresses, 4, &count), TE_DNS);
    assert_string_not_equal(te_status_message(), "");
}

static void test_one_family_comes_first(void **state)
{
    static const char *const expected[2][3] = {{"127.0.0.1", "127.0.0.2", "::1"}, {"::1", "127.0.0.1", "127.0.0.2"}};
    struct te_address addresses[4];
    char host[TE_HOST_MAX];
    size_t count;

    (void)state;
    for (size_t ipv6_first = 0; ipv6_first < 2; ipv6_first++) {
        for (size_t capacity = 1; capacity <= 4; capacity++) {
            assert_int_equal(te_address_resolve(BOTH_TEST, 80, ipv6_first != 0, addresses, capacity, &count), TE_OK);
            assert_int_equal(count, capacity < 3 ? capacity : 3);
            for (size_t i = 0; i < count; i++) {
                te_address_host(&addresses[i], host, sizeof(host));
                assert_string_equal(host, expected[ipv6_first][i]);
                assert_int_equal(te_address_port(&addresses[i]), 80);
            }
        }
        /* The only family there is. */
        assert_int_equal(
            te_address_resolve(ipv6_first ? "127.0.0.1" : "::1", 80, ipv6_first != 0, addresses, 4, &count), TE_OK);
        assert_int_equal(count, 1);
    }
}

static bool host_has_ipv6(void)
{
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = descriptor >= 0 && bind(descriptor, (struct sockaddr *)&loopback, sizeof(loopback)) == 0;

    if (descriptor >= 0)
        close(descriptor);
    return has;
}

static void test_listen_and_connect_over_both_families(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "127.0.0.9"};
    uint16_t port = 0;
    int listening = -1;

    (void)state;
    assert_int_equal(te_listen_any_port(15000, 17000, 16, &listening, &port), TE_OK);
    assert_in_range(port, 15000, 17000);
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct te_address address;
        size_t count;
        int descriptor;

        assert_int_equal(te_address_resolve(hosts[i], port, false, &address, 1, &count), TE_OK);
        descriptor = test_connect_address(&address.storage, address.length);
        if (strchr(hosts[i], ':') != NULL && !host_has_ipv6()) {
            /* The IPv4 half of the same socket must do there. */
            assert_true(descriptor < 0);
            continue;
        }
        assert_true(descriptor >= 0);
        assert_true(te_address_is_local(descriptor));
        close(descriptor);
    }
    close(listening);
}

static void test_taken_ports_are_passed_over(void **state)
{
    int descriptors[3];
    uint16_t ports[3], port;
    int another;

    (void)state;
    /* A range of three ports, as long as nobody else holds one of them. */
    for (uint16_t minimum = 21000; minimum < 21300; minimum += 3) {
        int taken = 0;

        while (taken < 3 && te_listen_any_port(minimum, minimum + 2, 1, &descriptors[taken], &ports[taken]) == TE_OK)
            taken++;
        if (taken == 3) {
            assert_int_not_equal(ports[0], ports[1]);
            assert_int_not_equal(ports[1], ports[2]);
            assert_int_equal(te_listen_any_port(minimum, minimum + 2, 1, &another, &port), TE_SOCKET);
        }
        for (int i = 0; i < taken; i++)
            close(descriptors[i]);
        if (taken == 3)
            return;
    }
    fail_msg("no three free ports next to each other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_refuses_long_hosts),
        cmocka_unit_test(test_join_is_what_split_reads),
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_one_family_comes_first),
        cmocka_unit_test(test_listen_and_connect_over_both_families),
        cmocka_unit_test(test_taken_ports_are_passed_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
