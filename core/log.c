#include "core/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <glib.h>

#include "core/clock.h"

/* Messages may quote what a peer sent. */
enum { MESSAGE_BYTES = 1024 };

static _Atomic int lowest_level = TE_LOG_INFO;

static pthread_mutex_t route_lock = PTHREAD_MUTEX_INITIALIZER;
static te_log_function route_function;
static void *route_user_data;

static pthread_mutex_t glib_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool inside_glib;

/* Set while this thread runs the caller's function: what that causes to be logged goes to GLib, not to it again. */
static _Thread_local bool inside_function;

void te_log_set_function(te_log_function function, void *user_data)
{
    pthread_mutex_lock(&route_lock);
    route_function = function;
    route_user_data = user_data;
    pthread_mutex_unlock(&route_lock);
}

void te_log_set_level(enum te_log_level level)
{
    atomic_store_explicit(&lowest_level, (int)level, memory_order_relaxed);
}

bool te_log_enabled(enum te_log_level level)
{
    return (int)level >= atomic_load_explicit(&lowest_level, memory_order_relaxed);
}

/* GLib's default writer hides INFO and DEBUG unless G_MESSAGES_DEBUG names the domain. Whether a message is wanted has
 * been decided by our own level, so nothing is sent below MESSAGE; PRIORITY tells them apart for the journal. Nothing
 * is sent above WARNING: CRITICAL and ERROR can be made to abort the process. */
static void write_to_glib(enum te_log_level level, const char *message)
{
    static const struct {
        GLogLevelFlags glib_level;
        const char *priority;
    } levels[] = {
        [TE_LOG_TRACE] = {G_LOG_LEVEL_MESSAGE, "7"},
        [TE_LOG_INFO] = {G_LOG_LEVEL_MESSAGE, "6"},
        [TE_LOG_WARNING] = {G_LOG_LEVEL_WARNING, "4"},
        [TE_LOG_ERROR] = {G_LOG_LEVEL_WARNING, "3"},
    };
    const GLogField fields[] = {
        {"MESSAGE", message, -1},
        {"PRIORITY", levels[level].priority, -1},
        {"GLIB_DOMAIN", "transfer-engine", -1},
    };

    /* GLib's default writer formats the time with functions that are not meant for several threads. A writer of the
     * application that makes us log again comes back here in the same thread. */
    if (inside_glib) {
        g_log_structured_array(levels[level].glib_level, fields, G_N_ELEMENTS(fields));
        return;
    }
    pthread_mutex_lock(&glib_lock);
    inside_glib = true;
    g_log_structured_array(levels[level].glib_level, fields, G_N_ELEMENTS(fields));
    inside_glib = false;
    pthread_mutex_unlock(&glib_lock);
}

static void write_message(enum te_log_level level, const char *message)
{
    te_log_function function;
    void *user_data;

    pthread_mutex_lock(&route_lock);
    function = route_function;
    user_data = route_user_data;
    pthread_mutex_unlock(&route_lock);

    if (function == NULL || inside_function) {
        write_to_glib(level, message);
        return;
    }
    inside_function = true;
    function((int)level, message, user_data);
    inside_function = false;
}

/* One message is one line, whatever the texts in it hold. */
static void replace_control_characters(char *message)
{
    for (char *at = message; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

static void format_and_write(enum te_log_level level, uint32_t left_out, const char *format, va_list arguments)
{
    char message[MESSAGE_BYTES + 64];
    int length = vsnprintf(message, MESSAGE_BYTES, format, arguments);

    if (length < 0)
        return;
    if (length >= MESSAGE_BYTES)
        memcpy(message + MESSAGE_BYTES - sizeof("..."), "...", sizeof("..."));
    replace_control_characters(message);
    if (left_out > 0) {
        size_t used = strlen(message);

        snprintf(message + used, sizeof(message) - used, " (%u similar messages left out)", left_out);
    }
    write_message(level, message);
}

void te_log(enum te_log_level level, const char *format, ...)
{
    va_list arguments;

    if (!te_log_enabled(level))
        return;
    va_start(arguments, format);
    format_and_write(level, 0, format, arguments);
    va_end(arguments);
}

/* Threads that meet at the edge of a window may count a message for the window before; none is lost without being
 * counted as left out. */
static bool site_admits(struct te_log_site *site, uint32_t *left_out)
{
    int64_t now = te_now_ns();
    int64_t start = atomic_load_explicit(&site->window_start_ns, memory_order_relaxed);

    if ((start == 0 || now - start >= TE_LOG_WINDOW_SECONDS * TE_NS_PER_SECOND) &&
        atomic_compare_exchange_strong(&site->window_start_ns, &start, now))
        atomic_store(&site->passed, 0);
    if (atomic_fetch_add(&site->passed, 1) >= TE_LOG_BURST) {
        atomic_fetch_add(&site->suppressed, 1);
        return false;
    }
    *left_out = atomic_exchange(&site->suppressed, 0);
    return true;
}

void te_log_at_site(struct te_log_site *site, enum te_log_level level, const char *format, ...)
{
    uint32_t left_out;
    va_list arguments;

    if (!te_log_enabled(level) || !site_admits(site, &left_out))
        return;
    va_start(arguments, format);
    format_and_write(level, left_out, format, arguments);
    va_end(arguments);
}
