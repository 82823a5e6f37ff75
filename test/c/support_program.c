/*
 * Time passes in one function, pass(), which fires the timer and now and then takes the CPU away for a while. While the
 * hook is out, allocations are taken in bulk up to the next firing or the end of the stretch; while it is in, one by one.
 * Timer interrupts come every 4 ms by the clock on the wall, and look at the timer if the program has the CPU.
 */

#include "support_program.h"

#include "burst.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    JIFFY_NS = 4000000,
    LOOK_NS = 20,      /* a read of the cheap clock */
    CPU_READ_NS = 300, /* … of the dear one */
    SIGNAL_NS = 1500,  /* the handler */
    JOB_NS = 2500,     /* the job, the timer set anew */
    HOOK_IN_NS = 700,
    HOOK_OUT_NS = 700,
    PREEMPTED_EVERY_NS = 30000000,
    PREEMPTED_NS = 2000000,
    SAFE_POINT_EVERY_NS = 1000,
    COUNTED_WINDOW = 1000,
    MAX_SAMPLES_OF_KEPT = 1 << 16,
};

/* A sample of a site that keeps objects. */
typedef struct {
    double n_before; /* objects that the site had allocated */
    double weight;
    uint8_t site, group;
} sample_t;

struct support_host {
    support_run_t run;
    support_random_t random;
    mpp_burst_t burst;
    bool hooked;

    uint64_t wall_ns, cpu_ns, own_ns;
    uint64_t first_ns; /* program time at the begin, at random: no program starts in step with the timer */
    uint64_t opened_cpu_ns;
    uint64_t due_ns, fired_ns, preempted_ns, flush_due_ns; /* CPU time */
    bool armed, pending, pending_in_gc, in_gc;

    uint64_t n_stretches, n_allocations;
    support_outcome_t outcome;

    /* Counted windows. */
    uint32_t n_left;
    uint64_t n_at_last_window;
    uint32_t n_counted[SUPPORT_N_SITES];
    uint64_t n_counted_windows;

    size_t n_samples;
    sample_t samples[MAX_SAMPLES_OF_KEPT];
};

/* CPU time at which the timer fires if the program keeps the CPU. */
static uint64_t
next_firing(const support_host_t *host)
{
    if (!host->armed) return UINT64_MAX;
    uint64_t wait_ns = host->due_ns > host->cpu_ns ? host->due_ns - host->cpu_ns : 0;
    uint64_t interrupt_ns = ((host->wall_ns + wait_ns) / JIFFY_NS + 1) * JIFFY_NS;
    return host->cpu_ns + interrupt_ns - host->wall_ns;
}

static bool
fires_within(const support_host_t *host, uint64_t ns)
{
    return host->armed && host->cpu_ns + ns >= host->due_ns && host->cpu_ns + ns >= next_firing(host);
}

static void
pass(support_host_t *host, uint64_t ns)
{
    if (fires_within(host, ns)) {
        host->fired_ns = next_firing(host);
        host->armed = false;
        host->pending = true;
        host->pending_in_gc = host->in_gc;
    }
    host->cpu_ns += ns;
    host->wall_ns += ns;
    if (host->cpu_ns >= host->preempted_ns) {
        host->wall_ns += PREEMPTED_NS / 2 + support_below(&host->random, PREEMPTED_NS);
        host->preempted_ns = host->cpu_ns + PREEMPTED_EVERY_NS / 2 + support_below(&host->random, PREEMPTED_EVERY_NS);
    }
}

/* Time that goes into profiling. */
static void
work(support_host_t *host, uint64_t ns)
{
    host->own_ns += ns;
    pass(host, ns);
}

static uint64_t
read_now(void *context)
{
    support_host_t *host = context;
    work(host, LOOK_NS);
    return host->wall_ns;
}

static uint64_t
read_cpu(void *context)
{
    support_host_t *host = context;
    work(host, CPU_READ_NS);
    return host->cpu_ns - host->opened_cpu_ns;
}

static uint64_t
program_time(const support_host_t *host)
{
    return host->cpu_ns - host->own_ns;
}

static void
set_timer(support_host_t *host)
{
    host->due_ns = mpp_burst_due(&host->burst);
    host->armed = true;
}

support_host_t *
support_host_new(const support_run_t *run)
{
    support_host_t *host = calloc(1, sizeof *host);
    assert_non_null(host);
    host->run = *run;
    host->run.config.seed = run->seed;
    if (run->observer == SUPPORT_FROM_SAFE_POINT) host->run.config.min_lead_ns = host->run.config.max_lead_ns = 0;
    host->random.state = run->seed * 7919 + 1;
    host->first_ns = (uint64_t)support_below(&host->random, 1000000) * 1000;
    host->preempted_ns = support_below(&host->random, PREEMPTED_EVERY_NS);
    host->flush_due_ns = run->flush_every_ns ? run->flush_every_ns : UINT64_MAX;

    mpp_clock_t clock = {read_now, read_cpu, host};
    mpp_burst_init(&host->burst, &host->run.config, &clock);
    host->hooked = run->prelude_ns > 0;
    if (host->hooked) mpp_burst_begin_prelude(&host->burst, run->prelude_ns);
    set_timer(host);
    return host;
}

/* The host's side. */

static void
open_counted_window(support_host_t *host)
{
    host->hooked = true;
    host->n_left = COUNTED_WINDOW;
    memset(host->n_counted, 0, sizeof host->n_counted);
}

static void
close_counted_window(support_host_t *host)
{
    double each = (double)(host->n_allocations - host->n_at_last_window) / COUNTED_WINDOW;
    unsigned group = (unsigned)(host->n_counted_windows++ % MPP_N_GROUPS);
    for (int i = 0; i < SUPPORT_N_SITES; i++) host->outcome.weight[i][group] += each * host->n_counted[i];
    host->n_at_last_window = host->n_allocations;
    host->hooked = false;
}

static void
run_job(support_host_t *host)
{
    uint64_t late_ns = host->cpu_ns - host->fired_ns;
    host->pending = false;
    work(host, SIGNAL_NS);
    if (host->burst.phase == MPP_BURST_PRELUDE) {
        host->hooked = false;
        mpp_burst_end_prelude(&host->burst, host->cpu_ns, host->n_allocations);
        set_timer(host);
        return;
    }
    host->opened_cpu_ns = host->cpu_ns;
    if (host->run.observer == SUPPORT_FROM_SAFE_POINT) late_ns = 0;
    host->hooked = mpp_burst_open(&host->burst, host->cpu_ns, late_ns, host->pending_in_gc);
    if (host->run.observer != SUPPORT_UNCALIBRATED) mpp_burst_calibrate(&host->burst, host->n_allocations);
    if (host->run.observer == SUPPORT_COUNTED_WINDOWS) open_counted_window(host);
    set_timer(host);
    work(host, JOB_NS + HOOK_IN_NS);
    mpp_burst_spent(&host->burst, SIGNAL_NS + JOB_NS + HOOK_IN_NS);
}

static void
reach_safe_point(support_host_t *host)
{
    if (host->pending) run_job(host);
    if (host->cpu_ns >= host->flush_due_ns) {
        host->flush_due_ns += host->run.flush_every_ns;
        mpp_burst_close(&host->burst);
        host->hooked = false;
        work(host, host->run.flush_ns);
        mpp_burst_spent_apart(&host->burst, host->run.flush_ns);
    }
}

static void
take_sample(support_host_t *host, unsigned site)
{
    const mpp_burst_t *burst = &host->burst;
    double weight = (double)burst->weight / (double)MPP_WEIGHT_ONE;
    host->outcome.weight[site][burst->group] += weight;
    if (host->run.n_kept && host->run.n_kept[site] > 0) {
        assert_true(host->n_samples < MAX_SAMPLES_OF_KEPT);
        host->samples[host->n_samples++] =
            (sample_t){host->outcome.n_allocated[site] - 1, weight, (uint8_t)site, burst->group};
    }
    work(host, host->run.capture_ns);
    mpp_burst_captured(&host->burst, host->run.capture_ns);
}

static void
handle_event(support_host_t *host, unsigned site)
{
    work(host, host->run.hook_ns);
    if (host->run.observer == SUPPORT_COUNTED_WINDOWS) {
        host->n_counted[site]++;
        if (--host->n_left == 0) close_counted_window(host);
        return;
    }
    if (mpp_burst_passes(&host->burst)) return;
    switch (mpp_burst_judge(&host->burst)) {
    case MPP_BURST_PASS: break;
    case MPP_BURST_SAMPLE: take_sample(host, site); break;
    case MPP_BURST_CLOSE:
        work(host, HOOK_OUT_NS);
        host->hooked = false;
        mpp_burst_close(&host->burst);
        mpp_burst_spent(&host->burst, HOOK_OUT_NS);
        break;
    }
}

/* The program's side. */

static void
count(support_host_t *host, const support_stretch_t *stretch, uint32_t first, uint32_t n)
{
    uint32_t n_cycles = n / stretch->n_sites;
    if (n_cycles > 0) {
        for (uint32_t i = 0; i < stretch->n_sites; i++) host->outcome.n_allocated[stretch->sites[i]] += n_cycles;
    }
    for (uint32_t i = first + n_cycles * stretch->n_sites; i < first + n; i++) {
        host->outcome.n_allocated[stretch->sites[i % stretch->n_sites]]++;
    }
    host->n_allocations += n;
}

/* Computes for so long. Ruby code meets safe points all the time, native code none. */
static void
compute(support_host_t *host, uint64_t ns, bool native)
{
    if (!native && fires_within(host, ns)) {
        uint64_t part_ns = next_firing(host) - host->cpu_ns + support_below(&host->random, SAFE_POINT_EVERY_NS);
        if (part_ns > ns) part_ns = ns;
        pass(host, part_ns);
        reach_safe_point(host);
        ns -= part_ns;
    }
    pass(host, ns);
}

/* How many of the n allocations to come need no attention. */
static uint32_t
bulk(const support_host_t *host, const support_stretch_t *stretch, uint32_t n)
{
    if (stretch->native) return n;
    uint64_t next_ns = next_firing(host);
    if (host->flush_due_ns < next_ns) next_ns = host->flush_due_ns;
    if (host->preempted_ns < next_ns) next_ns = host->preempted_ns;
    uint64_t until = (next_ns - host->cpu_ns) / stretch->each_ns;
    return until < n ? (uint32_t)until : n;
}

static void
run_allocations(support_host_t *host, const support_stretch_t *stretch)
{
    for (uint32_t i = 0; i < stretch->n_allocations; i++) {
        if (!host->hooked) {
            uint32_t n = bulk(host, stretch, stretch->n_allocations - i);
            pass(host, (uint64_t)n * stretch->each_ns);
            count(host, stretch, i, n);
            i += n;
            if (i == stretch->n_allocations) break;
        }
        compute(host, stretch->each_ns, stretch->native);
        unsigned site = stretch->sites[i % stretch->n_sites];
        host->outcome.n_allocated[site]++;
        host->n_allocations++;
        if (host->hooked) handle_event(host, site);
        if (!stretch->native) reach_safe_point(host);
    }
}

static void
run_stretch(support_host_t *host, const support_stretch_t *stretch)
{
    host->wall_ns += stretch->sleep_ns;
    host->in_gc = true;
    pass(host, stretch->collect_ns);
    host->in_gc = false;
    reach_safe_point(host);
    if (stretch->n_allocations == 0) compute(host, stretch->each_ns, stretch->native);
    run_allocations(host, stretch);
    reach_safe_point(host);
}

void
support_host_run(support_host_t *host, support_program_t program, uint64_t until_ns)
{
    while (program_time(host) < until_ns) {
        support_stretch_t stretch = {0};
        program(&host->random, host->n_stretches++, host->first_ns + program_time(host), &stretch);
        run_stretch(host, &stretch);
    }
}

static void
find_retained(const support_host_t *host, support_outcome_t *outcome)
{
    for (unsigned site = 0; host->run.n_kept && site < SUPPORT_N_SITES; site++) {
        outcome->n_retained[site] = fmin((double)host->run.n_kept[site], outcome->n_allocated[site]);
    }
    for (size_t i = 0; i < host->n_samples; i++) {
        const sample_t *sample = &host->samples[i];
        double n_since = outcome->n_allocated[sample->site] - sample->n_before;
        if (n_since > outcome->n_retained[sample->site]) continue;
        outcome->retained_weight[sample->site][sample->group] += sample->weight;
    }
}

void
support_host_look(const support_host_t *host, support_outcome_t *outcome)
{
    *outcome = host->outcome;
    outcome->totals = *mpp_burst_totals(&host->burst);
    outcome->own_ns = host->own_ns;
    outcome->cpu_ns = host->cpu_ns;
    outcome->mean_interval_ns = mpp_burst_mean_interval(&host->burst);
    outcome->lead_ns = mpp_burst_lead(&host->burst);
    find_retained(host, outcome);
}

void
support_host_free(support_host_t *host)
{
    free(host);
}

void
support_run_program(const support_run_t *run, support_outcome_t *outcome)
{
    support_host_t *host = support_host_new(run);
    support_host_run(host, run->program, run->program_ns);
    support_host_look(host, outcome);
    support_host_free(host);
}
