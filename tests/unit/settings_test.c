#include "core/settings_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <glib.h>
#include <glib/gstdio.h>

#include "core/log.h"

/* What was logged since clean(): all lines at WARNING or above, and below. */
static GString *warnings;
static GString *informations;

static void collect(int level, const char *message, void *user_data)
{
    (void)user_data;
    g_string_append_printf(level >= TE_LOG_WARNING ? warnings : informations, "%s\n", message);
}

/* A fresh environment. */
static int clean(void **state)
{
    char **names = g_listenv();
    size_t count;
    const struct te_setting_row *rows = te_settings_rows(&count);

    (void)state;
    for (size_t row = 0; row < count; row++)
        g_unsetenv(rows[row].name);
    for (char **name = names; *name; name++) {
        if (g_str_has_prefix(*name, "MC_") || g_str_has_prefix(*name, "TE_"))
            g_unsetenv(*name);
    }
    g_strfreev(names);
    if (!warnings) {
        warnings = g_string_new(NULL);
        informations = g_string_new(NULL);
    }
    g_string_truncate(warnings, 0);
    g_string_truncate(informations, 0);
    te_log_set_function(collect, NULL);
    return 0;
}

static void load(struct te_settings *settings)
{
    assert_int_equal(te_settings_load(settings), TE_OK);
}

/* Loads with one variable set; the caller clears. */
static void load_with(struct te_settings *settings, const char *name, const char *value)
{
    assert_true(g_setenv(name, value, TRUE));
    load(settings);
    g_unsetenv(name);
}

static void from_text(struct te_settings *settings, const char *text)
{
    assert_int_equal(te_settings_from_text(settings, "test.yaml", text, strlen(text)), TE_OK);
}

static void expect_in(const GString *lines, const char *part)
{
    if (!strstr(lines->str, part))
        fail_msg("\"%s\" is not in:\n%s", part, lines->str);
}

static void expect_nothing_in(const GString *lines)
{
    if (lines->len > 0)
        fail_msg("unexpected:\n%s", lines->str);
}

/* ---- Defaults and the table ------------------------------------------------------------------------------------- */

static void test_defaults(void **state)
{
    struct te_settings settings;

    (void)state;
    load(&settings);
    assert_false(settings.force_tcp);
    assert_false(settings.use_tent);
    assert_false(settings.use_ipv6);
    assert_null(settings.custom_topology_file);
    assert_int_equal(settings.minimum_port, 15000);
    assert_int_equal(settings.maximum_port, 17000);
    assert_int_equal(settings.handshake_port, 12001);
    assert_int_equal(settings.handshake_listen_backlog, 128);
    assert_int_equal(settings.handshake_connect_timeout_seconds, 5);
    assert_int_equal(settings.handshake_reply_timeout_ms, 10000);
    assert_int_equal(settings.handshake_maximum_length, 1048576);
    assert_int_equal(settings.metadata_refresh_interval_seconds, 0);
    assert_int_equal(settings.slice_timeout_seconds, -1);
    assert_string_equal(settings.log_level, "INFO");
    assert_false(settings.metrics);
    assert_int_equal(settings.metrics_interval_seconds, 5);
    assert_true(settings.tcp_connection_pool);
    assert_int_equal(settings.tcp_lanes_per_peer, 4);
    assert_int_equal(settings.tcp_slice_size_bytes, 1048576);
    assert_false(settings.tcp_force_version_1);
    assert_int_equal(settings.tcp_status_timeout_seconds, 0);
    assert_int_equal(settings.tcp_progress_timeout_seconds, 0);
    assert_int_equal(settings.tcp_silence_timeout_ms, 10000);
    assert_int_equal(settings.tcp_fence_timeout_ms, 500);
    assert_int_equal(settings.tcp_idle_timeout_seconds, 300);
    assert_string_equal(settings.tcp_local_congestion_control, "reno");
    assert_int_equal(settings.io_threads, 0);
    assert_int_equal(settings.spin_us, 50);
    te_settings_clear(&settings);
    expect_nothing_in(warnings);
    expect_nothing_in(informations);
}

static void test_every_name_is_there_once_in_long_and_short_form(void **state)
{
    size_t count;
    const struct te_setting_row *rows = te_settings_rows(&count);

    (void)state;
    for (size_t row = 0; row < count; row++) {
        const char *names[] = {rows[row].name, rows[row].alias};

        assert_true(*rows[row].help != '\0');
        for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
            char *short_form;

            if (!names[i])
                continue;
            assert_int_equal(te_settings_find_row(names[i], false), row);
            if (!g_str_has_prefix(names[i], "MC_") && !g_str_has_prefix(names[i], "TE_"))
                continue;
            short_form = g_ascii_strdown(names[i] + 3, -1);
            assert_int_equal(te_settings_find_row(short_form, true), row);
            assert_int_equal(te_settings_find_row(short_form, false), -1);
            g_free(short_form);
        }
    }
}

static void expect_setting(const struct te_settings *settings, const char *name, const char *expected_value,
                           enum te_settings_source expected_source)
{
    enum te_settings_source source;
    char *value = te_settings_value(settings, (size_t)te_settings_find_row(name, false), &source);

    assert_string_equal(value, expected_value);
    assert_int_equal(source, expected_source);
    g_free(value);
}

static void test_values_and_sources_as_text(void **state)
{
    struct te_settings settings;

    (void)state;
    from_text(&settings, "tcp_lanes_per_peer: 007\nuse_ipv6: true\nuse_tent: tent\ntcp_enable_connection_pool: off\n"
                         "tcp_proto: 1\nlog_level: ERROR\n");
    expect_setting(&settings, "MC_TCP_LANES_PER_PEER", "7", TE_FROM_FILE);
    expect_setting(&settings, "MC_USE_IPV6", "1", TE_FROM_FILE);
    expect_setting(&settings, "MC_USE_TENT", "1", TE_FROM_FILE);
    expect_setting(&settings, "MC_TCP_ENABLE_CONNECTION_POOL", "0", TE_FROM_FILE);
    expect_setting(&settings, "MC_TCP_PROTO", "1", TE_FROM_FILE);
    expect_setting(&settings, "MC_LOG_LEVEL", "ERROR", TE_FROM_FILE);
    expect_setting(&settings, "MC_FORCE_TCP", "", TE_FROM_DEFAULT);
    expect_setting(&settings, "MC_TCP_STATUS_TIMEOUT_SEC", "", TE_FROM_DEFAULT);
    te_settings_clear(&settings);

    load_with(&settings, "MC_CUSTOM_TOPO_JSON", "/topology.json");
    expect_setting(&settings, "MC_CUSTOM_TOPO_JSON", "/topology.json", TE_FROM_ENVIRONMENT);
    te_settings_clear(&settings);
}

/* So that a reader sees at a glance what differs. */
static void test_a_value_that_is_the_default_is_written_as_the_default(void **state)
{
    struct te_settings settings;
    size_t count;
    const struct te_setting_row *rows = te_settings_rows(&count);

    (void)state;
    load(&settings);
    for (size_t row = 0; row < count; row++)
        expect_setting(&settings, rows[row].name, rows[row].default_text ? rows[row].default_text : "",
                       TE_FROM_DEFAULT);
    te_settings_clear(&settings);
    for (size_t row = 0; row < count; row++) {
        if (!rows[row].default_text)
            continue;
        load_with(&settings, rows[row].name, rows[row].default_text);
        expect_setting(&settings, rows[row].name, rows[row].default_text, TE_FROM_ENVIRONMENT);
        te_settings_clear(&settings);
    }
    expect_nothing_in(warnings);
}

/* ---- One class of setting each ---------------------------------------------------------------------------------- */

static void test_presence_counts_whatever_the_value(void **state)
{
    static const char *const values[] = {"", "0", "1", "false"};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(values); i++) {
        load_with(&settings, "MC_FORCE_TCP", values[i]);
        assert_true(settings.force_tcp);
        te_settings_clear(&settings);
    }
    expect_nothing_in(warnings);
}

static void test_boolean_words(void **state)
{
    static const struct {
        const char *text;
        bool pool, metrics;
    } cases[] = {
        {"1", true, true},       {"true", true, true}, {"YES", true, true},   {" on ", true, true}, {"0", false, false},
        {"False", false, false}, {"no", false, false}, {"off", false, false}, {"", true, false},
    };
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        load_with(&settings, "MC_TCP_ENABLE_CONNECTION_POOL", cases[i].text);
        assert_int_equal(settings.tcp_connection_pool, cases[i].pool);
        te_settings_clear(&settings);
        load_with(&settings, "MC_TE_METRIC", cases[i].text);
        assert_int_equal(settings.metrics, cases[i].metrics);
        te_settings_clear(&settings);
    }
    expect_nothing_in(warnings);
    load_with(&settings, "MC_TE_METRIC", "perhaps");
    assert_false(settings.metrics);
    te_settings_clear(&settings);
    expect_in(warnings, "MC_TE_METRIC=perhaps is none of");
}

static void test_tent_is_chosen_by_any_value_but_the_words_for_no(void **state)
{
    static const struct {
        const char *text;
        bool tent;
    } cases[] = {{"1", true},  {"true", true}, {"x", true},   {"", false},
                 {"0", false}, {"OFF", false}, {"no", false}, {"false", false}};
    static const char *const names[] = {"MC_USE_TENT", "MC_USE_TEV1"};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases) * G_N_ELEMENTS(names); i++) {
        load_with(&settings, names[i % 2], cases[i / 2].text);
        assert_int_equal(settings.use_tent, cases[i / 2].tent);
        te_settings_clear(&settings);
    }
    expect_in(informations, "MC_USE_TENT=0 selects the classic runtime");
}

static void test_integers_take_whole_decimal_numbers_in_their_range(void **state)
{
    static const char *const good[] = {"9", " 9 ", "\t9", "0009"};
    static const char *const bad[] = {"",    " ",   "abc", "-1",  "0",  "17",  "1e30",
                                      "9x",  "9 9", "0x9", "9.0", "+9", "--9", "99999999999999999999",
                                      "\xff"};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        load_with(&settings, "MC_TCP_LANES_PER_PEER", good[i]);
        assert_int_equal(settings.tcp_lanes_per_peer, 9);
        te_settings_clear(&settings);
    }
    expect_nothing_in(warnings);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        char *expected = g_strdup_printf("MC_TCP_LANES_PER_PEER=%s is not a whole number in 1..16", bad[i]);

        load_with(&settings, "MC_TCP_LANES_PER_PEER", bad[i]);
        assert_int_equal(settings.tcp_lanes_per_peer, 4);
        te_settings_clear(&settings);
        expect_in(warnings, expected);
        g_free(expected);
    }
}

/* Each number of the table keeps its default, with a warning, for each malformed form. */
static void test_no_malformed_number_becomes_another_number(void **state)
{
    /* The first three appear in no other test: a warning is said once per process. */
    static const char *const bad[] = {"ten", "5x", "-2", "", "1e30", "184467440737095516150"};
    struct te_settings expected;
    size_t count, numbers = 0;
    const struct te_setting_row *rows = te_settings_rows(&count);

    (void)state;
    load(&expected);
    for (size_t row = 0; row < count; row++) {
        char *wanted;

        if (!rows[row].range || !strstr(rows[row].range, ".."))
            continue;
        numbers++;
        wanted = te_settings_value(&expected, row, NULL);
        for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
            struct te_settings settings;
            char *value;

            g_string_truncate(warnings, 0);
            load_with(&settings, rows[row].name, bad[i]);
            value = te_settings_value(&settings, row, NULL);
            assert_string_equal(value, wanted);
            g_free(value);
            te_settings_clear(&settings);
            if (i < 3)
                expect_in(warnings, rows[row].name);
        }
        g_free(wanted);
    }
    assert_true(numbers > 10);
    te_settings_clear(&expected);
}

static void test_slice_timeout_is_off_or_positive(void **state)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } cases[] = {{"1", 1}, {"65535", 65535}, {"-1", -1}, {"0", -1}, {"65536", -1}, {"-5", -1}};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        load_with(&settings, "MC_SLICE_TIMEOUT", cases[i].text);
        assert_int_equal(settings.slice_timeout_seconds, cases[i].seconds);
        te_settings_clear(&settings);
    }
}

static void test_text_that_is_empty_is_not_set(void **state)
{
    struct te_settings settings;

    (void)state;
    load_with(&settings, "MC_CUSTOM_TOPO_JSON", "");
    assert_null(settings.custom_topology_file);
    te_settings_clear(&settings);
    load_with(&settings, "MC_CUSTOM_TOPO_JSON", "/topology.json");
    assert_string_equal(settings.custom_topology_file, "/topology.json");
    te_settings_clear(&settings);
    load_with(&settings, "TE_TCP_LOCAL_CONGESTION_CONTROL", "");
    assert_string_equal(settings.tcp_local_congestion_control, "");
    te_settings_clear(&settings);
}

static void test_choice_is_exact(void **state)
{
    struct te_settings settings;

    (void)state;
    load_with(&settings, "MC_LOG_LEVEL", "ERROR");
    assert_string_equal(settings.log_level, "ERROR");
    te_settings_clear(&settings);
    load_with(&settings, "MC_LOG_LEVEL", "error");
    assert_string_equal(settings.log_level, "INFO");
    te_settings_clear(&settings);
    expect_in(warnings, "MC_LOG_LEVEL=error is none of TRACE, INFO, WARNING, ERROR; MC_LOG_LEVEL stays INFO");
}

static void test_protocol_version_is_one_only_if_exactly_so(void **state)
{
    static const struct {
        const char *text;
        bool version_1;
    } cases[] = {{"1", true}, {"2", false}, {" 1", false}, {"01", false}, {"", false}};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        load_with(&settings, "MC_TCP_PROTO", cases[i].text);
        assert_int_equal(settings.tcp_force_version_1, cases[i].version_1);
        te_settings_clear(&settings);
    }
}

static void test_the_port_range_counts_as_a_whole(void **state)
{
    static const struct {
        const char *minimum, *maximum;
        uint64_t expected_minimum, expected_maximum;
    } cases[] = {
        {"2000", "3000", 2000, 3000},     {"16000", NULL, 16000, 17000},   {NULL, "15000", 15000, 15000},
        {"61000", "65535", 61000, 65535}, {"1024", "32767", 1024, 32767},  {"32767", "61000", 32767, 61000},
        {"1023", "3000", 15000, 17000},   {"2000", "32768", 15000, 17000}, {"60999", "61000", 15000, 17000},
        {"3000", "2000", 15000, 17000},   {"abc", "3000", 15000, 17000},   {"2000", "", 15000, 17000},
        {"2000", "65536", 15000, 17000},  {"18000", NULL, 15000, 17000},
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct te_settings settings;

        if (cases[i].minimum)
            g_setenv("MC_MIN_RPC_PORT", cases[i].minimum, TRUE);
        if (cases[i].maximum)
            g_setenv("MC_MAX_RPC_PORT", cases[i].maximum, TRUE);
        load(&settings);
        assert_int_equal(settings.minimum_port, cases[i].expected_minimum);
        assert_int_equal(settings.maximum_port, cases[i].expected_maximum);
        te_settings_clear(&settings);
        g_unsetenv("MC_MIN_RPC_PORT");
        g_unsetenv("MC_MAX_RPC_PORT");
    }
    expect_in(warnings, "do not make a range; 15000 to 17000 is used");
}

static void test_old_names_count_when_the_new_ones_are_not_set(void **state)
{
    struct te_settings settings;

    (void)state;
    load_with(&settings, "MC_TCP_MAX_CONNECTIONS_PER_PEER", "3");
    assert_int_equal(settings.tcp_lanes_per_peer, 3);
    te_settings_clear(&settings);
    expect_in(informations, "MC_TCP_MAX_CONNECTIONS_PER_PEER is an old name of MC_TCP_LANES_PER_PEER");
    g_setenv("MC_MIN_PRC_PORT", "16000", TRUE);
    load(&settings);
    assert_int_equal(settings.minimum_port, 16000);
    te_settings_clear(&settings);
    load_with(&settings, "MC_MIN_RPC_PORT", "16500");
    assert_int_equal(settings.minimum_port, 16500);
    te_settings_clear(&settings);
}

static void test_the_classic_timeouts_replace_the_silence_timeout(void **state)
{
    static const struct {
        const char *seconds;
        uint64_t expected_ms;
    } cases[] = {{"60", 60000}, {"30", 30000}, {"2", 2000}, {"2147483647", UINT64_C(2147483647000)}};
    static const char *const names[] = {"MC_TCP_STATUS_TIMEOUT_SEC", "MC_TCP_PROGRESS_TIMEOUT_SEC"};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases) * G_N_ELEMENTS(names); i++) {
        load_with(&settings, names[i % 2], cases[i / 2].seconds);
        assert_int_equal(settings.tcp_silence_timeout_ms, cases[i / 2].expected_ms);
        te_settings_clear(&settings);
    }
    /* And so says the table. */
    load_with(&settings, "MC_TCP_PROGRESS_TIMEOUT_SEC", "60");
    expect_setting(&settings, "TE_TCP_SILENCE_TIMEOUT_MS", "60000", TE_FROM_ENVIRONMENT);
    expect_setting(&settings, "MC_TCP_PROGRESS_TIMEOUT_SEC", "60", TE_FROM_ENVIRONMENT);
    expect_setting(&settings, "MC_TCP_STATUS_TIMEOUT_SEC", "", TE_FROM_DEFAULT);
    te_settings_clear(&settings);
    /* The smaller of the two, even where the silence timeout is given as well. */
    from_text(&settings, "tcp_status_timeout_sec: 60\ntcp_progress_timeout_sec: 4\ntcp_silence_timeout_ms: 700\n");
    assert_int_equal(settings.tcp_silence_timeout_ms, 4000);
    te_settings_clear(&settings);
    from_text(&settings, "tcp_status_timeout_sec: 4\ntcp_progress_timeout_sec: 60\n");
    assert_int_equal(settings.tcp_silence_timeout_ms, 4000);
    te_settings_clear(&settings);
    from_text(&settings, "tcp_silence_timeout_ms: 700\n");
    assert_int_equal(settings.tcp_silence_timeout_ms, 700);
    te_settings_clear(&settings);
}

static void test_a_malformed_value_is_as_none(void **state)
{
    static const struct {
        const char *name, *malformed, *expected;
    } cases[] = {
        {"MC_TCP_STATUS_TIMEOUT_SEC", "soon", ""},
        {"MC_TCP_PROGRESS_TIMEOUT_SEC", "soon", ""},
        {"MC_TCP_SLICE_SIZE", "64k", "1048576"},
        {"MC_LOG_LEVEL", "loud", "INFO"},
        {"MC_TCP_PROTO", "3", "2"},
    };
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        load_with(&settings, cases[i].name, cases[i].malformed);
        expect_setting(&settings, cases[i].name, cases[i].expected, TE_FROM_DEFAULT);
        assert_int_equal(settings.tcp_silence_timeout_ms, 10000);
        te_settings_clear(&settings);
    }
    expect_in(warnings, "MC_TCP_PROTO=3 is none of 1, 2; MC_TCP_PROTO stays 2");
    expect_in(warnings, "MC_TCP_STATUS_TIMEOUT_SEC=soon is not a whole number in 1..2147483647; "
                        "MC_TCP_STATUS_TIMEOUT_SEC stays not given");
}

/* ---- Names ------------------------------------------------------------------------------------------------------ */

static void test_unknown_names_are_said_once(void **state)
{
    struct te_settings settings;

    (void)state;
    g_setenv("MC_TCP_LANE_PER_PEER", "3", TRUE);
    g_setenv("TE_TYPO", "", TRUE);
    load(&settings);
    te_settings_clear(&settings);
    expect_in(warnings, "the environment variable MC_TCP_LANE_PER_PEER is not known");
    expect_in(warnings, "the environment variable TE_TYPO is not known");
    g_string_truncate(warnings, 0);
    load(&settings);
    te_settings_clear(&settings);
    expect_nothing_in(warnings);
}

static void test_malformed_values_are_said_once_each(void **state)
{
    struct te_settings settings;

    (void)state;
    for (int i = 0; i < 2; i++) {
        load_with(&settings, "MC_HANDSHAKE_PORT", "seventy");
        te_settings_clear(&settings);
    }
    assert_null(strstr(strstr(warnings->str, "seventy") + 1, "seventy"));
    load_with(&settings, "MC_HANDSHAKE_PORT", "eighty");
    te_settings_clear(&settings);
    expect_in(warnings, "eighty");
}

static void test_names_without_meaning_and_of_callers_are_known(void **state)
{
    static const char *const names[] = {
        "MC_GID_INDEX",    "MC_NUM_QP_PER_EP", "MC_REDIS_PASSWORD",  "MC_LOG_DIR",     "MC_RDMA_NOTIFY_X",
        "MC_TENT_CONF",    "MC_SLICE_SIZE",    "MC_METADATA_SERVER", "MC_TE_PROTOCOL", "MC_TRANSFER_TIMEOUT",
        "MC_STORE_MEMCPY", "TE_TEST_RUNTIME",  "MC_TCP_BIND_ADDRESS"};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        g_setenv(names[i], "secret", TRUE);
    load(&settings);
    expect_setting(&settings, "MC_REDIS_PASSWORD", "", TE_FROM_ENVIRONMENT);
    expect_setting(&settings, "MC_TENT_", "", TE_FROM_ENVIRONMENT);
    expect_setting(&settings, "MC_STORE_", "", TE_FROM_ENVIRONMENT);
    te_settings_clear(&settings);
    expect_nothing_in(warnings);
    expect_in(informations, "MC_GID_INDEX has no meaning here");
    expect_in(informations, "MC_TCP_BIND_ADDRESS has no meaning here: no metadata servers");
    expect_in(informations, "MC_TENT_CONF has no meaning here: no TENT runtime");
    assert_null(strstr(informations->str, "secret"));
    assert_null(strstr(informations->str, "MC_METADATA_SERVER"));
}

/* ---- The file --------------------------------------------------------------------------------------------------- */

static char *write_file(const char *text, size_t length)
{
    char *name = NULL;
    int descriptor = g_file_open_tmp("settings-XXXXXX.yaml", &name, NULL);

    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, text, length), length);
    close(descriptor);
    g_setenv("TE_CONFIG", name, TRUE);
    return name;
}

static void remove_file(char *name)
{
    g_unlink(name);
    g_free(name);
}

static void test_file_takes_both_forms_of_a_name(void **state)
{
    struct te_settings settings;

    (void)state;
    from_text(&settings, "# comment\nforce_tcp: true\nMC_TCP_LANES_PER_PEER: 2\ncustom_topo_json: \"/topology.json\"\n"
                         "TE_SPIN_US: 7\ntcp_fence_timeout_ms: 900\nmin_prc_port: 16001\n");
    assert_true(settings.force_tcp);
    assert_int_equal(settings.tcp_lanes_per_peer, 2);
    assert_string_equal(settings.custom_topology_file, "/topology.json");
    assert_int_equal(settings.spin_us, 7);
    assert_int_equal(settings.tcp_fence_timeout_ms, 900);
    assert_int_equal(settings.minimum_port, 16001);
    te_settings_clear(&settings);
    from_text(&settings, "{\"force_tcp\": false, \"log_level\": \"ERROR\", \"MC_USE_TENT\": 1}");
    assert_false(settings.force_tcp);
    assert_string_equal(settings.log_level, "ERROR");
    assert_true(settings.use_tent);
    te_settings_clear(&settings);
    expect_nothing_in(warnings);
}

static void test_file_may_be_empty(void **state)
{
    static const char *const texts[] = {"", "# nothing\n", "{}", "---\n{}\n...\n"};
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        from_text(&settings, texts[i]);
        assert_int_equal(settings.tcp_lanes_per_peer, 4);
        te_settings_clear(&settings);
    }
}

static void test_malformed_values_in_a_file_are_warned_about_with_their_place(void **state)
{
    struct te_settings settings;

    (void)state;
    from_text(&settings,
              "force_tcp: true\n  \ntcp_lanes_per_peer: many\nno_such_setting: {a: [1, {b: 2}]}\nspin_us: 3\n");
    assert_int_equal(settings.tcp_lanes_per_peer, 4);
    assert_int_equal(settings.spin_us, 3);
    te_settings_clear(&settings);
    expect_in(warnings, "test.yaml:3:1: tcp_lanes_per_peer=many is not a whole number");
    expect_in(warnings, "test.yaml:4:1: no_such_setting is not a known setting");
}

static void test_file_errors_have_a_place(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"- a\n- b\n", "test.yaml:1:1: the file must hold one mapping"},
        {"just text\n", "test.yaml:1:1: the file must hold one mapping"},
        {"force_tcp: true\nspin_us: [1]\n", "test.yaml:2:10: the value of a setting must be a single value"},
        {"spin_us: {a: 1}\n", "test.yaml:1:10: the value of a setting must be a single value"},
        {"? [a]\n: 1\n", "test.yaml:1:3: the name of a setting must be a single text"},
        {"spin_us: 1\nspin_us: 2\n", "test.yaml:2:1: the setting is there twice"},
        {"spin_us: 1\nTE_SPIN_US: 2\n", "test.yaml:2:1: the setting is there twice"},
        {"{}\n---\n{}\n", "test.yaml:2:1: more than one document"},
        {"spin_us: \"unterminated\n", "test.yaml:2:1: "},
        {"spin_us: 1\n\tx: 2\n", "test.yaml:2:1: "},
        {"a: &x 1\nspin_us: *x\n", "test.yaml:2:10: the value of a setting must be a single value"},
        {"spin_us: \"1\\0\"\n", "test.yaml:1:10: a NUL byte"},
        {"x: [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]\n", "test.yaml:1:20: nested too deeply"},
        {"a: \xff\xfe\n", "test.yaml:1:"},
    };
    struct te_settings settings;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        memset(&settings, 0x5a, sizeof(settings));
        assert_int_equal(te_settings_from_text(&settings, "test.yaml", cases[i].text, strlen(cases[i].text)),
                         TE_INVALID_ARGUMENT);
        if (!strstr(te_status_message(), cases[i].expected))
            fail_msg("%s\ngives\n%s", cases[i].text, te_status_message());
        expect_in(warnings, te_status_message());
        assert_int_equal(((unsigned char *)&settings)[0], 0x5a);
    }
}

static void test_environment_wins_over_the_file(void **state)
{
    static const char text[] = "tcp_lanes_per_peer: 2\nspin_us: 3\nlog_level: ERROR\ntcp_proto: 1\n";
    struct te_settings settings;
    char *name;

    (void)state;
    name = write_file(text, strlen(text));
    g_setenv("MC_LOG_LEVEL", "WARNING", TRUE);
    load_with(&settings, "MC_TCP_LANES_PER_PEER", "5");
    assert_int_equal(settings.tcp_lanes_per_peer, 5);
    assert_int_equal(settings.spin_us, 3);
    assert_string_equal(settings.log_level, "WARNING");
    te_settings_clear(&settings);
    load_with(&settings, "MC_TCP_LANES_PER_PEER", "?");
    assert_int_equal(settings.tcp_lanes_per_peer, 2);
    te_settings_clear(&settings);
    expect_in(warnings, "MC_TCP_LANES_PER_PEER=? is not a whole number in 1..16; MC_TCP_LANES_PER_PEER stays 2");
    load_with(&settings, "MC_TCP_PROTO", "?");
    expect_setting(&settings, "MC_TCP_PROTO", "1", TE_FROM_FILE);
    expect_setting(&settings, "TE_CONFIG", name, TE_FROM_ENVIRONMENT);
    assert_true(settings.tcp_force_version_1);
    te_settings_clear(&settings);
    expect_in(warnings, "MC_TCP_PROTO=? is none of 1, 2; MC_TCP_PROTO stays 1");
    remove_file(name);
}

static void test_a_file_does_not_name_another(void **state)
{
    struct te_settings settings;

    (void)state;
    from_text(&settings, "TE_CONFIG: /other.yaml\nspin_us: 3\n");
    assert_null(settings.file_name);
    assert_int_equal(settings.spin_us, 3);
    te_settings_clear(&settings);
    expect_in(warnings, "test.yaml:1:1: TE_CONFIG has no effect in a settings file");
}

static void test_files_that_cannot_be_read(void **state)
{
    struct te_settings settings;
    char *large = g_malloc(TE_SETTINGS_FILE_MAX_BYTES + 1);
    char *name;

    (void)state;
    g_setenv("TE_CONFIG", "/nonexistent/settings.yaml", TRUE);
    assert_int_equal(te_settings_load(&settings), TE_INVALID_ARGUMENT);
    assert_non_null(strstr(te_status_message(), "TE_CONFIG=/nonexistent/settings.yaml cannot be read"));
    g_setenv("TE_CONFIG", "/", TRUE);
    assert_int_equal(te_settings_load(&settings), TE_INVALID_ARGUMENT);
    memset(large, '#', TE_SETTINGS_FILE_MAX_BYTES + 1);
    name = write_file(large, TE_SETTINGS_FILE_MAX_BYTES + 1);
    assert_int_equal(te_settings_load(&settings), TE_INVALID_ARGUMENT);
    remove_file(name);
    name = write_file(large, TE_SETTINGS_FILE_MAX_BYTES);
    assert_int_equal(te_settings_load(&settings), TE_OK);
    te_settings_clear(&settings);
    g_unlink(name);
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_int_equal(te_settings_load(&settings), TE_INVALID_ARGUMENT);
    remove_file(name);
    g_free(large);
    g_setenv("TE_CONFIG", "", TRUE);
    load(&settings);
    te_settings_clear(&settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_defaults, clean),
        cmocka_unit_test_setup(test_every_name_is_there_once_in_long_and_short_form, clean),
        cmocka_unit_test_setup(test_values_and_sources_as_text, clean),
        cmocka_unit_test_setup(test_presence_counts_whatever_the_value, clean),
        cmocka_unit_test_setup(test_boolean_words, clean),
        cmocka_unit_test_setup(test_tent_is_chosen_by_any_value_but_the_words_for_no, clean),
        cmocka_unit_test_setup(test_integers_take_whole_decimal_numbers_in_their_range, clean),
        cmocka_unit_test_setup(test_the_port_range_counts_as_a_whole, clean),
        cmocka_unit_test_setup(test_no_malformed_number_becomes_another_number, clean),
        cmocka_unit_test_setup(test_slice_timeout_is_off_or_positive, clean),
        cmocka_unit_test_setup(test_text_that_is_empty_is_not_set, clean),
        cmocka_unit_test_setup(test_choice_is_exact, clean),
        cmocka_unit_test_setup(test_protocol_version_is_one_only_if_exactly_so, clean),
        cmocka_unit_test_setup(test_old_names_count_when_the_new_ones_are_not_set, clean),
        cmocka_unit_test_setup(test_the_classic_timeouts_replace_the_silence_timeout, clean),
        cmocka_unit_test_setup(test_a_malformed_value_is_as_none, clean),
        cmocka_unit_test_setup(test_unknown_names_are_said_once, clean),
        cmocka_unit_test_setup(test_malformed_values_are_said_once_each, clean),
        cmocka_unit_test_setup(test_names_without_meaning_and_of_callers_are_known, clean),
        cmocka_unit_test_setup(test_file_takes_both_forms_of_a_name, clean),
        cmocka_unit_test_setup(test_file_may_be_empty, clean),
        cmocka_unit_test_setup(test_malformed_values_in_a_file_are_warned_about_with_their_place, clean),
        cmocka_unit_test_setup(test_file_errors_have_a_place, clean),
        cmocka_unit_test_setup(test_environment_wins_over_the_file, clean),
        cmocka_unit_test_setup(test_a_file_does_not_name_another, clean),
        cmocka_unit_test_setup(test_files_that_cannot_be_read, clean),
        /* Last: it says what others expect to be said for the first time. */
        cmocka_unit_test_setup(test_a_value_that_is_the_default_is_written_as_the_default, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
