/* What a target gets on a data connection: requests and bodies, one after another; and what an initiator gets. */
#include <string.h>

#include "tests/fuzz/fuzz_target.h"
#include "wire/classic/tcp_header.h"

static void check_request(const uint8_t *bytes, const struct te_tcp_request *request)
{
    uint8_t again[TE_TCP_REQUEST_BYTES];
    struct te_tcp_request same;

    te_tcp_request_encode(again, request);
    must(memcmp(again, bytes, 16) == 0);
    same = te_tcp_request_decode(again);
    must(same.length == request->length && same.address == request->address && same.write == request->write &&
         same.version_2 == request->version_2);
}

static void check_status(const uint8_t *bytes)
{
    uint8_t again[TE_TCP_STATUS_BYTES];
    uint32_t code;

    if (!te_tcp_status_decode(bytes, &code))
        return;
    te_tcp_status_encode(again, code);
    must(memcmp(again, bytes, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t offset = 0;

    while (size - offset >= TE_TCP_REQUEST_BYTES) {
        struct te_tcp_request request = te_tcp_request_decode(data + offset);

        check_request(data + offset, &request);
        offset += TE_TCP_REQUEST_BYTES;
        if (request.write && request.length > size - offset)
            break;
        offset += request.write ? request.length : 0;
    }
    must(offset <= size);
    for (offset = 0; size - offset >= TE_TCP_STATUS_BYTES; offset++)
        check_status(data + offset);
    return 0;
}
