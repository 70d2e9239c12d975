/*
 * An engine in another process, which obeys. The process is a program of its own (target_process.c): an engine must not
 * be used after fork. Memory is shared with it through a memfd, so that a test sees what happens to the target's memory
 * while the target is stopped and after it is dead.
 */
#ifndef TESTS_CONFORMANCE_TARGET_H
#define TESTS_CONFORMANCE_TARGET_H

#include <sys/types.h>

#include "support.h"

struct target {
    char name[NAME_SIZE]; /* what its engine is called, host:port */
    char host[NAME_SIZE]; /* the name it was created with */
    int port;
    int data_port;
    int minimum_port, maximum_port; /* 0: the default range */
    pid_t pid;                      /* 0 when it is dead */
    int commands, replies;          /* pipes */
};

/* Memory that the target and the test have in common. */
struct shared_memory {
    uint8_t *here;  /* in the test */
    uint64_t there; /* in the target: what a request names */
    size_t size;
    int descriptor;
};

/* A process with an engine on 127.0.0.1, TCP installed. Killed by test_end(). The environment is that of now. */
struct target *target_start(void);
struct target *target_start_named(const char *local_name);
/* A process whose ports come from a narrow range of its own, so that it can be restarted on the same name. */
struct target *target_start_restartable(void);

/* size bytes, zero, mapped in both processes; given back by test_end(). Registered remotely accessible by the second
 * one. */
struct shared_memory target_map(struct target *target, size_t size);
struct shared_memory target_memory(struct target *target, size_t size);
/* In the target, the same size bytes times times in a row; here once. */
struct shared_memory target_map_repeated(struct target *target, size_t size, size_t times);
/* Maps memory that exists already into a process that took the place of a dead one; the address there. */
uint64_t target_map_existing(struct target *target, const struct shared_memory *memory);
/* The results of the target's calls. */
int target_register(struct target *target, uint64_t address, size_t length, int remote_accessible);
int target_unregister(struct target *target, uint64_t address);

void target_kill(struct target *target);
void target_stop(struct target *target);
void target_continue(struct target *target);
/* Destroys the engine; the process goes on. Afterwards nothing of it can touch memory. */
void target_destroy_engine(struct target *target);
/* Ends the process in good order and checks that it did. */
void target_exit(struct target *target);
/* Starts a new process in the place of a dead one: the same name, another data port. */
void target_restart(struct target *target);

/* Notifications that arrived since the last call; the text of all as "name=message\n", in a malloc'ed string. */
char *target_notifications(struct target *target);

/* The target as an initiator: opens name and moves length bytes between address there and remote; the final status, or
 * the negative result of a call. */
int target_transfer(struct target *target, const char *name, int opcode, uint64_t address, uint64_t remote,
                    size_t length);
/* Starts the same and does not wait. */
void target_submit(struct target *target, const char *name, int opcode, uint64_t address, uint64_t remote,
                   size_t length);
int target_notify(struct target *target, const char *name, const char *sender, const char *message);

/* Leaves the target so many free descriptors; negative: as before. */
void target_limit_descriptors(struct target *target, int more);
size_t target_resident_bytes(struct target *target);

/* Sends a line and returns the reply in a buffer that the next command overwrites. */
const char *target_command(struct target *target, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An engine here, a target there, memory of one size on both sides; the target's is registered and its segment open. */
struct pair {
    transfer_engine_t engine;
    struct target *target;
    segment_id_t segment;
    uint8_t *local;
    struct shared_memory remote;
    size_t size;
};
struct pair pair_new(size_t size);
/* The same with a target that can be restarted. */
struct pair pair_new_restartable(size_t size);
/* transfer() of length bytes from the start of both memories. */
int pair_transfer(struct pair *pair, int opcode, size_t length);
batch_id_t pair_submit(struct pair *pair, int opcode, size_t length);
/* Requests on memory of its own to the same target through an engine of its own, one after another: when it returns,
 * the target has had several turns after whatever lay before it when it was called. */
void pair_settle(struct pair *pair);

/* Async-signal-safe. */
void targets_kill_all(void);

#endif
