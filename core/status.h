/* Result codes used inside the library, and the message kept for te_last_error(). */
#ifndef TE_CORE_STATUS_H
#define TE_CORE_STATUS_H

/* Zero or one of the negative numbers below. They are the ERR_* numbers of the classic engine, so that a runtime can
 * hand them to the C API as they are; those from -400 on are ours. */
typedef int te_status;

enum {
    TE_OK = 0,
    TE_INVALID_ARGUMENT = -1,
    TE_TOO_MANY_REQUESTS = -2,
    TE_ADDRESS_NOT_REGISTERED = -3,
    TE_BATCH_BUSY = -4,
    TE_DEVICE_NOT_FOUND = -6,
    TE_ADDRESS_OVERLAPPED = -7,
    TE_NOT_SUPPORTED_TRANSPORT = -8, /* only ever shown as the positive 8 of submit */
    TE_DNS = -101,
    TE_SOCKET = -102,
    TE_MALFORMED_JSON = -103,
    TE_REJECT_HANDSHAKE = -104,
    TE_METADATA = -200,
    TE_ENDPOINT = -201,
    TE_CONTEXT = -202,
    TE_NUMA = -300,
    TE_CLOCK = -301,
    TE_MEMORY = -302,
    TE_NOT_IMPLEMENTED = -303,
    TE_TIMED_OUT = -400,
};

/* Keeps a message for this thread and returns code, so that a function can end with `return te_fail(TE_SOCKET, "...",
 * ...)`. The first function that knows the error calls it; its callers pass the code on. */
te_status te_fail(te_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The message of the last te_fail() in this thread, or "". Valid until the next failure in this thread. */
const char *te_status_message(void);

#endif
