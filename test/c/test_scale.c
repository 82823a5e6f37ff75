#include "support.h"

#include "scale.h"

#include <math.h>

/* 1,000 allocations in the prelude and 9,000 after it, of which windows have found too many. */
static mpp_scale_t
usual(void)
{
    mpp_scale_t scale = {
        .allocated = 10000,
        .n_windows = 32,
        .n_prelude_samples = 12,
        .n_prelude_events = 1000,
        .event_weight = (mpp_sum_t)10500 << MPP_WEIGHT_BITS,
    };
    for (unsigned i = 0; i < MPP_N_GROUPS; i++) scale.weight[i] = (mpp_sum_t)750 << MPP_WEIGHT_BITS;
    scale.weight[MPP_PRELUDE] = (mpp_sum_t)1200 << MPP_WEIGHT_BITS;
    return scale;
}

static bool
near(double value, double expected)
{
    return fabs(value - expected) < 1e-9 * fmax(fabs(expected), 1);
}

/* Scaled, all samples add up to what the host has counted. */
static void
assert_adds_up(const mpp_scale_t *scale)
{
    mpp_factors_t factors = mpp_scale_factors(scale);
    double sum = 0;
    for (unsigned i = 0; i < MPP_N_ORIGINS; i++) {
        double factor = i == MPP_PRELUDE ? factors.prelude : factors.windows;
        sum += (double)scale->weight[i] / (double)MPP_WEIGHT_ONE * factor;
    }
    assert_true(near(sum, (double)mpp_scale_seen(scale)));
    assert_true(near(mpp_scale_weight(scale) * mpp_scale_factor(scale), (double)mpp_scale_seen(scale)));
    assert_true(near(mpp_scale_in_windows(scale) + mpp_scale_in_prelude(scale), (double)mpp_scale_seen(scale)));
}

static void
test_each_origin_has_its_own_scale(void **state)
{
    (void)state;
    mpp_scale_t scale = usual();
    mpp_factors_t factors = mpp_scale_factors(&scale);
    assert_true(near(factors.windows, 9000 / 12000.0) && near(factors.prelude, 1000 / 1200.0));
    assert_true(mpp_scale_unobserved(&scale) == 0);
    assert_adds_up(&scale);
}

/* Then these stand for all, and what came after the prelude has not been seen. */
static void
test_without_windows_the_prelude_stands_for_all(void **state)
{
    (void)state;
    mpp_scale_t scale = usual();
    for (unsigned i = 0; i < MPP_N_GROUPS; i++) scale.weight[i] = 0;
    mpp_factors_t factors = mpp_scale_factors(&scale);
    assert_true(factors.windows == 0 && near(factors.prelude, 10000 / 1200.0));
    assert_true(near(mpp_scale_unobserved(&scale), 0.9));
    assert_adds_up(&scale);
}

static void
test_without_a_sample_of_the_prelude_windows_stand_for_all(void **state)
{
    (void)state;
    mpp_scale_t scale = usual();
    scale.weight[MPP_PRELUDE] = scale.n_prelude_samples = 0;
    mpp_factors_t factors = mpp_scale_factors(&scale);
    assert_true(factors.prelude == 0 && near(factors.windows, 10000 / 12000.0));
    assert_adds_up(&scale);
}

static void
test_nothing_scales_to_nothing(void **state)
{
    (void)state;
    mpp_scale_t scale = {.allocated = 0};
    mpp_factors_t factors = mpp_scale_factors(&scale);
    assert_true(factors.prelude == 0 && factors.windows == 0 && mpp_scale_factor(&scale) == 0);
    assert_true(mpp_scale_unobserved(&scale) == 0);
    scale.allocated = 5;
    factors = mpp_scale_factors(&scale);
    assert_true(factors.prelude == 0 && factors.windows == 0 && mpp_scale_factor(&scale) == 0);
    assert_true(mpp_scale_unobserved(&scale) == 1);
}

/* What events stand for; never more than the host has counted. */
static void
test_other_ractors_are_left_out(void **state)
{
    (void)state;
    mpp_scale_t scale = usual();
    scale.n_unseen = 2500;
    assert_int_equal(mpp_scale_seen(&scale), 7500);
    assert_adds_up(&scale);
    assert_true(near(mpp_scale_factors(&scale).prelude, 1000 / 1200.0)); /* not of those that it has seen */
    scale.n_unseen = 20000;
    assert_int_equal(mpp_scale_seen(&scale), 0);
    scale.n_unseen = 0;
    scale.n_elsewhere = 1;
    assert_int_equal(mpp_scale_seen(&scale), 10000);
    scale.event_weight = (mpp_sum_t)4000 << MPP_WEIGHT_BITS;
    assert_int_equal(mpp_scale_seen(&scale), 4000);
    assert_adds_up(&scale);
    scale.event_weight = (mpp_sum_t)900 << MPP_WEIGHT_BITS; /* less than the prelude's: events may be in other flushes */
    assert_adds_up(&scale);
}

static void
test_what_is_given_out_can_be_given_back(void **state)
{
    (void)state;
    mpp_scale_t sum = usual(), part = usual();
    sum.n_unseen = part.n_unseen = 7;
    mpp_scale_add(&sum, &part);
    assert_int_equal(sum.allocated, 20000);
    assert_int_equal(sum.n_windows, 64);
    assert_int_equal(sum.n_prelude_samples, 24);
    assert_int_equal(sum.n_prelude_events, 2000);
    assert_int_equal(sum.n_unseen, 14);
    assert_true(near(mpp_scale_weight(&sum), 2 * mpp_scale_weight(&part)));
    mpp_scale_subtract(&sum, &part);
    mpp_scale_subtract(&sum, &part);
    const mpp_scale_t none = {0};
    assert_memory_equal(&sum, &none, sizeof sum);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_origin_has_its_own_scale),
        cmocka_unit_test(test_without_windows_the_prelude_stands_for_all),
        cmocka_unit_test(test_without_a_sample_of_the_prelude_windows_stand_for_all),
        cmocka_unit_test(test_nothing_scales_to_nothing),
        cmocka_unit_test(test_other_ractors_are_left_out),
        cmocka_unit_test(test_what_is_given_out_can_be_given_back),
    };
    return cmocka_run_group_tests_name("scale", tests, NULL, NULL);
}
