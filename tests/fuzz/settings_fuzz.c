/* The text of a settings file. */
#include <glib.h>

#include "core/log.h"
#include "core/settings.h"
#include "tests/fuzz/fuzz_target.h"

static void say_nothing(int level, const char *message, void *user_data)
{
    (void)level;
    (void)user_data;
    must(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct te_settings settings;
    te_status status;
    size_t count;

    te_log_set_function(say_nothing, NULL);
    te_settings_rows(&count);
    status = te_settings_from_text(&settings, "fuzz", (const char *)data, size);
    must(status == TE_OK || status == TE_INVALID_ARGUMENT);
    if (status != TE_OK)
        return 0;
    must(settings.minimum_port <= settings.maximum_port && settings.handshake_maximum_length > 0);
    for (size_t row = 0; row < count; row++) {
        enum te_settings_source source;
        char *value = te_settings_value(&settings, row, &source);

        must(value && source <= TE_FROM_FILE);
        g_free(value);
    }
    te_settings_clear(&settings);
    return 0;
}
