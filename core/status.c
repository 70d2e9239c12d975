#include "core/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 512 };

static _Thread_local char thread_message[MESSAGE_BYTES];

te_status te_fail(te_status code, const char *format, ...)
{
    /* The arguments may point into thread_message, when a message is built around the one before it. */
    char message[MESSAGE_BYTES];
    int saved_errno = errno;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (length < 0)
        message[0] = '\0';
    if (length >= (int)sizeof(message))
        memcpy(message + sizeof(message) - sizeof("..."), "...", sizeof("..."));
    memcpy(thread_message, message, strlen(message) + 1);
    errno = saved_errno;
    return code;
}

const char *te_status_message(void)
{
    return thread_message;
}

const char *te_status_name(te_status code)
{
    switch (code) {
    case TE_OK:
        return "ok";
    case TE_INVALID_ARGUMENT:
        return "invalid argument";
    case TE_TOO_MANY_REQUESTS:
        return "too many requests";
    case TE_ADDRESS_NOT_REGISTERED:
        return "address not registered";
    case TE_BATCH_BUSY:
        return "batch busy";
    case TE_DEVICE_NOT_FOUND:
        return "device not found";
    case TE_ADDRESS_OVERLAPPED:
        return "address overlapped";
    case TE_NOT_SUPPORTED_TRANSPORT:
        return "transport not supported";
    case TE_DNS:
        return "name resolution failed";
    case TE_SOCKET:
        return "socket error";
    case TE_MALFORMED_JSON:
        return "malformed JSON";
    case TE_REJECT_HANDSHAKE:
        return "handshake rejected";
    case TE_METADATA:
        return "metadata error";
    case TE_ENDPOINT:
        return "endpoint error";
    case TE_CONTEXT:
        return "context error";
    case TE_NUMA:
        return "NUMA error";
    case TE_CLOCK:
        return "clock error";
    case TE_MEMORY:
        return "out of memory";
    case TE_NOT_IMPLEMENTED:
        return "not implemented";
    case TE_TIMED_OUT:
        return "timed out";
    default:
        return "unknown error";
    }
}
