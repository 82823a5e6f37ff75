/*
 * Ruby before 3.3 crashes when a Ractor's thread begins while a hook is active, for that thread allocates, and may sweep,
 * before it has a frame. Ruby code takes the hooks out around Ractor.new, which several threads may do at once. Deaths
 * that go unseen meanwhile are missed in the count of FREEOBJ events. A fork amid a pause leaves them out in the child,
 * which puts them in again by itself.
 */
#include "vm.h"
static VALUE
pause_all(VALUE module)
{
    (void)module;
    mpp_process.n_pauses++;
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        mpp_hooks_remove_newobj(collector->self);
        mpp_bursts_close(collector);
        collector->liveness->stop(collector, collector->self);
    }
    return Qnil;
}

static void
put_all_in(void)
{
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        collector->liveness->start(collector, collector->self);
        if (!collector->bursts.running) mpp_hooks_add_newobj(collector->self);
    }
}

static VALUE
resume_all(VALUE module)
{
    (void)module;
    if (mpp_process.n_pauses > 0 && --mpp_process.n_pauses == 0) put_all_in();
    return Qnil;
}

static VALUE
mend(VALUE module)
{
    (void)module;
    if (mpp_process.hooks_left_out) put_all_in();
    mpp_process.hooks_left_out = false;
    const char *reason = mpp_bursts_after_fork();
    return reason ? rb_str_new_cstr(reason) : Qnil;
}

void
mpp_pause_define(VALUE module)
{
    rb_define_private_method(rb_singleton_class(module), "pause_native", pause_all, 0);
    rb_define_private_method(rb_singleton_class(module), "resume_native", resume_all, 0);
    rb_define_private_method(rb_singleton_class(module), "mend_native", mend, 0);
}
