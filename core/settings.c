#include "core/settings_private.h"

#include <assert.h>
#include <errno.h>
#include <glib.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "core/log.h"

enum rule_kind {
    RULE_PRESENCE,
    RULE_BOOLEAN,
    RULE_RUNTIME,
    RULE_INTEGER,
    RULE_PORT,
    RULE_TEXT,
    RULE_CHOICE,
    RULE_EXACTLY,
    RULE_FILE,
    RULE_UNUSED,
    RULE_FOREIGN
};
enum { UNSET, ALLOWED };

/* How the text of a row becomes the field. */
struct rule {
    enum rule_kind kind;
    size_t offset;            /* of the field in struct te_settings */
    int64_t minimum, maximum; /* RULE_INTEGER */
    int otherwise;            /* RULE_BOOLEAN: what other words mean; RULE_TEXT: UNSET or ALLOWED */
    const char *wanted;       /* RULE_EXACTLY */
};

#define YES_WORDS   "1, true, yes, on"
#define NO_WORDS    "0, false, no, off"
#define FIELD(name) offsetof(struct te_settings, name)

static const struct te_setting_row rows[] = {
#define TE_PRESENCE(field, name, alias, help) {name, alias, TE_GROUP, NULL, "any value, even 0", help},
#define TE_BOOLEAN(field, name, alias, initial, otherwise, help)                                                       \
    {name, alias, TE_GROUP, initial, YES_WORDS ", " NO_WORDS, help},
#define TE_RUNTIME(field, name, alias, help)                                                                           \
    {name, alias, TE_GROUP, "0", "any value; " NO_WORDS " and the empty one mean no", help},

#define TE_INTEGER(field, name, alias, initial, minimum, maximum, help)                                                \
    {name, alias, TE_GROUP, #initial, #minimum ".." #maximum, help},
#define TE_LIMIT(field, name, alias, maximum, help)    {name, alias, TE_GROUP, "-1", "-1, 1.." #maximum, help},
#define TE_OPTIONAL(field, name, alias, maximum, help) {name, alias, TE_GROUP, NULL, "1.." #maximum, help},

#define TE_PORT(field, name, alias, initial, help) {name, alias, TE_GROUP, initial, "1024..32767, 61000..65535", help},

#define TE_TEXT(field, name, alias, initial, empty, accepted, help)   {name, alias, TE_GROUP, initial, accepted, help},
#define TE_CHOICE(field, name, alias, initial, choices, help)         {name, alias, TE_GROUP, initial, choices, help},
#define TE_EXACTLY(field, name, alias, initial, value, choices, help) {name, alias, TE_GROUP, initial, choices, help},

#define TE_FILE(field, name, help) {name, NULL, TE_GROUP, NULL, "name of a file", help},
#define TE_UNUSED(name, reason)    {name, NULL, TE_GROUP, NULL, NULL, reason},
#define TE_FOREIGN(name, reader)   {name, NULL, TE_GROUP, NULL, NULL, "read by " reader},
#include "core/settings.def"
};

static const struct rule rules[] = {
#define TE_PRESENCE(field, name, alias, help) {.kind = RULE_PRESENCE, .offset = FIELD(field)},
#define TE_BOOLEAN(field, name, alias, initial, other, help)                                                           \
    {.kind = RULE_BOOLEAN, .offset = FIELD(field), .otherwise = (other)},
#define TE_RUNTIME(field, name, alias, help) {.kind = RULE_RUNTIME, .offset = FIELD(field)},
#define TE_INTEGER(field, name, alias, initial, least, most, help)                                                     \
    {.kind = RULE_INTEGER, .offset = FIELD(field), .minimum = (least), .maximum = (most)},
#define TE_LIMIT(field, name, alias, most, help)                                                                       \
    {.kind = RULE_INTEGER, .offset = FIELD(field), .minimum = -1, .maximum = (most)},
#define TE_OPTIONAL(field, name, alias, most, help)                                                                    \
    {.kind = RULE_INTEGER, .offset = FIELD(field), .minimum = 1, .maximum = (most)},
#define TE_PORT(field, name, alias, initial, help) {.kind = RULE_PORT, .offset = FIELD(field)},
#define TE_TEXT(field, name, alias, initial, empty, accepted, help)                                                    \
    {.kind = RULE_TEXT, .offset = FIELD(field), .otherwise = (empty)},
#define TE_CHOICE(field, name, alias, initial, choices, help) {.kind = RULE_CHOICE, .offset = FIELD(field)},
#define TE_EXACTLY(field, name, alias, initial, value, choices, help)                                                  \
    {.kind = RULE_EXACTLY, .offset = FIELD(field), .wanted = (value)},
#define TE_FILE(field, name, help) {.kind = RULE_FILE, .offset = FIELD(field)},
#define TE_UNUSED(name, reason)    {.kind = RULE_UNUSED},
#define TE_FOREIGN(name, reader)   {.kind = RULE_FOREIGN},
#include "core/settings.def"
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
static_assert((int)ROWS <= (int)TE_SETTINGS_ROWS_MAX, "struct te_settings has room for the source of each row");

/* ---- Messages, once each ---------------------------------------------------------------------------------------- */

/* What has been said, by hash, so that it costs no memory that somebody would have to release. When it is full, nothing
 * new is said: nobody sets that many variables wrong. */
static _Atomic uint64_t said[512];

static bool say_for_the_first_time(const char *message)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */

    for (const char *byte = message; *byte; byte++)
        hash = (hash ^ (unsigned char)*byte) * UINT64_C(1099511628211);
    if (hash == 0)
        hash = 1;
    for (size_t i = 0; i < G_N_ELEMENTS(said); i++) {
        uint64_t found = 0;

        if (atomic_compare_exchange_strong(&said[i], &found, hash))
            return true;
        if (found == hash)
            return false;
    }
    return false;
}

static void say_once(enum te_log_level level, const char *format, va_list arguments)
{
    char message[512];

    g_vsnprintf(message, sizeof(message), format, arguments);
    if (say_for_the_first_time(message))
        te_log(level, "%s", message);
}

void te_settings_warn_once(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say_once(TE_LOG_WARNING, format, arguments);
    va_end(arguments);
}

static void inform_once(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void inform_once(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say_once(TE_LOG_INFO, format, arguments);
    va_end(arguments);
}

/* ---- One value -------------------------------------------------------------------------------------------------- */

static bool *bool_field(struct te_settings *settings, int row)
{
    return (bool *)((char *)settings + rules[row].offset);
}

/* Signed or unsigned in the structure; the values of an unsigned one are never negative. */
static int64_t *number_field(struct te_settings *settings, int row)
{
    return (int64_t *)(void *)((char *)settings + rules[row].offset);
}

static char **text_field(struct te_settings *settings, int row)
{
    return (char **)(void *)((char *)settings + rules[row].offset);
}

/* Is value one of the words in "a, b, c"? */
static bool is_one_of(const char *value, const char *words, bool any_case)
{
    char **list = g_strsplit(words, ", ", -1);
    bool found = false;

    for (char **word = list; *word && !found; word++)
        found = any_case ? g_ascii_strcasecmp(value, *word) == 0 : strcmp(value, *word) == 0;
    g_strfreev(list);
    return found;
}

/* A whole decimal number with blanks around it and nothing else. */
static bool parse_integer(const char *text, int64_t *number)
{
    char *end;
    gint64 value;

    while (g_ascii_isspace(*text))
        text++;
    if (!g_ascii_isdigit(*text) && !(*text == '-' && g_ascii_isdigit(text[1])))
        return false;
    errno = 0;
    value = g_ascii_strtoll(text, &end, 10);
    while (g_ascii_isspace(*end))
        end++;
    if (*end || errno == ERANGE)
        return false;
    *number = value;
    return true;
}

static bool is_port(int64_t port)
{
    return (port >= 1024 && port <= 32767) || (port >= 61000 && port <= 65535);
}

static void apply_boolean(struct te_settings *settings, int row, const char *label, const char *text)
{
    bool *field = bool_field(settings, row);
    char *value = g_strstrip(g_strdup(text));

    if (is_one_of(value, YES_WORDS, true)) {
        *field = true;
    } else if (is_one_of(value, NO_WORDS, true)) {
        *field = false;
    } else {
        *field = rules[row].otherwise;
        if (*value || rules[row].kind == RULE_PRESENCE)
            te_settings_warn_once("%s=%.64s is none of " YES_WORDS ", " NO_WORDS "; taken for %s", label, text,
                                  *field ? "true" : "false");
    }
    g_free(value);
}

/* Any value selects TENT but these. Mooncake looks at the presence alone, so say it. */
static void apply_runtime(struct te_settings *settings, int row, const char *label, const char *text)
{
    char *value = g_strstrip(g_strdup(text));

    *bool_field(settings, row) = *value && !is_one_of(value, NO_WORDS, true);
    if (!*bool_field(settings, row))
        inform_once("%s=%.64s selects the classic runtime here; Mooncake would look only at the name being set", label,
                    text);
    g_free(value);
}

/* The value stays what it was. */
static void warn_about_value(struct te_settings *settings, int row, const char *label, const char *text,
                             const char *problem)
{
    char *value = te_settings_value(settings, (size_t)row, NULL);

    te_settings_warn_once("%s=%.64s is %s %s; %s stays %s", label, text, problem, rows[row].range, rows[row].name,
                          *value || rows[row].default_text ? value : "not given");
    g_free(value);
}

/* Whether the text counts. */
static bool apply_integer(struct te_settings *settings, int row, const char *label, const char *text)
{
    const struct rule *rule = &rules[row];
    int64_t *field = number_field(settings, row);
    int64_t number;

    if (parse_integer(text, &number) && number >= rule->minimum && number <= rule->maximum &&
        !(number == 0 && rule->minimum < 0)) {
        *field = number;
        return true;
    }
    warn_about_value(settings, row, label, text, "not a whole number in");
    return false;
}

/* A port that is none becomes 0, which makes the whole range fall back in complete_port_range(). */
static void apply_port(struct te_settings *settings, int row, const char *label, const char *text)
{
    int64_t *field = number_field(settings, row);

    if (parse_integer(text, field) && is_port(*field))
        return;
    *field = 0;
    te_settings_warn_once("%s=%.64s is not a port in %s", label, text, rows[row].range);
}

/* Whether the text counts. */
static bool apply_choice(struct te_settings *settings, int row, const char *label, const char *text)
{
    if (!is_one_of(text, rows[row].range, false)) {
        warn_about_value(settings, row, label, text, "none of");
        return false;
    }
    if (rules[row].kind == RULE_EXACTLY) {
        *bool_field(settings, row) = strcmp(text, rules[row].wanted) == 0;
    } else {
        g_free(*text_field(settings, row));
        *text_field(settings, row) = g_strdup(text);
    }
    return true;
}

static void apply_text(struct te_settings *settings, int row, const char *text)
{
    g_free(*text_field(settings, row));
    *text_field(settings, row) = *text || rules[row].otherwise == ALLOWED ? g_strdup(text) : NULL;
}

void te_settings_apply(struct te_settings *settings, int row, const char *label, const char *text,
                       enum te_settings_source source)
{
    switch (rules[row].kind) {
    case RULE_PRESENCE:
        /* In the environment the name alone counts; a file can say no. */
        if (source == TE_FROM_ENVIRONMENT)
            *bool_field(settings, row) = true;
        else
            apply_boolean(settings, row, label, text);
        break;
    case RULE_BOOLEAN:
        apply_boolean(settings, row, label, text);
        break;
    case RULE_RUNTIME:
        if (source != TE_FROM_DEFAULT) /* false, and nobody has to be told */
            apply_runtime(settings, row, label, text);
        break;
    case RULE_INTEGER:
        if (!apply_integer(settings, row, label, text))
            return;
        break;
    case RULE_PORT:
        apply_port(settings, row, label, text);
        break;
    case RULE_TEXT:
        apply_text(settings, row, text);
        break;
    case RULE_CHOICE:
    case RULE_EXACTLY:
        if (!apply_choice(settings, row, label, text))
            return;
        break;
    case RULE_FILE:
        if (source == TE_FROM_FILE) {
            te_settings_warn_once("%s has no effect in a settings file", label);
            return;
        }
        apply_text(settings, row, text);
        break;
    case RULE_UNUSED:
        inform_once("%s has no meaning here: %s", label, rows[row].help);
        break;
    case RULE_FOREIGN:
        break;
    }
    settings->sources[row] = source;
}

/* ---- All values ------------------------------------------------------------------------------------------------- */

static void apply_defaults(struct te_settings *settings)
{
    memset(settings, 0, sizeof(*settings));
    for (int row = 0; row < ROWS; row++) {
        if (rows[row].default_text)
            te_settings_apply(settings, row, rows[row].name, rows[row].default_text, TE_FROM_DEFAULT);
    }
}

/* Does a name of the table that ends with _ cover this one, or is it the same? */
static bool name_covers(const char *row_name, const char *name)
{
    return g_str_has_suffix(row_name, "_") ? g_str_has_prefix(name, row_name) : strcmp(row_name, name) == 0;
}

/* Is key the name in lower case without its prefix? */
static bool is_short_form(const char *key, const char *name)
{
    if (g_str_has_prefix(name, "MC_") || g_str_has_prefix(name, "TE_"))
        name += 3;
    while (*name && *key == g_ascii_tolower(*name)) {
        name++;
        key++;
    }
    return !*name && !*key;
}

int te_settings_find_row(const char *name, bool in_file)
{
    for (int row = 0; row < ROWS; row++) {
        const char *alias = rows[row].alias;

        if (name_covers(rows[row].name, name) || (alias && strcmp(alias, name) == 0))
            return row;
        if (in_file && (is_short_form(name, rows[row].name) || (alias && is_short_form(name, alias))))
            return row;
    }
    return -1;
}

/* The names that no row has as its own: unknown ones, and those that a row covers which ends with _. */
static void apply_other_names(struct te_settings *settings, char **environment)
{
    for (char **entry = environment; entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        char *name;
        int row;

        if (!equals || !(g_str_has_prefix(*entry, "MC_") || g_str_has_prefix(*entry, "TE_")))
            continue;
        name = g_strndup(*entry, (gsize)(equals - *entry));
        row = te_settings_find_row(name, false);
        if (row < 0)
            te_settings_warn_once("the environment variable %.64s is not known and has no effect", name);
        else if (g_str_has_suffix(rows[row].name, "_"))
            te_settings_apply(settings, row, name, equals + 1, TE_FROM_ENVIRONMENT);
        g_free(name);
    }
}

static void apply_environment(struct te_settings *settings)
{
    if (getauxval(AT_SECURE))
        return;
    for (int row = 0; row < ROWS; row++) {
        const char *name = rows[row].name;
        const char *text = secure_getenv(name);

        if (!text && rows[row].alias && (text = secure_getenv(rows[row].alias))) {
            inform_once("%s is an old name of %s", rows[row].alias, name);
            name = rows[row].alias;
        }
        if (text)
            te_settings_apply(settings, row, name, text, TE_FROM_ENVIRONMENT);
    }
    apply_other_names(settings, environ);
}

/* Both ends of the range count or neither (classic specification 3.8). */
static void complete_port_range(struct te_settings *settings)
{
    int rows_of_range[] = {te_settings_find_row("MC_MIN_RPC_PORT", false),
                           te_settings_find_row("MC_MAX_RPC_PORT", false)};

    if (is_port((int64_t)settings->minimum_port) && is_port((int64_t)settings->maximum_port) &&
        settings->minimum_port <= settings->maximum_port)
        return;
    for (size_t i = 0; i < G_N_ELEMENTS(rows_of_range); i++)
        te_settings_apply(settings, rows_of_range[i], rows[rows_of_range[i]].name, rows[rows_of_range[i]].default_text,
                          TE_FROM_DEFAULT);
    te_settings_warn_once("MC_MIN_RPC_PORT and MC_MAX_RPC_PORT do not make a range; %" G_GUINT64_FORMAT
                          " to %" G_GUINT64_FORMAT " is used",
                          settings->minimum_port, settings->maximum_port);
}

/* Where one of the classic engine's two timeouts is given, the smaller of them is the silence timeout. */
static void complete_silence_timeout(struct te_settings *settings)
{
    static const char *const classic[] = {"MC_TCP_STATUS_TIMEOUT_SEC", "MC_TCP_PROGRESS_TIMEOUT_SEC"};
    int row = te_settings_find_row("TE_TCP_SILENCE_TIMEOUT_MS", false);
    int64_t smallest_seconds = INT64_MAX;

    for (size_t i = 0; i < G_N_ELEMENTS(classic); i++) {
        int classic_row = te_settings_find_row(classic[i], false);
        int64_t seconds = *number_field(settings, classic_row);

        if (seconds == 0 || seconds >= smallest_seconds)
            continue;
        smallest_seconds = seconds;
        settings->tcp_silence_timeout_ms = (uint64_t)seconds * 1000;
        settings->sources[row] = settings->sources[classic_row];
    }
}

static void complete(struct te_settings *settings)
{
    complete_port_range(settings);
    complete_silence_timeout(settings);
}

te_status te_settings_load(struct te_settings *settings)
{
    const char *file_name = secure_getenv("TE_CONFIG");
    struct te_settings loaded;
    te_status status;

    apply_defaults(&loaded);
    if (file_name && *file_name) {
        status = te_settings_apply_file(&loaded, file_name);
        if (status != TE_OK)
            goto clear;
    }
    apply_environment(&loaded);
    complete(&loaded);
    *settings = loaded;
    return TE_OK;

clear:
    te_settings_clear(&loaded);
    return status;
}

te_status te_settings_from_text(struct te_settings *settings, const char *file_name, const char *text, size_t length)
{
    struct te_settings loaded;
    te_status status;

    apply_defaults(&loaded);
    status = te_settings_apply_text(&loaded, file_name, text, length);
    if (status != TE_OK)
        goto clear;
    complete(&loaded);
    *settings = loaded;
    return TE_OK;

clear:
    te_settings_clear(&loaded);
    return status;
}

void te_settings_clear(struct te_settings *settings)
{
    for (int row = 0; row < ROWS; row++) {
        if (rules[row].kind == RULE_TEXT || rules[row].kind == RULE_CHOICE || rules[row].kind == RULE_FILE)
            g_clear_pointer(text_field(settings, row), g_free);
    }
}

/* ---- For tools and documentation -------------------------------------------------------------------------------- */

const struct te_setting_row *te_settings_rows(size_t *count)
{
    *count = ROWS;
    return rows;
}

char *te_settings_value(const struct te_settings *settings, size_t row, enum te_settings_source *source)
{
    struct te_settings *readable = (struct te_settings *)settings; /* only read, through the accessors above */
    bool optional = !rows[row].default_text;

    if (source)
        *source = (enum te_settings_source)settings->sources[row];
    switch (rules[row].kind) {
    case RULE_PRESENCE:
        return g_strdup(*bool_field(readable, (int)row) ? "1" : "");
    case RULE_BOOLEAN:
    case RULE_RUNTIME:
        return g_strdup(*bool_field(readable, (int)row) ? "1" : "0");
    case RULE_EXACTLY:
        return g_strdup(*bool_field(readable, (int)row) ? rules[row].wanted : rows[row].default_text);
    case RULE_INTEGER:
    case RULE_PORT:
        if (optional && *number_field(readable, (int)row) == 0)
            return g_strdup("");
        return g_strdup_printf("%" G_GINT64_FORMAT, *number_field(readable, (int)row));
    case RULE_TEXT:
    case RULE_CHOICE:
    case RULE_FILE:
        return g_strdup(*text_field(readable, (int)row) ? *text_field(readable, (int)row) : "");
    default:
        return g_strdup("");
    }
}
