/* What a view of a segment knows of the owner's regions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/segment_private.h"

static bool memory_is_short;

/* GLib's allocator that may fail, as the library sees it. */
gpointer g_try_malloc_n(gsize count, gsize bytes)
{
    return memory_is_short ? NULL : calloc(count, bytes);
}

static struct te_segment_table table;
static struct te_segment segment = {.table = &table};

static struct te_segment_view *view_of(const struct te_range *ranges, size_t count)
{
    struct te_segment_descriptor *descriptor = te_segment_descriptor_new();
    struct te_segment_view *view;

    descriptor->buffers = g_new0(struct te_segment_buffer, count);
    descriptor->buffer_count = count;
    for (size_t i = 0; i < count; i++) {
        descriptor->buffers[i].address = ranges[i].address;
        descriptor->buffers[i].length = ranges[i].length;
    }
    view = te_segment_view_new(&segment, descriptor);
    te_segment_descriptor_unref(descriptor);
    return view;
}

static const struct te_range three[] = {{0x3000, 0x1000}, {0x1000, 0x1000}, {0x2000, 0x1000}};

static void a_range_is_covered_by_one_region_only(void **state)
{
    struct te_segment_view *view = view_of(three, G_N_ELEMENTS(three));

    (void)state;
    assert_true(te_segment_view_covers(view, 0x1000, 0x1000));
    assert_true(te_segment_view_covers(view, 0x2001, 0xfff));
    assert_true(te_segment_view_covers(view, 0x3fff, 1));
    assert_false(te_segment_view_covers(view, 0xfff, 1));
    assert_false(te_segment_view_covers(view, 0x1fff, 2));
    assert_false(te_segment_view_covers(view, 0x4000, 1));
    assert_false(te_segment_view_covers(view, 0x3001, UINT64_MAX));
    te_segment_view_unref(view);
}

static void without_memory_nothing_is_covered(void **state)
{
    struct te_segment_view *view;

    (void)state;
    memory_is_short = true;
    view = view_of(three, G_N_ELEMENTS(three));
    memory_is_short = false;
    assert_int_equal(view->descriptor->buffer_count, G_N_ELEMENTS(three));
    assert_false(te_segment_view_covers(view, 0x1000, 0x1000));
    te_segment_view_unref(view);
}

static void a_segment_without_regions_covers_nothing(void **state)
{
    struct te_segment_view *view = view_of(NULL, 0);

    (void)state;
    assert_false(te_segment_view_covers(view, 0x1000, 1));
    te_segment_view_unref(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_covered_by_one_region_only),
        cmocka_unit_test(without_memory_nothing_is_covered),
        cmocka_unit_test(a_segment_without_regions_covers_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
