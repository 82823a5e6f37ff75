/*
 * A run of a collector: its tables, its counters and what they are counted from.
 * Every start is a run with a profile of its own; what still refers to an older run (a snapshot being encoded, a sample
 * in hand) holds that run's profile and cannot reach the new one. A forked child starts a run over by itself, at the
 * first event, call or mark that sees the fork.
 */
#include "vm.h"

#ifdef HAVE_GETRANDOM
#include <sys/random.h>
#endif
#include <time.h>

static int64_t
wall_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static uint64_t
fresh_seed(const mpp_collector_t *collector)
{
    if (collector->has_seed) return collector->seed;
#ifdef HAVE_GETRANDOM
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == (ssize_t)sizeof(seed)) return seed;
#endif
    return mpp_hash_mix(mpp_clock_ns() ^ (uint64_t)(uintptr_t)collector);
}

static void
reset_counters(mpp_collector_t *collector, uint64_t seed)
{
    mpp_sampler_init(&collector->sampler, collector->sample_rate, seed);
    if (collector->raw_counts) collector->sampler.weight = MPP_WEIGHT_ONE;
    collector->run++;
    collector->events_ahead = collector->sampler.gap + 1;
    collector->n_own = collector->n_frees = collector->n_other_ractor = collector->n_samples = collector->n_drawn = 0;
    collector->n_hook_lost = collector->unseen_when_called = 0;
    collector->internal_weight = collector->other_thread_weight = 0;
    collector->n_stale = 0;
    collector->weak_map = (mpp_weak_map_t){.map = Qnil};
    collector->n_moved_back = 0;
    collector->snapshot_bytes = collector->scratch_bytes = collector->output_bytes = 0;
    collector->costs = (mpp_costs_t){0};
    collector->started_wall_ns = collector->interval_wall_ns = wall_clock_ns();
    collector->started_ns = collector->interval_ns = mpp_clock_ns();
    collector->stopped_ns = 0;
}

mpp_status_t
mpp_run_begin(mpp_collector_t *collector)
{
    mpp_profile_t *profile;
    uint64_t seed = fresh_seed(collector);
    collector->config.seed = mpp_hash_mix(seed); /* thinning is to be independent of sampling */
    mpp_status_t status = mpp_profile_new(&collector->config, &profile);
    if (status != MPP_OK) return status;
    mpp_profile_release(collector->profile);
    collector->profile = profile;
    collector->live = mpp_profile_live(profile);
    reset_counters(collector, seed);
    return MPP_OK;
}

uint32_t
mpp_run_marks_ended(void)
{
    return (uint32_t)rb_gc_count() - (mpp_compat_gc_marking() ? 1 : 0);
}

void
mpp_run_take_bases(mpp_collector_t *collector)
{
    collector->n_frees = 0; /* a collection may have run while the hooks were put in */
    collector->allocated_base = mpp_compat_allocated_objects();
    collector->freed_base = mpp_compat_freed_objects();
    collector->freed_base_known = true;
    collector->marks_seen = mpp_run_marks_ended();
}

void
mpp_run_end(mpp_collector_t *collector)
{
    collector->gc_finished_at_stop = mpp_run_gc_finished(collector);
    collector->stopped_ns = mpp_clock_ns();
    collector->state = MPP_STOPPED;
}

void
mpp_run_after_fork(mpp_collector_t *collector, size_t uncounted)
{
    collector->fork_generation = mpp_process.fork_generation;
    if (collector->state != MPP_RUNNING) return; /* what a stopped one holds is its parent's past, and stays readable */
    if (mpp_run_begin(collector) != MPP_OK) {
        static const mpp_live_t empty;
        mpp_profile_release(collector->profile);
        collector->profile = NULL;
        collector->live = &empty;
        reset_counters(collector, fresh_seed(collector));
    }
    if (collector->bursts.running) mpp_bursts_reset(collector);
    collector->allocated_base = mpp_compat_allocated_objects() - uncounted;
    collector->freed_base_known = false; /* not to be read amid a sweep */
    collector->marks_seen = mpp_run_marks_ended();
}

uint64_t
mpp_run_events(const mpp_collector_t *collector)
{
    return collector->events_ahead - collector->sampler.gap - 1;
}

uint64_t
mpp_run_unseen(const mpp_collector_t *collector, uint64_t counted)
{
    if (collector->bursts.running) return 0; /* most are not to be seen */
    uint64_t seen = mpp_run_events(collector) + collector->n_own + collector->n_other_ractor;
    return counted > seen ? counted - seen : 0;
}

uint64_t
mpp_run_vm_allocated(const mpp_collector_t *collector)
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

uint32_t
mpp_run_gc_finished(const mpp_collector_t *collector)
{
    if (collector->state == MPP_STOPPED) return collector->gc_finished_at_stop;
    return (uint32_t)rb_gc_count() - (mpp_compat_gc_idle() ? 0 : 1);
}
