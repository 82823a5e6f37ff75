#include "support.h"

#include "sampler.h"

#include <math.h>

static void
test_random_is_xoshiro256starstar(void **state)
{
    (void)state;
    /* The published first outputs for the state 1, 2, 3, 4. */
    const uint64_t expected[] = {UINT64_C(11520), UINT64_C(0), UINT64_C(1509978240), UINT64_C(1215971899390074240),
                                 UINT64_C(1216172134540287360)};
    mpp_random_t random = {{1, 2, 3, 4}};
    for (size_t i = 0; i < SUPPORT_LENGTH(expected); i++) assert_int_equal(mpp_random_next(&random), expected[i]);
}

static void
test_random_is_seeded_through_splitmix64(void **state)
{
    (void)state;
    /* The published first outputs for the seed 0. */
    const uint64_t expected[] = {UINT64_C(0xe220a8397b1dcdaf), UINT64_C(0x6e789e6aa1b965f4),
                                 UINT64_C(0x06c45d188009454f), UINT64_C(0xf88bb8a8724c81ec)};
    mpp_random_t random;
    mpp_random_init(&random, 0);
    for (size_t i = 0; i < SUPPORT_LENGTH(expected); i++) assert_int_equal(random.state[i], expected[i]);
}

static void
test_same_seed_same_gaps(void **state)
{
    (void)state;
    mpp_sampler_t left, right, other;
    int n_differences = 0;
    mpp_sampler_init(&left, 0.001, 42);
    mpp_sampler_init(&right, 0.001, 42);
    mpp_sampler_init(&other, 0.001, 43);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(left.gap, right.gap);
        n_differences += left.gap != other.gap;
        mpp_sampler_draw(&left);
        mpp_sampler_draw(&right);
        mpp_sampler_draw(&other);
    }
    assert_true(n_differences > 990);
}

static void
test_rate_1_samples_every_allocation(void **state)
{
    (void)state;
    mpp_sampler_t sampler;
    mpp_sampler_init(&sampler, 1, 7);
    assert_int_equal(sampler.weight, MPP_WEIGHT_ONE);
    for (int i = 0; i < 1000; i++) {
        assert_true(mpp_sampler_tick(&sampler));
        mpp_sampler_draw(&sampler);
    }
}

static void
test_tick_counts_the_gap_down(void **state)
{
    (void)state;
    mpp_sampler_t sampler;
    mpp_sampler_init(&sampler, 0.5, 7);
    sampler.gap = 3;
    for (int i = 0; i < 3; i++) assert_false(mpp_sampler_tick(&sampler));
    assert_true(mpp_sampler_tick(&sampler));
    assert_true(mpp_sampler_tick(&sampler));
}

static void
test_weight_is_the_inverse_rate_to_32_digits(void **state)
{
    (void)state;
    /* 2^32 / 0.7 = 6135667565.71, 2^32 / 0.3 = 14316557653.33, rounded to multiples of 2 and 4 */
    const struct {
        double rate;
        mpp_weight_t weight;
    } cases[] = {
        {0.5, 2 * MPP_WEIGHT_ONE},
        {0.7, UINT64_C(6135667566)},
        {0.3, UINT64_C(14316557652)},
        {0.01, 100 * MPP_WEIGHT_ONE},
        {MPP_SAMPLER_MIN_RATE, 1000000 * MPP_WEIGHT_ONE},
    };
    for (size_t i = 0; i < SUPPORT_LENGTH(cases); i++) {
        mpp_sampler_t sampler;
        mpp_sampler_init(&sampler, cases[i].rate, 0);
        assert_int_equal(sampler.weight, cases[i].weight);
    }
}

static void
test_huge_gaps_are_clamped(void **state)
{
    (void)state;
    mpp_sampler_t sampler;
    mpp_sampler_init(&sampler, MPP_SAMPLER_MIN_RATE, 1);
    sampler.inverse_log = -1e300;
    mpp_sampler_draw(&sampler);
    assert_int_equal(sampler.gap, UINT64_C(1) << 62);
}

/* Where all drawn bits are 0. */
static void
test_the_least_number_has_a_logarithm(void **state)
{
    (void)state;
    mpp_sampler_t sampler;
    mpp_sampler_init(&sampler, 0.5, 1);
    sampler.random = (mpp_random_t){{1, 0, 2, 3}};
    mpp_sampler_draw(&sampler);
    assert_in_range(sampler.gap, 52, 53);
}

static void
test_rates_at_the_edges(void **state)
{
    (void)state;
    mpp_sampler_t sampler;
    mpp_sampler_init(&sampler, nextafter(1, 0), 1);
    for (int i = 0; i < 1000; i++) {
        assert_true(sampler.gap <= 1);
        mpp_sampler_draw(&sampler);
    }
    /* The least that can be drawn is 2^-53, whose logarithm is -36.7. */
    mpp_sampler_init(&sampler, MPP_SAMPLER_MIN_RATE, 1);
    for (int i = 0; i < 100000; i++) {
        assert_true(sampler.gap < 37000000);
        mpp_sampler_draw(&sampler);
    }
}

/*
 * The statistical tests take the way of drawing as an argument: what they accept of the sampler they must refuse of the
 * two biased ones. All are seeded, so they give the same answer every time; a bound of z standard errors is what a
 * right sampler with another seed would exceed about once in 10^4 (z = 4) or 10^6 (z = 5) times.
 */
typedef void (*draw_t)(mpp_sampler_t *sampler);

/* The classic mistake: 1 is the least gap, for geometric variables are often defined to start at 1. */
static void
draw_one_too_many(mpp_sampler_t *sampler)
{
    mpp_sampler_draw(sampler);
    sampler->gap++;
}

/* Every (1 / p)-th allocation: the total comes out right, but not what a periodic program does. */
static void
draw_fixed_period(mpp_sampler_t *sampler)
{
    sampler->gap = (uint64_t)(1 / sampler->rate + 0.5) - 1;
}

static double
mean_gap_error(draw_t draw, double rate, int n)
{
    mpp_sampler_t sampler;
    double sum = 0;
    mpp_sampler_init(&sampler, rate, 2024);
    for (int i = 0; i < n; i++) {
        draw(&sampler);
        sum += (double)sampler.gap;
    }
    return fabs(sum / n - (1 - rate) / rate) / (sqrt(1 - rate) / rate / sqrt(n));
}

static void
test_mean_gap(void **state)
{
    (void)state;
    const double rates[] = {0.9, 0.5, 0.1, 0.01, 0.001, MPP_SAMPLER_MIN_RATE};
    for (size_t i = 0; i < SUPPORT_LENGTH(rates); i++) {
        assert_true(mean_gap_error(mpp_sampler_draw, rates[i], 200000) < 4);
    }
    assert_true(mean_gap_error(draw_one_too_many, 0.1, 200000) > 20);
}

/* P(gap >= edge) */
static double
tail(double rate, double edge)
{
    return exp(edge * log1p(-rate));
}

/*
 * The distribution of gaps against the geometric one, in bins of about equal probability. Gives (chi² - d) / sqrt(2 d), d
 * the degrees of freedom.
 */
static double
gap_distribution_error(draw_t draw, double rate)
{
    enum { MAX_BINS = 20, N_DRAWS = 100000 };
    double edges[MAX_BINS + 1] = {0};
    int counts[MAX_BINS] = {0};
    int n_bins = 0;
    for (int i = 1; i < MAX_BINS; i++) {
        double edge = ceil(log1p(-(double)i / MAX_BINS) / log1p(-rate));
        if (edge > edges[n_bins]) edges[++n_bins] = edge;
    }
    edges[++n_bins] = INFINITY;

    mpp_sampler_t sampler;
    mpp_sampler_init(&sampler, rate, 99);
    for (int i = 0; i < N_DRAWS; i++) {
        int bin = 0;
        draw(&sampler);
        while ((double)sampler.gap >= edges[bin + 1]) bin++;
        counts[bin]++;
    }
    double chi_square = 0;
    for (int i = 0; i < n_bins; i++) {
        double expected = N_DRAWS * (tail(rate, edges[i]) - tail(rate, edges[i + 1]));
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return (chi_square - (n_bins - 1)) / sqrt(2.0 * (n_bins - 1));
}

static void
test_distribution_of_gaps(void **state)
{
    (void)state;
    const double rates[] = {0.5, 0.1, 0.01, 0.001, MPP_SAMPLER_MIN_RATE};
    for (size_t i = 0; i < SUPPORT_LENGTH(rates); i++) {
        assert_true(gap_distribution_error(mpp_sampler_draw, rates[i]) < 5);
    }
    assert_true(gap_distribution_error(draw_one_too_many, 0.01) > 20);
    assert_true(gap_distribution_error(draw_fixed_period, 0.01) > 1000);
}

/*
 * A program whose every 100th allocation is of a class of its own, run with many seeds; both totals are estimated by the
 * sum of weights. In standard errors over all runs: how far the mean estimates are off.
 */
typedef struct {
    double all;
    double periodic;
} estimate_errors_t;

static double
standard_error(double n, double rate)
{
    return sqrt(n * (1 - rate) / rate);
}

static estimate_errors_t
estimate(draw_t draw, double rate)
{
    enum { N_SEEDS = 1000, N_ALLOCATIONS = 50000, PERIOD = 100 };
    mpp_sum_t all = 0, periodic = 0;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        mpp_sampler_t sampler;
        mpp_sampler_init(&sampler, rate, seed);
        draw(&sampler);
        for (int i = 1; i <= N_ALLOCATIONS; i++) {
            if (!mpp_sampler_tick(&sampler)) continue;
            all += sampler.weight;
            if (i % PERIOD == 0) periodic += sampler.weight;
            draw(&sampler);
        }
    }
    double n_all = (double)N_SEEDS * N_ALLOCATIONS, n_periodic = n_all / PERIOD;
    return (estimate_errors_t){
        fabs((double)all / (double)MPP_WEIGHT_ONE - n_all) / standard_error(n_all, rate),
        fabs((double)periodic / (double)MPP_WEIGHT_ONE - n_periodic) / standard_error(n_periodic, rate),
    };
}

static void
test_totals_are_unbiased(void **state)
{
    (void)state;
    estimate_errors_t errors = estimate(mpp_sampler_draw, 0.01);
    assert_true(errors.all < 4);
    assert_true(errors.periodic < 4);
}

static void
test_a_biased_sampler_is_caught(void **state)
{
    (void)state;
    assert_true(estimate(draw_one_too_many, 0.01).all > 5);
    assert_true(estimate(draw_fixed_period, 0.01).periodic > 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_is_xoshiro256starstar),
        cmocka_unit_test(test_random_is_seeded_through_splitmix64),
        cmocka_unit_test(test_same_seed_same_gaps),
        cmocka_unit_test(test_rate_1_samples_every_allocation),
        cmocka_unit_test(test_tick_counts_the_gap_down),
        cmocka_unit_test(test_weight_is_the_inverse_rate_to_32_digits),
        cmocka_unit_test(test_huge_gaps_are_clamped),
        cmocka_unit_test(test_the_least_number_has_a_logarithm),
        cmocka_unit_test(test_rates_at_the_edges),
        cmocka_unit_test(test_mean_gap),
        cmocka_unit_test(test_distribution_of_gaps),
        cmocka_unit_test(test_totals_are_unbiased),
        cmocka_unit_test(test_a_biased_sampler_is_caught),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
