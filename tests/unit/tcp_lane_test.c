/* The TCP initiator: against the real target in the same process, and against peers that a test scripts byte by byte.
 */
#include "tests/unit/tcp_lane_fixture.h"

/* Against the real target */

static void test_sizes_directions_versions(void **state)
{
    static const uint64_t sizes[] = {
        1, 7, 8, 23, 24, 25, 511, 512, 513, 4096, 65535, 65536, 65537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20};
    struct fixture *fixture = *state;

    for (int version = 1; version <= 2; version++) {
        open_endpoint(fixture, 0, version);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            size_t offset = 4096 * i + i;

            assert_int_equal(
                run_one(fixture, TE_OPCODE_WRITE, fixture->local + offset, fixture->remote + offset / 2, sizes[i]),
                TE_RESULT_SUCCEEDED);
            assert_memory_equal(fixture->local + offset, fixture->remote + offset / 2, sizes[i]);
            memset(fixture->local + offset, 0, sizes[i]);
            assert_int_equal(
                run_one(fixture, TE_OPCODE_READ, fixture->local + offset, fixture->remote + offset / 2, sizes[i]),
                TE_RESULT_SUCCEEDED);
            assert_memory_equal(fixture->local + offset, fixture->remote + offset / 2, sizes[i]);
        }
        te_tcp_transport_ops.endpoint_close(fixture->endpoint);
        fixture->endpoint = NULL;
    }
}

static void test_large_batch_of_both_kinds(void **state)
{
    enum { COUNT = 2000, BYTES = 1800 };
    struct fixture *fixture = *state;
    struct transfer *transfers = calloc(COUNT, sizeof(*transfers));
    uint64_t id;

    open_endpoint(fixture, 0, 2);
    for (size_t i = 0; i < COUNT; i++)
        transfers[i] = (struct transfer){.opcode = i % 2,
                                         .local = fixture->local + i * BYTES,
                                         .remote = fixture->remote + i * BYTES,
                                         .length = BYTES};
    id = submit(fixture, transfers, COUNT);
    wait_for(fixture, id);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(transfers[i].outcome.result, TE_RESULT_SUCCEEDED);
    assert_memory_equal(fixture->local, fixture->remote, COUNT * BYTES);
    free(transfers);
}

static void test_a_bad_request_fails_alone(void **state)
{
    enum { COUNT = 120 };
    struct fixture *fixture = *state;
    struct transfer transfers[COUNT];
    uint64_t id;

    for (int version = 1; version <= 2; version++) {
        memset(transfers, 0, sizeof(transfers));
        open_endpoint(fixture, 0, version);
        for (size_t i = 0; i < COUNT; i++)
            transfers[i] = (struct transfer){.opcode = i % 2,
                                             .local = fixture->local + i * 4096,
                                             .remote = i % 3 == 1 ? fixture->local : fixture->remote + i * 4096,
                                             .length = 4096};
        id = submit(fixture, transfers, COUNT);
        wait_for(fixture, id);
        for (size_t i = 0; i < COUNT; i++) {
            if (i % 3 == 1 && version == 2)
                assert_int_equal(transfers[i].outcome.result, TE_RESULT_REJECTED);
            else if (i % 3 == 1)
                assert_int_not_equal(transfers[i].outcome.result, TE_RESULT_SUCCEEDED);
            else if (version == 2)
                assert_int_equal(transfers[i].outcome.result, TE_RESULT_SUCCEEDED);
        }
        te_tcp_transport_ops.endpoint_close(fixture->endpoint);
        fixture->endpoint = NULL;
    }
}

static void test_a_local_address_that_is_not_there_fails_alone(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfers[6];
    uint64_t id;

    memset(transfers, 0, sizeof(transfers));
    assert_int_equal(mprotect(fixture->local + 4 * 4096, 4096, PROT_NONE), 0);
    open_endpoint(fixture, 0, 2);
    for (size_t i = 0; i < 6; i++)
        transfers[i] = (struct transfer){.opcode = i % 2,
                                         .local = fixture->local + (i == 2 || i == 3 ? 3 : 8 + i) * 4096,
                                         .remote = fixture->remote + i * 8192,
                                         .length = 8192};
    id = submit(fixture, transfers, 6);
    wait_for(fixture, id);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(transfers[i].outcome.result, i == 2 || i == 3 ? TE_RESULT_LOCAL_FAULT : TE_RESULT_SUCCEEDED);
}

static void *poll_and_wait(void *data)
{
    struct fixture *fixture = data;

    for (size_t i = 0; i < 300; i++) {
        size_t offset = (i * 7919) % (AREA_BYTES - 70000);
        struct transfer transfers[3];
        uint64_t id, bytes;

        memset(transfers, 0, sizeof(transfers));
        for (size_t j = 0; j < 3; j++)
            transfers[j] = (struct transfer){.opcode = TE_OPCODE_WRITE,
                                             .local = fixture->local + offset,
                                             .remote = fixture->remote + offset,
                                             .length = 1 + (i * 131 + j * 30011) % 69000};
        id = submit(fixture, transfers, 3);
        if (i % 2 == 0) {
            wait_for(fixture, id);
        } else {
            enum te_task_state task_state;

            for (size_t j = 0; j < 3; j++)
                do
                    assert_int_equal(te_task_status(fixture->engine.batches, id, j, &task_state, &bytes), TE_OK);
                while (task_state == TE_TASK_WAITING);
        }
        for (size_t j = 0; j < 3; j++)
            assert_int_equal(transfers[j].outcome.result, TE_RESULT_SUCCEEDED);
        assert_int_equal(te_batch_release(fixture->engine.batches, id), TE_OK);
    }
    return NULL;
}

static void test_many_threads_on_one_peer(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[4];

    open_endpoint(fixture, 0, 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, poll_and_wait, fixture), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_memory_equal(fixture->local, fixture->remote, 7919);
}

/* Nobody polls, nobody waits: the engine gets there by itself. */
static void test_progress_without_the_caller(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = AREA_BYTES};
    struct pollfd entry = {.events = POLLIN};
    uint64_t id, count;

    open_endpoint(fixture, 0, 2);
    entry.fd = te_batch_table_event_fd(fixture->engine.batches, 0);
    assert_true(entry.fd >= 0);
    id = submit(fixture, &transfer, 1);
    assert_int_equal(poll(&entry, 1, (int)(WATCHDOG_NS / TE_NS_PER_MS)), 1);
    assert_int_equal(read(entry.fd, &count, sizeof(count)), sizeof(count));
    assert_int_equal(transfer.outcome.result, TE_RESULT_SUCCEEDED);
    assert_int_equal(te_batch_release(fixture->engine.batches, id), TE_OK);
}

/* Against a scripted peer */

static void test_nobody_listens(void **state)
{
    struct fixture *fixture = *state;
    int descriptor;
    uint16_t port;

    assert_int_equal(te_listen_any_port(15000, 17000, 1, &descriptor, &port), TE_OK);
    close(descriptor);
    open_endpoint(fixture, port, 2);
    assert_int_equal(run_one(fixture, TE_OPCODE_WRITE, fixture->local, fixture->remote, 64), TE_RESULT_NOT_SENT);
}

static void test_peer_closes_instead_of_answering(void **state)
{
    struct fixture *fixture = *state;

    open_endpoint(fixture, fixture->listening_port, 2);
    for (enum te_opcode opcode = TE_OPCODE_READ; opcode <= TE_OPCODE_WRITE; opcode++) {
        struct transfer transfer = {.opcode = opcode, .local = fixture->local, .remote = fixture->remote, .length = 64};
        uint64_t id = submit(fixture, &transfer, 1);
        int peer = accept_peer(fixture);

        take_request(peer);
        if (opcode == TE_OPCODE_WRITE) {
            uint8_t body[64];

            assert_true(test_receive(peer, body, sizeof(body)));
        }
        close(peer);
        wait_for(fixture, id);
        /* A read can be tried again; whether the write was applied nobody knows. */
        assert_int_equal(transfer.outcome.result, opcode == TE_OPCODE_READ ? TE_RESULT_NOT_SENT : TE_RESULT_BROKEN);
    }
}

/* Nobody can tell whether it was stored: it must not be sent again, whatever the kernel knows of acknowledgements. */
static void test_a_write_is_not_repeated_after_a_reset(void **state)
{
    struct fixture *fixture = *state;
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    uint8_t body[64];

    open_endpoint(fixture, fixture->listening_port, 2);
    for (int round = 0; round < 5; round++) {
        struct transfer transfer = {
            .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = sizeof(body)};
        uint64_t id = submit(fixture, &transfer, 1);
        int peer = accept_peer(fixture);

        take_request(peer);
        assert_true(test_receive(peer, body, sizeof(body)));
        setsockopt(peer, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(peer);
        wait_for(fixture, id);
        assert_int_equal(transfer.outcome.result, TE_RESULT_BROKEN);
    }
}

static void test_peer_closes_within_the_data(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 4096};
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, &transfer, 1);
    peer = accept_peer(fixture);
    take_request(peer);
    send_status(peer, TE_TCP_STATUS_OK);
    send_bytes(peer, fixture->remote, 100);
    close(peer);
    wait_for(fixture, id);
    assert_int_equal(transfer.outcome.result, TE_RESULT_BROKEN);
}

static void test_answers_that_are_none(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = 8};
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, &transfer, 1);
    peer = accept_peer(fixture);
    take_request(peer);
    send_bytes(peer, "HTTP/1.1 400 Bad Request\r\n", 26);
    wait_for(fixture, id);
    assert_int_equal(transfer.outcome.result, TE_RESULT_BROKEN);
    read_to_end(peer);
    close(peer);
}

static void test_other_status_codes_are_refusals(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = 8};
    uint64_t id;
    int peer;

    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, &transfer, 1);
    peer = accept_peer(fixture);
    take_request(peer);
    send_status(peer, 2);
    wait_for(fixture, id);
    assert_int_equal(transfer.outcome.result, TE_RESULT_REJECTED);
    close(peer);
}

static void test_early_acknowledgement_waits_for_the_body(void **state)
{
    struct fixture *fixture = *state;
    struct transfer transfer = {
        .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = AREA_BYTES};
    uint64_t id, left = AREA_BYTES;
    uint8_t *body = malloc(AREA_BYTES);
    enum te_task_state task_state;
    uint64_t bytes;
    int small = 65536;
    int peer;

    setsockopt(fixture->listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, &transfer, 1);
    peer = accept_peer(fixture);
    take_request(peer);
    send_status(peer, TE_TCP_STATUS_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(te_task_status(fixture->engine.batches, id, 0, &task_state, &bytes), TE_OK);
        assert_int_equal(task_state, TE_TASK_WAITING);
    }
    assert_true(test_receive(peer, body, left));
    wait_for(fixture, id);
    assert_int_equal(transfer.outcome.result, TE_RESULT_SUCCEEDED);
    assert_memory_equal(body, fixture->local, AREA_BYTES);
    free(body);
    close(peer);
}

static unsigned vain_sleeps; /* that would end at once */

static bool claim_and_count(void *driver, struct pollfd *descriptor)
{
    bool claimed = te_tcp_transport_ops.drive.claim(driver, descriptor);

    if (claimed && poll(descriptor, 1, 0) > 0)
        vain_sleeps++;
    return claimed;
}

/* A peer answers two writes before it has taken the first one: the second answer stays in the socket. */
static void test_an_answer_that_comes_too_early_ends_no_sleep(void **state)
{
    enum { WAITS = 50, VAIN_SLEEPS_MAX = 10 };
    struct fixture *fixture = *state;
    static struct te_task_drive_ops counting;
    struct transfer transfers[2];
    uint8_t *body = malloc(AREA_BYTES);
    int small = 65536;
    uint64_t id;
    int peer;

    for (int i = 0; i < 2; i++)
        transfers[i] = (struct transfer){
            .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = AREA_BYTES};
    counting = te_tcp_transport_ops.drive;
    counting.claim = claim_and_count;
    te_batch_table_free(fixture->engine.batches);
    fixture->engine.batches = te_batch_table_new(&counting);
    fixture->engine.settings.tcp_lanes_per_peer = 1;
    fixture->engine.settings.tcp_silence_timeout_ms = 60000;
    setsockopt(fixture->listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    open_endpoint(fixture, fixture->listening_port, 2);
    id = submit(fixture, transfers, 2);
    peer = accept_peer(fixture);
    take_request(peer);
    send_status(peer, TE_TCP_STATUS_OK);
    send_status(peer, TE_TCP_STATUS_OK);
    vain_sleeps = 0;
    for (int i = 0; i < WAITS; i++)
        assert_int_equal(te_batch_wait(fixture->engine.batches, id, SIZE_MAX, 4 * TE_NS_PER_MS), TE_TIMED_OUT);
    assert_in_range(vain_sleeps, 0, VAIN_SLEEPS_MAX);
    for (int i = 0; i < 2; i++) {
        if (i > 0)
            take_request(peer);
        assert_true(test_receive(peer, body, AREA_BYTES));
        assert_memory_equal(body, fixture->local, AREA_BYTES);
    }
    wait_for(fixture, id);
    for (int i = 0; i < 2; i++)
        assert_int_equal(transfers[i].outcome.result, TE_RESULT_SUCCEEDED);
    stop_transport(fixture); /* before what it was given goes out of scope */
    te_batch_table_free(fixture->engine.batches);
    fixture->engine.batches = te_batch_table_new(&te_tcp_transport_ops.drive);
    free(body);
    close(peer);
}

static void test_connection_that_died_while_idle(void **state)
{
    struct fixture *fixture = *state;
    uint8_t answer[64] = {0};

    open_endpoint(fixture, fixture->listening_port, 2);
    for (int i = 0; i < 5; i++) {
        struct transfer transfer = {
            .opcode = TE_OPCODE_READ, .local = fixture->local, .remote = fixture->remote, .length = sizeof(answer)};
        uint64_t id = submit(fixture, &transfer, 1);
        int peer = accept_peer(fixture);

        take_request(peer);
        send_status(peer, TE_TCP_STATUS_OK);
        send_bytes(peer, answer, sizeof(answer));
        wait_for(fixture, id);
        assert_int_equal(transfer.outcome.result, TE_RESULT_SUCCEEDED);
        /* The peer sees that the initiator has noticed. */
        shutdown(peer, SHUT_WR);
        read_to_end(peer);
        close(peer);
    }
}

/* Priorities */

enum {
    PRIORITY_WINDOW = 256, /* requests that a lane has on the wire at most */
    HIGH_SHARE = 16,       /* shares of the requests while all priorities wait */
    MEDIUM_SHARE = 4,
    LOW_SHARE = 1,
    ALL_SHARES = HIGH_SHARE + MEDIUM_SHARE + LOW_SHARE,
    PRIORITY_AREA = 1 << 20, /* where the reads of each priority are, apart from the others */
};

/* Reads whose remote addresses tell priority and place in the order of submission. */
static uint64_t submit_reads(struct fixture *fixture, struct transfer *transfers, size_t count,
                             enum te_priority priority)
{
    for (size_t i = 0; i < count; i++)
        transfers[i] = (struct transfer){.opcode = TE_OPCODE_READ,
                                         .local = fixture->local + priority * PRIORITY_AREA + i,
                                         .remote = fixture->remote + priority * PRIORITY_AREA + i,
                                         .length = 1};
    return submit_with_priority(fixture, transfers, count, priority);
}

/* In one piece: of two, the kernel would keep the second one back for a while. */
static void answer_read(int peer)
{
    uint8_t answer[TE_TCP_STATUS_BYTES + 1] = {0};

    te_tcp_status_encode(answer, TE_TCP_STATUS_OK);
    send_bytes(peer, answer, sizeof(answer));
}

/* The place in the order of submission of the next request, whose priority is stored. */
static size_t take_prioritised(struct fixture *fixture, int peer, enum te_priority *priority)
{
    uint64_t offset = take_request(peer).address - (uintptr_t)fixture->remote;

    *priority = (enum te_priority)(offset / PRIORITY_AREA);
    assert_true(*priority < TE_TASK_PRIORITY_COUNT);
    return offset % PRIORITY_AREA;
}

/* What was taken in so many rounds. The medium ones get the share of the high ones when these are through. */
static void assert_shares(const size_t taken[TE_TASK_PRIORITY_COUNT], size_t rounds, size_t each)
{
    size_t high = rounds * HIGH_SHARE < each ? rounds * HIGH_SHARE : each;

    assert_int_equal(taken[TE_TASK_PRIORITY_HIGH], high);
    assert_int_equal(taken[TE_TASK_PRIORITY_MEDIUM], rounds * (ALL_SHARES - LOW_SHARE) - high);
    assert_int_equal(taken[TE_TASK_PRIORITY_LOW], rounds * LOW_SHARE);
}

/* More of each priority wait than there is room for on the wire, where each answer makes room for one. */
static void test_priorities_share_a_lane(void **state)
{
    enum { EACH = 8 * HIGH_SHARE, TOTAL = EACH * TE_TASK_PRIORITY_COUNT };
    struct fixture *fixture = *state;
    static struct transfer first[PRIORITY_WINDOW], waiting[TE_TASK_PRIORITY_COUNT][EACH];
    size_t taken[TE_TASK_PRIORITY_COUNT] = {0};
    uint64_t first_id, ids[TE_TASK_PRIORITY_COUNT];
    int peer;

    fixture->engine.settings.tcp_lanes_per_peer = 1;
    fixture->engine.settings.tcp_silence_timeout_ms = 60000;
    open_endpoint(fixture, fixture->listening_port, 2);
    first_id = submit_reads(fixture, first, PRIORITY_WINDOW, TE_TASK_PRIORITY_LOW);
    peer = accept_peer(fixture);
    for (int i = 0; i < PRIORITY_WINDOW; i++)
        take_request(peer);
    for (int i = TE_TASK_PRIORITY_COUNT - 1; i >= 0; i--)
        ids[i] = submit_reads(fixture, waiting[i], EACH, (enum te_priority)i);

    for (size_t i = 0; i < TOTAL; i++) {
        enum te_priority priority;
        size_t place;

        answer_read(peer);
        place = take_prioritised(fixture, peer, &priority);
        assert_int_equal(place, taken[priority]);
        taken[priority]++;
        if ((i + 1) % ALL_SHARES == 0 && taken[TE_TASK_PRIORITY_MEDIUM] < EACH)
            assert_shares(taken, (i + 1) / ALL_SHARES, EACH);
    }
    for (int i = 0; i < PRIORITY_WINDOW; i++)
        answer_read(peer);
    wait_for(fixture, first_id);
    for (int i = 0; i < TE_TASK_PRIORITY_COUNT; i++)
        wait_for(fixture, ids[i]);
    close(peer);
}

/* An idle connection */

/* Keeps the reactor busy until it is let go, so that nothing is noticed but by the thread that submits. */
struct hold {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, over;
};

static void hold_reactor(void *data)
{
    struct hold *hold = data;

    pthread_mutex_lock(&hold->lock);
    hold->held = true;
    pthread_cond_broadcast(&hold->changed);
    while (!hold->over)
        pthread_cond_wait(&hold->changed, &hold->lock);
    hold->held = false;
    pthread_cond_broadcast(&hold->changed);
    pthread_mutex_unlock(&hold->lock);
}

static void hold_wait(struct hold *hold, bool held)
{
    pthread_mutex_lock(&hold->lock);
    if (!held) {
        hold->over = true;
        pthread_cond_broadcast(&hold->changed);
    }
    while (hold->held != held)
        pthread_cond_wait(&hold->changed, &hold->lock);
    pthread_mutex_unlock(&hold->lock);
}

/* Whether the initiator has a connection to the scripted peer whose end has not arrived. */
static bool has_living_connection(const struct fixture *fixture)
{
    for (int descriptor = 0; descriptor < 1024; descriptor++) {
        struct sockaddr_in address;
        socklen_t length = sizeof(address);
        struct pollfd entry = {.fd = descriptor, .events = POLLRDHUP};

        if (getpeername(descriptor, (struct sockaddr *)&address, &length) == 0 &&
            ntohs(address.sin_port) == fixture->listening_port && poll(&entry, 1, 0) == 0)
            return true;
    }
    return false;
}

/* Ends the sending side and waits until that has arrived. */
static void end_and_wait(const struct fixture *fixture, int peer)
{
    int64_t end_ns = te_now_ns() + WATCHDOG_NS;

    shutdown(peer, SHUT_WR);
    while (has_living_connection(fixture))
        assert_true(te_now_ns() < end_ns);
}

/* The other end closes it in peace, and has sent nothing. */
static void assert_ended_unused(int peer)
{
    struct pollfd entry = {.fd = peer, .events = POLLIN};
    char byte;

    assert_int_equal(poll(&entry, 1, (int)(WATCHDOG_NS / TE_NS_PER_MS)), 1);
    assert_int_equal(recv(peer, &byte, 1, 0), 0);
    close(peer);
}

static void serve_write(int peer)
{
    uint8_t body[64];
    size_t size = (size_t)take_request(peer).length;

    assert_true(size <= sizeof(body));
    assert_int_equal(recv(peer, body, size, MSG_WAITALL), size);
    send_status(peer, TE_TCP_STATUS_OK);
}

/* A write that was sent over a connection that the peer has ended would be lost for good. */
static void test_an_idle_connection_is_looked_at_before_a_write(void **state)
{
    enum { ROUNDS = 200 };
    struct fixture *fixture = *state;
    int old = -1;

    open_endpoint(fixture, fixture->listening_port, 2);
    for (int round = 0; round < ROUNDS; round++) {
        struct hold hold = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
        struct transfer transfer = {
            .opcode = TE_OPCODE_WRITE, .local = fixture->local, .remote = fixture->remote, .length = 64};
        uint64_t id;
        int peer;

        if (round % 2 == 0) {
            te_reactor_run(fixture->reactor, hold_reactor, &hold);
            hold_wait(&hold, true);
        }
        if (old >= 0)
            end_and_wait(fixture, old);
        id = submit(fixture, &transfer, 1);
        if (round % 2 == 0)
            hold_wait(&hold, false);
        peer = accept_peer(fixture);
        serve_write(peer);
        wait_for(fixture, id);
        assert_int_equal(transfer.outcome.result, TE_RESULT_SUCCEEDED);
        assert_int_equal(te_batch_release(fixture->engine.batches, id), TE_OK);
        if (old >= 0)
            assert_ended_unused(old);
        old = peer;
    }
    close(old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(test_sizes_directions_versions),
        LANE_TEST(test_large_batch_of_both_kinds),
        LANE_TEST(test_a_bad_request_fails_alone),
        LANE_TEST(test_a_local_address_that_is_not_there_fails_alone),
        LANE_TEST(test_many_threads_on_one_peer),
        LANE_TEST(test_progress_without_the_caller),
        LANE_TEST(test_nobody_listens),
        LANE_TEST(test_peer_closes_instead_of_answering),
        LANE_TEST(test_a_write_is_not_repeated_after_a_reset),
        LANE_TEST(test_peer_closes_within_the_data),
        LANE_TEST(test_answers_that_are_none),
        LANE_TEST(test_other_status_codes_are_refusals),
        LANE_TEST(test_early_acknowledgement_waits_for_the_body),
        LANE_TEST(test_an_answer_that_comes_too_early_ends_no_sleep),
        LANE_TEST(test_connection_that_died_while_idle),
        LANE_TEST(test_priorities_share_a_lane),
        LANE_TEST(test_an_idle_connection_is_looked_at_before_a_write),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
