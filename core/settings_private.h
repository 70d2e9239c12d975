/* Between settings.c and settings_file.c. */
#ifndef TE_CORE_SETTINGS_PRIVATE_H
#define TE_CORE_SETTINGS_PRIVATE_H

#include "core/settings.h"

/* Bounds of a settings file. */
enum { TE_SETTINGS_FILE_MAX_BYTES = 1024 * 1024, TE_SETTINGS_FILE_MAX_DEPTH = 16 };

/* The row of that name, or -1. In a file the short form counts as well. */
int te_settings_find_row(const char *name, bool in_file);

/* Sets a row and its source from text, or warns and leaves both as they are. label: what the value is called in
 * messages. */
void te_settings_apply(struct te_settings *settings, int row, const char *label, const char *text,
                       enum te_settings_source source);

/* Warns unless the same has been said before in this process. */
void te_settings_warn_once(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Applies the text of a file. TE_INVALID_ARGUMENT (logged), TE_MEMORY; some rows may have been set by then. */
te_status te_settings_apply_text(struct te_settings *settings, const char *file_name, const char *text, size_t length);
te_status te_settings_apply_file(struct te_settings *settings, const char *file_name);

#endif
