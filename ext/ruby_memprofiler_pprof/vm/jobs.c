/*
 * The safe point: what the hooks left waiting is named, measured and handed to the profile.
 * A drain checks no interrupts, so no other thread and no exception comes in between; but it may run nested, on the
 * same thread, inside a trap handler or a finalizer, and a collection may run at any call that allocates. Hence: each
 * sample is taken off before it is handled, its object stands on this C stack until done (which marks and pins it), and
 * the whole is done with the profile retained. What raises all the same (NoMemoryError) costs the sample in hand.
 */
#include "vm.h"

/* After so many samples at once the tables give back what only that burst needed. */
#define BURST_SAMPLES 16384

typedef struct {
    mpp_profile_t *profile;
    uint32_t n_drained;
    mpp_sample_t sample;
    bool in_hand;
    mpp_birth_t stamp;
} drain_t;

/* Frames first: none of them may be collected before the sample's stack is released by commit. */
static void
name_frames(drain_t *drain)
{
    uintptr_t frame;
    while ((frame = mpp_profile_unknown_frame(drain->profile, &drain->sample)) != 0) {
        if (mpp_names_define_frame(drain->profile, frame) != MPP_OK) return; /* commit will count it as dropped */
    }
}

static VALUE
drain_all(VALUE argument)
{
    drain_t *drain = (drain_t *)argument;
    while (mpp_profile_take(drain->profile, &drain->sample)) {
        drain->in_hand = true;
        drain->n_drained++;
        VALUE object = drain->sample.entry.object;
        mpp_birth_t birth = drain->stamp;
        bool ran_foreign_code;

        if (drain->sample.entry.raw) name_frames(drain);
        birth.class_name = mpp_names_class(drain->profile, object);
        birth.bytes = mpp_compat_memsize(object, &ran_foreign_code);
        drain->in_hand = false;
        mpp_profile_commit(drain->profile, &drain->sample, &birth);
        RB_GC_GUARD(object);
    }
    return Qnil;
}

static void
drain_timed(mpp_collector_t *collector)
{
    bool timed = collector->costs.n_jobs++ % MPP_TIMED_EVERY == 0;
    uint64_t start = timed ? mpp_clock_ns() : 0;
    drain_t drain = {
        .profile = collector->profile,
        .stamp = {.gc_count = (uint32_t)rb_gc_count(), .sweeping = mpp_compat_gc_sweeping(), .live = true},
    };
    VALUE error = rb_errinfo();
    mpp_profile_retain(drain.profile);
    for (int state = -1; state != 0;) {
        rb_protect(drain_all, (VALUE)&drain, &state);
        if (state == 0) break;
        rb_set_errinfo(error);
        mpp_birth_t nothing = {.live = false};
        if (drain.in_hand) mpp_profile_commit(drain.profile, &drain.sample, &nothing);
        drain.in_hand = false;
    }
    if (drain.n_drained >= BURST_SAMPLES) mpp_profile_trim(drain.profile);
    mpp_profile_release(drain.profile);
    if (timed) collector->costs.jobs_ns += (mpp_clock_ns() - start) * MPP_TIMED_EVERY;
}

void
mpp_jobs_drain(mpp_collector_t *collector)
{
    if (collector->profile == NULL || mpp_profile_pending_count(collector->profile) == 0) return;
    mpp_own_work_t own_work;
    mpp_own_work_begin(&own_work);
    drain_timed(collector);
    mpp_own_work_end(&own_work);
}

static mpp_collector_t *
next_with_pending(void)
{
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        mpp_run_notice_fork(collector);
        if (collector->profile && mpp_profile_pending_count(collector->profile) > 0) return collector;
    }
    return NULL;
}

void
mpp_jobs_run(void *unused)
{
    (void)unused;
    if (mpp_compat_in_other_ractor()) return;
    mpp_collector_t *collector;
    while ((collector = next_with_pending()) != NULL) mpp_jobs_drain(collector);
}
