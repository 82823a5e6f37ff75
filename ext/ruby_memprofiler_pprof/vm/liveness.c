/*
 * The back ends that tell which sampled objects are still alive.
 *
 * free_hook: the FREEOBJ hook removes a record (and a cached frame or class) the moment its object dies. It rests on
 * every event arriving. Some do not (on 3.1 … 3.4 those of a collection that another Ractor runs), so the events are
 * counted against the VM's own counter wherever the two can be compared; when some are missing, all records and keys
 * are given up untouched rather than trusted.
 *
 * mark_hook, weak_map: see mark_hook.c and weak_map.c.
 *
 * none: no records. Deaths are not seen, so a cached key is marked while it is used and forgotten when it is not.
 */
#include "vm.h"

/* A sweep that compacts counts, as it ends, slots as freed whose objects it has moved before: both belong to one run. */
static void
start_free_hook(mpp_collector_t *collector, VALUE self)
{
    (void)collector;
    mpp_compat_finish_sweep();
    mpp_hooks_add_freeobj(self);
}

static void
stop_free_hook(mpp_collector_t *collector, VALUE self)
{
    (void)collector;
    mpp_hooks_remove_freeobj(self);
}

/*
 * From 3.4 the VM counts a move as an allocation and a death, but in `total_moved_objects` only the moves of compaction
 * itself, not those by which its read barrier puts objects back. Then as many allocations have no event as deaths.
 */
static bool
were_moved_back(mpp_collector_t *collector, size_t missing)
{
    if (!mpp_compat_counts_moves()) return false;
    if (missing != mpp_run_unseen(collector, mpp_run_vm_allocated(collector)) - collector->n_moved_back) return false;
    collector->n_moved_back += missing;
    collector->freed_base += missing;
    return true;
}

static size_t
missing_frees(const mpp_collector_t *collector)
{
    return mpp_compat_freed_objects() - collector->freed_base - collector->n_frees;
}

static void
verify_free_hook(mpp_collector_t *collector)
{
    /* What another Ractor is about to sweep will not be told: nothing that is recorded now can be trusted then. */
    if (mpp_compat_in_other_ractor()) mpp_profile_lose_track(collector->profile);

    if (!collector->freed_base_known) {
        mpp_compat_finish_sweep();
        collector->freed_base = mpp_compat_freed_objects() - collector->n_frees;
        collector->freed_base_known = true;
    }
    size_t missing = missing_frees(collector);
    if (missing != 0) { /* perhaps amid a sweep that compacts: the counts agree again at its end */
        mpp_compat_finish_sweep();
        missing = missing_frees(collector);
    }
    if (missing == 0 || were_moved_back(collector, missing)) return;
    mpp_profile_lose_track(collector->profile);
    collector->n_frees += missing_frees(collector);
}

/* During a sweep the dead stand in the table until it comes by. */
static mpp_finding_t
find_by_free_hook(mpp_walk_t *walk, const mpp_live_record_t *record, VALUE *object)
{
    *object = record->key;
    if (!walk->sweeping) return MPP_FOUND_ALIVE;
    if (record->born_sweeping && record->birth == (uint32_t)rb_gc_count()) return MPP_FOUND_ALIVE;
    return mpp_compat_survives_sweep(record->key) ? MPP_FOUND_ALIVE : MPP_FOUND_STALE;
}

void
mpp_liveness_start_nothing(mpp_collector_t *collector, VALUE self)
{
    (void)collector;
    (void)self;
}

void
mpp_liveness_verify_nothing(mpp_collector_t *collector)
{
    (void)collector;
}

int
mpp_liveness_follow_nothing(mpp_collector_t *collector, mpp_profile_t *profile, mpp_id_t record, VALUE object)
{
    (void)collector;
    (void)profile;
    (void)record;
    (void)object;
    return 0;
}

int
mpp_liveness_look_at_nothing(mpp_collector_t *collector, uint32_t n_samples)
{
    (void)collector;
    (void)n_samples;
    return 0;
}

static mpp_finding_t
find_nothing(mpp_walk_t *walk, const mpp_live_record_t *record, VALUE *object)
{
    (void)walk;
    (void)record;
    (void)object;
    return MPP_FOUND_STALE;
}

const mpp_liveness_t mpp_liveness_free_hook = {
    .name = "free_hook",
    .keeps_records = true,
    .sees_frees = true,
    .start = start_free_hook,
    .stop = stop_free_hook,
    .verify = verify_free_hook,
    .follow = mpp_liveness_follow_nothing,
    .look_around = mpp_liveness_look_at_nothing,
    .find = find_by_free_hook,
};

const mpp_liveness_t mpp_liveness_none = {
    .name = "none",
    .start = mpp_liveness_start_nothing,
    .stop = mpp_liveness_start_nothing,
    .verify = mpp_liveness_verify_nothing,
    .follow = mpp_liveness_follow_nothing,
    .look_around = mpp_liveness_look_at_nothing,
    .find = find_nothing,
};
