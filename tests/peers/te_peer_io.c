#include "te_peer.h"

#include <stdarg.h>

#include <glib.h>

#include "transfer_engine_ext.h"

enum { DEFAULT_TIMEOUT_SECONDS = 60 };

void refuse(struct peer *peer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    json_object_object_add(peer->reply, "error", json_object_new_string(text));
    g_free(text);
}

bool refused(const struct peer *peer)
{
    return json_object_object_get_ex(peer->reply, "error", NULL);
}

void answer_number(struct peer *peer, const char *key, int64_t value)
{
    json_object_object_add(peer->reply, key, json_object_new_int64(value));
}

void answer_unsigned(struct peer *peer, const char *key, uint64_t value)
{
    json_object_object_add(peer->reply, key, json_object_new_uint64(value));
}

void answer_text(struct peer *peer, const char *key, const char *value)
{
    json_object_object_add(peer->reply, key, json_object_new_string(value));
}

void answer_result(struct peer *peer, int64_t result)
{
    answer_number(peer, "ret", result);
    if (result != 0)
        answer_text(peer, "reason", te_last_error());
}

json_object *field_of(json_object *object, const char *key)
{
    json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value;
}

bool given(const struct peer *peer, const char *key)
{
    return field_of(peer->command, key) != NULL;
}

uint64_t number_of(json_object *object, const char *key, uint64_t default_value)
{
    json_object *value = field_of(object, key);
    return value ? json_object_get_uint64(value) : default_value;
}

uint64_t number(const struct peer *peer, const char *key, uint64_t default_value)
{
    return number_of(peer->command, key, default_value);
}

const char *needed_text(struct peer *peer, const char *key)
{
    json_object *value = field_of(peer->command, key);
    if (!value)
        refuse(peer, "missing field '%s'", key);
    return value ? json_object_get_string(value) : NULL;
}

const char *text(const struct peer *peer, const char *key, const char *default_value)
{
    json_object *value = field_of(peer->command, key);
    return value ? json_object_get_string(value) : default_value;
}

json_object *needed_array(struct peer *peer, const char *key)
{
    json_object *value = field_of(peer->command, key);
    if (!value || !json_object_is_type(value, json_type_array)) {
        refuse(peer, "missing array '%s'", key);
        return NULL;
    }
    return value;
}

int64_t timeout_ns(const struct peer *peer)
{
    json_object *value = field_of(peer->command, "timeout");
    double seconds = value ? json_object_get_double(value) : DEFAULT_TIMEOUT_SECONDS;
    return (int64_t)(seconds * 1e9);
}
