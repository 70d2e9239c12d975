/* What the subcommands of `te` share: their entry points, exit statuses, messages, sizes in words. */
#ifndef TE_TOOLS_TE_H
#define TE_TOOLS_TE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <glib.h>

enum te_exit {
    TE_EXIT_DONE = 0,
    TE_EXIT_FAILED = 1, /* what was asked for did not work */
    TE_EXIT_USAGE = 2,  /* the command line is wrong */
};

/* One per subcommand. argv[0] is the subcommand's own name. */
int te_info_main(int argc, char **argv);
int te_probe_main(int argc, char **argv);
int te_bench_main(int argc, char **argv);
int te_demo_main(int argc, char **argv);

/* Prints "te: ..." and a line end to the standard error output. */
void te_complain(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* Reads options into what entries point at. title names the command ("bench target"), arguments what follows the
 * options (or NULL), summary what the command does. What is not an option stays in argv. Complains and returns false
 * when the command line is wrong. */
bool te_options_parse(int *argc, char ***argv, const GOptionEntry *entries, const char *title, const char *arguments,
                      const char *summary);

/* "64K", "1M", "3G" (powers of 1024) or plain bytes. Complains, naming the option, when text is no size. */
bool te_size_parse(const char *text, const char *option, size_t *size);
/* "64 KiB", "1 MiB", "100 B"; into text, which it returns. */
enum { TE_SIZE_TEXT_MAX = 32 };
const char *te_size_text(size_t size, char text[TE_SIZE_TEXT_MAX]);

int64_t te_now_ns(void);
/* User and system time of this process so far. */
double te_own_cpu_seconds(void);

#endif
