/*
 * A coin with probability p tossed at every allocation, without tossing it: the number of tails before the next head is
 * geometric, and floor(ln U / ln(1 - p)) with U uniform in (0, 1] has exactly that distribution, since
 * P(gap >= k) = P(U <= (1 - p)^k) = (1 - p)^k. Every allocation is thus a sample with probability p independently of
 * all others, whatever period the program has, and counting each sample as 1 / p is unbiased.
 */

#include "sampler.h"

#include <math.h>

/* Above it a double does not convert to uint64_t; no program allocates so often. */
#define MAX_GAP ((uint64_t)1 << 62)

static uint64_t
rotate_left(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

/* splitmix64: spreads one number over the state, so that seeds 1, 2, 3 … give unrelated sequences. */
static uint64_t
next_seed(uint64_t *seed)
{
    uint64_t mixed = *seed += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

void
mpp_random_init(mpp_random_t *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) random->state[i] = next_seed(&seed);
}

uint64_t
mpp_random_next(mpp_random_t *random)
{
    uint64_t *state = random->state;
    uint64_t result = rotate_left(state[1] * 5, 7) * 9;
    uint64_t shifted = state[1] << 17;

    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = rotate_left(state[3], 45);
    return result;
}

/* Uniform in (0, 1]: 53 bits are what a double holds, and 0 has no logarithm. */
double
mpp_random_unit(mpp_random_t *random)
{
    return (double)((mpp_random_next(random) >> 11) + 1) * 0x1p-53;
}

mpp_weight_t
mpp_weight_of(double n_allocations)
{
    int exponent;
    double digits = round(ldexp(frexp(n_allocations, &exponent), 32));
    return (mpp_weight_t)round(ldexp(digits, exponent + MPP_WEIGHT_BITS - 32)); /* 2^63 is beyond llround */
}

void
mpp_sampler_init(mpp_sampler_t *sampler, double rate, uint64_t seed)
{
    mpp_random_init(&sampler->random, seed);
    mpp_sampler_set_rate(sampler, rate);
}

void
mpp_sampler_set_rate(mpp_sampler_t *sampler, double rate)
{
    sampler->rate = rate;
    sampler->weight = mpp_weight_of(1 / rate);
    sampler->inverse_log = rate < 1 ? 1 / log1p(-rate) : 0; /* log(1 - rate) loses the low bits of a small rate */
    mpp_sampler_draw(sampler);
}

void
mpp_sampler_draw(mpp_sampler_t *sampler)
{
    if (sampler->rate >= 1) {
        sampler->gap = 0;
        return;
    }
    double gap = log(mpp_random_unit(&sampler->random)) * sampler->inverse_log;
    sampler->gap = gap < (double)MAX_GAP ? (uint64_t)gap : MAX_GAP;
}
