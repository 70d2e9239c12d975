/* One engine driven by commands: the state, and what the commands share. */
#ifndef TE_PEER_H
#define TE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>
#include <json-c/json.h>

#include "transfer_engine_c.h"

/* A page-aligned region with a known address. */
struct memory {
    uint8_t *bytes;
    size_t size;
};

struct peer {
    transfer_engine_t engine;
    char *name;           /* what other engines open */
    GPtrArray *memories;  /* struct memory, by number */
    GHashTable *segments; /* name -> id, opened once and never closed, as callers do */
    json_object *command; /* the one that is being carried out */
    json_object *reply;
    bool exiting;
};

/* ---- te_peer_io.c: reading commands and writing replies --------------------------------------------------------- */

/* Puts "error" into the reply: the command cannot be carried out; the engine was not asked. */
void refuse(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool refused(const struct peer *peer);

void answer_number(struct peer *peer, const char *key, int64_t value);
void answer_unsigned(struct peer *peer, const char *key, uint64_t value);
void answer_text(struct peer *peer, const char *key, const char *value);
/* "ret", the engine's return value unchanged; a failure also with the "reason" that te_last_error() tells. */
void answer_result(struct peer *peer, int64_t result);

/* Fields of an object, and of the command. The needed_ ones give NULL after refusing. */
json_object *field_of(json_object *object, const char *key);
uint64_t number_of(json_object *object, const char *key, uint64_t default_value);
bool given(const struct peer *peer, const char *key);
uint64_t number(const struct peer *peer, const char *key, uint64_t default_value);
const char *text(const struct peer *peer, const char *key, const char *default_value);
const char *needed_text(struct peer *peer, const char *key);
json_object *needed_array(struct peer *peer, const char *key);
/* "timeout" of the command, which is in seconds. */
int64_t timeout_ns(const struct peer *peer);

/* ---- te_peer_memory.c ------------------------------------------------------------------------------------------- */

void memory_free(struct memory *memory);
/* Whether offset and length lie inside. */
bool memory_has(const struct memory *memory, uint64_t offset, uint64_t length);
/* The region that object names by "buf" (0 if it does not); NULL after refusing. */
struct memory *memory_of(struct peer *peer, json_object *object);

void run_register(struct peer *peer);
void run_register_batch(struct peer *peer);
void run_allocate(struct peer *peer);
void run_unregister(struct peer *peer);
void run_unregister_batch(struct peer *peer);
void run_fill(struct peer *peer);
void run_checksum(struct peer *peer);
void run_peek(struct peer *peer);

/* ---- te_peer_transfers.c ---------------------------------------------------------------------------------------- */

void run_probe(struct peer *peer);
void run_first_buffer(struct peer *peer);
void run_notifies(struct peer *peer);
void run_open(struct peer *peer);
void run_notify(struct peer *peer);
void run_write(struct peer *peer);
void run_read(struct peer *peer);
void run_submit(struct peer *peer);
void run_status(struct peer *peer);
void run_wait(struct peer *peer);
void run_await(struct peer *peer);
void run_task(struct peer *peer);
void run_cancel(struct peer *peer);
void run_free(struct peer *peer);

#endif
