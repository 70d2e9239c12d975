/* How transfers of the TCP initiator end before their time: silence, cancels, deadlines, the end of the transport.
 * After the end nothing moves, and what nobody has given up goes on. */
#include "tests/unit/tcp_lane_fixture.h"

static void test_silent_peer(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[2] = {
        {.opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 4096},
        {.opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = 4096}};
    uint8_t *copy = malloc(4096);
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, transfers, 2);
    peer = accept_peer(fixture);
    wait_for(fixture, id);
    assert_int_equal(transfers[0].outcome.result, TE_RESULT_TIMED_OUT);
    assert_int_equal(transfers[1].outcome.result, TE_RESULT_TIMED_OUT);
    memcpy(copy, fixture->local, 4096);
    /* An answer would come too late, and the peer is told so by a reset. */
    assert_false(read_to_end(peer));
    assert_memory_equal(copy, fixture->local, 4096);
    free(copy);
    close(peer);
}

static void test_canceled_read_leaves_the_connection_to_others(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[2] = {
        {.opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 4096},
        {.opcode = TE_OPCODE_READ, .local = fixture->local + 4096, .remote = fixture->remote, .length = 4096}};
    uint8_t *copy = malloc(4096);
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, transfers, 2);
    peer = accept_peer(fixture);
    take_request(peer);
    take_request(peer);
    send_status(peer, TE_TCP_STATUS_OK);
    send_bytes(peer, fixture->remote, 1000);
    memcpy(copy, fixture->local, 4096);
    cancel(fixture, id, 0);
    assert_int_equal(te_batch_wait(fixture->engine.batches, id, 0, WATCHDOG_NS), TE_OK);
    assert_int_equal(transfers[0].outcome.result, TE_RESULT_CANCELED);
    memcpy(copy, fixture->local, 4096);
    send_bytes(peer, fixture->remote + 1000, 3096);
    send_status(peer, TE_TCP_STATUS_OK);
    send_bytes(peer, fixture->remote, 4096);
    wait_for(fixture, id);
    assert_int_equal(transfers[1].outcome.result, TE_RESULT_SUCCEEDED);
    assert_memory_equal(copy, fixture->local, 4096);
    assert_memory_equal(fixture->local + 4096, fixture->remote, 4096);
    free(copy);
    close(peer);
}

static void test_canceled_write_that_was_sent_ends_with_its_answer(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = 64};
    uint8_t body[64];
    enum te_task_state task_state;
    uint64_t id, bytes;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, &transfer, 1);
    peer = accept_peer(fixture);
    take_request(peer);
    assert_true(test_receive(peer, body, sizeof(body)));
    cancel(fixture, id, 0);
    assert_int_equal(te_task_status(fixture->engine.batches, id, 0, &task_state, &bytes), TE_OK);
    assert_int_equal(task_state, TE_TASK_WAITING);
    send_status(peer, TE_TCP_STATUS_OK);
    wait_for(fixture, id);
    assert_int_equal(transfer.outcome.result, TE_RESULT_SUCCEEDED);
    close(peer);
}

static void test_canceled_write_without_an_answer_is_reset(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = 64};
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, &transfer, 1);
    peer = accept_peer(fixture);
    cancel(fixture, id, 0);
    wait_for(fixture, id);
    assert_int_equal(transfer.outcome.result, TE_RESULT_CANCELED);
    assert_false(read_to_end(peer));
    close(peer);
}

/* Several fence time-outs, one after the other, as the patrol sees them: it resets connections to another peer. */
static void let_other_connections_be_reset(struct fixture *fixture)
{
    struct te_endpoint *endpoint = fixture->endpoint;
    int listening = fixture->listening;
    uint16_t port;

    assert_int_equal(te_listen_any_port(15000, 17000, 64, &fixture->listening, &port), TE_OK);
    open_endpoint(fixture, port, 2);
    for (int i = 0; i < 3; i++) {
        struct transfer transfer = {
            .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = 64};
        uint64_t id = submit(fixture, &transfer, 1);
        int peer = accept_peer(fixture);

        cancel(fixture, id, 0);
        assert_false(read_to_end(peer)); /* nobody waits for the batch meanwhile: it is left to the patrol */
        wait_for(fixture, id);
        assert_int_equal(transfer.outcome.result, TE_RESULT_CANCELED);
        close(peer);
    }
    te_tcp_transport_ops.endpoint_close(fixture->endpoint);
    close(fixture->listening);
    fixture->endpoint = endpoint;
    fixture->listening = listening;
}

/* The peer takes longer than the fence time-out. A reset would end the other write, too, which nobody has given up. */
static void test_a_reset_waits_for_writes_that_are_wanted(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[2] = {
        {.opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = 64},
        {.opcode = TE_OPCODE_WRITE, .local = fixture->local + 64, .remote = fixture->remote + 64, .length = 64}};
    uint8_t body[64];
    uint64_t id;
    int peer;

    fixture->engine.settings.tcp_silence_timeout_ms = 60000;
    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, transfers, 2);
    peer = accept_peer(fixture);
    for (int i = 0; i < 2; i++) {
        take_request(peer);
        assert_true(test_receive(peer, body, sizeof(body)));
    }
    cancel(fixture, id, 0);
    let_other_connections_be_reset(fixture);
    assert_false(transfers[0].outcome.ended);
    assert_false(transfers[1].outcome.ended);
    send_status(peer, TE_TCP_STATUS_OK);
    send_status(peer, TE_TCP_STATUS_OK);
    wait_for(fixture, id);
    assert_int_equal(transfers[0].outcome.result, TE_RESULT_SUCCEEDED);
    assert_int_equal(transfers[1].outcome.result, TE_RESULT_SUCCEEDED);
    close(peer);
}

/* Reads are sent again after the reset, as often as it takes: nobody has given them up. */
static void test_resets_for_canceled_writes_fail_no_read(void **state)
{
    struct fixture *fixture = *state;
    struct transfer read = {.opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 64};
    uint64_t read_id, id;
    int peer;

    fixture->engine.settings.tcp_silence_timeout_ms = 60000;
    fixture->engine.settings.tcp_lanes_per_peer = 1;
    open_endpoint(fixture, fixture->listening_port, 2);
    read_id = submit(fixture, &read, 1);
    for (int i = 0; i < 3; i++) {
        struct transfer write = {
            .opcode = TE_OPCODE_WRITE, .local = fixture->local + 64, .remote = fixture->remote + 64, .length = 64};

        peer = accept_peer(fixture);
        take_request(peer);
        id = submit(fixture, &write, 1);
        take_request(peer);
        cancel(fixture, id, 0);
        wait_for(fixture, id);
        assert_int_equal(write.outcome.result, TE_RESULT_CANCELED);
        assert_false(read_to_end(peer));
        close(peer);
        assert_false(read.outcome.ended);
    }
    peer = accept_peer(fixture);
    take_request(peer);
    send_status(peer, TE_TCP_STATUS_OK);
    send_bytes(peer, fixture->remote, 64);
    wait_for(fixture, read_id);
    assert_int_equal(read.outcome.result, TE_RESULT_SUCCEEDED);
    close(peer);
}

/* Bytes of an answer that nobody wants keep dribbling in: they do not put off the end of a canceled write for ever. */
static void test_a_dribbling_peer_holds_no_canceled_write(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[2] = {
        {.opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 4096},
        {.opcode = TE_OPCODE_WRITE, .local = fixture->local + 4096, .remote = fixture->remote + 4096, .length = 64}};
    int64_t end_ns = te_now_ns() + WATCHDOG_NS;
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, transfers, 2);
    peer = accept_peer(fixture);
    take_request(peer);
    take_request(peer);
    send_status(peer, TE_TCP_STATUS_OK);
    cancel(fixture, id, 0);
    cancel(fixture, id, 1);
    while (te_batch_wait(fixture->engine.batches, id, SIZE_MAX, 50 * TE_NS_PER_MS) != TE_OK) {
        assert_true(te_now_ns() < end_ns);
        send(peer, fixture->remote, 1, MSG_NOSIGNAL);
    }
    assert_int_equal(transfers[1].outcome.result, TE_RESULT_CANCELED);
    close(peer);
}

struct alarm {
    struct te_timer timer;
    struct te_reactor *reactor;
    sem_t rung;
};

static void ring(struct te_timer *timer)
{
    struct alarm *alarm = (struct alarm *)((char *)timer - offsetof(struct alarm, timer));

    sem_post(&alarm->rung);
}

static void nothing(void *data)
{
    (void)data;
}

static void set_alarm(void *data)
{
    struct alarm *alarm = data;

    te_reactor_timer_set(alarm->reactor, &alarm->timer, te_now_ns() + 50 * TE_NS_PER_MS);
}

/* Until a timer has fired that is due after the next tick of the patrol, in the same reactor. */
static void let_the_patrol_look(struct fixture *fixture)
{
    struct alarm alarm = {.timer.fire = ring, .reactor = fixture->reactor};

    sem_init(&alarm.rung, 0, 0);
    te_reactor_run(fixture->reactor, set_alarm, &alarm);
    while (sem_wait(&alarm.rung) != 0)
        ;
    te_reactor_run_wait(fixture->reactor, nothing, NULL); /* it has let go of the timer */
    sem_destroy(&alarm.rung);
}

/* This process stands still, as in a debugger or on a host that is short of everything, and with it the peer's chance
 * to be heard. */
static void test_an_own_pause_is_not_the_silence_of_the_peer(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 64};
    pid_t self = getpid(), child;
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, &transfer, 1);
    peer = accept_peer(fixture);
    take_request(peer);
    let_the_patrol_look(fixture); /* the request has arrived: nothing moves any more */
    child = fork();
    if (child == 0) {
        kill(self, SIGSTOP);
        usleep(3 * 500000); /* three silence time-outs: the length of the pause is what the test is about */
        kill(self, SIGCONT);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    let_the_patrol_look(fixture);
    assert_false(transfer.outcome.ended);
    send_status(peer, TE_TCP_STATUS_OK);
    send_bytes(peer, fixture->remote, 64);
    wait_for(fixture, id);
    assert_int_equal(transfer.outcome.result, TE_RESULT_SUCCEEDED);
    close(peer);
}

static void test_canceled_write_in_the_middle_is_cut_and_seen_through(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[2] = {
        {.opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 64},
        {.opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = AREA_BYTES}};
    enum te_task_state task_state;
    uint64_t id, bytes;
    int small = 65536;
    int peer;

    setsockopt(fixture->listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, transfers, 2);
    peer = accept_peer(fixture);
    cancel(fixture, id, 1);
    /* Not over: the peer might still take what is on its way. */
    assert_int_equal(te_task_status(fixture->engine.batches, id, 1, &task_state, &bytes), TE_OK);
    assert_int_equal(task_state, TE_TASK_WAITING);
    take_request(peer);
    send_status(peer, TE_TCP_STATUS_OK);
    send_bytes(peer, fixture->remote, 64);
    assert_true(read_to_end(peer)); /* the rest, cut */
    close(peer);
    wait_for(fixture, id);
    assert_int_equal(transfers[0].outcome.result, TE_RESULT_SUCCEEDED);
    assert_int_equal(transfers[1].outcome.result, TE_RESULT_CANCELED);
}

static void test_deadline(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[2] = {
        {.opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 64},
        {.opcode = TE_OPCODE_READ, .local = fixture->local + 64, .remote = fixture->remote, .length = 64}};
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    transfers[1].deadline_ns = te_now_ns() + 50 * TE_NS_PER_MS;
    id = submit(fixture, transfers, 2);
    peer = accept_peer(fixture);
    assert_int_equal(te_batch_wait(fixture->engine.batches, id, 1, WATCHDOG_NS), TE_OK);
    assert_int_equal(transfers[1].outcome.result, TE_RESULT_TIMED_OUT);
    assert_false(transfers[0].outcome.ended);
    send_status(peer, TE_TCP_STATUS_OK);
    send_bytes(peer, fixture->remote, 64);
    wait_for(fixture, id);
    assert_int_equal(transfers[0].outcome.result, TE_RESULT_SUCCEEDED);
    close(peer);
}

/* A peer stalls in the middle of an answer that nobody waits for any more. */
static void test_a_given_up_read_delays_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[2] = {
        {.opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 4096},
        {.opcode = TE_OPCODE_READ, .local = fixture->local + 4096, .remote = fixture->remote, .length = 64}};
    struct transfer later = {
        .opcode = TE_OPCODE_READ, .local = fixture->local + 8192, .remote = fixture->remote, .length = 64};
    uint64_t id, later_id;
    int stalled, other;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, transfers, 2);
    stalled = accept_peer(fixture);
    take_request(stalled);
    send_status(stalled, TE_TCP_STATUS_OK);
    send_bytes(stalled, fixture->remote, 100);
    cancel(fixture, id, 0);
    assert_int_equal(te_batch_wait(fixture->engine.batches, id, 0, WATCHDOG_NS), TE_OK);
    /* New work takes another connection at once. */
    later_id = submit(fixture, &later, 1);
    other = accept_peer(fixture);
    take_request(other);
    send_status(other, TE_TCP_STATUS_OK);
    send_bytes(other, fixture->remote, 64);
    wait_for(fixture, later_id);
    assert_int_equal(later.outcome.result, TE_RESULT_SUCCEEDED);
    close(other);
    /* What was already behind the stall follows when the peer's silence has lasted too long. */
    other = accept_peer(fixture);
    take_request(other);
    send_status(other, TE_TCP_STATUS_OK);
    send_bytes(other, fixture->remote, 64);
    wait_for(fixture, id);
    assert_int_equal(transfers[1].outcome.result, TE_RESULT_SUCCEEDED);
    close(other);
    close(stalled);
}

static void test_destroy_ends_everything(void **state)
{
    enum { COUNT = 600 };
    struct fixture *fixture = *state;
    struct transfer transfers[COUNT];
    int peer;

    memset(transfers, 0, sizeof(transfers));
    open_endpoint(fixture, fixture->listening_port, 2);
    for (size_t i = 0; i < COUNT; i++)
        transfers[i] = (struct transfer){
            .opcode = i % 2, .local = fixture->local + i * 64, .remote = fixture->remote, .length = 64};
    submit(fixture, transfers, COUNT);
    peer = accept_peer(fixture);
    stop_transport(fixture);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(transfers[i].outcome.ended && transfers[i].outcome.result == TE_RESULT_CANCELED);
    read_to_end(peer);
    close(peer);
}

static void test_one_connection_per_request_without_pool(void **state)
{
    struct fixture *fixture = *state;

    fixture->engine.settings.tcp_connection_pool = false;
    open_endpoint(fixture, fixture->listening_port, 2);
    for (int i = 0; i < 3; i++) {
        struct transfer transfer = {
            .opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 64};
        uint64_t id = submit(fixture, &transfer, 1);
        int peer = accept_peer(fixture);

        take_request(peer);
        send_status(peer, TE_TCP_STATUS_OK);
        send_bytes(peer, fixture->remote, 64);
        wait_for(fixture, id);
        assert_true(read_to_end(peer));
        close(peer);
        assert_int_equal(transfer.outcome.result, TE_RESULT_SUCCEEDED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(test_silent_peer),
        LANE_TEST(test_canceled_read_leaves_the_connection_to_others),
        LANE_TEST(test_canceled_write_that_was_sent_ends_with_its_answer),
        LANE_TEST(test_canceled_write_without_an_answer_is_reset),
        LANE_TEST(test_a_reset_waits_for_writes_that_are_wanted),
        LANE_TEST(test_resets_for_canceled_writes_fail_no_read),
        LANE_TEST(test_a_dribbling_peer_holds_no_canceled_write),
        LANE_TEST(test_an_own_pause_is_not_the_silence_of_the_peer),
        LANE_TEST(test_canceled_write_in_the_middle_is_cut_and_seen_through),
        LANE_TEST(test_deadline),
        LANE_TEST(test_a_given_up_read_delays_nobody),
        LANE_TEST(test_destroy_ends_everything),
        LANE_TEST(test_one_connection_per_request_without_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
