/* Many dead peers at once: what waits for them ends in bounded time, and nobody else waits. */
#include <pthread.h>

#include "black_hole.h"
#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB, PEERS = 300, SECOND = 1000000000 };

/* Peers that were opened while they lived. Their data ports never answered. */
struct dead {
    segment_id_t segments[PEERS];
    uint64_t address;
};

static void dead_new(struct dead *dead, transfer_engine_t engine)
{
    char name[NAME_SIZE];
    struct raw_peer *peer = raw_peer_start_at("0.0.0.0");
    struct raw_peer shown = *peer;
    shown.data_port = black_hole_open("0.0.0.0", 0);
    char *descriptor = raw_descriptor(&shown, peer->name, NULL, 2);
    raw_peer_publish(peer, descriptor);
    free(descriptor);
    for (int index = 0; index < PEERS; index++) {
        snprintf(name, sizeof(name), "127.1.%d.%d:%d", index / 200, index % 200 + 1, peer->control_port);
        dead->segments[index] = engine_open(engine, name);
    }
    dead->address = (uintptr_t)peer->memory;
    raw_peer_stop(peer);
    black_hole_open("0.0.0.0", shown.control_port);
}

static void *sync_all(void *engine)
{
    syncSegmentCache(engine);
    return NULL;
}

/* Two connects and a reply, each of which may take a second, or three under a sanitizer; and that twice over. */
static void assert_in_bounds(int64_t since_ns)
{
    assert_true(now_ns() - since_ns < INT64_C(6) * SECOND * slowness());
}

static void submit_with_notification(transfer_engine_t engine, batch_id_t batch, struct transfer_request request,
                                     char *text)
{
    notify_msg_t message = {.name = "n", .msg = text};
    assert_int_equal(submitTransferWithNotify(engine, batch, &request, 1, message), 0);
}

static bool has_got(struct target *target, const char *text)
{
    char *notifications = target_notifications(target);
    bool got = strstr(notifications, text) != NULL;
    free(notifications);
    return got;
}

/* Everything that calls a peer, to a live one. */
static void assert_serves(struct pair *pair, char *text)
{
    struct target *another = target_start();
    assert_true(openSegment(pair->engine, another->name) > 0);
    assert_int_equal(removeLocalSegment(pair->engine, pair->target->name), 0); /* must be asked for now */
    pattern_fill(pair->remote.here, pair->size, 1);
    memset(pair->local, 0, pair->size);
    assert_int_equal(pair_transfer(pair, READ, pair->size), COMPLETED);
    assert_pattern(pair->local, pair->size, 1);
    batch_id_t batch = batch_new(pair->engine, 1);
    submit_with_notification(pair->engine, batch,
                             request_of(WRITE, pair->local, pair->segment, pair->remote.there, KIB), text);
    assert_int_equal(finish(pair->engine, batch, 0), COMPLETED);
    assert_int_equal(freeBatchID(pair->engine, batch), 0);
    AWAIT(has_got(pair->target, text));
    target_kill(another);
}

static void contract_many_dead_peers_end_their_tasks_and_hold_up_nobody(void **state)
{
    (void)state;
    static struct dead dead;
    watchdog(60);
    short_timeouts();
    struct pair pair = pair_new(SIZE);
    uint8_t *local = memory_new(PEERS);
    dead_new(&dead, pair.engine);
    /* At first nobody knows that they are dead. */
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        batch_id_t announcing = batch_new(pair.engine, PEERS);
        batch_id_t reading = batch_new(pair.engine, PEERS);
        struct transfer_request requests[PEERS];
        int64_t start = now_ns();
        assert_int_equal(pthread_create(&thread, NULL, sync_all, pair.engine), 0);
        for (int index = 0; index < PEERS; index++) {
            requests[index] = request_of(READ, local + index, dead.segments[index], dead.address, 0);
            submit_with_notification(pair.engine, announcing, requests[index], "never arrives");
            requests[index].length = 1;
        }
        assert_int_equal(submitTransfer(pair.engine, reading, requests, PEERS), 0);
        assert_serves(&pair, round == 0 ? "first" : "second");
        assert_in_bounds(start);
        for (size_t index = 0; index < PEERS; index++)
            assert_int_equal(finish(pair.engine, reading, index), FAILED);
        assert_in_bounds(start);
        assert_int_equal(freeBatchID(pair.engine, reading), 0);
        assert_int_equal(freeBatchID(pair.engine, announcing), 0);
        pthread_join(thread, NULL);
        assert_in_bounds(start);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(contract_many_dead_peers_end_their_tasks_and_hold_up_nobody),
    };
    return RUN_TESTS(tests, argc, argv);
}
