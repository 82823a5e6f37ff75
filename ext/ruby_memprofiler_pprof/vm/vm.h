#ifndef MPP_VM_H
#define MPP_VM_H

/*
 * The collector, and the doors of the adapter's rooms. The road of an allocation:
 *   hooks (countdown) → backtrace (walk) → core/pending → jobs (names, class, size) → core/profile → flush
 * One collector is one T_DATA object; its hooks' data is that object, so it lives until stop.
 */

#include "compat.h"
#include "contract.h"
#include "process.h"

#include "../core/burst.h"
#include "../core/profile.h"
#include "../core/scale.h"
#include "../core/sampler.h"

#include <pthread.h>
#include <time.h>

/* A walk over live records, or a stretch of one. */
typedef struct {
    mpp_collector_t *collector;
    mpp_profile_t *profile; /* of the records */
    bool sweeping; /* the VM is in a sweep */
    int raised; /* not 0: what to rb_jump_tag with after the walk, which finds nothing out any more */
} mpp_walk_t;

/* How the death of a sampled object becomes known: one of the back ends in liveness.c, mark_hook.c and weak_map.c. */
typedef struct {
    const char *name;
    bool keeps_records; /* false: retained is not known */
    bool sees_frees;    /* every FREEOBJ event comes: a cached key stays until its own */
    bool late_deaths;   /* records outlive their objects until `find` is asked, and have none of their addresses */
    void (*start)(mpp_collector_t *collector, VALUE self); /* [gvl] */
    void (*stop)(mpp_collector_t *collector, VALUE self);  /* [gvl] */
    void (*verify)(mpp_collector_t *collector);            /* deaths missed? [gvl] [gc] mark only */

    /* A sample has got a live record: sees to it that `find` will find its object, or gives the record up. Not 0: what
     * to rb_jump_tag with, soon. [gvl] */
    int (*follow)(mpp_collector_t *collector, mpp_profile_t *profile, mpp_id_t record, VALUE object);

    /* After so many samples more: looks for deaths, if it is time to. As above. [gvl] */
    int (*look_around)(mpp_collector_t *collector, uint32_t n_samples);

    /* The object of a record; with MPP_FOUND_ALIVE it is *object and may be measured. [gvl] */
    mpp_finding_t (*find)(mpp_walk_t *walk, const mpp_live_record_t *record, VALUE *object);
} mpp_liveness_t;

extern const mpp_liveness_t mpp_liveness_free_hook;
extern const mpp_liveness_t mpp_liveness_mark_hook;
extern const mpp_liveness_t mpp_liveness_weak_map;
extern const mpp_liveness_t mpp_liveness_none;

/* What those do that have nothing to do there. */
void mpp_liveness_start_nothing(mpp_collector_t *collector, VALUE self);
void mpp_liveness_verify_nothing(mpp_collector_t *collector);
int mpp_liveness_follow_nothing(mpp_collector_t *collector, mpp_profile_t *profile, mpp_id_t record, VALUE object);
int mpp_liveness_look_at_nothing(mpp_collector_t *collector, uint32_t n_samples);

/* -- weak_map.c -- */

/* What the back end of that name has of its own; of one run. */
typedef struct {
    VALUE map; /* nil until the first sample with a live record, and after the run */
    bool ended; /* no more calls of it: the run is about to end */
    mpp_id_t cursor; /* where look_around goes on, 0: at the beginning, when … */
    uint32_t gc_count; /* … there have been more collections than at its last beginning */
    uint64_t n_looks; /* that samples have paid for */
} mpp_weak_map_t;

void mpp_weak_map_define(VALUE module); /* [gvl] */

/* What it takes in Ruby's heap, as far as ObjectSpace.memsize_of tells. [gvl] */
size_t mpp_weak_map_bytes(const mpp_weak_map_t *weak);

/* Nanoseconds spent, as measured. */
typedef struct {
    uint64_t hook_ns; /* estimated: one sample in MPP_TIMED_EVERY is timed */
    uint64_t jobs_ns; /* estimated: one small job in MPP_TIMED_EVERY is timed, and every large one */
    uint64_t flush_ns; /* with the GVL and without */
    uint64_t longest_hold_ns; /* the longest stretch of a flush that held the GVL */
    uint64_t n_jobs;
    uint64_t n_flushes;
} mpp_costs_t;

#define MPP_TIMED_EVERY 64u

/* What burst.c keeps of a collector. */
typedef struct {
    bool wanted;  /* mode: :burst */
    bool running; /* this run is in bursts */
    bool hook_in;
    int signal_number; /* as asked for, 0: any */
    double overhead;
    uint64_t prelude_ns; /* how long it is to be, in CPU time; 0: none */
    uint64_t n_unseen; /* in the prelude, by the program or another Ractor */
    const char *fallback; /* why a run that was to be in bursts is not, static; else NULL */
    mpp_burst_t machine;
    uint64_t cpu_base_ns; /* of the process, at the start */
    /* CPU time since the window was opened: of the thread that was seen last, and of those before it. */
    pthread_t thread;
    clockid_t thread_clock;
    uint64_t thread_base_ns;
    uint64_t earlier_ns;
    /* Signs of other Ractors: allocations that the VM counted while the hook was in and that it was not told of, and
     * collections that another Ractor ran. */
    uint64_t n_elsewhere;
    size_t counted_at_open; /* by the VM */
    uint64_t n_own; /* in the window or the prelude, our own */
    /* Scale: what the VM counted beside what the samples stand for. */
    size_t own_base, own_at_stop;
    mpp_sum_t weight[MPP_N_ORIGINS]; /* that all samples stand for, whatever became of them, by origin */
    mpp_scale_t flushed; /* the part that delta flushes gave out */
} mpp_bursts_t;

typedef enum { MPP_NEW, MPP_RUNNING, MPP_STOPPED } mpp_state_t;

struct mpp_collector {
    /* What every event touches comes first. */
    uint32_t fork_generation;
    mpp_state_t state;
    mpp_sampler_t sampler;
    mpp_profile_t *profile; /* never NULL but in a child that had no memory for a new one */
    const mpp_live_t *live; /* the profile's, or an empty one */
    uint64_t n_own; /* allocations that were our own work */
    uint64_t n_frees; /* FREEOBJ events */
    uint64_t events_ahead; /* allocations seen at the next sample, that one included: see mpp_run_events */

    /* The sampled path. */
    VALUE self; /* this collector's object; while it runs a root of the GC, which keeps and pins it */
    VALUE thread; /* samples of other threads are only counted; Qnil: all threads */
    mpp_sum_t internal_weight; /* VM-internal objects: T_IMEMO, T_ICLASS, class 0 */
    mpp_sum_t other_thread_weight;
    uint64_t n_drawn; /* events that were drawn, whatever became of them */
    uint64_t n_other_ractor;
    uint64_t n_hook_lost; /* of those not seen, those that the hook was lost for, and perhaps other Ractors' */
    uint64_t unseen_when_called; /* not seen when the hooks were last known to be called */
    bool hooks_doubtful;
    uint64_t n_samples;
    VALUE *frames; /* scratch: max_depth + 1 */
    int *lines;
    ssize_t told_bytes; /* that the VM knows of */

    mpp_bursts_t bursts;

    /* The counters' bases, taken at start (and anew in a forked child). */
    size_t allocated_base;
    size_t freed_base;
    bool freed_base_known;
    uint32_t marks_seen; /* mark_hook: collections whose marking it saw end, or that were before it */
    size_t n_moved_back; /* objects that compaction moved and put back: counted by the VM, without events */
    size_t allocated_at_stop;
    uint32_t gc_finished_at_stop;

    mpp_profile_config_t config;
    double sample_rate;
    bool raw_counts;
    bool has_seed;
    uint64_t seed;
    const mpp_liveness_t *liveness;
    mpp_weak_map_t weak_map;

    uint32_t run; /* counts starts and forks */
    int64_t started_wall_ns; /* of the run */
    uint64_t started_ns; /* monotonic */
    int64_t interval_wall_ns; /* of the interval that the next flush covers */
    uint64_t interval_ns;
    uint64_t stopped_ns; /* monotonic, 0 while running */

    uint64_t n_stale; /* sizes that the last pass could not measure again */
    size_t snapshot_bytes; /* of the last flush */
    size_t scratch_bytes;
    size_t output_bytes;
    mpp_costs_t costs;
    mpp_collector_t *next_running;
};

/* -- collector.c -- */

void mpp_collector_define(VALUE module); /* [gvl] */

/* -- run.c -- */

/* Starts a run over: new tables, zero counters. On failure the old run stays. [newobj] */
MPP_CHECK mpp_status_t mpp_run_begin(mpp_collector_t *collector);

/* What the VM's counters are counted from; the hooks are in. [gvl] */
void mpp_run_take_bases(mpp_collector_t *collector);

/* The run is over. [gvl] */
void mpp_run_end(mpp_collector_t *collector);

/* In a forked child, at the first event, call or mark that sees it: a running collector begins a run of its own;
 * `uncounted`: allocations that the VM's counter has and this collector is still to count. [newobj] [gc] */
void mpp_run_after_fork(mpp_collector_t *collector, size_t uncounted);

static inline void
mpp_run_notice_fork(mpp_collector_t *collector)
{
    if (MPP_UNLIKELY(collector->fork_generation != mpp_process.fork_generation)) mpp_run_after_fork(collector, 0);
}

/* Allocation events since the run's start, but for own work and other Ractors. [any] */
uint64_t mpp_run_events(const mpp_collector_t *collector);

/* Of the allocations that the VM has counted since the run's start, those that no event told of. [gvl] [gc] */
uint64_t mpp_run_unseen(const mpp_collector_t *collector, uint64_t vm_allocated);

/* The VM's count of allocated objects since the run's start, as of now or as of the stop. [gvl] */
uint64_t mpp_run_vm_allocated(const mpp_collector_t *collector);

/* Collections whose marking is over. [gvl] [gc] */
uint32_t mpp_run_marks_ended(void);

/* Collections begun and finished, as of now or as of the stop. [gvl] */
uint32_t mpp_run_gc_finished(const mpp_collector_t *collector);

/* -- hooks.c -- */

void mpp_hooks_add_newobj(VALUE self);    /* [gvl] */
void mpp_hooks_remove_newobj(VALUE self); /* [gvl] */
void mpp_hooks_add_freeobj(VALUE self);    /* [gvl] */
void mpp_hooks_remove_freeobj(VALUE self); /* [gvl] */

/* The same for a hook of another back end or mode, on an internal event. [gvl]; out also [newobj] */
typedef void (*mpp_hook_t)(VALUE self, rb_trace_arg_t *event);
void mpp_hooks_add_event(VALUE self, mpp_hook_t hook, rb_event_flag_t event);
void mpp_hooks_remove_event(VALUE self, mpp_hook_t hook);

/* An allocation was drawn: it becomes a sample, unless it is the VM's own or of a thread that is left out. [newobj] */
void mpp_hooks_take_sample(mpp_collector_t *collector, VALUE object, mpp_weight_t weight);

/* -- lost_hooks.c -- */

/* Puts the hooks in again if the VM has stopped calling them; what was not seen since they were last known to be called
 * is `n_hook_lost` then. In burst mode that of the prelude alone, for each window puts its own in. [gvl] */
void mpp_lost_hooks_mend(mpp_collector_t *collector);

/* If allocations have not been seen: has a job mend the hooks. [gc] mark only */
void mpp_lost_hooks_doubt(mpp_collector_t *collector);

/* -- patches.c -- */

void mpp_patches_define(VALUE module); /* [gvl] */

/* -- burst.c -- */

/* Whether burst mode can run: takes the timer. Else the reason stands in `fallback`. [gvl] */
bool mpp_bursts_start(mpp_collector_t *collector);

/* The prelude begins, or the first tick is to come; called when the run's bases are taken. [gvl] */
void mpp_bursts_begin(mpp_collector_t *collector);

/* No window any more, and no timer if this was the last collector in burst mode. [gvl] */
void mpp_bursts_stop(mpp_collector_t *collector);

/* The same when the VM ends, which takes hooks out by itself. [gc] */
void mpp_bursts_abandon(mpp_collector_t *collector);

/* A child of a fork begins anew, with no prelude, and without a timer until mpp_bursts_after_fork. [newobj] [gc] */
void mpp_bursts_reset(mpp_collector_t *collector);

/* In a forked child, once Ruby runs there: ticks come again. Or why not, static: those in bursts are at a fixed rate
 * from now on. [gvl] */
const char *mpp_bursts_after_fork(void);

/* Opens the windows that a tick has asked for, if one has come. May raise NoMemoryError. [gvl] */
void mpp_bursts_tick(void);

/* Another Ractor has been met. [gc] mark only */
void mpp_bursts_meet_ractor(mpp_collector_t *collector);

/* A drain took so long; within a window that is no program time. [gvl] */
void mpp_bursts_drained(mpp_collector_t *collector, uint64_t ns);

/* The window has ended; or the prelude ends early, which is not for [newobj]. */
void mpp_bursts_close(mpp_collector_t *collector);

/* If the program has taken the timer's signal, ticks come by another one. There may be none: the run stays in bursts, with
 * the windows that it has had, and `fallback` tells why. [gvl] */
void mpp_bursts_keep_ticking(void);

/* More allocations than before went unseen in the prelude. [gvl] [gc] mark only */
bool mpp_bursts_doubt(const mpp_collector_t *collector);

/* Then puts its hook in again, should the VM have lost it. [gvl] */
void mpp_bursts_mend(mpp_collector_t *collector);

/* The prelude's events are counted up to now, for mpp_bursts_scale. [gvl] */
void mpp_bursts_count_prelude(mpp_collector_t *collector);

/* Over the run, or since the last delta flush. A delta without a sample has nothing that could stand for its allocations:
 * it is zero, and they are the next one's. [gvl] */
mpp_scale_t mpp_bursts_scale(const mpp_collector_t *collector, bool delta);

/* Samples an allocation: as asked for, in burst mode as it has come out. [gvl] */
double mpp_bursts_sample_rate(const mpp_collector_t *collector);

/* A delta flush has given out what `scale` covers, or gives it back. [gvl] */
void mpp_bursts_flushed(mpp_collector_t *collector, const mpp_scale_t *scale);
void mpp_bursts_give_back(mpp_collector_t *collector, const mpp_scale_t *scale);

/* -- backtrace.c -- */

/* Walks the stack and hands the sample to the profile; without frames where the C stack is nearly at its end. [newobj] */
void mpp_backtrace_sample(mpp_collector_t *collector, VALUE object, mpp_weight_t weight);

/* -- names.c -- */

/* Gives the name the profile knows the frame by. May raise NoMemoryError. [gvl] */
mpp_status_t mpp_names_define_frame(mpp_profile_t *profile, VALUE frame);

/* The name of an object's class as a string id with a reference, if it is known already, else 0. [gvl] */
mpp_id_t mpp_names_find_class(mpp_profile_t *profile, VALUE object);

/* The same if it is not; 0 when memory is short. Runs no user code. May raise NoMemoryError. [gvl] */
mpp_id_t mpp_names_define_class(mpp_profile_t *profile, VALUE object);

/* -- jobs.c -- */

/* The postponed job: drains every running collector. Does nothing where the C stack is nearly at its end. [gvl] */
void mpp_jobs_run(void *unused);

/*
 * Hands over all that waits in one collector; may nest. With a WeakMap it checks interrupts, and raises what other
 * threads raise meanwhile; otherwise neither. Not where ruby_stack_check() finds the C stack nearly at its end: the
 * methods refuse to run there. [gvl]
 */
void mpp_jobs_drain(mpp_collector_t *collector);

/* -- flush.c -- */

/* Measures live objects again: in slices between which other threads run and interrupts are checked, or at one go. [gvl] */
void mpp_flush_measure(mpp_collector_t *collector, bool in_slices);

typedef struct {
    bool delta; /* allocations since the last delta, else since the start */
    bool gc;    /* collect garbage first */
    uint32_t min_gc_age;
    VALUE encodings; /* an Array of one or two [:memprofiler or :go, :label, :frame or :off] */
} mpp_flush_request_t;

/* A ProfileData for each encoding, in an Array. Interrupts are checked; what raises loses nothing. [gvl] */
VALUE mpp_flush(mpp_collector_t *collector, const mpp_flush_request_t *request);

/* -- stats.c -- */

/* Collector#stats, a Hash. [gvl] */
VALUE mpp_stats(mpp_collector_t *collector);

/* -- estimate.c -- */

void mpp_estimate_define(VALUE module); /* [gvl] */

/* -- clock -- */

/* Monotonic nanoseconds. [newobj] */
uint64_t mpp_clock_ns(void);

#endif
