/*
 * JSON as the classic engine writes and reads it (classic specification 2.1).
 *
 * The writer (json_text_writer.c) appends to a GString in the compact form: no spaces, commas put in by itself. Keys
 * are written in the order of the calls, which must be byte order. The text must be empty before the outermost value.
 *
 * The reader (json_text_reader.c) takes what a real one takes and more: comments, text after the first value, duplicate
 * keys (the last one counts), trailing commas, a byte order mark. A value of the wrong type is TE_MALFORMED_JSON, never
 * a crash. Integers beyond 64 bits read as the nearest that fits.
 *
 * Nothing here is shared between threads; results belong to the caller.
 */
#ifndef TE_WIRE_CLASSIC_JSON_TEXT_H
#define TE_WIRE_CLASSIC_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "core/status.h"

struct json_object;

enum { TE_JSON_MAXIMUM_DEPTH = 1000 };

/* What the writer does with bytes that are not UTF-8: a real engine replaces each by U+FFFD; kept as they are, every
 * known reader delivers them unchanged. */
enum te_json_foreign_bytes { TE_JSON_REPLACE_FOREIGN, TE_JSON_KEEP_FOREIGN };

void te_json_begin_object(GString *text);
void te_json_end_object(GString *text);
void te_json_begin_array(GString *text);
void te_json_end_array(GString *text);
/* Of the next value; key needs no escapes. */
void te_json_key(GString *text, const char *key);
void te_json_bytes(GString *text, const char *bytes, size_t length, enum te_json_foreign_bytes foreign);
/* A string that ends with NUL; foreign bytes are replaced; NULL is written as "". */
void te_json_string(GString *text, const char *string);
void te_json_unsigned(GString *text, uint64_t number);
void te_json_signed(GString *text, int64_t number);
void te_json_boolean(GString *text, bool value);
void te_json_null(GString *text);
/* A value that is JSON text already. */
void te_json_raw(GString *text, const char *value);
/* The line feed that ends every text but those sent to an HTTP store. */
void te_json_end_line(GString *text);

/* Reads the first value of the text. *value is NULL for `null`; otherwise release it with json_object_put().
 * TE_MALFORMED_JSON: empty, not JSON, nested deeper than TE_JSON_MAXIMUM_DEPTH, or with more objects and arrays than
 * 1000 and one for every 16 bytes, which bounds the memory that a text can ask for. TE_MEMORY. length is limited to
 * INT32_MAX. */
te_status te_json_parse(const char *text, size_t length, struct json_object **value);
/* The same, and the value must be an object or `null`, which reads as an object without members. */
te_status te_json_parse_object(const char *text, size_t length, struct json_object **object);

/* A member of an object; object may be NULL. Absent members and `null` are NULL. */
struct json_object *te_json_member(struct json_object *object, const char *key);
/* Whether there is such a member, `null` included. */
bool te_json_has(struct json_object *object, const char *key);

/* Conversions of a value that may be NULL, as a real reader converts. All return TE_OK or TE_MALFORMED_JSON
 * (te_json_to_text also TE_MEMORY) and leave the output alone on failure. */

/* Text for g_free(): NULL reads as "", numbers and booleans as their text; arrays and objects are refused. length may
 * be NULL; the text may hold any byte, NUL included, and ends with a NUL that is not counted. */
te_status te_json_to_text(struct json_object *value, char **text, size_t *length);
/* NULL reads as 0, booleans as 0 and 1, other numbers are truncated; out of range, texts, arrays and objects are
 * refused. */
te_status te_json_to_unsigned(struct json_object *value, uint64_t maximum, uint64_t *number);
te_status te_json_to_signed(struct json_object *value, int64_t minimum, int64_t maximum, int64_t *number);
/* Length of an array; NULL and an empty object read as an empty array, all else is refused. */
te_status te_json_array_length(struct json_object *value, size_t *length);

#endif
