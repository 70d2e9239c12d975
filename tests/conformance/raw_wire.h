/*
 * The classic wire by hand, for what no engine would send: frames of the control port (classic specification 3.1),
 * requests and status frames of the data port (4.2). No function fails a test; each says whether it worked.
 */
#ifndef TESTS_CONFORMANCE_RAW_WIRE_H
#define TESTS_CONFORMANCE_RAW_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum raw_message { RAW_CONNECTION = 0, RAW_METADATA = 1, RAW_NOTIFY = 2, RAW_PROBE = 3 };

enum {
    RAW_READ_V1 = 0x00,
    RAW_WRITE_V1 = 0x01,
    RAW_READ_V2 = 0x80,
    RAW_WRITE_V2 = 0x81,
    RAW_HEADER_SIZE = 24,
    RAW_STATUS_SIZE = 8,
    RAW_FRAME_HEAD_SIZE = 9
};

#define RAW_STATUS_OK       UINT64_C(0x4D43545600000000)
#define RAW_STATUS_REJECTED UINT64_C(0x4D43545600000001)

/* A blocking socket whose reads and writes give up after ten seconds, or -1. */
int raw_connect(const char *host, int port);
/* The same to "host:port", as getLocalIpAndPort() writes it. */
int raw_connect_name(const char *name);
bool raw_send(int descriptor, const void *bytes, size_t size);
/* Reads until size bytes are there, the peer closes, or time is over; how many came. */
size_t raw_receive(int descriptor, void *bytes, size_t size);
/* Waits for the peer to close or reset; false if a byte comes, or nothing for ten seconds. */
bool raw_at_end(int descriptor);

/* One control call on a connection of its own: sends type and text, returns the text of the reply, NUL-terminated, in
 * malloc'ed memory, or NULL if the peer closed without an answer or answered with another type. */
char *raw_call(const char *name, uint8_t type, const char *text);
/* The same for text that may hold any byte. */
char *raw_call_bytes(const char *name, uint8_t type, const void *text, size_t length);
bool raw_send_text(int descriptor, uint8_t type, const char *text);
/* The same for text that may hold any byte. */
bool raw_send_frame(int descriptor, uint8_t type, const void *text, size_t length);
/* The payload of a frame, type first, NUL-terminated, malloc'ed; NULL if it does not come. */
char *raw_receive_frame(int descriptor, size_t *length);

/* The data port that the engine called name publishes, or -1. */
int raw_data_port_of(const char *name);
/* A connection to it, or -1. */
int raw_connect_data(const char *name);
/* The whole number that follows "key": in a JSON text, or -1. */
long long raw_number_of(const char *text, const char *key);

void raw_request(uint8_t header[RAW_HEADER_SIZE], uint8_t opcode, uint64_t address, uint64_t length);
bool raw_send_request(int descriptor, uint8_t opcode, uint64_t address, uint64_t length);
/* The next status frame, or 0. */
uint64_t raw_receive_status(int descriptor);

#endif
