/*
 * Ticks come at random times of the program's CPU, and the time at which a window counts is a constant after its tick:
 * so the windows are a fair sample of the program's time, whatever the program does in it. Their boundaries are decided at
 * allocations: `now` less what is known to be no program time is never too early, so what it says to be before a boundary
 * is; only what it says to be past one for the first time is asked of the dear CPU clock. Every candidate for a sample
 * looks at the time itself and counts iff it lies in [anchor, end), so the coarse looks between bias nothing.
 *
 * The interval after a tick is a dead time, in which the window surely ends, plus an exponential time. The latter has no
 * memory: whatever the pace has learnt from the program until the tick, the next one is as likely now as later. A window
 * weighs the M that its interval was drawn from, and those of all intervals that ended before its tick could come.
 *
 * p is lowered within a window too, whenever it has given more samples than it should: a sample counts 1/p by the p that
 * its gap was drawn with, which only the past has chosen, so this is unbiased as well, and bounds what a sudden storm costs.
 */

#include "burst.h"

#include <math.h>

/* Allocations between two looks at the clock. */
#define LOOK_EVERY 16u

/* Windows aim at so many samples. More say little, for what is allocated within 200 µs is alike, and they cost more than
 * all the rest. */
#define AIM_SAMPLES 4.0
/* After so many p is halved for the rest of the window. */
#define MAX_SAMPLES 8u
#define MIN_RATE (1.0 / 4096)
/* Setting the timer takes less. */
#define SETTING_NS 50000
/* At the lowest rate it still fits a mpp_weight_t. */
#define MAX_WEIGHT 0x1p19

/* Ticks that may be later than the lead, and ticks after which one counts for 1/e as much. */
#define LATE_SHARE 0.005
#define LATENESS_MEMORY 500.0
#define FIRST_CLASS_BITS 10

/* The pace aims a little lower than the budget: the cost of an event is known to a few nanoseconds only, and the mean of
 * 1 / cost is more than 1 / the mean cost. */
#define AIM_OF_BUDGET 0.8
/* What flushes take of the budget, at most. */
#define MAX_APART_OF_BUDGET 0.75
/* A mean over the last windows counts a new one by 1/16, by more if windows are so rare that 16 take too long. */
#define MIN_SHARE_OF_NEW (1.0 / 16)
#define MAX_SHARE_OF_NEW (1.0 / 3)
#define MEMORY_NS 5e8
/* Flushes are averaged over so much CPU time. */
#define APART_MEMORY_NS 30e9
/* Calibration: over so many ticks, from so many windows on, with so much of their time missed at most. */
#define CALIBRATION_MEMORY 1000.0
#define LEAST_SEEN 20
#define MOST_MISSED 0.05
#define GUESS_ERROR 2.0
/* Before anything is known. */
#define FIRST_TICK_COST_NS 1e5

static uint64_t
min_u64(uint64_t left, uint64_t right)
{
    return left < right ? left : right;
}

static uint64_t
max_u64(uint64_t left, uint64_t right)
{
    return left > right ? left : right;
}

static double
clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* In which a window surely ends, though our own work stretches it, and the timer can fire again. */
static uint64_t
dead_time(const mpp_burst_t *burst)
{
    return max_u64(burst->config.timer_ns, 2 * (burst->lead_ns + burst->config.window_ns));
}

static double
mean_interval(const mpp_burst_t *burst)
{
    double mean = clamp(burst->mean_ns, (double)burst->config.min_interval_ns, (double)burst->config.max_interval_ns);
    return fmax(mean, 2 * (double)dead_time(burst));
}

static void
draw_due(mpp_burst_t *burst)
{
    double mean = mean_interval(burst), dead = (double)dead_time(burst);
    burst->drawn_mean_ns = (uint64_t)mean;
    burst->due_ns += (uint64_t)(dead - (mean - dead) * log(mpp_random_unit(&burst->sampler.random)));
}

/* Of a process that has always been going on: so the time right after the begin is as likely as any. */
static void
draw_first_due(mpp_burst_t *burst)
{
    double mean = mean_interval(burst), early = mean * mpp_random_unit(&burst->sampler.random);
    if (early >= (double)dead_time(burst)) {
        draw_due(burst);
    } else {
        burst->drawn_mean_ns = (uint64_t)mean;
        burst->due_ns += (uint64_t)early;
    }
}

void
mpp_burst_init(mpp_burst_t *burst, const mpp_burst_config_t *config, const mpp_clock_t *clock)
{
    *burst = (mpp_burst_t){
        .countdown = 1, /* an event without a window is told to close */
        .config = *config,
        .clock = *clock,
        .lead_ns = config->min_lead_ns,
        .hook_ns = config->hook_ns,
        .tick_cost_ns = FIRST_TICK_COST_NS,
        .mean_ns = FIRST_TICK_COST_NS / (AIM_OF_BUDGET * config->overhead),
    };
    mpp_sampler_init(&burst->sampler, 1, config->seed);
    draw_first_due(burst);
}

/* The prelude. */

static void
start_prelude_step(mpp_burst_t *burst)
{
    burst->step = burst->countdown = (uint32_t)min_u64(burst->sampler.gap, UINT32_MAX - 1) + 1;
}

/* The countdown goes on from where it is. */
static void
count_step(mpp_burst_t *burst)
{
    uint32_t n = burst->step - burst->countdown;
    burst->step = burst->countdown;
    burst->n_told += n;
    burst->totals.spent_ns += burst->own_ns + (uint64_t)(n * burst->hook_ns);
    burst->own_ns = 0;
    burst->totals.n_events += n;
    burst->totals.n_prelude_events += n;
    burst->totals.event_weight += (mpp_sum_t)n << MPP_WEIGHT_BITS;
}

void
mpp_burst_count_prelude(mpp_burst_t *burst, uint64_t cpu_ns)
{
    if (burst->phase != MPP_BURST_PRELUDE) return;
    count_step(burst);
    burst->totals.cpu_ns = cpu_ns;
}

void
mpp_burst_begin_prelude(mpp_burst_t *burst, uint64_t end_ns)
{
    mpp_sampler_set_rate(&burst->sampler, MPP_PRELUDE_RATE);
    burst->phase = MPP_BURST_PRELUDE;
    burst->group = MPP_PRELUDE;
    burst->due_ns = end_ns;
    start_prelude_step(burst);
}

static mpp_burst_verdict_t
judge_in_prelude(mpp_burst_t *burst)
{
    count_step(burst); /* down to 0 */
    burst->weight = burst->sampler.weight;
    burst->totals.n_prelude_samples++;
    mpp_sampler_draw(&burst->sampler);
    start_prelude_step(burst);
    return MPP_BURST_SAMPLE;
}

/* What an event costs is learnt from what comes after it. */
void
mpp_burst_end_prelude(mpp_burst_t *burst, uint64_t cpu_ns, uint64_t n_allocations)
{
    if (burst->phase != MPP_BURST_PRELUDE) return;
    count_step(burst);
    burst->phase = MPP_BURST_OUT;
    burst->step = burst->countdown = 1;
    burst->totals.cpu_ns = burst->calibrated_ns = burst->due_ns = cpu_ns;
    burst->calibrated_allocations = n_allocations;
    burst->paced_ns = burst->apart_ns = 0;
    draw_first_due(burst);
}

/* Ticks. */

/* The M of the interval that has ended; the next is drawn. */
static uint64_t
take_due(mpp_burst_t *burst)
{
    uint64_t mean_ns = burst->drawn_mean_ns;
    draw_due(burst);
    return mean_ns;
}

/*
 * A tick has come, late_ns before cpu_ns. It stands for all that was due at it: a program that sleeps often is not always
 * there when the timer looks. The timer does not look again before it is set anew, but what it would have found is known:
 * it looks every timer_ns of a call of native code or a collection. If more was due by the last of these times, that is
 * the tick, less late, and the others have no window. What was due later is left for the next look.
 * Gives the lateness; tick_ns is what the tick stands for, *lost_ns what has no window.
 */
static uint64_t
take_tick(mpp_burst_t *burst, uint64_t cpu_ns, uint64_t late_ns, uint64_t *lost_ns)
{
    uint64_t timer_ns = burst->config.timer_ns, since_look_ns = late_ns % timer_ns;
    uint64_t first_ns = cpu_ns > late_ns ? cpu_ns - late_ns : 0;
    uint64_t last_ns = cpu_ns > since_look_ns ? cpu_ns - since_look_ns : 0, late_due_ns = 0;

    burst->tick_ns = take_due(burst);
    while (burst->due_ns <= first_ns) burst->tick_ns += take_due(burst);
    *lost_ns = 0;
    while (burst->due_ns + timer_ns <= last_ns) *lost_ns += take_due(burst);
    while (burst->due_ns <= last_ns) late_due_ns += take_due(burst);
    if (late_due_ns == 0) return late_ns;
    *lost_ns += burst->tick_ns;
    burst->tick_ns = late_due_ns;
    return since_look_ns;
}

uint64_t
mpp_burst_due(const mpp_burst_t *burst)
{
    return max_u64(burst->due_ns, burst->totals.cpu_ns + SETTING_NS);
}

/* Lead. */

static unsigned
lateness_class(uint64_t ns)
{
    if (ns >> FIRST_CLASS_BITS == 0) return 0;
    unsigned bits = 63 - (unsigned)__builtin_clzll(ns);
    unsigned class = (bits - FIRST_CLASS_BITS) * 4 + (unsigned)(ns >> (bits - 2) & 3);
    return class < MPP_BURST_LATENESS_CLASSES ? class : MPP_BURST_LATENESS_CLASSES - 1;
}

/* What every lateness of the class is below. */
static uint64_t
class_bound(unsigned class)
{
    return (uint64_t)(5 + class % 4) << (FIRST_CLASS_BITS - 2 + class / 4);
}

/* While few ticks are known each of them counts for more than LATE_SHARE, so the lead grows at the first late one. */
static void
adapt_lead(mpp_burst_t *burst, uint64_t late_ns)
{
    double total = 0, later = 0;
    for (int i = 0; i < MPP_BURST_LATENESS_CLASSES; i++) {
        burst->lateness[i] *= 1 - 1 / LATENESS_MEMORY;
        total += burst->lateness[i];
    }
    burst->lateness[lateness_class(late_ns)] += 1;
    total += 1;

    unsigned class = MPP_BURST_LATENESS_CLASSES - 1;
    while (class > 0 && later + burst->lateness[class] <= LATE_SHARE * total) later += burst->lateness[class --];
    burst->lead_ns = min_u64(max_u64(class_bound(class), burst->config.min_lead_ns), burst->config.max_lead_ns);
}

/* Time and events of a window. */

static uint64_t
program_time(const mpp_burst_t *burst, uint64_t elapsed_ns)
{
    uint64_t other_ns = burst->off_cpu_ns + burst->own_ns;
    return elapsed_ns > other_ns ? elapsed_ns - other_ns : 0;
}

static uint64_t
next_boundary(const mpp_burst_t *burst)
{
    return burst->phase == MPP_BURST_LEAD ? burst->anchor_ns : burst->end_ns;
}

static uint64_t
elapsed_time(const mpp_burst_t *burst)
{
    return burst->clock.now(burst->clock.context) - burst->opened_ns;
}

/* Program time since the window was opened, by the dear clock. */
static uint64_t
look_closely(mpp_burst_t *burst, uint64_t elapsed_ns)
{
    uint64_t cpu_ns = burst->clock.cpu(burst->clock.context);
    burst->off_cpu_ns = elapsed_ns > cpu_ns ? elapsed_ns - cpu_ns : 0;
    return program_time(burst, elapsed_ns);
}

/* The same, cheaply where it is before the next boundary: there it may be too much. */
static uint64_t
look(mpp_burst_t *burst)
{
    uint64_t elapsed_ns = elapsed_time(burst), time_ns = program_time(burst, elapsed_ns);
    return time_ns < next_boundary(burst) ? time_ns : look_closely(burst, elapsed_ns);
}

static bool
is_within(const mpp_burst_t *burst, uint64_t time_ns)
{
    return time_ns >= burst->anchor_ns && time_ns < burst->end_ns;
}

/* Counts n events between the last look and time_ns, spread evenly, which is right on average: what is wrong by it at a
 * window's begin is as much the other way round at its end. */
static void
spread_events(mpp_burst_t *burst, uint32_t n, uint64_t time_ns)
{
    uint64_t from = max_u64(burst->looked_ns, burst->anchor_ns), to = min_u64(time_ns, burst->end_ns);
    if (time_ns > burst->looked_ns) {
        if (to > from) burst->n_events += n * ((double)(to - from) / (double)(time_ns - burst->looked_ns));
    } else if (is_within(burst, time_ns)) {
        burst->n_events += n;
    }
}

static void
start_step(mpp_burst_t *burst)
{
    burst->step = burst->countdown = (uint32_t)min_u64(burst->sampler.gap, LOOK_EVERY - 1) + 1;
}

/* Draws the gap to a candidate at the rate. */
static void
set_rate(mpp_burst_t *burst, double rate)
{
    mpp_sampler_set_rate(&burst->sampler, clamp(rate, MIN_RATE, 1));
    burst->gap_weight = mpp_weight_of((double)burst->event_weight / (double)MPP_WEIGHT_ONE / burst->sampler.rate);
    burst->n_samples = 0;
}

/* This event is a candidate: the weight is that of its own gap, before the next is drawn. */
static void
take_candidate(mpp_burst_t *burst, bool is_sample)
{
    burst->weight = burst->gap_weight;
    if (is_sample && ++burst->n_samples >= MAX_SAMPLES) {
        set_rate(burst, burst->sampler.rate / 2);
    } else {
        mpp_sampler_draw(&burst->sampler);
    }
}

mpp_burst_verdict_t
mpp_burst_judge(mpp_burst_t *burst)
{
    if (burst->phase == MPP_BURST_OUT) {
        burst->countdown = 1;
        return MPP_BURST_CLOSE;
    }
    if (burst->phase == MPP_BURST_PRELUDE) return judge_in_prelude(burst);
    burst->n_told += burst->step;
    burst->own_ns += (uint64_t)(burst->step * burst->hook_ns);
    uint64_t time_ns = look(burst);
    bool within = is_within(burst, time_ns);
    bool candidate = burst->sampler.gap < burst->step;

    spread_events(burst, burst->step - 1, time_ns);
    burst->n_events += within;
    burst->looked_ns = time_ns;
    if (time_ns >= burst->anchor_ns) burst->phase = MPP_BURST_WINDOW;

    if (candidate) {
        take_candidate(burst, within);
    } else {
        burst->sampler.gap -= burst->step;
    }
    start_step(burst);
    if (time_ns >= burst->end_ns) return MPP_BURST_CLOSE;
    return candidate && within ? MPP_BURST_SAMPLE : MPP_BURST_PASS;
}

/* Accounts for the events since the last look, unless that has found the window over. Gives the time. */
static uint64_t
settle(mpp_burst_t *burst)
{
    if (burst->looked_ns >= burst->end_ns) return burst->looked_ns;
    uint32_t n = burst->step - burst->countdown;
    burst->own_ns += (uint64_t)(n * burst->hook_ns);
    uint64_t time_ns = look_closely(burst, elapsed_time(burst));
    spread_events(burst, n, time_ns);
    burst->looked_ns = time_ns;
    return time_ns;
}

/* Program time within windows of this tick, as the CPU time that it stands for. */
static uint64_t
stand_for(const mpp_burst_t *burst, uint64_t ns)
{
    return (uint64_t)((double)ns / (double)burst->config.window_ns * (double)burst->tick_ns);
}

/* A window's time and events, for calibration. */
static void
see(mpp_burst_t *burst, uint64_t program_ns, double n_events)
{
    double weight = (double)burst->tick_ns / (double)burst->config.window_ns;
    burst->seen_ns += weight * ((double)program_ns + n_events * burst->hook_ns);
    burst->seen_events += weight * n_events;
    burst->seen_squares += weight * n_events * weight * n_events;
    burst->n_seen += 1;
}

static void
account(mpp_burst_t *burst)
{
    mpp_burst_totals_t *totals = &burst->totals;
    uint64_t seen_ns = max_u64(min_u64(burst->looked_ns, burst->end_ns), burst->anchor_ns);

    see(burst, seen_ns - burst->anchor_ns, burst->n_events);
    totals->n_windows++;
    totals->observed_ns += stand_for(burst, seen_ns - burst->anchor_ns);
    totals->missed_ns += stand_for(burst, burst->end_ns - seen_ns);
    totals->n_events += (uint64_t)(burst->n_events + 0.5);
    totals->event_weight += (mpp_sum_t)(burst->n_events * (double)burst->event_weight);
    mpp_burst_spent(burst, burst->own_ns);

    double share_of_new = fmax(MIN_SHARE_OF_NEW, 1 / (double)totals->n_windows);
    burst->events_per_window += share_of_new * (burst->n_events - burst->events_per_window);
    burst->phase = MPP_BURST_OUT;
}

void
mpp_burst_close(mpp_burst_t *burst)
{
    if (burst->phase == MPP_BURST_OUT || burst->phase == MPP_BURST_PRELUDE) return;
    (void)settle(burst);
    account(burst);
}

/* Windows. */

static void
start_window(mpp_burst_t *burst, uint64_t late_ns, uint64_t lead_ns)
{
    burst->opened_ns = burst->clock.now(burst->clock.context);
    burst->off_cpu_ns = burst->own_ns = burst->looked_ns = burst->n_told = 0;
    burst->anchor_ns = lead_ns > late_ns ? lead_ns - late_ns : 0;
    burst->end_ns = lead_ns + burst->config.window_ns - late_ns;
    burst->n_events = 0;
    burst->phase = burst->anchor_ns > 0 ? MPP_BURST_LEAD : MPP_BURST_WINDOW;
    burst->group = (uint8_t)(burst->totals.n_windows % MPP_N_GROUPS);

    double weight = fmin((double)burst->tick_ns / (double)burst->config.window_ns, MAX_WEIGHT);
    burst->event_weight = (mpp_weight_t)(weight * (double)MPP_WEIGHT_ONE + 0.5);
    set_rate(burst, AIM_SAMPLES / fmax(burst->events_per_window, AIM_SAMPLES));
    start_step(burst);
}

/* A tick has come while a window is open. If that is not over, it ends here, and what is left of it is made up for in the
 * window of the tick, which is near: programs that sleep often can be seen at few of the timer's interrupts, so ticks may
 * come with hardly any CPU time between them. Gives the CPU time that is to be made up for. */
static uint64_t
end_window(mpp_burst_t *burst)
{
    uint64_t time_ns = max_u64(settle(burst), burst->anchor_ns), left_ns = 0;
    if (time_ns < burst->end_ns) {
        burst->totals.n_overlapped++;
        left_ns = stand_for(burst, burst->end_ns - time_ns);
        burst->end_ns = time_ns;
    }
    account(burst);
    return left_ns;
}

/* What a tick's window has lost by being opened late. */
static uint64_t
lost_window(const mpp_burst_t *burst, uint64_t late_ns, uint64_t lead_ns)
{
    return late_ns > lead_ns ? min_u64(late_ns - lead_ns, burst->config.window_ns) : 0;
}

/* Cost and pace. */

void
mpp_burst_captured(mpp_burst_t *burst, uint64_t ns)
{
    burst->own_ns += ns;
}

void
mpp_burst_spent(mpp_burst_t *burst, uint64_t ns)
{
    burst->paced_ns += ns;
    burst->totals.spent_ns += ns;
}

void
mpp_burst_spent_apart(mpp_burst_t *burst, uint64_t ns)
{
    burst->apart_ns += ns;
    burst->totals.spent_ns += ns;
}

static void
follow_budget(mpp_burst_t *burst, uint64_t cpu_ns)
{
    double passed_ns = cpu_ns > burst->totals.cpu_ns ? (double)(cpu_ns - burst->totals.cpu_ns) : 0;
    double budget = AIM_OF_BUDGET * burst->config.overhead;

    burst->totals.cpu_ns = cpu_ns;
    burst->apart_share *= exp(-passed_ns / APART_MEMORY_NS);
    burst->apart_share += (double)burst->apart_ns / APART_MEMORY_NS;
    burst->apart_ns = 0;

    /* The first ticks are averaged plainly, and before the first there is nothing to learn from. */
    if (burst->totals.n_ticks > 0) {
        double share_of_new = clamp(passed_ns / MEMORY_NS, MIN_SHARE_OF_NEW, MAX_SHARE_OF_NEW);
        share_of_new = fmax(share_of_new, 1 / (double)burst->totals.n_ticks);
        burst->tick_cost_ns += share_of_new * ((double)burst->paced_ns - burst->tick_cost_ns);
    }
    burst->paced_ns = 0;
    burst->mean_ns = burst->tick_cost_ns / (budget - fmin(burst->apart_share, MAX_APART_OF_BUDGET * budget));
}

bool
mpp_burst_open(mpp_burst_t *burst, uint64_t cpu_ns, uint64_t late_ns, bool in_gc)
{
    mpp_burst_totals_t *totals = &burst->totals;
    /* The lead that was settled before this tick: one that follows its own lateness would choose what it sees. */
    uint64_t lead_ns = burst->lead_ns, lost_tick_ns;
    uint64_t left_ns = burst->phase == MPP_BURST_OUT ? 0 : end_window(burst);

    follow_budget(burst, cpu_ns);
    if (!in_gc) adapt_lead(burst, late_ns);
    late_ns = take_tick(burst, cpu_ns, late_ns, &lost_tick_ns);
    burst->tick_ns += left_ns;

    uint64_t lost_ns = lost_window(burst, late_ns, lead_ns);
    totals->n_ticks++;
    totals->n_late += late_ns > lead_ns;
    /* Nothing is allocated in a collection: what it took of windows is no loss. */
    if (in_gc) {
        see(burst, lost_ns, 0);
        burst->seen_ns += (double)lost_tick_ns;
    } else {
        totals->missed_ns += lost_tick_ns + stand_for(burst, lost_ns);
        burst->missed_part_ns += (double)(lost_tick_ns + stand_for(burst, lost_ns));
    }
    if (lost_ns == burst->config.window_ns) return false;
    start_window(burst, late_ns, lead_ns);
    return true;
}

void
mpp_burst_pass_over(mpp_burst_t *burst, uint64_t cpu_ns)
{
    uint64_t lost_ns, window_tick_ns = burst->tick_ns;
    follow_budget(burst, cpu_ns);
    (void)take_tick(burst, cpu_ns, 0, &lost_ns);
    burst->totals.n_ticks++;
    if (burst->phase == MPP_BURST_OUT) {
        see(burst, burst->config.window_ns, 0);
    } else {
        burst->tick_ns = window_tick_ns; /* the open window goes on standing for what it stood for */
    }
}

/* Calibration. */

static void
decay(mpp_burst_t *burst)
{
    double *sums[] = {&burst->seen_ns,        &burst->seen_events, &burst->seen_squares,      &burst->n_seen,
                      &burst->missed_part_ns, &burst->passed_ns,   &burst->passed_allocations};
    for (size_t i = 0; i < sizeof(sums) / sizeof(*sums); i++) *sums[i] *= 1 - 1 / CALIBRATION_MEMORY;
}

/*
 * An allocation takes seen_ns / seen_events in windows and passed_ns / passed_allocations on the whole; the difference is
 * what it costs to see it. How well that is known is told by the spread of windows; the guess of the config counts with
 * it as one whose own error is GUESS_ERROR of itself. Not where much is missed, for that is allocated faster than the rest.
 */
static double
find_hook_cost(const mpp_burst_t *burst)
{
    double guess = burst->config.hook_ns, guess_variance = GUESS_ERROR * guess * GUESS_ERROR * guess;
    double mean = burst->seen_events / burst->n_seen, each_ns = burst->seen_ns / burst->seen_events;
    double relative_variance = fmax(burst->seen_squares / burst->n_seen / (mean * mean) - 1, 0.01) / burst->n_seen;
    double found = each_ns - burst->passed_ns / burst->passed_allocations;
    double variance = relative_variance * each_ns * each_ns;
    return (guess / guess_variance + found / variance) / (1 / guess_variance + 1 / variance);
}

void
mpp_burst_calibrate(mpp_burst_t *burst, uint64_t n_allocations)
{
    double passed = (double)(n_allocations - burst->calibrated_allocations);
    decay(burst);
    burst->passed_ns += (double)(burst->totals.cpu_ns - burst->calibrated_ns);
    burst->passed_allocations += passed;
    burst->calibrated_ns = burst->totals.cpu_ns;
    burst->calibrated_allocations = n_allocations;
    if (burst->n_seen < LEAST_SEEN || burst->seen_events < 1 || burst->passed_allocations < 1) return;
    if (burst->missed_part_ns > MOST_MISSED * burst->seen_ns) return;
    double guess = burst->config.hook_ns;
    burst->hook_ns = clamp(find_hook_cost(burst), guess / 4, guess * 10);
}

uint64_t
mpp_burst_mean_interval(const mpp_burst_t *burst)
{
    return (uint64_t)mean_interval(burst);
}

uint64_t
mpp_burst_lead(const mpp_burst_t *burst)
{
    return burst->lead_ns;
}

double
mpp_burst_sample_rate(const mpp_burst_t *burst)
{
    if (burst->phase == MPP_BURST_PRELUDE) return MPP_PRELUDE_RATE;
    return (double)burst->config.window_ns / mean_interval(burst) * burst->sampler.rate;
}
