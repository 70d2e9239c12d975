#include "core/topology.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 16 * 1024 * 1024, DEPTH_MAX = 32 };

enum { PREFERRED, AVAILABLE, CLASSES };

struct location {
    char *name;
    GPtrArray *devices[CLASSES]; /* char *, owned */
};

struct te_topology {
    GPtrArray *locations; /* struct location *, by name */
    GPtrArray *devices;   /* char *, borrowed from the locations; all, in the order of their first appearance */
};

static void location_free(gpointer data)
{
    struct location *location = data;

    for (int class = 0; class < CLASSES; class ++)
        g_ptr_array_unref(location->devices[class]);
    g_free(location->name);
    g_free(location);
}

struct te_topology *te_topology_new(void)
{
    struct te_topology *topology = g_new0(struct te_topology, 1);

    topology->locations = g_ptr_array_new_with_free_func(location_free);
    topology->devices = g_ptr_array_new();
    return topology;
}

void te_topology_free(struct te_topology *topology)
{
    if (topology == NULL)
        return;
    g_ptr_array_unref(topology->locations);
    g_ptr_array_unref(topology->devices);
    g_free(topology);
}

static void note_device(struct te_topology *topology, char *name)
{
    if (!g_ptr_array_find_with_equal_func(topology->devices, name, g_str_equal, NULL))
        g_ptr_array_add(topology->devices, name);
}

static bool read_devices(struct json_object *list, GPtrArray *devices)
{
    size_t count;

    if (!json_object_is_type(list, json_type_array))
        return false;
    count = json_object_array_length(list);
    for (size_t i = 0; i < count; i++) {
        struct json_object *name = json_object_array_get_idx(list, i);

        if (!json_object_is_type(name, json_type_string))
            return false;
        g_ptr_array_add(devices, g_strdup(json_object_get_string(name)));
    }
    return true;
}

static te_status read_location(struct te_topology *topology, const char *name, struct json_object *value)
{
    struct location *location = g_new0(struct location, 1);

    location->name = g_strdup(name);
    for (int class = 0; class < CLASSES; class ++)
        location->devices[class] = g_ptr_array_new_with_free_func(g_free);
    g_ptr_array_add(topology->locations, location);
    if (!json_object_is_type(value, json_type_array) || json_object_array_length(value) != CLASSES)
        return te_fail(TE_MALFORMED_JSON, "topology: location \"%s\" does not have exactly two arrays of devices",
                       name);
    for (int class = 0; class < CLASSES; class ++)
        if (!read_devices(json_object_array_get_idx(value, (size_t) class), location->devices[class]))
            return te_fail(TE_MALFORMED_JSON, "topology: the devices of location \"%s\" are not arrays of names", name);
    return TE_OK;
}

static gint compare_locations(gconstpointer left, gconstpointer right)
{
    const struct location *const *a = left, *const *b = right;

    return strcmp((*a)->name, (*b)->name);
}

/* Fills in an empty topology from the parsed matrix. */
static te_status read_matrix(struct te_topology *topology, struct json_object *root)
{
    te_status status = TE_OK;

    if (root == NULL)
        return TE_OK;
    if (!json_object_is_type(root, json_type_object))
        return te_fail(TE_MALFORMED_JSON, "topology: the matrix is not an object");
    json_object_object_foreach(root, name, value)
    {
        status = read_location(topology, name, value);
        if (status != TE_OK)
            return status;
    }
    g_ptr_array_sort(topology->locations, compare_locations);
    for (guint i = 0; i < topology->locations->len; i++) {
        struct location *location = g_ptr_array_index(topology->locations, i);

        for (int class = 0; class < CLASSES; class ++)
            for (guint j = 0; j < location->devices[class]->len; j++)
                note_device(topology, g_ptr_array_index(location->devices[class], j));
    }
    return TE_OK;
}

te_status te_topology_parse(const char *text, size_t length, struct te_topology **topology_p)
{
    struct te_topology *topology;
    struct json_tokener *tokener;
    struct json_object *root;
    enum json_tokener_error error;
    te_status status;

    if (length > INT_MAX)
        return te_fail(TE_MALFORMED_JSON, "topology: too long");
    tokener = json_tokener_new_ex(DEPTH_MAX);
    if (tokener == NULL)
        return te_fail(TE_MEMORY, "no memory for a topology");
    root = json_tokener_parse_ex(tokener, text, (int)length);
    error = json_tokener_get_error(tokener);
    /* A number or a word at the very end is only known to be complete by what follows it. */
    if (error == json_tokener_continue) {
        root = json_tokener_parse_ex(tokener, "\n", 1);
        error = json_tokener_get_error(tokener);
    }
    json_tokener_free(tokener);
    if (error != json_tokener_success)
        return te_fail(TE_MALFORMED_JSON, "topology: %s", json_tokener_error_desc(error));
    topology = te_topology_new();
    status = read_matrix(topology, root);
    json_object_put(root);
    if (status == TE_OK)
        *topology_p = topology;
    else
        te_topology_free(topology);
    return status;
}

te_status te_topology_read(const char *path, struct te_topology **topology)
{
    FILE *file = fopen(path, "re");
    char *text;
    size_t length;
    te_status status;

    if (file == NULL)
        return te_fail(TE_METADATA, "topology: cannot open %s: %s", path, strerror(errno));
    text = g_try_malloc(FILE_MAX_BYTES + 1);
    if (text == NULL) {
        fclose(file);
        return te_fail(TE_MEMORY, "no memory for a topology");
    }
    length = fread(text, 1, FILE_MAX_BYTES + 1, file);
    if (ferror(file) || length == 0)
        status = te_fail(TE_METADATA, "topology: %s is empty or cannot be read", path);
    else if (length > FILE_MAX_BYTES)
        status = te_fail(TE_MALFORMED_JSON, "topology: %s is too long", path);
    else
        status = te_topology_parse(text, length, topology);
    g_free(text);
    fclose(file);
    return status;
}

/* showLinks */

static void append_names(GString *text, const GPtrArray *names)
{
    for (guint i = 0; i < names->len; i++)
        g_string_append_printf(text, "%s%s", i > 0 ? ", " : "", (const char *)g_ptr_array_index(names, i));
}

void te_topology_show(const struct te_topology *topology, GString *text)
{
    g_string_append(text, "=== Local NICs ===\n");
    if (topology->devices->len == 0) {
        g_string_append(text, "  (no RDMA devices found)\n");
        return;
    }
    for (guint i = 0; i < topology->devices->len; i++)
        g_string_append_printf(text, "  %s  (topology only; RDMA transport not initialized)\n",
                               (const char *)g_ptr_array_index(topology->devices, i));
    g_string_append(text, "\n=== Topology (NIC Selection) ===\n");
    for (guint i = 0; i < topology->locations->len; i++) {
        const struct location *location = g_ptr_array_index(topology->locations, i);

        g_string_append_printf(text, "  %s -> preferred: [", location->name);
        append_names(text, location->devices[PREFERRED]);
        g_string_append(text, "]  available: [");
        append_names(text, location->devices[AVAILABLE]);
        g_string_append(text, "]\n");
    }
}

static void append_quoted(GString *text, const char *string)
{
    struct json_object *value = json_object_new_string(string);

    g_string_append(text, json_object_to_json_string_ext(value, JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(value);
}

/* A new line, indented by two spaces for each level. */
static void append_line(GString *text, unsigned level)
{
    g_string_append_printf(text, "\n%*s", (int)(2 * level), "");
}

static void append_device_array(GString *text, const GPtrArray *names, unsigned level)
{
    if (names->len == 0) {
        g_string_append(text, "[]");
        return;
    }
    g_string_append_c(text, '[');
    for (guint i = 0; i < names->len; i++) {
        if (i > 0)
            g_string_append_c(text, ',');
        append_line(text, level + 1);
        append_quoted(text, g_ptr_array_index(names, i));
    }
    append_line(text, level);
    g_string_append_c(text, ']');
}

/* The members are in byte order of their names, as a real engine writes them. */
static void append_device(GString *text, const char *name)
{
    append_line(text, 2);
    g_string_append_c(text, '{');
    append_line(text, 3);
    g_string_append(text, "\"device\" : ");
    append_quoted(text, name);
    g_string_append_c(text, ',');
    append_line(text, 3);
    g_string_append(text, "\"gid\" : \"\",");
    append_line(text, 3);
    g_string_append(text, "\"gid_index\" : -1,");
    append_line(text, 3);
    g_string_append(text, "\"numa\" : -1,");
    append_line(text, 3);
    g_string_append(text, "\"port\" : 0,");
    append_line(text, 3);
    g_string_append(text, "\"source\" : \"topology\",");
    append_line(text, 3);
    g_string_append(text, "\"speed_gbps\" : 0");
    append_line(text, 2);
    g_string_append_c(text, '}');
}

static void append_location(GString *text, const struct location *location)
{
    append_line(text, 2);
    append_quoted(text, location->name);
    g_string_append(text, " : ");
    append_line(text, 2);
    g_string_append_c(text, '[');
    for (int class = 0; class < CLASSES; class ++) {
        if (class > 0)
            g_string_append_c(text, ',');
        append_line(text, 3);
        append_device_array(text, location->devices[class], 3);
    }
    append_line(text, 2);
    g_string_append_c(text, ']');
}

void te_topology_show_json(const struct te_topology *topology, GString *text)
{
    g_string_append(text, "{\n  \"local_nics\" : ");
    if (topology->devices->len == 0) {
        g_string_append(text, "[]");
    } else {
        append_line(text, 1);
        g_string_append_c(text, '[');
        for (guint i = 0; i < topology->devices->len; i++) {
            if (i > 0)
                g_string_append_c(text, ',');
            append_device(text, g_ptr_array_index(topology->devices, i));
        }
        append_line(text, 1);
        g_string_append_c(text, ']');
    }
    g_string_append(text, ",\n  \"topology\" : ");
    if (topology->locations->len == 0) {
        g_string_append(text, "null");
    } else {
        append_line(text, 1);
        g_string_append_c(text, '{');
        for (guint i = 0; i < topology->locations->len; i++) {
            if (i > 0)
                g_string_append_c(text, ',');
            append_location(text, g_ptr_array_index(topology->locations, i));
        }
        append_line(text, 1);
        g_string_append_c(text, '}');
    }
    g_string_append(text, "\n}");
}
