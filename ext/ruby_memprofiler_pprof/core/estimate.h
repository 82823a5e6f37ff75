#ifndef MPP_ESTIMATE_H
#define MPP_ESTIMATE_H

/*
 * How well a share is known that was sampled in windows. Windows, not samples, are what is independent: a window hits one
 * piece of the program and everything in it is alike. So windows are dealt in turn to MPP_N_GROUPS groups, each sum is
 * kept by group, and the spread of a part's share between the groups gives its standard error.
 */

#include "burst.h"

typedef struct {
    double ratio; /* of the part to the whole, or the sum */
    double standard_error;
    double low, high; /* 95 % interval, low is 0 or more */
} mpp_estimate_t;

/*
 * The ratio of a part whose sums by group are part[0 … MPP_N_GROUPS - 1] to a whole whose sums are whole[…], each in any
 * unit. n_windows: behind these sums; says how small a part may go unseen. `unobserved`: share of the whole that sampling
 * is known to have missed; it may belong to the part, wholly or not at all, and widens the interval upwards and downwards
 * accordingly. A whole of zero, or seen in one group only: ratio 0 or as seen, and no upper end but infinity. [any]
 */
mpp_estimate_t mpp_estimate_ratio(const double *part, const double *whole, uint64_t n_windows, double unobserved);

/* A sum of samples that are independent of each other, with the estimate of its variance; `least`: what one sample stands
 * for, which bounds a sum of none. [any] */
mpp_estimate_t mpp_estimate_sum(double sum, double variance, double least);

#endif
