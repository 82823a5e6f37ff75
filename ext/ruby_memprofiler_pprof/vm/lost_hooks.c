/*
 * Hooks that the VM has lost.
 * Which events are announced at all is one word of the VM, and before Ruby 4.0 a Ractor that is collected, or takes a
 * hook of its own out, sets it to what its own hooks want: ours are still in, and not called any more. So they are tried
 * out at each flush, and after a collection that finds allocations that were not seen.
 */
#include "own_work.h"
#include "vm.h"

/*
 * Amid is_called. Another tool's hook may collect garbage between the VM's count of an object and our hooks' (as that of
 * ObjectSpace's tracing does under GC.stress): a doubt raised by that would have itself looked into for ever.
 */
static bool is_probing;

static VALUE
allocate(VALUE unused)
{
    (void)unused;
    return rb_ary_new();
}

static bool
is_called(mpp_collector_t *collector)
{
    mpp_own_work_t own_work;
    uint64_t n_own = collector->n_own;
    VALUE error = rb_errinfo();
    int failed = 0;
    mpp_own_work_begin(&own_work);
    is_probing = true;
    rb_protect(allocate, Qnil, &failed);
    is_probing = false;
    mpp_own_work_end(&own_work);
    if (failed) mpp_compat_restore_error(error);
    return failed || collector->n_own != n_own;
}

/* Adding a hook makes the VM announce the events of all of this Ractor's. */
static void
put_in_again(mpp_collector_t *collector)
{
    mpp_hooks_remove_newobj(collector->self);
    collector->liveness->stop(collector, collector->self);
    collector->liveness->start(collector, collector->self);
    mpp_hooks_add_newobj(collector->self);
}

void
mpp_lost_hooks_mend(mpp_collector_t *collector)
{
    collector->hooks_doubtful = false;
    if (collector->state != MPP_RUNNING || mpp_process.n_pauses > 0) return;
    if (collector->bursts.running) {
        mpp_bursts_mend(collector);
        return;
    }
    bool lost = !is_called(collector);
    uint64_t unseen = mpp_run_unseen(collector, mpp_run_vm_allocated(collector));
    if (lost) {
        collector->n_hook_lost += unseen - collector->unseen_when_called;
        put_in_again(collector);
    }
    collector->unseen_when_called = unseen;
}

void
mpp_lost_hooks_doubt(mpp_collector_t *collector)
{
    if (is_probing || mpp_compat_in_other_ractor()) return;
    bool in_doubt = collector->bursts.running
                        ? mpp_bursts_doubt(collector)
                        : mpp_run_unseen(collector, mpp_run_vm_allocated(collector)) > collector->unseen_when_called;
    if (!in_doubt) return;
    collector->hooks_doubtful = true;
    mpp_compat_trigger_job();
}
