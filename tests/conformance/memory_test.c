/* Registering memory: callers' behaviours 16 to 20, the contract's line on registration, and the bug reports R*. */
#include <pthread.h>
#include <sys/mman.h>

#include "raw_peer.h"
#include "support.h"
#include "target.h"

enum { SIZE = 64 * KIB };
#define GIB ((size_t)1 << 30)

/* Address space without memory behind it. */
static void *reserve(size_t size, int protection)
{
    void *start = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(start != MAP_FAILED);
    return start;
}

static void map_over(void *start, size_t size, int protection)
{
    assert_ptr_equal(mmap(start, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), start);
}

/* A second engine and a segment handle to look at the first one's memory from outside. */
struct view {
    transfer_engine_t owner, visitor;
    segment_id_t segment;
    uint8_t *local;
};

static struct view view_new(void)
{
    char name[NAME_SIZE];
    struct view view = {.owner = engine_new(), .visitor = engine_new(), .local = memory_new(SIZE)};
    engine_name(view.owner, name);
    view.segment = engine_open(view.visitor, name);
    return view;
}

static int visit(struct view *view, int opcode, const void *address, size_t length)
{
    return transfer(view->visitor, opcode, view->local, view->segment, (uintptr_t)address, length);
}

static void assert_reachable(struct view *view, const void *address, size_t length)
{
    assert_int_equal(visit(view, READ, address, length), COMPLETED);
    assert_int_equal(visit(view, WRITE, address, length), COMPLETED);
}

static void assert_unreachable(struct view *view, const void *address, size_t length)
{
    assert_int_equal(visit(view, READ, address, length), FAILED);
    assert_int_equal(visit(view, WRITE, address, length), FAILED);
}

/* ---- callers' behaviours ---- */

struct registrar {
    transfer_engine_t engine;
    uint8_t *memory;
    size_t bad;
};

static void *register_and_unregister(void *data)
{
    enum { ROUNDS = 200, CHUNKS = 8 };
    struct registrar *own = data;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t chunk = 0; chunk < CHUNKS; chunk++)
            own->bad += registerLocalMemory(own->engine, own->memory + chunk * KIB, KIB, "*", 1) != 0;
        own->bad += registerLocalMemory(own->engine, own->memory + 100, KIB, "*", 1) != ERR_ADDRESS_OVERLAPPED;
        for (size_t chunk = 0; chunk < CHUNKS; chunk++)
            own->bad += unregisterLocalMemory(own->engine, own->memory + chunk * KIB) != 0;
        own->bad += unregisterLocalMemory(own->engine, own->memory) != ERR_ADDRESS_NOT_REGISTERED;
    }
    return NULL;
}

static void b16_registration_is_safe_from_many_threads(void **state)
{
    (void)state;
    enum { THREADS = 16 };
    struct registrar registrars[THREADS];
    transfer_engine_t engine = engine_new();
    watchdog(60);
    for (size_t index = 0; index < THREADS; index++) {
        registrars[index].engine = engine;
        registrars[index].memory = memory_new(8 * KIB);
        registrars[index].bad = 0;
    }
    run_threads(THREADS, register_and_unregister, registrars, sizeof(registrars[0]));
    for (size_t index = 0; index < THREADS; index++)
        assert_int_equal(registrars[index].bad, 0);
}

static void b16_pages_are_not_touched(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *slab = reserve(160 * GIB, PROT_READ | PROT_WRITE);
    size_t before = resident_bytes();
    assert_int_equal(registerLocalMemory(engine, slab, 2 * GIB, "cpu:0", 1), 0);
    for (size_t chunk = 1; chunk < 40; chunk++)
        assert_int_equal(registerLocalMemory(engine, slab + chunk * 4 * GIB, 4 * GIB, "*", 1), 0);
    assert_true(resident_bytes() < before + 8 * MIB);
    for (size_t chunk = 1; chunk < 40; chunk++)
        assert_int_equal(unregisterLocalMemory(engine, slab + chunk * 4 * GIB), 0);
    assert_int_equal(unregisterLocalMemory(engine, slab), 0);
    assert_true(resident_bytes() < before + 8 * MIB);
    munmap(slab, 160 * GIB);
}

static void b16_any_location_is_accepted(void **state)
{
    (void)state;
    static const char *const locations[] = {"*", "cpu:0", "cpu:7", "cuda:0", "nosuch", "", "segments:4096:0", NULL};
    struct view view = view_new();
    for (size_t index = 0; index < sizeof(locations) / sizeof(locations[0]); index++) {
        uint8_t *memory = memory_new(SIZE);
        assert_int_equal(registerLocalMemory(view.owner, memory, SIZE, locations[index], 1), 0);
        assert_reachable(&view, memory, SIZE);
    }
}

static void b17_and_report_r02_overlap_is_refused_and_the_first_stays(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(4 * SIZE);
    uint8_t *middle = memory + SIZE;
    assert_int_equal(registerLocalMemory(view.owner, middle, SIZE, "*", 1), 0);
    static const struct {
        size_t offset, length;
    } overlaps[] = {{SIZE, SIZE},  {SIZE, 1},     {2 * SIZE - 1, 1},    {SIZE + 5, 10},       {0, 4 * SIZE},
                    {0, SIZE + 1}, {SIZE - 1, 2}, {2 * SIZE - 1, SIZE}, {SIZE, 2 * SIZE - 1}, {0, 2 * SIZE}};
    for (size_t index = 0; index < sizeof(overlaps) / sizeof(overlaps[0]); index++) {
        int result = registerLocalMemory(view.owner, memory + overlaps[index].offset, overlaps[index].length, "*", 1);
        assert_int_equal(result, ERR_ADDRESS_OVERLAPPED);
        assert_reachable(&view, middle, SIZE);
    }
    assert_unreachable(&view, memory, 1);
    assert_unreachable(&view, memory + 2 * SIZE, 1);
}

static void b17_adjacent_regions_are_legal(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(3 * SIZE);
    assert_int_equal(registerLocalMemory(view.owner, memory + SIZE, SIZE, "*", 1), 0);
    assert_int_equal(registerLocalMemory(view.owner, memory, SIZE, "*", 1), 0);
    assert_int_equal(registerLocalMemory(view.owner, memory + 2 * SIZE, SIZE, "*", 1), 0);
    for (size_t part = 0; part < 3; part++)
        assert_reachable(&view, memory + part * SIZE, SIZE);
    assert_int_equal(unregisterLocalMemory(view.owner, memory + SIZE), 0);
    assert_unreachable(&view, memory + SIZE, SIZE);
    assert_reachable(&view, memory, SIZE);
    assert_reachable(&view, memory + 2 * SIZE, SIZE);
}

static void b17_a_batch_is_all_or_nothing(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(8 * SIZE);
    buffer_entry_t bad_length[] = {{memory, SIZE}, {memory + SIZE, 0}, {memory + 2 * SIZE, SIZE}};
    buffer_entry_t overlapping[] = {{memory, SIZE}, {memory + SIZE, SIZE}, {memory + SIZE + 1, SIZE}};
    buffer_entry_t doubled[] = {{memory, SIZE}, {memory, SIZE}};
    buffer_entry_t null_address[] = {{memory, SIZE}, {NULL, SIZE}};
    buffer_entry_t wrapping[] = {{memory, SIZE}, {memory + SIZE, SIZE_MAX}};
    assert_int_equal(registerLocalMemory(view.owner, memory + 7 * SIZE, SIZE, "*", 1), 0);
    buffer_entry_t existing[] = {{memory, SIZE}, {memory + 6 * SIZE, SIZE + 1}};
    assert_int_equal(registerLocalMemoryBatch(view.owner, bad_length, 3, "*"), ERR_INVALID_ARGUMENT);
    assert_int_equal(registerLocalMemoryBatch(view.owner, overlapping, 3, "*"), ERR_ADDRESS_OVERLAPPED);
    assert_int_equal(registerLocalMemoryBatch(view.owner, doubled, 2, "*"), ERR_ADDRESS_OVERLAPPED);
    assert_int_equal(registerLocalMemoryBatch(view.owner, null_address, 2, "*"), ERR_INVALID_ARGUMENT);
    assert_int_equal(registerLocalMemoryBatch(view.owner, wrapping, 2, "*"), ERR_INVALID_ARGUMENT);
    assert_int_equal(registerLocalMemoryBatch(view.owner, existing, 2, "*"), ERR_ADDRESS_OVERLAPPED);
    for (size_t part = 0; part < 7; part++)
        assert_unreachable(&view, memory + part * SIZE, SIZE);
    assert_reachable(&view, memory + 7 * SIZE, SIZE);
    buffer_entry_t good[] = {{memory + SIZE, SIZE}, {memory, SIZE}, {memory + 2 * SIZE, SIZE}};
    assert_int_equal(registerLocalMemoryBatch(view.owner, good, 3, "*"), 0);
    for (size_t part = 0; part < 3; part++)
        assert_reachable(&view, memory + part * SIZE, SIZE);
    void *addresses[] = {memory + 2 * SIZE, memory, memory + SIZE};
    assert_int_equal(unregisterLocalMemoryBatch(view.owner, addresses, 3), 0);
    assert_unreachable(&view, memory, SIZE);
    assert_int_equal(registerLocalMemoryBatch(view.owner, good, 0, "*"), 0);
    assert_int_equal(unregisterLocalMemoryBatch(view.owner, addresses, 0), 0);
}

static void b17_unregister_wants_the_start_and_frees_the_address(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *memory = memory_new(SIZE);
    assert_int_equal(unregisterLocalMemory(engine, memory), ERR_ADDRESS_NOT_REGISTERED);
    for (size_t round = 1; round < 50; round++) {
        assert_int_equal(registerLocalMemory(engine, memory, SIZE / round, "*", 1), 0);
        assert_int_equal(unregisterLocalMemory(engine, memory + 1), ERR_ADDRESS_NOT_REGISTERED);
        assert_int_equal(unregisterLocalMemory(engine, memory + SIZE), ERR_ADDRESS_NOT_REGISTERED);
        assert_int_equal(unregisterLocalMemory(engine, memory), 0);
        assert_int_equal(unregisterLocalMemory(engine, memory), ERR_ADDRESS_NOT_REGISTERED);
    }
}

static void b18_destroy_with_registrations_and_batches_outstanding(void **state)
{
    (void)state;
    short_timeouts();
    for (int round = 0; round < 5; round++) {
        struct pair pair = pair_new(8 * MIB);
        memory_new_registered(pair.engine, SIZE);
        memory_new_registered(pair.engine, SIZE);
        for (size_t batch = 0; batch < 8; batch++)
            submit_one(pair.engine, (int)(batch % 2), pair.local + batch * MIB, pair.segment,
                       pair.remote.there + batch * MIB, MIB);
        batch_new(pair.engine, 1000);
        engine_delete(pair.engine);
    }
}

static void b19_and_report_c02_local_memory_need_not_be_registered(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    uint8_t *from_malloc = malloc(SIZE);
    assert_non_null(from_malloc);
    pattern_fill(from_malloc, SIZE, 4);
    assert_int_equal(transfer(pair.engine, WRITE, from_malloc, pair.segment, pair.remote.there, SIZE), COMPLETED);
    assert_pattern(pair.remote.here, SIZE, 4);
    memset(from_malloc, 0, SIZE);
    assert_int_equal(transfer(pair.engine, READ, from_malloc, pair.segment, pair.remote.there, SIZE), COMPLETED);
    assert_pattern(from_malloc, SIZE, 4);
    free(from_malloc);
    char constant[] = "on the stack";
    assert_int_equal(transfer(pair.engine, WRITE, constant, pair.segment, pair.remote.there, sizeof(constant)),
                     COMPLETED);
    assert_string_equal((char *)pair.remote.here, constant);
}

static void b20_a_range_must_lie_in_one_region(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(4 * SIZE);
    assert_int_equal(registerLocalMemory(view.owner, memory + SIZE, SIZE / 2, "*", 1), 0);
    assert_int_equal(registerLocalMemory(view.owner, memory + SIZE + SIZE / 2, SIZE / 2, "*", 1), 0);
    assert_reachable(&view, memory + SIZE, SIZE / 2);
    assert_reachable(&view, memory + SIZE + SIZE / 2 - 1, 1);
    assert_reachable(&view, memory + SIZE + SIZE / 2, SIZE / 2);
    assert_reachable(&view, memory + 2 * SIZE - 1, 1);
    assert_unreachable(&view, memory + SIZE, SIZE / 2 + 1); /* over the border of two */
    assert_unreachable(&view, memory + SIZE, SIZE);
    assert_unreachable(&view, memory + SIZE - 1, 1);
    assert_unreachable(&view, memory + SIZE - 1, 2);
    assert_unreachable(&view, memory + 2 * SIZE, 1);
    assert_unreachable(&view, memory + 2 * SIZE - 1, 2);
    assert_unreachable(&view, NULL, 1);
    assert_unreachable(&view, (void *)(uintptr_t)(UINT64_MAX - 10), 5);
}

/* ---- gaps that callers' suites leave ---- */

static void e03_bad_ranges_fail_while_others_of_the_batch_complete(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    struct view view = view_new();
    uint8_t *good = memory_new_registered(view.owner, SIZE);
    uint8_t *never = memory_new(SIZE);
    uint8_t *since = memory_new_registered(view.owner, SIZE);
    assert_reachable(&view, since, SIZE);
    assert_int_equal(unregisterLocalMemory(view.owner, since), 0);
    for (int opcode = READ; opcode <= WRITE; opcode++) {
        struct transfer_request requests[COUNT];
        batch_id_t batch = batch_new(view.visitor, COUNT);
        memset(never, 0x11, SIZE);
        memset(since, 0x22, SIZE);
        for (size_t index = 0; index < COUNT; index++) {
            uint8_t *bad = index % 4 == 1 ? never : since;
            size_t length = index % 4 == 3 ? SIZE + 1 : KIB; /* half registered */
            uint8_t *remote = index % 4 == 0 || index % 4 == 3 ? good : bad;
            requests[index] = request_of(opcode, view.local, view.segment, (uintptr_t)remote, length);
        }
        uint8_t *wide = memory_new(2 * SIZE);
        for (size_t index = 3; index < COUNT; index += 4)
            requests[index].source = wide;
        assert_int_equal(submitTransfer(view.visitor, batch, requests, COUNT), 0);
        for (size_t index = 0; index < COUNT; index++)
            assert_int_equal(finish(view.visitor, batch, index), index % 4 == 0 ? COMPLETED : FAILED);
        assert_int_equal(freeBatchID(view.visitor, batch), 0);
        assert_bytes(never, SIZE, 0x11);
        assert_bytes(since, SIZE, 0x22);
    }
}

static void e08_after_a_failed_batch_single_calls_succeed(void **state)
{
    (void)state;
    transfer_engine_t engine = engine_new();
    uint8_t *memory = memory_new(4 * SIZE);
    buffer_entry_t entries[] = {
        {memory, SIZE}, {memory + SIZE, SIZE}, {memory + 2 * SIZE, 0}, {memory + 3 * SIZE, SIZE}};
    assert_true(registerLocalMemoryBatch(engine, entries, 4, "*") < 0);
    for (size_t part = 0; part < 4; part++)
        assert_int_equal(unregisterLocalMemory(engine, memory + part * SIZE), ERR_ADDRESS_NOT_REGISTERED);
    for (size_t part = 0; part < 4; part++)
        assert_int_equal(registerLocalMemory(engine, memory + part * SIZE, SIZE, "*", 1), 0);
}

static void e13_two_gibibytes_in_one_request(void **state)
{
    (void)state;
    enum { CHUNK = 2 * MIB };
    watchdog(100);
    size_t times = under_sanitizer() ? 64 : 1024;
    size_t length = times * CHUNK;
    struct target *target = target_start();
    struct shared_memory remote = target_map_repeated(target, CHUNK, times); /* the same pages over and over */
    assert_int_equal(target_register(target, remote.there, length, 1), 0);
    transfer_engine_t engine = engine_new();
    uint8_t *local = reserve(length, PROT_READ); /* never written: reads as zero without taking memory */
    segment_id_t segment = engine_open(engine, target->name);
    memset(remote.here, 0x5a, CHUNK);
    size_t before = resident_bytes();
    batch_id_t batch = submit_one(engine, WRITE, local, segment, remote.there, length);
    assert_int_equal(finish(engine, batch, 0), COMPLETED);
    assert_int_equal(task_bytes(engine, batch, 0), length);
    assert_bytes(remote.here, CHUNK, 0);
    assert_true(under_sanitizer() || resident_bytes() < before + 64 * MIB);
    munmap(local, length);
}

/* ---- the contract and the bug reports ---- */

static void contract_and_report_r09_registration_refuses_nonsense(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(SIZE);
    assert_int_equal(registerLocalMemory(view.owner, memory, 0, "*", 1), ERR_INVALID_ARGUMENT);
    assert_int_equal(registerLocalMemory(view.owner, NULL, 10, "*", 1), ERR_INVALID_ARGUMENT);
    assert_int_equal(registerLocalMemory(view.owner, NULL, 0, "*", 1), ERR_INVALID_ARGUMENT);
    assert_int_equal(registerLocalMemory(view.owner, memory, SIZE_MAX, "*", 1), ERR_INVALID_ARGUMENT);
    assert_int_equal(registerLocalMemory(view.owner, (void *)UINTPTR_MAX, 2, "*", 1), ERR_INVALID_ARGUMENT);
    assert_string_not_equal(te_last_error(), "");
    assert_unreachable(&view, memory, 1);
    assert_works(view.owner);
}

static void contract_and_report_r10_local_only_memory_is_reached_by_no_peer(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    struct shared_memory hidden = target_map(pair.target, SIZE);
    buffer_entry_t buffers[4];
    size_t count = 4;
    assert_int_equal(target_register(pair.target, hidden.there, SIZE, 0), 0);
    memset(hidden.here, 0x33, SIZE);
    assert_int_equal(transfer(pair.engine, WRITE, pair.local, pair.segment, hidden.there, SIZE), FAILED);
    assert_int_equal(transfer(pair.engine, READ, pair.local, pair.segment, hidden.there, SIZE), FAILED);
    assert_bytes(hidden.here, SIZE, 0x33);
    assert_bytes(pair.local, SIZE, 0);
    assert_int_equal(te_remote_buffers(pair.engine, pair.segment, buffers, &count), 0);
    assert_int_equal(count, 1); /* it is not advertised either */
    assert_int_equal((uintptr_t)buffers[0].addr, pair.remote.there);
    /* Checked at the target, whoever asks. */
    for (int version = 0; version < 2; version++) {
        uint8_t body[16];
        int descriptor = raw_connect_data(pair.target->name);
        assert_true(descriptor >= 0);
        assert_true(raw_send_request(descriptor, version ? RAW_READ_V2 : RAW_READ_V1, hidden.there, sizeof(body)));
        if (version)
            assert_int_equal(raw_receive_status(descriptor), RAW_STATUS_REJECTED);
        assert_true(raw_at_end(descriptor));
        close(descriptor);
    }
    /* As local memory of its owner it is usable. */
    char name[NAME_SIZE];
    engine_name(pair.engine, name);
    uint8_t *mine = memory_new_registered(pair.engine, SIZE);
    assert_int_equal(target_transfer(pair.target, name, WRITE, hidden.there, (uintptr_t)mine, SIZE), COMPLETED);
    assert_int_equal(unregisterLocalMemory(pair.engine, mine), 0); /* nobody is in the middle of it any more */
    assert_bytes(mine, SIZE, 0x33);
}

static void s9_3_16_a_batch_unregister_with_one_unknown_address(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(4 * SIZE);
    for (size_t part = 0; part < 3; part++)
        assert_int_equal(registerLocalMemory(view.owner, memory + part * SIZE, SIZE, "*", 1), 0);
    void *addresses[] = {memory, memory + 3 * SIZE, memory + SIZE, memory + 2 * SIZE};
    assert_int_equal(unregisterLocalMemoryBatch(view.owner, addresses, 4), ERR_ADDRESS_NOT_REGISTERED);
    for (size_t part = 0; part < 3; part++)
        assert_unreachable(&view, memory + part * SIZE, SIZE);
    for (size_t part = 0; part < 4; part++) {
        assert_int_equal(registerLocalMemory(view.owner, memory + part * SIZE, SIZE, "*", 1), 0);
        assert_reachable(&view, memory + part * SIZE, SIZE);
    }
}

static void s9_2_11_many_registrations_stay_cheap(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    watchdog(60);
    struct view view = view_new();
    uint8_t *memory = reserve(COUNT * (size_t)4096, PROT_READ | PROT_WRITE);
    buffer_entry_t *entries = calloc(COUNT, sizeof(*entries));
    void **addresses = calloc(COUNT, sizeof(*addresses));
    assert_true(entries && addresses);
    for (size_t index = 0; index < COUNT; index++) {
        entries[index].addr = addresses[index] = memory + index * 4096;
        entries[index].length = 2048;
        if (index % 2 == 0)
            assert_int_equal(registerLocalMemory(view.owner, entries[index].addr, 2048, "*", 1), 0);
    }
    assert_reachable(&view, entries[COUNT - 2].addr, 2048);
    for (size_t index = 0; index < COUNT; index += 2)
        assert_int_equal(unregisterLocalMemory(view.owner, entries[index].addr), 0);
    assert_int_equal(registerLocalMemoryBatch(view.owner, entries, COUNT, "*"), 0);
    assert_reachable(&view, entries[COUNT - 1].addr, 2048);
    assert_unreachable(&view, (uint8_t *)entries[COUNT - 1].addr + 2047, 2);
    /* The descriptor is now longer than a reader takes: others cannot open it, those that have are not disturbed. */
    char name[NAME_SIZE];
    engine_name(view.owner, name);
    assert_true(openSegment(engine_new(), name) < 0);
    assert_reachable(&view, entries[0].addr, 2048);
    assert_int_equal(unregisterLocalMemoryBatch(view.owner, addresses, COUNT), 0);
    assert_true(openSegment(engine_new(), name) > 0);
    free(entries);
    free(addresses);
    munmap(memory, COUNT * (size_t)4096);
}

static void report_r01_threads_register_while_peers_read(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    struct registrar registrars[THREADS];
    struct view view = view_new();
    uint8_t *good = memory_new_registered(view.owner, SIZE);
    pthread_t threads[THREADS];
    watchdog(60);
    for (size_t index = 0; index < THREADS; index++) {
        registrars[index] = (struct registrar){.engine = view.owner, .memory = memory_new(8 * KIB)};
        assert_int_equal(pthread_create(&threads[index], NULL, register_and_unregister, &registrars[index]), 0);
    }
    for (int round = 0; round < 200; round++) {
        int status = visit(&view, READ, registrars[round % THREADS].memory, KIB);
        assert_true(status == COMPLETED || status == FAILED);
        assert_reachable(&view, good, SIZE);
    }
    for (size_t index = 0; index < THREADS; index++) {
        pthread_join(threads[index], NULL);
        assert_int_equal(registrars[index].bad, 0);
    }
}

static void report_r04_a_region_of_a_terabyte(void **state)
{
    (void)state;
    size_t size = under_sanitizer() ? 64 * GIB : (size_t)1 << 40;
    struct view view = view_new();
    uint8_t *memory = reserve(size, PROT_NONE);
    assert_int_equal(registerLocalMemory(view.owner, memory, size, "*", 1), 0);
    uint8_t *end = memory + size - SIZE;
    assert_int_equal(mprotect(end, SIZE, PROT_READ | PROT_WRITE), 0);
    assert_reachable(&view, end, SIZE);
    assert_unreachable(&view, end, SIZE + 1);
    assert_unreachable(&view, memory, SIZE); /* registered, but not accessible: the task fails, the target lives */
    assert_reachable(&view, end, SIZE);
    assert_int_equal(unregisterLocalMemory(view.owner, memory), 0);
    munmap(memory, size);
}

static void report_c11_read_only_memory_of_the_target(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *local = memory_new(3 * SIZE);
    uint8_t *memory = memory_new_registered(view.owner, 3 * SIZE);
    uint8_t *good = memory_new_registered(view.owner, SIZE);
    uint8_t *constant = memory + SIZE; /* the middle third */
    pattern_fill(memory, 3 * SIZE, 11);
    assert_int_equal(mprotect(constant, SIZE, PROT_READ), 0);
    for (uint64_t round = 0; round < 5; round++) {
        pattern_fill(local, 3 * SIZE, round);
        struct transfer_request requests[] = {
            request_of(WRITE, local, view.segment, (uintptr_t)good, KIB),
            request_of(WRITE, local, view.segment, (uintptr_t)constant, SIZE),
            request_of(WRITE, local, view.segment, (uintptr_t)memory, 3 * SIZE),
            request_of(WRITE, local, view.segment, (uintptr_t)(constant + 8), 1),
            request_of(WRITE, local, view.segment, (uintptr_t)(constant - 1), 2),
            request_of(WRITE, local + KIB, view.segment, (uintptr_t)(good + KIB), SIZE - KIB),
        };
        batch_id_t batch = batch_new(view.visitor, 6);
        assert_int_equal(submitTransfer(view.visitor, batch, requests, 6), 0);
        for (size_t task = 0; task < 6; task++)
            assert_int_equal(finish(view.visitor, batch, task), task == 0 || task == 5 ? COMPLETED : FAILED);
        assert_int_equal(freeBatchID(view.visitor, batch), 0);
        assert_pattern(good, SIZE, round);
        pattern_fill(memory, SIZE, 11); /* what comes before the constant part may have been written */
        assert_int_equal(transfer(view.visitor, READ, local, view.segment, (uintptr_t)memory, 3 * SIZE), COMPLETED);
        assert_pattern(local, 3 * SIZE, 11);
        assert_works(view.owner);
    }
    assert_int_equal(mprotect(constant, SIZE, PROT_READ | PROT_WRITE), 0);
    assert_reachable(&view, constant, SIZE);
}

static void report_r08_and_r12_an_error_means_that_nothing_is_registered(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(3 * SIZE);
    buffer_entry_t entries[] = {{memory, SIZE}, {memory + SIZE, SIZE}, {memory + 2 * SIZE, SIZE}};
    assert_int_equal(registerLocalMemory(view.owner, memory + SIZE + 5, 10, "*", 1), 0);
    assert_int_equal(registerLocalMemoryBatch(view.owner, entries, 3, "*"), ERR_ADDRESS_OVERLAPPED);
    assert_string_not_equal(te_last_error(), "");
    assert_unreachable(&view, memory, SIZE);
    assert_unreachable(&view, memory + 2 * SIZE, SIZE);
    assert_reachable(&view, memory + SIZE + 5, 10);
}

static void report_r13_remapped_memory_at_the_same_address(void **state)
{
    (void)state;
    struct view view = view_new();
    uint8_t *memory = memory_new(SIZE);
    pattern_fill(memory, SIZE, 1);
    assert_int_equal(registerLocalMemory(view.owner, memory, SIZE, "*", 1), 0);
    assert_int_equal(visit(&view, READ, memory, SIZE), COMPLETED);
    assert_pattern(view.local, SIZE, 1);
    /* Gone while registered: the transfer fails, nothing crashes. An inaccessible mapping in its place keeps other
     * threads from being given the addresses meanwhile. */
    map_over(memory, SIZE, PROT_NONE);
    assert_unreachable(&view, memory, SIZE);
    /* Other memory at the same address. */
    map_over(memory, SIZE, PROT_READ | PROT_WRITE);
    pattern_fill(memory, SIZE, 2);
    assert_int_equal(visit(&view, READ, memory, SIZE), COMPLETED);
    assert_pattern(view.local, SIZE, 2);
    assert_int_equal(unregisterLocalMemory(view.owner, memory), 0);
    assert_int_equal(registerLocalMemory(view.owner, memory, SIZE, "*", 1), 0);
    assert_reachable(&view, memory, SIZE);
}

static void report_r14_addresses_beyond_32_bits_of_pages(void **state)
{
    (void)state;
    size_t size = under_sanitizer() ? 64 * GIB : (size_t)10 << 40; /* more than 2^31 pages */
    transfer_engine_t engine = engine_new();
    uint8_t *memory = reserve(size, PROT_NONE);
    assert_int_equal(registerLocalMemory(engine, memory, size, "*", 1), 0);
    assert_int_equal(registerLocalMemory(engine, memory + size - 1, 1, "*", 1), ERR_ADDRESS_OVERLAPPED);
    assert_int_equal(unregisterLocalMemory(engine, memory), 0);
    munmap(memory, size);
}

static void report_m23_an_unregistered_region_is_published_no_more(void **state)
{
    (void)state;
    struct pair pair = pair_new(SIZE);
    buffer_entry_t buffers[2];
    size_t count = 2;
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), COMPLETED);
    assert_int_equal(target_unregister(pair.target, pair.remote.there), 0);
    memset(pair.remote.here, 0x44, SIZE);
    assert_int_equal(pair_transfer(&pair, WRITE, SIZE), FAILED);
    transfer_engine_t later = engine_new();
    segment_id_t segment = engine_open(later, pair.target->name);
    assert_int_equal(transfer(later, WRITE, pair.local, segment, pair.remote.there, SIZE), FAILED);
    assert_bytes(pair.remote.here, SIZE, 0x44);
    assert_int_equal(te_remote_buffers(later, segment, buffers, &count), 0);
    assert_int_equal(count, 0);
    uint64_t address = 1;
    assert_int_equal(te_first_buffer_address(later, pair.target->name, &address), ERR_ADDRESS_NOT_REGISTERED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(b16_registration_is_safe_from_many_threads),
        TEST(b16_pages_are_not_touched),
        TEST(b16_any_location_is_accepted),
        TEST(b17_and_report_r02_overlap_is_refused_and_the_first_stays),
        TEST(b17_adjacent_regions_are_legal),
        TEST(b17_a_batch_is_all_or_nothing),
        TEST(b17_unregister_wants_the_start_and_frees_the_address),
        TEST(b18_destroy_with_registrations_and_batches_outstanding),
        TEST(b19_and_report_c02_local_memory_need_not_be_registered),
        TEST(b20_a_range_must_lie_in_one_region),
        TEST(e03_bad_ranges_fail_while_others_of_the_batch_complete),
        TEST(e08_after_a_failed_batch_single_calls_succeed),
        TEST(e13_two_gibibytes_in_one_request),
        TEST(contract_and_report_r09_registration_refuses_nonsense),
        TEST(contract_and_report_r10_local_only_memory_is_reached_by_no_peer),
        TEST(s9_2_11_many_registrations_stay_cheap),
        TEST(s9_3_16_a_batch_unregister_with_one_unknown_address),
        TEST(report_r01_threads_register_while_peers_read),
        TEST(report_r04_a_region_of_a_terabyte),
        TEST(report_c11_read_only_memory_of_the_target),
        TEST(report_r08_and_r12_an_error_means_that_nothing_is_registered),
        TEST(report_r13_remapped_memory_at_the_same_address),
        TEST(report_r14_addresses_beyond_32_bits_of_pages),
        TEST(report_m23_an_unregistered_region_is_published_no_more),
    };
    return RUN_TESTS(tests, argc, argv);
}
