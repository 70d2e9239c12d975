/* What arrives on the handshake port: a frame, however cut, and the answer to it. The first byte says how it is cut. */
#include <string.h>

#include "tests/fuzz/fuzz_target.h"
#include "wire/classic/answer.h"

enum { LIMIT = 1 << 16 };

struct outcome {
    te_status status;
    size_t taken;
    struct te_frame_decoder decoder;
};

static struct outcome collect(const uint8_t *bytes, size_t length, size_t piece)
{
    struct outcome outcome = {0};

    te_frame_decoder_init(&outcome.decoder, LIMIT);
    while (outcome.status == TE_OK && outcome.taken < length && te_frame_decoder_wanted(&outcome.decoder) > 0) {
        size_t given = MIN(piece, length - outcome.taken), taken = 0;

        outcome.status = te_frame_decoder_feed(&outcome.decoder, bytes + outcome.taken, given, &taken);
        must(outcome.status == TE_OK || outcome.status == TE_SOCKET);
        must(taken <= given && (taken > 0 || outcome.status != TE_OK));
        outcome.taken += taken;
    }
    return outcome;
}

static bool is_complete(const struct outcome *outcome)
{
    return outcome->status == TE_OK && te_frame_decoder_wanted(&outcome->decoder) == 0;
}

static void reply_with_request(void *data, const struct te_handshake *request, struct te_handshake *reply)
{
    (void)data;
    reply->local_nic_path = g_strdup(request->peer_nic_path);
    reply->peer_nic_path = g_strdup(request->local_nic_path);
    reply->has_ready_ack = request->has_ready_ack;
}

static bool describe(void *data, GString *text)
{
    (void)data;
    g_string_append(text, "{}");
    return true;
}

static bool take(void *data, struct te_notify_message *message)
{
    (void)data;
    must(message->name[message->name_length] == '\0' && message->text[message->text_length] == '\0');
    return message->name_length % 2 == 0;
}

static void check_answer(const struct te_frame *request)
{
    const struct te_classic_service service = {.connection = reply_with_request, .describe = describe, .notify = take};
    GString *bytes = g_string_new(NULL);
    te_status status = te_classic_answer(request, &service, bytes);

    must(status == TE_OK || status == TE_MALFORMED_JSON);
    must((status == TE_OK) == (bytes->len > 0));
    if (status == TE_OK) {
        struct te_frame_decoder decoder;
        struct te_frame answer;
        size_t taken;

        te_frame_decoder_init(&decoder, SIZE_MAX);
        must(te_frame_decoder_feed(&decoder, bytes->str, bytes->len, &taken) == TE_OK && taken == bytes->len);
        must(te_frame_decoder_wanted(&decoder) == 0);
        answer = te_frame_decoder_frame(&decoder);
        must(answer.has_type == request->has_type && answer.type == request->type);
        must(answer.text[answer.length - 1] == '\n');
        te_frame_decoder_clear(&decoder);
    }
    g_string_free(bytes, TRUE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome pieces, whole;

    if (size == 0)
        return 0;
    pieces = collect(data + 1, size - 1, (size_t)data[0] + 1);
    whole = collect(data + 1, size - 1, SIZE_MAX);
    must(is_complete(&pieces) == is_complete(&whole) && pieces.status == whole.status);
    if (is_complete(&whole)) {
        struct te_frame frame = te_frame_decoder_frame(&whole.decoder), same = te_frame_decoder_frame(&pieces.decoder);
        GString *again = g_string_new(NULL);

        must(pieces.taken == whole.taken && frame.length == same.length && frame.type == same.type);
        must(memcmp(frame.text, same.text, frame.length) == 0);
        te_frame_encode(again, &frame);
        must(again->len == whole.taken && memcmp(again->str, data + 1, again->len) == 0);
        g_string_free(again, TRUE);
        check_answer(&frame);
    }
    te_frame_decoder_clear(&pieces.decoder);
    te_frame_decoder_clear(&whole.decoder);
    return 0;
}
