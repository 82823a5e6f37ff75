/*
 * Collector#stats: one consistent reading of every counter, taken before the first object of the Hash is made.
 */
#include "own_work.h"
#include "timer.h"
#include "vm.h"

typedef struct {
    mpp_collector_t collector; /* a copy */
    mpp_profile_stats_t profile;
    mpp_amount_t counted;
    uint64_t vm_allocated;
    uint64_t unseen;
    double sample_rate;
    mpp_scale_t scale; /* burst mode */
    size_t weak_map_bytes;
    mpp_own_work_t own_work;
} reading_t;

/* A sum of weights as a whole number of allocations or bytes. */
static VALUE
whole(mpp_sum_t sum)
{
    mpp_sum_t rounded = (sum + (MPP_WEIGHT_ONE >> 1)) >> MPP_WEIGHT_BITS;
    return ULL2NUM((unsigned long long)rounded);
}

static VALUE
seconds(uint64_t ns)
{
    return DBL2NUM((double)ns / 1e9);
}

static void
set(VALUE hash, const char *name, VALUE value)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(name)), value);
}

static VALUE
symbol(const char *name)
{
    return ID2SYM(rb_intern(name));
}

/* In burst mode nothing but the sum is counted: how it divides is estimated from the samples. */
static VALUE
estimated_allocations(const reading_t *reading)
{
    const mpp_collector_t *collector = &reading->collector;
    double factor = mpp_scale_factor(&reading->scale);
    const struct {
        const char *name;
        mpp_sum_t weight;
    } parts[] = {
        {"dropped", reading->profile.dropped.count},
        {"internal", collector->internal_weight},
        {"other_thread", collector->other_thread_weight},
    };
    uint64_t seen = mpp_scale_seen(&reading->scale), rest = seen;
    VALUE hash = rb_hash_new();
    set(hash, "vm", ULL2NUM(reading->vm_allocated));
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        uint64_t n = (uint64_t)((double)parts[i].weight / (double)MPP_WEIGHT_ONE * factor);
        if (n > rest) n = rest;
        rest -= n;
        set(hash, parts[i].name, ULL2NUM(n));
    }
    set(hash, "counted", ULL2NUM(rest));
    set(hash, "own", ULL2NUM(reading->vm_allocated - reading->scale.allocated));
    uint64_t unseen = reading->scale.n_unseen, not_seen = reading->scale.allocated - seen;
    if (unseen > not_seen) unseen = not_seen;
    set(hash, "other_ractor", ULL2NUM(not_seen - unseen));
    set(hash, "hook_lost", INT2FIX(0));
    set(hash, "unseen", ULL2NUM(unseen));
    return hash;
}

static VALUE
allocations(const reading_t *reading)
{
    const mpp_collector_t *collector = &reading->collector;
    if (collector->bursts.running) return estimated_allocations(reading);
    VALUE hash = rb_hash_new();
    set(hash, "vm", ULL2NUM(reading->vm_allocated));
    set(hash, "counted", whole(reading->counted.count));
    set(hash, "dropped", whole(reading->profile.dropped.count));
    set(hash, "internal", whole(collector->internal_weight));
    set(hash, "other_thread", whole(collector->other_thread_weight));
    set(hash, "own", ULL2NUM(collector->n_own));
    set(hash, "other_ractor", ULL2NUM(collector->n_other_ractor));
    set(hash, "hook_lost", ULL2NUM(collector->n_hook_lost));
    set(hash, "unseen", ULL2NUM(reading->unseen - collector->n_hook_lost));
    return hash;
}

static VALUE
dropped_samples(const mpp_profile_stats_t *stats)
{
    VALUE hash = rb_hash_new();
    for (int drop = 0; drop < MPP_N_DROPS; drop++) {
        set(hash, mpp_drop_name((mpp_drop_t)drop), ULL2NUM(stats->n_dropped[drop]));
    }
    return hash;
}

static VALUE
memory(const reading_t *reading)
{
    const mpp_profile_stats_t *stats = &reading->profile;
    VALUE hash = rb_hash_new();
    set(hash, "limit", SIZET2NUM(stats->memory_limit));
    set(hash, "total", SIZET2NUM(stats->memory_used));
    set(hash, "peak", SIZET2NUM(stats->memory_peak));
    set(hash, "strings", SIZET2NUM(stats->strings_bytes));
    set(hash, "functions", SIZET2NUM(stats->functions_bytes));
    set(hash, "locations", SIZET2NUM(stats->locations_bytes));
    set(hash, "stacks", SIZET2NUM(stats->stacks_bytes));
    set(hash, "rows", SIZET2NUM(stats->rows_bytes));
    set(hash, "live", SIZET2NUM(stats->live_bytes));
    set(hash, "pending", SIZET2NUM(stats->pending_bytes));
    set(hash, "caches", SIZET2NUM(stats->caches_bytes));
    set(hash, "last_snapshot", SIZET2NUM(reading->collector.snapshot_bytes));
    set(hash, "last_scratch", SIZET2NUM(reading->collector.scratch_bytes));
    set(hash, "last_output", SIZET2NUM(reading->collector.output_bytes));
    set(hash, "weak_map", SIZET2NUM(reading->weak_map_bytes));
    return hash;
}

static VALUE
time_spent(const mpp_costs_t *costs)
{
    VALUE hash = rb_hash_new();
    set(hash, "hook", seconds(costs->hook_ns));
    set(hash, "jobs", seconds(costs->jobs_ns));
    set(hash, "flush", seconds(costs->flush_ns));
    set(hash, "longest_hold", seconds(costs->longest_hold_ns));
    return hash;
}

static VALUE
bursts(const mpp_bursts_t *bursts)
{
    const mpp_burst_totals_t *totals = mpp_burst_totals(&bursts->machine);
    if (!bursts->running) return Qnil;
    VALUE hash = rb_hash_new();
    set(hash, "overhead", DBL2NUM(totals->cpu_ns ? (double)totals->spent_ns / (double)totals->cpu_ns : 0));
    set(hash, "ticks", ULL2NUM(totals->n_ticks));
    set(hash, "windows", ULL2NUM(totals->n_windows));
    set(hash, "in_prelude", bursts->machine.phase == MPP_BURST_PRELUDE ? Qtrue : Qfalse);
    set(hash, "prelude_samples", ULL2NUM(totals->n_prelude_samples));
    set(hash, "late_ticks", ULL2NUM(totals->n_late));
    set(hash, "overlapped_ticks", ULL2NUM(totals->n_overlapped));
    set(hash, "observed", seconds(totals->observed_ns));
    set(hash, "missed", seconds(totals->missed_ns));
    set(hash, "mean_interval", seconds(mpp_burst_mean_interval(&bursts->machine)));
    set(hash, "lead", seconds(mpp_burst_lead(&bursts->machine)));
    set(hash, "event_cost", DBL2NUM(bursts->machine.hook_ns / 1e9));
    set(hash, "estimated_allocations", whole(totals->event_weight));
    set(hash, "signal", INT2NUM(mpp_timer_signal()));
    return hash;
}

static VALUE
state_name(mpp_state_t state)
{
    return symbol(state == MPP_RUNNING ? "running" : state == MPP_STOPPED ? "stopped" : "new");
}

static double
effective_rate(const reading_t *reading)
{
    const mpp_collector_t *collector = &reading->collector;
    if (collector->bursts.running) return reading->sample_rate;
    uint64_t events = mpp_run_events(collector);
    return events ? (double)collector->n_drawn / (double)events : collector->sample_rate;
}

static VALUE
build_stats(VALUE argument)
{
    const reading_t *reading = (const reading_t *)argument;
    const mpp_collector_t *collector = &reading->collector;
    const mpp_profile_stats_t *stats = &reading->profile;
    VALUE hash = rb_hash_new();
    set(hash, "state", state_name(collector->state));
    set(hash, "run", UINT2NUM(collector->run));
    set(hash, "mode", symbol(collector->bursts.running ? "burst" : "fixed"));
    set(hash, "burst", bursts(&collector->bursts));
    set(hash, "burst_fallback", collector->bursts.fallback ? rb_str_new_cstr(collector->bursts.fallback) : Qnil);
    set(hash, "sample_rate", collector->bursts.running ? Qnil : DBL2NUM(collector->sample_rate));
    set(hash, "effective_rate", DBL2NUM(effective_rate(reading)));
    set(hash, "liveness", symbol(collector->liveness->name));
    set(hash, "live_thinning", DBL2NUM(1.0 / (double)(UINT64_C(1) << stats->thinning)));
    set(hash, "live_thinnings", ULL2NUM(stats->n_thinnings));
    set(hash, "samples", ULL2NUM(collector->n_samples));
    set(hash, "dropped_samples", dropped_samples(stats));
    set(hash, "allocations", allocations(reading));
    set(hash, "live_samples", UINT2NUM(stats->n_live));
    set(hash, "pending_samples", UINT2NUM(stats->n_pending));
    set(hash, "rows", UINT2NUM(stats->n_rows));
    set(hash, "evicted_rows", ULL2NUM(stats->n_evicted));
    set(hash, "strings", UINT2NUM(stats->n_strings));
    set(hash, "functions", UINT2NUM(stats->n_functions));
    set(hash, "locations", UINT2NUM(stats->n_locations));
    set(hash, "stacks", UINT2NUM(stats->n_stacks));
    set(hash, "stale_sizes", ULL2NUM(collector->n_stale));
    set(hash, "jobs", ULL2NUM(collector->costs.n_jobs));
    set(hash, "flushes", ULL2NUM(collector->costs.n_flushes));
    set(hash, "memory", memory(reading));
    set(hash, "time", time_spent(&collector->costs));
    return hash;
}

static VALUE
end_own_work(VALUE argument)
{
    mpp_own_work_end(&((reading_t *)argument)->own_work);
    return Qnil;
}

VALUE
mpp_stats(mpp_collector_t *collector)
{
    reading_t reading;
    mpp_lost_hooks_mend(collector);
    if (collector->state == MPP_RUNNING) mpp_jobs_drain(collector);
    if (collector->profile == NULL) rb_memerror();
    reading.weak_map_bytes = mpp_weak_map_bytes(&collector->weak_map);
    mpp_profile_stats(collector->profile, &reading.profile);
    reading.counted = mpp_profile_counted(collector->profile);
    mpp_bursts_count_prelude(collector);
    reading.scale = mpp_bursts_scale(collector, false);
    reading.vm_allocated = mpp_run_vm_allocated(collector); /* once, and last: other Ractors go on allocating */
    reading.unseen = mpp_run_unseen(collector, reading.vm_allocated);
    reading.sample_rate = mpp_bursts_sample_rate(collector);
    reading.collector = *collector;
    mpp_own_work_begin(&reading.own_work);
    return rb_ensure(build_stats, (VALUE)&reading, end_own_work, (VALUE)&reading);
}
