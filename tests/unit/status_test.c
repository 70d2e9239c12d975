#include "core/status.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void fail_returns_code_and_keeps_message(void **state)
{
    (void)state;
    assert_int_equal(te_fail(TE_SOCKET, "connect to %s: %d", "peer", 7), TE_SOCKET);
    assert_string_equal(te_status_message(), "connect to peer: 7");
    assert_int_equal(te_fail(TE_DNS, "%s", ""), TE_DNS);
    assert_string_equal(te_status_message(), "");
}

static void long_message_is_cut_and_marked(void **state)
{
    char text[4000];
    size_t length;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    te_fail(TE_SOCKET, "%s", text);
    length = strlen(te_status_message());
    assert_in_range(length, 100, 1000);
    assert_string_equal(te_status_message() + length - 4, "x...");
}

static void message_may_wrap_the_one_before(void **state)
{
    (void)state;
    te_fail(TE_SOCKET, "refused");
    te_fail(TE_METADATA, "fetch: %s", te_status_message());
    assert_string_equal(te_status_message(), "fetch: refused");
}

static void errno_is_kept(void **state)
{
    (void)state;
    errno = ECONNREFUSED;
    te_fail(TE_SOCKET, "%s", "x");
    assert_int_equal(errno, ECONNREFUSED);
}

static void *fail_elsewhere(void *message_before)
{
    strcpy(message_before, te_status_message());
    te_fail(TE_CLOCK, "elsewhere");
    return NULL;
}

static void each_thread_has_its_own_message(void **state)
{
    char other_thread_message[64] = "unset";
    pthread_t thread;

    (void)state;
    te_fail(TE_SOCKET, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, other_thread_message), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(other_thread_message, "");
    assert_string_equal(te_status_message(), "here");
}

static void every_code_has_a_name_of_its_own(void **state)
{
    static const te_status codes[] = {
        TE_OK,
        TE_INVALID_ARGUMENT,
        TE_TOO_MANY_REQUESTS,
        TE_ADDRESS_NOT_REGISTERED,
        TE_BATCH_BUSY,
        TE_DEVICE_NOT_FOUND,
        TE_ADDRESS_OVERLAPPED,
        TE_NOT_SUPPORTED_TRANSPORT,
        TE_DNS,
        TE_SOCKET,
        TE_MALFORMED_JSON,
        TE_REJECT_HANDSHAKE,
        TE_METADATA,
        TE_ENDPOINT,
        TE_CONTEXT,
        TE_NUMA,
        TE_CLOCK,
        TE_MEMORY,
        TE_NOT_IMPLEMENTED,
        TE_TIMED_OUT,
    };
    const size_t count = sizeof(codes) / sizeof(codes[0]);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        assert_string_not_equal(te_status_name(codes[i]), te_status_name(12345));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(te_status_name(codes[i]), te_status_name(codes[j]));
    }
    assert_non_null(te_status_name(12345));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_returns_code_and_keeps_message), cmocka_unit_test(long_message_is_cut_and_marked),
        cmocka_unit_test(message_may_wrap_the_one_before),     cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(each_thread_has_its_own_message),     cmocka_unit_test(every_code_has_a_name_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
