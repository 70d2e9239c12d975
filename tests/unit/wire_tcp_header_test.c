/* What travels on data connections besides the data, classic specification 4.2 and appendix A. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/classic/tcp_header.h"

static void assert_request(bool write, bool version_2, uint8_t opcode)
{
    const struct te_tcp_request request = {
        .length = 0x0807060504030201, .address = 0x1817161514131211, .write = write, .version_2 = version_2};
    const uint8_t expected[TE_TCP_REQUEST_BYTES] = {1,    2,    3,    4,    5,    6,    7,    8,     0x11,
                                                    0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, opcode};
    uint8_t bytes[TE_TCP_REQUEST_BYTES];
    struct te_tcp_request read;

    memset(bytes, 0xff, sizeof(bytes));
    te_tcp_request_encode(bytes, &request);
    assert_memory_equal(bytes, expected, sizeof(bytes));
    read = te_tcp_request_decode(bytes);
    assert_true(read.length == request.length && read.address == request.address);
    assert_true(read.write == write && read.version_2 == version_2);
}

static void test_requests(void **state)
{
    (void)state;
    assert_request(false, false, 0x00);
    assert_request(true, false, 0x01);
    assert_request(false, true, 0x80);
    assert_request(true, true, 0x81);
}

static void test_appendix_vectors(void **state)
{
    const struct te_tcp_request request = {.length = 5, .address = 0x1000, .write = true, .version_2 = true};
    const uint8_t expected[TE_TCP_REQUEST_BYTES] = {5, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x81};
    uint8_t bytes[TE_TCP_REQUEST_BYTES];

    (void)state;
    te_tcp_request_encode(bytes, &request);
    assert_memory_equal(bytes, expected, sizeof(bytes));
    te_tcp_status_encode(bytes, TE_TCP_STATUS_OK);
    assert_memory_equal(bytes, "\0\0\0\0VTCM", TE_TCP_STATUS_BYTES);
    te_tcp_status_encode(bytes, TE_TCP_STATUS_REJECTED);
    assert_memory_equal(bytes, "\x01\0\0\0VTCM", TE_TCP_STATUS_BYTES);
}

static void test_every_opcode(void **state)
{
    uint8_t bytes[TE_TCP_REQUEST_BYTES] = {0};

    (void)state;
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        struct te_tcp_request request;

        memset(bytes + 17, (int)opcode, 7);
        bytes[16] = (uint8_t)opcode;
        request = te_tcp_request_decode(bytes);
        assert_true(request.write == (opcode == 0x01 || opcode == 0x81));
        assert_true(request.version_2 == (opcode >= 0x80));
    }
}

static void test_status_frames(void **state)
{
    uint8_t bytes[TE_TCP_STATUS_BYTES];
    uint32_t code = 77;

    (void)state;
    te_tcp_status_encode(bytes, UINT32_MAX);
    assert_true(te_tcp_status_decode(bytes, &code));
    assert_true(code == UINT32_MAX);
    te_tcp_status_encode(bytes, 2);
    assert_true(te_tcp_status_decode(bytes, &code));
    assert_int_equal(code, 2);
    /* Every single changed bit of the mark is noticed. */
    for (unsigned bit = 32; bit < 64; bit++) {
        code = 77;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(te_tcp_status_decode(bytes, &code));
        assert_int_equal(code, 77);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_appendix_vectors),
        cmocka_unit_test(test_every_opcode),
        cmocka_unit_test(test_status_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
