/* What transfer_engine_ext.h tells: what a peer has registered, reasons, log. */
#include <pthread.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };

/* ---- what a peer has registered ---- */

static void ext_remote_buffers(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    struct shared_memory second = target_memory(pair.target, 2 * SIZE);
    buffer_entry_t buffers[3];
    memset(buffers, 0x7e, sizeof(buffers));
    size_t count = 0;
    assert_int_equal(te_remote_buffers(pair.engine, pair.segment, NULL, &count), 0);
    assert_int_equal(count, 2);
    count = 1;
    assert_int_equal(te_remote_buffers(pair.engine, pair.segment, buffers, &count), 0);
    assert_int_equal(count, 2); /* there is more than room for */
    assert_int_equal((uintptr_t)buffers[0].addr, pair.remote.there);
    assert_int_equal(buffers[0].length, SIZE);
    assert_bytes(&buffers[1], sizeof(buffers[1]), 0x7e);
    count = 3;
    assert_int_equal(te_remote_buffers(pair.engine, pair.segment, buffers, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal((uintptr_t)buffers[1].addr, second.there);
    assert_int_equal(buffers[1].length, 2 * SIZE);
    assert_bytes(&buffers[2], sizeof(buffers[2]), 0x7e);

    uint8_t *mine = memory_new_registered(pair.engine, SIZE);
    count = 3;
    assert_int_equal(te_remote_buffers(pair.engine, LOCAL_SEGMENT, buffers, &count), 0);
    assert_int_equal(count, 1);
    assert_ptr_equal(buffers[0].addr, mine);
    count = 3;
    assert_int_equal(te_remote_buffers(pair.engine, 4711, buffers, &count), ERR_METADATA);
    assert_int_equal(te_remote_buffers(pair.engine, -1, buffers, &count), ERR_METADATA);
    assert_int_equal(count, 3);
    short_timeouts();
    target_kill(pair.target);
    assert_true(te_remote_buffers(pair.engine, pair.segment, buffers, &count) < 0);
    assert_int_equal(count, 3);
}

static void report_s10_the_first_buffer_of_a_peer(void **state)
{
    (void)state;
    struct target *target = target_start();
    transfer_engine_t engine = engine_new();
    uint64_t address = 77;
    assert_int_equal(te_first_buffer_address(engine, target->name, &address), ERR_ADDRESS_NOT_REGISTERED);
    assert_int_equal(te_first_buffer_address(engine, "127.0.0.1:1", &address), ERR_SOCKET);
    assert_int_equal(te_first_buffer_address(engine, "nosuchhost.invalid:1", &address), ERR_DNS);
    assert_int_equal(te_first_buffer_address(engine, "", &address), ERR_INVALID_ARGUMENT);
    assert_int_equal(te_first_buffer_address(engine, target->name, NULL), ERR_INVALID_ARGUMENT);
    assert_int_equal(address, 77);
    struct shared_memory memory = target_memory(target, SIZE);
    assert_int_equal(te_first_buffer_address(engine, target->name, &address), 0); /* as it says now */
    assert_int_equal(address, memory.there);
}

/* ---- the library ---- */

static void *fail_in_a_thread(void *data)
{
    transfer_engine_t engine = *(transfer_engine_t *)data;
    bool clean = strcmp(te_last_error(), "") == 0;
    openSegment(engine, "nosuchhost.invalid:1");
    bool said = strstr(te_last_error(), "nosuchhost") != NULL;
    return clean && said ? data : NULL;
}

static void ext_the_reason_of_a_failure_is_kept_per_thread(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    assert_true(registerLocalMemory(engine, engine, 0, "*", 1) < 0);
    char before[512];
    snprintf(before, sizeof(before), "%s", te_last_error());
    assert_string_not_equal(before, "");
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_a_thread, &engine), 0);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_string_equal(te_last_error(), before);
}

static void ext_the_version_has_three_numbers(void **state)
{
    (void)state;
    int major;
    int minor;
    int patch;
    char rest;
    assert_int_equal(sscanf(te_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest), 3);
}

struct log {
    pthread_mutex_t lock;
    unsigned lines;
    bool broken_line;
    char all[256 * KIB];
    size_t length;
};

static void keep_line(int level, const char *message, void *user_data)
{
    struct log *log = user_data;
    size_t length = strlen(message);
    pthread_mutex_lock(&log->lock);
    log->lines++;
    log->broken_line |= strchr(message, '\n') != NULL || level < TE_LOG_LEVEL_TRACE || level > TE_LOG_LEVEL_ERROR;
    if (log->length + length + 2 < sizeof(log->all)) {
        memcpy(log->all + log->length, message, length);
        log->length += length;
        log->all[log->length++] = '\n';
    }
    pthread_mutex_unlock(&log->lock);
}

static struct log kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void listen_to_log(void)
{
    pthread_mutex_lock(&kept.lock);
    kept.lines = 0;
    kept.length = 0;
    memset(kept.all, 0, sizeof(kept.all));
    pthread_mutex_unlock(&kept.lock);
    te_set_log_callback(keep_line, &kept);
}

static void ext_messages_go_to_the_callers_function(void **state)
{
    (void)state;
    setenv("MC_LOG_LEVEL", "TRACE", 1);
    listen_to_log();
    transfer_engine_t engine = engine_new();
    assert_true(openSegment(engine, "nosuchhost.invalid:1") < 0);
    pthread_mutex_lock(&kept.lock);
    unsigned lines = kept.lines;
    assert_non_null(strstr(kept.all, "nosuchhost"));
    assert_false(kept.broken_line);
    pthread_mutex_unlock(&kept.lock);
    te_set_log_callback(NULL, NULL);
    assert_true(openSegment(engine, "nosuchhost.invalid:1") < 0);
    assert_int_equal(kept.lines, lines);
}

static void report_r11_a_failed_registration_is_loud(void **state)
{
    (void)state;
    char text[32];
    transfer_engine_t engine = engine_new();
    uint8_t *memory = memory_new_registered(engine, SIZE);
    listen_to_log();
    assert_int_equal(registerLocalMemory(engine, memory + 100, 12345, "*", 1), ERR_ADDRESS_OVERLAPPED);
    te_set_log_callback(NULL, NULL);
    pthread_mutex_lock(&kept.lock);
    snprintf(text, sizeof(text), "%llx", (unsigned long long)(uintptr_t)(memory + 100));
    assert_non_null(strstr(kept.all, text));
    assert_non_null(strstr(kept.all, "12345"));
    pthread_mutex_unlock(&kept.lock);
}

static void r10_a_dead_peer_does_not_flood_the_log(void **state)
{
    (void)state;
    enum { COUNT = 10000 };
    watchdog(60);
    short_timeouts();
    setenv("MC_LOG_LEVEL", "INFO", 1);
    struct pair pair = pair_new(KIB);
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), COMPLETED);
    struct transfer_request *requests = calloc(COUNT, sizeof(*requests));
    assert_non_null(requests);
    for (size_t index = 0; index < COUNT; index++)
        requests[index] = request_of((int)(index % 2), pair.local, pair.segment, pair.remote.there, KIB);
    batch_id_t batch = batch_new(pair.engine, COUNT);
    target_stop(pair.target);
    listen_to_log();
    assert_int_equal(submitTransfer(pair.engine, batch, requests, COUNT), 0);
    target_kill(pair.target);
    for (size_t index = 0; index < COUNT; index++)
        assert_int_equal(finish(pair.engine, batch, index), FAILED);
    for (int round = 0; round < 200; round++)
        assert_int_equal(pair_transfer(&pair, WRITE, KIB), FAILED);
    te_set_log_callback(NULL, NULL);
    pthread_mutex_lock(&kept.lock);
    print_message("%u lines\n", kept.lines);
    assert_true(kept.lines < 100);
    assert_true(kept.lines > 0);
    assert_non_null(strstr(kept.all, pair.target->name)); /* one of them says who */
    pthread_mutex_unlock(&kept.lock);
    free(requests);
}

static void report_b11_every_failure_leaves_a_reason_in_the_log(void **state)
{
    (void)state;
    short_timeouts();
    struct pair pair = pair_new(KIB);
    listen_to_log();
    assert_int_equal(transfer(pair.engine, WRITE, pair.local, pair.segment, 64, KIB), FAILED);
    pthread_mutex_lock(&kept.lock);
    assert_non_null(strstr(kept.all, pair.target->name)); /* the peer */
    assert_non_null(strstr(kept.all, "1024"));            /* the size */
    pthread_mutex_unlock(&kept.lock);
    target_kill(pair.target);
    listen_to_log();
    assert_int_equal(pair_transfer(&pair, WRITE, KIB), FAILED);
    te_set_log_callback(NULL, NULL);
    pthread_mutex_lock(&kept.lock);
    assert_true(kept.lines > 0);
    pthread_mutex_unlock(&kept.lock);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(ext_remote_buffers),
        TEST(ext_the_reason_of_a_failure_is_kept_per_thread),
        TEST(ext_the_version_has_three_numbers),
        TEST(ext_messages_go_to_the_callers_function),
        TEST(report_r11_a_failed_registration_is_loud),
        TEST(report_s10_the_first_buffer_of_a_peer),
        TEST(report_b11_every_failure_leaves_a_reason_in_the_log),
        TEST(r10_a_dead_peer_does_not_flood_the_log), /* last: it uses up what the log lets through */
    };
    return RUN_TESTS(tests, argc, argv);
}
