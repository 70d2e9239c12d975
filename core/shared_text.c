#include "core/shared_text.h"

#include <glib.h>

struct te_shared_text *te_shared_text_new(char *bytes, size_t length)
{
    struct te_shared_text *text = g_new0(struct te_shared_text, 1);

    atomic_init(&text->references, 1);
    text->length = length;
    text->bytes = bytes;
    return text;
}

struct te_shared_text *te_shared_text_ref(struct te_shared_text *text)
{
    atomic_fetch_add_explicit(&text->references, 1, memory_order_relaxed);
    return text;
}

void te_shared_text_unref(struct te_shared_text *text)
{
    if (text == NULL || atomic_fetch_sub_explicit(&text->references, 1, memory_order_acq_rel) != 1)
        return;
    g_free(text->bytes);
    g_free(text);
}
