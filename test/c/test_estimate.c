#include "support.h"

#include "estimate.h"

#include <math.h>

#define G MPP_N_GROUPS

static bool
near(double value, double expected)
{
    return fabs(value - expected) < 0.0005;
}

static void
test_nothing_seen_says_nothing(void **state)
{
    (void)state;
    const double none[G] = {0};
    mpp_estimate_t estimate = mpp_estimate_share(none, none, 0, 0);
    assert_true(estimate.share == 0 && estimate.low == 0 && estimate.high == 1 && isinf(estimate.standard_error));
}

static void
test_one_group_says_nothing_but_the_share(void **state)
{
    (void)state;
    const double part[G] = {0, 3}, whole[G] = {0, 4};
    mpp_estimate_t estimate = mpp_estimate_share(part, whole, 1, 0);
    assert_true(estimate.share == 0.75 && estimate.low == 0 && estimate.high == 1 && isinf(estimate.standard_error));
    estimate = mpp_estimate_ratio(part, whole, 1, 0);
    assert_true(estimate.share == 0.75 && estimate.low == 0 && isinf(estimate.high) && isinf(estimate.standard_error));
}

/* A part may be larger for its count than the whole is: what was not observed is no reason to take it for less. */
static void
test_a_ratio_above_one_stays_within_its_interval(void **state)
{
    (void)state;
    double part[G], whole[G];
    for (unsigned i = 0; i < G; i++) {
        whole[i] = 10;
        part[i] = i % 2 ? 31 : 29;
    }
    mpp_estimate_t known = mpp_estimate_ratio(part, whole, 100, 0), unsure = mpp_estimate_ratio(part, whole, 100, 0.5);
    assert_true(near(known.share, 3) && known.low < 3 && known.high > 3);
    assert_true(unsure.low < known.low && unsure.high >= known.high);
}

/* However little is known of a sum. */
static void
test_a_sum_of_a_great_variance_stays_within_its_interval(void **state)
{
    (void)state;
    for (double variance = 1e-6; variance < 1e30; variance *= 7) {
        mpp_estimate_t estimate = mpp_estimate_sum(1.7, variance, 1);
        assert_true(estimate.low > 0 && estimate.low < 1.7 && estimate.high > 1.7);
    }
}

/* Residuals of ± 2 in each of 16 groups: variance 16 × 4 × 16/15 / 160². */
static void
test_the_error_is_the_spread_between_groups(void **state)
{
    (void)state;
    double part[G], whole[G];
    for (unsigned i = 0; i < G; i++) {
        whole[i] = 10;
        part[i] = i % 2 ? 7 : 3;
    }
    mpp_estimate_t estimate = mpp_estimate_share(part, whole, 100, 0);
    assert_true(near(estimate.share, 0.5));
    assert_true(near(estimate.standard_error, 0.0516));
    /* Wilson's for n = 0.25 / 0.0516² = 93.75 and t = 2.131 */
    assert_true(near(estimate.low, 0.3925));
    assert_true(near(estimate.high, 0.6075));
}

/* Chance: a draw is a window then. */
static void
test_groups_that_are_all_alike_are_no_proof(void **state)
{
    (void)state;
    double part[G], whole[G];
    for (unsigned i = 0; i < G; i++) {
        whole[i] = 1 << i;
        part[i] = whole[i] / 4;
    }
    mpp_estimate_t estimate = mpp_estimate_share(part, whole, 1000, 0);
    assert_true(near(estimate.low, 0.2220) && near(estimate.high, 0.2802));
}

/* 0 of n: Wilson's upper bound is t² / (n + t²). */
static void
test_a_part_never_seen_may_be_a_few_windows(void **state)
{
    (void)state;
    double part[G] = {0}, whole[G];
    for (unsigned i = 0; i < G; i++) whole[i] = 1;
    mpp_estimate_t estimate = mpp_estimate_share(part, whole, 1000, 0);
    assert_true(estimate.share == 0 && estimate.standard_error == 0 && estimate.low == 0);
    assert_true(near(estimate.high, 0.00452));
    estimate = mpp_estimate_share(whole, whole, 1000, 0);
    assert_true(estimate.share == 1 && estimate.high == 1);
    assert_true(near(estimate.low, 1 - 0.00452));
    estimate = mpp_estimate_share(part, whole, 0, 0);
    assert_true(estimate.high > 0.8 && estimate.high < 1);
}

/* Seen in one group of 16: about one draw that was a hit. */
static void
test_a_part_seen_once_is_known_to_a_factor(void **state)
{
    (void)state;
    double part[G] = {0.16}, whole[G];
    for (unsigned i = 0; i < G; i++) whole[i] = 1;
    mpp_estimate_t estimate = mpp_estimate_share(part, whole, 1000, 0);
    assert_true(near(estimate.share, 0.01));
    assert_true(estimate.low > 0 && estimate.low < 0.003);
    assert_true(estimate.high > 0.03 && estimate.high < 0.08);
}

static void
test_few_groups_are_few_degrees_of_freedom(void **state)
{
    (void)state;
    const double part[G] = {1, 2}, whole[G] = {3, 3}, doubled_part[G] = {1, 2, 1, 2}, doubled[G] = {3, 3, 3, 3};
    mpp_estimate_t two = mpp_estimate_share(part, whole, 2, 0);
    mpp_estimate_t four = mpp_estimate_share(doubled_part, doubled, 4, 0);
    assert_true(two.high - two.low > 0.85);
    assert_true(four.high - four.low < 0.6);
}

static void
test_what_was_not_observed_may_be_the_part_or_not(void **state)
{
    (void)state;
    double part[G], whole[G];
    for (unsigned i = 0; i < G; i++) {
        whole[i] = 4;
        part[i] = 1;
    }
    mpp_estimate_t estimate = mpp_estimate_share(part, whole, 1000000000, 0.2);
    assert_true(near(estimate.share, 0.25) && near(estimate.low, 0.2) && near(estimate.high, 0.4));
    estimate = mpp_estimate_share(part, whole, 1000, 1);
    assert_true(estimate.low == 0 && estimate.high == 1);
}

/* Groups of 100 ± 1: an error of the mean of 0.26 %. */
static void
test_what_was_not_observed_is_bounded(void **state)
{
    (void)state;
    double whole[MPP_N_GROUPS];
    for (unsigned i = 0; i < MPP_N_GROUPS; i++) whole[i] = i % 2 ? 99 : 101;
    assert_true(mpp_estimate_unobserved(2000, 1600, 0, whole) == 0);
    assert_true(fabs(mpp_estimate_unobserved(2000, 1600, 1e9, whole) - (1 - 0.8 * (1 - 2 * 0.0026))) < 0.0001);
    assert_true(mpp_estimate_unobserved(2000, 2600, 1e9, whole) == 0);
    assert_true(fabs(mpp_estimate_unobserved(2000, 1600, 2000, whole) - 0.05) < 1e-9);
    const double nothing[MPP_N_GROUPS] = {0};
    assert_true(mpp_estimate_unobserved(2000, 0, 1e9, nothing) == 1);
    assert_true(mpp_estimate_unobserved(0, 0, 1e9, nothing) == 0);
}

/* And of none of it, however many windows there were. */
static void
test_a_share_of_all_is_in_its_interval(void **state)
{
    (void)state;
    double whole[G], none[G] = {0};
    for (unsigned i = 0; i < G; i++) whole[i] = 1 + i / 3.0;
    for (uint64_t n_windows = 1; n_windows < 5000; n_windows++) {
        mpp_estimate_t all = mpp_estimate_share(whole, whole, n_windows, 0);
        assert_true(all.share == 1 && all.high == 1 && all.low < 1);
        mpp_estimate_t nothing = mpp_estimate_share(none, whole, n_windows, 0);
        assert_true(nothing.share == 0 && nothing.low == 0 && nothing.high > 0);
    }
}

/* 3-4-5: what each may be off by, downwards and upwards. */
static void
test_estimates_add_up(void **state)
{
    (void)state;
    mpp_estimate_t left = {10, 1.5, 7, 14}, right = {100, 2, 96, 103};
    mpp_estimate_t sum = mpp_estimate_add(left, right);
    assert_true(near(sum.share, 110) && near(sum.standard_error, 2.5) && near(sum.low, 105) && near(sum.high, 115));
    mpp_estimate_t unknown = {0, INFINITY, 0, INFINITY};
    sum = mpp_estimate_add(left, unknown);
    assert_true(near(sum.share, 10) && isinf(sum.standard_error) && near(sum.low, 7) && isinf(sum.high));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_seen_says_nothing),
        cmocka_unit_test(test_one_group_says_nothing_but_the_share),
        cmocka_unit_test(test_a_ratio_above_one_stays_within_its_interval),
        cmocka_unit_test(test_a_sum_of_a_great_variance_stays_within_its_interval),
        cmocka_unit_test(test_the_error_is_the_spread_between_groups),
        cmocka_unit_test(test_groups_that_are_all_alike_are_no_proof),
        cmocka_unit_test(test_a_part_never_seen_may_be_a_few_windows),
        cmocka_unit_test(test_a_part_seen_once_is_known_to_a_factor),
        cmocka_unit_test(test_few_groups_are_few_degrees_of_freedom),
        cmocka_unit_test(test_what_was_not_observed_may_be_the_part_or_not),
        cmocka_unit_test(test_what_was_not_observed_is_bounded),
        cmocka_unit_test(test_a_share_of_all_is_in_its_interval),
        cmocka_unit_test(test_estimates_add_up),
    };
    return cmocka_run_group_tests_name("estimate", tests, NULL, NULL);
}
