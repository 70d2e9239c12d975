/* Recorded exchanges of real engines, tests/vectors/NAME.json, for unit tests. Failures end the test. */
#ifndef TE_TESTS_UNIT_WIRE_VECTOR_H
#define TE_TESTS_UNIT_WIRE_VECTOR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>
#include <json-c/json.h>

struct vector {
    char *name;
    struct json_object *root;
};

static inline const char *vector_text(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    return json_object_object_get_ex(object, key, &value) ? json_object_get_string(value) : NULL;
}

static inline struct json_object *vector_member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    json_object_object_get_ex(object, key, &value);
    return value;
}

/* Whether that side ("client", "server") of the exchange was a real engine. */
static inline bool vector_is_real(const struct vector *vector, const char *side)
{
    const char *party = vector_text(vector_member(vector->root, "parties"), side);

    return party && g_str_has_prefix(party, "real");
}

static inline size_t vector_connections(const struct vector *vector)
{
    struct json_object *connections = vector_member(vector->root, "connections");

    return connections ? json_object_array_length(connections) : 0;
}

static inline const char *vector_protocol(const struct vector *vector, size_t connection)
{
    return vector_text(json_object_array_get_idx(vector_member(vector->root, "connections"), connection), "protocol");
}

static inline void vector_append_hex(GString *bytes, const char *hex)
{
    for (size_t i = 0; hex[i] && hex[i + 1]; i += 2)
        g_string_append_c(bytes, (char)(g_ascii_xdigit_value(hex[i]) << 4 | g_ascii_xdigit_value(hex[i + 1])));
}

/* All bytes of one direction ("c2s", "s2c") of a connection. */
static inline GString *vector_stream(const struct vector *vector, size_t connection, const char *direction)
{
    struct json_object *sequence = vector_member(vector->root, "sequence");
    GString *bytes = g_string_new(NULL);

    for (size_t i = 0; i < json_object_array_length(sequence); i++) {
        struct json_object *entry = json_object_array_get_idx(sequence, i);
        struct json_object *number = vector_member(entry, "conn");

        if ((number ? json_object_get_uint64(number) : 0) == connection &&
            strcmp(vector_text(entry, "dir"), direction) == 0 && vector_text(entry, "hex"))
            vector_append_hex(bytes, vector_text(entry, "hex"));
    }
    return bytes;
}

/* Result text of the index-th call whose name starts like this, or NULL. */
static inline const char *vector_outcome(const struct vector *vector, const char *call, size_t index)
{
    struct json_object *outcome = vector_member(vector->root, "outcome");

    for (size_t i = 0;
         outcome && json_object_is_type(outcome, json_type_array) && i < json_object_array_length(outcome); i++) {
        struct json_object *entry = json_object_array_get_idx(outcome, i);
        const char *name = json_object_is_type(entry, json_type_object) ? vector_text(entry, "call") : NULL;

        if (name && g_str_has_prefix(name, call) && index-- == 0)
            return vector_text(entry, "result");
    }
    return NULL;
}

static inline bool vector_load(const char *file, struct vector *vector)
{
    char *path = g_build_filename(TE_TEST_VECTORS, file, NULL);

    vector->root = json_object_from_file(path);
    vector->name = g_strndup(file, strlen(file) - strlen(".json"));
    if (!vector->root)
        print_error("%s cannot be read\n", path);
    g_free(path);
    return vector->root != NULL;
}

static inline void vector_clear(struct vector *vector)
{
    g_free(vector->name);
    json_object_put(vector->root);
}

/* Calls function for each vector whose name starts with prefix. */
static inline void vector_for_each(const char *prefix, void (*function)(const struct vector *vector, void *data),
                                   void *data)
{
    GDir *folder = g_dir_open(TE_TEST_VECTORS, 0, NULL);
    const char *file;

    assert_non_null(folder);
    while ((file = g_dir_read_name(folder))) {
        struct vector vector;

        if (!g_str_has_prefix(file, prefix) || !g_str_has_suffix(file, ".json"))
            continue;
        assert_true(vector_load(file, &vector));
        function(&vector, data);
        vector_clear(&vector);
    }
    g_dir_close(folder);
}

/* Like assert_memory_equal(), but says which vector and shows both. */
static inline void vector_assert_bytes(const struct vector *vector, const char *what, const GString *actual,
                                       const GString *expected)
{
    char *left, *right;

    if (g_string_equal(actual, expected))
        return;
    left = g_strescape(actual->str, NULL);
    right = g_strescape(expected->str, NULL);
    print_error("%s: %s\n  is       %zu bytes %s\n  expected %zu bytes %s\n", vector->name, what, actual->len, left,
                expected->len, right);
    g_free(left);
    g_free(right);
    fail();
}

#define vector_assert(vector, condition)                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_error("%s: %s\n", (vector)->name, #condition);                                                       \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
