/*
 * One walk of the Ruby stack into the collector's scratch arrays, and the sample is the core's. One frame more than the
 * limit is asked for, to know whether frames towards the root were left out. One walk in MPP_TIMED_EVERY is timed.
 * Near the end of the C stack there is no walk: were the guard page met in here, the VM's exception would leave an
 * allocation, and our tables, half done.
 */
#include "vm.h"

#include <time.h>

uint64_t
mpp_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void
walk(mpp_collector_t *collector, VALUE object, mpp_weight_t weight)
{
    uint32_t limit = collector->config.max_depth;
    int found = rb_profile_frames(0, (int)limit + 1, collector->frames, collector->lines);
    uint32_t n = found > 0 ? (uint32_t)found : 0;
    if (n > 0 && collector->frames[n - 1] == mpp_compat_dummy_root) n--;
    /* The VM tells no line of compiled code at the top, though what compiled code calls finds it. */
    if (n > 0 && collector->lines[0] == 0 && mpp_compat_is_ruby(collector->frames[0])) collector->lines[0] = rb_sourceline();
    mpp_backtrace_t backtrace = {.frames = collector->frames, .lines = collector->lines, .n = n};
    if (n > limit) {
        backtrace.n = limit;
        backtrace.truncated = true;
    }
    mpp_profile_sample(collector->profile, object, weight, &backtrace);
}

void
mpp_backtrace_sample(mpp_collector_t *collector, VALUE object, mpp_weight_t weight)
{
    if (MPP_UNLIKELY(ruby_stack_check())) {
        static const mpp_backtrace_t no_frames = {.truncated = true};
        mpp_profile_sample(collector->profile, object, weight, &no_frames);
        return;
    }
    if (MPP_LIKELY(collector->n_samples % MPP_TIMED_EVERY != 0)) {
        walk(collector, object, weight);
        return;
    }
    uint64_t start = mpp_clock_ns();
    walk(collector, object, weight);
    collector->costs.hook_ns += (mpp_clock_ns() - start) * MPP_TIMED_EVERY;
}
