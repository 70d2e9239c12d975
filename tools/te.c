/* The `te` program: looks at, tries out and measures the transfer engine. One file per subcommand. */
#include "te.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "transfer_engine_ext.h"

static const struct subcommand {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} subcommands[] = {
    {"demo", "two processes on this host exchange data; shows that everything works", te_demo_main},
    {"info", "version, runtimes, transports, limits, settings", te_info_main},
    {"probe", "asks whether a peer answers", te_probe_main},
    {"bench", "measures transfers: bench local, bench target, bench initiator", te_bench_main},
};

void te_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    fprintf(stderr, "te: %s\n", text);
}

bool te_options_parse(int *argc, char ***argv, const GOptionEntry *entries, const char *title, const char *arguments,
                      const char *summary)
{
    g_autofree char *program = g_strdup_printf("te %s", title);
    g_set_prgname(program);
    g_autoptr(GOptionContext) context = g_option_context_new(arguments);
    g_option_context_set_summary(context, summary);
    g_option_context_add_main_entries(context, entries, NULL);
    g_autoptr(GError) error = NULL;
    if (!g_option_context_parse(context, argc, argv, &error)) {
        te_complain("%s; `te %s --help` lists the options", error->message, title);
        return false;
    }
    if (!arguments && *argc > 1) {
        te_complain("%s is no option; `te %s --help` lists them", (*argv)[1], title);
        return false;
    }
    return true;
}

bool te_size_parse(const char *text, const char *option, size_t *size)
{
    char *end;
    const char *units = "KMG";
    guint64 value = g_ascii_strtoull(text, &end, 10);
    unsigned int shift = 0;
    const char *unit = *end ? strchr(units, g_ascii_toupper(*end)) : NULL;
    if (unit) {
        shift = 10 * (unsigned int)(unit - units + 1);
        end++;
    }
    if (!g_ascii_isdigit(*text) || *end || value == 0 || value > (SIZE_MAX >> 1 >> shift)) {
        te_complain("--%s=%s is no size: give bytes, or a number with K, M or G, such as 64K", option, text);
        return false;
    }
    *size = (size_t)value << shift;
    return true;
}

const char *te_size_text(size_t size, char text[TE_SIZE_TEXT_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    while (unit + 1 < G_N_ELEMENTS(units) && size >= 1024 && size % 1024 == 0) {
        size /= 1024;
        unit++;
    }
    g_snprintf(text, TE_SIZE_TEXT_MAX, "%zu %s", size, units[unit]);
    return text;
}

int64_t te_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double te_own_cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* What the library has to say: only what matters, unless somebody asks for more with MC_LOG_LEVEL. */
static void print_message(int level, const char *message, void *wants_all)
{
    if (wants_all || level >= TE_LOG_LEVEL_WARNING)
        fprintf(stderr, "transfer_engine: %s\n", message);
}

static void print_usage(FILE *stream)
{
    fputs("Usage: te COMMAND [OPTION...]\n\n", stream);
    for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++)
        fprintf(stream, "  %-8s%s\n", subcommands[i].name, subcommands[i].summary);
    fputs("\n`te COMMAND --help` lists the options of a command; `te --version` names the library.\n", stream);
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    te_set_log_callback(print_message, (void *)g_getenv("MC_LOG_LEVEL"));
    signal(SIGPIPE, SIG_IGN); /* a process at the other end of a pipe may go first */
    for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++)
        if (!strcmp(command, subcommands[i].name))
            return subcommands[i].run(argc - 1, argv + 1);
    if (!strcmp(command, "--version")) {
        printf("transfer_engine %s\n", te_version());
        return TE_EXIT_DONE;
    }
    if (!strcmp(command, "--help") || !strcmp(command, "-h") || !strcmp(command, "help")) {
        print_usage(stdout);
        return TE_EXIT_DONE;
    }
    if (*command)
        te_complain("there is no command %s", command);
    print_usage(stderr);
    return TE_EXIT_USAGE;
}
