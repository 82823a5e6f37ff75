#ifndef SUPPORT_H
#define SUPPORT_H

/*
 * What the unit tests of the core share. Include it first: it brings cmocka and all that cmocka wants before itself.
 *
 *   support_sweep_failures(scenario)   runs it again and again with a budget that refuses request 1, 2, 3 …, once that
 *                                      request alone and once all from it on, until no request is refused any more; after
 *                                      each run every byte must have been given back
 *   support_refused(status)            for use in scenarios: true if the call was refused memory, false if it went well;
 *                                      any other status fails the test. After true, check that nothing has changed
 *   support_assert_no_leak(&budget)    all memory is given back
 *   support_next / _below / _chance    a small random generator, the same numbers for the same seed everywhere
 *
 *   static void scenario(mpp_budget_t *budget) {
 *       if (support_refused(mpp_thing_init(&thing, &budget->allocator))) return;
 *       if (support_refused(mpp_thing_add(&thing, 1))) assert_int_equal(mpp_thing_count(&thing), 0);
 *       mpp_thing_cleanup(&thing);
 *   }
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base.h"

/* gcc and clang tell in their own ways of what else is built in. */
#ifdef __has_feature
#define SUPPORT_HAS_FEATURE(name) __has_feature(name)
#else
#define SUPPORT_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || SUPPORT_HAS_FEATURE(address_sanitizer)
#define SUPPORT_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__) || SUPPORT_HAS_FEATURE(thread_sanitizer)
#define SUPPORT_THREAD_SANITIZER
#endif

#define SUPPORT_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Sets up on the budget, works, and gives everything back, whichever request is refused. */
typedef void (*support_scenario_t)(mpp_budget_t *budget);

void support_sweep_failures(support_scenario_t scenario);
bool support_refused(mpp_status_t status);
void support_assert_no_leak(const mpp_budget_t *budget);

typedef struct {
    uint64_t state; /* any seed */
} support_random_t;

uint64_t support_next(support_random_t *random);
uint32_t support_below(support_random_t *random, uint32_t bound);               /* 0 … bound - 1 */
bool support_chance(support_random_t *random, uint32_t times, uint32_t out_of); /* true that often */

#endif
