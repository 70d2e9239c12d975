/*
 * The host name "both.test", which this process resolves to BOTH_TEST_ADDRESSES in that order: loopback addresses of
 * both families. The system answers for all other names. For one file of a program, since it defines getaddrinfo.
 */
#ifndef TE_TESTS_UNIT_BOTH_FAMILIES_H
#define TE_TESTS_UNIT_BOTH_FAMILIES_H

#include <dlfcn.h>
#include <netdb.h>
#include <stddef.h>
#include <string.h>

#define BOTH_TEST           "both.test"
#define BOTH_TEST_ADDRESSES "127.0.0.1", "::1", "127.0.0.2"

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    static const char *const addresses[] = {BOTH_TEST_ADDRESSES};
    __typeof__(&getaddrinfo) system_getaddrinfo = (__typeof__(&getaddrinfo))dlsym(RTLD_NEXT, "getaddrinfo");

    if (strcmp(node, BOTH_TEST) != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0)
        return system_getaddrinfo(node, service, hints, result);
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        int error = system_getaddrinfo(addresses[i], service, hints, result);

        if (error != 0)
            return error;
        result = &(*result)->ai_next;
    }
    return 0;
}

#endif
