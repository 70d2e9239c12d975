#include "shim/engine_handle.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/status.h"
#include "fake_runtime.h"

static transfer_engine_t add(struct fake_runtime **runtime)
{
    transfer_engine_t handle = NULL;

    *runtime = fake_new();
    assert_non_null(*runtime);
    assert_int_equal(te_engine_handle_add(&te_classic_ops, *runtime, &handle), TE_OK);
    assert_non_null(handle);
    return handle;
}

static bool is_live(transfer_engine_t handle)
{
    struct te_engine_call call;
    bool live = te_engine_enter(handle, &call);

    te_engine_leave(&call);
    return live;
}

static void test_a_live_handle_leads_to_its_runtime(void **state)
{
    struct fake_runtime *runtime;
    transfer_engine_t handle = add(&runtime);
    struct te_engine_call call;

    (void)state;
    assert_true(te_engine_enter(handle, &call));
    assert_ptr_equal(call.runtime, runtime);
    assert_ptr_equal(call.ops, &te_classic_ops);
    te_engine_leave(&call);
    assert_true(te_engine_handle_destroy(handle));
    assert_int_equal(runtime->destroyed, 1);
}

static void test_a_destroyed_handle_is_refused_for_ever(void **state)
{
    struct fake_runtime *runtime, *next_runtime;
    transfer_engine_t handle = add(&runtime);
    transfer_engine_t next;

    (void)state;
    assert_true(te_engine_handle_destroy(handle));
    assert_false(is_live(handle));
    assert_string_equal(te_status_message(), "the engine has been destroyed");
    assert_false(te_engine_handle_destroy(handle));
    next = add(&next_runtime); /* in the same slot */
    assert_ptr_not_equal(next, handle);
    assert_false(is_live(handle));
    assert_false(te_engine_handle_destroy(handle));
    assert_true(is_live(next));
    assert_true(te_engine_handle_destroy(next));
    assert_int_equal(runtime->destroyed, 1);
}

/* None of these may be dereferenced: some point to pages that cannot be read. */
static void test_invented_handles_are_refused(void **state)
{
    struct fake_runtime *runtime;
    transfer_engine_t handle = add(&runtime);
    void *unreadable = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t bits = (uintptr_t)handle;
    uintptr_t invented[] = {0,
                            1,
                            4096,
                            (uintptr_t)unreadable,
                            (uintptr_t)&runtime,
                            UINTPTR_MAX,
                            bits + 1,
                            bits - 1,
                            bits ^ (uintptr_t)1 << 47,
                            bits ^ (uintptr_t)1 << 48,
                            bits ^ (uintptr_t)1 << 63,
                            bits ^ (uintptr_t)1 << 10,
                            (uintptr_t)0x7e5e << 48,
                            (uintptr_t)0x7e5f << 48};

    (void)state;
    assert_ptr_not_equal(unreadable, MAP_FAILED);
    for (size_t i = 0; i < sizeof(invented) / sizeof(invented[0]); i++) {
        assert_false(is_live((transfer_engine_t)invented[i]));
        assert_false(te_engine_handle_destroy((transfer_engine_t)invented[i]));
    }
    assert_true(is_live(handle));
    assert_true(te_engine_handle_destroy(handle));
    munmap(unreadable, 4096);
}

/* Garbage collectors and tag checks look at pointers: a handle must not resemble one. */
static void test_a_handle_is_no_address(void **state)
{
    struct fake_runtime *runtime;
    transfer_engine_t handle = add(&runtime);
    uint64_t upper = (uint64_t)(uintptr_t)handle >> 47;

    (void)state;
    assert_true(upper != 0 && upper != 0x1ffff);
    assert_true(te_engine_handle_destroy(handle));
}

static void test_there_is_room_for_many_engines_and_an_end(void **state)
{
    static transfer_engine_t handles[TE_MAX_ENGINES];
    struct fake_runtime *runtime;
    transfer_engine_t one_more = NULL;

    (void)state;
    for (size_t i = 0; i < TE_MAX_ENGINES; i++)
        handles[i] = add(&runtime);
    assert_int_equal(te_engine_handle_add(&te_classic_ops, runtime, &one_more), TE_TOO_MANY_REQUESTS);
    assert_null(one_more);
    for (size_t i = 0; i < TE_MAX_ENGINES; i++)
        assert_true(te_engine_handle_destroy(handles[i]));
    handles[0] = add(&runtime);
    assert_true(te_engine_handle_destroy(handles[0]));
}

static void test_marked_engines_are_destroyed_together(void **state)
{
    struct fake_runtime *runtimes[3];
    transfer_engine_t handles[3];

    (void)state;
    for (size_t i = 0; i < 3; i++)
        handles[i] = add(&runtimes[i]);
    assert_true(te_engine_handle_mark(handles[0]));
    assert_true(te_engine_handle_mark(handles[2]));
    te_engine_handle_destroy_marked();
    assert_false(is_live(handles[0]));
    assert_true(is_live(handles[1]));
    assert_false(is_live(handles[2]));
    assert_true(te_engine_handle_destroy(handles[1]));
    assert_false(te_engine_handle_mark(handles[1]));
    handles[0] = add(&runtimes[0]); /* the mark does not stay with the slot */
    te_engine_handle_destroy_marked();
    assert_true(is_live(handles[0]));
    assert_true(te_engine_handle_destroy(handles[0]));
}

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

struct holder {
    transfer_engine_t handle;
    struct fake_runtime *runtime;
    sem_t entered, may_leave;
    int destroyed_while_inside;
};

static void *hold(void *data)
{
    struct holder *holder = data;
    struct te_engine_call call;

    if (te_engine_enter(holder->handle, &call)) {
        sem_post(&holder->entered);
        sem_wait(&holder->may_leave);
        holder->destroyed_while_inside = atomic_load(&holder->runtime->destroyed);
    }
    te_engine_leave(&call);
    return NULL;
}

static void *destroy_handle(void *handle)
{
    return te_engine_handle_destroy(handle) ? handle : NULL;
}

static void test_destroy_waits_for_calls_and_refuses_new_ones(void **state)
{
    struct holder holder = {0};
    pthread_t caller, destroyer;
    void *destroyed;

    (void)state;
    holder.handle = add(&holder.runtime);
    sem_init(&holder.entered, 0, 0);
    sem_init(&holder.may_leave, 0, 0);
    pthread_create(&caller, NULL, hold, &holder);
    sem_wait(&holder.entered);
    pthread_create(&destroyer, NULL, destroy_handle, holder.handle);
    while (is_live(holder.handle)) /* until destroy has begun */
        sched_yield();
    assert_int_equal(holder.runtime->destroyed, 0);
    sem_post(&holder.may_leave);
    pthread_join(caller, NULL);
    pthread_join(destroyer, &destroyed);
    assert_non_null(destroyed);
    assert_int_equal(holder.destroyed_while_inside, 0);
    assert_int_equal(holder.runtime->destroyed, 1);
    sem_destroy(&holder.entered);
    sem_destroy(&holder.may_leave);
}

enum { POLLERS = 8 };
static _Atomic(transfer_engine_t) shared_handle;
static atomic_bool stop_polling;
static atomic_int calls_after_destroy;

static void *poll_shared_handle(void *unused)
{
    while (!atomic_load(&stop_polling)) {
        struct te_engine_call call;

        if (te_engine_enter(atomic_load(&shared_handle), &call)) {
            struct fake_runtime *runtime = call.runtime;

            if (atomic_load(&runtime->destroyed))
                atomic_fetch_add(&calls_after_destroy, 1);
        }
        te_engine_leave(&call);
    }
    return unused;
}

static void test_engines_come_and_go_under_polling_threads(void **state)
{
    pthread_t pollers[POLLERS];

    (void)state;
    atomic_store(&shared_handle, NULL);
    for (size_t i = 0; i < POLLERS; i++)
        pthread_create(&pollers[i], NULL, poll_shared_handle, NULL);
    for (int i = 0; i < 500; i++) {
        struct fake_runtime *runtime;
        transfer_engine_t handle = add(&runtime);

        atomic_store(&shared_handle, handle);
        assert_true(te_engine_handle_destroy(handle));
    }
    atomic_store(&stop_polling, true);
    for (size_t i = 0; i < POLLERS; i++)
        pthread_join(pollers[i], NULL);
    assert_int_equal(calls_after_destroy, 0);
}

static void test_of_two_destroyers_one_succeeds(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct fake_runtime *runtime;
        transfer_engine_t handle = add(&runtime);
        pthread_t other;
        void *by_other;
        bool by_this;

        pthread_create(&other, NULL, destroy_handle, handle);
        by_this = te_engine_handle_destroy(handle);
        pthread_join(other, &by_other);
        assert_int_equal(by_this + (by_other != NULL), 1);
        assert_int_equal(runtime->destroyed, 1);
    }
}

/* ---- Forks ------------------------------------------------------------------------------------------------------ */

/* Runs check in a forked child; its result is the child's exit status. */
static void in_child(bool (*check)(transfer_engine_t inherited, struct fake_runtime *runtime), transfer_engine_t handle,
                     struct fake_runtime *runtime)
{
    pid_t child = fork();
    int status = -1;

    assert_true(child >= 0);
    if (child == 0)
        _exit(check(handle, runtime) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static bool child_is_refused(transfer_engine_t inherited, struct fake_runtime *runtime)
{
    (void)runtime;
    return !is_live(inherited) && strstr(te_status_message(), "belongs to the parent");
}

static bool child_destroys(transfer_engine_t inherited, struct fake_runtime *runtime)
{
    return te_engine_handle_destroy(inherited) && runtime->destroyed == 0 && !te_engine_handle_destroy(inherited) &&
           !is_live(inherited);
}

static bool child_makes_its_own(transfer_engine_t inherited, struct fake_runtime *runtime)
{
    struct fake_runtime *own_runtime = fake_new();
    transfer_engine_t own;
    bool both;

    (void)runtime;
    if (te_engine_handle_add(&te_classic_ops, own_runtime, &own) != TE_OK)
        return false;
    both = is_live(own) && !is_live(inherited);
    return te_engine_handle_destroy(own) && own_runtime->destroyed == 1 && both;
}

static bool grandchild_is_refused(transfer_engine_t inherited, struct fake_runtime *runtime)
{
    int status = -1;
    pid_t grandchild = fork();

    if (grandchild == 0)
        _exit(child_is_refused(inherited, runtime) ? 0 : 1);
    return waitpid(grandchild, &status, 0) == grandchild && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_a_forked_child_has_no_engine(void **state)
{
    struct fake_runtime *runtime;
    transfer_engine_t handle = add(&runtime);

    (void)state;
    in_child(child_is_refused, handle, runtime);
    in_child(child_destroys, handle, runtime);
    in_child(child_makes_its_own, handle, runtime);
    in_child(grandchild_is_refused, handle, runtime);
    assert_true(is_live(handle));
    assert_true(te_engine_handle_destroy(handle));
    assert_int_equal(runtime->destroyed, 1);
}

static bool child_reuses_the_slot(transfer_engine_t inherited, struct fake_runtime *runtime)
{
    return te_engine_handle_destroy(inherited) && child_makes_its_own(inherited, runtime);
}

/* The call of the parent's other thread does not exist in the child and must not be waited for there. */
static void test_a_fork_during_a_call_of_another_thread(void **state)
{
    struct holder holder = {0};
    pthread_t caller;

    (void)state;
    holder.handle = add(&holder.runtime);
    sem_init(&holder.entered, 0, 0);
    sem_init(&holder.may_leave, 0, 0);
    pthread_create(&caller, NULL, hold, &holder);
    sem_wait(&holder.entered);
    in_child(child_reuses_the_slot, holder.handle, holder.runtime);
    sem_post(&holder.may_leave);
    pthread_join(caller, NULL);
    assert_true(te_engine_handle_destroy(holder.handle));
    sem_destroy(&holder.entered);
    sem_destroy(&holder.may_leave);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_live_handle_leads_to_its_runtime),
        cmocka_unit_test(test_a_destroyed_handle_is_refused_for_ever),
        cmocka_unit_test(test_invented_handles_are_refused),
        cmocka_unit_test(test_a_handle_is_no_address),
        cmocka_unit_test(test_there_is_room_for_many_engines_and_an_end),
        cmocka_unit_test(test_marked_engines_are_destroyed_together),
        cmocka_unit_test(test_destroy_waits_for_calls_and_refuses_new_ones),
        cmocka_unit_test(test_engines_come_and_go_under_polling_threads),
        cmocka_unit_test(test_of_two_destroyers_one_succeeds),
        cmocka_unit_test(test_a_forked_child_has_no_engine),
        cmocka_unit_test(test_a_fork_during_a_call_of_another_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
