#ifndef MPP_ESTIMATE_H
#define MPP_ESTIMATE_H

/*
 * How well a share is known that was sampled in windows. Windows, not samples, are what is independent: a window hits one
 * piece of the program and everything in it is alike. So windows are dealt in turn to MPP_N_GROUPS groups, each sum is
 * kept by group, and the spread of a part's share between the groups gives its standard error.
 */

#include "burst.h"

typedef struct {
    double share;          /* of the part in the whole, or what else was asked for */
    double standard_error;
    double low, high; /* 95 % interval; of a share within 0 … 1 */
} mpp_estimate_t;

/*
 * The share of a part whose sums by group are part[0 … MPP_N_GROUPS - 1] in a whole whose sums are whole[…] (part is
 * included in whole), in any unit. n_windows: behind these sums; says how small a part may go unseen. `unobserved`: share
 * of the whole that sampling is known to have missed; it may belong to the part, wholly or not at all, and widens the
 * interval upwards and downwards accordingly. A whole of zero, or seen in one group only: an error of
 * infinity, interval 0 … 1. [any]
 */
mpp_estimate_t mpp_estimate_share(const double *part, const double *whole, uint64_t n_windows, double unobserved);

/* The same where the part is not of the whole's kind (bytes to objects), so that it may be more than the whole, and where
 * nothing is known infinitely more. [any] */
mpp_estimate_t mpp_estimate_ratio(const double *part, const double *whole, uint64_t n_windows, double unobserved);

/* The sum of two that are independent of each other and in the same unit. [any] */
mpp_estimate_t mpp_estimate_add(mpp_estimate_t left, mpp_estimate_t right);

/* A sum over samples that are independent of each other, with the estimate of its variance; `least`: what one sample
 * stands for, which bounds a sum of none. [any] */
mpp_estimate_t mpp_estimate_sum(double sum, double variance, double least);

/*
 * What share of n_allocations (the host's own count) sampling has not observed, at most: what their estimate falls short of
 * the count by, and two of its standard errors; but no more than missed_ns has room for. event_weight (in allocations) and
 * missed_ns as in mpp_burst_totals_t; whole: sums by group; all for the same stretch of time. 0 … 1. [any]
 */
double mpp_estimate_unobserved(double n_allocations, double event_weight, double missed_ns, const double *whole);

#endif
