/* Notify and probe messages (classic specification 3.6 and 3.7). */
#ifndef TE_WIRE_CLASSIC_NOTIFICATION_H
#define TE_WIRE_CLASSIC_NOTIFICATION_H

#include <stdbool.h>
#include <stddef.h>

#include <glib.h>

#include "core/status.h"

/* The texts come from GLib; they may hold any byte and end with a NUL that is not counted. */
struct te_notify_message {
    char *name;
    size_t name_length;
    char *text;
    size_t text_length;
};

void te_notify_message_clear(struct te_notify_message *message);

/* Writers append the object with its line feed to an empty text. */

/* Bytes that are not UTF-8 are kept, so that they arrive as they are; a real sender replaces them. */
void te_notify_request_write(GString *text, const char *name, size_t name_length, const char *message,
                             size_t message_length);
/* Reads into an uninitialised structure. TE_MALFORMED_JSON: no JSON or a wrong type; absent fields and a root of `null`
 * are empty texts. TE_MEMORY. On failure nothing is left to free. */
te_status te_notify_request_read(const char *text, size_t length, struct te_notify_message *message);

/* accepted false: the sender gets an error. */
void te_notify_reply_write(GString *text, bool accepted);
/* TE_OK: the receiver took the notification. TE_METADATA: it did not. TE_MALFORMED_JSON. */
te_status te_notify_reply_read(const char *text, size_t length);

void te_probe_request_write(GString *text);
void te_probe_reply_write(GString *text);
/* TE_OK for any JSON, else TE_MALFORMED_JSON. */
te_status te_probe_reply_read(const char *text, size_t length);

#endif
