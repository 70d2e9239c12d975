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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_returns_code_and_keeps_message), cmocka_unit_test(long_message_is_cut_and_marked),
        cmocka_unit_test(message_may_wrap_the_one_before),     cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(each_thread_has_its_own_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
