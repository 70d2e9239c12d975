/* The frame of the handshake port, classic specification 3.1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/classic/frame.h"

enum { LIMIT = 1000 };

static GString *encode(bool has_type, uint8_t type, const char *text)
{
    struct te_frame frame = {.has_type = has_type, .type = type, .text = text, .length = strlen(text)};
    GString *bytes = g_string_new(NULL);

    te_frame_encode(bytes, &frame);
    assert_int_equal(bytes->len, TE_FRAME_LENGTH_BYTES + te_frame_payload_length(&frame));
    return bytes;
}

static void assert_encoded(bool has_type, uint8_t type, const char *text, const char *expected, size_t length)
{
    GString *bytes = encode(has_type, type, text);

    assert_int_equal(bytes->len, length);
    assert_memory_equal(bytes->str, expected, length);
    g_string_free(bytes, TRUE);
}

static void test_encoding(void **state)
{
    (void)state;
    assert_encoded(true, TE_FRAME_PROBE, "{}\n", "\x04\0\0\0\0\0\0\0\x03{}\n", 12);
    assert_encoded(true, TE_FRAME_METADATA, "{}", "\x03\0\0\0\0\0\0\0\x01{}", 11);
    assert_encoded(true, TE_FRAME_METADATA, "null\n", "\x06\0\0\0\0\0\0\0\x01null\n", 14);
    assert_encoded(false, 0, "{}\n", "\x03\0\0\0\0\0\0\0{}\n", 11);
    assert_encoded(true, TE_FRAME_PROBE, "", "\x01\0\0\0\0\0\0\0\x03", 9);
}

static te_status feed(struct te_frame_decoder *decoder, const char *bytes, size_t length, size_t *taken)
{
    te_status status = te_frame_decoder_feed(decoder, bytes, length, taken);

    if (status == TE_OK)
        assert_true(*taken <= length);
    return status;
}

/* A frame that arrives cut in two anywhere, with something behind it, is taken as it is and no further. */
static void test_every_cut(void **state)
{
    static const struct {
        bool has_type;
        uint8_t type;
        const char *text;
    } frames[] = {
        {true, 3, "{}\n"}, {true, 0, "{\"payload\":\"\"}"}, {false, 0, "{}"}, {true, 2, ""}, {false, 0, "\x7f"}};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(frames); i++) {
        GString *bytes = encode(frames[i].has_type, frames[i].type, frames[i].text);
        size_t length = bytes->len;

        g_string_append(bytes, "behind");
        for (size_t cut = 0; cut <= length; cut++) {
            struct te_frame_decoder decoder;
            struct te_frame frame;
            size_t taken;

            te_frame_decoder_init(&decoder, LIMIT);
            assert_int_equal(te_frame_decoder_wanted(&decoder), TE_FRAME_LENGTH_BYTES);
            assert_int_equal(feed(&decoder, bytes->str, cut, &taken), TE_OK);
            assert_int_equal(taken, cut);
            assert_true(cut == length || te_frame_decoder_wanted(&decoder) > 0);
            assert_true(te_frame_decoder_wanted(&decoder) <= length - cut);
            assert_int_equal(feed(&decoder, bytes->str + cut, bytes->len - cut, &taken), TE_OK);
            assert_int_equal(cut + taken, length);
            assert_int_equal(te_frame_decoder_wanted(&decoder), 0);
            frame = te_frame_decoder_frame(&decoder);
            assert_int_equal(frame.has_type, frames[i].has_type);
            assert_int_equal(frame.type, frames[i].type);
            assert_int_equal(frame.length, strlen(frames[i].text));
            assert_memory_equal(frame.text, frames[i].text, frame.length);
            te_frame_decoder_clear(&decoder);
            assert_int_equal(te_frame_decoder_wanted(&decoder), TE_FRAME_LENGTH_BYTES);
        }
        g_string_free(bytes, TRUE);
    }
}

static te_status feed_length(uint64_t length, size_t limit, const char *payload, size_t payload_length,
                             struct te_frame_decoder *decoder)
{
    GString *bytes = g_string_new(NULL);
    te_status status;
    size_t taken;

    length = GUINT64_TO_LE(length);
    g_string_append_len(bytes, (char *)&length, sizeof(length));
    g_string_append_len(bytes, payload, (gssize)payload_length);
    te_frame_decoder_init(decoder, limit);
    status = feed(decoder, bytes->str, bytes->len, &taken);
    g_string_free(bytes, TRUE);
    return status;
}

static void assert_length(uint64_t length, size_t limit, te_status expected)
{
    struct te_frame_decoder decoder;

    assert_int_equal(feed_length(length, limit, "", 0, &decoder), expected);
    te_frame_decoder_clear(&decoder);
}

static void test_limits(void **state)
{
    (void)state;
    assert_length(0, LIMIT, TE_SOCKET);
    assert_length(1, LIMIT, TE_OK);
    assert_length(LIMIT, LIMIT, TE_OK);
    assert_length(LIMIT + 1, LIMIT, TE_SOCKET);
    assert_length(UINT64_C(1) << 63, LIMIT, TE_SOCKET);
    assert_length(UINT64_MAX, LIMIT, TE_SOCKET);
    assert_length(UINT64_C(0x0100000000000000), LIMIT, TE_SOCKET);
    assert_length(UINT64_MAX, SIZE_MAX, TE_OK);
}

static void test_first_byte(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 256; first++) {
        char payload[3] = {(char)first, '{', '}'};
        struct te_frame_decoder decoder;
        te_status status = feed_length(sizeof(payload), LIMIT, payload, sizeof(payload), &decoder);

        assert_int_equal(status, first < 128 ? TE_OK : TE_SOCKET);
        if (status == TE_OK) {
            struct te_frame frame = te_frame_decoder_frame(&decoder);

            assert_int_equal(frame.has_type, first <= 3);
            assert_int_equal(frame.type, first <= 3 ? first : TE_FRAME_CONNECTION);
            assert_int_equal(frame.length, first <= 3 ? 2 : 3);
        }
        te_frame_decoder_clear(&decoder);
    }
}

/* A refused type is refused as soon as its byte is there, not when the rest has come. */
static void test_early_refusal(void **state)
{
    struct te_frame_decoder decoder;

    (void)state;
    assert_int_equal(feed_length(LIMIT, LIMIT, "\x80", 1, &decoder), TE_SOCKET);
    te_frame_decoder_clear(&decoder);
}

/* A peer cannot make us hold much by promising much. */
static void test_memory_follows_what_arrives(void **state)
{
    enum { PROMISED = 128 * 1024 * 1024, SENT = 10000 };
    struct te_frame_decoder decoder;
    char piece[SENT] = {0};

    (void)state;
    assert_int_equal(feed_length(PROMISED, PROMISED, piece, 1, &decoder), TE_OK);
    assert_true(decoder.payload_capacity <= 1024);
    te_frame_decoder_clear(&decoder);
    assert_int_equal(feed_length(PROMISED, PROMISED, piece, SENT, &decoder), TE_OK);
    assert_true(decoder.payload_capacity <= 2 * SENT);
    assert_int_equal(te_frame_decoder_wanted(&decoder), PROMISED - SENT);
    te_frame_decoder_clear(&decoder);
}

static void test_large_frame_in_pieces(void **state)
{
    enum { LENGTH = 3 * 1024 * 1024 + 7, PIECE = 1461 };
    char *text = g_malloc(LENGTH + 1);
    struct te_frame_decoder decoder;
    struct te_frame frame;
    GString *bytes;
    size_t taken;

    (void)state;
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = (char)('a' + i % 23);
    text[LENGTH] = '\0';
    bytes = encode(true, TE_FRAME_METADATA, text);
    te_frame_decoder_init(&decoder, LENGTH + 1);
    for (size_t offset = 0; offset < bytes->len; offset += taken)
        assert_int_equal(feed(&decoder, bytes->str + offset, MIN(PIECE, bytes->len - offset), &taken), TE_OK);
    assert_int_equal(te_frame_decoder_wanted(&decoder), 0);
    frame = te_frame_decoder_frame(&decoder);
    assert_int_equal(frame.length, LENGTH);
    assert_memory_equal(frame.text, text, LENGTH);
    te_frame_decoder_clear(&decoder);
    g_string_free(bytes, TRUE);
    g_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoding),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_first_byte),
        cmocka_unit_test(test_early_refusal),
        cmocka_unit_test(test_memory_follows_what_arrives),
        cmocka_unit_test(test_large_frame_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
