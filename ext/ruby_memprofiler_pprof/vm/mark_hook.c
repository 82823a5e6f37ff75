/*
 * The back end that costs nothing when an object is freed, for Rubies that tell which objects are marked (before 3.4):
 * at the end of each marking, which is an event, the live records are gone through, and those whose object is not
 * marked leave. What stays is alive, and its address good until the next collection; compaction re-keys.
 *
 * It rests on every such event arriving: some do not (those of a collection that another Ractor runs, or that runs
 * within an event of somebody else's). So at each look, the collections begun are compared with those whose marking
 * was seen to end; where they differ, all records are given up untouched.
 */
#include "vm.h"

static bool
is_marked(void *unused, uintptr_t key)
{
    (void)unused;
    return mpp_compat_is_marked(key);
}

static void
on_end_of_marking(VALUE self, rb_trace_arg_t *event)
{
    MPP_IN_HOOK;
    mpp_collector_t *collector = RTYPEDDATA_DATA(self);
    (void)event;
    mpp_run_notice_fork(collector);
    if (collector->profile) mpp_profile_forget_dead(collector->profile, is_marked, NULL);
    collector->marks_seen = (uint32_t)rb_gc_count();
}

static void
start(mpp_collector_t *collector, VALUE self)
{
    (void)collector;
    mpp_hooks_add_event(self, on_end_of_marking, RUBY_INTERNAL_EVENT_GC_END_MARK);
}

static void
stop(mpp_collector_t *collector, VALUE self)
{
    (void)collector;
    mpp_hooks_remove_event(self, on_end_of_marking);
}

static void
verify(mpp_collector_t *collector)
{
    uint32_t ended = mpp_run_marks_ended();
    if (mpp_compat_in_other_ractor() || ended != collector->marks_seen) mpp_profile_lose_track(collector->profile);
    collector->marks_seen = ended;
}

static mpp_finding_t
find(mpp_walk_t *walk, const mpp_live_record_t *record, VALUE *object)
{
    (void)walk;
    *object = record->key;
    return MPP_FOUND_ALIVE;
}

const mpp_liveness_t mpp_liveness_mark_hook = {
    .name = "mark_hook",
    .keeps_records = true,
    .start = start,
    .stop = stop,
    .verify = verify,
    .follow = mpp_liveness_follow_nothing,
    .look_around = mpp_liveness_look_at_nothing,
    .find = find,
};
