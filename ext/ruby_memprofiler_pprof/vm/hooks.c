/*
 * The hooks that are in all the time. NEWOBJ: an allocation that is not sampled costs two loads of process-wide words
 * and a countdown. FREEOBJ: one probe of the live table, and for the types that are cache keys one of those caches.
 * Both run inside the VM's allocator or collector: libc memory only, no raise, no call that allocates.
 */
#include "own_work.h"
#include "vm.h"

static bool
is_internal(VALUE object)
{
    enum ruby_value_type type = RB_BUILTIN_TYPE(object);
    return type == RUBY_T_IMEMO || type == RUBY_T_ICLASS || RBASIC_CLASS(object) == 0;
}

void
mpp_hooks_take_sample(mpp_collector_t *collector, VALUE object, mpp_weight_t weight)
{
    collector->n_drawn++;
    if (is_internal(object)) {
        collector->internal_weight += weight;
    } else if (!NIL_P(collector->thread) && rb_thread_current() != collector->thread) {
        collector->other_thread_weight += weight;
    } else if (MPP_LIKELY(collector->profile != NULL)) {
        collector->n_samples++;
        mpp_backtrace_sample(collector, object, weight);
        mpp_compat_trigger_job();
    }
}

static void __attribute__((noinline))
draw_and_sample(mpp_collector_t *collector, rb_trace_arg_t *event)
{
    mpp_weight_t weight = collector->sampler.weight;
    mpp_sampler_draw(&collector->sampler);
    collector->events_ahead += collector->sampler.gap + 1;
    mpp_hooks_take_sample(collector, rb_tracearg_object(event), weight);
}

static void
on_newobj(VALUE self, rb_trace_arg_t *event)
{
    MPP_IN_HOOK;
    mpp_collector_t *collector = RTYPEDDATA_DATA(self);
#if MPP_HOOKS_SEE_ALL_RACTORS
    if (MPP_UNLIKELY(mpp_compat_in_other_ractor())) {
        __atomic_add_fetch(&collector->n_other_ractor, 1, __ATOMIC_RELAXED);
        return;
    }
#endif
    if (MPP_UNLIKELY(collector->fork_generation != mpp_process.fork_generation)) mpp_run_after_fork(collector, 1);
    if (MPP_UNLIKELY(mpp_process.n_own_work != 0) && mpp_own_work_here()) {
        collector->n_own++;
        return;
    }
    if (MPP_LIKELY(!mpp_sampler_tick(&collector->sampler))) return;
    draw_and_sample(collector, event);
}

/* What the caches are keyed by: frames and classes. */
#define KEY_TYPES (1u << RUBY_T_IMEMO | 1u << RUBY_T_CLASS)

static void
forget_key(mpp_collector_t *collector, VALUE object)
{
    if (collector->profile == NULL) return;
    if (RB_BUILTIN_TYPE(object) == RUBY_T_CLASS) {
        mpp_profile_forget_class(collector->profile, object);
    } else {
        mpp_profile_forget_frame(collector->profile, object);
    }
}

/* The VM sweeps a page from its beginning to its end, in slots of 40, 80 … 640 bytes. */
#define SWEPT_SOON 640

static void
on_freeobj(VALUE self, rb_trace_arg_t *event)
{
    MPP_IN_HOOK;
    mpp_collector_t *collector = RTYPEDDATA_DATA(self);
#if MPP_HOOKS_SEE_ALL_RACTORS
    /* Not counted: it then shows as a missed death, and the records are given up rather than trusted. */
    if (MPP_UNLIKELY(mpp_compat_in_other_ractor())) return;
#endif
    mpp_run_notice_fork(collector);
    collector->n_frees++;
    VALUE object = rb_tracearg_object(event);
    mpp_live_prefetch(collector->live, object + 2 * SWEPT_SOON);
    mpp_live_prefetch_record(collector->live, object + SWEPT_SOON);
    if (MPP_UNLIKELY(mpp_live_may_have(collector->live, object))) mpp_profile_forget_object(collector->profile, object);
    if (MPP_UNLIKELY(KEY_TYPES >> RB_BUILTIN_TYPE(object) & 1)) forget_key(collector, object);
}

void
mpp_hooks_add_event(VALUE self, mpp_hook_t hook, rb_event_flag_t event)
{
    rb_event_hook_flag_t flags = RUBY_EVENT_HOOK_FLAG_SAFE | RUBY_EVENT_HOOK_FLAG_RAW_ARG;
    if (mpp_process.n_pauses > 0) return;
    rb_add_event_hook2((rb_event_hook_func_t)(void (*)(void))hook, event, self, flags);
}

void
mpp_hooks_remove_event(VALUE self, mpp_hook_t hook)
{
    rb_remove_event_hook_with_data((rb_event_hook_func_t)(void (*)(void))hook, self);
}

void
mpp_hooks_add_newobj(VALUE self)
{
    mpp_hooks_add_event(self, on_newobj, RUBY_INTERNAL_EVENT_NEWOBJ);
}

void
mpp_hooks_remove_newobj(VALUE self)
{
    mpp_hooks_remove_event(self, on_newobj);
}

void
mpp_hooks_add_freeobj(VALUE self)
{
    mpp_hooks_add_event(self, on_freeobj, RUBY_INTERNAL_EVENT_FREEOBJ);
}

void
mpp_hooks_remove_freeobj(VALUE self)
{
    mpp_hooks_remove_event(self, on_freeobj);
}
