/*
 * MemprofilerPprof::Collector: the Ruby object, its life (new → running → stopped → running …), its native methods, and
 * what the GC asks of it.
 */
#include "vm.h"

#include <stdlib.h>

/* -- the GC's side -- */

static void
mark_and_pin(void *unused, uintptr_t key)
{
    (void)unused;
    rb_gc_mark(key);
}

static void
mark_movable(void *unused, uintptr_t key)
{
    (void)unused;
    rb_gc_mark_movable(key);
}

static uintptr_t
relocated(void *unused, uintptr_t key)
{
    (void)unused;
    return rb_gc_location(key);
}

static void
collector_mark(void *pointer)
{
    MPP_IN_HOOK;
    mpp_collector_t *collector = pointer;
    mpp_run_notice_fork(collector);
    rb_gc_mark(collector->thread);
    rb_gc_mark(collector->weak_map.map);
    if (collector->state != MPP_RUNNING) return;
    if (mpp_compat_in_other_ractor()) mpp_bursts_meet_ractor(collector);
    mpp_lost_hooks_doubt(collector);
    if (collector->profile == NULL) return;
    collector->liveness->verify(collector);
    mpp_profile_each_pending(collector->profile, mark_and_pin, NULL);
    if (!collector->liveness->sees_frees) mpp_profile_sweep_keys(collector->profile, mark_movable, NULL);
}

static void
collector_compact(void *pointer)
{
    MPP_IN_HOOK;
    mpp_collector_t *collector = pointer;
    mpp_run_notice_fork(collector);
    if (collector->state != MPP_RUNNING || collector->profile == NULL) return;
    mpp_profile_rekey(collector->profile, relocated, NULL);
}

static void
collector_free(void *pointer)
{
    mpp_collector_t *collector = pointer;
    if (collector->state == MPP_RUNNING) { /* the VM ends */
        mpp_process_remove(collector);
        mpp_bursts_abandon(collector);
    }
    mpp_profile_release(collector->profile);
    free(collector->frames);
    free(collector->lines);
    rb_gc_adjust_memory_usage(-collector->told_bytes);
    free(collector);
}

static size_t
scratch_bytes(const mpp_collector_t *collector)
{
    return ((size_t)collector->config.max_depth + 1) * (sizeof(VALUE) + sizeof(int));
}

static size_t
collector_size(const void *pointer)
{
    const mpp_collector_t *collector = pointer;
    size_t bytes = sizeof(*collector);
    if (collector->frames) bytes += scratch_bytes(collector);
    if (collector->profile) {
        mpp_profile_stats_t stats;
        mpp_profile_stats(collector->profile, &stats);
        bytes += stats.memory_used;
    }
    return bytes;
}

static const rb_data_type_t collector_type = {
    .wrap_struct_name = "MemprofilerPprof::Collector",
    .function =
        {
            .dmark = collector_mark,
            .dfree = collector_free,
            .dsize = collector_size,
            .dcompact = collector_compact,
        },
    .flags = RUBY_TYPED_FREE_IMMEDIATELY, /* its fields are written in the hook: no write barrier protects them */
};

/* -- Ruby's side -- */

static mpp_collector_t *
collector_of(VALUE self)
{
    mpp_collector_t *collector = rb_check_typeddata(self, &collector_type);
    if (collector->profile == NULL && collector->state == MPP_NEW) {
        rb_raise(rb_eArgError, "uninitialized MemprofilerPprof::Collector");
    }
    /* As the VM itself refuses calls from C there: its guard page must not throw from amid the tables. */
    if (ruby_stack_check()) rb_raise(rb_eSysStackError, "stack level too deep");
    mpp_run_notice_fork(collector);
    mpp_bursts_keep_ticking();
    return collector;
}

static VALUE
collector_allocate(VALUE klass)
{
    mpp_collector_t *collector = calloc(1, sizeof(*collector));
    if (collector == NULL) rb_memerror();
    collector->thread = Qnil;
    collector->fork_generation = mpp_process.fork_generation;
    return TypedData_Wrap_Struct(klass, &collector_type, collector);
}

/* From this rate on, what the free hook costs at every death is less than what others cost at a sample. */
#define FREE_HOOK_RATE 0.1

/* NULL: not to be had on this Ruby. */
static const mpp_liveness_t *
choose_liveness(VALUE name, double sample_rate)
{
    if (name == ID2SYM(rb_intern("none"))) return &mpp_liveness_none;
    if (name == ID2SYM(rb_intern("free_hook"))) return &mpp_liveness_free_hook;
    const mpp_liveness_t *cheap = MPP_TELLS_MARKED        ? &mpp_liveness_mark_hook
                                  : MPP_HOLDS_EXCEPTIONS ? &mpp_liveness_weak_map
                                                         : NULL;
    if (name == ID2SYM(rb_intern("weak_map"))) return cheap;
    return cheap && sample_rate < FREE_HOOK_RATE ? cheap : &mpp_liveness_free_hook;
}

/* The options have been validated in Ruby. */
static VALUE
collector_initialize(VALUE self, VALUE sample_rate, VALUE max_heap_samples, VALUE max_allocation_samples,
                     VALUE memory_limit, VALUE max_stack_depth, VALUE raw_counts, VALUE liveness, VALUE seed,
                     VALUE overhead, VALUE prelude, VALUE timer_signal)
{
    mpp_collector_t *collector = rb_check_typeddata(self, &collector_type);
    if (collector->profile) rb_raise(rb_eArgError, "already initialized");
    collector->sample_rate = NUM2DBL(sample_rate);
    collector->bursts.wanted = !NIL_P(overhead);
    if (collector->bursts.wanted) collector->bursts.overhead = NUM2DBL(overhead);
    if (collector->bursts.wanted) collector->bursts.prelude_ns = (uint64_t)(NUM2DBL(prelude) * 1e9);
    if (!NIL_P(timer_signal)) collector->bursts.signal_number = NUM2INT(timer_signal);
    collector->raw_counts = RTEST(raw_counts);
    collector->has_seed = !NIL_P(seed);
    if (collector->has_seed) collector->seed = NUM2ULL(seed);
    collector->liveness = choose_liveness(liveness, collector->sample_rate);
    if (collector->liveness == NULL) rb_raise(rb_eArgError, "liveness: :weak_map is not to be had on this Ruby");
    collector->config = (mpp_profile_config_t){
        .memory_limit_bytes = NUM2SIZET(memory_limit),
        .max_rows = NUM2UINT(max_allocation_samples),
        .max_live = NUM2UINT(max_heap_samples),
        .max_pending = 262144,
        .max_depth = NUM2UINT(max_stack_depth),
        .tracks_live = collector->liveness->keeps_records,
        .late_deaths = collector->liveness->late_deaths,
    };
    size_t n_scratch = (size_t)collector->config.max_depth + 1;
    collector->frames = calloc(n_scratch, sizeof(*collector->frames));
    collector->lines = calloc(n_scratch, sizeof(*collector->lines));
    if (!collector->frames || !collector->lines || mpp_run_begin(collector) != MPP_OK) rb_memerror();
    /* Many collectors may be made one after the other: the VM is to know that there is something to collect. What they grow
     * by while they run starts no collection. */
    collector->told_bytes = (ssize_t)collector_size(collector);
    rb_gc_adjust_memory_usage(collector->told_bytes);
    return self;
}

static VALUE
put_hooks_in(VALUE self)
{
    mpp_collector_t *collector = collector_of(self);
    rb_gc_register_address(&collector->self);
    collector->liveness->start(collector, self);
    if (!collector->bursts.running) mpp_hooks_add_newobj(self);
    return Qnil;
}

static void
take_hooks_out(mpp_collector_t *collector)
{
    mpp_hooks_remove_newobj(collector->self);
    mpp_bursts_stop(collector);
    collector->liveness->stop(collector, collector->self);
    rb_gc_unregister_address(&collector->self);
}

/* What may fail comes first: a start that raises leaves the collector as it was. False if it was running. */
static bool
start(VALUE self, VALUE threads, bool for_a_block)
{
    mpp_collector_t *collector = collector_of(self);
    int failed = 0;
    if (collector->state == MPP_RUNNING) return false;
    mpp_bursts_t former = collector->bursts;
    collector->self = self;
    collector->bursts.running = false;
    collector->bursts.fallback = NULL;
    if (collector->bursts.wanted && for_a_block) collector->bursts.fallback = "a block is over too soon for them";
    if (collector->bursts.wanted && !for_a_block) mpp_bursts_start(collector);
    rb_protect(put_hooks_in, self, &failed);
    if (failed || mpp_run_begin(collector) != MPP_OK) {
        take_hooks_out(collector);
        collector->bursts = former; /* what the last run has gathered is still to be read */
        if (failed) rb_jump_tag(failed);
        rb_memerror();
    }
    collector->thread = threads == ID2SYM(rb_intern("current")) ? rb_thread_current() : Qnil;
    collector->state = MPP_RUNNING;
    mpp_process_add(collector);
    mpp_run_take_bases(collector); /* no object is allocated between this and the first event */
    if (collector->bursts.running) mpp_bursts_begin(collector);
    return true;
}

static VALUE
collector_start(VALUE self, VALUE threads)
{
    return start(self, threads, false) ? Qtrue : Qfalse;
}

static VALUE
look_at_all(VALUE self)
{
    mpp_collector_t *collector = collector_of(self);
    mpp_jobs_drain(collector);
    mpp_flush_measure(collector, true);
    return Qnil;
}

static VALUE
collector_stop(VALUE self, VALUE gc)
{
    int raised = 0;
    mpp_collector_t *collector = collector_of(self);
    uint32_t run = collector->run;
    if (collector->state != MPP_RUNNING) return Qfalse;
    if (RTEST(gc)) {
        mpp_jobs_drain(collector); /* what waits is marked */
        mpp_compat_collect_garbage();
        if (collector->state != MPP_RUNNING || collector->run != run) return Qfalse; /* a finalizer was quicker */
    }
    if (collector->liveness->late_deaths) {
        rb_protect(look_at_all, self, &raised); /* what strikes there does not keep it running */
        if (collector->state != MPP_RUNNING || collector->run != run) { /* another thread was */
            if (raised) rb_jump_tag(raised);
            return Qfalse;
        }
    }
    /* No interrupt is checked from here on: either all of it happens or none. */
    mpp_lost_hooks_mend(collector);
    mpp_hooks_remove_newobj(self);
    mpp_bursts_close(collector);
    collector->allocated_at_stop = mpp_compat_allocated_objects();
    collector->bursts.own_at_stop = mpp_process.own_allocated;
    collector->weak_map.ended = true;
    mpp_jobs_drain(collector);
    if (!collector->liveness->late_deaths) mpp_flush_measure(collector, false);
    take_hooks_out(collector);
    mpp_run_end(collector);
    collector->thread = Qnil;
    mpp_process_remove(collector);
    if (collector->profile) mpp_profile_detach(collector->profile);
    if (raised) rb_jump_tag(raised);
    return Qtrue;
}

static VALUE
collector_burst_fallback(VALUE self)
{
    const char *fallback = collector_of(self)->bursts.fallback;
    return fallback ? rb_str_new_cstr(fallback) : Qnil;
}

typedef struct {
    VALUE collector;
    VALUE flush_options; /* a Hash */
} profile_call_t;

static VALUE
yield_and_flush(VALUE argument)
{
    profile_call_t *call = (profile_call_t *)argument;
    rb_yield_values(0);
    return rb_funcallv_kw(call->collector, rb_intern("flush"), 1, &call->flush_options, RB_PASS_KEYWORDS);
}

static VALUE
stop_at_once(VALUE self)
{
    return collector_stop(self, Qfalse);
}

/* Not in Ruby, where an exception of a signal or of another thread could come between the start and an `ensure`. */
static VALUE
collector_profile(VALUE self, VALUE threads, VALUE flush_options)
{
    profile_call_t call = {self, flush_options};
    if (!start(self, threads, true)) {
        rb_raise(rb_path2class("MemprofilerPprof::StateError"), "the collector is running: stop it before profile");
    }
    return rb_ensure(yield_and_flush, (VALUE)&call, stop_at_once, self);
}

static VALUE
collector_running_p(VALUE self)
{
    return collector_of(self)->state == MPP_RUNNING ? Qtrue : Qfalse;
}

static VALUE
collector_live_heap_samples_count(VALUE self)
{
    mpp_collector_t *collector = collector_of(self);
    if (collector->state == MPP_RUNNING) mpp_jobs_drain(collector);
    return UINT2NUM(collector->profile ? mpp_profile_live_count(collector->profile) : 0);
}

static VALUE
collector_flush(VALUE self, VALUE delta, VALUE gc, VALUE min_gc_age, VALUE encodings)
{
    mpp_flush_request_t request = {
        .delta = RTEST(delta),
        .gc = RTEST(gc),
        .min_gc_age = NUM2UINT(min_gc_age),
        .encodings = encodings,
    };
    VALUE all = mpp_flush(collector_of(self), &request);
    RB_GC_GUARD(self);
    RB_GC_GUARD(encodings);
    return all;
}

static VALUE
collector_stats(VALUE self)
{
    return mpp_stats(collector_of(self));
}

void
mpp_collector_define(VALUE module)
{
    VALUE klass = rb_define_class_under(module, "Collector", rb_cObject);
    rb_define_alloc_func(klass, collector_allocate);
    rb_define_private_method(klass, "initialize_native", collector_initialize, 11);
    rb_define_private_method(klass, "start_native", collector_start, 1);
    rb_define_private_method(klass, "stop_native", collector_stop, 1);
    rb_define_private_method(klass, "burst_fallback_native", collector_burst_fallback, 0);
    rb_define_private_method(klass, "profile_native", collector_profile, 2);
    rb_define_method(klass, "running?", collector_running_p, 0);
    rb_define_method(klass, "live_heap_samples_count", collector_live_heap_samples_count, 0);
    rb_define_private_method(klass, "flush_native", collector_flush, 4);
    rb_define_method(klass, "stats", collector_stats, 0);
}
