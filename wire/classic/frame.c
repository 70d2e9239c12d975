#include "wire/classic/frame.h"

#include <string.h>

/* Messages start at this size and double, so that a peer has to send what it wants us to hold. */
enum { FIRST_CAPACITY = 512 };

/* The first payload byte up to which it is a message type, and up to which it is the first byte of a text. */
enum { LAST_TYPE = TE_FRAME_PROBE, LAST_OLD_FRAMING = 127 };

void te_frame_encode(GString *bytes, const struct te_frame *frame)
{
    uint64_t length = GUINT64_TO_LE((uint64_t)te_frame_payload_length(frame));

    g_string_append_len(bytes, (const char *)&length, sizeof(length));
    if (frame->has_type)
        g_string_append_c(bytes, (char)frame->type);
    g_string_append_len(bytes, frame->text, (gssize)frame->length);
}

void te_frame_decoder_init(struct te_frame_decoder *decoder, size_t limit)
{
    *decoder = (struct te_frame_decoder){.limit = limit};
}

void te_frame_decoder_clear(struct te_frame_decoder *decoder)
{
    g_free(decoder->payload);
    te_frame_decoder_init(decoder, decoder->limit);
}

size_t te_frame_decoder_wanted(const struct te_frame_decoder *decoder)
{
    if (decoder->length_filled < TE_FRAME_LENGTH_BYTES)
        return TE_FRAME_LENGTH_BYTES - decoder->length_filled;
    return decoder->payload_length - decoder->payload_filled;
}

static te_status accept_length(struct te_frame_decoder *decoder)
{
    uint64_t length;

    memcpy(&length, decoder->length_bytes, sizeof(length));
    length = GUINT64_FROM_LE(length);
    if (length == 0 || length > decoder->limit)
        return te_fail(TE_SOCKET, "the peer announced a message of %" G_GUINT64_FORMAT " bytes, allowed are 1 to %zu",
                       length, decoder->limit);
    decoder->payload_length = (size_t)length;
    return TE_OK;
}

static te_status reserve(struct te_frame_decoder *decoder, size_t needed)
{
    size_t capacity = MAX(decoder->payload_capacity, FIRST_CAPACITY);
    char *grown;

    if (needed <= decoder->payload_capacity)
        return TE_OK;
    while (capacity < needed)
        capacity = capacity > decoder->payload_length / 2 ? decoder->payload_length : capacity * 2;
    grown = g_try_realloc(decoder->payload, capacity);
    if (!grown)
        return te_fail(TE_MEMORY, "no memory for a message of %zu bytes", decoder->payload_length);
    decoder->payload = grown;
    decoder->payload_capacity = capacity;
    return TE_OK;
}

static te_status take_payload(struct te_frame_decoder *decoder, const char *bytes, size_t length)
{
    te_status status;

    if (decoder->payload_filled == 0 && (unsigned char)bytes[0] > LAST_OLD_FRAMING)
        return te_fail(TE_SOCKET, "the peer sent a message of type %u", (unsigned char)bytes[0]);
    status = reserve(decoder, decoder->payload_filled + length);
    if (status != TE_OK)
        return status;
    memcpy(decoder->payload + decoder->payload_filled, bytes, length);
    decoder->payload_filled += length;
    return TE_OK;
}

te_status te_frame_decoder_feed(struct te_frame_decoder *decoder, const void *bytes, size_t length, size_t *taken)
{
    size_t head = 0, body;
    te_status status;

    if (decoder->length_filled < TE_FRAME_LENGTH_BYTES) {
        head = MIN(length, TE_FRAME_LENGTH_BYTES - decoder->length_filled);
        memcpy(decoder->length_bytes + decoder->length_filled, bytes, head);
        decoder->length_filled += head;
        if (decoder->length_filled == TE_FRAME_LENGTH_BYTES) {
            status = accept_length(decoder);
            if (status != TE_OK)
                return status;
        }
    }
    body = decoder->length_filled < TE_FRAME_LENGTH_BYTES
               ? 0
               : MIN(length - head, decoder->payload_length - decoder->payload_filled);
    if (body > 0) {
        status = take_payload(decoder, (const char *)bytes + head, body);
        if (status != TE_OK)
            return status;
    }
    *taken = head + body;
    return TE_OK;
}

struct te_frame te_frame_decoder_frame(const struct te_frame_decoder *decoder)
{
    bool has_type = (unsigned char)decoder->payload[0] <= LAST_TYPE;

    return (struct te_frame){
        .has_type = has_type,
        .type = has_type ? (uint8_t)decoder->payload[0] : TE_FRAME_CONNECTION,
        .text = decoder->payload + has_type,
        .length = decoder->payload_length - has_type,
    };
}
