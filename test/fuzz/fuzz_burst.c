/*
 * The window machine under any host: ticks, events, costs and clocks as the input says. The host is sane (time passes, CPU
 * time is part of it, an event costs at least what the machine takes it for) or not: then the clocks jump, stand and run
 * backwards. Whatever they do, no number leaves its bounds, totals only grow, at most the events that there were are
 * counted, and each interval's time is either observed or missed. With a sane host windows end in time, too. Some runs have
 * a prelude, in which all events are counted. At the end estimates are made of any sums.
 */

#include "support.h"

#include <math.h>

#include "burst.h"
#include "estimate.h"
#include "fuzz.h"

/* Numbers that stand in burst.c. */
#define MOST_SKIPPED 16u
#define LARGEST_WEIGHT ((mpp_weight_t)1 << 63)

/* More CPU time than this between two ticks is no host's, and ticks are made up for one by one. */
#define LONGEST_NS ((UINT64_C(1) << 36) - 1)

typedef struct {
    fuzz_input_t input;
    bool sane;
    mpp_burst_t burst;
    mpp_burst_totals_t before;
    uint64_t now_ns, window_cpu_ns, cpu_ns; /* the clocks */
    uint64_t n_allocations, n_seen;
    double owed_ns, tolerance_ns; /* of all ticks' intervals that are to be observed or missed */
    double weights[MPP_N_ORIGINS];
} host_t;

/* -- clocks -- */

static uint64_t
now(void *context)
{
    return ((const host_t *)context)->now_ns;
}

static uint64_t
window_cpu(void *context)
{
    return ((const host_t *)context)->window_cpu_ns;
}

static uint64_t
any_time(host_t *host)
{
    return fuzz_magnitude(&host->input) & LONGEST_NS;
}

static void
run(host_t *host, uint64_t ns)
{
    host->now_ns += ns;
    host->window_cpu_ns += ns;
    host->cpu_ns += ns;
}

static void
jump(host_t *host)
{
    uint64_t *clocks[] = {&host->now_ns, &host->window_cpu_ns, &host->cpu_ns};
    uint32_t which = fuzz_below(&host->input, 3);
    uint64_t ns = which == 2 ? any_time(host) : fuzz_magnitude(&host->input);
    bool forwards = fuzz_below(&host->input, 2) == 1;
    if (which == 2 && !forwards && ns > host->cpu_ns) ns = host->cpu_ns;
    *clocks[which] += forwards ? ns : 0 - ns;
}

/* -- what always holds -- */

static uint64_t
stand_for(const mpp_burst_t *burst, uint64_t ns)
{
    return (uint64_t)((double)ns / (double)burst->config.window_ns * (double)burst->tick_ns);
}

static bool
has_window(const mpp_burst_t *burst)
{
    return burst->phase == MPP_BURST_LEAD || burst->phase == MPP_BURST_WINDOW;
}

/* Observed, missed, or to become one of them. */
static double
accounted_ns(const mpp_burst_t *burst)
{
    uint64_t open_ns = !has_window(burst) ? 0 : stand_for(burst, burst->end_ns - burst->anchor_ns);
    return (double)burst->totals.observed_ns + (double)burst->totals.missed_ns + (double)open_ns;
}

static void
check_totals(host_t *host)
{
    const mpp_burst_totals_t *now = mpp_burst_totals(&host->burst), *before = &host->before;
    assert_true(now->n_ticks >= before->n_ticks && now->n_windows >= before->n_windows);
    assert_true(now->n_late >= before->n_late && now->n_overlapped >= before->n_overlapped);
    assert_true(now->observed_ns >= before->observed_ns && now->missed_ns >= before->missed_ns);
    assert_true(now->n_events >= before->n_events && now->event_weight >= before->event_weight);
    assert_true(now->spent_ns >= before->spent_ns);
    assert_true(now->n_windows <= now->n_ticks && now->n_late <= now->n_ticks);
    assert_true(now->n_overlapped <= now->n_windows);
    assert_true(now->n_events <= host->n_seen + now->n_windows); /* each window rounds them */
    assert_true(now->n_prelude_events <= now->n_events && now->n_prelude_samples <= now->n_prelude_events);
    host->before = *now;
}

static void
check(host_t *host)
{
    const mpp_burst_t *burst = &host->burst;
    const mpp_burst_config_t *config = &burst->config;
    uint64_t lead_ns = mpp_burst_lead(burst), mean_ns = mpp_burst_mean_interval(burst);
    uint64_t longest_ns =
        4 * (config->max_lead_ns + config->window_ns) + 2 * config->timer_ns + config->max_interval_ns;
    double rate = mpp_burst_sample_rate(burst);

    assert_true(burst->group < MPP_N_GROUPS || (burst->group == MPP_PRELUDE && burst->totals.n_windows == 0));
    assert_true(burst->countdown >= 1 && (burst->countdown <= MOST_SKIPPED || burst->phase == MPP_BURST_PRELUDE));
    assert_true(!has_window(burst) || burst->anchor_ns <= burst->end_ns);
    assert_true(lead_ns >= config->min_lead_ns && lead_ns <= config->max_lead_ns);
    assert_true(mean_ns >= config->min_interval_ns && mean_ns >= 2 * config->timer_ns && mean_ns <= longest_ns);
    assert_true(mpp_burst_due(burst) > burst->totals.cpu_ns);
    assert_true(rate > 0 && rate <= 0.25);
    assert_true(burst->hook_ns >= config->hook_ns / 4.0 && burst->hook_ns <= config->hook_ns * 10.0);
    assert_true(burst->n_events >= 0 && burst->n_events <= (double)host->n_seen + 0.5);
    check_totals(host);
    assert_true(fabs(accounted_ns(burst) - host->owed_ns) <= host->tolerance_ns);
}

/* -- events -- */

static void
note_sample(host_t *host)
{
    mpp_burst_t *burst = &host->burst;
    assert_true(burst->phase == MPP_BURST_WINDOW || burst->phase == MPP_BURST_PRELUDE);
    assert_true((burst->phase == MPP_BURST_PRELUDE) == (burst->group == MPP_PRELUDE));
    assert_true(burst->weight >= burst->event_weight - (burst->event_weight >> 31));
    assert_true(burst->weight >= MPP_WEIGHT_ONE && burst->weight <= LARGEST_WEIGHT);
    host->weights[burst->group] += (double)burst->weight;
    uint64_t capture_ns = fuzz_byte(&host->input) * 100u;
    if (host->sane) run(host, capture_ns);
    mpp_burst_captured(burst, capture_ns);
}

static void
close_window(host_t *host)
{
    mpp_burst_t *burst = &host->burst;
    uint64_t n_windows = burst->totals.n_windows + has_window(burst);
    mpp_burst_close(burst);
    assert_false(has_window(burst));
    assert_int_equal(burst->totals.n_windows, n_windows);
    host->tolerance_ns += 4;
}

/* By the program's own time, of which the machine knows what its events took. */
static bool
is_past_end(const host_t *host)
{
    const mpp_burst_t *burst = &host->burst;
    return has_window(burst) && host->window_cpu_ns >= burst->own_ns + burst->end_ns;
}

static void
allocate(host_t *host, uint64_t ns)
{
    mpp_burst_t *burst = &host->burst;
    host->n_allocations++;
    if (host->sane) run(host, ns + (uint64_t)burst->hook_ns + 1);
    if (burst->phase != MPP_BURST_OUT) host->n_seen++;
    bool was_out = burst->phase == MPP_BURST_OUT;
    if (mpp_burst_passes(burst)) return;
    mpp_burst_verdict_t verdict = mpp_burst_judge(burst);
    assert_true(burst->phase != MPP_BURST_PRELUDE || verdict == MPP_BURST_SAMPLE);
    assert_true(!was_out || verdict == MPP_BURST_CLOSE);
    assert_true(!host->sane || !is_past_end(host) || verdict == MPP_BURST_CLOSE);
    if (verdict == MPP_BURST_SAMPLE) note_sample(host);
    if (verdict == MPP_BURST_CLOSE) close_window(host);
}

static void
do_allocate(host_t *host)
{
    allocate(host, any_time(host));
}

static void
do_storm(host_t *host)
{
    uint32_t n = fuzz_byte(&host->input);
    uint64_t ns = fuzz_byte(&host->input) * 16u;
    while (n-- > 0) allocate(host, ns);
}

static void
do_run(host_t *host)
{
    run(host, any_time(host));
}

static void
do_sleep(host_t *host)
{
    host->now_ns += any_time(host);
}

static void
do_jump(host_t *host)
{
    if (!host->sane) jump(host);
}

/* -- ticks -- */

/* What is due in the prelude is its end: all that the hook was told of has been counted then. */
static bool
end_prelude(host_t *host)
{
    mpp_burst_t *burst = &host->burst;
    uint64_t n_windows = burst->totals.n_windows;
    if (burst->phase != MPP_BURST_PRELUDE) return false;
    mpp_burst_end_prelude(burst, host->cpu_ns, host->n_allocations);
    assert_int_equal(burst->phase, MPP_BURST_OUT);
    assert_int_equal(burst->totals.n_windows, n_windows);
    assert_int_equal(burst->totals.n_prelude_events, host->n_seen);
    return true;
}

static void
owe(host_t *host, uint64_t cpu_ns, uint64_t due_ns, uint64_t mean_ns)
{
    double growth_ns = accounted_ns(&host->burst) - host->owed_ns;
    host->tolerance_ns += 8;
    assert_true(growth_ns >= (double)mean_ns - host->tolerance_ns);
    /* No two ticks are nearer to each other than the timer's looks. */
    bool one = cpu_ns < due_ns + host->burst.config.timer_ns;
    assert_true(!one || growth_ns <= (double)mean_ns + host->tolerance_ns);
    host->owed_ns += growth_ns;
}

/* Now, or when it is due. */
static void
do_open(host_t *host)
{
    mpp_burst_t *burst = &host->burst;
    uint64_t due_ns = burst->due_ns, mean_ns = burst->drawn_mean_ns;
    uint64_t late_ns = any_time(host);
    bool in_gc = fuzz_below(&host->input, 8) == 0, was_open = has_window(burst);
    if (end_prelude(host)) return;
    if (host->sane && host->cpu_ns < mpp_burst_due(burst)) run(host, mpp_burst_due(burst) - host->cpu_ns);
    if (host->sane) run(host, late_ns);

    uint64_t n_windows = burst->totals.n_windows;
    bool in = mpp_burst_open(burst, host->cpu_ns, late_ns, in_gc);
    assert_true(in == (burst->phase != MPP_BURST_OUT));
    assert_int_equal(burst->totals.n_windows, n_windows + was_open);
    assert_true(burst->totals.n_ticks == host->before.n_ticks + 1 && burst->totals.cpu_ns == host->cpu_ns);
    assert_true(!in || (burst->event_weight > 0 && burst->tick_ns > 0));
    if (in_gc) { /* what a collection took is nobody's */
        host->owed_ns = accounted_ns(burst);
    } else {
        owe(host, host->cpu_ns, due_ns, mean_ns);
    }
    host->window_cpu_ns = 0;
}

static void
do_pass_over(host_t *host)
{
    mpp_burst_t *burst = &host->burst;
    if (end_prelude(host)) return;
    mpp_burst_phase_t phase = burst->phase;
    if (host->sane && host->cpu_ns < mpp_burst_due(burst)) run(host, mpp_burst_due(burst) - host->cpu_ns);
    mpp_burst_pass_over(burst, host->cpu_ns);
    assert_int_equal(burst->phase, phase);
}

static void
do_calibrate(host_t *host)
{
    mpp_burst_count_prelude(&host->burst, host->cpu_ns);
    if (host->burst.phase == MPP_BURST_PRELUDE) {
        assert_int_equal(host->burst.totals.n_prelude_events, host->n_seen);
        return;
    }
    mpp_burst_calibrate(&host->burst, host->n_allocations);
}

static void
do_spend(host_t *host)
{
    uint64_t ns = any_time(host);
    if (fuzz_below(&host->input, 2)) {
        mpp_burst_spent(&host->burst, ns);
    } else {
        mpp_burst_spent_apart(&host->burst, ns);
    }
}

static void
do_close(host_t *host)
{
    close_window(host);
    close_window(host); /* which is nothing */
}

/* The program allocates where no hook sees it. */
static void
do_allocate_outside(host_t *host)
{
    host->n_allocations += any_time(host);
}

/* As often as they stand here. */
static void (*const operations[])(host_t *host) = {
    do_allocate,  do_storm,     do_storm, do_storm, do_open,
    do_open,      do_open,      do_run,   do_sleep, do_jump,
    do_calibrate, do_calibrate, do_spend, do_close, do_allocate_outside,
    do_pass_over,
};

/* -- estimates -- */

static double
any_sum(fuzz_input_t *input)
{
    return (double)fuzz_magnitude(input) / (double)(UINT64_C(1) << fuzz_below(input, 64));
}

static void
check_estimate(const mpp_estimate_t *estimate)
{
    assert_true(estimate->share >= 0 && estimate->standard_error >= 0);
    assert_true(estimate->low >= 0 && estimate->low <= estimate->share * (1 + 1e-9));
    assert_true(estimate->high >= estimate->share * (1 - 1e-9));
}

static void
check_estimates(fuzz_input_t *input, const double *weights)
{
    double part[MPP_N_GROUPS], whole[MPP_N_GROUPS];
    bool own = fuzz_below(input, 2) == 0;
    for (unsigned i = 0; i < MPP_N_GROUPS; i++) {
        whole[i] = own ? weights[i] : any_sum(input);
        part[i] = whole[i] * (fuzz_byte(input) / 255.0);
    }
    uint64_t n_windows = fuzz_magnitude(input);
    double unobserved = fuzz_byte(input) / 255.0;
    mpp_estimate_t share = mpp_estimate_share(part, whole, n_windows, unobserved);
    check_estimate(&share);
    assert_true(share.high <= 1 + 1e-9);

    for (unsigned i = 0; i < MPP_N_GROUPS; i++) part[i] *= fuzz_byte(input);
    mpp_estimate_t ratio = mpp_estimate_ratio(part, whole, n_windows, unobserved);
    check_estimate(&ratio);
    mpp_estimate_t sum = mpp_estimate_sum(any_sum(input), any_sum(input), any_sum(input));
    check_estimate(&sum);
    mpp_estimate_t both = mpp_estimate_add(share, sum);
    assert_true(both.share >= share.share && both.high >= both.share * (1 - 1e-9));
    assert_true(both.low <= both.share * (1 + 1e-9) && both.low >= -1e-9 * both.share);
    double missed = mpp_estimate_unobserved(any_sum(input), any_sum(input), any_sum(input), whole);
    assert_true(missed >= 0 && missed <= 1);
}

static void
check_weight(fuzz_input_t *input)
{
    double n = ldexp(1 + (double)fuzz_number(input, 6) * 0x1p-48, (int)fuzz_below(input, 31));
    mpp_weight_t weight = mpp_weight_of(n);
    assert_true(fabs((double)weight - ldexp(n, MPP_WEIGHT_BITS)) <= (double)weight * 0x1p-32);
    while ((weight & 1) == 0) weight >>= 1;
    assert_true(weight <= UINT32_MAX);
}

/* -- the run -- */

static mpp_burst_config_t
any_config(fuzz_input_t *input)
{
    uint64_t min_lead_ns = fuzz_byte(input) * 1000u, min_interval_ns = fuzz_byte(input) * UINT64_C(1000000);
    return (mpp_burst_config_t){
        .overhead = (1 + fuzz_byte(input)) / 512.0,
        .window_ns = 1 + fuzz_byte(input) * 4000u,
        .min_lead_ns = min_lead_ns,
        .max_lead_ns = min_lead_ns + fuzz_byte(input) * 40000u,
        .timer_ns = 1000000 + fuzz_byte(input) * UINT64_C(35000),
        .min_interval_ns = min_interval_ns,
        .max_interval_ns = min_interval_ns + fuzz_byte(input) * UINT64_C(8000000),
        .hook_ns = 1 + fuzz_byte(input),
        .seed = fuzz_byte(input),
    };
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static host_t host;
    host = (host_t){.input = fuzz_input(data, size), .now_ns = UINT64_C(1) << 40};
    uint32_t choice = fuzz_below(&host.input, 8);
    host.sane = choice % 4 != 0;
    mpp_burst_config_t config = any_config(&host.input);
    mpp_burst_init(&host.burst, &config, &(mpp_clock_t){now, window_cpu, &host});
    if (choice > 3) mpp_burst_begin_prelude(&host.burst, any_time(&host));
    check(&host);
    while (fuzz_left(&host.input) > 2 * MPP_N_GROUPS + 16) {
        operations[fuzz_below(&host.input, SUPPORT_LENGTH(operations))](&host);
        check(&host);
    }
    do_close(&host);
    check(&host);
    check_weight(&host.input);
    check_estimates(&host.input, host.weights);
    return 0;
}
