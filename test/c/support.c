#include "support.h"

/* Gives whether a request was refused. */
static bool
run_refusing(support_scenario_t scenario, uint64_t fail_from, uint64_t fail_count)
{
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    budget.fail_from = fail_from;
    budget.fail_count = fail_count;
    scenario(&budget);
    support_assert_no_leak(&budget);
    return budget.n_requests >= fail_from;
}

void
support_sweep_failures(support_scenario_t scenario)
{
    bool refused = true;
    uint64_t n = 0;
    while (refused) {
        n++;
        refused = run_refusing(scenario, n, 1);
        (void)run_refusing(scenario, n, UINT64_MAX);
    }
    /* A scenario that asks for nothing tests nothing. */
    assert_true(n > 1);
}

bool
support_refused(mpp_status_t status)
{
    if (status == MPP_OK) return false;
    if (status != MPP_NO_MEMORY && status != MPP_MEMORY_LIMIT) fail_msg("%s", mpp_status_text(status));
    return true;
}

void
support_assert_no_leak(const mpp_budget_t *budget)
{
    assert_int_equal(budget->used_bytes, 0);
}

/* A Weyl sequence through the core's mix. */
uint64_t
support_next(support_random_t *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return mpp_hash_mix(random->state);
}

uint32_t
support_below(support_random_t *random, uint32_t bound)
{
    return (uint32_t)(support_next(random) % bound);
}

bool
support_chance(support_random_t *random, uint32_t times, uint32_t out_of)
{
    return support_below(random, out_of) < times;
}

/* Tests ask libc for more than there is: a sanitizer is to answer as libc does. */
#define SANITIZER_OPTIONS(name)                                                                                        \
    __attribute__((visibility("default"))) const char *name(void);                                                     \
    const char *name(void)                                                                                             \
    {                                                                                                                  \
        return "allocator_may_return_null=1";                                                                          \
    }

SANITIZER_OPTIONS(__asan_default_options)
SANITIZER_OPTIONS(__tsan_default_options)
