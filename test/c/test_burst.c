#include "support.h"

#include "burst.h"

#include <math.h>

enum { WINDOW = 200000, LEAD = 10000, HOOK = 20, TIMER = 4000000, MIN_INTERVAL = 8000000 };

static const mpp_burst_config_t config = {
    .overhead = 0.01,
    .window_ns = WINDOW,
    .min_lead_ns = LEAD,
    .max_lead_ns = 5000000,
    .timer_ns = TIMER,
    .min_interval_ns = MIN_INTERVAL, /* M is constant, but where the lead is long */
    .max_interval_ns = MIN_INTERVAL,
    .hook_ns = HOOK,
    .seed = 1,
};

/* M follows the budget. */
static const mpp_burst_config_t paced = {
    .overhead = 0.01,
    .window_ns = WINDOW,
    .min_lead_ns = LEAD,
    .max_lead_ns = 5000000,
    .timer_ns = TIMER,
    .min_interval_ns = MIN_INTERVAL,
    .max_interval_ns = 1000000000,
    .hook_ns = HOOK,
    .seed = 1,
};

/* A clock that the test moves. */
typedef struct {
    uint64_t now_ns, cpu_ns;
    unsigned n_cpu_reads;
} script_t;

static uint64_t
script_now(void *context)
{
    return ((script_t *)context)->now_ns;
}

static uint64_t
script_cpu(void *context)
{
    script_t *script = context;
    script->n_cpu_reads++;
    return script->cpu_ns;
}

static script_t script;
static mpp_burst_t burst;

static void
set_up(const mpp_burst_config_t *with)
{
    mpp_clock_t clock = {script_now, script_cpu, &script};
    script = (script_t){.now_ns = 1000000000};
    mpp_burst_init(&burst, with, &clock);
}

static int
init(void **state)
{
    (void)state;
    set_up(&config);
    return 0;
}

static void
run(uint64_t ns)
{
    script.now_ns += ns;
    script.cpu_ns += ns;
}

/* A tick when it is due. */
static bool
open_tick(uint64_t late_ns, bool in_gc)
{
    script.cpu_ns = 0;
    return mpp_burst_open(&burst, burst.due_ns + late_ns, late_ns, in_gc);
}

static bool
open_late(uint64_t late_ns)
{
    return open_tick(late_ns, false);
}

/* What time in windows stands for. */
static uint64_t
stood_for(uint64_t ns)
{
    return ns * (MIN_INTERVAL / WINDOW);
}

/* One allocation, so much program time after the last one. Its own cost passes too. */
static mpp_burst_verdict_t
allocate_after(uint64_t ns)
{
    run(ns + HOOK);
    return mpp_burst_passes(&burst) ? MPP_BURST_PASS : mpp_burst_judge(&burst);
}

static const mpp_burst_totals_t *
totals(void)
{
    return mpp_burst_totals(&burst);
}

/* Opens at once, allocates every `every_ns` until told to close, closes. */
static void
run_window(uint64_t every_ns)
{
    assert_true(open_late(0));
    while (allocate_after(every_ns) != MPP_BURST_CLOSE) continue;
    mpp_burst_close(&burst);
}

static void
test_intervals_have_a_dead_time_and_the_mean(void **state)
{
    (void)state;
    enum { N = 100000 };
    uint64_t before_ns = 0;
    for (int i = 0; i < N; i++) {
        uint64_t due_ns = mpp_burst_due(&burst);
        assert_true(due_ns >= before_ns + TIMER);
        before_ns = due_ns;
        assert_true(open_late(0));
        mpp_burst_close(&burst);
    }
    double standard_error = (MIN_INTERVAL - TIMER) / sqrt(N);
    assert_true(fabs((double)before_ns / N - MIN_INTERVAL) < 4 * standard_error);
}

static void
test_same_seed_same_ticks(void **state)
{
    (void)state;
    uint64_t first = mpp_burst_due(&burst);
    (void)open_late(0);
    uint64_t second = mpp_burst_due(&burst);
    set_up(&config);
    assert_int_equal(mpp_burst_due(&burst), first);
    (void)open_late(0);
    assert_int_equal(mpp_burst_due(&burst), second);
}

static void
test_only_what_lies_in_the_window_counts(void **state)
{
    (void)state;
    assert_true(open_late(0));
    assert_int_equal(burst.phase, MPP_BURST_LEAD);
    assert_int_equal(allocate_after(LEAD - 1), MPP_BURST_PASS);
    assert_int_equal(allocate_after(1), MPP_BURST_SAMPLE);
    assert_int_equal(burst.phase, MPP_BURST_WINDOW);
    assert_int_equal(allocate_after(WINDOW - 1), MPP_BURST_SAMPLE);
    assert_int_equal(allocate_after(1), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(burst.phase, MPP_BURST_OUT);
    assert_int_equal(totals()->n_windows, 1);
    assert_int_equal(totals()->n_events, 2);
    assert_int_equal(totals()->observed_ns, stood_for(WINDOW));
    assert_int_equal(totals()->missed_ns, 0);
}

static void
test_an_allocation_after_the_window_is_in_no_window(void **state)
{
    (void)state;
    assert_true(open_late(0));
    assert_int_equal(allocate_after(LEAD + WINDOW), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->n_events, 0);
    assert_int_equal(totals()->observed_ns, stood_for(WINDOW));
}

static void
test_lateness_moves_nothing(void **state)
{
    (void)state;
    assert_true(open_late(4000));
    assert_int_equal(allocate_after(LEAD - 4000 - 1), MPP_BURST_PASS);
    assert_int_equal(allocate_after(1), MPP_BURST_SAMPLE);
    assert_int_equal(allocate_after(WINDOW - 1), MPP_BURST_SAMPLE);
    assert_int_equal(allocate_after(1), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->n_late, 0);
}

static void
test_opened_after_the_anchor_the_rest_counts(void **state)
{
    (void)state;
    assert_true(open_late(LEAD + WINDOW - 1000));
    assert_int_equal(burst.phase, MPP_BURST_WINDOW);
    assert_int_equal(allocate_after(999), MPP_BURST_SAMPLE);
    assert_int_equal(allocate_after(1), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->n_late, 1);
    assert_int_equal(totals()->observed_ns, stood_for(1000));
    assert_int_equal(totals()->missed_ns, stood_for(WINDOW - 1000));
}

static void
test_opened_after_the_end_nothing_counts(void **state)
{
    (void)state;
    assert_false(open_late(LEAD + WINDOW));
    assert_int_equal(burst.phase, MPP_BURST_OUT);
    assert_int_equal(totals()->n_late, 1);
    assert_int_equal(totals()->n_windows, 0);
    assert_int_equal(totals()->missed_ns, stood_for(WINDOW));
    assert_false(open_late(TIMER - 1));
    assert_int_equal(totals()->missed_ns, stood_for(2 * WINDOW));
}

static void
test_a_collection_is_no_loss_and_no_lateness(void **state)
{
    (void)state;
    assert_false(open_tick(100000000, true));
    assert_int_equal(totals()->n_late, 1);
    assert_int_equal(totals()->missed_ns, 0);
    assert_true(open_tick(LEAD + 1000, true));
    assert_int_equal(totals()->missed_ns, 0);
    assert_int_equal(mpp_burst_lead(&burst), LEAD);
    mpp_burst_close(&burst);
}

static void
test_time_off_the_cpu_is_no_program_time(void **state)
{
    (void)state;
    assert_true(open_late(0));
    script.now_ns += 5000000; /* asleep, before the anchor */
    assert_int_equal(allocate_after(LEAD - 1), MPP_BURST_PASS);
    assert_int_equal(burst.phase, MPP_BURST_LEAD);
    assert_int_equal(allocate_after(1), MPP_BURST_SAMPLE);
    script.now_ns += 5000000; /* asleep, in the window */
    assert_int_equal(allocate_after(WINDOW - 1), MPP_BURST_SAMPLE);
    assert_int_equal(allocate_after(1), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->observed_ns, stood_for(WINDOW));
}

/* Once at the anchor, at the end, and for each time asleep; not at every look. */
static void
test_the_dear_clock_is_read_seldom(void **state)
{
    (void)state;
    assert_true(open_late(0));
    while (allocate_after(100) != MPP_BURST_CLOSE) continue;
    mpp_burst_close(&burst);
    assert_int_equal(script.n_cpu_reads, 2);

    script.n_cpu_reads = 0;
    assert_true(open_late(0));
    for (int i = 0; i < 1000; i++) (void)allocate_after(100);
    script.now_ns += 5000000;
    while (allocate_after(100) != MPP_BURST_CLOSE) continue;
    mpp_burst_close(&burst);
    assert_int_equal(script.n_cpu_reads, 3);
}

static void
test_cpu_time_beyond_the_clocks_is_harmless(void **state)
{
    (void)state;
    assert_true(open_late(0));
    script.cpu_ns += 1000000; /* other threads compute in parallel */
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    assert_int_equal(burst.off_cpu_ns, 0);
    mpp_burst_close(&burst);
}

static void
test_captures_are_no_program_time(void **state)
{
    (void)state;
    assert_true(open_late(0));
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    run(3000000);
    mpp_burst_captured(&burst, 3000000);
    assert_int_equal(allocate_after(WINDOW - 1), MPP_BURST_SAMPLE);
    assert_int_equal(allocate_after(1), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->spent_ns, 3000000 + 3 * HOOK);
}

static void
test_a_cost_that_is_assumed_too_high_never_turns_time_negative(void **state)
{
    (void)state;
    assert_true(open_late(0));
    mpp_burst_captured(&burst, 1000000);
    assert_int_equal(allocate_after(LEAD), MPP_BURST_PASS);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->observed_ns, 0);
}

static void
test_a_window_that_is_cut_short_is_missed_in_part(void **state)
{
    (void)state;
    assert_true(open_late(0));
    assert_int_equal(allocate_after(LEAD + 50000), MPP_BURST_SAMPLE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->observed_ns, stood_for(50000));
    assert_int_equal(totals()->missed_ns, stood_for(WINDOW - 50000));
    mpp_burst_close(&burst); /* nothing more */
    assert_int_equal(totals()->n_windows, 1);
    assert_int_equal(totals()->missed_ns, stood_for(WINDOW - 50000));

    assert_true(open_late(0));
    mpp_burst_close(&burst);
    assert_int_equal(totals()->observed_ns, stood_for(50000));
}

/* The tick resets the script's CPU time after it was looked at. */
static bool
open_during_window(uint64_t late_ns)
{
    return mpp_burst_open(&burst, burst.due_ns + late_ns, late_ns, false);
}

static void
test_a_tick_closes_a_window_that_is_over(void **state)
{
    (void)state;
    assert_true(open_late(0));
    run(LEAD + WINDOW);
    assert_true(open_during_window(0));
    assert_int_equal(totals()->n_windows, 1);
    assert_int_equal(totals()->n_overlapped, 0);
    assert_int_equal(totals()->observed_ns, stood_for(WINDOW));
    assert_int_equal(burst.phase, MPP_BURST_LEAD);
    script.cpu_ns = 0;
    run(LEAD + WINDOW);
    assert_false(open_during_window(LEAD + 2 * WINDOW));
    assert_int_equal(totals()->n_windows, 2);
    assert_int_equal(burst.phase, MPP_BURST_OUT);
}

static void
test_what_a_tick_cuts_off_a_window_is_made_up_for(void **state)
{
    (void)state;
    assert_true(open_late(0));
    assert_int_equal(allocate_after(LEAD + WINDOW / 4), MPP_BURST_SAMPLE);
    assert_int_equal(burst.weight, 40 * MPP_WEIGHT_ONE);
    assert_true(open_during_window(0));
    assert_int_equal(totals()->n_overlapped, 1);
    assert_int_equal(totals()->n_windows, 1);
    assert_int_equal(totals()->observed_ns, stood_for(WINDOW / 4));
    assert_int_equal(totals()->missed_ns, 0);
    script.cpu_ns = 0;
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    assert_int_equal(burst.weight, 70 * MPP_WEIGHT_ONE);
    assert_int_equal(allocate_after(WINDOW), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->observed_ns, stood_for(2 * WINDOW));
}

/* Asleep in between: what is left is told by CPU time. */
static void
test_a_window_is_cut_off_by_cpu_time(void **state)
{
    (void)state;
    assert_true(open_late(0));
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    script.now_ns += WINDOW / 2;
    assert_true(open_during_window(0));
    assert_int_equal(totals()->observed_ns, 0);
    script.cpu_ns = 0;
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    assert_int_equal(burst.weight, 80 * MPP_WEIGHT_ONE);
}

static void
test_a_tick_within_the_lead_takes_over_all(void **state)
{
    (void)state;
    assert_true(open_late(0));
    assert_true(open_during_window(0));
    assert_int_equal(totals()->observed_ns, 0);
    assert_int_equal(totals()->missed_ns, 0);
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    assert_int_equal(burst.weight, 80 * MPP_WEIGHT_ONE);
}

/* A tick for every interval that ended before the timer could look: one window, of their sum. */
static void
test_ticks_that_could_not_come_in_time_are_made_up_for(void **state)
{
    (void)state;
    mpp_burst_t twin = burst;
    for (int i = 0; i < 4; i++) (void)mpp_burst_open(&twin, twin.due_ns, 0, false);
    assert_true(mpp_burst_open(&burst, twin.due_ns, 0, false));
    assert_int_equal(totals()->n_ticks, 1);
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    assert_int_equal(burst.weight, 5 * 40 * MPP_WEIGHT_ONE);
    assert_true(mpp_burst_due(&burst) > twin.due_ns);
}

/* 100 ms of native code: the timer would have fired in it every 4 ms where due, last 100 ms % 4 ms before its end. */
static void
test_ticks_within_a_native_call_are_taken_in(void **state)
{
    (void)state;
    enum { N = 2000 };
    uint64_t n_seen = 0, missed_ns = 0;
    for (uint64_t seed = 0; seed < N; seed++) {
        mpp_burst_config_t seeded = config;
        seeded.seed = seed;
        seeded.max_lead_ns = LEAD;
        set_up(&seeded);
        bool is_open = mpp_burst_open(&burst, burst.due_ns + 100001000, 100001000, false);
        assert_true(mpp_burst_due(&burst) > totals()->cpu_ns);
        n_seen += is_open;
        missed_ns += totals()->missed_ns;
        assert_int_equal(totals()->n_late, is_open ? 0 : 1);
    }
    /* One of the dues lies in the last 4 ms that often, and the others have no window. */
    assert_true(fabs((double)n_seen / N - (double)TIMER / MIN_INTERVAL) < 4 * 0.5 / sqrt(N));
    double missed = (double)missed_ns / MIN_INTERVAL / N;
    assert_true(fabs(missed - (1 + (100000000.0 - TIMER) / MIN_INTERVAL)) < 0.5);
}

/* What comes due after the timer's last look is left for the next. */
static void
test_the_timer_is_never_set_to_the_past(void **state)
{
    (void)state;
    uint64_t first_ns = burst.due_ns;
    mpp_burst_t twin = burst;
    (void)mpp_burst_open(&twin, first_ns, 0, false);
    uint64_t second_ns = twin.due_ns;
    /* The tick came with the first, the safe point after the second. */
    (void)mpp_burst_open(&burst, second_ns + 1000, second_ns - first_ns, false);
    assert_true(burst.due_ns == second_ns || second_ns - first_ns >= TIMER);
    assert_true(mpp_burst_due(&burst) > second_ns + 1000);
}

/* A hook that is in by mistake, as in a forked child, goes out. */
static void
test_an_event_without_a_window_closes(void **state)
{
    (void)state;
    assert_false(mpp_burst_passes(&burst));
    assert_int_equal(mpp_burst_judge(&burst), MPP_BURST_CLOSE);
    mpp_burst_close(&burst);
    assert_int_equal(totals()->n_windows, 0);
    assert_true(open_late(0));
}

static void
test_windows_are_dealt_to_groups_in_turn(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3 * MPP_N_GROUPS; i++) {
        assert_true(open_late(0));
        assert_int_equal(burst.group, i % MPP_N_GROUPS);
        mpp_burst_close(&burst);
    }
}

static void
test_the_lead_covers_the_latenesses(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_true(open_late(1000));
        mpp_burst_close(&burst);
    }
    assert_int_equal(mpp_burst_lead(&burst), LEAD);
    (void)open_late(400000); /* with the lead of before it */
    assert_int_equal(burst.phase, MPP_BURST_OUT);
    assert_in_range(mpp_burst_lead(&burst), 400000, 500000);
    assert_true(open_late(400000));
    assert_int_equal(burst.phase, MPP_BURST_LEAD);
    mpp_burst_close(&burst);

    for (int i = 0; i < 20; i++) (void)open_late(50000000);
    assert_int_equal(mpp_burst_lead(&burst), config.max_lead_ns);
    int n_ticks = 0;
    while (mpp_burst_lead(&burst) > LEAD) {
        (void)open_late(1000);
        n_ticks++;
    }
    assert_in_range(n_ticks, 300, 3000);
    mpp_burst_close(&burst);
}

static void
test_rare_latenesses_do_not_lengthen_the_lead(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) {
        (void)open_late(i % 200 == 0 ? 1000000 : 1000);
        mpp_burst_close(&burst);
    }
    assert_int_equal(mpp_burst_lead(&burst), LEAD);
}

static void
test_the_interval_leaves_room_for_the_lead(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) (void)open_late(50000000);
    assert_true(mpp_burst_mean_interval(&burst) >= 4 * (config.max_lead_ns + WINDOW));
    for (int i = 0; i < 1000; i++) {
        uint64_t due_ns = burst.due_ns;
        (void)open_late(0);
        assert_true(burst.due_ns - due_ns >= 2 * (config.max_lead_ns + WINDOW));
        mpp_burst_close(&burst);
        for (int k = 0; k < 3; k++) (void)open_late(50000000);
    }
}

/* With the cost of the first tick, M changes; the second tick is still of an interval of before. */
static void
test_the_weight_is_that_of_the_interval_before_the_tick(void **state)
{
    (void)state;
    set_up(&paced);
    uint64_t first_ns = mpp_burst_mean_interval(&burst);
    assert_true(open_late(0));
    mpp_burst_spent(&burst, 1000000);
    mpp_burst_close(&burst);
    assert_true(open_late(0));
    assert_true(mpp_burst_mean_interval(&burst) > 2 * first_ns);
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    assert_int_equal(burst.weight, mpp_weight_of((double)first_ns / WINDOW));
    mpp_burst_close(&burst);
    assert_true(totals()->event_weight == (mpp_sum_t)((double)first_ns / WINDOW * (double)MPP_WEIGHT_ONE + 0.5));

    uint64_t second_ns = burst.drawn_mean_ns;
    assert_true(second_ns > 2 * first_ns);
    assert_true(open_late(0));
    assert_int_equal(allocate_after(LEAD), MPP_BURST_SAMPLE);
    assert_int_equal(burst.weight, mpp_weight_of((double)second_ns / WINDOW));
    mpp_burst_close(&burst);
}

/* A storm at a rate of 1: few samples all the same, and what they weigh is right. */
static void
test_a_storm_lowers_the_rate_within_a_window(void **state)
{
    (void)state;
    enum { N_RUNS = 200 };
    double weights = 0;
    for (uint64_t seed = 0; seed < N_RUNS; seed++) {
        mpp_burst_config_t seeded = config;
        seeded.seed = seed;
        set_up(&seeded);
        assert_true(open_late(0));
        unsigned n_samples = 0;
        for (;;) {
            mpp_burst_verdict_t verdict = allocate_after(50);
            if (verdict == MPP_BURST_CLOSE) break;
            if (verdict != MPP_BURST_SAMPLE) continue;
            n_samples++;
            weights += (double)burst.weight / (double)burst.event_weight;
        }
        mpp_burst_close(&burst);
        assert_in_range(totals()->n_events, WINDOW / 50 - 1, WINDOW / 50 + 1);
        assert_in_range(n_samples, 40, 130);
    }
    /* Most of a window is sampled at 1 / 128 or 1 / 256: one run's weights spread by about 1000. */
    assert_true(fabs(weights / N_RUNS - WINDOW / 50.0) < 4 * 1000 / sqrt(N_RUNS));
}

static void
test_the_rate_follows_the_events_of_a_window(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) run_window(50);
    assert_true(open_late(0));
    assert_true(fabs(burst.sampler.rate - 4.0 / 4000) < 0.0001);
    mpp_burst_close(&burst);
    for (int i = 0; i < 200; i++) run_window(100000);
    assert_true(open_late(0));
    assert_true(burst.sampler.rate == 1);
    mpp_burst_close(&burst);
}

static void
test_events_stand_for_all_allocations(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) run_window(130);
    double expected = 1000 * (WINDOW / 130.0);
    assert_true(fabs((double)totals()->n_events - expected) < 0.002 * expected);
    double weight = (double)totals()->event_weight / (double)burst.event_weight;
    assert_true(fabs(weight - expected) < 0.002 * expected);
}

/* Ticks of one cost for so long. Gives M. */
static uint64_t
pace_for(uint64_t cpu_ns, uint64_t cost_ns)
{
    uint64_t until_ns = totals()->cpu_ns + cpu_ns;
    while (totals()->cpu_ns < until_ns) {
        assert_true(open_late(0));
        mpp_burst_close(&burst);
        mpp_burst_spent(&burst, cost_ns);
    }
    return mpp_burst_mean_interval(&burst);
}

static void
test_the_interval_follows_the_budget(void **state)
{
    (void)state;
    set_up(&paced);
    assert_in_range(pace_for(2000000000, 200000), 20000000, 26000000);
    assert_in_range(pace_for(2000000000, 1000), MIN_INTERVAL, MIN_INTERVAL);
    assert_in_range(pace_for(2000000000, 200000), 20000000, 26000000);
    assert_int_equal(pace_for(60000000000, 100000000), paced.max_interval_ns);
}

/* A flush of 2 s is 200 CPU seconds' budget: a quarter is left for windows, and all of it again later. */
static void
test_a_flush_does_not_end_sampling(void **state)
{
    (void)state;
    set_up(&paced);
    uint64_t before_ns = pace_for(2000000000, 200000);
    mpp_burst_spent_apart(&burst, 50000000);
    uint64_t small_ns = pace_for(100000000, 200000);
    assert_in_range(small_ns, before_ns * 11 / 10, before_ns * 13 / 10);
    mpp_burst_spent_apart(&burst, 2000000000);
    assert_in_range(pace_for(100000000, 200000), before_ns * 39 / 10, before_ns * 41 / 10);
    assert_in_range(pace_for(300000000000, 200000), before_ns, before_ns * 11 / 10);
    assert_int_equal(totals()->spent_ns % 100000, 0);
}

static void
test_a_clock_that_goes_back_is_harmless(void **state)
{
    (void)state;
    set_up(&paced);
    assert_true(mpp_burst_open(&burst, 50000000, 0, false));
    mpp_burst_close(&burst);
    assert_true(mpp_burst_open(&burst, 40000000, 0, false));
    assert_int_equal(totals()->cpu_ns, 40000000);
    assert_true(mpp_burst_due(&burst) > 50000000);
}

/* It goes on weighing what its own tick stood for, though others that come meanwhile stand for more. */
static void
test_a_tick_passed_over_leaves_the_open_window_alone(void **state)
{
    (void)state;
    assert_true(open_late(0));
    mpp_burst_pass_over(&burst, burst.due_ns + 100 * MIN_INTERVAL);
    while (allocate_after(100) != MPP_BURST_CLOSE) continue;
    mpp_burst_close(&burst);
    assert_int_equal(totals()->n_ticks, 2);
    assert_int_equal(totals()->observed_ns, stood_for(WINDOW));
    assert_int_equal(totals()->missed_ns, 0);
}

/* All that was learnt of events decays to nothing. */
static void
test_a_program_may_stop_allocating_for_days(void **state)
{
    (void)state;
    set_up(&paced);
    for (int i = 0; i < 100; i++) {
        run_window(200);
        mpp_burst_calibrate(&burst, 0);
    }
    uint64_t cpu_ns = totals()->cpu_ns;
    for (int i = 0; i < 1000000; i++) {
        cpu_ns += 2 * MIN_INTERVAL;
        mpp_burst_pass_over(&burst, cpu_ns);
        mpp_burst_calibrate(&burst, 1);
    }
    assert_true(burst.hook_ns >= HOOK / 4.0 && burst.hook_ns <= HOOK * 10.0);
}

static void
test_the_rate_told_is_that_of_an_allocation(void **state)
{
    (void)state;
    double expected = (double)WINDOW / (double)mpp_burst_mean_interval(&burst);
    assert_true(fabs(mpp_burst_sample_rate(&burst) - expected) < 1e-6 * expected);
}

/* The prelude. */

enum { PRELUDE_NS = 50000000 };

/* So many allocations, each of which passes or is a sample. Gives the samples. */
static unsigned
allocate_in_prelude(unsigned n)
{
    unsigned n_samples = 0;
    for (unsigned i = 0; i < n; i++) {
        if (allocate_after(100) == MPP_BURST_PASS) continue;
        assert_true(burst.weight == mpp_weight_of(1 / MPP_PRELUDE_RATE));
        assert_int_equal(burst.group, MPP_PRELUDE);
        n_samples++;
    }
    return n_samples;
}

static void
test_the_prelude_samples_each_alike(void **state)
{
    (void)state;
    mpp_burst_begin_prelude(&burst, PRELUDE_NS);
    assert_int_equal(mpp_burst_due(&burst), PRELUDE_NS);
    unsigned n_samples = allocate_in_prelude(1000000);
    assert_in_range(n_samples, 9500, 10500);
    assert_int_equal(mpp_burst_told(&burst), 1000000);
    assert_int_equal(script.n_cpu_reads, 0);
    mpp_burst_end_prelude(&burst, PRELUDE_NS, 1000000);
    assert_int_equal(totals()->n_prelude_samples, n_samples);
    assert_int_equal(totals()->n_prelude_events, 1000000);
    assert_int_equal(totals()->n_events, 1000000);
    assert_true(totals()->event_weight == (mpp_sum_t)1000000 << MPP_WEIGHT_BITS);
    assert_int_equal(totals()->n_ticks + totals()->n_windows + totals()->missed_ns, 0);
}

/* Up to its last sample, or to where that is asked for, which moves no sample. */
static void
test_the_prelude_is_counted_as_it_goes(void **state)
{
    (void)state;
    mpp_burst_begin_prelude(&burst, PRELUDE_NS);
    unsigned n_samples = allocate_in_prelude(100000);
    assert_in_range(totals()->n_prelude_events, 97000, 100000);
    assert_true(totals()->event_weight == (mpp_sum_t)totals()->n_prelude_events << MPP_WEIGHT_BITS);

    set_up(&config);
    mpp_burst_begin_prelude(&burst, PRELUDE_NS);
    for (unsigned i = 1; i <= 1000; i++) {
        n_samples -= allocate_in_prelude(100);
        mpp_burst_count_prelude(&burst, 0);
        mpp_burst_count_prelude(&burst, 0);
        assert_int_equal(totals()->n_prelude_events, 100 * i);
        assert_int_equal(mpp_burst_told(&burst), 100 * i);
    }
    assert_int_equal(n_samples, 0);
    mpp_burst_end_prelude(&burst, PRELUDE_NS, 100000);
    mpp_burst_count_prelude(&burst, 0); /* nothing more */
    assert_int_equal(totals()->n_prelude_events, 100000);
}

static void
test_windows_come_after_the_prelude(void **state)
{
    (void)state;
    mpp_burst_begin_prelude(&burst, PRELUDE_NS);
    (void)allocate_in_prelude(1000);
    mpp_burst_close(&burst); /* is for windows */
    (void)allocate_in_prelude(1000);
    mpp_burst_end_prelude(&burst, PRELUDE_NS + 7, 2000);
    assert_int_equal(allocate_after(100), MPP_BURST_CLOSE);
    assert_in_range(mpp_burst_due(&burst), PRELUDE_NS + 7, PRELUDE_NS + 40 * MIN_INTERVAL);
    run_window(100);
    assert_int_equal(totals()->n_windows, 1);
    assert_int_equal(burst.group, 0);
    assert_int_equal(totals()->n_prelude_events, 2000);
    mpp_burst_end_prelude(&burst, 2 * PRELUDE_NS, 0); /* there is none any more */
    assert_int_equal(totals()->n_prelude_events, 2000);
}

/* Nor does it teach what an event costs. */
static void
test_the_prelude_is_apart_from_the_budget(void **state)
{
    (void)state;
    set_up(&paced);
    uint64_t before_ns = mpp_burst_mean_interval(&burst);
    mpp_burst_begin_prelude(&burst, PRELUDE_NS);
    (void)allocate_in_prelude(100000);
    mpp_burst_captured(&burst, 30000000);
    mpp_burst_count_prelude(&burst, PRELUDE_NS / 2);
    assert_int_equal(totals()->cpu_ns, PRELUDE_NS / 2);
    assert_true(totals()->spent_ns > 30000000);
    mpp_burst_end_prelude(&burst, PRELUDE_NS, 100000);
    assert_in_range(totals()->spent_ns, 30000000 + 100000 * (HOOK - 1), 30000000 + 100000 * HOOK); /* rounded at each look */
    assert_int_equal(totals()->cpu_ns, PRELUDE_NS);
    assert_true(open_late(0));
    mpp_burst_calibrate(&burst, 100000);
    assert_int_equal(mpp_burst_mean_interval(&burst), before_ns);
    assert_true(burst.passed_allocations == 0);
    assert_true(burst.passed_ns <= (double)(totals()->cpu_ns - PRELUDE_NS));
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup(test_##name, init)
    const struct CMUnitTest tests[] = {
        TEST(intervals_have_a_dead_time_and_the_mean),
        TEST(same_seed_same_ticks),
        TEST(only_what_lies_in_the_window_counts),
        TEST(an_allocation_after_the_window_is_in_no_window),
        TEST(lateness_moves_nothing),
        TEST(opened_after_the_anchor_the_rest_counts),
        TEST(opened_after_the_end_nothing_counts),
        TEST(a_collection_is_no_loss_and_no_lateness),
        TEST(time_off_the_cpu_is_no_program_time),
        TEST(the_dear_clock_is_read_seldom),
        TEST(cpu_time_beyond_the_clocks_is_harmless),
        TEST(captures_are_no_program_time),
        TEST(a_cost_that_is_assumed_too_high_never_turns_time_negative),
        TEST(a_window_that_is_cut_short_is_missed_in_part),
        TEST(a_tick_closes_a_window_that_is_over),
        TEST(what_a_tick_cuts_off_a_window_is_made_up_for),
        TEST(a_window_is_cut_off_by_cpu_time),
        TEST(a_tick_within_the_lead_takes_over_all),
        TEST(ticks_that_could_not_come_in_time_are_made_up_for),
        TEST(ticks_within_a_native_call_are_taken_in),
        TEST(the_timer_is_never_set_to_the_past),
        TEST(an_event_without_a_window_closes),
        TEST(windows_are_dealt_to_groups_in_turn),
        TEST(the_lead_covers_the_latenesses),
        TEST(rare_latenesses_do_not_lengthen_the_lead),
        TEST(the_interval_leaves_room_for_the_lead),
        TEST(the_weight_is_that_of_the_interval_before_the_tick),
        TEST(a_storm_lowers_the_rate_within_a_window),
        TEST(the_rate_follows_the_events_of_a_window),
        TEST(events_stand_for_all_allocations),
        TEST(the_interval_follows_the_budget),
        TEST(a_flush_does_not_end_sampling),
        TEST(a_clock_that_goes_back_is_harmless),
        TEST(a_tick_passed_over_leaves_the_open_window_alone),
        TEST(a_program_may_stop_allocating_for_days),
        TEST(the_rate_told_is_that_of_an_allocation),
        TEST(the_prelude_samples_each_alike),
        TEST(the_prelude_is_counted_as_it_goes),
        TEST(windows_come_after_the_prelude),
        TEST(the_prelude_is_apart_from_the_budget),
    };
#undef TEST
    return cmocka_run_group_tests_name("burst", tests, NULL, NULL);
}
