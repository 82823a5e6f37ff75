#include "scale.h"

#include "estimate.h"

#include <math.h>

void
mpp_scale_add(mpp_scale_t *sum, const mpp_scale_t *other)
{
    sum->allocated += other->allocated;
    sum->n_windows += other->n_windows;
    sum->n_prelude_samples += other->n_prelude_samples;
    sum->n_prelude_events += other->n_prelude_events;
    sum->event_weight += other->event_weight;
    sum->missed_ns += other->missed_ns;
    sum->n_unseen += other->n_unseen;
    sum->n_elsewhere += other->n_elsewhere;
    for (size_t i = 0; i < MPP_N_ORIGINS; i++) sum->weight[i] += other->weight[i];
}

void
mpp_scale_subtract(mpp_scale_t *sum, const mpp_scale_t *other)
{
    sum->allocated -= other->allocated;
    sum->n_windows -= other->n_windows;
    sum->n_prelude_samples -= other->n_prelude_samples;
    sum->n_prelude_events -= other->n_prelude_events;
    sum->event_weight -= other->event_weight;
    sum->missed_ns -= other->missed_ns;
    sum->n_unseen -= other->n_unseen;
    sum->n_elsewhere -= other->n_elsewhere;
    for (size_t i = 0; i < MPP_N_ORIGINS; i++) sum->weight[i] -= other->weight[i];
}

static double
allocations(mpp_sum_t weight)
{
    return (double)weight / (double)MPP_WEIGHT_ONE;
}

static double
weight_of_windows(const mpp_scale_t *scale)
{
    double sum = 0;
    for (size_t i = 0; i < MPP_N_GROUPS; i++) sum += allocations(scale->weight[i]);
    return sum;
}

static double
weight_of_prelude(const mpp_scale_t *scale)
{
    return allocations(scale->weight[MPP_PRELUDE]);
}

double
mpp_scale_weight(const mpp_scale_t *scale)
{
    return weight_of_windows(scale) + weight_of_prelude(scale);
}

uint64_t
mpp_scale_seen(const mpp_scale_t *scale)
{
    uint64_t by_events = (uint64_t)(scale->event_weight >> MPP_WEIGHT_BITS);
    uint64_t by_count = scale->allocated > scale->n_unseen ? scale->allocated - scale->n_unseen : 0;
    return scale->n_elsewhere > 0 && by_events < by_count ? by_events : by_count;
}

/* Where only one origin has samples, they stand for all. */
double
mpp_scale_in_prelude(const mpp_scale_t *scale)
{
    double seen = (double)mpp_scale_seen(scale);
    if (weight_of_prelude(scale) <= 0) return 0;
    return weight_of_windows(scale) > 0 ? fmin((double)scale->n_prelude_events, seen) : seen;
}

double
mpp_scale_in_windows(const mpp_scale_t *scale)
{
    return weight_of_windows(scale) > 0 ? (double)mpp_scale_seen(scale) - mpp_scale_in_prelude(scale) : 0;
}

static double
ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

double
mpp_scale_factor(const mpp_scale_t *scale)
{
    return ratio((double)mpp_scale_seen(scale), mpp_scale_weight(scale));
}

mpp_factors_t
mpp_scale_factors(const mpp_scale_t *scale)
{
    return (mpp_factors_t){
        .windows = ratio(mpp_scale_in_windows(scale), weight_of_windows(scale)),
        .prelude = ratio(mpp_scale_in_prelude(scale), weight_of_prelude(scale)),
    };
}

double
mpp_scale_unobserved(const mpp_scale_t *scale)
{
    double groups[MPP_N_GROUPS];
    double seen = (double)mpp_scale_seen(scale), n_prelude = (double)scale->n_prelude_events;
    if (weight_of_windows(scale) <= 0) return seen > 0 ? fmax(1 - n_prelude / seen, 0) : 0;
    for (size_t i = 0; i < MPP_N_GROUPS; i++) groups[i] = (double)scale->weight[i];
    return mpp_estimate_unobserved(mpp_scale_in_windows(scale), allocations(scale->event_weight) - n_prelude,
                                   (double)scale->missed_ns, groups);
}
