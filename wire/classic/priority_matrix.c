#include "wire/classic/priority_matrix.h"

#include <string.h>

#include <json-c/json.h>

#include "wire/classic/json_text.h"

enum { GROUPS = 2 }; /* preferred names, other names */

static bool is_well_shaped(struct json_object *location)
{
    return json_object_is_type(location, json_type_array) && json_object_array_length(location) == GROUPS &&
           json_object_is_type(json_object_array_get_idx(location, 0), json_type_array) &&
           json_object_is_type(json_object_array_get_idx(location, 1), json_type_array);
}

/* A quoted text with all of it escaped, and a comma or colon. */
static size_t text_bound(size_t length)
{
    return 6 * length + 3;
}

static size_t group_bound(struct json_object *names)
{
    size_t bound = 3;

    for (size_t i = 0; i < json_object_array_length(names); i++) {
        struct json_object *name = json_object_array_get_idx(names, i);

        bound += text_bound(json_object_is_type(name, json_type_string) ? (size_t)json_object_get_string_len(name)
                                                                        : G_ASCII_DTOSTR_BUF_SIZE);
    }
    return bound;
}

/* At most so many bytes are written, the last NUL included. */
static size_t matrix_bound(struct json_object *matrix)
{
    size_t bound = 3;

    json_object_object_foreach(matrix, name, location)
    {
        if (!is_well_shaped(location))
            continue;
        bound += text_bound(strlen(name)) + 3;
        for (size_t i = 0; i < GROUPS; i++)
            bound += group_bound(json_object_array_get_idx(location, i));
    }
    return bound;
}

static te_status write_group(GString *text, struct json_object *names)
{
    te_json_begin_array(text);
    for (size_t i = 0; i < json_object_array_length(names); i++) {
        char *name;
        te_status status = te_json_to_text(json_object_array_get_idx(names, i), &name, NULL);

        if (status != TE_OK)
            return status;
        te_json_string(text, name);
        g_free(name);
    }
    te_json_end_array(text);
    return TE_OK;
}

static te_status write_location(GString *text, const char *name, struct json_object *location)
{
    te_status status = TE_OK;

    te_json_string(text, name);
    g_string_append_c(text, ':');
    te_json_begin_array(text);
    for (size_t i = 0; i < GROUPS && status == TE_OK; i++)
        status = write_group(text, json_object_array_get_idx(location, i));
    te_json_end_array(text);
    return status;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The names belong to the matrix, the array to the caller; NULL: no memory. */
static const char **sorted_locations(struct json_object *matrix, size_t *count)
{
    size_t filled = 0;
    const char **names;

    *count = (size_t)json_object_object_length(matrix);
    names = g_try_malloc_n(*count + 1, sizeof(*names));
    if (!names)
        return NULL;
    json_object_object_foreach(matrix, name, location)
    {
        (void)location;
        names[filled++] = name;
    }
    qsort(names, *count, sizeof(*names), compare_names);
    return names;
}

/* *written: how many locations. */
static te_status write_matrix(GString *text, struct json_object *matrix, const char *const *names, size_t count,
                              size_t *written)
{
    te_status status = TE_OK;
    size_t i;

    te_json_begin_object(text);
    for (i = 0; i < count && status == TE_OK; i++) {
        struct json_object *location = te_json_member(matrix, names[i]);

        if (!is_well_shaped(location))
            break;
        status = write_location(text, names[i], location);
    }
    te_json_end_object(text);
    *written = i;
    return status;
}

te_status te_priority_matrix_normalize(struct json_object *matrix, char **text)
{
    GString result = {0};
    te_status status;
    const char **names;
    size_t count, written = 0;
    char *fitting;

    if (!matrix) {
        *text = NULL;
        return TE_OK;
    }
    if (!json_object_is_type(matrix, json_type_object))
        return te_fail(TE_MALFORMED_JSON, "segment descriptor refused: the priority matrix is no object");
    names = sorted_locations(matrix, &count);
    if (!names)
        return te_fail(TE_MEMORY, "no memory for a priority matrix of %zu locations", count);
    /* So large that it never grows, since GLib would end the process for lack of memory. */
    result.allocated_len = matrix_bound(matrix);
    result.str = g_try_malloc(result.allocated_len);
    if (!result.str) {
        status = te_fail(TE_MEMORY, "no memory for a priority matrix of %zu bytes", result.allocated_len);
        goto free_names;
    }
    status = write_matrix(&result, matrix, names, count, &written);
    if (status != TE_OK || written == 0) {
        g_clear_pointer(&result.str, g_free);
    } else {
        fitting = g_try_realloc(result.str, result.len + 1);
        result.str = fitting ? fitting : result.str;
    }
    if (status == TE_OK)
        *text = result.str;
free_names:
    g_free(names);
    return status;
}
