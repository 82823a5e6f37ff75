/*
 * The share is the ratio r = P / W of two sums over groups of windows. What group g has of the part beyond its due,
 * e_g = part_g - r × whole_g, is zero on average, and to first order r is off by the sum of e_g over W; so
 * Var r = G / (G - 1) × sum(e_g²) / W², with G - 1 degrees of freedom.
 *
 * r ± t × error would be wrong where it matters: a small part shows in few groups, and the less of it there is by chance,
 * the smaller its error looks. So the variance is told as the number n of independent draws with the same one,
 * r (1 - r) / Var, and the interval is Wilson's for n draws with t in place of the normal quantile: the shares whose own
 * error would explain r. A ratio that is no share has the like of it for a Poisson count of finds instead. Of a
 * part that was never seen (or always, alone) there is no spread; then a draw is a window.
 */

#include "estimate.h"

#include <math.h>

/* Student's t, two-sided 95 %, by degrees of freedom from 1. */
static const double student[MPP_N_GROUPS - 1] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                                 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};

/* No host allocates faster. */
#define FASTEST_ALLOCATION_NS 20.0

/* The normal's. */
#define NORMAL_QUANTILE 1.96

typedef struct {
    double part, whole;
    unsigned n_groups; /* with anything in them */
} sums_t;

static sums_t
add_up(const double *part, const double *whole)
{
    sums_t sums = {0};
    for (unsigned i = 0; i < MPP_N_GROUPS; i++) {
        sums.part += part[i];
        sums.whole += whole[i];
        sums.n_groups += whole[i] > 0;
    }
    return sums;
}

static double
share_variance(const double *part, const double *whole, const sums_t *sums, double share)
{
    double squares = 0;
    for (unsigned i = 0; i < MPP_N_GROUPS; i++) {
        double residual = part[i] - share * whole[i];
        squares += residual * residual;
    }
    return squares * sums->n_groups / (sums->n_groups - 1) / (sums->whole * sums->whole);
}

/* By what was not observed: none of it is the part's, or all. A ratio above 1 is not lowered by that. */
static void
widen(mpp_estimate_t *estimate, double unobserved)
{
    estimate->low *= 1 - unobserved;
    estimate->high += unobserved * fmax(1 - estimate->high, 0);
}

/* Wilson's interval for a share of n independent draws. */
static void
set_interval(mpp_estimate_t *estimate, double n, double t)
{
    double share = estimate->share, correction = t * t / n;
    double center = (share + correction / 2) / (1 + correction);
    double half = sqrt(correction * (share * (1 - share) + correction / 4)) / (1 + correction);
    /* Rounding takes no end beyond the share itself. */
    estimate->low = fmin(fmax(center - half, 0), share);
    estimate->high = fmax(fmin(center + half, 1), share);
}

mpp_estimate_t
mpp_estimate_share(const double *part, const double *whole, uint64_t n_windows, double unobserved)
{
    sums_t sums = add_up(part, whole);
    mpp_estimate_t estimate = {.share = sums.whole > 0 ? sums.part / sums.whole : 0, .high = 1,
                               .standard_error = INFINITY};
    if (sums.n_groups < 2) return estimate;

    double variance = share_variance(part, whole, &sums, estimate.share);
    double spread = estimate.share * (1 - estimate.share);
    double n_draws = spread > 0 && variance > 0 ? spread / variance : fmax((double)n_windows, 1);
    estimate.standard_error = sqrt(variance);
    set_interval(&estimate, n_draws, student[sums.n_groups - 2]);

    widen(&estimate, unobserved);
    return estimate;
}

/* The score interval of a Poisson count, told in what one find adds; `least`: that where nothing was found. */
static void
set_open_interval(mpp_estimate_t *estimate, double variance, double quantile, double least)
{
    double square = quantile * quantile;
    estimate->low = estimate->high = estimate->share;
    if (estimate->share <= 0) estimate->high = square * least;
    if (estimate->share <= 0 || variance <= 0) return;
    double find = variance / estimate->share;
    double center = estimate->share + square * find / 2;
    double half = quantile * sqrt(find * (estimate->share + square * find / 4));
    estimate->low = estimate->share * estimate->share / (center + half); /* center - half, without their digits lost */
    estimate->high = center + half;
}

mpp_estimate_t
mpp_estimate_ratio(const double *part, const double *whole, uint64_t n_windows, double unobserved)
{
    sums_t sums = add_up(part, whole);
    mpp_estimate_t estimate = {.share = sums.whole > 0 ? sums.part / sums.whole : 0, .high = INFINITY,
                               .standard_error = INFINITY};
    if (sums.n_groups < 2) return estimate;

    double variance = share_variance(part, whole, &sums, estimate.share);
    estimate.standard_error = sqrt(variance);
    set_open_interval(&estimate, variance, student[sums.n_groups - 2], 1 / fmax((double)n_windows, 1));
    widen(&estimate, unobserved);
    return estimate;
}

/* Each end is as far from the sum as chance takes the two together: the squares of their distances add up. */
mpp_estimate_t
mpp_estimate_add(mpp_estimate_t left, mpp_estimate_t right)
{
    double share = left.share + right.share;
    return (mpp_estimate_t){
        .share = share,
        .standard_error = hypot(left.standard_error, right.standard_error),
        .low = share - hypot(left.share - left.low, right.share - right.low),
        .high = share + hypot(left.high - left.share, right.high - right.share),
    };
}

mpp_estimate_t
mpp_estimate_sum(double sum, double variance, double least)
{
    mpp_estimate_t estimate = {.share = sum, .standard_error = sqrt(variance)};
    set_open_interval(&estimate, variance, NORMAL_QUANTILE, least);
    return estimate;
}

double
mpp_estimate_unobserved(double n_allocations, double event_weight, double missed_ns, const double *whole)
{
    sums_t sums = add_up(whole, whole);
    double squares = 0, mean = sums.whole / MPP_N_GROUPS;
    if (missed_ns <= 0 || n_allocations <= 0) return 0;
    for (unsigned i = 0; i < MPP_N_GROUPS; i++) squares += (whole[i] - mean) * (whole[i] - mean);

    double relative_error = mean > 0 ? sqrt(squares / (MPP_N_GROUPS - 1) / MPP_N_GROUPS) / mean : 1;
    double observed = event_weight / n_allocations * (1 - 2 * relative_error);
    double room = missed_ns / FASTEST_ALLOCATION_NS / n_allocations;
    return fmin(fmin(fmax(1 - observed, 0), room), 1);
}
