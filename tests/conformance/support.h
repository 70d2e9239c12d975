/*
 * What the conformance programs share. They see the library as its users do: through the public headers and the shared
 * object. Every test runs between test_begin() and test_end(), which give it a clean environment, a watchdog, and take
 * back whatever it left behind.
 *
 * TE_TEST_RUNTIME=classic|tent chooses the runtime (default classic). None of these functions returns on failure: they
 * fail the running test. Unless a comment says otherwise they are for the test's own thread only.
 */
#ifndef TESTS_CONFORMANCE_SUPPORT_H
#define TESTS_CONFORMANCE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

/* The values of transfer_status.status. */
enum { WAITING = 0, PENDING = 1, INVALID = 2, CANCELED = 3, COMPLETED = 4, TIMEOUT = 5, FAILED = 6 };
enum { READ = 0, WRITE = 1 };

enum { KIB = 1024, MIB = 1024 * 1024, NAME_SIZE = 128 };

/* A row of a program's table of tests. */
#define TEST(function)                                                                                                 \
    {                                                                                                                  \
#function, function, test_begin, test_end, (void *)#function                                                   \
    }
int test_begin(void **state);
int test_end(void **state);

/* Runs the tests, or those whose names match the first argument (a cmocka filter with * and ?). */
#define RUN_TESTS(tests, argc, argv) run_program(tests, sizeof(tests) / sizeof((tests)[0]), argc, argv)
int run_program(const struct CMUnitTest *tests, size_t count, int argc, char **argv);

/* Calls function(data) when the running test ends, before anything is taken back, even if it fails: to stop threads. */
void at_test_end(void (*function)(void *data), void *data);

/* Gives the running test this many seconds from now (more under a sanitizer). The default is 30. */
void watchdog(unsigned seconds);
/* 1, or more where the library runs much slower than usual (sanitizers). */
unsigned slowness(void);
bool under_sanitizer(void);

/* What te_setting_at() tells of the setting of that name. */
te_setting_t setting_named(const char *name);
/* Makes engines created from now on give up on a silent peer after a second instead of half a minute. */
void short_timeouts(void);

int64_t now_ns(void);

/* ---- engines in this process ---- */

/* An engine on 127.0.0.1 without a metadata store, with TCP installed. Destroyed by test_end(). */
transfer_engine_t engine_new(void);
transfer_engine_t engine_new_named(const char *local_name);
/* Like createTransferEngine(P2P, name, "", 0, 0), NULL allowed; destroyed by test_end(). */
transfer_engine_t engine_try_new(const char *connection, const char *local_name, int auto_discover);
void engine_delete(transfer_engine_t engine);
/* What peers open. */
void engine_name(transfer_engine_t engine, char name[NAME_SIZE]);
segment_id_t engine_open(transfer_engine_t engine, const char *name);

/* ---- memory ---- */

/* Page-aligned memory, filled with zero, between two inaccessible pages; given back by test_end(). */
void *memory_new(size_t size);
void *memory_new_registered(transfer_engine_t engine, size_t size);
/* Bytes that depend on the seed and on their position. */
void pattern_fill(void *memory, size_t size, uint64_t seed);
/* Position of the first byte that is not as pattern_fill() left it, or size. */
size_t pattern_mismatch(const void *memory, size_t size, uint64_t seed);
size_t byte_mismatch(const void *memory, size_t size, uint8_t byte);
#define assert_pattern(memory, size, seed) assert_int_equal(pattern_mismatch(memory, size, seed), size)
#define assert_bytes(memory, size, byte)   assert_int_equal(byte_mismatch(memory, size, byte), size)

/* ---- transfers ---- */

struct transfer_request request_of(int opcode, void *local, segment_id_t segment, uint64_t remote, size_t length);
/* Allocates a batch of one, submits. */
batch_id_t submit_one(transfer_engine_t engine, int opcode, void *local, segment_id_t segment, uint64_t remote,
                      size_t length);
batch_id_t batch_new(transfer_engine_t engine, size_t capacity);
int task_status(transfer_engine_t engine, batch_id_t batch, size_t task);
uint64_t task_bytes(transfer_engine_t engine, batch_id_t batch, size_t task);
/* Polls until the task is terminal. Any thread; never fails the test: an error of the call is returned negative. */
int finish(transfer_engine_t engine, batch_id_t batch, size_t task);
bool is_terminal(int status);
/* Submits, polls to the end, frees; the final status. Any thread: errors of a call are returned negative. */
int transfer(transfer_engine_t engine, int opcode, void *local, segment_id_t segment, uint64_t remote, size_t length);
/* Retries freeBatchID until it stops being busy; the last result. */
int free_when_done(transfer_engine_t engine, batch_id_t batch);
/* Between two polls of something that another thread or process brings about. */
void poll_pause(unsigned round);
/* Polls a condition until it holds; the watchdog ends it. */
#define AWAIT(condition)                                                                                               \
    for (unsigned await_round = 0; !(condition); await_round++)                                                        \
    poll_pause(await_round)

/* Takes notifications until there are count of them (the watchdog ends it); they come in a malloc'ed array that
 * freeNotifsMsgBuf() takes. */
notify_msg_t *await_notifications(transfer_engine_t engine, int count);

/* Moves a pattern from one engine to the other, opened under the given name, and back. */
void assert_transfers(transfer_engine_t from, transfer_engine_t to, const char *opened_as);
/* The engine serves a new one. */
void assert_works(transfer_engine_t engine);

/* Whether ::1 can be bound. */
bool host_has_ipv6(void);

/* ---- this process ---- */

size_t open_descriptors(void);
size_t running_threads(void);
size_t resident_bytes(void);
/* Waits until there are at most this many, for what ends a moment after a call returned; the number then. */
size_t settled_threads(size_t expected);
size_t settled_descriptors(size_t expected);

/* ---- threads of a test ---- */

/* Starts count threads with function(data of stride bytes each), joins them all. */
void run_threads(size_t count, void *(*function)(void *), void *data, size_t stride);

#endif
