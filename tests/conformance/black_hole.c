#include "black_hole.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { MAXIMUM_HOLES = 16 };

static struct {
    int listener, filling;
} holes[MAXIMUM_HOLES];
static size_t hole_count;

/* Of a listener: the connections that nobody has accepted yet. */
static unsigned queued(int listener)
{
    struct tcp_info info;
    socklen_t size = sizeof(info);
    assert_int_equal(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_unacked;
}

int black_hole_open(const char *host, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof(address);
    int on = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int filling = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0 && filling >= 0 && hole_count < MAXIMUM_HOLES);
    holes[hole_count].listener = listener;
    holes[hole_count].filling = filling;
    hole_count++;
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    /* A queue of length zero holds one. */
    assert_int_equal(connect(filling, (struct sockaddr *)&address, size), 0);
    AWAIT(queued(listener) > 0);
    return ntohs(address.sin_port);
}

void black_holes_close_all(void)
{
    while (hole_count > 0) {
        hole_count--;
        close(holes[hole_count].filling);
        close(holes[hole_count].listener);
    }
}
