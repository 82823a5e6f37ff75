#ifndef MPP_BURST_H
#define MPP_BURST_H

/*
 * Burst sampling: the host's hook is in only for short windows of CPU time, so placed that every allocation has the same
 * chance to fall into one, whatever the program does.
 *
 *   tick     a CPU timer of the process, at random intervals of mean M that depend on nothing in the program
 *   open     the first safe point after it, late by some time: the hook goes in, but nothing counts yet
 *   anchor   tick + lead: counting begins, at a time that the tick alone has chosen. The lead follows the latenesses seen,
 *            so that hardly any window is opened after its anchor
 *   end      anchor + window: the hook goes out at the first allocation past it
 *
 * An allocation counts iff a tick fell into the stretch (t - lead - window, t - lead] before it: probability window / M
 * for each of them. Of what counts one in 1/p is a sample, and stands for M / (window × p) allocations.
 *
 * Time in here is the program's own CPU time: what an event costs (hook_ns each, and captures as measured) and time off
 * the CPU are taken off. Where a window is opened after its anchor all the same (one call of native code that took longer
 * than the longest lead), what was missed of it is summed up: `missed_ns` beside `observed_ns` bounds the error.
 *
 * The mean interval M follows a budget: what profiling costs stays under a share of the process's CPU time.
 *
 * Before all that there may be a prelude: the hook is in from the start on, and each allocation is a sample with one and
 * the same probability. A program that ends soon has few windows, and is known by it.
 *
 * What the host does at a tick's safe point: mpp_burst_open, put the hook in or take it out as told, set the timer to
 * mpp_burst_due, mpp_burst_spent for all this. Not thread-safe: one call at a time.
 */

#include "sampler.h"

/* Windows are dealt to so many groups in turn; the spread between groups is the error: see estimate.h. */
#define MPP_N_GROUPS 16u

/* Samples an allocation in the prelude, and what these have for a group: each is a draw of its own. */
#define MPP_PRELUDE_RATE 0.01
#define MPP_PRELUDE MPP_N_GROUPS
#define MPP_N_ORIGINS (MPP_N_GROUPS + 1u)

/* The seam of time, nanoseconds. `now` is cheap, monotonic, and runs also off the CPU; `cpu` is dear: CPU time that the
 * host's threads have spent since mpp_burst_open, on the program and on us. [newobj] */
typedef struct {
    uint64_t (*now)(void *context);
    uint64_t (*cpu)(void *context);
    void *context;
} mpp_clock_t;

typedef struct {
    double overhead; /* share of the process's CPU time that all of profiling may take, in (0, 0.5] */
    uint64_t window_ns;
    uint64_t min_lead_ns, max_lead_ns;
    uint64_t timer_ns;                         /* the timer's resolution: the kernel's 1 / HZ, 1 to 10 ms; not 0 */
    uint64_t min_interval_ns, max_interval_ns; /* bounds of M, which is no less than 2 timer_ns all the same */
    uint32_t hook_ns; /* a guess at what one event costs the program: the host's dispatch, the hook's fast path and its
                         share of the looks at the clock; not 0 */
    uint64_t seed;
} mpp_burst_config_t;

typedef enum {
    MPP_BURST_OUT,     /* no hook */
    MPP_BURST_PRELUDE, /* the hook is in, everything counts */
    MPP_BURST_LEAD,    /* the hook is in, nothing counts */
    MPP_BURST_WINDOW
} mpp_burst_phase_t;

typedef enum {
    MPP_BURST_PASS,   /* nothing to do */
    MPP_BURST_SAMPLE, /* this allocation is a sample, of weight `weight` and group `group` */
    MPP_BURST_CLOSE   /* the window has ended, this allocation is past it: take the hook out, then mpp_burst_close */
} mpp_burst_verdict_t;

/* What has been, since init. */
typedef struct {
    uint64_t n_ticks;       /* calls of open */
    uint64_t n_windows;     /* closed */
    uint64_t n_late;        /* ticks whose window was opened after its anchor, or not at all */
    uint64_t n_overlapped;  /* windows that the next tick has ended early */
    uint64_t observed_ns;   /* what windows have observed, as the CPU time that it stands for: times M / window */
    uint64_t missed_ns;     /* what belonged to a window and was not observed, likewise */
    uint64_t n_events;      /* allocations that fell into windows or the prelude, sampled or not */
    mpp_sum_t event_weight; /* what these stand for, in units of 2^-32: the sum of M / window over them, in the prelude
                               themselves. An estimate of all allocations that does not use the host's counter */
    uint64_t n_prelude_samples, n_prelude_events; /* see mpp_burst_count_prelude */
    uint64_t spent_ns;      /* CPU time that profiling took, as far as it is measured or known */
    uint64_t cpu_ns;        /* CPU time of the process, as told by mpp_burst_open */
} mpp_burst_totals_t;

/* Classes of lateness: four to a doubling, from 1 µs to 16 ms. */
#define MPP_BURST_LATENESS_CLASSES 56

typedef struct {
    /* The fast path: see mpp_burst_passes. */
    uint32_t countdown;
    mpp_burst_phase_t phase;
    mpp_weight_t weight; /* of the sample that mpp_burst_judge has just told of */
    uint8_t group;       /* of this window, below MPP_N_GROUPS, or MPP_PRELUDE */

    /* private */
    mpp_burst_config_t config;
    mpp_clock_t clock;
    mpp_sampler_t sampler; /* the gap to the next candidate for a sample runs through the lead too */
    mpp_burst_totals_t totals;

    /* The window. Times are program time since it was opened. */
    uint32_t step;       /* what the countdown started from at the last look */
    uint64_t n_told;     /* events until that look, of the lead too */
    uint32_t n_samples;  /* since p was last changed */
    uint64_t opened_ns;  /* by `now` */
    uint64_t off_cpu_ns; /* of the time since then, as far as known */
    uint64_t own_ns;     /* what our events and captures took of it */
    uint64_t looked_ns;  /* the last look */
    uint64_t anchor_ns, end_ns;
    mpp_weight_t gap_weight;   /* of the candidate that the gap runs to */
    double n_events;           /* within the window: those between two looks are spread evenly */
    mpp_weight_t event_weight; /* of each of them: M / window, by the M that the tick was drawn from */

    /* Adaptation. */
    double lateness[MPP_BURST_LATENESS_CLASSES]; /* how many ticks came so late, decaying */
    uint64_t lead_ns;
    double mean_ns;         /* M */
    uint64_t drawn_mean_ns; /* the M of the interval that runs */
    uint64_t due_ns;        /* its end, in CPU time since init */
    uint64_t tick_ns;       /* what the last tick stands for: the M of the intervals that had ended */
    double events_per_window;
    double tick_cost_ns; /* mean cost of a tick with its window */
    uint64_t paced_ns;   /* cost since the last tick */
    double apart_share;  /* of CPU time: what mpp_burst_spent_apart has told, over a long time */
    uint64_t apart_ns;   /* … since the last tick */

    /* Calibration. Sums over the last ticks, decaying; those of windows are weighted with what their ticks stand for. */
    double hook_ns; /* what an event costs, as far as known */
    double seen_ns, seen_events, seen_squares, n_seen, missed_part_ns; /* in windows: time, our own included, and events */
    double passed_ns, passed_allocations; /* of the process, by its clock and the host's counter */
    uint64_t calibrated_ns, calibrated_allocations;
} mpp_burst_t;

/* The caller has checked the config. Nothing is owned. [any] */
void mpp_burst_init(mpp_burst_t *burst, const mpp_burst_config_t *config, const mpp_clock_t *clock);

/* CPU time of the process since init at which the next tick is due: what the timer is to be set to, at the begin and after
 * each mpp_burst_open. [gvl] */
uint64_t mpp_burst_due(const mpp_burst_t *burst);

/* Right after init, with the hook in: the prelude lasts until CPU time end_ns since init, which is due first. [gvl] */
void mpp_burst_begin_prelude(mpp_burst_t *burst, uint64_t end_ns);

/* While it lasts, its events and what they have cost are in the totals up to its last sample; or up to now, at that CPU time
 * since init, after this. [gvl] */
void mpp_burst_count_prelude(mpp_burst_t *burst, uint64_t cpu_ns);

/* Its end, at that CPU time since init, and after so many allocations by the host's counter: the hook is out, and the first
 * tick is drawn. What it has cost is no part of the budget. Not in a prelude: nothing. [gvl] */
void mpp_burst_end_prelude(mpp_burst_t *burst, uint64_t cpu_ns, uint64_t n_allocations);

/* A tick's safe point has come, at that CPU time of the process since init, so late (program time since the tick; `in_gc`:
 * the tick hit the host's garbage collection, whose length says nothing about native calls). True: the hook belongs in
 * from now on; false: out. A window that is still open ends here, and what is left of it is made up for in the new one.
 * M follows the budget, and the next tick is drawn. [gvl] */
bool mpp_burst_open(mpp_burst_t *burst, uint64_t cpu_ns, uint64_t late_ns, bool in_gc);

/* A tick has come while nothing could allocate (in a thread without the host's lock, or with no hook to be had): it has no
 * window, and nothing is missed. The hook stays as it is. [gvl] */
void mpp_burst_pass_over(mpp_burst_t *burst, uint64_t cpu_ns);

/*
 * After each of the two: how many objects the host has allocated since init, by its own counter. From that follows what an
 * event costs the program: in windows an allocation takes that much more time than on the whole. config.hook_ns is what
 * counts while little is known. [gvl]
 */
void mpp_burst_calibrate(mpp_burst_t *burst, uint64_t n_allocations);

/* Whether an allocation needs nothing else than to be let pass: called for each while the hook is in. [newobj] */
static inline bool
mpp_burst_passes(mpp_burst_t *burst)
{
    return MPP_LIKELY(--burst->countdown != 0);
}

/* What to do with an allocation that mpp_burst_passes has stopped at. [newobj] */
mpp_burst_verdict_t mpp_burst_judge(mpp_burst_t *burst);

/* Events that the open (or else the last) window was told of since it was opened. [newobj] */
static inline uint64_t
mpp_burst_told(const mpp_burst_t *burst)
{
    return burst->n_told + burst->step - burst->countdown;
}

/* So much time went into the sample just taken (the walk of the stack): it is no program time. [newobj] */
void mpp_burst_captured(mpp_burst_t *burst, uint64_t ns);

/* The hook is out: accounts for the window. Also before its end (stop, fork), when what was not observed counts as
 * missed. Without a window, also in the prelude: nothing. [newobj] */
void mpp_burst_close(mpp_burst_t *burst);

/* A tick took so much CPU time besides its window: the job, putting the hook in and out, draining. [gvl] */
void mpp_burst_spent(mpp_burst_t *burst, uint64_t ns);

/* Profiling took so much CPU time apart from ticks, rarely and much at once: flushes. [gvl] */
void mpp_burst_spent_apart(mpp_burst_t *burst, uint64_t ns);

static inline const mpp_burst_totals_t *
mpp_burst_totals(const mpp_burst_t *burst)
{
    return &burst->totals;
}

uint64_t mpp_burst_mean_interval(const mpp_burst_t *burst); /* M. [any] */
uint64_t mpp_burst_lead(const mpp_burst_t *burst);          /* [any] */
double mpp_burst_sample_rate(const mpp_burst_t *burst);     /* window / M × p, of the present. [any] */

#endif
