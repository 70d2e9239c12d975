/* The text of a segment descriptor. What is understood and can be written reads the same after writing. */
#include <string.h>

#include "tests/fuzz/fuzz_target.h"
#include "wire/classic/descriptor.h"

static GString *write_text(const struct te_segment_descriptor *descriptor)
{
    GString *text = g_string_new(NULL);
    te_status status = te_descriptor_write(text, descriptor, descriptor->timestamp);

    must(status == TE_OK || status == TE_INVALID_ARGUMENT);
    must((status == TE_OK) == (text->len > 0));
    return text;
}

/* Every element is there, whatever the text said. */
static void touch(const struct te_segment_descriptor *descriptor)
{
    size_t length = strlen(descriptor->name) + strlen(descriptor->tcp_data_host) +
                    strlen(descriptor->rdma_server_name) + strlen(descriptor->timestamp);

    for (size_t i = 0; i < descriptor->buffer_count; i++) {
        const struct te_segment_buffer *buffer = &descriptor->buffers[i];

        length += strlen(buffer->name);
        for (size_t k = 0; k < buffer->key_count; k++)
            length += (buffer->remote_keys[k] ^ buffer->local_keys[k]) & 1;
    }
    for (size_t i = 0; i < descriptor->device_count; i++)
        length += strlen(descriptor->devices[i].name) + strlen(descriptor->devices[i].gid);
    must(length < SIZE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct te_segment_descriptor *first, *second;
    te_status status = te_descriptor_read((const char *)data, size, &first);
    GString *text, *again;

    must(status == TE_OK || status == TE_MALFORMED_JSON);
    if (status != TE_OK)
        return 0;
    touch(first);
    text = write_text(first);
    if (text->len > 0) {
        must(te_descriptor_read(text->str, text->len, &second) == TE_OK);
        again = write_text(second);
        must(g_string_equal(text, again));
        te_segment_descriptor_unref(second);
        g_string_free(again, TRUE);
    }
    te_segment_descriptor_unref(first);
    g_string_free(text, TRUE);
    return 0;
}
