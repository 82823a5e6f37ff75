/* Runs of random operations against the model of stateful.c. */

#include "support.h"

#include "stateful.h"

static void
agrees_with_the_model(void **state)
{
    (void)state;
    static uint8_t decisions[1200];
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        support_random_t random = {seed};
        for (size_t i = 0; i < sizeof decisions; i++) decisions[i] = (uint8_t)(support_next(&random) >> 32);
        int line = mpp_stateful_run(decisions, sizeof decisions);
        if (line) fail_msg("seed %llu: stateful.c:%d", (unsigned long long)seed, line);
    }
}

static void
takes_any_length(void **state)
{
    (void)state;
    static const uint8_t zeros[300];
    for (size_t size = 0; size < sizeof zeros; size++) assert_int_equal(mpp_stateful_run(zeros, size), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_model),
        cmocka_unit_test(takes_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
