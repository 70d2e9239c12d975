/* The texts of connection and notify messages. The first byte says which; what is understood reads the same after
 * writing. */
#include <string.h>

#include "tests/fuzz/fuzz_target.h"
#include "wire/classic/handshake.h"
#include "wire/classic/notification.h"

static void check_handshake(const char *text, size_t length)
{
    struct te_handshake first, second;
    te_status status = te_handshake_read(text, length, &first);
    GString *written, *again;

    must(status == TE_OK || status == TE_MALFORMED_JSON);
    if (status != TE_OK)
        return;
    written = g_string_new(NULL);
    again = g_string_new(NULL);
    te_handshake_write(written, &first);
    must(te_handshake_read(written->str, written->len, &second) == TE_OK);
    te_handshake_write(again, &second);
    must(g_string_equal(written, again));
    te_handshake_clear(&first);
    te_handshake_clear(&second);
    g_string_free(written, TRUE);
    g_string_free(again, TRUE);
}

static void check_notify(const char *text, size_t length)
{
    struct te_notify_message first, second;
    te_status status = te_notify_request_read(text, length, &first);
    GString *written;

    must(status == TE_OK || status == TE_MALFORMED_JSON);
    if (status != TE_OK)
        return;
    /* Contents survive to the byte. */
    written = g_string_new(NULL);
    te_notify_request_write(written, first.name, first.name_length, first.text, first.text_length);
    must(te_notify_request_read(written->str, written->len, &second) == TE_OK);
    must(first.name_length == second.name_length && first.text_length == second.text_length);
    must(memcmp(first.name, second.name, first.name_length) == 0);
    must(memcmp(first.text, second.text, first.text_length) == 0);
    te_notify_message_clear(&first);
    te_notify_message_clear(&second);
    g_string_free(written, TRUE);
}

/* Any bytes can be a notification. */
static void check_contents(const char *bytes, size_t length)
{
    GString *written = g_string_new(NULL);
    struct te_notify_message message;

    te_notify_request_write(written, "", 0, bytes, length);
    must(te_notify_request_read(written->str, written->len, &message) == TE_OK);
    must(message.text_length == length && memcmp(message.text, bytes, length) == 0);
    te_notify_message_clear(&message);
    g_string_free(written, TRUE);
}

static void check_replies(const char *text, size_t length)
{
    te_status notify = te_notify_reply_read(text, length), probe = te_probe_reply_read(text, length);

    must(notify == TE_OK || notify == TE_METADATA || notify == TE_MALFORMED_JSON);
    must(probe == TE_OK || (probe == TE_MALFORMED_JSON && notify == TE_MALFORMED_JSON));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;

    if (size == 0)
        return 0;
    switch (data[0]) {
    case '0':
        check_handshake(text, size - 1);
        break;
    case '2':
        check_notify(text, size - 1);
        break;
    case '3':
        check_replies(text, size - 1);
        break;
    default:
        check_contents(text, size - 1);
        break;
    }
    return 0;
}
