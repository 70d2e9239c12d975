#include "wire/classic/json_text.h"

#include <math.h>
#include <string.h>

#include <json-c/json.h>

/* json-c spends several hundred bytes on an object, so a small text can ask for much memory. No writer packs objects
 * and arrays nearly as densely as this allows. What stands in strings does not count; once there is a comment, and with
 * it doubt about what is a string, everything does. */
static bool is_overcrowded(const char *text, size_t length)
{
    const size_t limit = 1000 + length / 16;
    bool comments = false;
    size_t count = 0;
    char quote = 0;

    for (size_t i = 0; i < length && count <= limit; i++) {
        if (quote && !comments) {
            if (text[i] == quote)
                quote = 0;
            else if (text[i] == '\\')
                i++;
        } else if (text[i] == '"' || text[i] == '\'') {
            quote = text[i];
        } else if (text[i] == '/') {
            comments = true;
        } else if (text[i] == '{' || text[i] == '[') {
            count++;
        }
    }
    return count > limit;
}

/* The number in "\\uXXXX", or 0 (which nobody here looks for). */
static unsigned unit_at(const char *text, size_t length)
{
    unsigned unit = 0;

    if (length < 6 || text[0] != '\\' || text[1] != 'u')
        return 0;
    for (size_t i = 2; i < 6; i++) {
        int digit = g_ascii_xdigit_value(text[i]);

        if (digit < 0)
            return 0;
        unit = unit << 4 | (unsigned)digit;
    }
    return unit;
}

/* json-c 0.16 takes a character beyond U+FFFF whose low 16 bits look like a surrogate for one, and replaces it. So the
 * escaped pairs are turned into plain UTF-8 before it sees them. Returns the new length; output has room for length
 * bytes. */
static size_t join_surrogate_pairs(const char *text, size_t length, char *output)
{
    size_t done = 0, written = 0;

    while (done < length) {
        unsigned high = unit_at(text + done, length - done);
        unsigned low = high ? unit_at(text + done + 6, length - done - 6) : 0;
        size_t step;

        if (high >= 0xd800 && high <= 0xdbff && low >= 0xdc00 && low <= 0xdfff) {
            gunichar character = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);

            written += (size_t)g_unichar_to_utf8(character, output + written);
            done += 12;
            continue;
        }
        /* A backslash takes what it escapes along, another backslash in particular. */
        step = text[done] == '\\' && length - done > 1 ? 2 : 1;
        memcpy(output + written, text + done, step);
        written += step;
        done += step;
    }
    return written;
}

static te_status parse_text(const char *text, size_t length, struct json_object **value)
{
    struct json_tokener *tokener = json_tokener_new_ex(TE_JSON_MAXIMUM_DEPTH);
    struct json_object *parsed;
    enum json_tokener_error error;

    if (!tokener)
        return te_fail(TE_MEMORY, "no memory to read JSON");
    parsed = json_tokener_parse_ex(tokener, text, (int)length);
    /* A number at the root ends only with what follows it. */
    if (json_tokener_get_error(tokener) == json_tokener_continue)
        parsed = json_tokener_parse_ex(tokener, "\n", 1);
    error = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    if (error != json_tokener_success)
        return te_fail(TE_MALFORMED_JSON, "not JSON: %s",
                       error == json_tokener_continue ? "the text is incomplete" : json_tokener_error_desc(error));
    *value = parsed;
    return TE_OK;
}

te_status te_json_parse(const char *text, size_t length, struct json_object **value)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    te_status status;
    char *joined;

    if (length > INT32_MAX)
        return te_fail(TE_MALFORMED_JSON, "JSON text of %zu bytes is too long", length);
    if (length >= 3 && memcmp(text, byte_order_mark, 3) == 0) {
        text += 3;
        length -= 3;
    }
    if (is_overcrowded(text, length))
        return te_fail(TE_MALFORMED_JSON, "JSON text of %zu bytes has too many objects and arrays", length);
    if (!memmem(text, length, "\\ud", 3) && !memmem(text, length, "\\uD", 3))
        return parse_text(text, length, value);
    joined = g_try_malloc(length);
    if (!joined)
        return te_fail(TE_MEMORY, "no memory for a JSON text of %zu bytes", length);
    status = parse_text(joined, join_surrogate_pairs(text, length, joined), value);
    g_free(joined);
    return status;
}

te_status te_json_parse_object(const char *text, size_t length, struct json_object **object)
{
    struct json_object *value = NULL;
    te_status status = te_json_parse(text, length, &value);

    if (status != TE_OK)
        return status;
    if (value && !json_object_is_type(value, json_type_object)) {
        json_object_put(value);
        return te_fail(TE_MALFORMED_JSON, "the JSON text is no object");
    }
    *object = value;
    return TE_OK;
}

struct json_object *te_json_member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    json_object_object_get_ex(object, key, &value);
    return value;
}

bool te_json_has(struct json_object *object, const char *key)
{
    return json_object_object_get_ex(object, key, NULL);
}

/* 17 digits, and never like an integer: a real reader marks what was given as a real number. */
static const char *format_real(char buffer[G_ASCII_DTOSTR_BUF_SIZE], double number)
{
    g_ascii_formatd(buffer, G_ASCII_DTOSTR_BUF_SIZE - 2, "%.17g", number);
    if (isfinite(number) && !strpbrk(buffer, ".e"))
        g_strlcat(buffer, ".0", G_ASCII_DTOSTR_BUF_SIZE);
    return buffer;
}

te_status te_json_to_text(struct json_object *value, char **text, size_t *length)
{
    char buffer[G_ASCII_DTOSTR_BUF_SIZE];
    const char *bytes = "";
    size_t count;
    char *copy;

    switch (json_object_get_type(value)) {
    case json_type_null:
        count = 0;
        break;
    case json_type_boolean:
    case json_type_int:
        bytes = json_object_get_string(value);
        count = bytes ? strlen(bytes) : 0;
        break;
    case json_type_double:
        bytes = format_real(buffer, json_object_get_double(value));
        count = strlen(bytes);
        break;
    case json_type_string:
        bytes = json_object_get_string(value);
        count = (size_t)json_object_get_string_len(value);
        break;
    default:
        return te_fail(TE_MALFORMED_JSON, "the JSON text has an array or object where a text is expected");
    }
    copy = bytes ? g_try_malloc(count + 1) : NULL;
    if (!copy)
        return te_fail(TE_MEMORY, "no memory for a text of %zu bytes", count);
    memcpy(copy, bytes, count);
    copy[count] = '\0';
    *text = copy;
    if (length)
        *length = count;
    return TE_OK;
}

static te_status out_of_range(void)
{
    return te_fail(TE_MALFORMED_JSON, "the JSON text has a number that is out of range");
}

te_status te_json_to_unsigned(struct json_object *value, uint64_t maximum, uint64_t *number)
{
    uint64_t result = 0;
    double real;

    switch (json_object_get_type(value)) {
    case json_type_null:
        break;
    case json_type_boolean:
        result = json_object_get_boolean(value) ? 1 : 0;
        break;
    case json_type_int:
        if (json_object_get_int64(value) < 0)
            return out_of_range();
        result = json_object_get_uint64(value);
        break;
    case json_type_double:
        real = json_object_get_double(value);
        if (!(real >= 0 && real < 0x1p64))
            return out_of_range();
        result = (uint64_t)real;
        break;
    default:
        return te_fail(TE_MALFORMED_JSON, "the JSON text has something else where a number is expected");
    }
    if (result > maximum)
        return out_of_range();
    *number = result;
    return TE_OK;
}

te_status te_json_to_signed(struct json_object *value, int64_t minimum, int64_t maximum, int64_t *number)
{
    int64_t result;
    double real;
    uint64_t magnitude = 0;
    te_status status;

    if (json_object_is_type(value, json_type_double)) {
        real = json_object_get_double(value);
        if (!(real >= -0x1p63 && real < 0x1p63))
            return out_of_range();
        result = (int64_t)real;
    } else if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) < 0) {
        result = json_object_get_int64(value);
    } else {
        status = te_json_to_unsigned(value, INT64_MAX, &magnitude);
        if (status != TE_OK)
            return status;
        result = (int64_t)magnitude;
    }
    if (result < minimum || result > maximum)
        return out_of_range();
    *number = result;
    return TE_OK;
}

te_status te_json_array_length(struct json_object *value, size_t *length)
{
    if (json_object_is_type(value, json_type_array))
        *length = json_object_array_length(value);
    else if (!value || (json_object_is_type(value, json_type_object) && json_object_object_length(value) == 0))
        *length = 0;
    else
        return te_fail(TE_MALFORMED_JSON, "the JSON text has something else where an array is expected");
    return TE_OK;
}
