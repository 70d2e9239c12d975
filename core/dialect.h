/*
 * A dialect is how one talks to a peer: the classic handshake protocol, or TENT's RPC. Each registers one const table
 * here with the engine; runtimes call peers through it and need not know which dialect a peer speaks.
 */
#ifndef TE_CORE_DIALECT_H
#define TE_CORE_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/segment_descriptor.h"
#include "core/status.h"

struct te_engine;

enum { TE_DIALECT_RECOGNISE_BYTES = 12 };

enum te_recognition { TE_RECOGNISE_NO, TE_RECOGNISE_YES, TE_RECOGNISE_NEED_MORE };

struct te_dialect_ops {
    const char *name;

    /* Whether a connection that began with these bytes speaks this dialect. While one needs more bytes, at most
     * TE_DIALECT_RECOGNISE_BYTES, those after it in the engine's order are not asked: the first bytes of one may be
     * good for the other. */
    enum te_recognition (*recognise)(const uint8_t *bytes, size_t length);
    /* Takes over an accepted, non-blocking socket whose first bytes have been read; owns descriptor from now on. Runs
     * in the reactor's thread and must not block. */
    void (*serve)(struct te_engine *engine, int descriptor, const uint8_t *bytes, size_t length);

    /* Calls to the peer at host and port. All block, bounded by the connect and reply time-outs of the settings, and
     * may run in any thread but a reactor's. */
    te_status (*fetch_descriptor)(struct te_engine *engine, const char *host, uint16_t port,
                                  struct te_segment_descriptor **descriptor);
    /* *sent: whether the peer may have got it, whatever is returned; if so, it must not be sent again. */
    te_status (*notify)(struct te_engine *engine, const char *host, uint16_t port, const char *name, size_t name_length,
                        const char *message, size_t message_length, bool *sent);
    te_status (*probe)(struct te_engine *engine, const char *host, uint16_t port);

    /* Whether a notification fits into one message of this dialect: TE_OK or TE_INVALID_ARGUMENT. Does not block. */
    te_status (*check_notification)(struct te_engine *engine, const char *name, size_t name_length, const char *message,
                                    size_t message_length);
};

#endif
