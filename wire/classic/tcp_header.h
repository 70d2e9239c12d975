/* What travels on a TCP data connection besides the data (classic specification 4.2, 4.3). */
#ifndef TE_WIRE_CLASSIC_TCP_HEADER_H
#define TE_WIRE_CLASSIC_TCP_HEADER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <glib.h>

enum { TE_TCP_REQUEST_BYTES = 24, TE_TCP_STATUS_BYTES = 8 };

/* Codes of the status frame; all others mean failure, too. */
enum te_tcp_status_code { TE_TCP_STATUS_OK = 0, TE_TCP_STATUS_REJECTED = 1 };

struct te_tcp_request {
    uint64_t length;
    uint64_t address; /* in the process that serves */
    bool write;       /* towards the process that serves; else read from it */
    bool version_2;   /* status frames are wanted */
};

static inline void te_tcp_store_(uint8_t *bytes, uint64_t number)
{
    number = GUINT64_TO_LE(number);
    memcpy(bytes, &number, sizeof(number));
}

static inline uint64_t te_tcp_load_(const uint8_t *bytes)
{
    uint64_t number;

    memcpy(&number, bytes, sizeof(number));
    return GUINT64_FROM_LE(number);
}

static inline void te_tcp_request_encode(uint8_t bytes[TE_TCP_REQUEST_BYTES], const struct te_tcp_request *request)
{
    te_tcp_store_(bytes, request->length);
    te_tcp_store_(bytes + 8, request->address);
    te_tcp_store_(bytes + 16, (request->write ? 0x01 : 0x00) | (request->version_2 ? 0x80 : 0x00));
}

/* Every 24 bytes are a request. The low seven bits of the opcode say write if they are 1, else read; the padding is
 * ignored. Whether length and address are acceptable is for the caller to find out. */
static inline struct te_tcp_request te_tcp_request_decode(const uint8_t bytes[TE_TCP_REQUEST_BYTES])
{
    return (struct te_tcp_request){
        .length = te_tcp_load_(bytes),
        .address = te_tcp_load_(bytes + 8),
        .write = (bytes[16] & 0x7f) == 0x01,
        .version_2 = (bytes[16] & 0x80) != 0,
    };
}

static inline void te_tcp_status_encode(uint8_t bytes[TE_TCP_STATUS_BYTES], uint32_t code)
{
    te_tcp_store_(bytes, UINT64_C(0x4d435456) << 32 | code);
}

/* False if these bytes are no status frame; *code is then untouched. */
static inline bool te_tcp_status_decode(const uint8_t bytes[TE_TCP_STATUS_BYTES], uint32_t *code)
{
    uint64_t frame = te_tcp_load_(bytes);

    if (frame >> 32 != 0x4d435456)
        return false;
    *code = (uint32_t)frame;
    return true;
}

#endif
