/* Notifications: callers' behaviours 34 to 36, gap 10, the contract's line on them, bug reports N*. */
#include <pthread.h>
#include <stdatomic.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 256 * KIB };

struct both {
    transfer_engine_t sender, receiver;
    segment_id_t segment;
    uint8_t *local, *remote;
};

static struct both both_new(void)
{
    char name[NAME_SIZE];
    struct both both = {.sender = engine_new(), .receiver = engine_new(), .local = memory_new(SIZE)};
    both.remote = memory_new_registered(both.receiver, SIZE);
    engine_name(both.receiver, name);
    both.segment = engine_open(both.sender, name);
    return both;
}

static int submit_with(struct both *both, batch_id_t batch, uint64_t remote, size_t length, char *name, char *text)
{
    notify_msg_t message = {.name = name, .msg = text};
    struct transfer_request request = request_of(WRITE, both->local, both->segment, remote, length);
    return submitTransferWithNotify(both->sender, batch, &request, 1, message);
}

static void assert_next(transfer_engine_t engine, const char *name, const char *text)
{
    notify_msg_t *messages = await_notifications(engine, 1);
    assert_string_equal(messages[0].name, name);
    assert_string_equal(messages[0].msg, text);
    assert_int_equal(freeNotifsMsgBuf(messages, 1), 0);
}

/* What has been sent so far has arrived, and it is nothing: a marker sent now is the next to come. */
static void assert_none_but_marker(struct both *both)
{
    notify_msg_t marker = {.name = "marker", .msg = "marker"};
    assert_int_equal(genNotifyInEngine(both->sender, (uint64_t)both->segment, marker), 0);
    assert_next(both->receiver, "marker", "marker");
}

/* ---- callers' behaviours ---- */

static void b34_one_notification_per_submit_after_the_data(void **state)
{
    (void)state;
    enum { COUNT = 64, PART = SIZE / COUNT };
    struct both both = both_new();
    for (uint64_t round = 0; round < 50; round++) {
        char text[32];
        struct transfer_request requests[COUNT];
        snprintf(text, sizeof(text), "round %d", (int)round);
        notify_msg_t message = {.name = "sender", .msg = text};
        pattern_fill(both.local, SIZE, round);
        for (size_t index = 0; index < COUNT; index++)
            requests[index] =
                request_of(WRITE, both.local + index * PART, both.segment, (uintptr_t)both.remote + index * PART, PART);
        batch_id_t batch = batch_new(both.sender, COUNT);
        assert_int_equal(submitTransferWithNotify(both.sender, batch, requests, COUNT, message), 0);
        memset(text, 'x', sizeof(text) - 1); /* copied */
        snprintf(text, sizeof(text), "round %d", (int)round);
        assert_next(both.receiver, "sender", text);
        assert_pattern(both.remote, SIZE, round); /* compared right after seeing it, as NIXL's test does */
        assert_int_equal(free_when_done(both.sender, batch), 0);
    }
    assert_none_but_marker(&both);
}

static void b34_only_on_success(void **state)
{
    (void)state;
    struct both both = both_new();
    struct transfer_request requests[3];
    notify_msg_t message = {.name = "never", .msg = "never"};
    for (size_t index = 0; index < 3; index++)
        requests[index] = request_of(WRITE, both.local, both.segment, (uintptr_t)both.remote, KIB);
    requests[1].target_offset = 64;
    batch_id_t batch = batch_new(both.sender, 3);
    assert_int_equal(submitTransferWithNotify(both.sender, batch, requests, 3, message), 0);
    assert_int_equal(finish(both.sender, batch, 1), FAILED);
    assert_int_equal(finish(both.sender, batch, 0), COMPLETED);
    assert_int_equal(finish(both.sender, batch, 2), COMPLETED);
    assert_int_equal(freeBatchID(both.sender, batch), 0);
    assert_none_but_marker(&both);
    /* A later batch does not send it either (upstream did, by a reused id). */
    for (int round = 0; round < 20; round++) {
        assert_int_equal(transfer(both.sender, WRITE, both.local, both.segment, (uintptr_t)both.remote, KIB),
                         COMPLETED);
    }
    assert_none_but_marker(&both);
}

static void b34_texts_arrive_unchanged(void **state)
{
    (void)state;
    char all[256];
    char long_text[64 * KIB + 1];
    struct both both = both_new();
    for (int byte = 1; byte < 256; byte++)
        all[byte - 1] = (char)byte;
    all[255] = '\0';
    for (size_t index = 0; index < sizeof(long_text) - 1; index++)
        long_text[index] = (char)('a' + index % 26);
    long_text[sizeof(long_text) - 1] = '\0';
    char *texts[] = {"",
                     " ",
                     "m\xc3\xa9\xf0\x9f\x98\x80\n",
                     "\"\\/\b\f\n\r\t\x7f\x01",
                     "{\"a\":1}",
                     "\xff\xfe",
                     "\xc3(\xa0\xa1",
                     all,
                     long_text};
    for (size_t index = 0; index < sizeof(texts) / sizeof(texts[0]); index++) {
        notify_msg_t message = {.name = texts[index], .msg = texts[index]};
        assert_int_equal(genNotifyInEngine(both.sender, (uint64_t)both.segment, message), 0);
        assert_next(both.receiver, texts[index], texts[index]);
        batch_id_t batch = batch_new(both.sender, 1);
        assert_int_equal(submit_with(&both, batch, (uintptr_t)both.remote, KIB, texts[index], ""), 0);
        assert_next(both.receiver, texts[index], "");
        assert_int_equal(free_when_done(both.sender, batch), 0);
    }
}

static void b34_for_a_read_and_for_no_bytes(void **state)
{
    (void)state;
    struct both both = both_new();
    batch_id_t batch = batch_new(both.sender, 2);
    notify_msg_t message = {.name = "r", .msg = "read"};
    struct transfer_request request = request_of(READ, both.local, both.segment, (uintptr_t)both.remote, SIZE);
    assert_int_equal(submitTransferWithNotify(both.sender, batch, &request, 1, message), 0);
    assert_next(both.receiver, "r", "read");
    assert_int_equal(submit_with(&both, batch, 5, 0, "z", "zero"), 0);
    assert_next(both.receiver, "z", "zero");
    assert_int_equal(free_when_done(both.sender, batch), 0);
    assert_none_but_marker(&both);
}

static void b34_each_submit_to_one_batch_has_its_own(void **state)
{
    (void)state;
    struct both both = both_new();
    batch_id_t batch = batch_new(both.sender, 10);
    for (int round = 0; round < 10; round++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", round);
        assert_int_equal(submit_with(&both, batch, (uintptr_t)both.remote, KIB, "n", text), 0);
        assert_next(both.receiver, "n", text);
    }
    assert_int_equal(free_when_done(both.sender, batch), 0);
    assert_none_but_marker(&both);
}

static void b35_a_notification_may_be_the_first_contact(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t receiver = engine_new();
    engine_name(receiver, name);
    for (int round = 0; round < 5; round++) {
        transfer_engine_t sender = engine_new();
        notify_msg_t message = {.name = "hello", .msg = "first"};
        assert_int_equal(genNotifyInEngine(sender, (uint64_t)engine_open(sender, name), message), 0);
        assert_next(receiver, "hello", "first");
    }
    notify_msg_t message = {.name = "me", .msg = "myself"};
    assert_int_equal(genNotifyInEngine(receiver, LOCAL_SEGMENT, message), 0);
    assert_next(receiver, "me", "myself");
}

static void b35_an_empty_queue_is_null_and_0(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    for (int round = 0; round < 3; round++) {
        int count = 77;
        assert_null(getNotifsFromEngine(engine, &count));
        assert_int_equal(count, 0);
        assert_int_equal(freeNotifsMsgBuf(NULL, 0), 0);
    }
}

static void b35_getting_drains(void **state)
{
    (void)state;
    struct both both = both_new();
    for (int index = 0; index < 5; index++) {
        notify_msg_t message = {.name = "n", .msg = "m"};
        assert_int_equal(genNotifyInEngine(both.sender, (uint64_t)both.segment, message), 0);
    }
    notify_msg_t *messages = await_notifications(both.receiver, 5);
    assert_int_equal(freeNotifsMsgBuf(messages, 5), 0);
    int count = 77;
    assert_null(getNotifsFromEngine(both.receiver, &count));
    assert_int_equal(count, 0);
}

static void b36_the_engine_sends_without_being_polled(void **state)
{
    (void)state;
    struct target *target = target_start();
    struct shared_memory memory = target_memory(target, SIZE);
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(SIZE);
    segment_id_t segment = engine_open(engine, target->name);
    pattern_fill(local, SIZE, 36);
    batch_id_t batch = batch_new(engine, 1);
    notify_msg_t message = {.name = "silent", .msg = "caller"};
    struct transfer_request request = request_of(WRITE, local, segment, memory.there, SIZE);
    assert_int_equal(submitTransferWithNotify(engine, batch, &request, 1, message), 0);
    char *arrived = NULL; /* no call on our engine until it is there */
    for (unsigned round = 0; !arrived || arrived[0] == '\0'; round++) {
        free(arrived);
        poll_pause(round);
        arrived = target_notifications(target);
    }
    assert_string_equal(arrived, "silent=caller\n");
    assert_pattern(memory.here, SIZE, 36);
    free(arrived);
    assert_int_equal(freeBatchID(engine, batch), 0);
}

/* ---- gaps that callers' suites leave, and the contract ---- */

static void e10_ten_thousand_undrained(void **state)
{
    (void)state;
    enum { COUNT = 10000, THREADS = 4 };
    watchdog(60);
    char name[NAME_SIZE];
    transfer_engine_t receiver = engine_new();
    engine_name(receiver, name);
    bool *seen = calloc(COUNT, sizeof(*seen));
    assert_non_null(seen);
    transfer_engine_t sender = engine_new();
    uint64_t segment = (uint64_t)engine_open(sender, name);
    for (int index = 0; index < COUNT; index++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", index);
        notify_msg_t message = {.name = "n", .msg = text};
        assert_int_equal(genNotifyInEngine(sender, segment, message), 0);
    }
    notify_msg_t *messages = await_notifications(receiver, COUNT);
    for (int index = 0; index < COUNT; index++) {
        int number = atoi(messages[index].msg);
        assert_false(seen[number]);
        seen[number] = true;
    }
    assert_int_equal(freeNotifsMsgBuf(messages, COUNT), 0);
    free(seen);
}

static void contract_a_notification_that_is_too_long_is_refused(void **state)
{
    (void)state;
    struct both both = both_new();
    size_t length = 2 * MIB;
    char *text = malloc(length + 1);
    assert_non_null(text);
    memset(text, 'x', length);
    text[length] = '\0';
    notify_msg_t message = {.name = "n", .msg = text};
    assert_true(genNotifyInEngine(both.sender, (uint64_t)both.segment, message) < 0);
    assert_string_not_equal(te_last_error(), "");
    batch_id_t batch = batch_new(both.sender, 1);
    memset(both.local, 0x66, KIB);
    assert_int_equal(submit_with(&both, batch, (uintptr_t)both.remote, KIB, "n", text), 1);
    assert_int_equal(freeBatchID(both.sender, batch), 0);
    assert_none_but_marker(&both);
    assert_bytes(both.remote, KIB, 0); /* a refused submit moved nothing */
    /* Encoded length counts: each of these bytes takes six. */
    memset(text, 1, length);
    text[200 * KIB] = '\0';
    assert_true(genNotifyInEngine(both.sender, (uint64_t)both.segment, message) < 0);
    memset(text, 'y', length);
    text[MIB - 200] = '\0';
    assert_int_equal(genNotifyInEngine(both.sender, (uint64_t)both.segment, message), 0);
    assert_next(both.receiver, "n", text);
    free(text);
}

static void contract_notifying_the_unreachable_is_an_error_in_bounded_time(void **state)
{
    (void)state;
    short_timeouts();
    transfer_engine_t engine = engine_new();
    notify_msg_t message = {.name = "n", .msg = "m"};
    assert_int_equal(genNotifyInEngine(engine, 4711, message), ERR_METADATA);
    assert_int_equal(genNotifyInEngine(engine, UINT64_MAX, message), ERR_METADATA);
    struct target *target = target_start();
    uint64_t segment = (uint64_t)engine_open(engine, target->name);
    target_kill(target);
    assert_int_equal(genNotifyInEngine(engine, segment, message), ERR_SOCKET);
    struct raw_peer *peer = raw_peer_start();
    segment = (uint64_t)engine_open(engine, peer->name);
    raw_peer_behave_control(peer, RAW_CONTROL_SILENT);
    assert_int_equal(genNotifyInEngine(engine, segment, message), ERR_SOCKET);
    raw_peer_behave_control(peer, RAW_CONTROL_CLOSE);
    assert_int_equal(genNotifyInEngine(engine, segment, message), ERR_SOCKET);
    raw_peer_behave_control(peer, RAW_CONTROL_WRONG_TYPE);
    assert_true(genNotifyInEngine(engine, segment, message) < 0);
    raw_peer_behave_control(peer, RAW_CONTROL_SERVE);
    assert_int_equal(genNotifyInEngine(engine, segment, message), 0);
}

static void contract_a_receiver_that_is_gone_costs_the_transfer_nothing(void **state)
{
    (void)state;
    short_timeouts();
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(KIB);
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    raw_peer_behave_control(peer, RAW_CONTROL_SILENT);
    for (int round = 0; round < 3; round++) {
        notify_msg_t message = {.name = "n", .msg = "m"};
        struct transfer_request request = request_of(WRITE, local, segment, (uintptr_t)peer->memory, KIB);
        batch_id_t batch = batch_new(engine, 1);
        assert_int_equal(submitTransferWithNotify(engine, batch, &request, 1, message), 0);
        assert_int_equal(finish(engine, batch, 0), COMPLETED);
        assert_int_equal(freeBatchID(engine, batch), 0);
    }
    engine_delete(engine); /* with notifications under way: bounded */
}

static void contract_a_lost_reply_does_not_deliver_twice(void **state)
{
    (void)state;
    short_timeouts();
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(KIB);
    struct raw_peer *peer = raw_peer_start();
    segment_id_t segment = engine_open(engine, peer->name);
    raw_peer_behave_control(peer, RAW_CONTROL_CLOSE); /* takes the notification and closes without an answer */
    notify_msg_t message = {.name = "n", .msg = "m"};
    struct transfer_request request = request_of(WRITE, local, segment, (uintptr_t)peer->memory, KIB);
    batch_id_t batch = batch_new(engine, 1);
    assert_int_equal(submitTransferWithNotify(engine, batch, &request, 1, message), 0);
    AWAIT(raw_peer_control_calls(peer, RAW_NOTIFY) > 0);
    engine_delete(engine);
    assert_int_equal(raw_peer_control_calls(peer, RAW_NOTIFY), 1);
}

/* ---- classic specification, section 9.3, and bug reports ---- */

static void s9_3_14_and_report_n01_after_the_last_task_only(void **state)
{
    (void)state;
    struct raw_peer *peer = raw_peer_start();
    transfer_engine_t engine = engine_new();
    uint8_t *local = memory_new(MIB);
    segment_id_t segment = engine_open(engine, peer->name);
    raw_peer_behave(peer, RAW_STALL_BEFORE_STATUS, 1); /* the first request hangs, the others complete */
    struct transfer_request requests[4];
    for (size_t index = 0; index < 4; index++)
        requests[index] =
            request_of(WRITE, local, segment, (uintptr_t)peer->memory + index * 64 * KIB, index == 0 ? 64 * KIB : KIB);
    batch_id_t batch = batch_new(engine, 5);
    notify_msg_t message = {.name = "n", .msg = "all"};
    assert_int_equal(submitTransferWithNotify(engine, batch, requests, 4, message), 0);
    raw_peer_request(peer, 0, false);
    assert_int_equal(submitTransfer(engine, batch, requests + 1, 1), 0);
    notify_msg_t marker = {.name = "n", .msg = "marker"};
    assert_int_equal(genNotifyInEngine(engine, (uint64_t)segment, marker), 0);
    char *last = raw_peer_last_call(peer, RAW_NOTIFY);
    assert_non_null(strstr(last, "marker"));
    assert_int_equal(raw_peer_control_calls(peer, RAW_NOTIFY), 1);
    free(last);
    raw_peer_release(peer);
    AWAIT(raw_peer_control_calls(peer, RAW_NOTIFY) == 2);
    last = raw_peer_last_call(peer, RAW_NOTIFY);
    assert_non_null(strstr(last, "\"notify_msg\":\"all\""));
    free(last);
    for (size_t index = 0; index < 5; index++)
        assert_int_equal(finish(engine, batch, index), COMPLETED);
    assert_int_equal(freeBatchID(engine, batch), 0);
    engine_delete(engine);
    assert_int_equal(raw_peer_control_calls(peer, RAW_NOTIFY), 2);
}

static void s9_3_15_text_of_a_foreign_sender_is_delivered_as_it_is(void **state)
{
    (void)state;
    char name[NAME_SIZE];
    transfer_engine_t engine = engine_new();
    engine_name(engine, name);
    static const struct {
        const char *sent, *name, *text;
    } cases[] = {
        {"{\"name\":\"na\\\"me/\x7f\",\"notify_msg\":\"m\\u00e9\\ud83d\\ude00\\n\"}\n", "na\"me/\x7f",
         "m\xc3\xa9\xf0\x9f\x98\x80\n"},
        {"{}", "", ""},
        {"{\"name\":\"only\"}", "only", ""},
        {"{\"name\":5,\"notify_msg\":true}", "5", "true"},
        {"{\"name\":\"\xff\xfe\",\"notify_msg\":\"\xc3(\"}", "\xff\xfe", "\xc3("},
        {"{\"notify_msg\":\"x\",\"other\":[1,2,{\"a\":null}]}", "", "x"},
    };
    for (size_t index = 0; index < sizeof(cases) / sizeof(cases[0]); index++) {
        char *reply = raw_call(name, RAW_NOTIFY, cases[index].sent);
        assert_non_null(reply);
        assert_non_null(strstr(reply, "\"notify_msg\":\"success\""));
        assert_next(engine, cases[index].name, cases[index].text);
        free(reply);
    }
}

static void report_n03_texts_may_be_freed_at_once(void **state)
{
    (void)state;
    struct both both = both_new();
    for (int round = 0; round < 20; round++) {
        char *name = strdup("a name");
        char *text = strdup("a message that lives on the heap");
        notify_msg_t message = {.name = name, .msg = text};
        batch_id_t batch = batch_new(both.sender, 1);
        struct transfer_request request = request_of(WRITE, both.local, both.segment, (uintptr_t)both.remote, SIZE);
        assert_int_equal(submitTransferWithNotify(both.sender, batch, &request, 1, message), 0);
        free(name);
        free(text);
        assert_next(both.receiver, "a name", "a message that lives on the heap");
        assert_int_equal(free_when_done(both.sender, batch), 0);
    }
}

static void report_n04_lists_of_every_size_are_freed(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 1000};
    struct both both = both_new();
    assert_int_equal(freeNotifsMsgBuf(NULL, 0), 0);
    for (size_t index = 0; index < sizeof(counts) / sizeof(counts[0]); index++) {
        for (int sent = 0; sent < counts[index]; sent++) {
            notify_msg_t message = {.name = "n", .msg = "m"};
            assert_int_equal(genNotifyInEngine(both.sender, (uint64_t)both.segment, message), 0);
        }
        int count = 0;
        notify_msg_t *messages = getNotifsFromEngine(both.receiver, &count);
        assert_int_equal(count, counts[index]);
        assert_int_equal(freeNotifsMsgBuf(messages, count), 0);
    }
}

struct exchange {
    transfer_engine_t engine;
    uint64_t peer;
    atomic_int failed;
};

static void *send_a_thousand(void *data)
{
    struct exchange *exchange = data;
    for (int index = 0; index < 1000; index++) {
        notify_msg_t message = {.name = "n", .msg = "m"};
        if (genNotifyInEngine(exchange->engine, exchange->peer, message) != 0)
            atomic_fetch_add(&exchange->failed, 1);
    }
    return NULL;
}

static void report_n05_a_thousand_each_way_at_once(void **state)
{
    (void)state;
    watchdog(60);
    char names[2][NAME_SIZE];
    struct exchange exchanges[2] = {{.engine = engine_new()}, {.engine = engine_new()}};
    for (size_t index = 0; index < 2; index++)
        engine_name(exchanges[index].engine, names[index]);
    for (size_t index = 0; index < 2; index++)
        exchanges[index].peer = (uint64_t)engine_open(exchanges[index].engine, names[1 - index]);
    run_threads(2, send_a_thousand, exchanges, sizeof(exchanges[0]));
    for (size_t index = 0; index < 2; index++) {
        assert_int_equal(atomic_load(&exchanges[index].failed), 0);
        freeNotifsMsgBuf(await_notifications(exchanges[index].engine, 1000), 1000);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(b34_one_notification_per_submit_after_the_data),
        TEST(b34_only_on_success),
        TEST(b34_texts_arrive_unchanged),
        TEST(b34_for_a_read_and_for_no_bytes),
        TEST(b34_each_submit_to_one_batch_has_its_own),
        TEST(b35_a_notification_may_be_the_first_contact),
        TEST(b35_an_empty_queue_is_null_and_0),
        TEST(b35_getting_drains),
        TEST(b36_the_engine_sends_without_being_polled),
        TEST(e10_ten_thousand_undrained),
        TEST(contract_a_notification_that_is_too_long_is_refused),
        TEST(contract_notifying_the_unreachable_is_an_error_in_bounded_time),
        TEST(contract_a_receiver_that_is_gone_costs_the_transfer_nothing),
        TEST(contract_a_lost_reply_does_not_deliver_twice),
        TEST(s9_3_14_and_report_n01_after_the_last_task_only),
        TEST(s9_3_15_text_of_a_foreign_sender_is_delivered_as_it_is),
        TEST(report_n03_texts_may_be_freed_at_once),
        TEST(report_n04_lists_of_every_size_are_freed),
        TEST(report_n05_a_thousand_each_way_at_once),
    };
    return RUN_TESTS(tests, argc, argv);
}
