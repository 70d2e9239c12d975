/* What the classic runtime does when what it knows of a peer is out of date, and how slices wait for something newer.
 */
#include "tests/unit/wire_vector.h"

#include <poll.h>

#include "classic/internal.h"
#include "core/clock.h"
#include "core/local_segment.h"
#include "core/worker.h"
#include "tests/unit/fake_control_port.h"

#define PATIENCE_NS (TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND)

enum { MEMORY_BYTES = 1024 * 1024 };
static char memory[MEMORY_BYTES], source[MEMORY_BYTES];

static struct te_classic *create(void)
{
    struct te_classic *classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 1);

    assert_non_null(classic);
    return classic;
}

static struct te_classic *create_target(void)
{
    struct te_classic *target = create();

    assert_int_equal(te_classic_register_local_memory(target, memory, sizeof(memory), "*", 1), 0);
    return target;
}

/* An initiator, a target, and between them a control port that says where the target's data port is. */
struct stage {
    struct fake_control_port fake;
    struct te_classic *target, *classic;
    int32_t segment;
    batch_id_t batch;
};

static void stage_start(struct stage *stage)
{
    memset(memory, 0, sizeof(memory));
    memset(source, 0x5a, sizeof(source));
    stage->target = create_target();
    stage->classic = create();
    fake_start(&stage->fake);
    fake_lead_to(&stage->fake, stage->target);
    stage->segment = te_classic_open_segment(stage->classic, stage->fake.name);
    assert_int_equal(stage->segment, 1);
    stage->batch = te_classic_allocate_batch_id(stage->classic, 4096);
}

static void stage_stop(struct stage *stage)
{
    if (stage->classic != NULL)
        te_classic_destroy(stage->classic);
    if (stage->target != NULL)
        te_classic_destroy(stage->target);
    fake_stop(&stage->fake);
}

/* The target goes and another one comes, with another data port. */
static void stage_restart_target(struct stage *stage)
{
    struct te_classic *old = stage->target;

    stage->target = NULL;
    te_classic_destroy(old);
    stage->target = create_target();
    fake_lead_to(&stage->fake, stage->target);
}

static void submit_many(struct stage *stage, int opcode, size_t count, uint64_t remote, uint64_t length,
                        const te_submit_options_t *options)
{
    struct transfer_request *requests = g_new0(struct transfer_request, count);

    for (size_t i = 0; i < count; i++)
        requests[i] = (struct transfer_request){
            .opcode = opcode,
            .source = source + (i * length) % sizeof(source),
            .target_id = stage->segment,
            .target_offset = remote + (i * length) % sizeof(memory),
            .length = length,
        };
    assert_int_equal(te_classic_submit(stage->classic, stage->batch, requests, count, options), 0);
    g_free(requests);
}

static te_batch_status_t wait_for_all(struct stage *stage)
{
    te_batch_status_t status = {.struct_size = sizeof(status)};

    assert_int_equal(te_classic_wait_batch(stage->classic, stage->batch, PATIENCE_NS), 0);
    assert_int_equal(te_classic_batch_status(stage->classic, stage->batch, &status), 0);
    return status;
}

static uint64_t remote_memory(void)
{
    return (uintptr_t)memory;
}

static void a_restarted_peer_is_found_again(void **state)
{
    struct stage stage;

    (void)state;
    stage_start(&stage);
    submit_many(&stage, OPCODE_WRITE, 16, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 16);
    for (unsigned round = 1; round <= 5; round++) {
        stage_restart_target(&stage);
        memset(memory, 0, sizeof(memory));
        submit_many(&stage, round % 2 ? OPCODE_WRITE : OPCODE_READ, 256, remote_memory(), 4096, NULL);
        assert_int_equal(wait_for_all(&stage).completed, 16 + 256 * round);
        if (round % 2)
            assert_memory_equal(memory, source, sizeof(memory));
        assert_int_equal(fake_fetches(&stage.fake), 1 + round);
    }
    stage_stop(&stage);
}

static void a_peer_that_is_gone_fails_its_tasks(void **state)
{
    struct stage stage;

    (void)state;
    stage_start(&stage);
    fake_lead_to(&stage.fake, NULL);
    te_classic_destroy(stage.target);
    stage.target = NULL;
    submit_many(&stage, OPCODE_WRITE, 1000, remote_memory(), 64, NULL);
    assert_int_equal(wait_for_all(&stage).failed, 1000);
    assert_true(fake_fetches(&stage.fake) < 20);
    stage_stop(&stage);
}

static void refused_ranges_fail_after_one_look_at_the_peer(void **state)
{
    static char unregistered[4096];
    struct stage stage;
    te_batch_status_t status;

    (void)state;
    stage_start(&stage);
    submit_many(&stage, OPCODE_WRITE, 1, (uintptr_t)unregistered, 64, NULL);
    assert_int_equal(wait_for_all(&stage).failed, 1);
    assert_int_equal(fake_fetches(&stage.fake), 2);
    /* A whole batch of them does not ask for each, and harms no other request. */
    fake_hold(&stage.fake, true);
    submit_many(&stage, OPCODE_READ, 200, (uintptr_t)unregistered, 1, NULL);
    submit_many(&stage, OPCODE_WRITE, 256, remote_memory(), 4096, NULL);
    fake_await_fetches(&stage.fake, 3);
    fake_hold(&stage.fake, false);
    status = wait_for_all(&stage);
    assert_int_equal(status.failed, 201);
    assert_int_equal(status.completed, 256);
    assert_memory_equal(memory, source, sizeof(memory));
    assert_true(fake_fetches(&stage.fake) <= 5);
    stage_stop(&stage);
}

static void waiting_slices_keep_their_deadline(void **state)
{
    te_submit_options_t options = {.struct_size = sizeof(options), .priority = TE_PRIORITY_DEFAULT};
    struct stage stage;

    (void)state;
    stage_start(&stage);
    stage_restart_target(&stage);
    fake_hold(&stage.fake, true);
    options.deadline_ns = 600 * (uint64_t)TE_NS_PER_MS;
    submit_many(&stage, OPCODE_WRITE, 8, remote_memory(), 4096, &options);
    options.deadline_ns = 1200 * (uint64_t)TE_NS_PER_MS;
    submit_many(&stage, OPCODE_WRITE, 8, remote_memory(), 4096, &options);
    fake_await_fetches(&stage.fake, 2);
    /* The answer is still held back. */
    assert_int_equal(wait_for_all(&stage).failed, 16);
    submit_many(&stage, OPCODE_WRITE, 1, remote_memory() + 8192, 4096, NULL);
    fake_hold(&stage.fake, false);
    assert_int_equal(wait_for_all(&stage).completed, 1);
    for (size_t i = 0; i < 4096; i++)
        assert_int_equal(memory[i], 0);
    assert_int_equal(memory[8192], 0x5a);
    stage_stop(&stage);
}

/* A port that takes connections and never answers. */
static int listen_silently(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1024), 0);
    return listener;
}

static void await_connection(int listener)
{
    struct pollfd entry = {.fd = listener, .events = POLLIN};

    assert_int_equal(poll(&entry, 1, TEST_PATIENCE_SECONDS * 1000), 1);
}

/* Ends those that have come; how many. */
static unsigned end_connections(int listener)
{
    int descriptors[64];
    unsigned count = 0;

    while (count < G_N_ELEMENTS(descriptors) && (descriptors[count] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        count++;
    for (unsigned i = 0; i < count; i++)
        close(descriptors[i]);
    return count;
}

enum { THREADS = 8 };

/* The calls of an engine to its peers get few threads, of which one can be held up. */
struct crowd {
    struct te_worker_pool *former;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool go_on;
};

static void crowd_start(struct crowd *crowd, struct stage *stage, unsigned threads)
{
    *crowd = (struct crowd){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    crowd->former = stage->classic->engine->workers;
    assert_int_equal(te_worker_pool_new(threads, &stage->classic->engine->workers), TE_OK);
}

static void hold_up(void *data)
{
    struct crowd *crowd = data;

    pthread_mutex_lock(&crowd->lock);
    while (!crowd->go_on)
        pthread_cond_wait(&crowd->changed, &crowd->lock);
    pthread_mutex_unlock(&crowd->lock);
}

static void crowd_go_on(struct crowd *crowd)
{
    pthread_mutex_lock(&crowd->lock);
    crowd->go_on = true;
    pthread_cond_broadcast(&crowd->changed);
    pthread_mutex_unlock(&crowd->lock);
}

/* All threads are held up, so that nobody can ask the peer. */
static void waiting_slices_end_even_if_no_call_is_made(void **state)
{
    struct crowd crowd;
    struct stage stage;

    (void)state;
    g_setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", "1", TRUE);
    g_setenv("TE_HANDSHAKE_REPLY_TIMEOUT_MS", "100", TRUE);
    stage_start(&stage);
    g_unsetenv("MC_HANDSHAKE_CONNECT_TIMEOUT");
    g_unsetenv("TE_HANDSHAKE_REPLY_TIMEOUT_MS");
    crowd_start(&crowd, &stage, 1);
    te_worker_run(stage.classic->engine->workers, TE_WORK_PROMPT, hold_up, &crowd);
    stage_restart_target(&stage);
    submit_many(&stage, OPCODE_WRITE, 8, remote_memory(), 4096, NULL); /* is refused, and then waits */
    assert_int_equal(te_classic_remove_local_segment(stage.classic, stage.fake.name), 0);
    submit_many(&stage, OPCODE_WRITE, 8, remote_memory(), 4096, NULL); /* waits from the first */
    assert_int_equal(wait_for_all(&stage).failed, 16);
    assert_int_equal(fake_fetches(&stage.fake), 1);
    crowd_go_on(&crowd);
    submit_many(&stage, OPCODE_READ, 1, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 1);
    for (size_t i = 0; i < sizeof(memory); i++)
        assert_int_equal(memory[i], 0);
    te_worker_pool_free(crowd.former);
    stage_stop(&stage);
}

static void *sync_all(void *data)
{
    te_classic_sync_segment_cache(data);
    return NULL;
}

/* More peers than there are threads, which fall silent. Peers that lived when they were last heard of are asked for by
 * a refresh, and those that had refused by transfers; neither may keep the threads from a peer that lives. */
static void meet_silent_peers(bool refused, unsigned connections_max)
{
    enum { PEERS = 20 };
    struct te_classic *victim = create_target();
    uint16_t port = (uint16_t)te_classic_port(victim);
    struct transfer_request requests[PEERS];
    char names[PEERS][32];
    struct crowd crowd;
    struct stage stage;
    pthread_t thread;
    batch_id_t batch;
    int silent;

    stage_start(&stage);
    for (int i = 0; i < PEERS; i++) {
        g_snprintf(names[i], sizeof(names[i]), "127.1.0.%d:%u", i + 1, port);
        requests[i] = (struct transfer_request){
            .opcode = OPCODE_READ,
            .source = source + i,
            .target_id = te_classic_open_segment(stage.classic, names[i]),
            .target_offset = remote_memory(),
            .length = 1,
        };
        assert_true(requests[i].target_id > 0);
    }
    te_classic_destroy(victim);
    if (refused)
        assert_int_equal(te_classic_sync_segment_cache(stage.classic), 0);
    silent = listen_silently(port);
    crowd_start(&crowd, &stage, THREADS);
    if (refused) {
        for (int i = 0; i < PEERS; i++)
            te_classic_remove_local_segment(stage.classic, names[i]);
        batch = te_classic_allocate_batch_id(stage.classic, PEERS);
        assert_int_equal(te_classic_submit(stage.classic, batch, requests, PEERS, NULL), 0);
    } else {
        assert_int_equal(pthread_create(&thread, NULL, sync_all, stage.classic), 0);
    }
    await_connection(silent);
    stage_restart_target(&stage);
    submit_many(&stage, OPCODE_READ, 16, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 16);
    /* None of the silent ones has been given up meanwhile, for then the next would have been called. */
    assert_true(end_connections(silent) <= connections_max);
    close(silent);
    if (!refused)
        pthread_join(thread, NULL);
    te_worker_pool_free(crowd.former);
    stage_stop(&stage);
}

static void silent_peers_that_are_known_to_be_dead_hold_up_nobody(void **state)
{
    (void)state;
    meet_silent_peers(true, THREADS >> TE_WORK_PROMPT_DOUBTFUL);
}

static void silent_peers_hold_up_a_refresh_alone(void **state)
{
    (void)state;
    meet_silent_peers(false, THREADS >> TE_WORK_BACKGROUND);
}

static void waiting_slices_can_be_canceled(void **state)
{
    struct stage stage;
    te_batch_status_t status;

    (void)state;
    stage_start(&stage);
    stage_restart_target(&stage);
    fake_hold(&stage.fake, true);
    submit_many(&stage, OPCODE_WRITE, 32, remote_memory(), 4096, NULL);
    fake_await_fetches(&stage.fake, 2);
    assert_int_equal(te_classic_cancel_task(stage.classic, stage.batch, 3), 0);
    assert_int_equal(te_classic_wait_task(stage.classic, stage.batch, 3, PATIENCE_NS, NULL), 0);
    assert_int_equal(te_classic_cancel_batch(stage.classic, stage.batch), 0);
    status = wait_for_all(&stage);
    assert_int_equal(status.canceled, 32);
    assert_int_equal(status.status, STATUS_CANCELED);
    fake_hold(&stage.fake, false);
    submit_many(&stage, OPCODE_READ, 1, remote_memory(), 4096, NULL);
    status = wait_for_all(&stage);
    assert_int_equal(status.completed, 1);
    for (size_t i = 0; i < sizeof(memory); i++)
        assert_int_equal(memory[i], 0);
    stage_stop(&stage);
}

static void an_engine_with_waiting_slices_can_be_destroyed(void **state)
{
    struct stage stage;

    (void)state;
    stage_start(&stage);
    stage_restart_target(&stage);
    fake_hold(&stage.fake, true);
    submit_many(&stage, OPCODE_WRITE, 32, remote_memory(), 4096, NULL);
    fake_await_fetches(&stage.fake, 2);
    te_classic_destroy(stage.classic);
    stage.classic = NULL;
    fake_hold(&stage.fake, false);
    for (size_t i = 0; i < sizeof(memory); i++)
        assert_int_equal(memory[i], 0);
    stage_stop(&stage);
}

struct opener {
    struct te_classic *classic;
    const char *name;
    int32_t id;
};

static void *open_segment(void *data)
{
    struct opener *opener = data;

    opener->id = te_classic_open_segment(opener->classic, opener->name);
    return NULL;
}

static void opens_of_one_name_share_a_fetch(void **state)
{
    enum { OPENERS = 8 };
    struct opener openers[OPENERS];
    pthread_t threads[OPENERS];
    struct fake_control_port fake;
    struct te_classic *target = create_target(), *classic = create();

    (void)state;
    fake_start(&fake);
    fake_lead_to(&fake, target);
    fake_hold(&fake, true);
    for (int i = 0; i < OPENERS; i++) {
        openers[i] = (struct opener){classic, fake.name, -1};
        assert_int_equal(pthread_create(&threads[i], NULL, open_segment, &openers[i]), 0);
    }
    fake_await_fetches(&fake, 1);
    fake_hold(&fake, false);
    for (int i = 0; i < OPENERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(openers[i].id, 1);
    }
    assert_int_equal(fake_fetches(&fake), 1);
    te_classic_destroy(classic);
    te_classic_destroy(target);
    fake_stop(&fake);
}

static void refreshing_finds_a_new_data_port_before_it_is_needed(void **state)
{
    struct stage stage;

    (void)state;
    stage_start(&stage);
    stage_restart_target(&stage);
    assert_int_equal(te_classic_sync_segment_cache(stage.classic), 0);
    assert_int_equal(fake_fetches(&stage.fake), 2);
    submit_many(&stage, OPCODE_WRITE, 16, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 16);
    assert_int_equal(fake_fetches(&stage.fake), 2);

    stage_restart_target(&stage);
    assert_int_equal(te_classic_open_segment_no_cache(stage.classic, stage.fake.name), stage.segment);
    submit_many(&stage, OPCODE_WRITE, 16, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 32);
    assert_int_equal(fake_fetches(&stage.fake), 3);

    stage_restart_target(&stage);
    assert_int_equal(te_classic_remove_local_segment(stage.classic, stage.fake.name), 0);
    submit_many(&stage, OPCODE_WRITE, 16, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 48);
    assert_int_equal(fake_fetches(&stage.fake), 4);

    /* A peer that does not answer is reported by none of them, and what is known stays in use. */
    fake_lead_to(&stage.fake, NULL);
    assert_int_equal(te_classic_sync_segment_cache(stage.classic), 0);
    assert_int_equal(te_classic_open_segment_no_cache(stage.classic, stage.fake.name), stage.segment);
    assert_int_equal(te_classic_open_segment_no_cache(stage.classic, ""), -1);
    submit_many(&stage, OPCODE_WRITE, 16, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 64);
    stage_stop(&stage);
}

static void without_the_cache_every_submit_asks_first(void **state)
{
    struct stage stage;

    (void)state;
    g_setenv("MC_DISABLE_METACACHE", "", TRUE);
    stage_start(&stage);
    g_unsetenv("MC_DISABLE_METACACHE");
    for (unsigned i = 1; i <= 3; i++) {
        submit_many(&stage, OPCODE_WRITE, 16, remote_memory(), 4096, NULL);
        assert_int_equal(wait_for_all(&stage).completed, 16 * i);
        assert_int_equal(fake_fetches(&stage.fake), 1 + i);
    }
    fake_lead_to(&stage.fake, NULL); /* what was known last is used then */
    submit_many(&stage, OPCODE_WRITE, 16, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 64);
    stage_stop(&stage);
}

static void the_background_refresh_asks_by_itself(void **state)
{
    struct stage stage;

    (void)state;
    g_setenv("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS", "1", TRUE);
    stage_start(&stage);
    g_unsetenv("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS");
    fake_await_fetches(&stage.fake, 3);
    stage_stop(&stage);
}

/* A closed segment stays usable; when many are closed, what is known of the first ones is dropped and fetched again. */
static void closed_segments_stay_usable(void **state)
{
    enum { SEGMENTS = 1100 };
    struct stage stage;

    (void)state;
    stage_start(&stage);
    assert_int_equal(te_classic_open_segment(stage.classic, stage.fake.name), stage.segment);
    assert_int_equal(te_classic_close_segment(stage.classic, stage.segment), 0);
    assert_int_equal(te_classic_close_segment(stage.classic, stage.segment), 0);
    assert_int_equal(te_classic_close_segment(stage.classic, stage.segment), 0);
    assert_int_equal(te_classic_close_segment(stage.classic, 12345), 0);
    assert_int_equal(te_classic_close_segment(stage.classic, -1), 0);
    assert_int_equal(te_classic_close_segment(stage.classic, 0), 0);
    submit_many(&stage, OPCODE_WRITE, 1, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 1);
    assert_int_equal(fake_fetches(&stage.fake), 1);
    for (int i = 0; i < SEGMENTS; i++) {
        char name[32];
        int32_t id;

        g_snprintf(name, sizeof(name), "127.1.%d.%d:%d", i / 200, i % 200 + 1, te_classic_port(stage.target));
        id = te_classic_open_segment(stage.classic, name);
        assert_int_equal(id, 2 + i);
        assert_int_equal(te_classic_close_segment(stage.classic, id), 0);
    }
    submit_many(&stage, OPCODE_WRITE, 1, remote_memory(), 4096, NULL);
    assert_int_equal(wait_for_all(&stage).completed, 2);
    assert_int_equal(fake_fetches(&stage.fake), 2);
    assert_int_equal(te_classic_open_segment(stage.classic, stage.fake.name), stage.segment);
    assert_int_equal(fake_fetches(&stage.fake), 2);
    stage_stop(&stage);
}

static void a_notification_follows_its_data(void **state)
{
    struct stage stage;
    struct transfer_request requests[2];
    static char unregistered[64];
    notify_msg_t message = {"name", "first"};

    (void)state;
    stage_start(&stage);
    for (int i = 0; i < 2; i++)
        requests[i] = (struct transfer_request){
            .opcode = OPCODE_WRITE, .source = source, .target_id = stage.segment, .length = 64};
    requests[0].target_offset = remote_memory();
    requests[1].target_offset = (uintptr_t)unregistered;
    /* One of two fails: none is sent. */
    assert_int_equal(te_classic_submit_transfer_with_notify(stage.classic, stage.batch, requests, 2, message), 0);
    assert_int_equal(wait_for_all(&stage).failed, 1);
    message.msg = "second";
    assert_int_equal(te_classic_submit_transfer_with_notify(stage.classic, stage.batch, requests, 1, message), 0);
    /* A request of no bytes completes at once, also at an address that is not registered. */
    message.msg = "third";
    requests[1].length = 0;
    assert_int_equal(te_classic_submit_transfer_with_notify(stage.classic, stage.batch, &requests[1], 1, message), 0);
    fake_await_notifications(&stage.fake, 2);
    assert_int_equal(wait_for_all(&stage).completed, 3);
    for (int i = 0; i < 100; i++) {
        char text[16];

        g_snprintf(text, sizeof(text), "%d", i);
        message.msg = text;
        assert_int_equal(te_classic_submit_transfer_with_notify(stage.classic, stage.batch, &requests[1], 1, message),
                         0);
    }
    fake_await_notifications(&stage.fake, 102);
    te_classic_destroy(stage.classic);
    stage.classic = NULL;
    assert_int_equal(stage.fake.notifications->len, 102);
    for (guint i = 2; i < 102; i++) /* those without data of their own come in order */
        assert_int_equal(g_ascii_strtoull(g_ptr_array_index(stage.fake.notifications, i), NULL, 10), i - 2);
    stage_stop(&stage);
}

static void notifications_are_sent_before_the_engine_goes(void **state)
{
    struct stage stage;
    struct transfer_request request;
    notify_msg_t message = {"name", "text"};

    (void)state;
    stage_start(&stage);
    request = (struct transfer_request){.opcode = OPCODE_WRITE, .source = source, .target_id = stage.segment};
    for (int i = 0; i < 50; i++)
        assert_int_equal(te_classic_submit_transfer_with_notify(stage.classic, stage.batch, &request, 1, message), 0);
    te_classic_destroy(stage.classic);
    stage.classic = NULL;
    assert_int_equal(stage.fake.notifications->len, 50);
    stage_stop(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restarted_peer_is_found_again),
        cmocka_unit_test(a_peer_that_is_gone_fails_its_tasks),
        cmocka_unit_test(refused_ranges_fail_after_one_look_at_the_peer),
        cmocka_unit_test(waiting_slices_keep_their_deadline),
        cmocka_unit_test(waiting_slices_end_even_if_no_call_is_made),
        cmocka_unit_test(silent_peers_that_are_known_to_be_dead_hold_up_nobody),
        cmocka_unit_test(silent_peers_hold_up_a_refresh_alone),
        cmocka_unit_test(waiting_slices_can_be_canceled),
        cmocka_unit_test(an_engine_with_waiting_slices_can_be_destroyed),
        cmocka_unit_test(opens_of_one_name_share_a_fetch),
        cmocka_unit_test(refreshing_finds_a_new_data_port_before_it_is_needed),
        cmocka_unit_test(without_the_cache_every_submit_asks_first),
        cmocka_unit_test(the_background_refresh_asks_by_itself),
        cmocka_unit_test(closed_segments_stay_usable),
        cmocka_unit_test(a_notification_follows_its_data),
        cmocka_unit_test(notifications_are_sent_before_the_engine_goes),
    };

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
