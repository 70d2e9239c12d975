#include "fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <glib.h>

static const char *const names[FAULT_KINDS] = {
    "socket",    "bind",    "listen",         "connect",     "accept", "getsockname", "setsockopt", "epoll_create",
    "epoll_ctl", "eventfd", "pthread_create", "getaddrinfo", "open",   "send",        "receive",    "memory"};

static _Atomic int armed_kind = -1;
static _Atomic unsigned armed_call, calls;
static _Atomic bool fired;
static _Atomic uintptr_t library_start, library_end;

const char *fault_name(enum fault_kind kind)
{
    return names[kind];
}

/* ---- whose call it is ---- */

static int find_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libtransfer_engine.so"))
        return 0;
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[index];
        if (header->p_type == PT_LOAD && (header->p_flags & PF_X)) {
            atomic_store(&library_start, info->dlpi_addr + header->p_vaddr);
            atomic_store(&library_end, info->dlpi_addr + header->p_vaddr + header->p_memsz);
        }
    }
    return 1;
}

void fault_arm(enum fault_kind kind, unsigned nth)
{
    if (atomic_load(&library_start) == 0)
        dl_iterate_phdr(find_library, NULL);
    atomic_store(&armed_kind, -1);
    atomic_store(&calls, 0);
    atomic_store(&fired, false);
    atomic_store(&armed_call, nth);
    atomic_store(&armed_kind, (int)kind);
}

bool fault_fired(void)
{
    return atomic_load(&fired);
}

unsigned fault_calls(void)
{
    return atomic_load(&calls);
}

static bool due(enum fault_kind kind, const void *caller)
{
    uintptr_t address = (uintptr_t)caller;
    if (atomic_load(&armed_kind) != (int)kind || address < atomic_load(&library_start) ||
        address >= atomic_load(&library_end))
        return false;
    if (atomic_fetch_add(&calls, 1) + 1 != atomic_load(&armed_call))
        return false;
    atomic_store(&fired, true);
    return true;
}

/* ---- the functions ---- */

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function) {
        fprintf(stderr, "%s is not to be found\n", name);
        abort();
    }
    return function;
}

#define FAIL_IF_DUE(kind, error, result)                                                                               \
    do {                                                                                                               \
        if (due(kind, __builtin_return_address(0))) {                                                                  \
            errno = (error);                                                                                           \
            return result;                                                                                             \
        }                                                                                                              \
    } while (0)

int socket(int domain, int type, int protocol)
{
    FAIL_IF_DUE(FAULT_SOCKET, EMFILE, -1);
    return REAL(socket)(domain, type, protocol);
}

int bind(int descriptor, const struct sockaddr *address, socklen_t length)
{
    FAIL_IF_DUE(FAULT_BIND, EADDRINUSE, -1);
    return REAL(bind)(descriptor, address, length);
}

int listen(int descriptor, int backlog)
{
    FAIL_IF_DUE(FAULT_LISTEN, EADDRINUSE, -1);
    return REAL(listen)(descriptor, backlog);
}

int connect(int descriptor, const struct sockaddr *address, socklen_t length)
{
    FAIL_IF_DUE(FAULT_CONNECT, ENETUNREACH, -1);
    return REAL(connect)(descriptor, address, length);
}

int accept4(int descriptor, struct sockaddr *address, socklen_t *length, int flags)
{
    FAIL_IF_DUE(FAULT_ACCEPT, EMFILE, -1);
    return REAL(accept4)(descriptor, address, length, flags);
}

int getsockname(int descriptor, struct sockaddr *address, socklen_t *length)
{
    FAIL_IF_DUE(FAULT_GETSOCKNAME, ENOBUFS, -1);
    return REAL(getsockname)(descriptor, address, length);
}

int setsockopt(int descriptor, int level, int name, const void *value, socklen_t length)
{
    FAIL_IF_DUE(FAULT_SETSOCKOPT, ENOBUFS, -1);
    return REAL(setsockopt)(descriptor, level, name, value, length);
}

int epoll_create1(int flags)
{
    FAIL_IF_DUE(FAULT_EPOLL_CREATE, EMFILE, -1);
    return REAL(epoll_create1)(flags);
}

int epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event *event)
{
    if (operation != EPOLL_CTL_DEL) /* cannot fail in practice */
        FAIL_IF_DUE(FAULT_EPOLL_CTL, ENOMEM, -1);
    return REAL(epoll_ctl)(epoll, operation, descriptor, event);
}

int eventfd(unsigned count, int flags)
{
    FAIL_IF_DUE(FAULT_EVENTFD, EMFILE, -1);
    return REAL(eventfd)(count, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *data)
{
    if (due(FAULT_PTHREAD_CREATE, __builtin_return_address(0)))
        return EAGAIN;
    return REAL(pthread_create)(thread, attributes, function, data);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    if (due(FAULT_GETADDRINFO, __builtin_return_address(0)))
        return EAI_MEMORY;
    return REAL(getaddrinfo)(node, service, hints, result);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    FAIL_IF_DUE(FAULT_OPEN, EMFILE, -1);
    return REAL(open)(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    FAIL_IF_DUE(FAULT_OPEN, EMFILE, NULL);
    return REAL(fopen)(path, mode);
}

ssize_t send(int descriptor, const void *bytes, size_t size, int flags)
{
    FAIL_IF_DUE(FAULT_SEND, ECONNRESET, -1);
    return REAL(send)(descriptor, bytes, size, flags);
}

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags)
{
    FAIL_IF_DUE(FAULT_SEND, ECONNRESET, -1);
    return REAL(sendmsg)(descriptor, message, flags);
}

/* Only calls that there is something for: callers that poll make any number of others. */
static bool has_input(int descriptor)
{
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    return REAL(poll)(&entry, 1, 0) == 1;
}

ssize_t recv(int descriptor, void *bytes, size_t size, int flags)
{
    if (has_input(descriptor))
        FAIL_IF_DUE(FAULT_RECEIVE, ECONNRESET, -1);
    return REAL(recv)(descriptor, bytes, size, flags);
}

ssize_t recvmsg(int descriptor, struct msghdr *message, int flags)
{
    if (has_input(descriptor))
        FAIL_IF_DUE(FAULT_RECEIVE, ECONNRESET, -1);
    return REAL(recvmsg)(descriptor, message, flags);
}

int recvmmsg(int descriptor, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
    if (has_input(descriptor))
        FAIL_IF_DUE(FAULT_RECEIVE, ECONNRESET, -1);
    return REAL(recvmmsg)(descriptor, messages, count, flags, timeout);
}

int pipe2(int ends[2], int flags)
{
    FAIL_IF_DUE(FAULT_OPEN, EMFILE, -1);
    return REAL(pipe2)(ends, flags);
}

/* ---- memory ---- */

gpointer g_try_malloc(gsize size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return REAL(g_try_malloc)(size);
}

gpointer g_try_malloc0(gsize size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return REAL(g_try_malloc0)(size);
}

gpointer g_try_malloc_n(gsize count, gsize size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return REAL(g_try_malloc_n)(count, size);
}

gpointer g_try_malloc0_n(gsize count, gsize size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return REAL(g_try_malloc0_n)(count, size);
}

gpointer g_try_realloc(gpointer memory, gsize size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return REAL(g_try_realloc)(memory, size);
}

gpointer g_try_realloc_n(gpointer memory, gsize count, gsize size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return REAL(g_try_realloc_n)(memory, count, size);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they have these to themselves */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return __libc_calloc(count, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    FAIL_IF_DUE(FAULT_MEMORY, ENOMEM, NULL);
    return __libc_memalign(alignment, size);
}
#endif
