/* Every recorded TCP data connection: a server made of our codec answers the recorded requests with the recorded bytes,
 * our encoder makes the recorded headers, and a client made of our codec sees what the recorded one saw. */
#include "tests/unit/wire_vector.h"

#include "wire/classic/tcp_header.h"

enum { MEMORY_BYTES = 1024 * 1024, SMALL_BUFFER_BYTES = 4096 };
static const uint64_t memory_address = UINT64_C(0x200000000000);

/* The target of the recordings: 1 MiB, or two touching buffers of 4096 bytes. */
struct target {
    uint8_t *memory;
    size_t buffer_bytes, buffer_count;
};

struct counts {
    size_t served, requests_written, succeeded, failed;
};

static bool is_registered(const struct target *target, uint64_t address, uint64_t length)
{
    for (size_t i = 0; i < target->buffer_count; i++) {
        uint64_t start = memory_address + i * target->buffer_bytes;

        if (length > 0 && address >= start && length <= target->buffer_bytes &&
            address - start <= target->buffer_bytes - length)
            return true;
    }
    return false;
}

static void append_status(GString *stream, uint32_t code)
{
    uint8_t bytes[TE_TCP_STATUS_BYTES];

    te_tcp_status_encode(bytes, code);
    g_string_append_len(stream, (char *)bytes, sizeof(bytes));
}

/* What the target sends back on one connection; *cut: the stream ended inside a request. */
static void serve(struct target *target, const GString *requests, GString *answer, bool *cut)
{
    size_t offset = 0;

    *cut = false;
    while (offset < requests->len) {
        struct te_tcp_request request;
        uint8_t *memory;

        *cut = requests->len - offset < TE_TCP_REQUEST_BYTES;
        if (*cut)
            return;
        request = te_tcp_request_decode((const uint8_t *)requests->str + offset);
        offset += TE_TCP_REQUEST_BYTES;
        if (!is_registered(target, request.address, request.length)) {
            if (request.version_2)
                append_status(answer, TE_TCP_STATUS_REJECTED);
            return;
        }
        memory = target->memory + (request.address - memory_address);
        if (request.write) {
            *cut = requests->len - offset < request.length;
            memcpy(memory, requests->str + offset, *cut ? requests->len - offset : request.length);
            if (*cut)
                return;
            offset += request.length;
        }
        if (request.version_2)
            append_status(answer, TE_TCP_STATUS_OK);
        if (!request.write)
            g_string_append_len(answer, (char *)memory, (gssize)request.length);
    }
}

/* The recorded headers but for the padding, which real clients leave as it was in memory. */
static void check_headers(const struct vector *vector, const GString *requests, struct counts *counts)
{
    static const uint8_t zeros[7];

    for (size_t offset = 0; offset < requests->len;) {
        const uint8_t *recorded = (const uint8_t *)requests->str + offset;
        struct te_tcp_request request = te_tcp_request_decode(recorded);
        uint8_t bytes[TE_TCP_REQUEST_BYTES];

        memset(bytes, 0xaa, sizeof(bytes));
        te_tcp_request_encode(bytes, &request);
        vector_assert(vector, memcmp(bytes, recorded, 17) == 0 && memcmp(bytes + 17, zeros, sizeof(zeros)) == 0);
        offset += TE_TCP_REQUEST_BYTES + (request.write ? request.length : 0);
        counts->requests_written++;
        vector_assert(vector, offset <= requests->len);
    }
}

/* Whether the one request of the connection ends well at its client. */
static bool client_succeeds(const GString *requests, const GString *answer)
{
    struct te_tcp_request request = te_tcp_request_decode((const uint8_t *)requests->str);
    size_t head = request.version_2 ? TE_TCP_STATUS_BYTES : 0;
    uint32_t code = TE_TCP_STATUS_REJECTED;

    if (answer->len < head)
        return false;
    if (request.version_2 && (!te_tcp_status_decode((const uint8_t *)answer->str, &code) || code != TE_TCP_STATUS_OK))
        return false;
    return request.write || answer->len - head == request.length;
}

static void check_outcome(const struct vector *vector, size_t transfer, const GString *requests, const GString *answer,
                          struct counts *counts)
{
    const char *outcome = vector_outcome(vector, "xfer", transfer);
    bool succeeded = client_succeeds(requests, answer);

    vector_assert(vector, outcome && strstr(outcome, succeeded ? "st=4" : "st=6"));
    if (succeeded)
        counts->succeeded++;
    else
        counts->failed++;
}

static void check_connection(const struct vector *vector, size_t connection, size_t transfer, struct target *target,
                             struct counts *counts)
{
    GString *requests = vector_stream(vector, connection, "c2s"), *recorded = vector_stream(vector, connection, "s2c");

    if (vector_is_real(vector, "server")) {
        GString *answer = g_string_new(NULL);
        bool cut;

        serve(target, requests, answer, &cut);
        vector_assert(vector, cut == (strstr(vector->name, "-cut") != NULL));
        vector_assert_bytes(vector, "answer", answer, recorded);
        counts->served++;
        g_string_free(answer, TRUE);
    }
    if (vector_is_real(vector, "client")) {
        check_headers(vector, requests, counts);
        if (g_str_has_prefix(vector->name, "classic-cli-") || g_str_has_prefix(vector->name, "classic-session-v"))
            check_outcome(vector, transfer, requests, recorded, counts);
    }
    g_string_free(requests, TRUE);
    g_string_free(recorded, TRUE);
}

static void check_vector(const struct vector *vector, void *data)
{
    struct target target = {.memory = g_malloc(MEMORY_BYTES), .buffer_bytes = MEMORY_BYTES, .buffer_count = 1};
    size_t transfer = 0;

    for (size_t i = 0; i < MEMORY_BYTES; i++)
        target.memory[i] = (uint8_t)(7 * i + 3 + (i >> 8));
    if (strstr(vector->name, "two-buffers")) {
        target.buffer_bytes = SMALL_BUFFER_BYTES;
        target.buffer_count = 2;
    }
    for (size_t i = 0; i < vector_connections(vector); i++)
        if (strcmp(vector_protocol(vector, i), "classic-data") == 0)
            check_connection(vector, i, transfer++, &target, data);
    g_free(target.memory);
}

static void test_every_recorded_connection(void **state)
{
    struct counts counts = {0};

    (void)state;
    vector_for_each("classic-", check_vector, &counts);
    /* None slipped through: so many connections are in the folder. */
    assert_int_equal(counts.served, 37);
    assert_int_equal(counts.requests_written, 33);
    assert_int_equal(counts.succeeded, 10);
    assert_int_equal(counts.failed, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_recorded_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
