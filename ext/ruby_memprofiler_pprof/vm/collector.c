/*
 * MemprofilerPprof::Collector: its life (new → running → stopped → running …) and what the GC asks of it.
 * Every start is a run with a profile of its own; what still refers to an older run (a snapshot being encoded, a sample
 * in hand) holds that run's profile and cannot reach the new one. A forked child starts a run over by itself, at the
 * first event, call or mark that sees the fork.
 */
#include "vm.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static int64_t
wall_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

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

static bool
is_forked(const mpp_collector_t *collector)
{
    return collector->fork_generation != mpp_process.fork_generation;
}

static void
collector_mark(void *pointer)
{
    mpp_collector_t *collector = pointer;
    if (is_forked(collector)) mpp_collector_after_fork(collector, 0);
    rb_gc_mark(collector->thread);
    if (collector->state != MPP_RUNNING || collector->profile == NULL) return;
    rb_gc_mark(collector->self); /* pins it: the hooks' data is its address */
    collector->liveness->verify(collector);
    mpp_profile_each_pending(collector->profile, mark_and_pin, NULL);
    if (!collector->liveness->sees_deaths) mpp_profile_sweep_keys(collector->profile, mark_movable, NULL);
}

static void
collector_compact(void *pointer)
{
    mpp_collector_t *collector = pointer;
    if (is_forked(collector)) mpp_collector_after_fork(collector, 0);
    if (collector->state == MPP_RUNNING && collector->profile) {
        mpp_profile_rekey(collector->profile, relocated, NULL);
    }
}

static void
collector_free(void *pointer)
{
    mpp_collector_t *collector = pointer;
    mpp_process_remove(collector);
    mpp_profile_release(collector->profile);
    free(collector->frames);
    free(collector->lines);
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

const rb_data_type_t mpp_collector_type = {
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

/* -- a run -- */

static uint64_t
fresh_seed(const mpp_collector_t *collector)
{
    uint64_t seed;
    if (collector->has_seed) return collector->seed;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == (ssize_t)sizeof(seed)) return seed;
    return mpp_hash_mix(mpp_clock_ns() ^ (uint64_t)(uintptr_t)collector);
}

/* New tables for a new run; on failure the old ones stay. */
static mpp_status_t
renew_profile(mpp_collector_t *collector, uint64_t seed)
{
    mpp_profile_t *profile;
    collector->config.seed = mpp_hash_mix(seed);
    mpp_status_t status = mpp_profile_new(&collector->config, &profile);
    if (status != MPP_OK) return status;
    mpp_profile_release(collector->profile);
    collector->profile = profile;
    return MPP_OK;
}

static void
reset_run(mpp_collector_t *collector, uint64_t seed)
{
    mpp_sampler_init(&collector->sampler, collector->sample_rate, seed);
    if (collector->raw_counts) collector->sampler.weight = MPP_WEIGHT_ONE;
    collector->run++;
    collector->events_ahead = collector->sampler.gap + 1;
    collector->n_own = collector->n_frees = collector->n_other_ractor = collector->n_samples = 0;
    collector->internal_weight = collector->other_thread_weight = 0;
    collector->n_stale = 0;
    collector->costs = (mpp_costs_t){0};
    collector->started_wall_ns = collector->interval_wall_ns = wall_clock_ns();
    collector->started_ns = collector->interval_ns = mpp_clock_ns();
    collector->stopped_ns = 0;
}

void
mpp_collector_after_fork(mpp_collector_t *collector, size_t uncounted)
{
    collector->fork_generation = mpp_process.fork_generation;
    if (collector->state != MPP_RUNNING) return; /* what a stopped one holds is its parent's past, and stays readable */
    uint64_t seed = fresh_seed(collector);
    if (renew_profile(collector, seed) != MPP_OK) {
        mpp_profile_release(collector->profile);
        collector->profile = NULL;
    }
    reset_run(collector, seed);
    collector->allocated_base = mpp_compat_allocated_objects() - uncounted;
    collector->freed_base_known = false; /* not to be read amid a sweep */
}

mpp_collector_t *
mpp_collector_get(VALUE self)
{
    mpp_collector_t *collector = rb_check_typeddata(self, &mpp_collector_type);
    if (collector->profile == NULL && collector->state == MPP_NEW) {
        rb_raise(rb_eArgError, "uninitialized MemprofilerPprof::Collector");
    }
    if (is_forked(collector)) mpp_collector_after_fork(collector, 0);
    return collector;
}

uint64_t
mpp_collector_events(const mpp_collector_t *collector)
{
    return collector->events_ahead - collector->sampler.gap - 1;
}

uint64_t
mpp_collector_vm_allocated(const mpp_collector_t *collector)
{
    switch (collector->state) {
    case MPP_RUNNING:
        return mpp_compat_allocated_objects() - collector->allocated_base;
    case MPP_STOPPED:
        return collector->allocated_at_stop - collector->allocated_base;
    default:
        return 0;
    }
}

static uint32_t
gc_finished(void)
{
    return (uint32_t)rb_gc_count() - (mpp_compat_gc_idle() ? 0 : 1);
}

uint32_t
mpp_collector_gc_finished(const mpp_collector_t *collector)
{
    return collector->state == MPP_STOPPED ? collector->gc_finished_at_stop : gc_finished();
}

/* -- Ruby's side -- */

static VALUE
collector_allocate(VALUE klass)
{
    mpp_collector_t *collector = calloc(1, sizeof(*collector));
    if (collector == NULL) rb_memerror();
    collector->thread = Qnil;
    collector->fork_generation = mpp_process.fork_generation;
    return TypedData_Wrap_Struct(klass, &mpp_collector_type, collector);
}

static const mpp_liveness_t *
liveness_by_name(VALUE name)
{
    return name == ID2SYM(rb_intern("none")) ? &mpp_liveness_none : &mpp_liveness_free_hook;
}

/* The options have been validated in Ruby. */
static VALUE
collector_initialize(VALUE self, VALUE sample_rate, VALUE max_heap_samples, VALUE max_allocation_samples,
                     VALUE memory_limit, VALUE max_stack_depth, VALUE raw_counts, VALUE liveness, VALUE threads,
                     VALUE seed)

{
    mpp_collector_t *collector = rb_check_typeddata(self, &mpp_collector_type);
    (void)threads;
    if (collector->profile) rb_raise(rb_eArgError, "already initialized");
    collector->sample_rate = NUM2DBL(sample_rate);
    collector->raw_counts = RTEST(raw_counts);
    collector->has_seed = !NIL_P(seed);
    if (collector->has_seed) collector->seed = NUM2ULL(seed);
    collector->liveness = liveness_by_name(liveness);
    collector->config = (mpp_profile_config_t){
        .memory_limit_bytes = NUM2SIZET(memory_limit),
        .max_rows = NUM2UINT(max_allocation_samples),
        .max_live = NUM2UINT(max_heap_samples),
        .max_pending = 262144,
        .max_depth = NUM2UINT(max_stack_depth),
        .tracks_live = collector->liveness->keeps_records,
    };
    size_t n_scratch = (size_t)collector->config.max_depth + 1;
    collector->frames = calloc(n_scratch, sizeof(*collector->frames));
    collector->lines = calloc(n_scratch, sizeof(*collector->lines));
    if (!collector->frames || !collector->lines || renew_profile(collector, 0) != MPP_OK) rb_memerror();
    reset_run(collector, 0);
    return self;
}

static VALUE
collector_start(VALUE self, VALUE threads)
{
    mpp_collector_t *collector = mpp_collector_get(self);
    if (collector->state == MPP_RUNNING) return Qfalse;
    uint64_t seed = fresh_seed(collector);
    if (renew_profile(collector, seed) != MPP_OK) rb_memerror();
    reset_run(collector, seed);
    collector->thread = threads == ID2SYM(rb_intern("current")) ? rb_thread_current() : Qnil;

    collector->self = self;
    collector->state = MPP_RUNNING;
    mpp_process_add(collector);
    collector->liveness->start(collector, self);
    mpp_hooks_add_newobj(self);
    /* No object is allocated from here to the first event. A collection may have run while the hooks were put in. */
    collector->n_frees = 0;
    collector->allocated_base = mpp_compat_allocated_objects();
    collector->freed_base = mpp_compat_freed_objects();
    collector->freed_base_known = true;
    return Qtrue;
}

static VALUE
collector_stop(VALUE self, VALUE gc)
{
    mpp_collector_t *collector = mpp_collector_get(self);
    if (collector->state != MPP_RUNNING) return Qfalse;
    if (RTEST(gc)) rb_gc_start();
    if (collector->state != MPP_RUNNING) return Qfalse; /* a finalizer was quicker */
    /* No interrupt is checked from here on: either all of it happens or none. */
    mpp_hooks_remove_newobj(self);
    collector->allocated_at_stop = mpp_compat_allocated_objects();
    mpp_jobs_drain(collector);
    mpp_flush_measure(collector, false);
    collector->liveness->stop(collector, self);
    collector->gc_finished_at_stop = gc_finished();
    collector->stopped_ns = mpp_clock_ns();
    collector->state = MPP_STOPPED;
    collector->thread = Qnil;
    mpp_process_remove(collector);
    if (collector->profile) mpp_profile_detach(collector->profile);
    return Qtrue;
}

static VALUE
collector_running_p(VALUE self)
{
    return mpp_collector_get(self)->state == MPP_RUNNING ? Qtrue : Qfalse;
}

static VALUE
collector_live_heap_samples_count(VALUE self)
{
    mpp_collector_t *collector = mpp_collector_get(self);
    if (collector->state == MPP_RUNNING) mpp_jobs_drain(collector);
    return UINT2NUM(collector->profile ? mpp_profile_live_count(collector->profile) : 0);
}

void
mpp_collector_define(VALUE module)
{
    VALUE klass = rb_define_class_under(module, "Collector", rb_cObject);
    rb_define_alloc_func(klass, collector_allocate);
    rb_undef_method(klass, "initialize_copy");
    rb_define_private_method(klass, "initialize_native", collector_initialize, 9);
    rb_define_private_method(klass, "start_native", collector_start, 1);
    rb_define_private_method(klass, "stop_native", collector_stop, 1);
    rb_define_method(klass, "running?", collector_running_p, 0);
    rb_define_method(klass, "live_heap_samples_count", collector_live_heap_samples_count, 0);
    mpp_flush_define(klass);
    mpp_stats_define(klass);
}
