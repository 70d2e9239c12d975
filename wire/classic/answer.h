/* What a server on the handshake port answers to a request frame (classic specification 3.2). */
#ifndef TE_WIRE_CLASSIC_ANSWER_H
#define TE_WIRE_CLASSIC_ANSWER_H

#include <stdbool.h>

#include <glib.h>

#include "core/status.h"
#include "wire/classic/frame.h"
#include "wire/classic/handshake.h"
#include "wire/classic/notification.h"

/* The facts that answers are made of. Functions that are NULL make the answer `null`, as of a type without a handler.
 */
struct te_classic_service {
    /* Fills in the reply, which is empty. A rejection is a reply_message. */
    void (*connection)(void *data, const struct te_handshake *request, struct te_handshake *reply);
    /* Appends the local descriptor, without line feed, to the empty text and returns true; false: there is none. */
    bool (*describe)(void *data, GString *text);
    /* Takes the message; may move its texts out (and set them to NULL). False: refused, the sender gets an error. */
    bool (*notify)(void *data, struct te_notify_message *message);
    void *data; /* handed to each of them */
};

/* A connection function that leaves the reply empty: an engine with TCP alone accepts every handshake. */
void te_classic_accept_connection(void *data, const struct te_handshake *request, struct te_handshake *reply);

/* Appends the frame of the reply to bytes, in the framing of the request. TE_MALFORMED_JSON, and nothing appended: no
 * answer, close the connection; a real engine does the same or dies. TE_MEMORY likewise. */
te_status te_classic_answer(const struct te_frame *request, const struct te_classic_service *service, GString *bytes);

#endif
