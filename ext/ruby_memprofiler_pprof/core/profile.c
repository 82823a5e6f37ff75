/*
 * A sample goes hook → pending → row + live record; each step may fail for want of memory or room, and then the sample
 * ends in the row `(dropped)`, which exists from the start: counted + dropped + waiting is what was fed in, always.
 * Rows are sums since the start; what is retained is in profile_live.c.
 */

#include "profile_private.h"

/* Fewer live records are not thinned for memory: they hold little of it, and half of them would say too little. */
#define MIN_THINNED 512u

/* How much of the names' tables is looked through at a time for names to give up. */
#define PRUNED_SLOTS 1024u

/* How often the frames of one sample are gone through, should names be forgotten while others are found out. */
#define MAX_NAMING_PASSES 4

/* No table of contents can hold more elements than this in its share of the budget, nor more than the cap. */
#define BYTES_PER_ELEMENT 32
#define MIN_ELEMENTS 1024u
#define MAX_ELEMENTS (1u << 26)

const char *
mpp_drop_name(mpp_drop_t drop)
{
    static const char *const names[] = {
#define DROP_NAME(code, name) name,
        MPP_DROP_LIST(DROP_NAME)
#undef DROP_NAME
    };
    return names[drop];
}

/* -- life -- */

static mpp_profile_config_t
within_bounds(mpp_profile_config_t config)
{
    if (config.max_rows > MAX_ELEMENTS) config.max_rows = MAX_ELEMENTS;
    if (config.max_live > MAX_ELEMENTS) config.max_live = MAX_ELEMENTS;
    if (config.max_live == 0) config.tracks_live = false;
    return config;
}

static uint32_t
most_elements(size_t limit_bytes)
{
    size_t n = limit_bytes / BYTES_PER_ELEMENT;
    if (n < MIN_ELEMENTS) return MIN_ELEMENTS;
    return n < MAX_ELEMENTS ? (uint32_t)n : MAX_ELEMENTS;
}

/* A row whose stack is one frame of that name; the row holds all that it is made of. */
static mpp_status_t
make_pseudo_row(mpp_profile_t *profile, mpp_view_t name, mpp_id_t *row)
{
    mpp_id_t stack;
    mpp_status_t status = mpp_frames_pseudo_stack(&profile->frames, name, &stack);
    if (status != MPP_OK) return status;
    status = mpp_rows_obtain(&profile->rows, stack, 0, 0, row);
    mpp_frames_release_stack(&profile->frames, stack);
    return status;
}

static mpp_status_t
make_tables(mpp_profile_t *profile)
{
    const mpp_profile_config_t *config = &profile->config;
    mpp_allocator_t *allocator = &profile->budget.allocator;
    uint32_t n = most_elements(config->memory_limit_bytes);
    uint32_t max_live = config->tracks_live ? config->max_live : 1;
    mpp_status_t status;

    mpp_keymap_init(&profile->classes, allocator);
    mpp_pending_init(&profile->pending, allocator, config->max_pending);
    if ((status = mpp_strtab_init(&profile->strings, allocator, n)) != MPP_OK) return status;
    if ((status = mpp_frames_init(&profile->frames, allocator, &profile->strings, n)) != MPP_OK) return status;
    status = mpp_resolver_init(&profile->resolver, allocator, &profile->frames, config->max_depth);
    if (status != MPP_OK) return status;
    status = mpp_rows_init(&profile->rows, allocator, &profile->frames, &profile->strings, config->max_rows + 2);
    if (status != MPP_OK) return status;
    if ((status = mpp_live_init(&profile->live, allocator, max_live)) != MPP_OK) return status;
    status = make_pseudo_row(profile, MPP_VIEW("(dropped)"), &profile->dropped_row);
    if (status != MPP_OK) return status;
    return make_pseudo_row(profile, MPP_VIEW("(evicted)"), &profile->evicted_row);
}

static void
destroy(mpp_profile_t *profile)
{
    mpp_live_cleanup(&profile->live);
    mpp_rows_cleanup(&profile->rows);
    mpp_pending_cleanup(&profile->pending);
    mpp_keymap_cleanup(&profile->classes);
    mpp_resolver_cleanup(&profile->resolver);
    mpp_frames_cleanup(&profile->frames);
    mpp_strtab_cleanup(&profile->strings);
    mpp_budget_t budget = profile->budget; /* it outlives the block that it stands in */
    mpp_release(&budget.allocator, profile, sizeof *profile);
}

mpp_status_t
mpp_profile_new(const mpp_profile_config_t *config, mpp_profile_t **result)
{
    *result = NULL;
    mpp_budget_t budget;
    mpp_budget_init(&budget, config->memory_limit_bytes);
    void *block = NULL;
    mpp_status_t status = mpp_resize(&budget.allocator, &block, 0, sizeof(mpp_profile_t));
    if (status != MPP_OK) return status;

    mpp_profile_t *profile = block;
    profile->references = 1;
    profile->budget = budget;
    profile->config = within_bounds(*config);
    mpp_budget_init(&profile->snapshot_budget, SIZE_MAX);
    mpp_random_init(&profile->random, config->seed);
    profile->min_thinned = MIN_THINNED;
    if ((status = make_tables(profile)) != MPP_OK) {
        destroy(profile);
        return status;
    }
    *result = profile;
    return MPP_OK;
}

void
mpp_profile_retain(mpp_profile_t *profile)
{
    profile->references++;
}

void
mpp_profile_release(mpp_profile_t *profile)
{
    if (profile && --profile->references == 0) destroy(profile);
}

/* -- drops -- */

static mpp_drop_t
drop_reason(mpp_status_t status, mpp_drop_t when_full)
{
    if (status == MPP_FULL) return when_full;
    return status == MPP_NO_MEMORY ? MPP_DROP_NO_MEMORY : MPP_DROP_MEMORY_LIMIT;
}

static void
drop(mpp_profile_t *profile, mpp_drop_t reason, mpp_weight_t weight, uint64_t bytes)
{
    profile->n_dropped[reason]++;
    mpp_rows_count(&profile->rows, profile->dropped_row, weight, bytes);
    if (reason == MPP_DROP_MEMORY_LIMIT || reason == MPP_DROP_NO_MEMORY) profile->pressure = true;
}

/* -- pressure -- */

static void
drop_class(void *context, mpp_id_t name)
{
    mpp_profile_t *profile = context;
    mpp_strtab_release(&profile->strings, name);
}

/* Of what lives on in the host too: whatever of it is met again is named again. */
static void
give_up_names(mpp_profile_t *profile)
{
    mpp_resolver_prune(&profile->resolver, PRUNED_SLOTS);
    mpp_keymap_prune(&profile->classes, PRUNED_SLOTS, drop_class, profile);
}

static void
trim_tables(mpp_profile_t *profile)
{
    mpp_pending_trim(&profile->pending);
    mpp_rows_trim(&profile->rows);
    mpp_live_trim(&profile->live);
    mpp_resolver_trim(&profile->resolver);
    mpp_keymap_trim(&profile->classes);
    mpp_frames_trim(&profile->frames);
    mpp_strtab_trim(&profile->strings);
}

/*
 * Folds an eighth of the rows and trims. Where memory is short and live records have most of it, or hold the rows, they
 * are thinned too. Where too few rows are cold, or what they left lasted for fewer samples than half of them, names are
 * given up. Looking for cold rows costs a walk over all of them: after one that found too few, the next waits for as many
 * samples as were missing, so that the cost for each sample stays constant.
 */
static bool
relieve(mpp_profile_t *profile)
{
    mpp_rows_t *rows = &profile->rows;
    if (rows->total.samples < profile->next_relief) return false;
    uint32_t wanted = mpp_rows_count_used(rows) / 8;
    if (wanted == 0) wanted = 1;
    uint32_t folded = mpp_rows_evict(rows, wanted, profile->evicted_row, profile->dropped_row);
    bool rows_suffice = folded == wanted && rows->total.samples >= profile->relief_lasts;
    if (profile->pressure) mpp_live_compact(&profile->live);
    bool records_hold_it = folded < wanted || mpp_live_bytes(&profile->live) > profile->budget.limit_bytes / 2;
    if (profile->pressure && records_hold_it && mpp_profile_thin_for_memory(profile)) {
        folded += mpp_rows_evict(rows, wanted - folded, profile->evicted_row, profile->dropped_row);
    }
    if (profile->pressure && !rows_suffice) give_up_names(profile);
    profile->next_relief = rows->total.samples + (wanted - folded);
    profile->relief_lasts = rows->total.samples + folded / 2;
    profile->pressure = false;
    trim_tables(profile);
    return true;
}

void
mpp_profile_trim(mpp_profile_t *profile)
{
    if (!profile->pressure || !relieve(profile)) trim_tables(profile);
}

/* -- hook -- */

void
mpp_profile_sample(mpp_profile_t *profile, uintptr_t object, mpp_weight_t weight, const mpp_backtrace_t *backtrace)
{
    mpp_id_t stack = 0;
    mpp_drop_t when_full = MPP_DROP_MEMORY_LIMIT;
    mpp_live_prefetch(&profile->live, object); /* for its commit */
    /* Where nothing waits, no safe point comes that would do it. */
    if (MPP_UNLIKELY(profile->pressure) && profile->pending.n_used == 0) (void)relieve(profile);
    mpp_status_t status = mpp_resolver_resolve(&profile->resolver, backtrace, &stack);
    if (status == MPP_OK) {
        when_full = MPP_DROP_PENDING_FULL;
        status = stack ? mpp_pending_push(&profile->pending, object, weight, stack)
                       : mpp_pending_push_raw(&profile->pending, object, weight, backtrace);
        if (status == MPP_OK) return;
        mpp_frames_release_stack(&profile->frames, stack);
    }
    drop(profile, drop_reason(status, when_full), weight, 0);
}

/* -- safe point -- */

bool
mpp_profile_take(mpp_profile_t *profile, mpp_sample_t *sample)
{
    if (!mpp_pending_take(&profile->pending, &sample->entry)) return false;
    /* One by one: clearing the whole would take longer than most of what follows. */
    sample->next_frame = sample->n_passes = 0;
    sample->looks_again = false;
    sample->n_naming_failures = profile->n_naming_failures;
    sample->record = 0;
    if (MPP_UNLIKELY(profile->pressure)) {
        mpp_profile_lose_predecessor(profile, sample->entry.object);
        (void)relieve(profile);
    }
    return true;
}

uintptr_t
mpp_profile_unknown_frame(mpp_profile_t *profile, mpp_sample_t *sample)
{
    if (!sample->entry.raw) return 0;
    const mpp_backtrace_t *backtrace = &sample->entry.raw->backtrace;
    for (;;) {
        while (sample->next_frame < backtrace->n) {
            uintptr_t frame = backtrace->frames[sample->next_frame++];
            if (mpp_resolver_knows(&profile->resolver, frame)) continue;
            sample->looks_again = true;
            return frame;
        }
        if (!sample->looks_again || sample->n_passes == MAX_NAMING_PASSES - 1) return 0;
        sample->looks_again = false;
        sample->n_passes++;
        sample->next_frame = 0;
    }
}

mpp_status_t
mpp_profile_define_frame(mpp_profile_t *profile, uintptr_t frame, mpp_view_t name, mpp_view_t filename,
                         int32_t start_line)
{
    mpp_status_t status = mpp_resolver_define(&profile->resolver, frame, name, filename, start_line);
    if (status != MPP_OK) {
        profile->n_naming_failures++;
        profile->naming_failure = status;
    }
    return status;
}

mpp_id_t
mpp_profile_find_class(mpp_profile_t *profile, uintptr_t class_key)
{
    mpp_id_t name = mpp_keymap_find(&profile->classes, class_key);
    if (name) mpp_strtab_retain(&profile->strings, name);
    return name;
}

mpp_id_t
mpp_profile_define_class(mpp_profile_t *profile, uintptr_t class_key, mpp_view_t name)
{
    mpp_id_t id = 0;
    if (mpp_strtab_intern(&profile->strings, name, &id) != MPP_OK) {
        profile->pressure = true;
        return 0;
    }
    /* Finding the name out may have called the host, and a nested drain may have come first. */
    if (class_key == 0 || profile->detached || mpp_keymap_find(&profile->classes, class_key)) return id;
    if (mpp_keymap_add(&profile->classes, class_key, id) == MPP_OK) {
        mpp_strtab_retain(&profile->strings, id);
    } else {
        profile->pressure = true;
    }
    return id;
}

/* The row of a sample, with room made for it once if there is none. */
static mpp_status_t
obtain_row(mpp_profile_t *profile, const mpp_pending_entry_t *entry, mpp_id_t class_name, mpp_id_t *row)
{
    mpp_status_t status = mpp_rows_obtain(&profile->rows, entry->stack, class_name, entry->labels, row);
    if (status == MPP_OK) return MPP_OK;
    if (status != MPP_FULL) profile->pressure = true;
    mpp_profile_lose_predecessor(profile, entry->object);
    if (!relieve(profile)) return status;
    return mpp_rows_obtain(&profile->rows, entry->stack, class_name, entry->labels, row);
}

/*
 * The stack of a sample that came with raw frames. MPP_OK and no stack: a frame's name was forgotten again, as often as
 * the host gave it one.
 */
static mpp_status_t
resolve(mpp_profile_t *profile, mpp_sample_t *sample)
{
    mpp_pending_entry_t *entry = &sample->entry;
    mpp_status_t status = mpp_resolver_resolve(&profile->resolver, &entry->raw->backtrace, &entry->stack);
    bool naming_failed = sample->n_naming_failures != profile->n_naming_failures;
    return status == MPP_OK && entry->stack == 0 && naming_failed ? profile->naming_failure : status;
}

static void
count(mpp_profile_t *profile, mpp_sample_t *sample, const mpp_birth_t *birth)
{
    mpp_pending_entry_t *entry = &sample->entry;
    mpp_status_t status = entry->raw ? resolve(profile, sample) : MPP_OK;
    mpp_drop_t when_full = MPP_DROP_MEMORY_LIMIT;
    mpp_id_t row;
    if (status == MPP_OK && entry->stack == 0) {
        drop(profile, MPP_DROP_UNNAMED, entry->weight, birth->bytes);
        return;
    }
    if (status == MPP_OK) {
        when_full = MPP_DROP_ROW_LIMIT;
        status = obtain_row(profile, entry, birth->class_name, &row);
    }
    if (status != MPP_OK) {
        drop(profile, drop_reason(status, when_full), entry->weight, birth->bytes);
        return;
    }
    mpp_rows_count(&profile->rows, row, entry->weight, birth->bytes);
    if (birth->live && profile->config.tracks_live && !profile->detached) {
        sample->record = mpp_profile_track(profile, row, entry, birth);
    }
}

static void
end_sample(mpp_profile_t *profile, mpp_sample_t *sample)
{
    mpp_pending_release_raw(&profile->pending, sample->entry.raw);
    mpp_frames_release_stack(&profile->frames, sample->entry.stack);
    sample->entry = (mpp_pending_entry_t){0};
}

void
mpp_profile_commit(mpp_profile_t *profile, mpp_sample_t *sample, const mpp_birth_t *birth)
{
    count(profile, sample, birth);
    if (sample->record == 0) mpp_profile_lose_predecessor(profile, sample->entry.object);
    if (birth->class_name) mpp_strtab_release(&profile->strings, birth->class_name);
    end_sample(profile, sample);
}

void
mpp_profile_discard(mpp_profile_t *profile, mpp_sample_t *sample, mpp_drop_t reason)
{
    mpp_profile_lose_predecessor(profile, sample->entry.object);
    drop(profile, reason, sample->entry.weight, 0);
    end_sample(profile, sample);
}

void
mpp_profile_set_labels(mpp_profile_t *profile, mpp_id_t labels)
{
    profile->pending.labels = labels;
}

uint32_t
mpp_profile_pending_count(const mpp_profile_t *profile)
{
    return profile->pending.n_used;
}

/* -- garbage collection -- */

void
mpp_profile_each_pending(const mpp_profile_t *profile, mpp_visit_t visit, void *context)
{
    mpp_pending_each(&profile->pending, visit, context);
}

void
mpp_profile_forget_frame(mpp_profile_t *profile, uintptr_t frame)
{
    mpp_resolver_forget(&profile->resolver, frame);
}

void
mpp_profile_forget_class(mpp_profile_t *profile, uintptr_t class_key)
{
    mpp_id_t name = mpp_keymap_remove(&profile->classes, class_key);
    if (name) drop_class(profile, name);
}

static void
forget_host_keys(mpp_profile_t *profile)
{
    mpp_resolver_forget_all(&profile->resolver);
    mpp_keymap_clear(&profile->classes, drop_class, profile);
}

void
mpp_profile_lose_track(mpp_profile_t *profile)
{
    if (profile->detached) return; /* nothing is tracked: the records are what was alive at the end */
    mpp_profile_lose_records(profile);
    forget_host_keys(profile);
}

static void
touch_frame(void *context, uintptr_t key)
{
    (void)mpp_resolver_knows(context, key);
}

void
mpp_profile_sweep_keys(mpp_profile_t *profile, mpp_visit_t visit, void *context)
{
    /* A frame of a waiting sample may have been named and not looked up since: its name is needed at the commit. */
    mpp_pending_each(&profile->pending, touch_frame, &profile->resolver);
    mpp_resolver_sweep(&profile->resolver, visit, context);
    mpp_keymap_sweep(&profile->classes, visit, context, drop_class, profile);
}

void
mpp_profile_rekey(mpp_profile_t *profile, mpp_relocate_t relocate, void *context)
{
    if (profile->detached) return;
    mpp_live_rekey(&profile->live, relocate, context);
    mpp_resolver_rekey(&profile->resolver, relocate, context);
    mpp_keymap_rekey(&profile->classes, relocate, context);
}

/* -- flush -- */

void
mpp_profile_detach(mpp_profile_t *profile)
{
    profile->detached = true;
    mpp_live_forget_keys(&profile->live);
    forget_host_keys(profile);
}

/* -- numbers -- */

static void
fill_table_sizes(const mpp_profile_t *profile, mpp_profile_stats_t *stats)
{
    const mpp_frames_t *frames = &profile->frames;
    stats->memory_used = profile->budget.used_bytes;
    stats->memory_peak = profile->budget.peak_bytes;
    stats->memory_limit = profile->budget.limit_bytes;
    stats->strings_bytes = mpp_strtab_bytes(&profile->strings);
    stats->functions_bytes = mpp_slab_bytes(&frames->functions) + mpp_index_bytes(&frames->function_index);
    stats->locations_bytes = mpp_slab_bytes(&frames->locations) + mpp_index_bytes(&frames->location_index);
    stats->stacks_bytes = mpp_slab_bytes(&frames->stacks) + mpp_index_bytes(&frames->stack_index);
    stats->rows_bytes = mpp_rows_bytes(&profile->rows);
    stats->live_bytes = mpp_live_bytes(&profile->live);
    stats->pending_bytes = mpp_pending_bytes(&profile->pending);
    stats->caches_bytes = mpp_resolver_bytes(&profile->resolver) + mpp_keymap_bytes(&profile->classes);
}

void
mpp_profile_stats(const mpp_profile_t *profile, mpp_profile_stats_t *stats)
{
    *stats = (mpp_profile_stats_t){
        .n_evicted = profile->rows.n_evicted,
        .n_live = mpp_live_count(&profile->live),
        .n_pending = profile->pending.n_used,
        .n_rows = mpp_rows_count_used(&profile->rows) - 2,
        .n_strings = mpp_strtab_count(&profile->strings),
        .n_functions = profile->frames.functions.n_used,
        .n_locations = profile->frames.locations.n_used,
        .n_stacks = profile->frames.stacks.n_used,
        .thinning = profile->thinning,
        .n_thinnings = profile->n_thinnings,
        .dropped = mpp_rows_at(&profile->rows, profile->dropped_row)->allocated,
    };
    for (int i = 0; i < MPP_N_DROPS; i++) stats->n_dropped[i] = profile->n_dropped[i];
    fill_table_sizes(profile, stats);
}

mpp_amount_t
mpp_profile_counted(const mpp_profile_t *profile)
{
    mpp_amount_t counted = profile->rows.total;
    mpp_amount_subtract(&counted, &mpp_rows_at(&profile->rows, profile->dropped_row)->allocated);
    return counted;
}
