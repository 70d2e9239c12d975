#include "core/log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "core/clock.h"

static struct {
    int count;
    int level;
    char text[4096];
} seen;

static void remember(int level, const char *message, void *user_data)
{
    assert_ptr_equal(user_data, &seen);
    seen.count++;
    seen.level = level;
    g_strlcpy(seen.text, message, sizeof(seen.text));
}

static struct {
    int count;
    GLogLevelFlags level;
    char domain[64];
    char text[256];
} written;

static GLogWriterOutput write_nowhere(GLogLevelFlags level, const GLogField *fields, gsize field_count, gpointer data)
{
    (void)data;
    written.count++;
    written.level = level;
    for (gsize i = 0; i < field_count; i++) {
        if (strcmp(fields[i].key, "MESSAGE") == 0)
            g_strlcpy(written.text, fields[i].value, sizeof(written.text));
        if (strcmp(fields[i].key, "GLIB_DOMAIN") == 0)
            g_strlcpy(written.domain, fields[i].value, sizeof(written.domain));
    }
    return G_LOG_WRITER_HANDLED;
}

static int reset(void **state)
{
    (void)state;
    te_log_set_function(NULL, NULL);
    te_log_set_level(TE_LOG_INFO);
    memset(&seen, 0, sizeof(seen));
    memset(&written, 0, sizeof(written));
    return 0;
}

static void wanted_levels_are_shown_by_glib_and_none_aborts(void **state)
{
    (void)state;
    te_log_set_level(TE_LOG_TRACE);
    for (int level = TE_LOG_TRACE; level <= TE_LOG_ERROR; level++) {
        te_log((enum te_log_level)level, "level %d", level);
        assert_int_equal(written.count, level + 1);
        assert_string_equal(written.domain, "transfer-engine");
        assert_int_equal(written.text[strlen("level ")], '0' + level);
        assert_false(g_log_writer_default_would_drop(written.level, written.domain));
        assert_false(written.level & (G_LOG_LEVEL_ERROR | G_LOG_FLAG_FATAL));
    }
}

static void info_is_the_default_level(void **state)
{
    (void)state;
    assert_false(te_log_enabled(TE_LOG_TRACE));
    assert_true(te_log_enabled(TE_LOG_INFO));
    te_log(TE_LOG_TRACE, "no");
    assert_int_equal(written.count, 0);
    te_log(TE_LOG_INFO, "yes");
    assert_int_equal(written.count, 1);
    te_log_set_level(TE_LOG_ERROR);
    te_log(TE_LOG_WARNING, "no");
    assert_int_equal(written.count, 1);
}

static void function_gets_the_messages_instead_of_glib(void **state)
{
    (void)state;
    te_log_set_function(remember, &seen);
    te_log(TE_LOG_WARNING, "to %s", "you");
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.level, TE_LOG_WARNING);
    assert_string_equal(seen.text, "to you");
    assert_int_equal(written.count, 0);
    te_log_set_function(NULL, NULL);
    te_log(TE_LOG_WARNING, "to glib");
    assert_int_equal(seen.count, 1);
    assert_int_equal(written.count, 1);
}

static void log_again(int level, const char *message, void *user_data)
{
    (void)level;
    (void)user_data;
    seen.count++;
    te_log(TE_LOG_ERROR, "again: %s", message);
}

static void function_that_logs_does_not_recurse(void **state)
{
    (void)state;
    te_log_set_function(log_again, NULL);
    te_log(TE_LOG_ERROR, "once");
    assert_int_equal(seen.count, 1);
    assert_int_equal(written.count, 1);
    assert_string_equal(written.text, "again: once");
}

static void message_is_one_bounded_line(void **state)
{
    char text[5000];

    (void)state;
    te_log_set_function(remember, &seen);
    te_log(TE_LOG_INFO, "a\nb\033[31mc");
    assert_string_equal(seen.text, "a?b?[31mc");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    te_log(TE_LOG_INFO, "%s", text);
    assert_in_range(strlen(seen.text), 100, 2000);
    assert_string_equal(seen.text + strlen(seen.text) - 4, "x...");
}

static void flood_from_one_place_is_limited_and_counted(void **state)
{
    struct te_log_site site = {0};

    (void)state;
    te_log_set_function(remember, &seen);
    for (int i = 0; i < 1000; i++)
        te_log_at_site(&site, TE_LOG_WARNING, "%d", i);
    assert_int_equal(seen.count, TE_LOG_BURST);
    assert_string_equal(seen.text, "4");
    /* The window passes. */
    atomic_fetch_sub(&site.window_start_ns, TE_LOG_WINDOW_SECONDS * TE_NS_PER_SECOND);
    te_log_at_site(&site, TE_LOG_WARNING, "next");
    assert_int_equal(seen.count, TE_LOG_BURST + 1);
    assert_string_equal(seen.text, "next (995 similar messages left out)");
    te_log_at_site(&site, TE_LOG_WARNING, "last");
    assert_string_equal(seen.text, "last");
}

static void messages_below_the_level_do_not_use_up_the_burst(void **state)
{
    struct te_log_site site = {0};

    (void)state;
    te_log_set_function(remember, &seen);
    for (int i = 0; i < 100; i++)
        te_log_at_site(&site, TE_LOG_TRACE, "%d", i);
    te_log_at_site(&site, TE_LOG_INFO, "seen");
    assert_string_equal(seen.text, "seen");
}

static void places_are_limited_apart(void **state)
{
    (void)state;
    te_log_set_function(remember, &seen);
    for (int i = 0; i < 100; i++) {
        te_log_limited(TE_LOG_INFO, "one");
        te_log_limited(TE_LOG_INFO, "two %d", i);
    }
    assert_int_equal(seen.count, 2 * TE_LOG_BURST);
}

enum { THREADS = 4, MESSAGES = 20000 };

static struct te_log_site shared_site;
static _Atomic int counted;

static void count(int level, const char *message, void *user_data)
{
    (void)level;
    (void)message;
    atomic_fetch_add((_Atomic int *)user_data, 1);
}

static void *flood(void *unused)
{
    (void)unused;
    for (int i = 0; i < MESSAGES; i++)
        te_log_at_site(&shared_site, TE_LOG_INFO, "%d", i);
    return NULL;
}

static void *change_route(void *stop)
{
    while (!atomic_load((_Atomic bool *)stop)) {
        te_log_set_function(count, &counted);
        te_log_set_level(TE_LOG_TRACE);
        te_log(TE_LOG_TRACE, "route");
        te_log_set_level(TE_LOG_INFO);
    }
    return NULL;
}

static void threads_may_log_and_reroute_at_once(void **state)
{
    pthread_t threads[THREADS], changer;
    _Atomic bool stop = false;

    (void)state;
    te_log_set_function(count, &counted);
    assert_int_equal(pthread_create(&changer, NULL, change_route, &stop), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, flood, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(changer, NULL), 0);
    assert_true(atomic_load(&counted) > 0);
    assert_true(atomic_load(&shared_site.suppressed) >= THREADS * MESSAGES - 100 * TE_LOG_BURST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(wanted_levels_are_shown_by_glib_and_none_aborts, reset),
        cmocka_unit_test_setup(info_is_the_default_level, reset),
        cmocka_unit_test_setup(function_gets_the_messages_instead_of_glib, reset),
        cmocka_unit_test_setup(function_that_logs_does_not_recurse, reset),
        cmocka_unit_test_setup(message_is_one_bounded_line, reset),
        cmocka_unit_test_setup(flood_from_one_place_is_limited_and_counted, reset),
        cmocka_unit_test_setup(messages_below_the_level_do_not_use_up_the_burst, reset),
        cmocka_unit_test_setup(places_are_limited_apart, reset),
        cmocka_unit_test_setup(threads_may_log_and_reroute_at_once, reset),
    };

    g_log_set_writer_func(write_nowhere, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
