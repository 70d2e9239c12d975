/* Immutable bytes with a count of references, for what many connections send at once. (GBytes would do, but its count
 * is invisible to the thread sanitizer.) */
#ifndef TE_CORE_SHARED_TEXT_H
#define TE_CORE_SHARED_TEXT_H

#include <stdatomic.h>
#include <stddef.h>

struct te_shared_text {
    _Atomic size_t references;
    size_t length;
    char *bytes;
};

/* One reference; takes bytes, which come from GLib. */
struct te_shared_text *te_shared_text_new(char *bytes, size_t length);
struct te_shared_text *te_shared_text_ref(struct te_shared_text *text);
/* NULL is fine. */
void te_shared_text_unref(struct te_shared_text *text);

#endif
