/* te info --config: what te_setting_at tells, for people and as JSON. */
#include "settings.h"

#include <glib.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "te.h"
#include "transfer_engine_ext.h"

enum { LIST_COLUMNS = 100 };

static const char *const sources[] = {
    [TE_SETTING_FROM_DEFAULT] = "default",
    [TE_SETTING_FROM_FILE] = "file",
    [TE_SETTING_FROM_ENVIRONMENT] = "environment",
};

/* Of te_setting_t. NULL: the library cannot tell. */
static GArray *read_settings(void)
{
    GArray *settings = g_array_new(FALSE, FALSE, sizeof(te_setting_t));
    te_setting_t setting = {.struct_size = sizeof(setting)};
    int result = te_setting_at(0, &setting);
    while (result == 1) {
        g_array_append_val(settings, setting);
        result = te_setting_at(settings->len, &setting);
    }
    if (result == 0)
        return settings;
    te_complain("no engine can be created with these settings: %s", te_last_error());
    g_array_free(settings, TRUE);
    return NULL;
}

static bool is_default(const te_setting_t *setting)
{
    return strcmp(setting->value, setting->default_value) == 0;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void add_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, text && *text ? json_object_new_string(text) : NULL);
}

static void print_json(const GArray *settings)
{
    struct json_object *all = json_object_new_object(), *list = json_object_new_array();
    for (guint i = 0; i < settings->len; i++) {
        const te_setting_t *setting = &g_array_index(settings, te_setting_t, i);
        struct json_object *entry = json_object_new_object();
        add_text(entry, "name", setting->name);
        add_text(entry, "alias", setting->alias);
        add_text(entry, "group", setting->group);
        json_object_object_add(entry, "has_effect", json_object_new_boolean(setting->has_effect));
        add_text(entry, "value", setting->value);
        add_text(entry, "source", sources[setting->source]);
        add_text(entry, "default", setting->default_value);
        json_object_object_add(entry, "is_default", json_object_new_boolean(is_default(setting)));
        add_text(entry, "accepted", setting->accepted);
        add_text(entry, "help", setting->help);
        json_object_array_add(list, entry);
    }
    add_text(all, "version", te_version());
    json_object_object_add(all, "settings", list);
    puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(all);
}

/* ---- For people ------------------------------------------------------------------------------------------------- */

/* One line, whatever is in the environment. */
static void print_setting(const te_setting_t *setting)
{
    const char *nothing = is_default(setting) ? "not given" : "empty";
    g_autofree char *value = g_strdup(*setting->value ? setting->value : nothing);
    for (char *at = value; *at; at++)
        if (g_ascii_iscntrl(*at))
            *at = '?';
    printf("%c %-40s %-12s %-12s %s\n", is_default(setting) ? ' ' : '*', setting->name, value, sources[setting->source],
           *setting->default_value ? setting->default_value : "not given");
    printf("      %s [%s%s%s]\n", setting->help, setting->accepted, setting->alias ? "; also " : "",
           setting->alias ? setting->alias : "");
}

static void print_effective(const GArray *settings)
{
    const char *group = "";
    printf("  %-40s %-12s %-12s %s\n", "name", "value", "from", "default");
    for (guint i = 0; i < settings->len; i++) {
        const te_setting_t *setting = &g_array_index(settings, te_setting_t, i);
        if (!setting->has_effect)
            continue;
        if (strcmp(group, setting->group) != 0)
            printf("\n%s\n", setting->group);
        group = setting->group;
        print_setting(setting);
    }
}

/* A name, or the beginning of many. */
static const char *any_ending(const te_setting_t *setting)
{
    return g_str_has_suffix(setting->name, "_") ? "*" : "";
}

static void print_given_in_vain(const GArray *settings)
{
    bool any = false;
    for (guint i = 0; i < settings->len; i++) {
        const te_setting_t *setting = &g_array_index(settings, te_setting_t, i);
        if (setting->has_effect || setting->source == TE_SETTING_FROM_DEFAULT)
            continue;
        if (!any)
            printf("\nGiven, but without effect here\n");
        any = true;
        printf("* %s%s from %s: %s\n", setting->name, any_ending(setting), sources[setting->source], setting->help);
    }
}

/* The names without effect that have this reason. */
static void print_reason(const GArray *settings, const char *reason)
{
    int column = LIST_COLUMNS;
    printf("  %s:", reason);
    for (guint i = 0; i < settings->len; i++) {
        const te_setting_t *setting = &g_array_index(settings, te_setting_t, i);
        if (setting->has_effect || strcmp(setting->help, reason) != 0)
            continue;
        g_autofree char *word = g_strconcat(setting->name, any_ending(setting), NULL);
        if (column + (int)strlen(word) >= LIST_COLUMNS)
            column = printf("\n      %s", word) - 1;
        else
            column += printf(" %s", word);
    }
    printf("\n");
}

static void print_without_effect(const GArray *settings)
{
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    printf("\nKnown names without effect here\n");
    for (guint i = 0; i < settings->len; i++) {
        const te_setting_t *setting = &g_array_index(settings, te_setting_t, i);
        if (!setting->has_effect && g_hash_table_add(seen, (void *)setting->help))
            print_reason(settings, setting->help);
    }
}

bool te_settings_print(bool json)
{
    g_autoptr(GArray) settings = read_settings();
    if (!settings)
        return false;
    if (json) {
        print_json(settings);
        return true;
    }
    printf("transfer_engine %s: what an engine that is created now takes; * is not the default\n\n", te_version());
    print_effective(settings);
    print_given_in_vain(settings);
    print_without_effect(settings);
    return true;
}
