/* Every recorded exchange on the handshake port: our decoder takes the requests, our encoder makes the same bytes from
 * the same facts, our answers are the recorded ones, and what a real engine refused or died of is refused. */
#include "tests/unit/wire_vector.h"

#include "wire/classic/answer.h"
#include "wire/classic/descriptor.h"
#include "wire/classic/json_text.h"

struct counts {
    size_t requests_written, answers, refusals, replies_understood, replies_refused;
};

/* TE_OK with the frame complete, or what the decoder says; *complete false when it wants more. */
static te_status collect(const GString *bytes, size_t piece, struct te_frame_decoder *decoder, bool *complete)
{
    size_t offset = 0, taken = 0;
    te_status status = TE_OK;

    te_frame_decoder_init(decoder, TE_FRAME_DEFAULT_LIMIT);
    while (status == TE_OK && offset < bytes->len && te_frame_decoder_wanted(decoder) > 0) {
        status = te_frame_decoder_feed(decoder, bytes->str + offset, MIN(piece, bytes->len - offset), &taken);
        offset += taken;
    }
    *complete = status == TE_OK && te_frame_decoder_wanted(decoder) == 0;
    return status;
}

/* What the recorded source wrote: without the two fields that the released wheel added. */
static void make_older(GString *text)
{
    static const char added[] = "\"rdma_server_name\":\"\",";
    char *start = strstr(text->str, added);

    assert_non_null(start);
    g_string_erase(text, start - text->str, (gssize)strlen(added));
}

static void write_recorded_descriptor(GString *text, const struct te_frame *recorded)
{
    struct te_segment_descriptor *descriptor;

    assert_int_equal(te_descriptor_read(recorded->text, recorded->length, &descriptor), TE_OK);
    assert_int_equal(te_descriptor_write(text, descriptor, descriptor->timestamp), TE_OK);
    te_segment_descriptor_unref(descriptor);
    make_older(text);
}

/* The same message, made from what reading it yields. */
static void write_again(GString *bytes, const struct te_frame *recorded)
{
    GString *text = g_string_new(NULL);
    struct te_frame again = {.has_type = recorded->has_type, .type = recorded->type};

    if (recorded->type == TE_FRAME_CONNECTION) {
        struct te_handshake handshake;

        assert_int_equal(te_handshake_read(recorded->text, recorded->length, &handshake), TE_OK);
        te_handshake_write(text, &handshake);
        te_handshake_clear(&handshake);
    } else if (recorded->type == TE_FRAME_METADATA) {
        write_recorded_descriptor(text, recorded);
        te_json_end_line(text);
    } else if (recorded->type == TE_FRAME_NOTIFY) {
        struct te_notify_message message;

        assert_int_equal(te_notify_request_read(recorded->text, recorded->length, &message), TE_OK);
        te_notify_request_write(text, message.name, message.name_length, message.text, message.text_length);
        te_notify_message_clear(&message);
    } else {
        te_probe_request_write(text);
    }
    again.text = text->str;
    again.length = text->len;
    te_frame_encode(bytes, &again);
    g_string_free(text, TRUE);
}

/* The facts of the server: those that its recorded answer shows. */
static void answer_connection(void *data, const struct te_handshake *request, struct te_handshake *reply)
{
    const struct te_frame *recorded = data;

    (void)request;
    assert_int_equal(te_handshake_read(recorded->text, recorded->length, reply), TE_OK);
}

static bool answer_describe(void *data, GString *text)
{
    write_recorded_descriptor(text, data);
    return true;
}

static bool answer_notify(void *data, struct te_notify_message *message)
{
    (void)data;
    (void)message;
    return true;
}

static struct te_classic_service service_of(const struct vector *vector, struct te_frame *recorded)
{
    struct te_classic_service service = {.notify = answer_notify, .data = recorded};

    if (recorded->length == 5 && memcmp(recorded->text, "null\n", 5) == 0)
        return service;
    service.connection = strstr(vector->name, "rdma") ? answer_connection : te_classic_accept_connection;
    service.describe = answer_describe;
    return service;
}

static void check_answer(const struct vector *vector, const struct te_frame *request, const GString *recorded_bytes,
                         struct counts *counts)
{
    struct te_frame_decoder decoder;
    GString *answer = g_string_new(NULL);
    bool complete;
    struct te_frame recorded;
    struct te_classic_service service;

    collect(recorded_bytes, SIZE_MAX, &decoder, &complete);
    vector_assert(vector, complete);
    recorded = te_frame_decoder_frame(&decoder);
    service = service_of(vector, &recorded);
    vector_assert(vector, te_classic_answer(request, &service, answer) == TE_OK);
    vector_assert_bytes(vector, "answer", answer, recorded_bytes);
    counts->answers++;
    g_string_free(answer, TRUE);
    te_frame_decoder_clear(&decoder);
}

static void check_refusal(const struct vector *vector, const struct te_frame *request, struct counts *counts)
{
    struct te_classic_service service = {.connection = te_classic_accept_connection, .notify = answer_notify};
    GString *answer = g_string_new(NULL);

    vector_assert(vector, te_classic_answer(request, &service, answer) == TE_MALFORMED_JSON);
    vector_assert(vector, answer->len == 0);
    counts->refusals++;
    g_string_free(answer, TRUE);
}

static void check_request(const struct vector *vector, const GString *bytes, const GString *reply, size_t piece,
                          struct counts *counts)
{
    struct te_frame_decoder decoder;
    bool complete;
    te_status status = collect(bytes, piece, &decoder, &complete);

    if (!complete) {
        /* Refused, or the recording ends in the middle of the frame. */
        vector_assert(vector, reply->len == 0 && vector_is_real(vector, "server"));
        vector_assert(vector, (status == TE_OK) == (strstr(vector->name, "-cut") || strstr(vector->name, "-missing-")));
        counts->refusals++;
    } else {
        struct te_frame frame = te_frame_decoder_frame(&decoder);

        if (vector_is_real(vector, "client")) {
            GString *again = g_string_new(NULL);

            write_again(again, &frame);
            vector_assert_bytes(vector, "request", again, bytes);
            counts->requests_written++;
            g_string_free(again, TRUE);
        }
        if (vector_is_real(vector, "server") && reply->len > 0)
            check_answer(vector, &frame, reply, counts);
        else if (vector_is_real(vector, "server"))
            check_refusal(vector, &frame, counts);
    }
    te_frame_decoder_clear(&decoder);
}

/* What our client makes of a reply: the number that the recorded call returned, or -1 for "failed". */
static te_status understand(const struct te_frame *request, const GString *bytes)
{
    struct te_segment_descriptor *descriptor;
    struct te_frame_decoder decoder;
    struct te_frame reply;
    bool complete;
    te_status status = collect(bytes, SIZE_MAX, &decoder, &complete);

    if (!complete) {
        te_frame_decoder_clear(&decoder);
        return status == TE_OK ? TE_SOCKET : status;
    }
    reply = te_frame_decoder_frame(&decoder);
    if (reply.type != request->type || reply.has_type != request->has_type) {
        status = TE_SOCKET;
    } else if (request->type == TE_FRAME_NOTIFY) {
        status = te_notify_reply_read(reply.text, reply.length);
    } else {
        status = te_descriptor_read(reply.text, reply.length, &descriptor);
        if (status == TE_OK)
            te_segment_descriptor_unref(descriptor);
    }
    te_frame_decoder_clear(&decoder);
    return status;
}

static void check_reply(const struct vector *vector, size_t connection, const GString *bytes, const GString *reply,
                        struct counts *counts)
{
    struct te_frame_decoder decoder;
    const char *outcome;
    bool complete, understood;
    struct te_frame request;
    te_status status;

    collect(bytes, SIZE_MAX, &decoder, &complete);
    vector_assert(vector, complete);
    request = te_frame_decoder_frame(&decoder);
    status = understand(&request, reply);
    if (request.type == TE_FRAME_NOTIFY) {
        char *number = g_strdup_printf("notify %d", status);

        outcome = vector_outcome(vector, "notify", 0);
        vector_assert(vector, outcome && strcmp(outcome, number) == 0);
        understood = status == TE_OK;
        g_free(number);
    } else {
        /* "open 1", "open -1", or the end of a process that died. */
        outcome = vector_outcome(vector, "open", 0);
        vector_assert(vector, outcome && connection == 0);
        understood = strcmp(outcome, "open 1") == 0;
        vector_assert(vector, (status == TE_OK) == understood);
    }
    if (understood)
        counts->replies_understood++;
    else
        counts->replies_refused++;
    te_frame_decoder_clear(&decoder);
}

static void check_vector(const struct vector *vector, void *data)
{
    for (size_t i = 0; i < vector_connections(vector); i++) {
        GString *request, *reply;

        if (strcmp(vector_protocol(vector, i), "classic-handshake") != 0)
            continue;
        request = vector_stream(vector, i, "c2s");
        reply = vector_stream(vector, i, "s2c");
        for (size_t piece = 1; piece <= request->len; piece = piece < 16 ? piece + 1 : piece * 2)
            check_request(vector, request, reply, piece, &(struct counts){0});
        if (strcmp(vector->name, "classic-hs-two-requests") == 0)
            g_string_truncate(request, request->len / 2);
        check_request(vector, request, reply, SIZE_MAX, data);
        if (!vector_is_real(vector, "server"))
            check_reply(vector, i, request, reply, data);
        g_string_free(request, TRUE);
        g_string_free(reply, TRUE);
    }
}

static void test_every_recorded_exchange(void **state)
{
    struct counts counts = {0};

    (void)state;
    vector_for_each("classic-", check_vector, &counts);
    /* None slipped through: so many exchanges are in the folder. */
    assert_int_equal(counts.requests_written, 72);
    assert_int_equal(counts.answers, 73);
    assert_int_equal(counts.refusals, 17);
    assert_int_equal(counts.replies_understood, 17);
    assert_int_equal(counts.replies_refused, 12);
}

/* The one recorded request that we write otherwise: a byte that is not UTF-8 arrives as it is instead of as U+FFFD. */
static void test_foreign_bytes_are_kept(void **state)
{
    static const char expected[] = "{\"name\":\"a\xff"
                                   "b\",\"notify_msg\":\"c\"}\n";
    static const char replaced[] = "\"a\\ufffdb\"";
    struct te_notify_message message;
    GString *text = g_string_new(NULL);

    (void)state;
    te_notify_request_write(text,
                            "a\xff"
                            "b",
                            3, "c", 1);
    assert_string_equal(text->str, expected);
    assert_int_equal(te_notify_request_read(text->str, text->len, &message), TE_OK);
    assert_int_equal(message.name_length, 3);
    assert_memory_equal(message.name,
                        "a\xff"
                        "b",
                        3);
    te_notify_message_clear(&message);
    g_string_truncate(text, 0);
    te_json_bytes(text,
                  "a\xff"
                  "b",
                  3, TE_JSON_REPLACE_FOREIGN);
    assert_string_equal(text->str, replaced);
    g_string_free(text, TRUE);
}

static void check_descriptor_text(const struct vector *vector, void *data)
{
    const char *recorded = vector_text(vector->root, "text");
    struct te_segment_descriptor *descriptor = NULL;
    GString *text = g_string_new(NULL), *expected = g_string_new(recorded);

    vector_assert(vector, recorded && te_descriptor_read(recorded, strlen(recorded), &descriptor) == TE_OK);
    vector_assert(vector, te_descriptor_write(text, descriptor, descriptor->timestamp) == TE_OK);
    make_older(text);
    if (expected->str[expected->len - 1] == '\n')
        te_json_end_line(text);
    vector_assert_bytes(vector, "descriptor", text, expected);
    te_segment_descriptor_unref(descriptor);
    g_string_free(expected, TRUE);
    g_string_free(text, TRUE);
    ++*(size_t *)data;
}

static void test_descriptor_texts(void **state)
{
    size_t count = 0;

    (void)state;
    vector_for_each("classic-descriptor-", check_descriptor_text, &count);
    assert_int_equal(count, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_recorded_exchange),
        cmocka_unit_test(test_foreign_bytes_are_kept),
        cmocka_unit_test(test_descriptor_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
