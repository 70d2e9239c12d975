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
