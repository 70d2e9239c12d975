#include "wire/classic/json_text.h"

#include <string.h>

/* A value that follows another one in an array or object needs a comma; one that follows its key, an opening bracket or
 * nothing does not. Strings end with a quote, so the last byte of the text tells them apart. */
static void separate(GString *text)
{
    if (text->len > 0 && !strchr("{[:", text->str[text->len - 1]))
        g_string_append_c(text, ',');
}

void te_json_begin_object(GString *text)
{
    separate(text);
    g_string_append_c(text, '{');
}

void te_json_end_object(GString *text)
{
    g_string_append_c(text, '}');
}

void te_json_begin_array(GString *text)
{
    separate(text);
    g_string_append_c(text, '[');
}

void te_json_end_array(GString *text)
{
    g_string_append_c(text, ']');
}

void te_json_key(GString *text, const char *key)
{
    separate(text);
    g_string_append_c(text, '"');
    g_string_append(text, key);
    g_string_append(text, "\":");
}

static void append_unit(GString *text, unsigned unit)
{
    static const char digits[] = "0123456789abcdef";
    char escape[6] = {
        '\\', 'u', digits[unit >> 12 & 15], digits[unit >> 8 & 15], digits[unit >> 4 & 15], digits[unit & 15]};

    g_string_append_len(text, escape, sizeof(escape));
}

static void append_control(GString *text, unsigned char byte)
{
    static const char named[] = "\b\f\n\r\t\"\\";
    static const char letters[] = "bfnrt\"\\";
    const char *found = byte ? strchr(named, byte) : NULL;

    if (!found) {
        append_unit(text, byte);
        return;
    }
    g_string_append_c(text, '\\');
    g_string_append_c(text, letters[found - named]);
}

/* Returns how many bytes it has dealt with. */
static size_t append_beyond_ascii(GString *text, const char *bytes, size_t length, enum te_json_foreign_bytes foreign)
{
    gunichar character = g_utf8_get_char_validated(bytes, (gssize)MIN(length, 8));

    if (character >= (gunichar)-2) {
        if (foreign == TE_JSON_KEEP_FOREIGN)
            g_string_append_c(text, *bytes);
        else
            append_unit(text, 0xfffd);
        return 1;
    }
    if (character >= 0x10000) {
        append_unit(text, 0xd800 + ((character - 0x10000) >> 10));
        append_unit(text, 0xdc00 + ((character - 0x10000) & 0x3ff));
    } else {
        append_unit(text, character);
    }
    return (size_t)g_unichar_to_utf8(character, NULL);
}

static bool is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

void te_json_bytes(GString *text, const char *bytes, size_t length, enum te_json_foreign_bytes foreign)
{
    separate(text);
    g_string_append_c(text, '"');
    for (size_t done = 0; done < length;) {
        size_t plain = 0;

        while (done + plain < length && is_plain((unsigned char)bytes[done + plain]))
            plain++;
        g_string_append_len(text, bytes + done, (gssize)plain);
        done += plain;
        if (done == length)
            break;
        if ((unsigned char)bytes[done] < 0x80)
            append_control(text, (unsigned char)bytes[done++]);
        else
            done += append_beyond_ascii(text, bytes + done, length - done, foreign);
    }
    g_string_append_c(text, '"');
}

void te_json_string(GString *text, const char *string)
{
    te_json_bytes(text, string ? string : "", string ? strlen(string) : 0, TE_JSON_REPLACE_FOREIGN);
}

static void append_decimal(GString *text, uint64_t number)
{
    char digits[20];
    size_t start = sizeof(digits);

    do {
        digits[--start] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    g_string_append_len(text, digits + start, (gssize)(sizeof(digits) - start));
}

void te_json_unsigned(GString *text, uint64_t number)
{
    separate(text);
    append_decimal(text, number);
}

void te_json_signed(GString *text, int64_t number)
{
    separate(text);
    if (number < 0)
        g_string_append_c(text, '-');
    append_decimal(text, number < 0 ? -(uint64_t)number : (uint64_t)number);
}

void te_json_boolean(GString *text, bool value)
{
    te_json_raw(text, value ? "true" : "false");
}

void te_json_null(GString *text)
{
    te_json_raw(text, "null");
}

void te_json_raw(GString *text, const char *value)
{
    separate(text);
    g_string_append(text, value);
}

void te_json_end_line(GString *text)
{
    g_string_append_c(text, '\n');
}
