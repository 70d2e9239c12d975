/* Many threads at once: submitters, transports, pollers, waiters, releasers and strangers. Meant for TSan as well. */
#include "task_helpers.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "core/batch_table.h"

/* Every slot is either unused or lingers, and nothing holds it. */
static void assert_table_is_quiet(struct te_batch_table *table)
{
    size_t unused = 0;

    for (struct te_batch *batch = table->unused; batch != NULL; batch = batch->next) {
        assert_int_equal(atomic_load(&batch->life), 0);
        assert_int_equal(atomic_load(&batch->event_fd), -1);
        assert_int_equal(atomic_load(&batch->wake_at), TE_WAKE_NEVER);
        assert_null(batch->waiters);
        unused++;
    }
    for (struct te_batch *batch = table->lingering.first; batch != NULL; batch = batch->next)
        assert_int_equal(atomic_load(&batch->life), TE_LIFE_ASKED);
    assert_int_equal(unused + table->lingering_count, table->slot_count);
}

/* ---- a transport: threads that take slices from a queue and end them ---- */

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct te_slice *slices; /* linked by next */
    bool closed;
};

static void queue_put(struct queue *queue, struct te_slice *slice)
{
    pthread_mutex_lock(&queue->lock);
    slice->next = queue->slices;
    queue->slices = slice;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->lock);
}

static struct te_slice *queue_take(struct queue *queue, int limit)
{
    struct te_slice *taken = NULL;

    pthread_mutex_lock(&queue->lock);
    while (queue->slices == NULL && !queue->closed)
        pthread_cond_wait(&queue->filled, &queue->lock);
    while (queue->slices != NULL && limit-- > 0) {
        struct te_slice *slice = queue->slices;

        queue->slices = slice->next;
        slice->next = taken;
        taken = slice;
    }
    pthread_mutex_unlock(&queue->lock);
    return taken;
}

static void *transport_run(void *data)
{
    struct queue *queue = data;
    struct te_slice *slices;
    unsigned seed = (unsigned)(uintptr_t)&slices;

    while ((slices = queue_take(queue, 1 + rand_r(&seed) % 8)) != NULL) {
        bool gathers = rand_r(&seed) % 2 == 0;

        if (gathers)
            te_task_signal_begin();
        while (slices != NULL) {
            struct te_slice *slice = slices;
            enum te_slice_outcome outcome = (enum te_slice_outcome)slice->attempts;

            slices = slice->next;
            if (rand_r(&seed) % 4 == 0)
                sched_yield();
            te_slice_end(slice, outcome, slice->length);
        }
        if (gathers)
            te_task_signal_end();
    }
    return NULL;
}

/* ---- users ---- */

enum { TRANSPORTS = 3, USERS = 4, STRANGERS = 2, LARGEST_BATCH = 40, RECENT = 64 };

struct storm {
    struct te_batch_table *table;
    struct queue queue;
    int rounds;
    _Atomic bool over;
    _Atomic uint64_t recent[RECENT];
    _Atomic unsigned next_recent, next_seed;
};

struct user {
    struct storm *storm;
    unsigned seed;
    uint64_t id;
    size_t tasks;
    bool canceled, released;
    enum te_slice_outcome worst[LARGEST_BATCH];
    uint64_t bytes[LARGEST_BATCH]; /* of the slices that succeed */
    _Atomic int submissions, submissions_done;
};

static int roll(struct user *user, int sides)
{
    return rand_r(&user->seed) % sides;
}

static void submission_done(void *data, bool succeeded)
{
    (void)succeeded;
    atomic_fetch_add(&((struct user *)data)->submissions_done, 1);
}

static enum te_slice_outcome any_outcome(struct user *user)
{
    return roll(user, 3) > 0 ? TE_SLICE_SUCCEEDED : (enum te_slice_outcome)roll(user, 4);
}

static void fill_in(struct user *user, struct te_task *task, size_t index)
{
    uint32_t slices = (uint32_t)roll(user, 4);

    user->worst[index] = TE_SLICE_SUCCEEDED;
    user->bytes[index] = 0;
    if (slices == 0)
        return;
    if (slices > 1)
        split(task, slices);
    for (uint32_t i = 0; i < slices; i++) {
        struct te_slice *slice = &task->slices[i];

        slice->length = 1 + (uint64_t)roll(user, 1000);
        slice->attempts = any_outcome(user);
        task->length += slice->length;
        if (slice->attempts == TE_SLICE_SUCCEEDED)
            user->bytes[index] += slice->length;
        if (slice->attempts > user->worst[index])
            user->worst[index] = (enum te_slice_outcome)slice->attempts;
    }
}

/* Never touches a task after its last slice is in the queue. */
static void post(struct queue *queue, struct te_task *task)
{
    struct te_slice *slices = task->slices;

    for (uint32_t i = 0, count = task->length > 0 ? task->slice_count : 0; i < count; i++)
        queue_put(queue, &slices[i]);
}

static void submit_some(struct user *user, size_t count)
{
    struct te_reservation reservation;
    struct te_task *tasks[LARGEST_BATCH];

    assert_int_equal(te_batch_reserve(user->storm->table, user->id, count, &reservation), TE_OK);
    for (size_t i = 0; i < count; i++) {
        tasks[i] = te_reservation_task(&reservation, i);
        fill_in(user, tasks[i], user->tasks + i);
    }
    if (roll(user, 8) == 0) {
        te_batch_abandon(&reservation);
        return;
    }
    user->tasks += count;
    atomic_fetch_add(&user->submissions, 1);
    te_batch_publish(&reservation, submission_done, user);
    for (size_t i = 0; i < count; i++)
        post(&user->storm->queue, tasks[i]);
}

static void poll_until_terminal(struct user *user)
{
    for (size_t i = 0; i < user->tasks; i++)
        while (state_of(user->storm->table, user->id, i) == TE_TASK_WAITING)
            sched_yield();
}

static void wait_for_each(struct user *user)
{
    for (size_t i = user->tasks; i-- > 0;)
        assert_int_equal(te_batch_wait(user->storm->table, user->id, i, WATCHDOG_NS), TE_OK);
}

static void wait_for_all(struct user *user)
{
    te_status status;

    do
        status = te_batch_wait(user->storm->table, user->id, SIZE_MAX, roll(user, 100000));
    while (status == TE_TIMED_OUT);
    assert_int_equal(status, TE_OK);
    assert_int_equal(te_batch_wait(user->storm->table, user->id, SIZE_MAX, -1), TE_OK);
}

static void wait_for_events(struct user *user)
{
    struct pollfd descriptor = {.fd = te_batch_table_event_fd(user->storm->table, user->id), .events = POLLIN};
    struct te_task_counts counts;

    assert_true(descriptor.fd >= 0);
    for (;;) {
        uint64_t count;

        assert_int_equal(te_batch_counts(user->storm->table, user->id, &counts), TE_OK);
        if (counts.waiting == 0)
            return;
        /* A lost signal shows as a time-out. */
        assert_int_equal(poll(&descriptor, 1, (int)(WATCHDOG_NS / TE_NS_PER_MS)), 1);
        assert_int_equal(read(descriptor.fd, &count, sizeof(count)), sizeof(count));
    }
}

static void release_and_poll(struct user *user)
{
    te_status status = te_batch_release(user->storm->table, user->id);

    user->released = true;
    if (status == TE_BATCH_BUSY)
        poll_until_terminal(user);
    else
        assert_int_equal(status, TE_OK);
}

static bool state_is_right(struct user *user, size_t task, int state)
{
    switch (user->worst[task]) {
    case TE_SLICE_SUCCEEDED:
        return state == TE_TASK_COMPLETED;
    case TE_SLICE_CANCELED:
        /* Strangers cancel, too. */
        return state == TE_TASK_FAILED || state == TE_TASK_CANCELED;
    case TE_SLICE_TIMED_OUT:
        return state == TE_TASK_TIMEOUT;
    default:
        return state == TE_TASK_FAILED;
    }
}

static void check_and_release(struct user *user)
{
    struct te_batch_table *table = user->storm->table;
    struct te_task_counts counts;
    uint64_t bytes = 0;

    for (size_t i = 0; i < user->tasks; i++) {
        int state = state_of(table, user->id, i);

        assert_true(state_is_right(user, i, state));
        assert_int_equal(bytes_of(table, user->id, i), state == TE_TASK_FAILED ? 0 : user->bytes[i]);
        bytes += bytes_of(table, user->id, i);
    }
    assert_int_equal(te_batch_counts(table, user->id, &counts), TE_OK);
    assert_int_equal(counts.waiting, 0);
    assert_int_equal(counts.total, user->tasks);
    assert_int_equal(counts.transferred_bytes, bytes);
    /* All have been seen terminal: at once. */
    assert_int_equal(te_batch_release(table, user->id), TE_OK);
    assert_int_equal(te_batch_release(table, user->id), TE_INVALID_ARGUMENT);
    assert_int_equal(state_of(table, user->id, 0), -1);
}

static void user_round(struct user *user)
{
    static void (*const ways[])(struct user *) = {poll_until_terminal, wait_for_each, wait_for_all, wait_for_events,
                                                  release_and_poll};
    size_t capacity = 1 + (size_t)roll(user, LARGEST_BATCH);

    user->id = allocate(user->storm->table, capacity);
    user->tasks = 0;
    user->released = false;
    atomic_store(&user->submissions, 0);
    atomic_store(&user->submissions_done, 0);
    atomic_store(&user->storm->recent[atomic_fetch_add(&user->storm->next_recent, 1) % RECENT], user->id);
    do
        submit_some(user, 1 + (size_t)roll(user, (int)(capacity - user->tasks)));
    while (user->tasks < capacity && roll(user, 2) == 0);
    if (roll(user, 4) == 0)
        te_task_request_cancel(user->storm->table, user->id, SIZE_MAX, NULL, NULL);
    ways[roll(user, 5)](user);
    if (!user->released)
        check_and_release(user);
    /* The user's memory must not be used again while a submission is not done. */
    while (atomic_load(&user->submissions_done) < atomic_load(&user->submissions))
        sched_yield();
    assert_int_equal(atomic_load(&user->submissions_done), atomic_load(&user->submissions));
}

static void *user_run(void *data)
{
    struct user user = {.storm = data};

    user.seed = atomic_fetch_add(&user.storm->next_seed, 1);
    for (int round = 0; round < user.storm->rounds; round++)
        user_round(&user);
    return NULL;
}

/* Asks for ids that belong to others, most of them gone. */
static void *stranger_run(void *data)
{
    struct storm *storm = data;
    unsigned seed = atomic_fetch_add(&storm->next_seed, 1);

    while (!atomic_load(&storm->over)) {
        uint64_t id = atomic_load(&storm->recent[(unsigned)rand_r(&seed) % RECENT]);
        size_t task = (size_t)rand_r(&seed) % LARGEST_BATCH;
        struct te_task_counts counts;
        int state;

        switch (rand_r(&seed) % 8) {
        case 0:
            if (te_batch_counts(storm->table, id, &counts) == TE_OK)
                assert_int_equal(counts.waiting + counts.completed + counts.failed + counts.canceled + counts.timed_out,
                                 counts.total);
            break;
        case 1:
            te_batch_wait(storm->table, id, rand_r(&seed) % 2 == 0 ? task : SIZE_MAX, rand_r(&seed) % 50000);
            break;
        case 2:
            te_task_request_cancel(storm->table, id, task, NULL, NULL);
            break;
        case 3:
            te_batch_table_event_fd(storm->table, id);
            break;
        default:
            state = state_of(storm->table, id, task);
            assert_true(state == -1 || state == TE_TASK_WAITING ||
                        (state >= TE_TASK_CANCELED && state <= TE_TASK_FAILED));
            /* Terminal or gone for ever. */
            if (state > TE_TASK_WAITING) {
                int again = state_of(storm->table, id, task);

                assert_true(again == state || again == -1);
            }
        }
    }
    return NULL;
}

static void storm_of_users_transports_and_strangers(void **state)
{
    struct storm storm = {.table = te_batch_table_new(NULL), .rounds = 1500};
    pthread_t transports[TRANSPORTS], users[USERS], strangers[STRANGERS];
    int engine_fd = te_batch_table_event_fd(storm.table, 0);
    uint64_t count;

    (void)state;
    pthread_mutex_init(&storm.queue.lock, NULL);
    pthread_cond_init(&storm.queue.filled, NULL);
    for (int i = 0; i < TRANSPORTS; i++)
        assert_int_equal(pthread_create(&transports[i], NULL, transport_run, &storm.queue), 0);
    for (int i = 0; i < USERS; i++)
        assert_int_equal(pthread_create(&users[i], NULL, user_run, &storm), 0);
    for (int i = 0; i < STRANGERS; i++)
        assert_int_equal(pthread_create(&strangers[i], NULL, stranger_run, &storm), 0);
    for (int i = 0; i < USERS; i++)
        assert_int_equal(pthread_join(users[i], NULL), 0);
    atomic_store(&storm.over, true);
    for (int i = 0; i < STRANGERS; i++)
        assert_int_equal(pthread_join(strangers[i], NULL), 0);
    pthread_mutex_lock(&storm.queue.lock);
    storm.queue.closed = true;
    pthread_cond_broadcast(&storm.queue.filled);
    pthread_mutex_unlock(&storm.queue.lock);
    for (int i = 0; i < TRANSPORTS; i++)
        assert_int_equal(pthread_join(transports[i], NULL), 0);
    assert_int_equal(read(engine_fd, &count, sizeof(count)), sizeof(count));
    assert_table_is_quiet(storm.table);
    te_batch_table_free(storm.table);
    pthread_cond_destroy(&storm.queue.filled);
    pthread_mutex_destroy(&storm.queue.lock);
}

/* ---- one batch, many hands ---- */

struct race {
    struct te_batch_table *table;
    uint64_t id;
    struct te_task *task;
    pthread_barrier_t start, finish;
    _Atomic bool over;
    _Atomic int releases, refusals;
};

static void race_open(struct race *race, unsigned threads)
{
    memset(race, 0, sizeof(*race));
    race->table = te_batch_table_new(NULL);
    pthread_barrier_init(&race->start, NULL, threads);
    pthread_barrier_init(&race->finish, NULL, threads);
}

static void race_close(struct race *race)
{
    assert_table_is_quiet(race->table);
    te_batch_table_free(race->table);
    pthread_barrier_destroy(&race->start);
    pthread_barrier_destroy(&race->finish);
}

static bool race_begin(struct race *race)
{
    pthread_barrier_wait(&race->start);
    return !atomic_load(&race->over);
}

static void *end_the_task(void *data)
{
    struct race *race = data;

    while (race_begin(race)) {
        end(race->task, TE_SLICE_SUCCEEDED);
        pthread_barrier_wait(&race->finish);
    }
    return NULL;
}

static void *wait_for_the_task(void *data)
{
    struct race *race = data;

    while (race_begin(race)) {
        te_status status = te_batch_wait(race->table, race->id, SIZE_MAX, WATCHDOG_NS);
        struct te_task_counts counts;

        assert_true(status == TE_OK || status == TE_INVALID_ARGUMENT);
        if (te_batch_counts(race->table, race->id, &counts) == TE_OK)
            assert_int_equal(counts.completed, 1);
        pthread_barrier_wait(&race->finish);
    }
    return NULL;
}

/* Who sees the last task terminal can release at once, although the thread that ended it may still be at work. */
static void seen_terminal_is_releasable(void **state)
{
    struct race race;
    struct te_task_counts counts;
    pthread_t ender, waiter;

    (void)state;
    race_open(&race, 3);
    assert_int_equal(pthread_create(&ender, NULL, end_the_task, &race), 0);
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_the_task, &race), 0);
    for (int round = 0; round < 5000; round++) {
        race.id = allocate(race.table, 1);
        race.task = submit(race.table, race.id, 1);
        race_begin(&race);
        while (state_of(race.table, race.id, 0) == TE_TASK_WAITING)
            ;
        if (round % 2 == 0) {
            assert_int_equal(te_batch_counts(race.table, race.id, &counts), TE_OK);
            assert_int_equal(counts.completed, 1);
            assert_int_equal(counts.waiting, 0);
            assert_int_equal(counts.transferred_bytes, TASK_BYTES);
        }
        assert_int_equal(te_batch_release(race.table, race.id), TE_OK);
        assert_int_equal(state_of(race.table, race.id, 0), -1);
        pthread_barrier_wait(&race.finish);
    }
    atomic_store(&race.over, true);
    race_begin(&race);
    assert_int_equal(pthread_join(ender, NULL), 0);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    race_close(&race);
}

static void *release_until_gone(void *data)
{
    struct race *race = data;

    while (race_begin(race)) {
        te_status status;

        while ((status = te_batch_release(race->table, race->id)) == TE_BATCH_BUSY)
            ;
        atomic_fetch_add(status == TE_OK ? &race->releases : &race->refusals, 1);
        pthread_barrier_wait(&race->finish);
    }
    return NULL;
}

static void of_many_releases_one_succeeds(void **state)
{
    enum { RELEASERS = 3, ROUNDS = 5000 };
    struct race race;
    pthread_t ender, releasers[RELEASERS];

    (void)state;
    race_open(&race, RELEASERS + 2);
    assert_int_equal(pthread_create(&ender, NULL, end_the_task, &race), 0);
    for (int i = 0; i < RELEASERS; i++)
        assert_int_equal(pthread_create(&releasers[i], NULL, release_until_gone, &race), 0);
    for (int round = 0; round < ROUNDS; round++) {
        race.id = allocate(race.table, 1);
        race.task = submit(race.table, race.id, 1);
        race_begin(&race);
        pthread_barrier_wait(&race.finish);
        assert_int_equal(atomic_load(&race.releases), round + 1);
        assert_int_equal(atomic_load(&race.refusals), (round + 1) * (RELEASERS - 1));
    }
    atomic_store(&race.over, true);
    race_begin(&race);
    assert_int_equal(pthread_join(ender, NULL), 0);
    for (int i = 0; i < RELEASERS; i++)
        assert_int_equal(pthread_join(releasers[i], NULL), 0);
    race_close(&race);
}

static void *submit_until_refused(void *data)
{
    struct race *race = data;

    while (race_begin(race)) {
        struct te_reservation reservation;

        while (te_batch_reserve(race->table, race->id, 2, &reservation) == TE_OK) {
            struct te_task *task = te_reservation_task(&reservation, 0);

            task->length = 1;
            te_batch_publish(&reservation, NULL, NULL);
            te_slice_end(&task->first_slice, TE_SLICE_SUCCEEDED, 1);
        }
        pthread_barrier_wait(&race->finish);
    }
    return NULL;
}

/* Submitters, one who releases early, and a waiter: the batch ends as gone or lingering, and never both. */
static void release_races_with_submits(void **state)
{
    enum { SUBMITTERS = 2, ROUNDS = 3000 };
    struct race race;
    pthread_t submitters[SUBMITTERS];

    (void)state;
    race_open(&race, SUBMITTERS + 1);
    for (int i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_create(&submitters[i], NULL, submit_until_refused, &race), 0);
    for (int round = 0; round < ROUNDS; round++) {
        te_status status;

        race.id = allocate(race.table, 60);
        race_begin(&race);
        for (int i = 0; i < round % 50; i++)
            state_of(race.table, race.id, (size_t)i);
        status = te_batch_release(race.table, race.id);
        assert_true(status == TE_OK || status == TE_BATCH_BUSY);
        pthread_barrier_wait(&race.finish);
        assert_int_equal(te_batch_release(race.table, race.id), status == TE_OK ? TE_INVALID_ARGUMENT : TE_OK);
        assert_int_equal(race.table->lingering_count, 0);
    }
    atomic_store(&race.over, true);
    race_begin(&race);
    for (int i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_join(submitters[i], NULL), 0);
    assert_int_equal(race.table->slot_count, 1);
    race_close(&race);
}

/* Four submitters fill one batch; every task belongs to one of them. */
struct filling {
    struct te_batch_table *table;
    uint64_t id;
    _Atomic int owners[4000];
};

static void *fill(void *data)
{
    struct filling *filling = data;
    struct te_reservation reservation;
    unsigned seed = (unsigned)(uintptr_t)&reservation;
    size_t count = 1;

    while (te_batch_reserve(filling->table, filling->id, count, &reservation) == TE_OK) {
        struct te_task *tasks[7];

        for (size_t i = 0; i < count; i++) {
            atomic_fetch_add(&filling->owners[reservation.first + i], 1);
            tasks[i] = te_reservation_task(&reservation, i);
            tasks[i]->length = 1;
        }
        te_batch_publish(&reservation, NULL, NULL);
        for (size_t i = 0; i < count; i++)
            te_slice_end(&tasks[i]->first_slice, TE_SLICE_SUCCEEDED, 1);
        count = 1 + (size_t)rand_r(&seed) % 7;
    }
    while (te_batch_reserve(filling->table, filling->id, 1, &reservation) == TE_OK) {
        atomic_fetch_add(&filling->owners[reservation.first], 1);
        te_batch_publish(&reservation, NULL, NULL);
    }
    return NULL;
}

static void submitters_share_a_batch(void **state)
{
    struct filling filling = {.table = te_batch_table_new(NULL)};
    pthread_t threads[4];

    (void)state;
    filling.id = allocate(filling.table, 4000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fill, &filling), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < 4000; i++) {
        assert_int_equal(atomic_load(&filling.owners[i]), 1);
        assert_int_equal(state_of(filling.table, filling.id, i), TE_TASK_COMPLETED);
    }
    assert_int_equal(te_batch_release(filling.table, filling.id), TE_OK);
    assert_table_is_quiet(filling.table);
    te_batch_table_free(filling.table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(storm_of_users_transports_and_strangers),
        cmocka_unit_test(seen_terminal_is_releasable),
        cmocka_unit_test(of_many_releases_one_succeeds),
        cmocka_unit_test(release_races_with_submits),
        cmocka_unit_test(submitters_share_a_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
