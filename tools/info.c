/* te info: what this library is and what it can do on this machine. Found out by trying, not from a list. */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "settings.h"
#include "te.h"
#include "transfer_engine_ext.h"

static const char *const protocols[] = {"tcp", "rdma", "efa", "ascend"};

static struct json_object *text_or_reason(bool works, const char *reason)
{
    struct json_object *entry = json_object_new_object();
    json_object_object_add(entry, "available", json_object_new_boolean(works));
    if (!works)
        json_object_object_add(entry, "reason", json_object_new_string(*reason ? reason : "no reason was given"));
    return entry;
}

static transfer_engine_t new_engine(void)
{
    return createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "127.0.0.1", 0, 0);
}

static void discard_message(int level, const char *message, void *data)
{
    (void)level;
    (void)message;
    (void)data;
}

/* Whether an engine can be created when use_tent is what MC_USE_TENT says; NULL: it is not set. */
static struct json_object *try_runtime(const char *use_tent)
{
    g_autofree char *before = g_strdup(g_getenv("MC_USE_TENT"));
    g_autofree char *before_alias = g_strdup(g_getenv("MC_USE_TEV1"));
    g_unsetenv("MC_USE_TEV1");
    g_unsetenv("MC_USE_TENT");
    if (use_tent)
        g_setenv("MC_USE_TENT", use_tent, TRUE);
    transfer_engine_t engine = new_engine();
    struct json_object *result = text_or_reason(engine, te_last_error());
    if (engine)
        destroyTransferEngine(engine);
    g_unsetenv("MC_USE_TENT");
    if (before)
        g_setenv("MC_USE_TENT", before, TRUE);
    if (before_alias)
        g_setenv("MC_USE_TEV1", before_alias, TRUE);
    return result;
}

static struct json_object *try_transports(void)
{
    struct json_object *result = json_object_new_object();
    for (size_t i = 0; i < G_N_ELEMENTS(protocols); i++) {
        transfer_engine_t engine = new_engine();
        bool works = engine && installTransport(engine, protocols[i], NULL);
        json_object_object_add(result, protocols[i], text_or_reason(works, te_last_error()));
        if (engine)
            destroyTransferEngine(engine);
    }
    return result;
}

static struct json_object *read_limits(void)
{
    struct json_object *result = json_object_new_object();
    struct rlimit files = {0, 0};
    getrlimit(RLIMIT_NOFILE, &files);
    json_object_object_add(result, "cores", json_object_new_int64(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_object_add(result, "open_files", json_object_new_uint64(files.rlim_cur));
    json_object_object_add(result, "open_files_maximum", json_object_new_uint64(files.rlim_max));
    g_autofree char *congestion = NULL;
    if (g_file_get_contents("/proc/sys/net/ipv4/tcp_congestion_control", &congestion, NULL, NULL))
        json_object_object_add(result, "tcp_congestion_control", json_object_new_string(g_strstrip(congestion)));
    return result;
}

static int compare_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static struct json_object *read_settings(void)
{
    struct json_object *result = json_object_new_object();
    g_autoptr(GPtrArray) lines = g_ptr_array_new();
    for (char **line = environ; *line; line++)
        if ((g_str_has_prefix(*line, "MC_") || g_str_has_prefix(*line, "TE_")) && strchr(*line, '='))
            g_ptr_array_add(lines, *line);
    g_ptr_array_sort(lines, compare_text);
    for (guint i = 0; i < lines->len; i++) {
        const char *line = g_ptr_array_index(lines, i);
        g_autofree char *name = g_strndup(line, strcspn(line, "="));
        bool secret = strstr(name, "PASSWORD") != NULL; /* what is shown here ends up in bug reports */
        json_object_object_add(result, name, json_object_new_string(secret ? "(hidden)" : strchr(line, '=') + 1));
    }
    return result;
}

static struct json_object *gather(void)
{
    struct json_object *info = json_object_new_object(), *runtimes = json_object_new_object();
    json_object_object_add(info, "version", json_object_new_string(te_version()));
    struct json_object *settings = read_settings();
    json_object_object_add(runtimes, "classic", try_runtime(NULL));
    json_object_object_add(runtimes, "tent", try_runtime("1"));
    json_object_object_add(info, "runtimes", runtimes);
    json_object_object_add(info, "transports", try_transports());
    json_object_object_add(info, "limits", read_limits());
    json_object_object_add(info, "environment", settings);
    return info;
}

static void print_availability(const char *title, struct json_object *entries)
{
    printf("%s\n", title);
    json_object_object_foreach(entries, name, entry)
    {
        struct json_object *reason = json_object_object_get(entry, "reason");
        if (reason)
            printf("  %-12sno: %s\n", name, json_object_get_string(reason));
        else
            printf("  %-12syes\n", name);
    }
}

static void print_plain(const char *title, struct json_object *entries, int width)
{
    printf("%s\n", title);
    json_object_object_foreach(entries, name, entry)
    {
        printf("  %-*s %s\n", width, name, json_object_get_string(entry));
    }
    if (json_object_object_length(entries) == 0)
        printf("  none\n");
}

int te_info_main(int argc, char **argv)
{
    gboolean json = FALSE, config = FALSE;
    const GOptionEntry entries[] = {{"config", 0, 0, G_OPTION_ARG_NONE, &config,
                                     "Show all settings instead, and where their values come from", NULL},
                                    {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON", NULL},
                                    {0}};
    if (!te_options_parse(&argc, &argv, entries, "info", NULL, "Shows what the library can do on this machine."))
        return TE_EXIT_USAGE;
    if (config)
        return te_settings_print(json) ? TE_EXIT_DONE : TE_EXIT_FAILED;
    te_set_log_callback(discard_message, NULL); /* what fails is part of the answer */
    struct json_object *info = gather();
    if (json) {
        puts(json_object_to_json_string_ext(info, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    } else {
        printf("transfer_engine %s\n", te_version());
        print_availability("runtimes", json_object_object_get(info, "runtimes"));
        print_availability("transports", json_object_object_get(info, "transports"));
        print_plain("limits", json_object_object_get(info, "limits"), 24);
        print_plain("settings in the environment", json_object_object_get(info, "environment"), 32);
    }
    struct json_object *classic = json_object_object_get(json_object_object_get(info, "runtimes"), "classic");
    bool works = json_object_get_boolean(json_object_object_get(classic, "available"));
    json_object_put(info);
    return works ? TE_EXIT_DONE : TE_EXIT_FAILED;
}
