/* What te_setting_at tells, and that it is what an engine takes. */
#include <stdlib.h>

#include "support.h"

static void expect(const char *name, const char *value, int source)
{
    te_setting_t setting = setting_named(name);
    if (strcmp(setting.value, value) != 0 || setting.source != source)
        fail_msg("%s is \"%s\" from %d, not \"%s\" from %d", name, setting.value, setting.source, value, source);
}

/* Takes back what every test begins with. */
static void nothing_given(void)
{
    unsetenv("MC_LOG_LEVEL");
    unsetenv("MC_USE_TENT");
}

/* A settings file that the next engines read. */
static char file_name[] = "/tmp/te-settings-XXXXXX";

static void remove_file(void *data)
{
    unlink(data);
    memcpy(data, "/tmp/te-settings-XXXXXX", sizeof(file_name));
}

static void write_file(const char *text)
{
    int descriptor = mkstemp(file_name);
    assert_true(descriptor >= 0);
    at_test_end(remove_file, file_name);
    assert_int_equal(write(descriptor, text, strlen(text)), strlen(text));
    close(descriptor);
    setenv("TE_CONFIG", file_name, 1);
}

static void ext_every_setting_is_told_once(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    te_setting_t setting = {.struct_size = sizeof(setting)};
    const char *names[MANY];
    size_t count = 0;
    size_t with_effect = 0;
    nothing_given();
    for (; te_setting_at(count, &setting) == 1; count++) {
        assert_in_range(count, 0, MANY - 1);
        for (size_t other = 0; other < count; other++)
            assert_string_not_equal(setting.name, names[other]);
        names[count] = setting.name; /* static */
        assert_true(*setting.name && *setting.group && *setting.help);
        assert_int_equal(*setting.accepted != '\0', setting.has_effect);
        assert_in_range(setting.has_effect, 0, 1);
        assert_string_equal(setting.value, setting.default_value);
        if (setting.has_effect) /* others may be given for other programs */
            assert_int_equal(setting.source, TE_SETTING_FROM_DEFAULT);
        with_effect += (size_t)setting.has_effect;
    }
    assert_true(with_effect > 20 && count > with_effect + 50);
    te_setting_t untouched = setting;
    assert_int_equal(te_setting_at(count, &setting), 0);
    assert_int_equal(te_setting_at(SIZE_MAX, &setting), 0);
    assert_memory_equal(&setting, &untouched, sizeof(setting));
}

static void ext_a_setting_says_where_its_value_comes_from(void **state)
{
    (void)state;
    nothing_given();
    expect("MC_TCP_LANES_PER_PEER", "4", TE_SETTING_FROM_DEFAULT);
    expect("MC_FORCE_TCP", "", TE_SETTING_FROM_DEFAULT);
    write_file("tcp_lanes_per_peer: 3\nspin_us: 7\nforce_tcp: yes\n");
    setenv("MC_TCP_LANES_PER_PEER", " 5 ", 1);
    setenv("MC_MIN_PRC_PORT", "15500", 1); /* the other name of MC_MIN_RPC_PORT */
    setenv("MC_TCP_PROTO", "many", 1);
    setenv("MC_TCP_PROGRESS_TIMEOUT_SEC", "20", 1); /* counts in place of a setting of ours */
    expect("TE_CONFIG", file_name, TE_SETTING_FROM_ENVIRONMENT);
    expect("MC_TCP_LANES_PER_PEER", "5", TE_SETTING_FROM_ENVIRONMENT);
    expect("TE_SPIN_US", "7", TE_SETTING_FROM_FILE);
    expect("MC_FORCE_TCP", "1", TE_SETTING_FROM_FILE);
    expect("MC_MIN_RPC_PORT", "15500", TE_SETTING_FROM_ENVIRONMENT);
    expect("MC_TCP_PROTO", "2", TE_SETTING_FROM_DEFAULT);
    expect("TE_TCP_SILENCE_TIMEOUT_MS", "20000", TE_SETTING_FROM_ENVIRONMENT);
    expect("MC_LOG_LEVEL", "INFO", TE_SETTING_FROM_DEFAULT);
    assert_string_equal(setting_named("MC_MIN_RPC_PORT").alias, "MC_MIN_PRC_PORT");
    assert_null(setting_named("MC_LOG_LEVEL").alias);
    assert_string_equal(setting_named("MC_LOG_LEVEL").accepted, "TRACE, INFO, WARNING, ERROR");
}

static void ext_a_setting_has_the_value_that_an_engine_takes(void **state)
{
    (void)state;
    setenv("MC_MAX_RPC_PORT", "99999", 1); /* then neither end of the range counts */
    setenv("MC_MIN_RPC_PORT", "17500", 1);
    expect("MC_MIN_RPC_PORT", "15000", TE_SETTING_FROM_DEFAULT);
    assert_in_range(te_port(engine_new()), 15000, 17000);
    setenv("MC_MAX_RPC_PORT", "17600", 1);
    expect("MC_MIN_RPC_PORT", "17500", TE_SETTING_FROM_ENVIRONMENT);
    expect("MC_MAX_RPC_PORT", "17600", TE_SETTING_FROM_ENVIRONMENT);
    assert_in_range(te_port(engine_new()), 17500, 17600);
}

static void ext_a_name_without_effect_says_why(void **state)
{
    (void)state;
    setenv("MC_REDIS_PASSWORD", "secret", 1);
    setenv("MC_TENT_CONF", "/tent.json", 1);
    te_setting_t setting = setting_named("MC_REDIS_PASSWORD");
    assert_int_equal(setting.has_effect, 0);
    assert_string_equal(setting.help, "no Redis client");
    assert_string_equal(setting.value, ""); /* no secret is told */
    assert_int_equal(setting.source, TE_SETTING_FROM_ENVIRONMENT);
    expect("MC_TENT_", "", TE_SETTING_FROM_ENVIRONMENT);
    expect("MC_REDIS_USERNAME", "", TE_SETTING_FROM_DEFAULT);
}

static void ext_a_settings_file_that_cannot_be_used_is_an_error(void **state)
{
    (void)state;
    te_setting_t setting = {.struct_size = sizeof(setting), .name = "untouched"};
    write_file("spin_us: [1]\n");
    assert_null(engine_try_new("P2PHANDSHAKE", "127.0.0.1", 0));
    assert_int_equal(te_setting_at(0, &setting), ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(te_last_error(), ":1:10: "));
    assert_string_equal(setting.name, "untouched");
}

static void ext_a_setting_is_as_large_as_the_caller_knows_it(void **state)
{
    (void)state;
    struct {
        te_setting_t known;
        unsigned char more[40];
    } larger;
    memset(&larger, 0x7e, sizeof(larger));
    assert_int_equal(te_setting_at(0, NULL), ERR_INVALID_ARGUMENT);
    larger.known.struct_size = sizeof(larger.known) - 1;
    assert_int_equal(te_setting_at(0, &larger.known), ERR_INVALID_ARGUMENT);
    larger.known.struct_size = 0;
    assert_int_equal(te_setting_at(0, &larger.known), ERR_INVALID_ARGUMENT);
    larger.known.struct_size = SIZE_MAX;
    assert_int_equal(te_setting_at(0, &larger.known), ERR_INVALID_ARGUMENT);
    assert_bytes(larger.known.value, sizeof(larger.known.value), 0x7e);
    larger.known.struct_size = sizeof(larger.known);
    assert_int_equal(te_setting_at(0, &larger.known), 1);
    assert_bytes(larger.more, sizeof(larger.more), 0x7e);
    larger.known.struct_size = sizeof(larger) - 8;
    assert_int_equal(te_setting_at(0, &larger.known), 1);
    assert_int_equal(larger.known.struct_size, sizeof(larger) - 8);
    assert_bytes(larger.more, sizeof(larger.more) - 8, 0);
    assert_bytes(larger.more + sizeof(larger.more) - 8, 8, 0x7e);
}

static void ext_a_value_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char text[2 * TE_SETTING_VALUE_MAX];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    setenv("MC_CUSTOM_TOPO_JSON", text, 1);
    text[TE_SETTING_VALUE_MAX - 1] = '\0';
    expect("MC_CUSTOM_TOPO_JSON", text, TE_SETTING_FROM_ENVIRONMENT);
}

static void count_line(int level, const char *message, void *user_data)
{
    if (level >= TE_LOG_LEVEL_WARNING && strstr(message, "frobnicate"))
        ++*(unsigned *)user_data;
}

static void ext_what_is_wrong_with_a_setting_is_said_once(void **state)
{
    (void)state;
    static unsigned lines; /* warnings come in this thread */
    setenv("MC_HANDSHAKE_PORT", "frobnicate", 1);
    te_set_log_callback(count_line, &lines);
    expect("MC_HANDSHAKE_PORT", "12001", TE_SETTING_FROM_DEFAULT);
    assert_int_equal(lines, 1);
    engine_new();
    expect("MC_HANDSHAKE_PORT", "12001", TE_SETTING_FROM_DEFAULT);
    te_set_log_callback(NULL, NULL);
    assert_int_equal(lines, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(ext_every_setting_is_told_once),
        TEST(ext_a_setting_says_where_its_value_comes_from),
        TEST(ext_a_setting_has_the_value_that_an_engine_takes),
        TEST(ext_a_name_without_effect_says_why),
        TEST(ext_a_settings_file_that_cannot_be_used_is_an_error),
        TEST(ext_a_setting_is_as_large_as_the_caller_knows_it),
        TEST(ext_a_value_that_is_too_long_is_cut),
        TEST(ext_what_is_wrong_with_a_setting_is_said_once),
    };
    return RUN_TESTS(tests, argc, argv);
}
