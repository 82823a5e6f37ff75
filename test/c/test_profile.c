/* The facade: what is fed in comes out, whatever is refused; limits; liveness; keys. Snapshots: test_snapshot.c. */

#include "support_profile.h"

#include <math.h>
#include <string.h>

#define ONE MPP_WEIGHT_ONE

static void
assert_conserved(const mpp_profile_t *profile, mpp_sum_t fed_count, uint64_t fed_samples)
{
    mpp_profile_stats_t stats = support_profile_stats(profile);
    mpp_amount_t counted = mpp_profile_counted(profile);
    assert_int_equal(stats.n_pending, 0);
    assert_true(counted.count + stats.dropped.count == fed_count);
    assert_true(counted.samples + stats.dropped.samples == fed_samples);
    uint64_t n_dropped = stats.n_dropped[MPP_DROP_PENDING_FULL] + stats.n_dropped[MPP_DROP_MEMORY_LIMIT] +
                         stats.n_dropped[MPP_DROP_NO_MEMORY] + stats.n_dropped[MPP_DROP_ROW_LIMIT] +
                         stats.n_dropped[MPP_DROP_UNNAMED];
    assert_int_equal(stats.dropped.samples, n_dropped);
}

static void
assert_nothing_live(const mpp_profile_t *profile)
{
    assert_int_equal(mpp_profile_live_count(profile), 0);
    for (mpp_id_t id = 0; (id = mpp_rows_next(&profile->rows, id)) != 0;) {
        const mpp_row_t *row = mpp_rows_at(&profile->rows, id);
        assert_true(row->live_count == 0 && row->live_bytes == 0 && row->n_live == 0);
    }
}

static void
drops_have_names(void **state)
{
    (void)state;
    assert_string_equal(mpp_drop_name(MPP_DROP_PENDING_FULL), "pending_full");
    assert_string_equal(mpp_drop_name(MPP_DROP_UNTRACKED), "untracked");
    assert_string_equal(mpp_drop_name(MPP_DROP_UNNAMED), "unnamed");
}

/* Every limit too small for a profile fails cleanly; which allocation is refused goes through all of them. */
static void
needs_some_memory(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = NULL;
    uint32_t n_failed = 0;
    for (config.memory_limit_bytes = 0;; config.memory_limit_bytes += 500, n_failed++) {
        mpp_status_t status = mpp_profile_new(&config, &profile);
        if (status == MPP_OK) break;
        assert_int_equal(status, MPP_MEMORY_LIMIT);
        assert_null(profile);
    }
    assert_true(n_failed > 100);
    assert_true(config.memory_limit_bytes < 512 * 1024); /* the least a user may set is twice that */
    mpp_profile_release(profile);
    mpp_profile_release(NULL);
}

static void
counts_exactly(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 100; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8,
                                                                  .frame = 10 + i % 2 * 10,
                                                                  .depth = 3,
                                                                  .class_key = 1 + i % 5,
                                                                  .bytes = i,
                                                                  .weight = i % 2 ? ONE : ONE * 5 / 2});
    }
    mpp_profile_stats_t stats = support_profile_stats(profile);
    mpp_amount_t counted = mpp_profile_counted(profile);
    assert_int_equal(support_profile_whole(counted.count), 50 + 125);
    assert_true(counted.bytes == (mpp_sum_t)ONE * (50 * 50) + (mpp_sum_t)ONE * (50 * 51) * 5 / 2);
    assert_int_equal(counted.samples, 100);
    assert_int_equal(stats.dropped.samples, 0);
    assert_int_equal(stats.n_rows, 10);
    assert_int_equal(stats.n_live, 100);
    assert_int_equal(stats.n_functions, 6 + 4); /* (dropped), (evicted), (truncated), (no frames) */

    for (uintptr_t i = 1; i <= 100; i++) mpp_profile_forget_object(profile, i * 8);
    assert_nothing_live(profile);
    mpp_profile_release(profile);
}

static void
a_sample_waits_until_its_frames_have_names(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    support_allocation_t allocation = {.object = 8, .frame = 10, .depth = 3};
    mpp_sample_t sample;
    assert_false(mpp_profile_take(profile, &sample));
    support_profile_sample(profile, &allocation);
    assert_int_equal(mpp_profile_pending_count(profile), 1);
    assert_non_null(profile->pending.entries[0].raw);
    support_profile_commit(profile, &allocation);

    support_profile_sample(profile, &allocation);
    assert_null(profile->pending.entries[profile->pending.head].raw);
    support_profile_commit(profile, &allocation);
    assert_int_equal(support_profile_stats(profile).n_rows, 1);

    mpp_profile_forget_frame(profile, 11);
    support_profile_sample(profile, &allocation);
    assert_non_null(profile->pending.entries[profile->pending.head].raw);
    support_profile_commit(profile, &allocation);
    assert_int_equal(support_profile_stats(profile).n_rows, 1);
    mpp_profile_release(profile);
}

static void
nobody_visited(void *context, uintptr_t key)
{
    (void)context;
    (void)key;
}

/* Two collections while the host finds out the names of one stack: what has one already keeps it. */
static void
a_sweep_spares_the_names_of_waiting_frames(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    mpp_sample_t sample;
    support_profile_sample(profile, &(support_allocation_t){.object = 8, .frame = 10, .depth = 2});
    assert_true(mpp_profile_take(profile, &sample));
    for (uintptr_t frame; (frame = mpp_profile_unknown_frame(profile, &sample)) != 0;) {
        assert_int_equal(mpp_profile_define_frame(profile, frame, MPP_VIEW("f"), MPP_VIEW(""), 0), MPP_OK);
        mpp_profile_sweep_keys(profile, nobody_visited, NULL);
        mpp_profile_sweep_keys(profile, nobody_visited, NULL);
    }
    mpp_profile_commit(profile, &sample, &(mpp_birth_t){.live = true});
    assert_int_equal(support_profile_stats(profile).dropped.samples, 0);
    mpp_profile_sweep_keys(profile, nobody_visited, NULL);
    mpp_profile_sweep_keys(profile, nobody_visited, NULL);
    assert_int_equal(profile->resolver.functions.n_used, 0);
    mpp_profile_release(profile);
}

static void
drops_beyond_the_pending_buffer(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.max_pending = 4;
    mpp_profile_t *profile = support_profile_new(&config);
    support_allocation_t allocation = {.frame = 10, .weight = 3 * ONE, .bytes = 40};
    for (allocation.object = 8; allocation.object <= 80; allocation.object += 8) {
        support_profile_sample(profile, &allocation);
    }
    for (int i = 0; i < 4; i++) support_profile_commit(profile, &allocation);
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_int_equal(stats.n_dropped[MPP_DROP_PENDING_FULL], 6);
    assert_int_equal(support_profile_whole(stats.dropped.count), 18);
    assert_true(stats.dropped.bytes == 0);
    assert_conserved(profile, 30 * (mpp_sum_t)ONE, 10);
    mpp_profile_release(profile);
}

/* Of a stack that is known and of one that is not; a record at its address goes, and no reference stays. */
static void
the_host_may_discard(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    support_allocation_t known = {.object = 8, .frame = 10, .weight = 2 * ONE, .bytes = 100};
    support_allocation_t unknown = {.object = 16, .frame = 20, .depth = 3};
    support_profile_allocate(profile, &known);
    uint32_t references = mpp_frames_get_stack(&profile->frames, profile->resolver.last.stacks[0])->references;
    support_profile_discard(profile, &known, MPP_DROP_NO_MEMORY);
    assert_int_equal(mpp_frames_get_stack(&profile->frames, profile->resolver.last.stacks[0])->references, references);
    assert_true(profile->pressure);
    assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 1);
    assert_nothing_live(profile);

    support_profile_discard(profile, &unknown, MPP_DROP_NO_MEMORY);
    assert_null(profile->pending.raw_stacks);
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_true(stats.dropped.bytes == 0);
    assert_int_equal(support_profile_whole(stats.dropped.count), 3);
    assert_int_equal(stats.n_dropped[MPP_DROP_NO_MEMORY], 2);
    assert_conserved(profile, 5 * (mpp_sum_t)ONE, 3);
    mpp_profile_release(profile);
}

/* -- naming -- */

/* Names all that is asked for, losing track after each of the first n_losses names; gives how many were asked for. */
static uint32_t
name_and_lose_track(mpp_profile_t *profile, mpp_sample_t *sample, uint32_t n_losses)
{
    uint32_t n = 0;
    for (uintptr_t frame; (frame = mpp_profile_unknown_frame(profile, sample)) != 0; n++) {
        assert_int_equal(mpp_profile_define_frame(profile, frame, MPP_VIEW("f"), MPP_VIEW("a.rb"), 1), MPP_OK);
        if (n < n_losses) mpp_profile_lose_track(profile);
    }
    assert_int_equal(mpp_profile_unknown_frame(profile, sample), 0);
    return n;
}

static void
names_again_what_was_forgotten_meanwhile(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    static const uint32_t n_asked_for[] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    for (uint32_t n_losses = 0; n_losses < SUPPORT_LENGTH(n_asked_for); n_losses++) {
        mpp_profile_t *profile = support_profile_new(&config);
        mpp_sample_t sample;
        support_profile_sample(profile, &(support_allocation_t){.object = 8, .frame = 10, .depth = 3});
        assert_true(mpp_profile_take(profile, &sample));
        assert_int_equal(name_and_lose_track(profile, &sample, n_losses), n_asked_for[n_losses]);
        mpp_profile_commit(profile, &sample, &(mpp_birth_t){.live = true});
        assert_int_equal(mpp_profile_counted(profile).samples, 1);
        assert_int_equal(mpp_profile_live_count(profile), 1);
        mpp_profile_release(profile);
    }
}

/* No memory was short: no row is folded for it. */
static void
drops_what_is_forgotten_as_fast_as_it_is_named(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    mpp_sample_t sample;
    support_profile_sample(profile, &(support_allocation_t){.object = 8, .frame = 10, .depth = 3});
    assert_true(mpp_profile_take(profile, &sample));
    assert_int_equal(name_and_lose_track(profile, &sample, UINT32_MAX), 4 * 3);
    mpp_profile_commit(profile, &sample, &(mpp_birth_t){.bytes = 40, .live = true});
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_int_equal(stats.n_dropped[MPP_DROP_UNNAMED], 1);
    assert_int_equal(stats.dropped.samples, 1);
    assert_int_equal(support_profile_whole(stats.dropped.bytes), 40);
    assert_int_equal(stats.n_live, 0);
    assert_false(profile->pressure);
    assert_null(profile->pending.raw_stacks);
    mpp_profile_release(profile);
}

static void
fail_to_name(mpp_profile_t *profile, mpp_sample_t *sample)
{
    uintptr_t frame = mpp_profile_unknown_frame(profile, sample);
    mpp_budget_t *budget = &profile->budget;
    budget->fail_from = budget->n_requests + 1;
    budget->fail_count = UINT64_MAX;
    char name[20000] = "longer than what is left of any block";
    mpp_view_t view = {name, sizeof name};
    assert_int_equal(mpp_profile_define_frame(profile, frame, view, MPP_VIEW(""), 0), MPP_NO_MEMORY);
    budget->fail_count = 0;
}

/* Two samples in hand, as with a nested drain. Only the one whose naming was refused memory is dropped for that. */
static void
a_failure_to_name_is_of_its_sample(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    mpp_sample_t outer, nested;
    support_profile_sample(profile, &(support_allocation_t){.object = 8, .frame = 10, .depth = 3});
    support_profile_sample(profile, &(support_allocation_t){.object = 16, .frame = 20, .depth = 3});
    assert_true(mpp_profile_take(profile, &outer));
    fail_to_name(profile, &outer);
    assert_true(mpp_profile_take(profile, &nested));
    (void)name_and_lose_track(profile, &nested, UINT32_MAX);
    mpp_profile_commit(profile, &nested, &(mpp_birth_t){.live = true});
    assert_int_equal(profile->n_dropped[MPP_DROP_UNNAMED], 1);
    assert_int_equal(profile->n_dropped[MPP_DROP_NO_MEMORY], 0);
    assert_false(profile->pressure);
    mpp_profile_commit(profile, &outer, &(mpp_birth_t){.live = true});
    assert_int_equal(profile->n_dropped[MPP_DROP_UNNAMED], 1);
    assert_int_equal(profile->n_dropped[MPP_DROP_NO_MEMORY], 1);
    assert_true(profile->pressure);
    mpp_profile_release(profile);
}

/* -- memory -- */

static void
caches_shrink_after_a_burst(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 5000; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = i, .class_key = i});
    }
    uint32_t n_frames = profile->resolver.functions.n_entries, n_classes = profile->classes.n_entries;
    for (uintptr_t i = 1; i <= 4990; i++) {
        mpp_profile_forget_frame(profile, i);
        mpp_profile_forget_class(profile, i);
    }
    mpp_profile_trim(profile);
    assert_true(profile->resolver.functions.n_entries < n_frames / 50);
    assert_true(profile->classes.n_entries < n_classes / 50);
    mpp_id_t name = mpp_profile_find_class(profile, 5000);
    assert_int_not_equal(name, 0);
    mpp_strtab_release(&profile->strings, name);
    mpp_profile_release(profile);
}

static void
no_memory_is_asked_for_in_the_steady_state(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    uint64_t n_requests = 0;
    for (uintptr_t round = 0; round < 20; round++) {
        if (round == 10) n_requests = profile->budget.n_requests;
        uintptr_t young = round % 2 * 8000, old = 8000 - young;
        for (uintptr_t i = 1; i <= 500; i++) {
            support_profile_allocate(profile, &(support_allocation_t){.object = young + i * 8,
                                                                      .frame = 1 + i % 20 * 10,
                                                                      .depth = 5,
                                                                      .class_key = 1 + i % 5,
                                                                      .bytes = 40});
        }
        for (uintptr_t i = 1; i <= 500; i++) mpp_profile_forget_object(profile, old + i * 8);
        mpp_profile_trim(profile);
    }
    assert_int_equal(profile->budget.n_requests, n_requests);
    mpp_profile_release(profile);
}

/* -- refused memory -- */

/* Wide enough to make every table grow, with the limits given. */
static void
feed(mpp_profile_t *profile, uint32_t n)
{
    for (uintptr_t i = 1; i <= n; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8,
                                                                  .frame = 1 + i * 7 % 300,
                                                                  .depth = 1 + (uint32_t)i % 9,
                                                                  .class_key = 1 + i % 40,
                                                                  .bytes = i,
                                                                  .weight = ONE + i});
        if (i % 3 == 0) mpp_profile_forget_object(profile, i * 8);
    }
    assert_conserved(profile, (mpp_sum_t)n * ONE + (mpp_sum_t)n * (n + 1) / 2, n);
    for (uintptr_t i = 1; i <= n; i++) mpp_profile_forget_object(profile, i * 8);
    assert_nothing_live(profile);
}

static void
conserves_whatever_is_refused(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    static const uint64_t fail_counts[] = {1, 7, UINT64_MAX};
    for (size_t i = 0; i < SUPPORT_LENGTH(fail_counts); i++) {
        for (uint64_t n = 1, refused = true; refused; n++) {
            mpp_profile_t *profile = support_profile_new(&config);
            mpp_budget_t *budget = &profile->budget;
            uint64_t first = budget->n_requests + n;
            budget->fail_from = first;
            budget->fail_count = fail_counts[i];
            feed(profile, 250);
            refused = budget->n_requests >= first;
            mpp_profile_release(profile);
            assert_true(refused || n > 50);
        }
    }
}

static void
conserves_in_any_budget(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    for (size_t spare = 0; spare < 400000; spare += 9973) {
        mpp_profile_t *profile = support_profile_new(&config);
        mpp_budget_t *budget = &profile->budget;
        budget->limit_bytes = budget->used_bytes + spare;
        feed(profile, 2000);
        assert_true(budget->peak_bytes <= budget->limit_bytes);
        assert_true(spare > 30000 || profile->n_dropped[MPP_DROP_MEMORY_LIMIT] > 0);
        mpp_profile_release(profile);
    }
}

/* A profile of 16 cold rows to which the hook was just refused memory. */
static mpp_profile_t *
profile_in_need(void)
{
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    mpp_budget_t *budget = &profile->budget;
    for (uintptr_t i = 1; i <= 16; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = i, .dead = true});
    }
    budget->fail_from = 1;
    budget->fail_count = UINT64_MAX;
    support_profile_sample(profile, &(support_allocation_t){.object = 8, .frame = 100, .depth = 30});
    budget->fail_count = 0;
    assert_int_equal(profile->n_dropped[MPP_DROP_NO_MEMORY], 1);
    assert_int_equal(profile->rows.n_evicted, 0);
    return profile;
}

static void
the_next_safe_point_relieves_a_shortage(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_in_need();
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 16, .bytes = 16});
    assert_int_equal(profile->rows.n_evicted, 2); /* an eighth of 18 */
    support_profile_allocate(profile, &(support_allocation_t){.object = 16, .frame = 16, .bytes = 16});
    mpp_profile_trim(profile);
    assert_int_equal(profile->rows.n_evicted, 2);
    assert_int_equal(mpp_profile_live_count(profile), 2);
    assert_conserved(profile, 19 * (mpp_sum_t)ONE, 19);
    mpp_profile_release(profile);

    profile = profile_in_need();
    mpp_profile_trim(profile);
    assert_int_equal(profile->rows.n_evicted, 2);
    mpp_profile_release(profile);
}

/*
 * 800 rows with live objects: a look for cold ones found 100 too few, and then nobody looks again for each sample, but
 * when as many samples have come or rows have become free.
 */
static void
looks_for_cold_rows_only_so_often(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.max_rows = 800;
    static const uint64_t n_freed[] = {1, 40, 100, 800};
    static const uint64_t n_until_it_looks[] = {99, 60, 1, 1};
    for (size_t k = 0; k < SUPPORT_LENGTH(n_freed); k++) {
        mpp_profile_t *profile = support_profile_new(&config);
        for (uintptr_t i = 1; i <= 800; i++) {
            support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = i});
        }
        support_profile_allocate(profile, &(support_allocation_t){.object = 8000, .frame = 1000});
        assert_int_equal(profile->n_dropped[MPP_DROP_ROW_LIMIT], 1);
        for (uintptr_t i = 1; i <= n_freed[k]; i++) mpp_profile_forget_object(profile, i * 8);
        uint64_t n_samples = 0;
        while (profile->rows.n_evicted == 0) {
            support_profile_allocate(profile, &(support_allocation_t){.object = 8000, .frame = 1000});
            n_samples++;
        }
        assert_in_range(n_samples, n_until_it_looks[k] - (n_freed[k] < 100), n_until_it_looks[k] + 1);
        mpp_profile_release(profile);
    }
}

/* -- rows -- */

static void
folds_the_coldest_rows(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.max_rows = 16;
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 1000; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1000 + i, .bytes = i});
        support_profile_allocate(profile, &(support_allocation_t){.object = 16, .frame = 1, .bytes = 1, .dead = true});
        support_profile_allocate(profile, &(support_allocation_t){.object = 24 + i % 4 * 8, .frame = 2 + i % 4});
        mpp_profile_forget_object(profile, 8);
    }
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_true(stats.n_rows <= 16);
    assert_conserved(profile, 3000 * (mpp_sum_t)ONE, 3000);
    assert_int_equal(mpp_profile_counted(profile).samples, 3000);
    assert_int_equal(support_profile_whole(mpp_profile_counted(profile).bytes), 500500 + 1000);
    assert_int_equal(stats.n_evicted, 1000 + 5 - stats.n_rows);

    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, false);
    const mpp_snapshot_row_t *hot = support_profile_row(snapshot, "frame1");
    assert_int_equal(support_profile_whole(hot->values[MPP_ALLOCATED_COUNT]), 1000);
    for (int i = 0; i < 4; i++) {
        const char *const live[] = {"frame2", "frame3", "frame4", "frame5"};
        const mpp_snapshot_row_t *row = support_profile_row(snapshot, live[i]);
        assert_int_equal(support_profile_whole(row->values[MPP_ALLOCATED_COUNT]), 250);
        assert_int_equal(support_profile_whole(row->values[MPP_RETAINED_COUNT]), 1);
    }
    mpp_snapshot_free(snapshot);
    mpp_profile_release(profile);
}

static void
drops_when_every_row_has_live_objects(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.max_rows = 4;
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 6; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = i, .bytes = 40});
    }
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_int_equal(stats.n_dropped[MPP_DROP_ROW_LIMIT], 2);
    assert_int_equal(support_profile_whole(stats.dropped.bytes), 80);
    assert_int_equal(stats.n_live, 4);

    mpp_profile_forget_object(profile, 8);
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 9, .bytes = 40});
    assert_int_equal(support_profile_stats(profile).n_dropped[MPP_DROP_ROW_LIMIT], 2);
    assert_conserved(profile, 7 * (mpp_sum_t)ONE, 7);
    mpp_profile_release(profile);
}

/* -- thinning -- */

typedef struct {
    double sum;
    double sum_of_squares;
    int n;
} estimate_t;

static void
add_estimate(estimate_t *estimate, double value)
{
    estimate->sum += value;
    estimate->sum_of_squares += value * value;
    estimate->n++;
}

/* The mean is within 5 standard errors of the truth, and these are small enough for that to say something. */
static void
assert_unbiased(const estimate_t *estimate, double truth)
{
    double n = estimate->n;
    double mean = estimate->sum / n;
    double error = sqrt((estimate->sum_of_squares / n - mean * mean) / n);
    if (error > truth / 50) fail_msg("truth %f: a standard error of %f says nothing", truth, error);
    if (fabs(mean - truth) > 5 * error) fail_msg("truth %f, mean %f, standard error %f", truth, mean, error);
}

static mpp_row_t
live_sums(const mpp_profile_t *profile)
{
    mpp_row_t sums = {0};
    for (mpp_id_t id = 0; (id = mpp_rows_next(&profile->rows, id)) != 0;) {
        sums.live_count += mpp_rows_at(&profile->rows, id)->live_count;
        sums.live_bytes += mpp_rows_at(&profile->rows, id)->live_bytes;
    }
    return sums;
}

/* Grows to 600 objects, shrinks to 20, grows to 320: thins, lets up, thins again. Object i has i bytes. */
static void
grow_shrink_grow(mpp_profile_t *profile)
{
    for (uintptr_t i = 1; i <= 600; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = 1 + i % 3, .bytes = i});
    }
    for (uintptr_t i = 1; i <= 580; i++) mpp_profile_forget_object(profile, i * 8);
    for (uintptr_t i = 1; i <= 300; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = 1 + i % 3, .bytes = i});
    }
}

static void
thinning_is_unbiased(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.max_live = 40;
    estimate_t count = {0}, bytes = {0};
    for (config.seed = 1; config.seed <= 2500; config.seed++) {
        mpp_profile_t *profile = support_profile_new(&config);
        grow_shrink_grow(profile);
        mpp_row_t sums = live_sums(profile);
        add_estimate(&count, (double)support_profile_whole(sums.live_count));
        add_estimate(&bytes, (double)support_profile_whole(sums.live_bytes));
        assert_true(mpp_profile_live_count(profile) <= 40);
        assert_int_equal(profile->n_dropped[MPP_DROP_LIVE_LIMIT], 0);
        assert_int_equal(mpp_profile_counted(profile).samples, 900);
        for (uintptr_t i = 1; i <= 600; i++) mpp_profile_forget_object(profile, i * 8);
        assert_nothing_live(profile);
        mpp_profile_release(profile);
    }
    assert_unbiased(&count, 20 + 300);
    assert_unbiased(&bytes, 590.5 * 20 + 150.5 * 300);
}

/* Of so few, the one that found no room and goes on to the next coin is a good part of the estimate. */
static void
thinning_is_fair_to_the_one_that_finds_no_room(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.memory_limit_bytes = 1 << 20;
    config.max_live = 4;
    estimate_t count = {0};
    for (config.seed = 1; config.seed <= 3000; config.seed++) {
        mpp_profile_t *profile = support_profile_new(&config);
        for (uintptr_t i = 1; i <= 100; i++) {
            support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = 1});
        }
        add_estimate(&count, (double)support_profile_whole(live_sums(profile).live_count));
        mpp_profile_release(profile);
    }
    assert_unbiased(&count, 100);
}

static void
thinning_lets_up(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.max_live = 40;
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 600; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = 1});
    }
    assert_in_range(support_profile_stats(profile).thinning, 3, 6);
    for (uintptr_t i = 1; i <= 600; i++) mpp_profile_forget_object(profile, i * 8);
    for (uintptr_t i = 1; i <= 20; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = 1});
    }
    assert_int_equal(support_profile_stats(profile).thinning, 0);
    assert_in_range(mpp_profile_live_count(profile), 14, 20);
    mpp_profile_release(profile);
}

static void
thinning_ends(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.max_live = 4;
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 4; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = 1});
    }
    for (mpp_id_t id = 0; (id = mpp_live_next(&profile->live, id)) != 0;) {
        mpp_live_record_t *record = mpp_live_at(&profile->live, id);
        mpp_row_t *row = mpp_rows_at(&profile->rows, record->row);
        row->live_count -= mpp_live_weight(record);
        record->doublings = 32;
        row->live_count += mpp_live_weight(record);
    }
    mpp_sum_t live_count = live_sums(profile).live_count;
    for (uintptr_t i = 1; i <= 100; i++) {
        if (i == 50) profile->thinning = 32;
        support_profile_allocate(profile, &(support_allocation_t){.object = 80, .frame = 1});
    }
    assert_int_equal(support_profile_stats(profile).thinning, 32);
    assert_int_equal(mpp_profile_live_count(profile), 4);
    assert_true(live_sums(profile).live_count == live_count);
    assert_true(profile->n_dropped[MPP_DROP_LIVE_LIMIT] <= 1); /* with a probability of 51 in 2^32 */
    mpp_profile_release(profile);
}

/* -- thinning for want of memory -- */

static void
assert_rows_are_their_records(const mpp_profile_t *profile)
{
    mpp_row_t sums = live_sums(profile);
    uint32_t n = 0;
    for (mpp_id_t id = 0; (id = mpp_live_next(&profile->live, id)) != 0; n++) {
        const mpp_live_record_t *record = mpp_live_at(&profile->live, id);
        assert_int_equal(mpp_live_find(&profile->live, record->key), id);
        sums.live_count -= mpp_live_weight(record);
        sums.live_bytes -= mpp_live_weight(record) * record->bytes;
    }
    assert_int_equal(n, mpp_profile_live_count(profile));
    assert_true(sums.live_count == 0 && sums.live_bytes == 0);
}

static void
assert_within_budget(const mpp_profile_t *profile)
{
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_true(stats.memory_peak <= stats.memory_limit);
    assert_int_equal(stats.strings_bytes + stats.functions_bytes + stats.locations_bytes + stats.stacks_bytes +
                         stats.rows_bytes + stats.live_bytes + stats.pending_bytes + stats.caches_bytes +
                         sizeof *profile,
                     stats.memory_used);
}

/* Of three stacks, which are known; the budget has only so many bytes left for live records. */
static mpp_profile_t *
profile_with_room(uint64_t seed, size_t bytes_for_records)
{
    mpp_profile_config_t config = support_profile_config();
    config.seed = seed;
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 3; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = i, .dead = true});
    }
    profile->budget.limit_bytes = profile->budget.used_bytes + bytes_for_records;
    return profile;
}

/* Objects first to last of the three stacks; object i has i bytes. */
static void
allocate_objects(mpp_profile_t *profile, uintptr_t first, uintptr_t last)
{
    for (uintptr_t i = first; i <= last; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = 1 + i % 3, .bytes = i});
    }
}

static void
forget_objects(mpp_profile_t *profile, uintptr_t first, uintptr_t last)
{
    for (uintptr_t i = first; i <= last; i++) mpp_profile_forget_object(profile, i * 8);
}

/* The budget holds a half, or a tenth, of the records: 9000 objects, of which 1000 outlive, and 7000 more. */
static void
a_small_budget_leaves_retained_unbiased(void **state)
{
    (void)state;
    static const size_t too_small_by[] = {2, 10};
    for (size_t i = 0; i < SUPPORT_LENGTH(too_small_by); i++) {
        estimate_t count = {0}, bytes = {0};
        for (uint64_t seed = 1; seed <= 60; seed++) {
            mpp_profile_t *profile = profile_with_room(seed, 9000 * 64 / too_small_by[i]);
            allocate_objects(profile, 1, 9000);
            assert_true(profile->n_thinnings > 0);
            forget_objects(profile, 1001, 9000);
            allocate_objects(profile, 10001, 17000);
            mpp_row_t sums = live_sums(profile);
            add_estimate(&count, (double)support_profile_whole(sums.live_count));
            add_estimate(&bytes, (double)support_profile_whole(sums.live_bytes));
            assert_rows_are_their_records(profile);
            assert_within_budget(profile);
            assert_int_equal(profile->n_dropped[MPP_DROP_LIVE_LIMIT], 0);
            assert_int_equal(mpp_profile_counted(profile).samples, 3 + 16000);
            forget_objects(profile, 1, 17000);
            assert_nothing_live(profile);
            mpp_profile_release(profile);
        }
        assert_unbiased(&count, 1000 + 7000);
        assert_unbiased(&bytes, 500.5 * 1000 + 13500.5 * 7000);
    }
}

/* Each object has a stack of its own: what its record holds is mostly the row, which folds once the record is gone. */
static void
rows_held_by_records_make_room(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.memory_limit_bytes = 1 << 20;
    estimate_t count = {0};
    for (config.seed = 1; config.seed <= 60; config.seed++) {
        mpp_profile_t *profile = support_profile_new(&config);
        for (uintptr_t i = 1; i <= 9000; i++) {
            support_profile_allocate(
                profile, &(support_allocation_t){
                             .object = i * 8, .frame = 1 + i % 300, .depth = 1 + (uint32_t)i / 300, .bytes = i});
        }
        uint64_t n_counted = mpp_profile_counted(profile).samples;
        assert_true(n_counted > 8800);
        assert_true(profile->n_thinnings > 0 && profile->rows.n_evicted > 0);
        assert_int_equal(profile->n_dropped[MPP_DROP_LIVE_LIMIT], 0);
        assert_conserved(profile, 9000 * (mpp_sum_t)ONE, 9000);
        assert_rows_are_their_records(profile);
        assert_within_budget(profile);
        /* What was dropped whole is not estimated, and known. */
        add_estimate(&count, (double)support_profile_whole(live_sums(profile).live_count) + 9000 - (double)n_counted);
        mpp_profile_release(profile);
    }
    assert_unbiased(&count, 9000);
}

/*
 * A burst of 20,000 distinct frames, classes or both, whose code stays and whose objects live until it is over, spends a
 * budget of 1 MiB. What comes later has a place again: names that nothing is counted for any more are given up.
 */
static void
memory_comes_back_after_a_burst(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.memory_limit_bytes = 1 << 20;
    for (uintptr_t kind = 1; kind <= 3; kind++) {
        mpp_profile_t *profile = support_profile_new(&config);
        support_allocation_t allocation = {.frame = 1, .class_key = 1, .longer_by = 50};
        uint32_t n_named = 0;
        for (uintptr_t i = 1; i <= 20200; i++) {
            if (i == 20001) forget_objects(profile, 1, 20000);
            allocation.object = i * 8;
            if (kind & 1) allocation.frame++;
            if (kind & 2) allocation.class_key++;
            support_profile_allocate(profile, &allocation);
            bool named = mpp_resolver_knows(&profile->resolver, allocation.frame) &&
                         mpp_keymap_find(&profile->classes, allocation.class_key) != 0;
            n_named += i > 20000 && named;
        }
        assert_true(n_named >= 190);
        assert_true(support_profile_stats(profile).dropped.samples < 200);
        assert_conserved(profile, 20200 * (mpp_sum_t)ONE, 20200);
        assert_within_budget(profile);
        mpp_profile_release(profile);
    }
}

/* 3,000 frames in turn, whose names have room beside most of their rows: rows fold, no name is asked for again. */
static void
names_stay_while_rows_make_room(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.memory_limit_bytes = 1 << 20;
    mpp_profile_t *profile = support_profile_new(&config);
    support_allocation_t allocation = {.object = 8, .longer_by = 50, .dead = true};
    uint32_t n_unknown = 0;
    for (uint32_t i = 0; i < 60000; i++) {
        allocation.frame = 1 + i % 3000;
        n_unknown += !mpp_resolver_knows(&profile->resolver, allocation.frame);
        support_profile_allocate(profile, &allocation);
    }
    assert_true(profile->rows.n_evicted > 0);
    assert_in_range(n_unknown, 3000, 3100);
    assert_conserved(profile, 60000 * (mpp_sum_t)ONE, 60000);
    mpp_profile_release(profile);
}

/* What other tables hold cannot be had by thinning: it goes on in the one chunk of records that is left, and is rare. */
static void
does_not_thin_for_nothing(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_with_room(1, SIZE_MAX / 2);
    allocate_objects(profile, 1, 9000);
    profile->budget.limit_bytes = profile->budget.used_bytes / 4;
    allocate_objects(profile, 9001, 40000);
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_in_range(stats.n_live, 400, MPP_SLAB_CHUNK_ELEMENTS);
    assert_in_range(stats.n_thinnings, 5, 9);
    assert_int_equal(stats.n_dropped[MPP_DROP_LIVE_LIMIT], 0);
    assert_rows_are_their_records(profile);

    /* Room again: new ones enter at once, though no object has died. */
    profile->budget.limit_bytes = SIZE_MAX;
    allocate_objects(profile, 40001, 41000);
    assert_int_equal(support_profile_stats(profile).thinning, 0);
    assert_int_equal(support_profile_stats(profile).n_thinnings, stats.n_thinnings);
    mpp_profile_release(profile);
}

static void
drops_records_where_there_are_few_to_thin(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_with_room(1, 20000);
    allocate_objects(profile, 1, 100);
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_int_equal(stats.n_live, 0);
    assert_int_equal(stats.n_thinnings, 0);
    assert_int_equal(stats.n_dropped[MPP_DROP_LIVE_LIMIT], 100);
    assert_int_equal(mpp_profile_counted(profile).samples, 103);
    mpp_profile_release(profile);
}

/* The records of a run that has ended stay as they are. */
static void
a_detached_profile_is_not_thinned(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_with_room(1, SIZE_MAX / 2);
    allocate_objects(profile, 1, 3000);
    mpp_profile_detach(profile);
    profile->pressure = true;
    profile->budget.limit_bytes = profile->budget.used_bytes;
    forget_objects(profile, 1, 3000);
    mpp_profile_trim(profile);
    assert_int_equal(mpp_profile_live_count(profile), 3000);
    assert_false(profile->pressure);
    mpp_profile_release(profile);
}

static void
thins_whichever_request_is_refused(void **state)
{
    (void)state;
    static const uint64_t fail_counts[] = {1, 3, UINT64_MAX};
    for (size_t i = 0; i < SUPPORT_LENGTH(fail_counts); i++) {
        for (uint64_t n = 1, refused = true; refused; n++) {
            mpp_profile_t *profile = profile_with_room(n, SIZE_MAX / 2);
            mpp_budget_t *budget = &profile->budget;
            uint64_t first = budget->n_requests + n;
            budget->fail_from = first;
            budget->fail_count = fail_counts[i];
            allocate_objects(profile, 1, 4000);
            refused = budget->n_requests >= first;
            assert_conserved(profile, 4003 * (mpp_sum_t)ONE, 4003);
            assert_rows_are_their_records(profile);
            assert_within_budget(profile);
            forget_objects(profile, 1, 4000);
            assert_nothing_live(profile);
            mpp_profile_release(profile);
        }
    }
}

static void
counts_without_live_records(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    config.tracks_live = false;
    config.max_live = 0;
    mpp_profile_t *profile = support_profile_new(&config);
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1});
    mpp_profile_forget_object(profile, 8);
    assert_int_equal(mpp_profile_live_count(profile), 0);
    assert_int_equal(mpp_profile_counted(profile).samples, 1);
    assert_int_equal(profile->n_dropped[MPP_DROP_LIVE_LIMIT], 0);
    mpp_profile_release(profile);
}

static void
a_record_without_memory_is_counted_as_such(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    mpp_budget_t *budget = &profile->budget;
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1, .dead = true});
    budget->fail_from = 1;
    budget->fail_count = UINT64_MAX;
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1});
    mpp_profile_stats_t stats = support_profile_stats(profile);
    assert_int_equal(stats.n_dropped[MPP_DROP_LIVE_LIMIT], 1);
    assert_int_equal(stats.dropped.samples, 0);
    assert_int_equal(mpp_profile_counted(profile).samples, 2);
    mpp_profile_release(profile);
}

/* -- liveness -- */

static void
an_address_that_is_used_again_ends_the_old_record(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1, .bytes = 100});
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 2, .bytes = 10});
    assert_int_equal(mpp_profile_live_count(profile), 1);
    assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 1);
    assert_int_equal(support_profile_whole(live_sums(profile).live_bytes), 10);

    /* The new one need not have a record for the old one to be dead. */
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 2, .dead = true});
    assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 2);
    assert_nothing_live(profile);
    mpp_profile_release(profile);
}

static uintptr_t
swap_neighbours(void *context, uintptr_t key)
{
    (void)context;
    return key ^ 8;
}

static void
keys_move(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    support_profile_allocate(profile, &(support_allocation_t){.object = 16, .frame = 32, .class_key = 64, .bytes = 1});
    support_profile_allocate(profile, &(support_allocation_t){.object = 24, .frame = 40, .class_key = 72, .bytes = 2});
    mpp_profile_rekey(profile, swap_neighbours, NULL);
    mpp_profile_forget_object(profile, 16);
    assert_int_equal(support_profile_whole(live_sums(profile).live_bytes), 1);

    mpp_id_t name = mpp_profile_find_class(profile, 64);
    mpp_view_t view = mpp_strtab_view(&profile->strings, name);
    assert_int_equal(view.length, 7);
    assert_memory_equal(view.bytes, "Class72", 7);
    mpp_strtab_release(&profile->strings, name);

    support_profile_allocate(profile, &(support_allocation_t){.object = 80, .frame = 32});
    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, false);
    assert_int_equal(snapshot->view.n_rows, 3); /* frame40 with Class72, and without a class */
    assert_non_null(support_profile_row(snapshot, "frame40"));
    mpp_snapshot_free(snapshot);
    mpp_profile_release(profile);
}

static void
loses_track(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 30; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8, .frame = i, .class_key = i});
    }
    support_profile_sample(profile, &(support_allocation_t){.object = 800, .frame = 100});
    mpp_profile_lose_track(profile);
    assert_nothing_live(profile);
    assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 30);
    assert_int_equal(mpp_profile_find_class(profile, 1), 0);
    assert_int_equal(profile->resolver.functions.n_used, 0);
    support_profile_commit(profile, &(support_allocation_t){0}); /* its frames were not named yet: nothing is lost */
    assert_conserved(profile, 31 * (mpp_sum_t)ONE, 31);
    assert_int_equal(support_profile_stats(profile).dropped.samples, 0);
    mpp_profile_release(profile);
}

static void
class_names_are_remembered(void **state)
{
    (void)state;
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    uint32_t n_strings = mpp_strtab_count(&profile->strings);
    mpp_id_t first = mpp_profile_define_class(profile, 8, MPP_VIEW("Foo"));
    mpp_id_t again = mpp_profile_define_class(profile, 8, MPP_VIEW("Foo")); /* a nested drain came first */
    mpp_id_t found = mpp_profile_find_class(profile, 8);
    mpp_id_t unkeyed = mpp_profile_define_class(profile, 0, MPP_VIEW("(anonymous Foo)"));
    assert_int_equal(first, again);
    assert_int_equal(first, found);
    assert_int_equal(mpp_profile_find_class(profile, 0), 0);
    assert_int_equal(mpp_profile_find_class(profile, 16), 0);
    for (int i = 0; i < 3; i++) mpp_strtab_release(&profile->strings, first);
    mpp_strtab_release(&profile->strings, unkeyed);
    assert_int_equal(mpp_strtab_count(&profile->strings), n_strings + 1);
    mpp_profile_forget_class(profile, 8);
    mpp_profile_forget_class(profile, 8);
    assert_int_equal(mpp_strtab_count(&profile->strings), n_strings);
    mpp_profile_release(profile);
}

/* -- measuring -- */

typedef struct {
    mpp_profile_t *profile;
    uint64_t bytes;
    mpp_finding_t finding;
    void (*meanwhile)(mpp_profile_t *profile, uintptr_t key);
    uint32_t n_calls;
} measurement_t;

static mpp_finding_t
measure(void *context, const mpp_live_record_t *record, uint64_t *bytes)
{
    measurement_t *measurement = context;
    measurement->n_calls++;
    if (measurement->meanwhile) measurement->meanwhile(measurement->profile, record->key);
    *bytes = measurement->bytes;
    return measurement->finding;
}

static uint64_t
measure_all(measurement_t *measurement, uint32_t slice)
{
    mpp_id_t cursor = 0;
    uint64_t n_stale = 0;
    while (mpp_profile_measure(measurement->profile, &cursor, slice, measure, measurement, &n_stale)) {
    }
    return n_stale;
}

static mpp_profile_t *
profile_of_ten(void)
{
    mpp_profile_config_t config = support_profile_config();
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 10; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 16, .frame = 1, .bytes = 40});
    }
    return profile;
}

static void
measures_in_slices(void **state)
{
    (void)state;
    for (uint32_t slice = 1; slice < 13; slice++) {
        measurement_t measurement = {.profile = profile_of_ten(), .bytes = 100 + slice};
        assert_int_equal(measure_all(&measurement, slice), 0);
        assert_int_equal(measurement.n_calls, 10);
        assert_int_equal(support_profile_whole(live_sums(measurement.profile).live_bytes), 10 * (100 + slice));
        measurement.finding = MPP_FOUND_STALE;
        assert_int_equal(measure_all(&measurement, slice), 10);
        assert_int_equal(support_profile_whole(live_sums(measurement.profile).live_bytes), 10 * (100 + slice));
        for (uintptr_t i = 1; i <= 10; i++) mpp_profile_forget_object(measurement.profile, i * 16);
        assert_nothing_live(measurement.profile);
        mpp_profile_release(measurement.profile);
    }
}

static void
object_dies(mpp_profile_t *profile, uintptr_t key)
{
    mpp_profile_forget_object(profile, key);
}

static void
object_moves(mpp_profile_t *profile, uintptr_t key)
{
    (void)key;
    mpp_profile_rekey(profile, swap_neighbours, NULL);
}

static void
address_is_used_again(mpp_profile_t *profile, uintptr_t key)
{
    mpp_profile_forget_object(profile, key);
    support_profile_allocate(profile, &(support_allocation_t){.object = key, .frame = 2, .bytes = 7});
}

static void
track_is_lost(mpp_profile_t *profile, uintptr_t key)
{
    (void)key;
    mpp_profile_lose_track(profile);
}

static void
run_ends(mpp_profile_t *profile, uintptr_t key)
{
    (void)key;
    mpp_profile_detach(profile);
}

static void
measuring_survives_what_happens_meanwhile(void **state)
{
    (void)state;
    static const struct {
        void (*meanwhile)(mpp_profile_t *profile, uintptr_t key);
        uint64_t live_bytes;
    } cases[] = {
        {object_dies, 0}, {object_moves, 400}, {address_is_used_again, 70}, {track_is_lost, 0}, {run_ends, 400},
    };
    for (size_t i = 0; i < SUPPORT_LENGTH(cases); i++) {
        measurement_t measurement = {.profile = profile_of_ten(), .bytes = 1000, .meanwhile = cases[i].meanwhile};
        (void)measure_all(&measurement, 3);
        assert_int_equal(support_profile_whole(live_sums(measurement.profile).live_bytes), cases[i].live_bytes);
        mpp_profile_release(measurement.profile);
    }
}

/* -- deaths that are noticed late -- */

/* Ten objects at 16, 32 … 160, one row each. */
static mpp_profile_t *
profile_of_ten_rows(bool late_deaths)
{
    mpp_profile_config_t config = support_profile_config();
    config.late_deaths = late_deaths;
    mpp_profile_t *profile = support_profile_new(&config);
    for (uintptr_t i = 1; i <= 10; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 16, .frame = i, .bytes = 40});
    }
    return profile;
}

static mpp_finding_t
every_third_died(void *context, const mpp_live_record_t *record, uint64_t *bytes)
{
    uint32_t id = record->serial; /* none has left yet */
    (void)context;
    if (id % 3 == 0) return MPP_FOUND_DEAD; /* 3, 6, 9 */
    if (id == 1) return MPP_FOUND_STALE;
    *bytes = 100; /* 2, 4, 5, 7, 8, 10 */
    return MPP_FOUND_ALIVE;
}

static void
the_dead_leave_where_they_are_found(void **state)
{
    (void)state;
    for (int late_deaths = 0; late_deaths < 2; late_deaths++) {
        mpp_profile_t *profile = profile_of_ten_rows(late_deaths);
        mpp_id_t cursor = 0;
        uint64_t n_stale = 0;
        while (mpp_profile_measure(profile, &cursor, 4, every_third_died, NULL, &n_stale)) {
        }
        assert_int_equal(n_stale, 1);
        assert_int_equal(mpp_profile_live_count(profile), 7);
        assert_int_equal(support_profile_whole(live_sums(profile).live_count), 7);
        assert_int_equal(support_profile_whole(live_sums(profile).live_bytes), 640);
        assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 0);
        mpp_profile_release(profile);
    }
}

static bool
is_below(void *limit, uintptr_t key)
{
    return key < *(uintptr_t *)limit;
}

static void
the_dead_of_a_collection_leave(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_of_ten_rows(false);
    uintptr_t limit = 64;
    mpp_profile_forget_dead(profile, is_below, &limit);
    assert_int_equal(mpp_profile_live_count(profile), 3);
    assert_int_equal(support_profile_whole(live_sums(profile).live_bytes), 120);
    assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 0);
    mpp_profile_detach(profile);
    limit = 0;
    mpp_profile_forget_dead(profile, is_below, &limit);
    assert_int_equal(mpp_profile_live_count(profile), 3); /* what was alive at the end */
    mpp_profile_release(profile);
}

static uintptr_t
move_away(void *context, uintptr_t key)
{
    (void)context;
    return key + 4096;
}

static void
with_late_deaths_an_address_tells_nothing(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_of_ten_rows(true);
    assert_int_equal(mpp_bins_bytes(&profile->live.bins), 0);
    support_profile_allocate(profile, &(support_allocation_t){.object = 16, .frame = 20, .bytes = 7});
    mpp_profile_forget_object(profile, 32);
    mpp_profile_rekey(profile, move_away, NULL);
    assert_int_equal(mpp_profile_live_count(profile), 11);
    mpp_profile_detach(profile);
    assert_int_equal(support_profile_whole(live_sums(profile).live_bytes), 407);
    mpp_profile_release(profile);
}

/* What the host knows a sample's record by. */
static void
a_commit_tells_of_its_record(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_of_ten_rows(true);
    mpp_sample_t sample;
    support_profile_sample(profile, &(support_allocation_t){.object = 16, .frame = 1});
    assert_true(mpp_profile_take(profile, &sample));
    mpp_profile_commit(profile, &sample, &(mpp_birth_t){.bytes = 7, .live = true});
    const mpp_live_record_t *record = mpp_live_at(&profile->live, sample.record);
    assert_int_equal(record->bytes, 7);
    uint32_t serial = record->serial;
    mpp_profile_give_up(profile, sample.record, serial + 1); /* another one, that was there before */
    assert_int_equal(mpp_profile_live_count(profile), 11);
    mpp_profile_give_up(profile, sample.record, serial);
    mpp_profile_give_up(profile, sample.record, serial);
    assert_int_equal(mpp_profile_live_count(profile), 10);
    assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 1);

    support_profile_sample(profile, &(support_allocation_t){.object = 16, .frame = 1});
    assert_true(mpp_profile_take(profile, &sample));
    mpp_profile_commit(profile, &sample, &(mpp_birth_t){.bytes = 7});
    assert_int_equal(sample.record, 0);
    mpp_profile_detach(profile);
    mpp_profile_give_up(profile, 1, mpp_live_at(&profile->live, 1)->serial);
    assert_int_equal(mpp_profile_live_count(profile), 10); /* what was alive at the end */
    mpp_profile_release(profile);
}

static void
a_detached_profile_knows_no_keys(void **state)
{
    (void)state;
    mpp_profile_t *profile = profile_of_ten();
    (void)mpp_profile_define_class(profile, 8, MPP_VIEW("Foo"));
    mpp_profile_detach(profile);
    mpp_profile_detach(profile);
    mpp_profile_forget_object(profile, 16);
    mpp_profile_forget_frame(profile, 1);
    mpp_profile_forget_class(profile, 8);
    mpp_profile_lose_track(profile);
    mpp_profile_rekey(profile, swap_neighbours, NULL);
    mpp_profile_sweep_keys(profile, nobody_visited, NULL);
    measurement_t measurement = {.profile = profile, .bytes = 1000};
    assert_int_equal(measure_all(&measurement, 3), 0);
    assert_int_equal(measurement.n_calls, 0);
    assert_int_equal(mpp_profile_live_count(profile), 10);
    assert_int_equal(support_profile_whole(live_sums(profile).live_bytes), 400);
    assert_int_equal(profile->n_dropped[MPP_DROP_UNTRACKED], 0);
    assert_int_equal(mpp_profile_find_class(profile, 8), 0);
    mpp_profile_release(profile);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drops_have_names),
        cmocka_unit_test(needs_some_memory),
        cmocka_unit_test(counts_exactly),
        cmocka_unit_test(a_sample_waits_until_its_frames_have_names),
        cmocka_unit_test(a_sweep_spares_the_names_of_waiting_frames),
        cmocka_unit_test(drops_beyond_the_pending_buffer),
        cmocka_unit_test(the_host_may_discard),
        cmocka_unit_test(names_again_what_was_forgotten_meanwhile),
        cmocka_unit_test(drops_what_is_forgotten_as_fast_as_it_is_named),
        cmocka_unit_test(a_failure_to_name_is_of_its_sample),
        cmocka_unit_test(caches_shrink_after_a_burst),
        cmocka_unit_test(no_memory_is_asked_for_in_the_steady_state),
        cmocka_unit_test(conserves_whatever_is_refused),
        cmocka_unit_test(conserves_in_any_budget),
        cmocka_unit_test(the_next_safe_point_relieves_a_shortage),
        cmocka_unit_test(looks_for_cold_rows_only_so_often),
        cmocka_unit_test(folds_the_coldest_rows),
        cmocka_unit_test(drops_when_every_row_has_live_objects),
        cmocka_unit_test(thinning_is_unbiased),
        cmocka_unit_test(thinning_is_fair_to_the_one_that_finds_no_room),
        cmocka_unit_test(thinning_lets_up),
        cmocka_unit_test(thinning_ends),
        cmocka_unit_test(a_small_budget_leaves_retained_unbiased),
        cmocka_unit_test(rows_held_by_records_make_room),
        cmocka_unit_test(memory_comes_back_after_a_burst),
        cmocka_unit_test(names_stay_while_rows_make_room),
        cmocka_unit_test(does_not_thin_for_nothing),
        cmocka_unit_test(drops_records_where_there_are_few_to_thin),
        cmocka_unit_test(a_detached_profile_is_not_thinned),
        cmocka_unit_test(thins_whichever_request_is_refused),
        cmocka_unit_test(counts_without_live_records),
        cmocka_unit_test(a_record_without_memory_is_counted_as_such),
        cmocka_unit_test(an_address_that_is_used_again_ends_the_old_record),
        cmocka_unit_test(keys_move),
        cmocka_unit_test(loses_track),
        cmocka_unit_test(class_names_are_remembered),
        cmocka_unit_test(measures_in_slices),
        cmocka_unit_test(measuring_survives_what_happens_meanwhile),
        cmocka_unit_test(the_dead_leave_where_they_are_found),
        cmocka_unit_test(the_dead_of_a_collection_leave),
        cmocka_unit_test(with_late_deaths_an_address_tells_nothing),
        cmocka_unit_test(a_commit_tells_of_its_record),
        cmocka_unit_test(a_detached_profile_knows_no_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
