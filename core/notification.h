/* Notifications: those that peers sent, and those on their way to peers. */
#ifndef TE_CORE_NOTIFICATION_H
#define TE_CORE_NOTIFICATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/segment.h"
#include "core/status.h"

struct te_engine;
struct te_inbox;
struct te_notifier;
struct te_outgoing;

/* What an engine keeps at most in each direction; beyond that messages are refused. */
enum {
    TE_NOTIFICATIONS_MAX = 1024 * 1024,
    TE_NOTIFICATION_BYTES_MAX = 256 * 1024 * 1024,
};

/* ---- Received; any thread, never blocks ---- */

struct te_inbox *te_inbox_new(void);
void te_inbox_free(struct te_inbox *inbox);

/* Copies both texts, which need not end with NUL. False: full, or no memory. */
bool te_inbox_put(struct te_inbox *inbox, const char *name, size_t name_length, const char *text, size_t text_length);
size_t te_inbox_count(struct te_inbox *inbox);
/* Takes the oldest; both texts come from malloc() and end with NUL. False: empty. */
bool te_inbox_take(struct te_inbox *inbox, char **name, char **text);

/* ---- Sent ---- */

struct te_notifier *te_notifier_new(struct te_engine *engine);
/* Forgets what has not been sent. No worker may be sending. */
void te_notifier_free(struct te_notifier *notifier);

/* Whether a message can be sent, whatever dialect the peer speaks: TE_OK, or TE_INVALID_ARGUMENT when it is too long
 * for one message. Never blocks. */
te_status te_notification_check(struct te_engine *engine, const char *name, size_t name_length, const char *text,
                                size_t text_length);

/* Sends one message to the owner of a segment now; to the engine's own segment directly. Blocks for one control call.
 * TE_DNS, TE_SOCKET, TE_TIMED_OUT, TE_MALFORMED_JSON, TE_METADATA (refused). */
te_status te_notifier_send(struct te_notifier *notifier, struct te_segment *segment, const char *name,
                           size_t name_length, const char *text, size_t text_length);

/* Makes a message that te_notifier_post() can send later without failing; copies the texts, which end with NUL. Never
 * blocks. TE_INVALID_ARGUMENT: too long. TE_TOO_MANY_REQUESTS: too many are on their way. TE_MEMORY. */
te_status te_outgoing_new(struct te_notifier *notifier, struct te_segment *segment, const char *name, const char *text,
                          struct te_outgoing **outgoing);
/* Instead of posting it. */
void te_outgoing_free(struct te_outgoing *outgoing);
/* Hands it over to be sent by a worker: exactly once, in order with the others for the same segment. Never blocks. */
void te_notifier_post(struct te_outgoing *outgoing);
/* Waits until all that were posted have been sent or given up, at most timeout_ns; false if that passed. What is posted
 * afterwards is dropped. */
bool te_notifier_stop(struct te_notifier *notifier, int64_t timeout_ns);

#endif
