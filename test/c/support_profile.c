#include "support_profile.h"

#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 64

static const char padding[] = "____________________________________________________________________________________________________";

mpp_profile_config_t
support_profile_config(void)
{
    return (mpp_profile_config_t){
        .memory_limit_bytes = 64u << 20,
        .max_rows = 10000,
        .max_live = 100000,
        .max_pending = 1024,
        .max_depth = MAX_DEPTH,
        .tracks_live = true,
        .seed = 1,
    };
}

mpp_profile_t *
support_profile_new(const mpp_profile_config_t *config)
{
    mpp_profile_t *profile;
    assert_int_equal(mpp_profile_new(config, &profile), MPP_OK);
    return profile;
}

void
support_profile_sample(mpp_profile_t *profile, const support_allocation_t *allocation)
{
    uintptr_t frames[MAX_DEPTH];
    int lines[MAX_DEPTH];
    mpp_backtrace_t backtrace = {frames, lines, allocation->depth ? allocation->depth : 1, false};
    for (uint32_t i = 0; i < backtrace.n; i++) {
        frames[i] = allocation->frame + i;
        lines[i] = (int)frames[i];
    }
    mpp_weight_t weight = allocation->weight ? allocation->weight : MPP_WEIGHT_ONE;
    mpp_profile_sample(profile, allocation->object, weight, &backtrace);
}

static mpp_view_t
numbered(char *buffer, size_t size, const char *kind, uintptr_t number, uint32_t longer_by)
{
    int length = snprintf(buffer, size, "%s%llu%.*s", kind, (unsigned long long)number, (int)longer_by, padding);
    return (mpp_view_t){buffer, (size_t)length};
}

void
support_profile_commit(mpp_profile_t *profile, const support_allocation_t *allocation)
{
    char name[40 + sizeof padding];
    mpp_sample_t sample;
    assert_true(mpp_profile_take(profile, &sample));
    for (uintptr_t frame; (frame = mpp_profile_unknown_frame(profile, &sample)) != 0;) {
        mpp_view_t view = numbered(name, sizeof name, "frame", frame, allocation->longer_by);
        mpp_status_t status = mpp_profile_define_frame(profile, frame, view, MPP_VIEW("a.rb"), 1);
        if (status != MPP_OK) assert_true(support_refused(status));
    }
    mpp_birth_t birth = {
        .bytes = allocation->bytes,
        .gc_count = allocation->gc_count,
        .live = !allocation->dead,
    };
    if (allocation->class_key) {
        mpp_view_t view = numbered(name, sizeof name, "Class", allocation->class_key, allocation->longer_by);
        birth.class_name = mpp_profile_find_class(profile, allocation->class_key);
        if (!birth.class_name) birth.class_name = mpp_profile_define_class(profile, allocation->class_key, view);
    }
    mpp_profile_commit(profile, &sample, &birth);
}

void
support_profile_allocate(mpp_profile_t *profile, const support_allocation_t *allocation)
{
    uint32_t n_before = mpp_profile_pending_count(profile);
    support_profile_sample(profile, allocation);
    if (mpp_profile_pending_count(profile) > n_before) support_profile_commit(profile, allocation);
}

void
support_profile_discard(mpp_profile_t *profile, const support_allocation_t *allocation, mpp_drop_t reason)
{
    mpp_sample_t sample;
    support_profile_sample(profile, allocation);
    assert_true(mpp_profile_take(profile, &sample));
    mpp_profile_discard(profile, &sample, reason);
}

mpp_profile_stats_t
support_profile_stats(const mpp_profile_t *profile)
{
    mpp_profile_stats_t stats;
    mpp_profile_stats(profile, &stats);
    return stats;
}

mpp_snapshot_t *
support_profile_snapshot(mpp_profile_t *profile, bool delta)
{
    mpp_snapshot_t *snapshot;
    mpp_snapshot_options_t options = {.delta = delta};
    assert_int_equal(mpp_profile_snapshot(profile, &options, &snapshot), MPP_OK);
    return snapshot;
}

const mpp_snapshot_row_t *
support_profile_row(const mpp_snapshot_t *snapshot, const char *leaf)
{
    const mpp_snapshot_view_t *view = &snapshot->view;
    for (uint32_t i = 0; i < view->n_rows; i++) {
        const mpp_stack_t *stack = mpp_frames_get_stack(view->frames, view->rows[i].stack);
        const mpp_location_t *location = mpp_frames_get_location(view->frames, stack->location);
        const mpp_function_t *function = mpp_frames_get_function(view->frames, location->function);
        mpp_view_t name = mpp_strtab_view(view->strings, function->name);
        if (name.length == strlen(leaf) && memcmp(name.bytes, leaf, name.length) == 0) return &view->rows[i];
    }
    return NULL;
}

uint64_t
support_profile_total(const mpp_snapshot_t *snapshot, int value)
{
    mpp_sum_t sum = 0;
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) sum += snapshot->view.rows[i].values[value];
    return support_profile_whole(sum);
}

uint64_t
support_profile_whole(mpp_sum_t sum)
{
    assert_int_equal((uint64_t)sum & (MPP_WEIGHT_ONE - 1), 0);
    return (uint64_t)(sum >> MPP_WEIGHT_BITS);
}
