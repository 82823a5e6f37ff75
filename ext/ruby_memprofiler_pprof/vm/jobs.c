/*
 * The safe point: what the hooks left waiting is named, measured and handed to the profile. A drain checks no
 * interrupts but in calls of a WeakMap, so mostly no other thread and no exception comes in between; but it may run
 * nested, on the same thread, inside a trap handler or a finalizer, and a collection may run at any call that
 * allocates. Hence: each sample is taken off before it is handled, its object stands on this C stack until done (which
 * marks and pins it), and the whole is done with the profile retained. Only what may allocate is own work. What raises
 * all the same (NoMemoryError) costs the sample in hand; what another thread raises ends the drain, and goes on from there.
 */
#include "own_work.h"
#include "timer.h"
#include "vm.h"

/* After so many samples at once the tables give back what only that burst needed. */
#define BURST_SAMPLES 16384

typedef struct {
    mpp_collector_t *collector;
    mpp_profile_t *profile;
    mpp_sample_t sample; /* in hand */
    mpp_birth_t stamp;
} drain_t;

/*
 * Nothing here can raise or allocate: the way of most samples, whose frames and class were seen before.
 * False: it is not such a sample, and nothing was done.
 */
static bool
commit_known(drain_t *drain, VALUE object)
{
    if (drain->sample.entry.raw || RB_BUILTIN_TYPE(object) == RUBY_T_DATA) return false;
    mpp_birth_t birth = drain->stamp;
    birth.class_name = mpp_names_find_class(drain->profile, object);
    if (birth.class_name == 0) return false;
    birth.bytes = mpp_compat_memsize(object);
    mpp_profile_commit(drain->profile, &drain->sample, &birth);
    return true;
}

/* Frames first: none of them may be collected before the sample's stack is released by commit. False: there is no memory. */
static bool
name_frames(drain_t *drain)
{
    uintptr_t frame = mpp_profile_unknown_frame(drain->profile, &drain->sample);
    if (frame != 0 && !mpp_compat_has_memory()) return false;
    while (frame != 0) {
        if (mpp_names_define_frame(drain->profile, frame) != MPP_OK) break; /* commit will count it as dropped */
        frame = mpp_profile_unknown_frame(drain->profile, &drain->sample);
    }
    return true;
}

/* Qtrue if the sample was committed. */
static VALUE
commit_new(VALUE argument)
{
    drain_t *drain = (drain_t *)argument;
    VALUE object = drain->sample.entry.object;
    mpp_birth_t birth = drain->stamp;
    if (!name_frames(drain)) return Qfalse;
    (void)mpp_own_work_measure(object, &birth.bytes);
    birth.class_name = mpp_names_find_class(drain->profile, object);
    if (birth.class_name == 0) {
        if (!mpp_compat_has_memory()) return Qfalse;
        birth.class_name = mpp_names_define_class(drain->profile, object);
    }
    mpp_profile_commit(drain->profile, &drain->sample, &birth);
    return Qtrue;
}

static void
commit_protected(drain_t *drain)
{
    VALUE error = rb_errinfo();
    mpp_own_work_t own_work;
    int state = 0;
    mpp_own_work_begin(&own_work);
    VALUE committed = rb_protect(commit_new, (VALUE)drain, &state);
    mpp_own_work_end(&own_work);
    if (state == 0 && RTEST(committed)) return;
    if (state != 0) mpp_compat_restore_error(error);
    mpp_profile_discard(drain->profile, &drain->sample, MPP_DROP_NO_MEMORY);
}

/* Not 0: what to rb_jump_tag with. */
static int
commit(drain_t *drain)
{
    VALUE object = drain->sample.entry.object;
    int raised = 0;
    if (!commit_known(drain, object)) commit_protected(drain);
    if (drain->sample.record) {
        raised = drain->collector->liveness->follow(drain->collector, drain->profile, drain->sample.record, object);
    }
    RB_GC_GUARD(object);
    return raised;
}

/*
 * Collections begun, and whether their sweep is going on, or was lately: asked of the VM once a collection, since that a
 * sweep has ended makes no difference to what was born in it.
 */
static mpp_birth_t
stamp(void)
{
    static mpp_birth_t last = {.live = true};
    static bool is_marked;
    uint32_t gc_count = (uint32_t)rb_gc_count();
    if (MPP_LIKELY(is_marked && gc_count == last.gc_count)) return last;
    last.gc_count = gc_count;
    last.sweeping = mpp_compat_gc_sweeping();
    is_marked = !mpp_compat_gc_marking();
    return last;
}

static int
drain_timed(mpp_collector_t *collector)
{
    uint32_t n_waiting = mpp_profile_pending_count(collector->profile);
    int raised = 0;
    bool large = n_waiting >= MPP_TIMED_EVERY;
    bool timed = ++collector->costs.n_jobs % MPP_TIMED_EVERY == 0 || large || collector->bursts.running;
    uint64_t start = timed ? mpp_clock_ns() : 0;
    uint32_t n = 0;
    drain_t drain;
    drain.collector = collector;
    drain.profile = collector->profile;
    drain.stamp = stamp();
    mpp_profile_retain(drain.profile);
    for (; raised == 0 && n < n_waiting && mpp_profile_take(drain.profile, &drain.sample); n++) raised = commit(&drain);
    if (raised == 0) raised = collector->liveness->look_around(collector, n);
    if (n >= BURST_SAMPLES) mpp_profile_trim(drain.profile);
    mpp_profile_release(drain.profile);
    if (!timed) return raised;
    uint64_t spent = mpp_clock_ns() - start;
    collector->costs.jobs_ns += spent * (large || collector->bursts.running ? 1 : MPP_TIMED_EVERY);
    if (collector->bursts.running) mpp_bursts_drained(collector, spent);
    return raised;
}

static int
drain(mpp_collector_t *collector)
{
    if (collector->profile == NULL || mpp_profile_pending_count(collector->profile) == 0) return 0;
    VALUE self = collector->self; /* a thread that runs meanwhile may stop it, and let it go */
    int raised = drain_timed(collector);
    RB_GC_GUARD(self);
    return raised;
}

void
mpp_jobs_drain(mpp_collector_t *collector)
{
    int raised = drain(collector);
    if (raised == 0) return;
    mpp_compat_trigger_job(); /* for those that still wait */
    rb_jump_tag(raised);
}

static mpp_collector_t *
next_with_pending(bool may_follow)
{
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        mpp_run_notice_fork(collector);
        if (collector->liveness->late_deaths && !may_follow) continue;
        if (collector->profile && mpp_profile_pending_count(collector->profile) > 0) return collector;
    }
    return NULL;
}

static const mpp_collector_t *
one_with_late_deaths(void)
{
    const mpp_collector_t *collector = mpp_process.running;
    while (collector && !collector->liveness->late_deaths) collector = collector->next_running;
    return collector;
}

/*
 * With a WeakMap, whose methods are called: the VM forgets what a job raises, so that waits. And the program may see the
 * calls (by a TracePoint), and allocate at them: all that is own work, so that it does not feed what is drained.
 */
static void
drain_and_follow(mpp_holding_t holding)
{
    mpp_own_work_t own_work;
    mpp_collector_t *collector;
    uint32_t n_left = 0;
    for (collector = mpp_process.running; collector; collector = collector->next_running) n_left++;
    mpp_own_work_begin_kept(&own_work);
    while ((collector = next_with_pending(true)) != NULL && n_left-- > 0) (void)drain(collector);
    if (holding == MPP_HELD) mpp_compat_release_exceptions();
    mpp_own_work_end(&own_work);
    if (collector) mpp_compat_trigger_job(); /* other threads go on allocating */
}

static void
mend_doubtful_hooks(void)
{
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        if (MPP_UNLIKELY(collector->hooks_doubtful)) mpp_lost_hooks_mend(collector);
    }
}

void
mpp_jobs_run(void *unused)
{
    (void)unused;
    if (mpp_compat_in_other_ractor()) {
        mpp_timer_refuse();
        return;
    }
    /* Near the end of the C stack the guard page's exception could come amid all this: a later sample triggers it. */
    if (ruby_stack_check()) return;
    if (mpp_process.n_in_bursts > 0) mpp_bursts_tick();
    mend_doubtful_hooks();
    mpp_holding_t holding = one_with_late_deaths() ? mpp_compat_hold_exceptions() : MPP_NOT_HELD;
    if (holding != MPP_NOT_HELD) {
        drain_and_follow(holding);
    } else {
        mpp_collector_t *collector;
        while ((collector = next_with_pending(false)) != NULL) (void)drain(collector);
    }
}
