/* The settings file: one YAML mapping of names to single values. JSON is read by the same parser. */
#include "core/settings_private.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "core/log.h"

struct reader {
    struct te_settings *settings;
    const char *file_name;
    yaml_parser_t parser;
    yaml_event_t event; /* the present one; empty before the first */
    bool seen[TE_SETTINGS_ROWS_MAX];
};

static te_status fail_at(const struct reader *reader, yaml_mark_t mark, const char *problem)
{
    te_fail(TE_INVALID_ARGUMENT, "%s:%zu:%zu: %s", reader->file_name, mark.line + 1, mark.column + 1, problem);
    te_log(TE_LOG_ERROR, "%s", te_status_message());
    return TE_INVALID_ARGUMENT;
}

/* Goes on to the next event. */
static te_status next_event(struct reader *reader)
{
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event))
        return TE_OK;
    if (reader->parser.error == YAML_MEMORY_ERROR)
        return te_fail(TE_MEMORY, "no memory to read %s", reader->file_name);
    /* A reader error (bytes that are no text) has no mark of its own; the parser's is near. */
    return fail_at(reader,
                   reader->parser.error == YAML_READER_ERROR ? reader->parser.mark : reader->parser.problem_mark,
                   reader->parser.problem ? reader->parser.problem : "malformed");
}

static te_status expect_text(const struct reader *reader, const char *what)
{
    const yaml_event_t *event = &reader->event;

    if (event->type != YAML_SCALAR_EVENT)
        return fail_at(reader, event->start_mark, what);
    if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
        return fail_at(reader, event->start_mark, "a NUL byte in a text");
    return TE_OK;
}

/* Passes over the value that begins with the present event. */
static te_status skip_value(struct reader *reader)
{
    int depth = 0;

    for (;;) {
        te_status status;

        if (reader->event.type == YAML_MAPPING_START_EVENT || reader->event.type == YAML_SEQUENCE_START_EVENT)
            depth++;
        else if (reader->event.type == YAML_MAPPING_END_EVENT || reader->event.type == YAML_SEQUENCE_END_EVENT)
            depth--;
        if (depth > TE_SETTINGS_FILE_MAX_DEPTH)
            return fail_at(reader, reader->event.start_mark, "nested too deeply");
        if (depth == 0)
            return TE_OK;
        status = next_event(reader);
        if (status != TE_OK)
            return status;
    }
}

/* The present event is a key; afterwards it is the last one of the value. */
static te_status read_setting(struct reader *reader)
{
    yaml_mark_t mark = reader->event.start_mark;
    char label[256];
    te_status status = expect_text(reader, "the name of a setting must be a single text");
    int row;

    if (status != TE_OK)
        return status;
    g_snprintf(label, sizeof(label), "%s:%zu:%zu: %.64s", reader->file_name, mark.line + 1, mark.column + 1,
               (const char *)reader->event.data.scalar.value);
    row = te_settings_find_row((const char *)reader->event.data.scalar.value, true);
    status = next_event(reader);
    if (status != TE_OK)
        return status;
    if (row < 0) {
        te_settings_warn_once("%s is not a known setting and has no effect", label);
        return skip_value(reader);
    }
    if (reader->seen[row])
        return fail_at(reader, mark, "the setting is there twice");
    reader->seen[row] = true;
    status = expect_text(reader, "the value of a setting must be a single value");
    if (status == TE_OK)
        te_settings_apply(reader->settings, row, label, (const char *)reader->event.data.scalar.value, TE_FROM_FILE);
    return status;
}

/* The present event is the first one of the document's value. */
static te_status read_mapping(struct reader *reader)
{
    te_status status;

    if (reader->event.type != YAML_MAPPING_START_EVENT)
        return fail_at(reader, reader->event.start_mark, "the file must hold one mapping of settings to values");
    for (;;) {
        status = next_event(reader);
        if (status != TE_OK || reader->event.type == YAML_MAPPING_END_EVENT)
            return status;
        status = read_setting(reader);
        if (status != TE_OK)
            return status;
    }
}

/* An empty stream, or one document. */
static te_status read_stream(struct reader *reader)
{
    bool document_read = false;

    for (;;) {
        te_status status = next_event(reader);

        if (status != TE_OK || reader->event.type == YAML_STREAM_END_EVENT)
            return status;
        if (reader->event.type != YAML_DOCUMENT_START_EVENT)
            continue;
        if (document_read)
            return fail_at(reader, reader->event.start_mark, "more than one document");
        document_read = true;
        status = next_event(reader);
        if (status == TE_OK)
            status = read_mapping(reader);
        if (status != TE_OK)
            return status;
    }
}

te_status te_settings_apply_text(struct te_settings *settings, const char *file_name, const char *text, size_t length)
{
    struct reader reader = {.settings = settings, .file_name = file_name};
    te_status status;

    if (length > TE_SETTINGS_FILE_MAX_BYTES)
        return te_fail(TE_INVALID_ARGUMENT, "%s: larger than %d bytes", file_name, TE_SETTINGS_FILE_MAX_BYTES);
    if (!yaml_parser_initialize(&reader.parser))
        return te_fail(TE_MEMORY, "no memory to read %s", file_name);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, length);
    status = read_stream(&reader);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return status;
}

/* Reads what is there, at most size bytes. -1 with errno on failure. */
static ssize_t read_whole(int descriptor, char *buffer, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t got = read(descriptor, buffer + done, size - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

te_status te_settings_apply_file(struct te_settings *settings, const char *file_name)
{
    te_status status = TE_INVALID_ARGUMENT;
    struct stat properties;
    char *text;
    ssize_t length;
    /* Not blocking: a pipe of that name must not hang the program. */
    int descriptor = open(file_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (descriptor < 0 || fstat(descriptor, &properties) != 0) {
        te_fail(TE_INVALID_ARGUMENT, "TE_CONFIG=%s cannot be read: %s", file_name, g_strerror(errno));
        goto close_file;
    }
    if (!S_ISREG(properties.st_mode) || properties.st_size > TE_SETTINGS_FILE_MAX_BYTES) {
        te_fail(TE_INVALID_ARGUMENT, "TE_CONFIG=%s is not a file of at most %d bytes", file_name,
                TE_SETTINGS_FILE_MAX_BYTES);
        goto close_file;
    }
    text = g_try_malloc((gsize)properties.st_size + 1);
    if (!text) {
        status = te_fail(TE_MEMORY, "no memory to read %s", file_name);
        goto close_file;
    }
    length = read_whole(descriptor, text, (size_t)properties.st_size);
    if (length < 0) {
        te_fail(TE_INVALID_ARGUMENT, "TE_CONFIG=%s cannot be read: %s", file_name, g_strerror(errno));
        goto free_text;
    }
    status = te_settings_apply_text(settings, file_name, text, (size_t)length);
    g_free(text);
    close(descriptor);
    return status;

free_text:
    g_free(text);
close_file:
    te_log(TE_LOG_ERROR, "%s", te_status_message());
    if (descriptor >= 0)
        close(descriptor);
    return status;
}
