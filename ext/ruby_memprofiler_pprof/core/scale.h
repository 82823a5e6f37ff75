#ifndef MPP_SCALE_H
#define MPP_SCALE_H

/*
 * What the samples of burst mode are multiplied by, so that they add up to what the host has counted: over a run, or over
 * a stretch of one. One factor serves for all. As it is known how many allocations are in the prelude, an estimate of what
 * its samples and windows have found can do better, with a factor for each. [any]
 */

#include "burst.h"

typedef struct {
    uint64_t allocated; /* by the program, as the host counted it */
    mpp_sum_t weight[MPP_N_ORIGINS]; /* that all samples stand for, whatever became of them, by origin */
    uint64_t n_windows;
    uint64_t n_prelude_samples;
    uint64_t n_prelude_events;
    mpp_sum_t event_weight; /* that all events in windows and the prelude stand for, sampled or not */
    uint64_t missed_ns;     /* CPU time that belonged to windows and was not observed */
    uint64_t n_unseen;      /* of `allocated`, in the prelude: the hook was not told of them (another Ractor's, mostly) */
    uint64_t n_elsewhere;   /* signs of other Ractors, whose allocations are in `allocated`: 0: there were none */
} mpp_scale_t;

void mpp_scale_add(mpp_scale_t *sum, const mpp_scale_t *other);
void mpp_scale_subtract(mpp_scale_t *sum, const mpp_scale_t *other);

/* In allocations: what its samples stand for, as they were weighed. */
double mpp_scale_weight(const mpp_scale_t *scale);

/* Of the allocations that the host has counted, those of the main Ractor: all that are not known to be unseen, where no other
 * Ractor was noticed in windows, else what its events stand for. */
uint64_t mpp_scale_seen(const mpp_scale_t *scale);

/* For samples of any origin; 0: there were none. */
double mpp_scale_factor(const mpp_scale_t *scale);

typedef struct {
    double windows, prelude; /* for samples of these origins; 0: there were none */
} mpp_factors_t;

mpp_factors_t mpp_scale_factors(const mpp_scale_t *scale);

/* Share of the allocations after the prelude that no window can have seen, at most: 0 … 1. */
double mpp_scale_unobserved(const mpp_scale_t *scale);

/* Of the allocations that mpp_scale_seen tells, those that windows, or the prelude's samples, stand for. */
double mpp_scale_in_windows(const mpp_scale_t *scale);
double mpp_scale_in_prelude(const mpp_scale_t *scale);

#endif
