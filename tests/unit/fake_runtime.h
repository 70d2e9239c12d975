/*
 * A runtime that does nothing but count, in place of the classic one: a test that includes this header brings its own
 * te_classic_ops, so that nothing of classic/ is linked. Every slot returns fake_result.
 */
#ifndef TESTS_UNIT_FAKE_RUNTIME_H
#define TESTS_UNIT_FAKE_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/runtime_ops.h"

enum { FAKE_RUNTIMES = 4096 };

struct fake_runtime {
    atomic_int calls;
    atomic_int destroyed;
};

enum fake_slot {
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments) FAKE_##slot,
#include "shim/calls.def"
    FAKE_SLOTS
};

static atomic_int fake_calls[FAKE_SLOTS];
static int fake_result = 77;
static bool fake_creation_fails;
static void (*fake_call_hook)(struct fake_runtime *runtime);    /* run by every slot */
static void (*fake_destroy_hook)(struct fake_runtime *runtime); /* run by destroy */

static struct fake_runtime fake_runtimes[FAKE_RUNTIMES];
static atomic_size_t fake_runtimes_used;

static struct fake_runtime *fake_new(void)
{
    size_t next = atomic_fetch_add(&fake_runtimes_used, 1);

    return next < FAKE_RUNTIMES ? &fake_runtimes[next] : NULL;
}

static void *fake_create(const char *connection, const char *local_name, const char *host, uint64_t rpc_port,
                         int auto_discover)
{
    (void)host, (void)rpc_port, (void)auto_discover;
    if (!connection || !local_name || fake_creation_fails) {
        te_fail(TE_SOCKET, "the fake fails as it was told");
        return NULL;
    }
    return fake_new();
}

static void fake_destroy(void *runtime)
{
    struct fake_runtime *fake = runtime;

    if (fake_destroy_hook)
        fake_destroy_hook(fake);
    atomic_fetch_add(&fake->destroyed, 1);
}

static int fake_enter(struct fake_runtime *runtime, enum fake_slot slot)
{
    atomic_fetch_add(&fake_calls[slot], 1);
    atomic_fetch_add(&runtime->calls, 1);
    if (fake_call_hook)
        fake_call_hook(runtime);
    return fake_result;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments)                                       \
    static result fake_##slot TE_LIST(void *runtime, TE_LIST_BARE parameters)                                          \
    {                                                                                                                  \
        return (result)(intptr_t)fake_enter(runtime, FAKE_##slot);                                                     \
    }
#include "shim/calls.def"
#pragma GCC diagnostic pop

const struct te_runtime_ops te_classic_ops = {
    .name = "fake",
    .create = fake_create,
    .destroy = fake_destroy,
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments) .slot = fake_##slot,
#include "shim/calls.def"
};

#endif
