/*
 * Ports that answer nothing: whoever connects to one hears neither yes nor no, as from a host that lost its power. They
 * are listeners whose queue of connections is full, so that the kernel drops every further SYN; which needs neither
 * root nor a network, and unlike an address that nobody has is refused by no router.
 */
#ifndef TESTS_CONFORMANCE_BLACK_HOLE_H
#define TESTS_CONFORMANCE_BLACK_HOLE_H

#include "support.h"

/* On an IPv4 address, "0.0.0.0" for all; port 0: any free one. Returns the port. Goes with test_end(). */
int black_hole_open(const char *host, int port);
void black_holes_close_all(void);

#endif
