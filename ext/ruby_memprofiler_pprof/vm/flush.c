/*
 * From a running (or stopped) profile to a ProfileData:
 *   measure live objects again, in slices between which other threads run        GVL, in pieces
 *   snapshot: copy the rows                                                      GVL, one short hold
 *   encode and deflate                                                           no GVL
 *   String and ProfileData                                                       GVL
 * Whatever interrupts it after the snapshot (an exception of another thread, no memory), the snapshot's delta is given
 * back, so that each allocation is in exactly one flush.
 */
#include "own_work.h"
#include "timer.h"
#include "vm.h"

#include "../core/pprof.h"

#include <stdio.h>
#include <string.h>

#define SLICE_RECORDS 2048
#define SLICE_NS UINT64_C(5000000)
#define MAX_COMMENTS 17
#define MAX_COMMENT_BYTES 256
#define MAX_MAPPING_BYTES 1024
#define MAX_ENCODINGS 2

/* -- sizes -- */

static mpp_finding_t
measure_record(void *context, const mpp_live_record_t *record, uint64_t *bytes)
{
    mpp_walk_t *walk = context;
    VALUE object = Qnil;
    mpp_finding_t finding = walk->collector->liveness->find(walk, record, &object);
    if (finding != MPP_FOUND_ALIVE) return finding;
    if (mpp_own_work_measure(object, bytes)) walk->sweeping = mpp_compat_gc_sweeping();
    RB_GC_GUARD(object);
    return MPP_FOUND_ALIVE;
}

static void
note_hold(mpp_collector_t *collector, uint64_t since)
{
    uint64_t held = mpp_clock_ns() - since;
    if (held > collector->costs.longest_hold_ns) collector->costs.longest_hold_ns = held;
}

static bool
measure_slice(mpp_collector_t *collector, mpp_profile_t *profile, mpp_id_t *cursor, uint64_t *n_stale)
{
    mpp_own_work_t own_work;
    mpp_profile_retain(profile);
    mpp_own_work_begin(&own_work);
    collector->liveness->verify(collector);
    mpp_walk_t walk = {.collector = collector, .profile = profile, .sweeping = mpp_compat_gc_sweeping()};
    bool more = mpp_profile_measure(profile, cursor, SLICE_RECORDS, measure_record, &walk, n_stale);
    mpp_own_work_end(&own_work);
    mpp_profile_release(profile);
    if (walk.raised) rb_jump_tag(walk.raised);
    return more;
}

void
mpp_flush_measure(mpp_collector_t *collector, bool in_slices)
{
    mpp_profile_t *profile = collector->profile;
    uint32_t run = collector->run;
    mpp_id_t cursor = 0;
    uint64_t n_stale = 0;
    uint64_t start = mpp_clock_ns();
    if (profile == NULL) return;
    while (measure_slice(collector, profile, &cursor, &n_stale)) {
        if (in_slices && mpp_clock_ns() - start > SLICE_NS) {
            note_hold(collector, start);
            rb_thread_schedule(); /* may raise: nothing is held */
            start = mpp_clock_ns();
        }
        if (collector->run != run || collector->state != MPP_RUNNING) return;
    }
    if (in_slices) note_hold(collector, start);
    collector->n_stale = n_stale;
}

/* -- encoding -- */

typedef struct {
    mpp_budget_t budget;
    char *bytes;
    size_t length;
    size_t capacity;
} output_t;

/* The snapshot in one form. */
typedef struct {
    bool go;
    mpp_class_mode_t class_mode;
    output_t profile;
    output_t spread; /* burst mode: the same by group of windows */
} encoding_t;

typedef struct {
    mpp_collector_t *collector;
    uint32_t run;
    bool delta;
    uint32_t min_gc_age;
    bool done;
    bool in_own_work;
    mpp_own_work_t own_work;
    mpp_snapshot_t *snapshot;
    double live_thinning; /* share of live samples that thinning has left */
    bool in_bursts;
    mpp_scale_t scale; /* burst mode: of the allocations that the snapshot covers */
    mpp_scale_t retained_scale;
    double sample_rate;
    int64_t started_wall_ns;
    uint64_t started_ns;
    uint64_t duration_ns;
    mpp_pprof_options_t options; /* what all encodings have in common */
    mpp_view_t comments[MAX_COMMENTS];
    char comment_text[MAX_COMMENTS][MAX_COMMENT_BYTES];
    char mapping_file[MAX_MAPPING_BYTES];
    mpp_budget_t scratch;
    encoding_t encodings[MAX_ENCODINGS];
    size_t n_encodings;
    mpp_status_t status;
} flush_t;

static mpp_status_t
write_output(void *context, const void *bytes, size_t n_bytes)
{
    output_t *output = context;
    if (output->length + n_bytes > output->capacity) {
        size_t capacity = output->capacity ? output->capacity * 2 : 65536;
        while (capacity < output->length + n_bytes) capacity *= 2;
        void *block = output->bytes;
        mpp_status_t status = mpp_resize(&output->budget.allocator, &block, output->capacity, capacity);
        if (status != MPP_OK) return status;
        output->bytes = block;
        output->capacity = capacity;
    }
    memcpy(output->bytes + output->length, bytes, n_bytes);
    output->length += n_bytes;
    return MPP_OK;
}

static void
release_output(output_t *output)
{
    mpp_release(&output->budget.allocator, output->bytes, output->capacity);
}

static const mpp_value_type_t memprofiler_types[] = {
    {MPP_VIEW_INIT("allocations"), MPP_VIEW_INIT("count"), MPP_ALLOCATED_COUNT},
    {MPP_VIEW_INIT("allocation_size"), MPP_VIEW_INIT("bytes"), MPP_ALLOCATED_BYTES},
    {MPP_VIEW_INIT("retained_objects"), MPP_VIEW_INIT("count"), MPP_RETAINED_COUNT},
    {MPP_VIEW_INIT("retained_size"), MPP_VIEW_INIT("bytes"), MPP_RETAINED_BYTES},
};
static const mpp_value_type_t go_types[] = {
    {MPP_VIEW_INIT("alloc_objects"), MPP_VIEW_INIT("count"), MPP_ALLOCATED_COUNT},
    {MPP_VIEW_INIT("alloc_space"), MPP_VIEW_INIT("bytes"), MPP_ALLOCATED_BYTES},
    {MPP_VIEW_INIT("inuse_objects"), MPP_VIEW_INIT("count"), MPP_RETAINED_COUNT},
    {MPP_VIEW_INIT("inuse_space"), MPP_VIEW_INIT("bytes"), MPP_RETAINED_BYTES},
};

static mpp_pprof_options_t
options_of(const flush_t *flush, const encoding_t *encoding)
{
    mpp_pprof_options_t options = flush->options;
    options.value_types = encoding->go ? go_types : memprofiler_types;
    options.n_value_types = 4;
    options.default_sample_type = encoding->go ? (mpp_view_t){NULL, 0} : memprofiler_types[3].type;
    options.period_type = encoding->go ? MPP_VIEW("space") : MPP_VIEW("allocations");
    options.period_unit = encoding->go ? MPP_VIEW("bytes") : MPP_VIEW("count");
    options.class_mode = encoding->class_mode;
    options.compression_level = 1; /* a higher one buys 5 % for twice the time */
    return options;
}

static void
encode(flush_t *flush, const mpp_pprof_options_t *options, output_t *output)
{
    if (flush->status != MPP_OK) return;
    flush->status =
        mpp_pprof_encode(&flush->snapshot->view, options, &flush->scratch.allocator, write_output, output);
}

static void *
encode_without_gvl(void *argument)
{
    flush_t *flush = argument;
    for (size_t i = 0; i < flush->n_encodings; i++) {
        encoding_t *encoding = &flush->encodings[i];
        mpp_pprof_options_t options = options_of(flush, encoding);
        encode(flush, &options, &encoding->profile);
        if (!flush->in_bursts) continue;
        options.by_group = true;
        if (options.class_mode == MPP_CLASS_OFF) options.class_mode = MPP_CLASS_LABEL;
        encode(flush, &options, &encoding->spread);
    }
    return NULL;
}

static bool
is_symbol(VALUE value, const char *name)
{
    return value == ID2SYM(rb_intern(name));
}

static void
add_encoding(flush_t *flush, VALUE sample_types, VALUE class_names)
{
    encoding_t *encoding = &flush->encodings[flush->n_encodings++];
    encoding->go = is_symbol(sample_types, "go");
    encoding->class_mode = is_symbol(class_names, "frame")   ? MPP_CLASS_FRAME
                           : is_symbol(class_names, "label") ? MPP_CLASS_LABEL
                                                             : MPP_CLASS_OFF;
    mpp_budget_init(&encoding->profile.budget, SIZE_MAX);
    mpp_budget_init(&encoding->spread.budget, SIZE_MAX);
}

/* -- what the profile says of itself -- */

__attribute__((format(printf, 2, 3))) static void
add_comment(flush_t *flush, const char *format, ...)
{
    size_t n = flush->options.n_comments;
    if (n == MAX_COMMENTS) return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(flush->comment_text[n], MAX_COMMENT_BYTES, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    if (length >= MAX_COMMENT_BYTES) length = MAX_COMMENT_BYTES - 1;
    flush->comments[n] = (mpp_view_t){flush->comment_text[n], (size_t)length};
    flush->options.n_comments = n + 1;
}

static void
comment_drops(flush_t *flush)
{
    char text[MAX_COMMENT_BYTES] = "";
    size_t length = 0;
    for (int drop = 0; drop < MPP_N_DROPS; drop++) {
        uint64_t n = flush->snapshot->dropped[drop];
        if (n == 0 || length >= sizeof(text)) continue;
        int more = snprintf(text + length, sizeof(text) - length, " %s=%llu", mpp_drop_name((mpp_drop_t)drop),
                            (unsigned long long)n);
        if (more > 0) length += (size_t)more;
    }
    add_comment(flush, "dropped samples:%s", length ? text : " none");
}

static void
comment_bursts(flush_t *flush)
{
    const mpp_bursts_t *bursts = &flush->collector->bursts;
    const mpp_burst_totals_t *totals = mpp_burst_totals(&bursts->machine);
    if (bursts->fallback) add_comment(flush, "mode: fixed, for bursts cannot be had: %s", bursts->fallback);
    if (!bursts->running) return;
    add_comment(flush, "mode: burst, %llu windows, %llu since the start", (unsigned long long)flush->scale.n_windows,
                (unsigned long long)totals->n_windows);
    if (flush->scale.n_prelude_samples) {
        add_comment(flush, "prelude: %llu samples at a fixed rate of %g",
                    (unsigned long long)flush->scale.n_prelude_samples, MPP_PRELUDE_RATE);
    }
    add_comment(flush, "unobserved: at most %.2f %% of allocations%s", 100 * mpp_scale_unobserved(&flush->scale),
                flush->scale.n_prelude_samples && flush->scale.n_windows ? " after the prelude" : "");
    add_comment(flush, "scale: %llu allocations counted by the VM, %.0f estimated from samples alone",
                (unsigned long long)flush->scale.allocated, mpp_scale_weight(&flush->scale));
    if (flush->scale.n_elsewhere == 0 && flush->scale.n_unseen == 0) return;
    add_comment(flush, "other Ractors, or not seen: about %llu of these allocations, which are not in this profile",
                (unsigned long long)(flush->scale.allocated - mpp_scale_seen(&flush->scale)));
}

static void
comment_other_ractors(flush_t *flush)
{
    const mpp_collector_t *collector = flush->collector;
    uint64_t unseen = mpp_run_unseen(collector, mpp_run_vm_allocated(collector)) + collector->n_other_ractor;
    if (collector->n_hook_lost) {
        add_comment(flush, "hook lost, and put in again: %llu allocations since the start are missing, at most",
                    (unsigned long long)collector->n_hook_lost);
        unseen -= collector->n_hook_lost;
    }
    if (unseen == 0) return;
    add_comment(flush, "other Ractors, or not seen: %llu allocations since the start, which are not in this profile",
                (unsigned long long)unseen);
}

static void
write_comments(flush_t *flush)
{
    mpp_collector_t *collector = flush->collector;
    mpp_profile_stats_t stats;
    mpp_profile_stats(collector->profile, &stats);
    flush->live_thinning = 1.0 / (double)(UINT64_C(1) << stats.thinning);
    flush->options.comments = flush->comments;
    add_comment(flush, "ruby_memprofiler_pprof " MPP_VERSION ", ruby %d.%d", RUBY_API_VERSION_MAJOR,
                RUBY_API_VERSION_MINOR);
    add_comment(flush, "sample rate: %.9g%s", flush->sample_rate,
                collector->raw_counts ? ", raw counts" : "");
    comment_bursts(flush);
    comment_other_ractors(flush);
    add_comment(flush, "samples: %llu allocated, %llu live",
                (unsigned long long)flush->snapshot->n_allocation_samples,
                (unsigned long long)flush->snapshot->n_live_samples);
    comment_drops(flush);
    add_comment(flush, "own memory: %zu bytes of %zu, and %zu for this snapshot", stats.memory_used, stats.memory_limit,
                flush->snapshot->budget.used_bytes);
    add_comment(flush, "liveness: %s, gc count: %zu, gc state: %s, sizes not measured again: %llu",
                collector->liveness->name, rb_gc_count(),
                mpp_compat_gc_idle() ? "none" : mpp_compat_gc_sweeping() ? "sweeping" : "marking",
                (unsigned long long)collector->n_stale);
    if (stats.thinning) {
        add_comment(flush, "live thinning: one in %llu live samples is kept%s", 1ULL << stats.thinning,
                    collector->raw_counts ? ", retained raw counts are scaled by it" : "");
    }
    if (stats.n_evicted) add_comment(flush, "evicted rows: %llu", (unsigned long long)stats.n_evicted);
    if (flush->min_gc_age) add_comment(flush, "retained: survivors of %u collections", flush->min_gc_age);
    if (!NIL_P(collector->thread)) add_comment(flush, "threads: the one that started the collector");
}

static void
name_mapping(flush_t *flush)
{
    VALUE name = rb_gv_get("$0");
    size_t length = 0;
    if (RB_TYPE_P(name, T_STRING)) {
        length = (size_t)RSTRING_LEN(name);
        if (length > MAX_MAPPING_BYTES) length = MAX_MAPPING_BYTES;
        memcpy(flush->mapping_file, RSTRING_PTR(name), length);
    }
    flush->options.mapping_file = length ? (mpp_view_t){flush->mapping_file, length} : MPP_VIEW("ruby");
}

/* -- the steps -- */

static void
take_interval(flush_t *flush)
{
    mpp_collector_t *collector = flush->collector;
    uint64_t now = mpp_clock_ns();
    uint64_t end = collector->state == MPP_STOPPED ? collector->stopped_ns : now;
    flush->started_wall_ns = flush->delta ? collector->interval_wall_ns : collector->started_wall_ns;
    flush->started_ns = flush->delta ? collector->interval_ns : collector->started_ns;
    if (collector->state == MPP_NEW) end = flush->started_ns;
    flush->duration_ns = end - flush->started_ns;
    flush->options.time_ns = flush->started_wall_ns;
    flush->options.duration_ns = (int64_t)flush->duration_ns;
    if (flush->delta) {
        collector->interval_wall_ns += (int64_t)flush->duration_ns;
        collector->interval_ns = end;
    }
}

/* Burst mode: the samples add up to what the VM has counted. What was sampled before this interval is scaled by the whole
 * run, since nobody knows of which interval it is. */
static void
scale_snapshot(flush_t *flush)
{
    mpp_collector_t *collector = flush->collector;
    if (!collector->bursts.running) return;
    flush->in_bursts = true;
    mpp_bursts_count_prelude(collector);
    mpp_scale_t run = mpp_bursts_scale(collector, false);
    flush->scale = mpp_bursts_scale(collector, flush->delta);
    mpp_snapshot_scale(flush->snapshot, mpp_scale_factor(&flush->scale), mpp_scale_factor(&run));
    flush->retained_scale = run;
    if (flush->delta) mpp_bursts_flushed(collector, &flush->scale);
}

static void
take_snapshot(flush_t *flush)
{
    mpp_collector_t *collector = flush->collector;
    uint64_t start = mpp_clock_ns();
    if (collector->state == MPP_RUNNING) mpp_jobs_drain(collector);
    if (collector->profile == NULL) rb_memerror();
    mpp_snapshot_options_t options = {flush->delta, flush->min_gc_age, mpp_run_gc_finished(collector)};
    if (mpp_profile_snapshot(collector->profile, &options, &flush->snapshot) != MPP_OK) rb_memerror();
    flush->run = collector->run;
    take_interval(flush);
    scale_snapshot(flush);
    flush->sample_rate = mpp_bursts_sample_rate(collector);
    flush->options.period = (int64_t)(1.0 / flush->sample_rate + 0.5);
    write_comments(flush);
    name_mapping(flush);
    mpp_profile_trim(collector->profile);
    collector->snapshot_bytes = flush->snapshot->budget.used_bytes;
    note_hold(collector, start);
}

static VALUE
dropped_hash(const mpp_snapshot_t *snapshot)
{
    VALUE hash = rb_hash_new();
    for (int drop = 0; drop < MPP_N_DROPS; drop++) {
        if (snapshot->dropped[drop] == 0) continue;
        rb_hash_aset(hash, ID2SYM(rb_intern(mpp_drop_name((mpp_drop_t)drop))), ULL2NUM(snapshot->dropped[drop]));
    }
    return rb_obj_freeze(hash);
}

static void
set(VALUE hash, const char *name, VALUE value)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(name)), value);
}

/* What the samples stand for, by group of windows and of the prelude. The factors are for values that have been scaled. */
static VALUE
spread_of(const mpp_scale_t *scale)
{
    mpp_factors_t factors = mpp_scale_factors(scale);
    double factor = factors.windows / (double)MPP_WEIGHT_ONE, scaled = mpp_scale_factor(scale);
    VALUE hash = rb_hash_new(), groups = rb_ary_new_capa(MPP_N_GROUPS);
    for (size_t i = 0; i < MPP_N_GROUPS; i++) rb_ary_push(groups, DBL2NUM((double)scale->weight[i] * factor));
    set(hash, "groups", rb_obj_freeze(groups));
    set(hash, "windows", ULL2NUM(scale->n_windows));
    set(hash, "prelude", DBL2NUM(mpp_scale_in_prelude(scale)));
    set(hash, "windows_factor", DBL2NUM(scaled > 0 ? factors.windows / scaled : 0));
    set(hash, "prelude_factor", DBL2NUM(scaled > 0 ? factors.prelude / scaled : 0));
    set(hash, "prelude_rate", DBL2NUM(factors.prelude > 0 ? MPP_PRELUDE_RATE / factors.prelude : MPP_PRELUDE_RATE));
    set(hash, "unobserved", DBL2NUM(mpp_scale_unobserved(scale)));
    return rb_obj_freeze(hash);
}

/* What ProfileData#estimate needs. */
static VALUE
build_spread(const flush_t *flush, const output_t *spread)
{
    VALUE hash = rb_hash_new();
    set(hash, "pprof_data", rb_obj_freeze(rb_str_new(spread->bytes, (long)spread->length)));
    set(hash, "prelude_group", UINT2NUM(MPP_PRELUDE));
    set(hash, "allocated", spread_of(&flush->scale));
    set(hash, "retained", spread_of(&flush->retained_scale));
    return rb_obj_freeze(hash);
}

/* No method is called: within a stretch of our own work nothing of the program may run. */
static VALUE
build_profile_data(const flush_t *flush, const encoding_t *encoding)
{
    struct timespec started = {(time_t)(flush->started_wall_ns / 1000000000), (long)(flush->started_wall_ns % 1000000000)};
    VALUE started_at = rb_time_timespec_new(&started, INT_MAX); /* local time */
    VALUE bytes = rb_str_new(encoding->profile.bytes, (long)encoding->profile.length);
    VALUE data = rb_obj_alloc(rb_path2class("MemprofilerPprof::ProfileData"));
    rb_iv_set(data, "@pprof_data", rb_obj_freeze(bytes));
    rb_iv_set(data, "@allocation_samples_count", ULL2NUM(flush->snapshot->n_allocation_samples));
    rb_iv_set(data, "@heap_samples_count", ULL2NUM(flush->snapshot->n_live_samples));
    rb_iv_set(data, "@dropped_samples", dropped_hash(flush->snapshot));
    rb_iv_set(data, "@evicted_rows_count", ULL2NUM(flush->snapshot->n_evicted));
    rb_iv_set(data, "@started_at", rb_obj_freeze(started_at));
    rb_iv_set(data, "@duration", DBL2NUM((double)flush->duration_ns / 1e9));
    rb_iv_set(data, "@sample_rate", DBL2NUM(flush->sample_rate));
    bool follows = flush->collector->liveness->keeps_records;
    rb_iv_set(data, "@raw_counts", flush->collector->raw_counts ? Qtrue : Qfalse);
    rb_iv_set(data, "@live_thinning", follows ? DBL2NUM(flush->live_thinning) : Qnil);
    rb_iv_set(data, "@spread", flush->in_bursts ? build_spread(flush, &encoding->spread) : Qnil);
    return rb_obj_freeze(data);
}

static VALUE
flush_steps(VALUE argument)
{
    flush_t *flush = (flush_t *)argument;
    take_snapshot(flush);
    rb_thread_call_without_gvl(encode_without_gvl, flush, NULL, NULL); /* not interruptible: a fraction of a second */
    if (flush->status == MPP_ENCODING) rb_raise(rb_eRuntimeError, "%s", mpp_status_text(flush->status));
    if (flush->status != MPP_OK) rb_memerror();
    mpp_own_work_begin(&flush->own_work);
    flush->in_own_work = true;
    VALUE all = rb_ary_new_capa((long)flush->n_encodings);
    for (size_t i = 0; i < flush->n_encodings; i++) rb_ary_push(all, build_profile_data(flush, &flush->encodings[i]));
    flush->done = true;
    return all;
}

static void
give_back(flush_t *flush)
{
    mpp_collector_t *collector = flush->collector;
    mpp_snapshot_give_back(flush->snapshot);
    if (collector->run != flush->run) return;
    mpp_bursts_give_back(collector, &flush->scale);
    if (flush->started_ns > collector->interval_ns) return;
    collector->interval_wall_ns = flush->started_wall_ns;
    collector->interval_ns = flush->started_ns;
}

static VALUE
end_flush(VALUE argument)
{
    flush_t *flush = (flush_t *)argument;
    if (flush->in_own_work) mpp_own_work_end(&flush->own_work);
    if (flush->snapshot && flush->delta && !flush->done) give_back(flush);
    mpp_snapshot_free(flush->snapshot);
    for (size_t i = 0; i < flush->n_encodings; i++) {
        release_output(&flush->encodings[i].profile);
        release_output(&flush->encodings[i].spread);
    }
    return Qnil;
}

static void
note_cost(const flush_t *flush, uint64_t start, uint64_t cpu_start)
{
    mpp_collector_t *collector = flush->collector;
    collector->scratch_bytes = flush->scratch.peak_bytes;
    collector->output_bytes = 0;
    for (size_t i = 0; i < flush->n_encodings; i++) {
        collector->output_bytes += flush->encodings[i].profile.budget.peak_bytes;
    }
    collector->costs.n_flushes++;
    collector->costs.flush_ns += mpp_clock_ns() - start;
    if (collector->bursts.running) mpp_burst_spent_apart(&collector->bursts.machine, mpp_thread_cpu_ns() - cpu_start);
}

VALUE
mpp_flush(mpp_collector_t *collector, const mpp_flush_request_t *request)
{
    uint64_t start = mpp_clock_ns();
    uint64_t cpu_start = mpp_thread_cpu_ns();
    flush_t flush = {.collector = collector, .delta = request->delta, .min_gc_age = request->min_gc_age};
    for (long i = 0; i < RARRAY_LEN(request->encodings) && flush.n_encodings < MAX_ENCODINGS; i++) {
        VALUE pair = rb_ary_entry(request->encodings, i);
        add_encoding(&flush, rb_ary_entry(pair, 0), rb_ary_entry(pair, 1));
    }
    mpp_budget_init(&flush.scratch, SIZE_MAX);

    mpp_lost_hooks_mend(collector);
    if (collector->state == MPP_RUNNING) {
        mpp_jobs_drain(collector);
        if (request->gc) mpp_compat_collect_garbage(); /* after the drain, for what waits is marked */
        mpp_flush_measure(collector, true);
    }
    VALUE data = rb_ensure(flush_steps, (VALUE)&flush, end_flush, (VALUE)&flush);
    if (collector->run == flush.run) note_cost(&flush, start, cpu_start);
    return data;
}
