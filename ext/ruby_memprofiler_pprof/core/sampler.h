#ifndef MPP_SAMPLER_H
#define MPP_SAMPLER_H

/*
 * Bernoulli sampling at probability p by drawing the gap to the next sample (geometric), so that an allocation that is
 * not sampled costs one countdown. Every sample stands for 1 / p allocations: its weight.
 */

#include "base.h"

/* A weight in units of 2^-32 allocations. Sums of them are exact. */
typedef uint64_t mpp_weight_t;
#define MPP_WEIGHT_BITS 32
#define MPP_WEIGHT_ONE ((mpp_weight_t)1 << MPP_WEIGHT_BITS)

/* The weight of so many allocations, at most 2^31, in as many binary digits as a live record keeps: 32. [any] */
mpp_weight_t mpp_weight_of(double n_allocations);

/* The lowest rate that is allowed. */
#define MPP_SAMPLER_MIN_RATE 1e-6

/* xoshiro256**, seeded through splitmix64. The one source of randomness; the same seed gives the same numbers. */
typedef struct {
    uint64_t state[4];
} mpp_random_t;

void mpp_random_init(mpp_random_t *random, uint64_t seed); /* [any] */
uint64_t mpp_random_next(mpp_random_t *random);            /* [newobj] */
double mpp_random_unit(mpp_random_t *random);              /* uniform in (0, 1]. [newobj] */

typedef struct {
    uint64_t gap;         /* allocations still to skip before the next sample */
    mpp_weight_t weight;  /* of a sample at the present rate */
    double rate;          /* p */
    double inverse_log;   /* 1 / ln(1 - p); unused at p = 1 */
    mpp_random_t random;
} mpp_sampler_t;

/* rate: MPP_SAMPLER_MIN_RATE … 1 (the caller has checked). Draws the first gap. [any] */
void mpp_sampler_init(mpp_sampler_t *sampler, double rate, uint64_t seed);

/* Changes the rate and draws the gap anew, which is harmless: gaps have no memory. [newobj] */
void mpp_sampler_set_rate(mpp_sampler_t *sampler, double rate);

/* Draws the gap to the next sample. [newobj] */
void mpp_sampler_draw(mpp_sampler_t *sampler);

/* Whether this allocation is a sample; if so the next gap is not drawn yet: call mpp_sampler_draw. [newobj] */
static inline bool
mpp_sampler_tick(mpp_sampler_t *sampler)
{
    if (MPP_LIKELY(sampler->gap != 0)) {
        sampler->gap--;
        return false;
    }
    return true;
}

#endif
