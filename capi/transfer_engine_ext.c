/* The functions of transfer_engine_ext.h. */
#include "capi/export.h"

#include <glib.h>
#include <stdbool.h>
#include <string.h>

#include "core/log.h"
#include "core/settings.h"
#include "core/status.h"

/* A structure of the caller's that claims to be larger than this is not believed. */
enum { MAXIMUM_STRUCT_BYTES = 4096 };

/* Checks a structure that starts with its size against the size known here. */
static te_status check_struct_size(const char *what, size_t size, size_t known_size)
{
    if (size < known_size || size > MAXIMUM_STRUCT_BYTES)
        return te_fail(TE_INVALID_ARGUMENT, "%s: struct_size is %zu, expected at least %zu", what, size, known_size);
    return TE_OK;
}

static te_status read_options(const te_submit_options_t *given, te_submit_options_t *known)
{
    const unsigned char *bytes = (const unsigned char *)given;

    if (check_struct_size("te_submit_options", given->struct_size, sizeof(*known)) != TE_OK)
        return TE_INVALID_ARGUMENT;
    for (size_t i = sizeof(*known); i < given->struct_size; i++) {
        if (bytes[i] != 0)
            return te_fail(TE_INVALID_ARGUMENT, "te_submit_options: this library does not know the option at byte %zu",
                           i);
    }
    if (given->reserved != 0)
        return te_fail(TE_INVALID_ARGUMENT, "te_submit_options: reserved is not 0");
    if (given->priority < TE_PRIORITY_DEFAULT || given->priority > TE_PRIORITY_LOW)
        return te_fail(TE_INVALID_ARGUMENT, "te_submit_options: there is no priority %d", (int)given->priority);
    *known = *given;
    known->struct_size = sizeof(*known);
    return TE_OK;
}

int te_submit(transfer_engine_t engine, batch_id_t batch, const struct transfer_request *requests, size_t count,
              const te_submit_options_t *options)
{
    struct te_engine_call call __attribute__((cleanup(te_engine_leave)));
    te_submit_options_t known;

    if (!te_engine_enter(engine, &call))
        return TE_INVALID_ARGUMENT;
    if (options && read_options(options, &known) != TE_OK)
        return TE_INVALID_ARGUMENT;
    return call.ops->submit(call.runtime, batch, requests, count, options ? &known : NULL);
}

int te_batch_status(transfer_engine_t engine, batch_id_t batch, te_batch_status_t *status)
{
    struct te_engine_call call __attribute__((cleanup(te_engine_leave)));
    te_batch_status_t known = {.struct_size = sizeof(known)};
    size_t caller_size;
    int result;

    if (!te_engine_enter(engine, &call))
        return TE_INVALID_ARGUMENT;
    if (!status)
        return te_fail(TE_INVALID_ARGUMENT, "te_batch_status: no place for the status");
    caller_size = status->struct_size;
    if (check_struct_size("te_batch_status", caller_size, sizeof(known)) != TE_OK)
        return TE_INVALID_ARGUMENT;
    result = call.ops->batch_status(call.runtime, batch, &known);
    if (result != TE_OK)
        return result;
    memset(status, 0, caller_size);
    *status = known;
    status->struct_size = caller_size;
    return TE_OK;
}

const char *te_last_error(void)
{
    return te_status_message();
}

const char *te_version(void)
{
    return TE_VERSION;
}

void te_set_log_callback(te_log_callback_t callback, void *user_data)
{
    te_log_set_function(callback, user_data);
}

static void describe_setting(const struct te_setting_row *row, const char *value, enum te_settings_source source,
                             te_setting_t *setting)
{
    setting->name = row->name;
    setting->alias = row->alias;
    setting->group = row->group;
    setting->accepted = row->range ? row->range : "";
    setting->default_value = row->default_text ? row->default_text : "";
    setting->help = row->help;
    setting->has_effect = row->range != NULL;
    setting->source = (int32_t)source;
    g_strlcpy(setting->value, value, sizeof(setting->value));
}

int te_setting_at(size_t index, te_setting_t *setting)
{
    const struct te_setting_row *rows;
    struct te_settings settings;
    enum te_settings_source source;
    size_t caller_size, count;
    char *value;
    te_status status;

    if (!setting)
        return te_fail(TE_INVALID_ARGUMENT, "te_setting_at: no place for the setting");
    caller_size = setting->struct_size;
    if (check_struct_size("te_setting", caller_size, sizeof(*setting)) != TE_OK)
        return TE_INVALID_ARGUMENT;
    rows = te_settings_rows(&count);
    if (index >= count)
        return 0;
    status = te_settings_load(&settings);
    if (status != TE_OK)
        return status;
    value = te_settings_value(&settings, index, &source);
    memset(setting, 0, caller_size);
    setting->struct_size = caller_size;
    describe_setting(&rows[index], value, source, setting);
    g_free(value);
    te_settings_clear(&settings);
    return 1;
}

#define FORWARD_c(...)         TE_NOTHING()
#define FORWARD_ext(...)       TE_FORWARD(__VA_ARGS__)
#define FORWARD_ext_sized(...) TE_NOTHING()
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments)                                       \
    FORWARD_##kind(slot, name, result, without_engine, parameters, arguments)
#include "shim/calls.def"
