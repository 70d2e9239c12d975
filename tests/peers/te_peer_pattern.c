#include "te_peer_pattern.h"

#include <string.h>

#include <glib.h>

static bool fill_with_hex(uint8_t *bytes, size_t length, const char *digits)
{
    size_t unit = strlen(digits) / 2;
    if (unit == 0 || strlen(digits) % 2 != 0)
        return false;
    for (size_t i = 0; i < unit * 2; i++)
        if (!g_ascii_isxdigit(digits[i]))
            return false;
    size_t filled = MIN(unit, length);
    for (size_t i = 0; i < filled; i++)
        bytes[i] = (uint8_t)(g_ascii_xdigit_value(digits[2 * i]) << 4 | g_ascii_xdigit_value(digits[2 * i + 1]));
    for (; filled < length; filled += MIN(filled, length - filled)) /* doubles; a part of whole units each time */
        memcpy(bytes + filled, bytes, MIN(filled, length - filled));
    return true;
}

static void fill_with_counter(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)((seed + i) % 251);
}

static void fill_with_random(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
        seed += 0x9E3779B97F4A7C15U;
        uint64_t word = seed;
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9U;
        word = (word ^ word >> 27) * 0x94D049BB133111EBU;
        word = GUINT64_TO_LE(word ^ word >> 31);
        memcpy(bytes + i, &word, MIN(sizeof(word), length - i));
    }
}

bool pattern_fill(uint8_t *bytes, size_t length, json_object *command)
{
    json_object *value;
    if (json_object_object_get_ex(command, "hex", &value))
        return fill_with_hex(bytes, length, json_object_get_string(value));
    if (json_object_object_get_ex(command, "counter", &value))
        fill_with_counter(bytes, length, json_object_get_uint64(value));
    else if (json_object_object_get_ex(command, "random", &value))
        fill_with_random(bytes, length, json_object_get_uint64(value));
    return true;
}

char *bytes_sha256(const uint8_t *bytes, size_t length)
{
    GChecksum *checksum = g_checksum_new(G_CHECKSUM_SHA256);
    while (length > 0) {
        size_t piece = MIN(length, (size_t)1 << 30); /* g_checksum_update() takes a signed length */
        g_checksum_update(checksum, bytes, (gssize)piece);
        bytes += piece;
        length -= piece;
    }
    char *digits = g_strdup(g_checksum_get_string(checksum));
    g_checksum_free(checksum);
    return digits;
}

char *bytes_hex(const uint8_t *bytes, size_t length)
{
    static const char digit[] = "0123456789abcdef";
    char *digits = g_malloc(2 * length + 1);
    for (size_t i = 0; i < length; i++) {
        digits[2 * i] = digit[bytes[i] >> 4];
        digits[2 * i + 1] = digit[bytes[i] & 15];
    }
    digits[2 * length] = '\0';
    return digits;
}
