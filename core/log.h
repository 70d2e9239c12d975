/* Messages for people, through GLib's structured log (domain "transfer-engine") or a caller's own function. */
#ifndef TE_CORE_LOG_H
#define TE_CORE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum te_log_level { TE_LOG_TRACE, TE_LOG_INFO, TE_LOG_WARNING, TE_LOG_ERROR };

typedef void (*te_log_function)(int level, const char *message, void *user_data);

/* Routes every message of the process to function; NULL restores the default. May be called at any time from any
 * thread; when it returns, the old function may still be running in another thread for the message it had already been
 * given. */
void te_log_set_function(te_log_function function, void *user_data);

/* Messages below level are dropped. Process-wide; default TE_LOG_INFO. */
void te_log_set_level(enum te_log_level level);
bool te_log_enabled(enum te_log_level level);

void te_log(enum te_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One place in the code from which messages may come in floods: at most burst messages per window, then a count of
 * those left out with the next one that passes. */
struct te_log_site {
    _Atomic int64_t window_start_ns;
    _Atomic uint32_t passed;
    _Atomic uint32_t suppressed;
};
enum { TE_LOG_BURST = 5, TE_LOG_WINDOW_SECONDS = 10 };

void te_log_at_site(struct te_log_site *site, enum te_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Rate limited by the place in the code. Every message on a data path, and every one that a peer can provoke, uses
 * this. */
#define te_log_limited(level, ...)                                                                                     \
    do {                                                                                                               \
        static struct te_log_site te_site_;                                                                            \
        te_log_at_site(&te_site_, (level), __VA_ARGS__);                                                               \
    } while (0)

#endif
