/* The library loaded with dlopen by a program that is not linked with it. TE_TEST_LIBRARY is its path. */
#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "transfer_engine_c.h"

enum { SIGNALS = 65, WATCHDOG_SECONDS = 60 };

/* What a library could change about a process. */
struct process_state {
    size_t threads, descriptors;
    struct rlimit files;
    void (*handlers[SIGNALS])(int);
};

static size_t count_entries(const char *folder)
{
    DIR *directory = opendir(folder);
    size_t count = 0;

    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void look(struct process_state *state)
{
    memset(state, 0, sizeof(*state));
    state->threads = count_entries("/proc/self/task");
    state->descriptors = count_entries("/proc/self/fd");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &state->files), 0);
    for (int number = 1; number < SIGNALS; number++) {
        struct sigaction action;

        if (sigaction(number, NULL, &action) == 0)
            state->handlers[number] = action.sa_handler;
    }
}

/* A joined thread may be listed for another moment. */
static void expect_threads(size_t expected)
{
    time_t give_up = time(NULL) + WATCHDOG_SECONDS;

    while (count_entries("/proc/self/task") != expected && time(NULL) < give_up)
        sched_yield();
    assert_int_equal(count_entries("/proc/self/task"), expected);
}

static bool is_mapped(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    bool found = false;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps))
        found = found || strstr(line, name);
    fclose(maps);
    return found;
}

static void *load(void)
{
    void *library = dlopen(TE_TEST_LIBRARY, RTLD_NOW | RTLD_GLOBAL);

    if (!library)
        fail_msg("%s", dlerror());
    return library;
}

static void *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);

    if (!address)
        fail_msg("%s", dlerror());
    return address;
}

static void test_loading_and_unloading_changes_nothing(void **unused)
{
    struct process_state before, loaded, after;
    void *library;

    (void)unused;
    look(&before);
    library = load();
    look(&loaded);
    assert_memory_equal(&before, &loaded, sizeof(before));
    assert_true(is_mapped("libtransfer_engine.so"));
    assert_int_equal(dlclose(library), 0);
    assert_false(is_mapped("libtransfer_engine.so"));
    look(&after);
    assert_memory_equal(&before, &after, sizeof(before));
}

/* Programs that unload the library after their last engine, again and again. */
static void test_unloading_after_an_engine_has_lived(void **unused)
{
    struct process_state before, after;

    (void)unused;
    look(&before);
    for (int i = 0; i < 3; i++) {
        void *library = load();
        transfer_engine_t (*create)(const char *, const char *, const char *, uint64_t, int) = (transfer_engine_t(*)(
            const char *, const char *, const char *, uint64_t, int))symbol(library, "createTransferEngine");
        void (*destroy)(transfer_engine_t) = (void (*)(transfer_engine_t))symbol(library, "destroyTransferEngine");
        transfer_engine_t engine = create("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);

        assert_non_null(engine);
        destroy(engine);
        assert_int_equal(dlclose(library), 0);
        assert_false(is_mapped("libtransfer_engine.so"));
    }
    look(&after);
    expect_threads(before.threads);
    assert_int_equal(after.descriptors, before.descriptors);
    assert_memory_equal(after.handlers, before.handlers, sizeof(before.handlers));
}

/* enableGracefulShutdown leaves handlers and a thread behind; they must go before the code does. */
static void test_unloading_after_graceful_shutdown_was_enabled(void **unused)
{
    struct process_state before, after;
    void *library = load();
    transfer_engine_t (*create)(const char *, const char *, const char *, uint64_t, int) =
        (transfer_engine_t(*)(const char *, const char *, const char *, uint64_t, int))symbol(library,
                                                                                              "createTransferEngine");
    void (*destroy)(transfer_engine_t) = (void (*)(transfer_engine_t))symbol(library, "destroyTransferEngine");
    void (*enable)(transfer_engine_t) = (void (*)(transfer_engine_t))symbol(library, "enableGracefulShutdown");
    transfer_engine_t engine;

    (void)unused;
    look(&before);
    engine = create("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    assert_non_null(engine);
    enable(engine);
    destroy(engine);
    assert_int_equal(dlclose(library), 0);
    assert_false(is_mapped("libtransfer_engine.so"));
    look(&after);
    expect_threads(before.threads);
    assert_int_equal(after.descriptors, before.descriptors);
    assert_memory_equal(after.handlers, before.handlers, sizeof(before.handlers));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading_and_unloading_changes_nothing),
        cmocka_unit_test(test_unloading_after_an_engine_has_lived),
        cmocka_unit_test(test_unloading_after_graceful_shutdown_was_enabled),
    };
    /* What the library is linked with is loaded first: GLib changes the process in its own way and is not the subject.
     */
    if (!dlopen("libglib-2.0.so.0", RTLD_NOW) || !dlopen("libyaml-0.so.2", RTLD_NOW) ||
        !dlopen("libjson-c.so.5", RTLD_NOW))
        return 1;

    return cmocka_run_group_tests(tests, NULL, NULL);
}
