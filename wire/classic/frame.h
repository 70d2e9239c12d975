/*
 * The frame of the handshake port (classic specification 3.1): 8 bytes with the number of bytes that follow, little
 * endian, then one byte with the message type and the JSON text; or, in the old framing, the text alone.
 */
#ifndef TE_WIRE_CLASSIC_FRAME_H
#define TE_WIRE_CLASSIC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "core/status.h"

enum te_frame_type { TE_FRAME_CONNECTION = 0, TE_FRAME_METADATA = 1, TE_FRAME_NOTIFY = 2, TE_FRAME_PROBE = 3 };

enum {
    TE_FRAME_LENGTH_BYTES = 8,
    TE_FRAME_DEFAULT_LIMIT = 1024 * 1024, /* of the bytes after the length */
};

struct te_frame {
    bool has_type; /* false: old framing, which means TE_FRAME_CONNECTION */
    uint8_t type;  /* enum te_frame_type */
    const char *text;
    size_t length; /* of the text */
};

/* What the length field of this frame says; a reader refuses the frame if it is over its limit. */
static inline size_t te_frame_payload_length(const struct te_frame *frame)
{
    return frame->length + (frame->has_type ? 1 : 0);
}

/* Appends the frame to bytes. Its text must not be empty when it has no type. */
void te_frame_encode(GString *bytes, const struct te_frame *frame);

/* Collects one frame from the pieces in which it arrives. Memory grows with what has arrived, not with what the length
 * field promises. The fields belong to the decoder. */
struct te_frame_decoder {
    size_t limit;
    uint8_t length_bytes[TE_FRAME_LENGTH_BYTES];
    size_t length_filled;
    size_t payload_length; /* once length_filled is complete */
    char *payload;
    size_t payload_filled;
    size_t payload_capacity;
};

/* limit: the largest value of the length field that is accepted. */
void te_frame_decoder_init(struct te_frame_decoder *decoder, size_t limit);
/* Frees what it holds and makes it ready for another frame with the same limit. */
void te_frame_decoder_clear(struct te_frame_decoder *decoder);

/* How many bytes it can take at least before it has to be asked again; 0 when the frame is complete. */
size_t te_frame_decoder_wanted(const struct te_frame_decoder *decoder);

/* Takes up to length bytes, never one beyond the end of the frame; *taken says how many. TE_SOCKET: the peer does not
 * speak this protocol (length 0 or over the limit, first payload byte over 127): close the connection. TE_MEMORY. After
 * a failure the decoder only may be cleared. */
te_status te_frame_decoder_feed(struct te_frame_decoder *decoder, const void *bytes, size_t length, size_t *taken);

/* The complete frame, when te_frame_decoder_wanted() is 0. Its text belongs to the decoder. */
struct te_frame te_frame_decoder_frame(const struct te_frame_decoder *decoder);

#endif
