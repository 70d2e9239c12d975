/*
 * The shape of the library: callers' behaviours 37, 38 and 40, gap 11, bug reports K* and P04. This program is not
 * linked with it; it loads it as OrbitKV, TensorRT-LLM and the Python module do.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
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

/* The names of all exported functions. */
static const char *const exported[] = {
#define TE_CALL(slot, name, kind, result, without_engine, parameters, arguments) #name,
#define TE_FUNCTION(name, header)                                                #name,
#include "shim/calls.def"
};
enum { EXPORTED = sizeof(exported) / sizeof(exported[0]) };

static size_t count_entries(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    size_t count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void *load(int flags)
{
    void *library = dlopen(TE_LIBRARY, flags);
    if (!library)
        fail_msg("%s", dlerror());
    return library;
}

/* A function of the library by name. */
#define FUNCTION(library, name) ((__typeof__(&name))find(library, #name))

static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        fail_msg("%s is not there", name);
    return function;
}

/* Creates an engine, moves bytes to itself and back, destroys it. */
static void assert_library_works(void *library)
{
    enum { SIZE = 100000 };
    static uint8_t source[SIZE];
    static uint8_t target[SIZE];
    transfer_engine_t engine = FUNCTION(library, createTransferEngine)("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    assert_non_null(engine);
    assert_int_equal(FUNCTION(library, registerLocalMemory)(engine, target, SIZE, "*", 1), 0);
    memset(source, 0x37, SIZE);
    memset(target, 0, SIZE);
    batch_id_t batch = FUNCTION(library, allocateBatchID)(engine, 1);
    struct transfer_request request = {.opcode = OPCODE_WRITE,
                                       .source = source,
                                       .target_id = LOCAL_SEGMENT,
                                       .target_offset = (uintptr_t)target,
                                       .length = SIZE};
    assert_int_equal(FUNCTION(library, submitTransfer)(engine, batch, &request, 1), 0);
    assert_int_equal(FUNCTION(library, te_wait_batch)(engine, batch, -1), 0);
    assert_memory_equal(source, target, SIZE);
    assert_int_equal(FUNCTION(library, freeBatchID)(engine, batch), 0);
    FUNCTION(library, destroyTransferEngine)(engine);
}

static void b40_and_report_k03_and_k04_it_loads_alone_and_nothing_happens(void **state)
{
    (void)state;
    struct sigaction before[NSIG];
    for (int number = 1; number < NSIG; number++)
        sigaction(number, NULL, &before[number]);
    size_t threads = count_entries("/proc/self/task");
    size_t descriptors = count_entries("/proc/self/fd");
    void *library = load(RTLD_NOW | RTLD_LOCAL);
    assert_int_equal(count_entries("/proc/self/task"), threads);
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    for (int number = 1; number < NSIG; number++) {
        struct sigaction after;
        if (sigaction(number, NULL, &after) == 0)
            assert_ptr_equal(after.sa_handler, before[number].sa_handler);
    }
    assert_library_works(library);
    assert_int_equal(dlclose(library), 0);
}

static void b40_loaded_used_and_unloaded_again(void **state)
{
    (void)state;
    static const int flags[] = {RTLD_NOW | RTLD_LOCAL, RTLD_NOW | RTLD_GLOBAL, RTLD_LAZY | RTLD_LOCAL};
    size_t descriptors = 0;
    for (int round = 0; round < 6; round++) {
        void *library = load(flags[round % 3]);
        assert_library_works(library);
        assert_int_equal(dlclose(library), 0);
        if (round == 0)
            descriptors = count_entries("/proc/self/fd");
    }
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
}

static void b37_and_report_k09_every_documented_function_is_exported(void **state)
{
    (void)state;
    void *library = load(RTLD_NOW | RTLD_LOCAL);
    for (size_t index = 0; index < EXPORTED; index++)
        find(library, exported[index]);
    dlclose(library);
}

static bool is_exported(const char *name)
{
    for (size_t index = 0; index < EXPORTED; index++) {
        if (strcmp(exported[index], name) == 0)
            return true;
    }
    return false;
}

/* Calls visit for each line that a command prints. */
static void for_each_line(const char *command, void (*visit)(const char *line, void *data), void *data)
{
    char line[4096];
    FILE *output = popen(command, "re");
    assert_non_null(output);
    while (fgets(line, sizeof(line), output)) {
        line[strcspn(line, "\n")] = '\0';
        visit(line, data);
    }
    assert_int_equal(pclose(output), 0);
}

static void check_symbol(const char *line, void *data)
{
    char name[1024];
    char type;
    unsigned *count = data;
    if (sscanf(line, "%*s %c %1023[^@]", &type, name) != 2 || type == 'A') /* A: the name of a version */
        return;
    if (!is_exported(name))
        fail_msg("%s is exported", name);
    (*count)++;
}

static void b37_and_e11_nothing_else_is_exported(void **state)
{
    (void)state;
    unsigned count = 0;
    for_each_line("nm -D --defined-only " TE_LIBRARY, check_symbol, &count);
    assert_int_equal(count, EXPORTED);
}

static void check_needed(const char *line, void *data)
{
    static const char *const bad[] = {"cuda", "ibverbs", "stdc++", "asio", "glog", "jsoncpp", "libtent"};
    bool *soname = data;
    if (strstr(line, "(SONAME)")) {
        assert_non_null(strstr(line, "[libtransfer_engine.so]")); /* without a version */
        *soname = true;
    }
    for (size_t index = 0; strstr(line, "(NEEDED)") && index < sizeof(bad) / sizeof(bad[0]); index++)
        assert_null(strstr(line, bad[index]));
}

static void b37_and_report_k02_the_name_and_what_it_needs(void **state)
{
    (void)state;
    bool soname = false;
    for_each_line("readelf -d " TE_LIBRARY, check_needed, &soname);
    assert_true(soname);
}

static void b37_and_report_k05_there_is_a_static_library_too(void **state)
{
    (void)state;
    assert_int_equal(access(TE_STATIC_LIBRARY, R_OK), 0);
}

static void b38_signs_of_results(void **state)
{
    (void)state;
    void *library = load(RTLD_NOW | RTLD_LOCAL);
    transfer_engine_t engine = FUNCTION(library, createTransferEngine)("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    assert_non_null(engine);
    static char memory[64];
    notify_msg_t message = {.name = "n", .msg = "m"};
    struct transfer_request request = {.opcode = OPCODE_WRITE, .source = memory, .target_id = 77, .length = 1};
    struct transfer_status status;
    /* Negative: what callers test with < 0. */
    assert_true(FUNCTION(library, openSegment)(engine, "127.0.0.1:1") < 0);
    assert_true(FUNCTION(library, openSegmentNoCache)(engine, "127.0.0.1:1") < 0);
    assert_true(FUNCTION(library, registerLocalMemory)(engine, memory, 0, "*", 1) < 0);
    assert_true(FUNCTION(library, unregisterLocalMemory)(engine, memory) < 0);
    assert_true(FUNCTION(library, genNotifyInEngine)(engine, 77, message) < 0);
    assert_true(FUNCTION(library, getNicLoadStats)(engine, NULL, NULL) < 0);
    assert_true(FUNCTION(library, showLinks)(engine, NULL, 0, 0) < 0);
    /* Positive: submit, status, free. */
    batch_id_t batch = FUNCTION(library, allocateBatchID)(engine, 1);
    assert_int_equal(FUNCTION(library, submitTransfer)(engine, batch, &request, 1), 1);
    assert_int_equal(FUNCTION(library, submitTransfer)(engine, batch, &request, 2), 2);
    assert_int_equal(FUNCTION(library, submitTransferWithNotify)(engine, batch, &request, 0, message), 1);
    assert_int_equal(FUNCTION(library, getTransferStatus)(engine, batch, 0, &status), 1);
    assert_int_equal(FUNCTION(library, freeBatchID)(engine, batch), 0);
    assert_int_equal(FUNCTION(library, freeBatchID)(engine, batch), 1);
    FUNCTION(library, destroyTransferEngine)(engine);
    dlclose(library);
}

static void report_p04_two_modules_with_an_engine_each(void **state)
{
    (void)state;
    static const char *const modules[] = {TE_MODULE_SHARED, TE_MODULE_STATIC};
    for (int order = 0; order < 2; order++) {
        for (int scope = 0; scope < 2; scope++) {
            int flags = RTLD_NOW | (scope ? RTLD_GLOBAL : RTLD_LOCAL);
            void *first = dlopen(modules[order], flags);
            if (!first)
                fail_msg("%s", dlerror());
            void *second = dlopen(modules[1 - order], flags);
            if (!second)
                fail_msg("%s", dlerror());
            int (*run_first)(void) = (int (*)(void))find(first, "module_run");
            int (*run_second)(void) = (int (*)(void))find(second, "module_run");
            assert_int_equal(run_first(), 0);
            assert_int_equal(run_second(), 0);
            assert_int_equal(run_first(), 0);
            dlclose(second);
            dlclose(first);
        }
    }
}

int main(void)
{
    /* The first one first: nothing has been loaded yet. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b40_and_report_k03_and_k04_it_loads_alone_and_nothing_happens),
        cmocka_unit_test(b40_loaded_used_and_unloaded_again),
        cmocka_unit_test(b37_and_report_k09_every_documented_function_is_exported),
        cmocka_unit_test(b37_and_e11_nothing_else_is_exported),
        cmocka_unit_test(b37_and_report_k02_the_name_and_what_it_needs),
        cmocka_unit_test(b37_and_report_k05_there_is_a_static_library_too),
        cmocka_unit_test(b38_signs_of_results),
        cmocka_unit_test(report_p04_two_modules_with_an_engine_each),
    };
    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
