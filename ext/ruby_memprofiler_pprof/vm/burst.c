/*
 * Burst mode: the timer's ticks, the core's window machine and the hook, put together.
 *   tick (timer.c) → job → mpp_bursts_tick: the hook goes in → on_newobj → the machine says CLOSE → the hook goes out
 * and before them the prelude: the hook is in until the first of all ticks.
 * One timer serves all collectors in burst mode: it is armed for whichever is due first. What the samples stand for is
 * scaled at a flush by the VM's own counter.
 */
#include "own_work.h"
#include "timer.h"
#include "vm.h"

#include <string.h>

static const mpp_burst_config_t defaults = {
    .window_ns = 200000,
    .min_lead_ns = 15000,
    .max_lead_ns = 5000000,
    .min_interval_ns = 8000000,
    .max_interval_ns = 1000000000,
#if MPP_RUBY_AT_LEAST(4, 0)
    .hook_ns = 12,
#elif MPP_RUBY_AT_LEAST(3, 4)
    .hook_ns = 30,
#else
    .hook_ns = 25,
#endif
};

/* -- the clocks of an open window -- */

static uint64_t
now(void *unused)
{
    (void)unused;
    return mpp_clock_ns();
}

static uint64_t
read_cpu(clockid_t id)
{
    struct timespec time;
    if (clock_gettime(id, &time) != 0) return 0;
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static void
watch_this_thread(mpp_bursts_t *bursts)
{
    bursts->thread = pthread_self();
    bursts->thread_base_ns = mpp_thread_cpu_ns();
    if (pthread_getcpuclockid(bursts->thread, &bursts->thread_clock) != 0) {
        bursts->thread_clock = CLOCK_THREAD_CPUTIME_ID;
    }
}

/* Threads take turns in a window; what the one before this has used is read from its own clock, if it still exists. */
static uint64_t
cpu_since_open(void *context)
{
    mpp_bursts_t *bursts = context;
    if (!pthread_equal(bursts->thread, pthread_self())) {
        uint64_t cpu = read_cpu(bursts->thread_clock);
        if (cpu > bursts->thread_base_ns) bursts->earlier_ns += cpu - bursts->thread_base_ns;
        watch_this_thread(bursts);
    }
    return bursts->earlier_ns + mpp_thread_cpu_ns() - bursts->thread_base_ns;
}

/* -- windows -- */

/*
 * Both are measured by the wall's clock, for that of CPU time is dear. If the thread is preempted meanwhile, which is told
 * by a time that no walk or drain takes, that is off-CPU time, which the machine finds out by itself.
 */
#define LONGEST_CAPTURE_NS 20000
#define LONGEST_DRAIN_NS 100000

static uint64_t
at_most(uint64_t ns, uint64_t limit_ns)
{
    return ns < limit_ns ? ns : limit_ns;
}

static void
take_sample(mpp_collector_t *collector, VALUE object)
{
    mpp_burst_t *machine = &collector->bursts.machine;
    uint64_t start = mpp_clock_ns();
    collector->bursts.weight[machine->group] += machine->weight;
    if (collector->profile) mpp_profile_set_labels(collector->profile, mpp_labels_with_group(0, machine->group));
    mpp_hooks_take_sample(collector, object, machine->weight);
    mpp_burst_captured(machine, at_most(mpp_clock_ns() - start, LONGEST_CAPTURE_NS));
}

void
mpp_bursts_drained(mpp_collector_t *collector, uint64_t ns)
{
    mpp_burst_t *machine = &collector->bursts.machine;
    if (machine->phase == MPP_BURST_OUT) {
        mpp_burst_spent(machine, at_most(ns, LONGEST_DRAIN_NS));
    } else {
        mpp_burst_captured(machine, at_most(ns, LONGEST_DRAIN_NS));
    }
}

/* It has no part in what the hook of fixed mode counts, and takes itself out when the window ends. */
static void
on_newobj(VALUE self, rb_trace_arg_t *event)
{
    MPP_IN_HOOK;
    mpp_collector_t *collector = RTYPEDDATA_DATA(self);
    mpp_burst_t *machine = &collector->bursts.machine;
#if MPP_HOOKS_SEE_ALL_RACTORS
    if (MPP_UNLIKELY(mpp_compat_in_other_ractor())) {
        __atomic_add_fetch(&collector->bursts.n_elsewhere, 1, __ATOMIC_RELAXED);
        return;
    }
#endif
    if (MPP_UNLIKELY(collector->fork_generation != mpp_process.fork_generation)) mpp_run_after_fork(collector, 1);
    if (MPP_UNLIKELY(mpp_process.n_own_work != 0) && mpp_own_work_here()) {
        collector->bursts.n_own++;
        return;
    }
    if (MPP_LIKELY(mpp_burst_passes(machine))) return;
    mpp_burst_verdict_t verdict = mpp_burst_judge(machine);
    if (verdict == MPP_BURST_SAMPLE) {
        take_sample(collector, rb_tracearg_object(event));
    } else if (verdict == MPP_BURST_CLOSE) {
        mpp_bursts_close(collector);
    }
}

static VALUE
put_hook_in(VALUE self)
{
    mpp_hooks_add_event(self, on_newobj, RUBY_INTERNAL_EVENT_NEWOBJ);
    return Qnil;
}

static bool
put_hook_in_protected(mpp_collector_t *collector)
{
    int failed = 0;
    VALUE error = rb_errinfo();
    rb_protect(put_hook_in, collector->self, &failed);
    if (failed) mpp_compat_restore_error(error);
    return !failed;
}

static void
set_hook(mpp_collector_t *collector, bool in)
{
    mpp_bursts_t *bursts = &collector->bursts;
    if (in == bursts->hook_in) return;
    if (!in) mpp_hooks_remove_event(collector->self, on_newobj);
    bursts->hook_in = in && put_hook_in_protected(collector);
}

/* The hook has been told of all that the main Ractor has allocated since it went in. */
static void
look_elsewhere(mpp_collector_t *collector)
{
#if !MPP_HOOKS_SEE_ALL_RACTORS
    mpp_bursts_t *bursts = &collector->bursts;
    uint64_t told = mpp_burst_told(&bursts->machine) + bursts->n_own;
    size_t counted = mpp_compat_allocated_objects() - bursts->counted_at_open;
    bool told_of_all = bursts->hook_in && bursts->machine.phase != MPP_BURST_OUT; /* not the hook that a fork inherits */
    if (told_of_all && counted > told) bursts->n_elsewhere += counted - told;
#else
    (void)collector;
#endif
}

void
mpp_bursts_meet_ractor(mpp_collector_t *collector)
{
    collector->bursts.n_elsewhere++;
}

static void
open_window(mpp_collector_t *collector, const mpp_tick_t *tick, uint64_t cpu_ns)
{
    mpp_bursts_t *bursts = &collector->bursts;
    uint64_t start = mpp_thread_cpu_ns();
    uint64_t since_start_ns = cpu_ns - bursts->cpu_base_ns;
    if (tick->usable && mpp_process.n_pauses == 0 && mpp_compat_has_memory()) { /* the VM allocates for a hook */
        look_elsewhere(collector);
        bool in = mpp_burst_open(&bursts->machine, since_start_ns, tick->late_ns, tick->in_gc);
        bursts->earlier_ns = 0;
        watch_this_thread(bursts);
        set_hook(collector, in);
        if (!bursts->hook_in) mpp_burst_close(&bursts->machine);
        bursts->counted_at_open = mpp_compat_allocated_objects();
        bursts->n_own = 0;
    } else {
        mpp_burst_pass_over(&bursts->machine, since_start_ns);
    }
    /* Others' allocations say nothing about what an event costs here. */
    if (bursts->n_elsewhere == 0) mpp_burst_calibrate(&bursts->machine, mpp_run_vm_allocated(collector));
    mpp_burst_spent(&bursts->machine, mpp_thread_cpu_ns() - start);
}

/* -- the prelude -- */

static void
begin_prelude(mpp_collector_t *collector)
{
    mpp_bursts_t *bursts = &collector->bursts;
    if (bursts->prelude_ns == 0 || mpp_process.n_pauses > 0 || !mpp_compat_has_memory()) return;
    set_hook(collector, true);
    if (!bursts->hook_in) return;
    bursts->n_own = 0;
    mpp_burst_begin_prelude(&bursts->machine, bursts->prelude_ns);
}

/* Of what the VM has counted since its begin, what the hook was not told of: another Ractor's, what was allocated while one
 * had switched our hook off, and what compaction moves and puts back (3.4). */
static uint64_t
unseen_in_prelude(const mpp_collector_t *collector)
{
    uint64_t told = mpp_burst_told(&collector->bursts.machine) + collector->bursts.n_own;
    uint64_t allocated = mpp_run_vm_allocated(collector);
    return allocated > told ? allocated - told : 0;
}

static bool
in_prelude(const mpp_collector_t *collector)
{
    return collector->bursts.running && collector->bursts.machine.phase == MPP_BURST_PRELUDE;
}

bool
mpp_bursts_doubt(const mpp_collector_t *collector)
{
    return in_prelude(collector) && unseen_in_prelude(collector) > collector->bursts.n_unseen;
}

/* It never becomes less, for flushes have given it out. */
static void
note_unseen(mpp_collector_t *collector)
{
    uint64_t n_unseen = unseen_in_prelude(collector);
    if (n_unseen > collector->bursts.n_unseen) collector->bursts.n_unseen = n_unseen;
}

void
mpp_bursts_count_prelude(mpp_collector_t *collector)
{
    if (!in_prelude(collector)) return;
    note_unseen(collector);
    mpp_burst_count_prelude(&collector->bursts.machine, mpp_cpu_ns() - collector->bursts.cpu_base_ns);
}

static void
end_prelude(mpp_collector_t *collector)
{
    mpp_bursts_t *bursts = &collector->bursts;
    uint64_t cpu_ns = mpp_cpu_ns();
    note_unseen(collector);
    set_hook(collector, false);
    mpp_burst_end_prelude(&bursts->machine, cpu_ns - bursts->cpu_base_ns, mpp_run_vm_allocated(collector));
}

/* -- ticks -- */

static uint64_t armed_ns; /* the tick that was asked for */

/* In CPU time of the process. */
static uint64_t
due_ns(const mpp_bursts_t *bursts)
{
    return bursts->cpu_base_ns + mpp_burst_due(&bursts->machine);
}

static void
arm_for_the_next(void)
{
    const mpp_collector_t *next = NULL;
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        if (!collector->bursts.running) continue;
        if (next == NULL || due_ns(&collector->bursts) < due_ns(&next->bursts)) next = collector;
    }
    if (next == NULL) return;
    armed_ns = due_ns(&next->bursts);
    mpp_timer_arm(armed_ns, mpp_burst_mean_interval(&next->bursts.machine));
}

/* What was due by then hit other Ractors, and says nothing about this one. */
static void
pass_over_refused(mpp_collector_t *collector, uint64_t refused_ns)
{
    mpp_bursts_t *bursts = &collector->bursts;
    if (due_ns(bursts) > refused_ns || in_prelude(collector)) return;
    mpp_burst_pass_over(&bursts->machine, refused_ns - bursts->cpu_base_ns);
}

/* Any job ends it, for the program may have taken the timer's signal, and the hook is in. */
static void
end_preludes(void)
{
    bool any = false;
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        mpp_run_notice_fork(collector);
        if (!in_prelude(collector) || mpp_cpu_ns() < due_ns(&collector->bursts)) continue;
        end_prelude(collector);
        any = true;
    }
    if (any) arm_for_the_next();
}

void
mpp_bursts_mend(mpp_collector_t *collector)
{
    if (!mpp_bursts_doubt(collector)) return;
    note_unseen(collector);
    set_hook(collector, false);
    set_hook(collector, true); /* which makes the VM announce what the hooks of this Ractor want */
    if (!collector->bursts.hook_in) mpp_bursts_close(collector);
}

void
mpp_bursts_tick(void)
{
    mpp_tick_t tick;
    end_preludes();
    if (!mpp_timer_take(&tick)) return;
    uint64_t refused_ns = mpp_timer_refused_ns();
    uint64_t cpu_ns = mpp_cpu_ns(); /* may be stale, but the tick has come */
    if (cpu_ns < armed_ns) cpu_ns = armed_ns;
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        mpp_run_notice_fork(collector);
        if (collector->bursts.running) pass_over_refused(collector, refused_ns);
        if (!collector->bursts.running || due_ns(&collector->bursts) > cpu_ns) continue;
        if (in_prelude(collector)) {
            end_prelude(collector);
        } else {
            open_window(collector, &tick, cpu_ns);
        }
    }
    arm_for_the_next();
}

void
mpp_bursts_close(mpp_collector_t *collector)
{
    mpp_bursts_t *bursts = &collector->bursts;
    if (!bursts->running) return;
    if (in_prelude(collector)) {
        end_prelude(collector);
        arm_for_the_next();
        return;
    }
    look_elsewhere(collector);
    set_hook(collector, false);
    mpp_burst_close(&bursts->machine);
}

/* -- life -- */

void
mpp_bursts_reset(mpp_collector_t *collector)
{
    mpp_bursts_t *bursts = &collector->bursts;
    mpp_burst_config_t config = defaults;
    config.overhead = bursts->overhead;
    config.timer_ns = mpp_timer_resolution_ns();
    config.seed = mpp_hash_mix(collector->config.seed);
    mpp_burst_init(&bursts->machine, &config, &(mpp_clock_t){now, cpu_since_open, bursts});
    bursts->cpu_base_ns = mpp_cpu_ns();
    bursts->own_base = mpp_process.own_allocated;
    bursts->n_elsewhere = bursts->n_unseen = 0;
    bursts->counted_at_open = mpp_compat_allocated_objects();
    memset(bursts->weight, 0, sizeof(bursts->weight));
    bursts->flushed = (mpp_scale_t){0};
}

bool
mpp_bursts_start(mpp_collector_t *collector)
{
    mpp_bursts_t *bursts = &collector->bursts;
    bursts->fallback = mpp_timer_start(bursts->signal_number);
    bursts->running = bursts->fallback == NULL;
    bursts->hook_in = false;
    if (bursts->running) mpp_process.n_in_bursts++;
    return bursts->running;
}

void
mpp_bursts_begin(mpp_collector_t *collector)
{
    mpp_bursts_reset(collector);
    begin_prelude(collector);
    arm_for_the_next();
}

void
mpp_bursts_stop(mpp_collector_t *collector)
{
    if (!collector->bursts.running) return;
    mpp_bursts_close(collector);
    mpp_bursts_abandon(collector);
}

void
mpp_bursts_abandon(mpp_collector_t *collector)
{
    if (collector->bursts.running && --mpp_process.n_in_bursts == 0) mpp_timer_stop();
}

/* The child's run goes on at a fixed rate. */
static void
give_up_bursts(mpp_collector_t *collector, const char *reason)
{
    mpp_bursts_close(collector);
    mpp_bursts_abandon(collector);
    collector->bursts.running = false;
    collector->bursts.fallback = reason;
    mpp_hooks_add_newobj(collector->self);
    mpp_run_take_bases(collector);
}

const char *
mpp_bursts_after_fork(void)
{
    if (mpp_process.n_in_bursts == 0) return NULL;
    const char *reason = mpp_timer_restart() ? NULL : "a forked child got no timer";
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        mpp_run_notice_fork(collector);
        if (reason && collector->bursts.running) give_up_bursts(collector, reason);
    }
    if (!reason) arm_for_the_next();
    return reason;
}

static const mpp_collector_t *
any_in_bursts(void)
{
    const mpp_collector_t *collector = mpp_process.running;
    while (collector && !collector->bursts.running) collector = collector->next_running;
    return collector;
}

void
mpp_bursts_keep_ticking(void)
{
    const mpp_collector_t *first;
    if (mpp_process.n_in_bursts == 0 || !mpp_timer_lost_signal() || (first = any_in_bursts()) == NULL) return;
    mpp_timer_stop();
    const char *reason = mpp_timer_start(first->bursts.signal_number);
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        if (collector->bursts.running) collector->bursts.fallback = reason;
    }
    if (!reason) arm_for_the_next();
}

/* -- scale -- */

/* Own work is in the VM's count, and no sample stands for it. */
static uint64_t
allocated_by_program(const mpp_collector_t *collector)
{
    const mpp_bursts_t *bursts = &collector->bursts;
    size_t own_now = collector->state == MPP_RUNNING ? mpp_process.own_allocated : bursts->own_at_stop;
    uint64_t own = own_now - bursts->own_base;
    uint64_t allocated = mpp_run_vm_allocated(collector);
    return allocated > own ? allocated - own : 0;
}

mpp_scale_t
mpp_bursts_scale(const mpp_collector_t *collector, bool delta)
{
    const mpp_bursts_t *bursts = &collector->bursts;
    const mpp_burst_totals_t *totals = mpp_burst_totals(&bursts->machine);
    mpp_scale_t scale = {
        .allocated = allocated_by_program(collector),
        .n_windows = totals->n_windows,
        .n_prelude_samples = totals->n_prelude_samples,
        .n_prelude_events = totals->n_prelude_events,
        .event_weight = totals->event_weight,
        .missed_ns = totals->missed_ns,
        .n_unseen = bursts->n_unseen,
        .n_elsewhere = bursts->n_elsewhere,
    };
    memcpy(scale.weight, bursts->weight, sizeof(scale.weight));
    if (!delta) return scale;
    mpp_scale_subtract(&scale, &bursts->flushed);
    return mpp_scale_weight(&scale) > 0 ? scale : (mpp_scale_t){0};
}

double
mpp_bursts_sample_rate(const mpp_collector_t *collector)
{
    if (!collector->bursts.running) return collector->sample_rate;
    mpp_scale_t scale = mpp_bursts_scale(collector, false);
    uint64_t allocated = mpp_scale_seen(&scale);
    if (collector->n_drawn == 0 || allocated == 0) return mpp_burst_sample_rate(&collector->bursts.machine);
    return (double)collector->n_drawn / (double)allocated;
}

void
mpp_bursts_flushed(mpp_collector_t *collector, const mpp_scale_t *scale)
{
    mpp_scale_add(&collector->bursts.flushed, scale);
}

void
mpp_bursts_give_back(mpp_collector_t *collector, const mpp_scale_t *scale)
{
    mpp_scale_subtract(&collector->bursts.flushed, scale);
}
