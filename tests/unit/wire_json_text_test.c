/* The JSON dialect of classic specification 2.1: what we write, and what we take from others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "wire/classic/json_text.h"

static void assert_written(const char *bytes, size_t length, enum te_json_foreign_bytes foreign, const char *expected)
{
    GString *text = g_string_new(NULL);

    te_json_bytes(text, bytes, length, foreign);
    assert_string_equal(text->str, expected);
    g_string_free(text, TRUE);
}

static void test_escapes(void **state)
{
    (void)state;
    assert_written("", 0, TE_JSON_REPLACE_FOREIGN, "\"\"");
    assert_written("a/b\x7f\"\\", 6, TE_JSON_REPLACE_FOREIGN, "\"a/b\x7f\\\"\\\\\"");
    assert_written("\b\f\n\r\t", 5, TE_JSON_REPLACE_FOREIGN, "\"\\b\\f\\n\\r\\t\"");
    assert_written("\0\x01\x1f", 3, TE_JSON_REPLACE_FOREIGN, "\"\\u0000\\u0001\\u001f\"");
    assert_written("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, TE_JSON_REPLACE_FOREIGN,
                   "\"\\u00e9\\u20ac\\ud83d\\ude00\"");
    assert_written("\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf", 14, TE_JSON_REPLACE_FOREIGN,
                   "\"\\u0080\\u07ff\\u0800\\uffff\\udbff\\udfff\"");
}

static void test_foreign_bytes(void **state)
{
    /* Each one alone, cut short, overlong, a surrogate, beyond U+10FFFF. */
    static const char *const foreign[] = {"\xff",     "\x80",         "\xc3",         "\xe2\x82",
                                          "\xc0\x80", "\xed\xa0\x80", "\xf0\x9f\x98", "\xf4\x90\x80\x80"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(foreign); i++) {
        GString *replaced = g_string_new("\"");
        char *kept = g_strdup_printf("\"%s\"", foreign[i]);

        for (size_t k = 0; k < strlen(foreign[i]); k++)
            g_string_append(replaced, "\\ufffd");
        g_string_append_c(replaced, '"');
        assert_written(foreign[i], strlen(foreign[i]), TE_JSON_REPLACE_FOREIGN, replaced->str);
        assert_written(foreign[i], strlen(foreign[i]), TE_JSON_KEEP_FOREIGN, kept);
        g_string_free(replaced, TRUE);
        g_free(kept);
    }
    assert_written("\xe9t\xc3\xa9", 4, TE_JSON_KEEP_FOREIGN, "\"\xe9t\\u00e9\"");
}

static void test_structure(void **state)
{
    GString *text = g_string_new(NULL);

    (void)state;
    te_json_begin_object(text);
    te_json_key(text, "a");
    te_json_begin_array(text);
    te_json_end_array(text);
    te_json_key(text, "b");
    te_json_begin_array(text);
    te_json_unsigned(text, 0);
    te_json_unsigned(text, UINT64_MAX);
    te_json_signed(text, INT64_MIN);
    te_json_signed(text, -1);
    te_json_signed(text, INT64_MAX);
    te_json_string(text, "[");
    te_json_string(text, NULL);
    te_json_begin_object(text);
    te_json_end_object(text);
    te_json_null(text);
    te_json_end_array(text);
    te_json_key(text, "c");
    te_json_boolean(text, true);
    te_json_key(text, "d");
    te_json_raw(text, "{\"x\":[1]}");
    te_json_key(text, "e");
    te_json_boolean(text, false);
    te_json_end_object(text);
    te_json_end_line(text);
    assert_string_equal(text->str,
                        "{\"a\":[],\"b\":[0,18446744073709551615,-9223372036854775808,-1,9223372036854775807,"
                        "\"[\",\"\",{},null],\"c\":true,\"d\":{\"x\":[1]},\"e\":false}\n");
    g_string_free(text, TRUE);
}

static te_status parse(const char *text, struct json_object **value)
{
    return te_json_parse(text, strlen(text), value);
}

static void test_what_is_read(void **state)
{
    static const char *const texts[] = {
        "null",
        "5",
        " -5.5e3 ",
        "true",
        "\"a\"",
        "[]",
        "{}",
        "{} garbage",
        "[1] ]",
        "/* c */ {\"a\" : /* d */ 1}",
        "// c\n{}",
        "[1,2,]",
        "{\"a\":1,}",
        "{\"a\":1,\"a\":2}",
        "\xef\xbb\xbf{}",
        "\"\xff\xfe\"",
        "\"\\u0000\\ud83d\\ude00\\/\"",
    };

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        struct json_object *value = NULL;

        assert_int_equal(parse(texts[i], &value), TE_OK);
        json_object_put(value);
    }
}

static void test_what_is_refused(void **state)
{
    static const char *const texts[] = {"",         " ",        "\xef\xbb\xbf", "{",      "[1",    "\"a", "{\"a\"",
                                        "{\"a\"1}", "{\"a\":}", "hello",        "<xml/>", "tru",   "-",   "]",
                                        "{,}",      "/* c",     "\xff",         "\x04{}", "\x7f{}"};
    struct json_object *value = NULL;

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++)
        assert_int_equal(parse(texts[i], &value), TE_MALFORMED_JSON);
    assert_int_equal(te_json_parse("{\"a\":\"\0\"}", 9, &value), TE_MALFORMED_JSON);
    assert_int_equal(te_json_parse("{}", (size_t)INT32_MAX + 1, &value), TE_MALFORMED_JSON);
    assert_null(value);
}

static te_status parse_nested(const char *open, const char *inside, const char *close, size_t depth)
{
    GString *text = g_string_new(NULL);
    struct json_object *value = NULL;
    te_status status;

    for (size_t i = 0; i < depth; i++)
        g_string_append(text, open);
    g_string_append(text, inside);
    for (size_t i = 0; i < depth; i++)
        g_string_append(text, close);
    status = te_json_parse(text->str, text->len, &value);
    json_object_put(value);
    g_string_free(text, TRUE);
    return status;
}

static void test_depth(void **state)
{
    (void)state;
    assert_int_equal(parse_nested("[", "", "]", TE_JSON_MAXIMUM_DEPTH), TE_OK);
    assert_int_equal(parse_nested("[", "", "]", TE_JSON_MAXIMUM_DEPTH + 1), TE_MALFORMED_JSON);
    assert_int_equal(parse_nested("{\"a\":", "{}", "}", TE_JSON_MAXIMUM_DEPTH - 1), TE_OK);
    assert_int_equal(parse_nested("{\"a\":", "{}", "}", TE_JSON_MAXIMUM_DEPTH), TE_MALFORMED_JSON);
    assert_int_equal(parse_nested("[", "", "", 1000000), TE_MALFORMED_JSON);
}

static te_status parse_repeated(const char *before, const char *repeated, size_t count, const char *after)
{
    GString *text = g_string_new(before);
    struct json_object *value = NULL;
    te_status status;

    for (size_t i = 0; i < count; i++)
        g_string_append(text, repeated);
    g_string_append(text, after);
    status = te_json_parse(text->str, text->len, &value);
    json_object_put(value);
    g_string_free(text, TRUE);
    return status;
}

/* A text cannot ask for a hundred times its size in memory; what looks like brackets in a string is no matter. */
static void test_crowds(void **state)
{
    enum { MANY = 300000 };

    (void)state;
    assert_int_equal(parse_repeated("[", "{},", MANY, "1]"), TE_MALFORMED_JSON);
    assert_int_equal(parse_repeated("[", "[],", MANY, "1]"), TE_MALFORMED_JSON);
    assert_int_equal(parse_repeated("/***/ \" */[", "{},", MANY, "1]"), TE_MALFORMED_JSON);
    assert_int_equal(parse_repeated("// \"\n[", "{},", MANY, "1]"), TE_MALFORMED_JSON);
    assert_int_equal(parse_repeated("[\"\\\"\",", "{},", MANY, "1]"), TE_MALFORMED_JSON);
    assert_int_equal(parse_repeated("['\\'\"',", "{},", MANY, "1]"), TE_MALFORMED_JSON);
    assert_int_equal(parse_repeated("[", "{},", 900, "1]"), TE_OK);
    assert_int_equal(parse_repeated("\"", "[{", MANY, "\""), TE_OK);
    assert_int_equal(parse_repeated("\"", "\\\"[", MANY, "\""), TE_OK);
    assert_int_equal(
        parse_repeated("[", "{\"addr\":4096,\"length\":1,\"lkey\":[1],\"name\":\"a\",\"rkey\":[2]},", MANY, "1]"),
        TE_OK);
}

static void test_roots(void **state)
{
    struct json_object *object = NULL;

    (void)state;
    assert_int_equal(te_json_parse_object("{\"a\":null,\"b\":1}", 16, &object), TE_OK);
    assert_true(te_json_has(object, "a"));
    assert_null(te_json_member(object, "a"));
    assert_non_null(te_json_member(object, "b"));
    assert_false(te_json_has(object, "c"));
    json_object_put(object);
    assert_int_equal(te_json_parse_object("null", 4, &object), TE_OK);
    assert_null(object);
    assert_false(te_json_has(object, "a"));
    assert_null(te_json_member(object, "a"));
    assert_int_equal(te_json_parse_object("[1]", 3, &object), TE_MALFORMED_JSON);
    assert_int_equal(te_json_parse_object("\"s\"", 3, &object), TE_MALFORMED_JSON);
    assert_int_equal(te_json_parse_object("5", 1, &object), TE_MALFORMED_JSON);
}

/* expected NULL: refused. */
static void assert_text(const char *json, const char *expected, size_t expected_length)
{
    struct json_object *value = NULL;
    char *text = NULL;
    size_t length = 0;

    assert_int_equal(parse(json, &value), TE_OK);
    if (expected) {
        assert_int_equal(te_json_to_text(value, &text, &length), TE_OK);
        assert_int_equal(length, expected_length);
        assert_memory_equal(text, expected, length + 1);
        g_free(text);
        assert_int_equal(te_json_to_text(value, &text, NULL), TE_OK);
        g_free(text);
    } else {
        assert_int_equal(te_json_to_text(value, &text, &length), TE_MALFORMED_JSON);
        assert_null(text);
    }
    json_object_put(value);
}

static void test_conversion_to_text(void **state)
{
    (void)state;
    assert_text("null", "", 0);
    assert_text("\"a\\u0000b\"", "a\0b", 3);
    assert_text("\"\xff\"", "\xff", 1);
    assert_text("\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4);
    assert_text("\"\\ud83d\"", "\xef\xbf\xbd", 3);
    assert_text("\"\\uD8B7\\uDC60\\ud83D\\uDe00\"", "\xf0\xbd\xb1\xa0\xf0\x9f\x98\x80", 8);
    assert_text("\"\\\\ud83d\\\\ude00\"", "\\ud83d\\ude00", 12);
    assert_text("\"\\\\ud83d\\ude00\"", "\\ud83d\xef\xbf\xbd", 9);
    assert_text("\"\\ud83d\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80", 7);
    assert_text("5", "5", 1);
    assert_text("-5", "-5", 2);
    assert_text("18446744073709551615", "18446744073709551615", 20);
    assert_text("true", "true", 4);
    assert_text("false", "false", 5);
    assert_text("1.5", "1.5", 3);
    assert_text("2.0", "2.0", 3);
    assert_text("1e3", "1000.0", 6);
    assert_text("1e300", "1.0000000000000001e+300", 23);
    assert_text("0.1", "0.10000000000000001", 19);
    assert_text("[]", NULL, 0);
    assert_text("{}", NULL, 0);
}

static void assert_unsigned(const char *json, uint64_t maximum, te_status expected_status, uint64_t expected)
{
    struct json_object *value = NULL;
    uint64_t number = 77;

    assert_int_equal(parse(json, &value), TE_OK);
    assert_int_equal(te_json_to_unsigned(value, maximum, &number), expected_status);
    assert_true(number == (expected_status == TE_OK ? expected : 77));
    json_object_put(value);
}

static void assert_signed(const char *json, int64_t minimum, int64_t maximum, te_status expected_status,
                          int64_t expected)
{
    struct json_object *value = NULL;
    int64_t number = 77;

    assert_int_equal(parse(json, &value), TE_OK);
    assert_int_equal(te_json_to_signed(value, minimum, maximum, &number), expected_status);
    assert_true(number == (expected_status == TE_OK ? expected : 77));
    json_object_put(value);
}

static void test_conversion_to_numbers(void **state)
{
    static const char *const no_numbers[] = {"\"5\"", "\"\"", "[]", "[5]", "{}"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(no_numbers); i++) {
        assert_unsigned(no_numbers[i], UINT64_MAX, TE_MALFORMED_JSON, 0);
        assert_signed(no_numbers[i], INT64_MIN, INT64_MAX, TE_MALFORMED_JSON, 0);
    }
    assert_unsigned("null", 10, TE_OK, 0);
    assert_unsigned("true", 10, TE_OK, 1);
    assert_unsigned("false", 10, TE_OK, 0);
    assert_unsigned("10", 10, TE_OK, 10);
    assert_unsigned("11", 10, TE_MALFORMED_JSON, 0);
    assert_unsigned("-1", UINT64_MAX, TE_MALFORMED_JSON, 0);
    assert_unsigned("18446744073709551615", UINT64_MAX, TE_OK, UINT64_MAX);
    assert_unsigned("4096.5", UINT64_MAX, TE_OK, 4096);
    assert_unsigned("1e3", UINT64_MAX, TE_OK, 1000);
    assert_unsigned("-0.5", UINT64_MAX, TE_MALFORMED_JSON, 0);
    assert_unsigned("18446744073709551616.0", UINT64_MAX, TE_MALFORMED_JSON, 0);
    assert_unsigned("1e400", UINT64_MAX, TE_MALFORMED_JSON, 0);
    assert_unsigned("NaN", UINT64_MAX, TE_MALFORMED_JSON, 0);
    assert_signed("-5", -5, 5, TE_OK, -5);
    assert_signed("-6", -5, 5, TE_MALFORMED_JSON, 0);
    assert_signed("6", -5, 5, TE_MALFORMED_JSON, 0);
    assert_signed("-2.9", -5, 5, TE_OK, -2);
    assert_signed("null", -5, 5, TE_OK, 0);
    assert_signed("true", -5, 5, TE_OK, 1);
    assert_signed("-9223372036854775808", INT64_MIN, INT64_MAX, TE_OK, INT64_MIN);
    assert_signed("9223372036854775808", INT64_MIN, INT64_MAX, TE_MALFORMED_JSON, 0);
    assert_signed("9223372036854775808.0", INT64_MIN, INT64_MAX, TE_MALFORMED_JSON, 0);
    assert_signed("-1e19", INT64_MIN, INT64_MAX, TE_MALFORMED_JSON, 0);
}

static void assert_array(const char *json, te_status expected_status, size_t expected)
{
    struct json_object *value = NULL;
    size_t length = 77;

    assert_int_equal(parse(json, &value), TE_OK);
    assert_int_equal(te_json_array_length(value, &length), expected_status);
    assert_int_equal(length, expected_status == TE_OK ? expected : 77);
    json_object_put(value);
}

static void test_arrays(void **state)
{
    (void)state;
    assert_array("[1,2]", TE_OK, 2);
    assert_array("[]", TE_OK, 0);
    assert_array("null", TE_OK, 0);
    assert_array("{}", TE_OK, 0);
    assert_array("{\"a\":1}", TE_MALFORMED_JSON, 0);
    assert_array("5", TE_MALFORMED_JSON, 0);
    assert_array("\"\"", TE_MALFORMED_JSON, 0);
}

/* Any bytes survive writing and reading when foreign ones are kept. */
static void test_random_bytes_survive(void **state)
{
    GRand *random = g_rand_new_with_seed(1);

    (void)state;
    for (size_t round = 0; round < 20000; round++) {
        char bytes[40], *read_back;
        size_t length = (size_t)g_rand_int_range(random, 0, sizeof(bytes)), read_length;
        GString *text = g_string_new(NULL);
        struct json_object *value = NULL;

        for (size_t i = 0; i < length; i++)
            bytes[i] = (char)g_rand_int_range(random, round % 2 ? 0 : 0x80, 0x100);
        te_json_bytes(text, bytes, length, TE_JSON_KEEP_FOREIGN);
        assert_int_equal(te_json_parse(text->str, text->len, &value), TE_OK);
        assert_int_equal(te_json_to_text(value, &read_back, &read_length), TE_OK);
        assert_int_equal(read_length, length);
        assert_memory_equal(read_back, bytes, length);
        g_free(read_back);
        json_object_put(value);
        g_string_truncate(text, 0);
        te_json_bytes(text, bytes, length, TE_JSON_REPLACE_FOREIGN);
        for (size_t i = 0; i < text->len; i++)
            assert_true((unsigned char)text->str[i] >= 0x20 && (unsigned char)text->str[i] < 0x80);
        g_string_free(text, TRUE);
    }
    g_rand_free(random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_crowds),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_conversion_to_text),
        cmocka_unit_test(test_conversion_to_numbers),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_random_bytes_survive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
