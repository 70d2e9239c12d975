#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tools/latency.h"

static struct te_latency *new_latency(void)
{
    struct te_latency *latency = calloc(1, sizeof(*latency));
    assert_non_null(latency);
    return latency;
}

static void assert_close(double found, double wanted)
{
    assert_true(found >= wanted * 0.99 && found <= wanted * 1.01);
}

static void every_duration_is_kept_to_one_percent(void **state)
{
    (void)state;
    for (int64_t nanoseconds = 1; nanoseconds < INT64_MAX / 3; nanoseconds = nanoseconds * 3 / 2 + 1) {
        struct te_latency *latency = new_latency();
        te_latency_add(latency, nanoseconds);
        te_latency_add(latency, nanoseconds);
        assert_close(te_latency_quantile_ns(latency, 0.5), (double)nanoseconds);
        assert_int_equal(latency->maximum_ns, nanoseconds);
        free(latency);
    }
}

static void the_largest_and_impossible_durations_are_taken(void **state)
{
    struct te_latency *latency = new_latency();
    (void)state;
    te_latency_add(latency, INT64_MAX);
    te_latency_add(latency, -5);
    assert_int_equal(latency->count, 2);
    assert_int_equal(latency->maximum_ns, INT64_MAX);
    assert_true(te_latency_quantile_ns(latency, 0.1) == 0);
    free(latency);
}

static void quantiles_split_the_durations(void **state)
{
    struct te_latency *latency = new_latency();
    (void)state;
    for (int64_t i = 1; i <= 10000; i++)
        te_latency_add(latency, i * 1000);
    assert_close(te_latency_quantile_ns(latency, 0.5), 5000e3);
    assert_close(te_latency_quantile_ns(latency, 0.99), 9900e3);
    assert_close(te_latency_quantile_ns(latency, 0.999), 9990e3);
    assert_true(te_latency_quantile_ns(latency, 1) == 10000e3);
    free(latency);
}

static void an_empty_one_says_zero(void **state)
{
    struct te_latency *latency = new_latency();
    (void)state;
    assert_true(te_latency_quantile_ns(latency, 0.5) == 0);
    free(latency);
}

static void merging_adds_up(void **state)
{
    struct te_latency *left = new_latency(), *right = new_latency();
    (void)state;
    for (int i = 0; i < 100; i++)
        te_latency_add(left, 10000);
    for (int i = 0; i < 300; i++)
        te_latency_add(right, 90000);
    te_latency_merge(left, right);
    assert_int_equal(left->count, 400);
    assert_int_equal(left->maximum_ns, 90000);
    assert_close(te_latency_quantile_ns(left, 0.2), 10000);
    assert_close(te_latency_quantile_ns(left, 0.5), 90000);
    free(left);
    free(right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_duration_is_kept_to_one_percent),
        cmocka_unit_test(the_largest_and_impossible_durations_are_taken),
        cmocka_unit_test(quantiles_split_the_durations),
        cmocka_unit_test(an_empty_one_says_zero),
        cmocka_unit_test(merging_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
