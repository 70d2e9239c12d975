#include "core/memory_registry.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <glib.h>

#include "core/clock.h"

/* GLib's allocators that may fail, as the library sees them: the one numbered fail_at fails. */
static _Atomic long allocations, fail_at = -1;

static void *allocate(size_t bytes)
{
    return atomic_fetch_add(&allocations, 1) == atomic_load(&fail_at) ? NULL : calloc(1, bytes > 0 ? bytes : 1);
}

gpointer g_try_malloc(gsize bytes)
{
    return allocate(bytes);
}

gpointer g_try_malloc0(gsize bytes)
{
    return allocate(bytes);
}

gpointer g_try_malloc_n(gsize count, gsize bytes)
{
    return allocate(count * bytes);
}

gpointer g_try_malloc0_n(gsize count, gsize bytes)
{
    return allocate(count * bytes);
}

static struct te_region region(uint64_t address, uint64_t length)
{
    return (struct te_region){
        .address = address, .length = length, .permission = TE_GLOBAL_READ_WRITE, .location = "cpu:0"};
}

static te_status add(struct te_registry *registry, uint64_t address, uint64_t length)
{
    struct te_region one = region(address, length);

    return te_registry_add(registry, &one, 1);
}

static te_status drop(struct te_registry *registry, uint64_t address)
{
    return te_registry_remove(registry, &address, 1, NULL);
}

static bool reaches(struct te_registry_reader *reader, uint64_t address, uint64_t length, enum te_access access)
{
    bool found = te_registry_enter(reader, address, length, access) != NULL;

    te_registry_leave(reader);
    return found;
}

static bool can_write(struct te_registry_reader *reader, uint64_t address, uint64_t length)
{
    return reaches(reader, address, length, TE_ACCESS_REMOTE_WRITE);
}

struct fixture {
    struct te_registry *registry;
    struct te_registry_reader *reader;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    fixture->registry = te_registry_new();
    fixture->reader = te_registry_reader_new(fixture->registry);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    te_registry_reader_free(fixture->reader);
    te_registry_free(fixture->registry);
    free(fixture);
    return 0;
}

static void bad_regions_are_refused(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(add(fixture->registry, 0x1000, 0), TE_INVALID_ARGUMENT);
    assert_int_equal(add(fixture->registry, 0, 10), TE_INVALID_ARGUMENT);
    assert_int_equal(add(fixture->registry, UINT64_MAX - 9, 10), TE_INVALID_ARGUMENT);
    assert_int_equal(add(fixture->registry, 5, UINT64_MAX), TE_INVALID_ARGUMENT);
    assert_int_equal(add(fixture->registry, UINT64_MAX - 10, 10), TE_OK);
    assert_int_equal(te_registry_add(fixture->registry, NULL, 0), TE_OK);
    assert_int_equal(te_registry_remove(fixture->registry, NULL, 0, NULL), TE_OK);
}

static void overlap_is_refused_and_touching_is_legal(void **state)
{
    struct te_registry *registry = ((struct fixture *)*state)->registry;

    assert_int_equal(add(registry, 0x2000, 0x1000), TE_OK);
    assert_int_equal(add(registry, 0x2000, 0x1000), TE_ADDRESS_OVERLAPPED);
    assert_int_equal(add(registry, 0x2fff, 1), TE_ADDRESS_OVERLAPPED);
    assert_int_equal(add(registry, 0x1000, 0x1001), TE_ADDRESS_OVERLAPPED);
    assert_int_equal(add(registry, 0x1000, 0x10000), TE_ADDRESS_OVERLAPPED);
    assert_int_equal(add(registry, 0x2800, 0x10), TE_ADDRESS_OVERLAPPED);
    assert_int_equal(add(registry, 0x1000, 0x1000), TE_OK);
    assert_int_equal(add(registry, 0x3000, 0x1000), TE_OK);
}

static void ranges_must_lie_in_one_region(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(add(fixture->registry, 0x1000, 0x1000), TE_OK);
    assert_int_equal(add(fixture->registry, 0x2000, 0x1000), TE_OK);
    assert_true(can_write(fixture->reader, 0x1000, 0x1000));
    assert_true(can_write(fixture->reader, 0x1fff, 1));
    assert_true(can_write(fixture->reader, 0x2000, 1));
    assert_false(can_write(fixture->reader, 0x1fff, 2));
    assert_false(can_write(fixture->reader, 0x1000, 0x1001));
    assert_false(can_write(fixture->reader, 0xfff, 1));
    assert_false(can_write(fixture->reader, 0x3000, 1));
    assert_false(can_write(fixture->reader, 0x1000, 0));
    assert_false(can_write(fixture->reader, 0, 1));
    assert_false(can_write(fixture->reader, 0x1000, UINT64_MAX));
    assert_false(can_write(fixture->reader, 0x1800, UINT64_MAX - 0x1800 + 1));
    assert_false(can_write(fixture->reader, UINT64_MAX, 2));
}

static void permissions_hold(void **state)
{
    struct fixture *fixture = *state;
    struct te_region regions[] = {region(0x1000, 16), region(0x2000, 16), region(0x3000, 16)};

    regions[0].permission = TE_LOCAL_READ_WRITE;
    regions[1].permission = TE_GLOBAL_READ_ONLY;
    assert_int_equal(te_registry_add(fixture->registry, regions, 3), TE_OK);
    assert_false(reaches(fixture->reader, 0x1000, 16, TE_ACCESS_REMOTE_READ));
    assert_false(reaches(fixture->reader, 0x1000, 16, TE_ACCESS_REMOTE_WRITE));
    assert_true(reaches(fixture->reader, 0x2000, 16, TE_ACCESS_REMOTE_READ));
    assert_false(reaches(fixture->reader, 0x2000, 16, TE_ACCESS_REMOTE_WRITE));
    assert_true(reaches(fixture->reader, 0x3000, 16, TE_ACCESS_REMOTE_READ));
    assert_true(reaches(fixture->reader, 0x3000, 16, TE_ACCESS_REMOTE_WRITE));
}

static void batch_with_one_bad_entry_adds_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct te_region regions[] = {region(0x1000, 0x1000), region(0x5000, 0x1000), region(0x1800, 16)};
    uint64_t version, after;
    size_t count;
    const uint64_t addresses[] = {0x9000, 0x8000, 0x9000};

    assert_int_equal(add(fixture->registry, 0x9000, 16), TE_OK);
    version = te_registry_version(fixture->registry);
    assert_int_equal(te_registry_add(fixture->registry, regions, 3), TE_ADDRESS_OVERLAPPED);
    regions[2] = region(0x1000, 0x1000);
    assert_int_equal(te_registry_add(fixture->registry, regions, 3), TE_ADDRESS_OVERLAPPED);
    regions[2] = region(0x9000, 1);
    assert_int_equal(te_registry_add(fixture->registry, regions, 3), TE_ADDRESS_OVERLAPPED);
    regions[2] = region(0x7000, 0);
    assert_int_equal(te_registry_add(fixture->registry, regions, 3), TE_INVALID_ARGUMENT);
    assert_int_equal(te_registry_version(fixture->registry), version);
    assert_false(can_write(fixture->reader, 0x5000, 1));

    regions[2] = region(0x8000, 16);
    assert_int_equal(te_registry_add(fixture->registry, regions, 3), TE_OK);
    assert_true(te_registry_version(fixture->registry) != version);

    assert_int_equal(drop(fixture->registry, 0x1001), TE_ADDRESS_NOT_REGISTERED);
    assert_int_equal(te_registry_remove(fixture->registry, addresses, 3, NULL), TE_ADDRESS_NOT_REGISTERED);
    assert_true(can_write(fixture->reader, 0x9000, 16));
    g_free(te_registry_list(fixture->registry, &count, &after));
    assert_int_equal(count, 4);
    assert_int_equal(after, te_registry_version(fixture->registry));
    assert_int_equal(te_registry_remove(fixture->registry, addresses, 2, NULL), TE_OK);
    assert_false(can_write(fixture->reader, 0x9000, 1));
    assert_int_equal(add(fixture->registry, 0x9000, 32), TE_OK);
    assert_true(can_write(fixture->reader, 0x9000, 32));
}

static void list_is_in_order_of_registration_with_keys_and_locations(void **state)
{
    struct te_registry *registry = ((struct fixture *)*state)->registry;
    struct te_region regions[] = {region(0x5000, 1), region(0x1000, 2), region(0x3000, 3)}, removed[2], *list;
    const uint64_t addresses[] = {0x3000, 0x5000};
    char location[] = "cpu:1";
    size_t count = 99;
    uint64_t version;

    list = te_registry_list(registry, &count, &version);
    assert_non_null(list);
    assert_int_equal(count, 0);
    g_free(list);

    regions[0].location = location;
    regions[1].location = NULL;
    regions[2].driver_keys[3] = &count;
    assert_int_equal(te_registry_add(registry, regions, 3), TE_OK);
    location[0] = 'x';
    assert_int_equal(add(registry, 0x500, 4), TE_OK);
    list = te_registry_list(registry, &count, &version);
    assert_int_equal(count, 4);
    assert_int_equal(list[0].address, 0x5000);
    assert_string_equal(list[0].location, "cpu:1");
    assert_int_equal(list[1].address, 0x1000);
    assert_string_equal(list[1].location, "");
    assert_int_equal(list[2].address, 0x3000);
    assert_ptr_equal(list[2].driver_keys[3], &count);
    assert_int_equal(list[3].address, 0x500);
    for (size_t i = 1; i < count; i++)
        assert_true(list[i].order > list[i - 1].order);

    assert_int_equal(te_registry_remove(registry, addresses, 2, removed), TE_OK);
    assert_int_equal(removed[0].address, 0x3000);
    assert_ptr_equal(removed[0].driver_keys[3], &count);
    assert_null(removed[0].location);
    assert_int_equal(removed[1].address, 0x5000);
    assert_string_equal(list[0].location, "cpu:1");
    g_free(list);
}

/* Every allocation of a call fails once; the set stays as it was. */
static void lack_of_memory_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct te_region regions[64];
    uint64_t addresses[64];
    struct te_region *list;
    size_t count;
    uint64_t version;
    long attempts = 0;
    te_status status;

    for (size_t i = 0; i < 64; i++) {
        regions[i] = region(0x1000 * (1 + i * 7 % 64), 0x1000);
        addresses[i] = regions[i].address;
    }
    assert_int_equal(te_registry_add(fixture->registry, regions, 32), TE_OK);
    do {
        atomic_store(&allocations, 0);
        atomic_store(&fail_at, attempts++);
        status = te_registry_add(fixture->registry, regions + 32, 32);
        atomic_store(&fail_at, -1);
        list = te_registry_list(fixture->registry, &count, &version);
        assert_int_equal(count, status == TE_OK ? 64 : 32);
        g_free(list);
    } while (status == TE_MEMORY);
    assert_int_equal(status, TE_OK);
    assert_true(attempts > 64);
    attempts = 0;
    do {
        atomic_store(&allocations, 0);
        atomic_store(&fail_at, attempts++);
        status = te_registry_remove(fixture->registry, addresses, 20, NULL);
        atomic_store(&fail_at, -1);
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(can_write(fixture->reader, addresses[i], 0x1000), i >= 20 || status != TE_OK);
    } while (status == TE_MEMORY);
    assert_int_equal(status, TE_OK);
    atomic_store(&allocations, 0);
    atomic_store(&fail_at, 0);
    assert_null(te_registry_list(fixture->registry, &count, &version));
    atomic_store(&allocations, 0);
    assert_null(te_registry_new());
    atomic_store(&fail_at, -1);
}

enum { MODEL_PAGES = 256 };

/* owner[i] is the first page of the region that page i belongs to, or 0. */
static bool model_reaches(const int *owner, int page, int pages)
{
    if (owner[page] == 0)
        return false;
    for (int i = page; i < page + pages; i++)
        if (i >= MODEL_PAGES || owner[i] != owner[page])
            return false;
    return true;
}

static void random_operations_agree_with_a_model(void **state)
{
    struct fixture *fixture = *state;
    int owner[MODEL_PAGES] = {0};
    unsigned seed = 4711;

    for (int round = 0; round < 100000; round++) {
        int page = 1 + rand_r(&seed) % (MODEL_PAGES - 20), pages = 1 + rand_r(&seed) % 12;

        if (rand_r(&seed) % 2 == 0) {
            bool is_free = true;

            for (int i = page; i < page + pages; i++)
                is_free = is_free && owner[i] == 0;
            assert_int_equal(add(fixture->registry, (uint64_t)page << 12, (uint64_t)pages << 12),
                             is_free ? TE_OK : TE_ADDRESS_OVERLAPPED);
            for (int i = page; is_free && i < page + pages; i++)
                owner[i] = page;
        } else {
            assert_int_equal(drop(fixture->registry, (uint64_t)page << 12),
                             owner[page] == page ? TE_OK : TE_ADDRESS_NOT_REGISTERED);
            for (int i = page; owner[page] == page && i < MODEL_PAGES; i++)
                if (i > page && owner[i] == page)
                    owner[i] = 0;
            if (owner[page] == page)
                owner[page] = 0;
        }
        page = rand_r(&seed) % MODEL_PAGES;
        pages = 1 + rand_r(&seed) % 6;
        assert_int_equal(can_write(fixture->reader, (uint64_t)page << 12, (uint64_t)pages << 12),
                         model_reaches(owner, page, pages));
    }
}

enum { MANY = 20000 };

/* A watchdog, not a measurement: quadratic work would take minutes under a sanitizer. */
static void twenty_thousand_regions(void **state)
{
    struct fixture *fixture = *state;
    struct te_region *regions = g_new(struct te_region, MANY), *list;
    uint64_t *addresses = g_new(uint64_t, MANY), version;
    int64_t start = te_now_ns();
    size_t count;

    for (size_t i = 0; i < MANY; i++) {
        regions[i] = region((i + 1) << 20, 1 << 20);
        addresses[i] = regions[i].address;
    }
    assert_int_equal(te_registry_add(fixture->registry, regions, MANY), TE_OK);
    list = te_registry_list(fixture->registry, &count, &version);
    assert_int_equal(count, MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(list[i].address, addresses[i]);
    g_free(list);
    assert_int_equal(te_registry_remove(fixture->registry, addresses, MANY, NULL), TE_OK);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(te_registry_add(fixture->registry, &regions[i], 1), TE_OK);
    for (size_t i = 0; i < MANY; i++)
        assert_true(can_write(fixture->reader, addresses[i], 1 << 20));
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(drop(fixture->registry, addresses[i]), TE_OK);
    if (getenv("TE_TEST_VERBOSE") != NULL)
        print_message("%d regions: %.0f ms\n", MANY, (double)(te_now_ns() - start) / TE_NS_PER_MS);
    assert_true(te_now_ns() - start < 60 * TE_NS_PER_SECOND);
    g_free(regions);
    g_free(addresses);
}

struct stuck_reader {
    struct fixture *fixture;
    _Atomic bool inside, removed;
    pthread_barrier_t barrier;
};

static void *remove_region(void *data)
{
    struct stuck_reader *stuck = data;

    pthread_barrier_wait(&stuck->barrier);
    assert_int_equal(drop(stuck->fixture->registry, 0x1000), TE_OK);
    assert_false(atomic_load(&stuck->inside));
    atomic_store(&stuck->removed, true);
    return NULL;
}

static void remove_waits_for_the_reader_that_is_inside(void **state)
{
    struct fixture *fixture = *state;
    struct te_registry_reader *later = te_registry_reader_new(fixture->registry);
    struct stuck_reader stuck = {.fixture = fixture, .inside = true};
    const struct te_region *found;
    pthread_t thread;

    pthread_barrier_init(&stuck.barrier, NULL, 2);
    assert_int_equal(add(fixture->registry, 0x1000, 0x1000), TE_OK);
    found = te_registry_enter(fixture->reader, 0x1000, 8, TE_ACCESS_REMOTE_WRITE);
    assert_non_null(found);
    assert_int_equal(pthread_create(&thread, NULL, remove_region, &stuck), 0);
    pthread_barrier_wait(&stuck.barrier);
    /* The new root comes into force although the remover waits. Others go on: readers, writers, lists. */
    while (can_write(later, 0x1000, 8))
        sched_yield();
    assert_int_equal(add(fixture->registry, 0x1000, 0x2000), TE_OK);
    for (int i = 0; i < 1000; i++) {
        assert_true(can_write(later, 0x1000, 0x2000));
        sched_yield();
    }
    assert_false(atomic_load(&stuck.removed));
    assert_int_equal(found->address, 0x1000);
    assert_int_equal(found->length, 0x1000);
    assert_string_equal(found->location, "cpu:0");
    atomic_store(&stuck.inside, false);
    te_registry_leave(fixture->reader);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&stuck.removed));
    te_registry_reader_free(later);
    pthread_barrier_destroy(&stuck.barrier);
}

static void readers_come_and_go(void **state)
{
    struct fixture *fixture = *state;
    struct te_registry_reader *first = te_registry_reader_new(fixture->registry), *second;

    te_registry_reader_free(first);
    second = te_registry_reader_new(fixture->registry);
    assert_ptr_equal(first, second);
    te_registry_reader_free(second);
}

enum { STORM_READERS = 3, STORM_WRITERS = 2, STORM_SLOTS = 64, STORM_ROUNDS = 4000 };

struct storm {
    struct te_registry *registry;
    _Atomic bool stop;
    /* Nonzero while "registered": what a reader finds must be there until it leaves. */
    _Atomic uint32_t memory[STORM_WRITERS * STORM_SLOTS];
    _Atomic int next_writer;
    _Atomic long hits;
};

static void *storm_read(void *data)
{
    struct storm *storm = data;
    struct te_registry_reader *reader = te_registry_reader_new(storm->registry);
    unsigned seed = (unsigned)(uintptr_t)reader;

    while (!atomic_load(&storm->stop)) {
        size_t slot = (size_t)rand_r(&seed) % (STORM_WRITERS * STORM_SLOTS);
        const struct te_region *found = te_registry_enter(reader, (slot + 1) << 12, 0x1000, TE_ACCESS_REMOTE_READ);

        if (found != NULL) {
            assert_int_equal(found->address, (slot + 1) << 12);
            assert_int_equal(atomic_load(&storm->memory[slot]), 1);
            atomic_fetch_add(&storm->hits, 1);
        }
        te_registry_leave(reader);
    }
    te_registry_reader_free(reader);
    return NULL;
}

static void *storm_write(void *data)
{
    struct storm *storm = data;
    size_t base = (size_t)atomic_fetch_add(&storm->next_writer, 1) * STORM_SLOTS;
    unsigned seed = (unsigned)base + 1;
    bool registered[STORM_SLOTS] = {false};

    for (int round = 0; round < STORM_ROUNDS; round++) {
        size_t slot = (size_t)rand_r(&seed) % STORM_SLOTS;
        uint64_t address = (base + slot + 1) << 12;

        if (registered[slot]) {
            assert_int_equal(drop(storm->registry, address), TE_OK);
            atomic_store(&storm->memory[base + slot], 0);
        } else {
            atomic_store(&storm->memory[base + slot], 1);
            assert_int_equal(add(storm->registry, address, 0x1000), TE_OK);
        }
        registered[slot] = !registered[slot];
    }
    return NULL;
}

static void nobody_finds_what_was_removed(void **state)
{
    struct storm storm = {.registry = ((struct fixture *)*state)->registry};
    pthread_t readers[STORM_READERS], writers[STORM_WRITERS];

    for (int i = 0; i < STORM_READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, storm_read, &storm), 0);
    for (int i = 0; i < STORM_WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, storm_write, &storm), 0);
    for (int i = 0; i < STORM_WRITERS; i++)
        assert_int_equal(pthread_join(writers[i], NULL), 0);
    atomic_store(&storm.stop, true);
    for (int i = 0; i < STORM_READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_true(atomic_load(&storm.hits) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bad_regions_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(overlap_is_refused_and_touching_is_legal, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges_must_lie_in_one_region, setup, teardown),
        cmocka_unit_test_setup_teardown(permissions_hold, setup, teardown),
        cmocka_unit_test_setup_teardown(batch_with_one_bad_entry_adds_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(list_is_in_order_of_registration_with_keys_and_locations, setup, teardown),
        cmocka_unit_test_setup_teardown(lack_of_memory_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(random_operations_agree_with_a_model, setup, teardown),
        cmocka_unit_test_setup_teardown(twenty_thousand_regions, setup, teardown),
        cmocka_unit_test_setup_teardown(remove_waits_for_the_reader_that_is_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(readers_come_and_go, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_finds_what_was_removed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
