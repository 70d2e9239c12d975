/* What the kernel knows of a connection. On its own because the kernel's header and the C library's exclude each other.
 */
#include <linux/tcp.h>
#include <sys/socket.h>
/* after the above */
#include "transports/tcp/socket_state.h"

enum { PROTOCOL_TCP = 6, STATE_CLOSE = 7 };

static bool read_information(int descriptor, struct tcp_info *information)
{
    socklen_t length = sizeof(*information);

    *information = (struct tcp_info){0};
    return getsockopt(descriptor, PROTOCOL_TCP, TCP_INFO, information, &length) == 0;
}

uint64_t socket_acknowledged_bytes(int descriptor)
{
    struct tcp_info information;

    return read_information(descriptor, &information) ? information.tcpi_bytes_acked : UINT64_MAX;
}

bool socket_is_closed(int descriptor)
{
    struct tcp_info information;

    return !read_information(descriptor, &information) || information.tcpi_state == STATE_CLOSE;
}
