/*
 * The methods of Ruby's that are patched: prepended, and in C, so that no frame of ours is in a backtrace, no exception
 * of another thread comes in between, and no scheduler of fibers runs.
 *
 * Process._fork and Process.daemon (which does not call the first). In the child the hooks go in again that a pause has
 * left out, whose thread is not there, and the timer of burst mode is made again, for a child inherits none.
 *
 * Ractor.new, before Ruby 3.3. Those VMs crash when a Ractor's thread begins while a hook is in, for that thread
 * allocates, and may sweep, before it has a frame. So all hooks are out until it is past that point, with no collector
 * running too: one may start right after. Several threads may do so at once. Deaths that go unseen meanwhile are missed
 * in the count of FREEOBJ events.
 */
#include "vm.h"

#include <time.h>

static void
put_all_in(void)
{
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        collector->liveness->start(collector, collector->self);
        if (!collector->bursts.running) mpp_hooks_add_newobj(collector->self);
    }
    mpp_process.hooks_left_out = false;
}

/* -- forks -- */

static VALUE
warn_of(VALUE reason)
{
    VALUE text = rb_sprintf("MemprofilerPprof: at a fixed rate instead of in bursts, for %s", (const char *)reason);
    return rb_funcall(rb_mKernel, rb_intern("warn"), 1, text);
}

static void
mend(void)
{
    if (mpp_process.hooks_left_out) put_all_in();
    const char *reason = mpp_bursts_after_fork();
    if (reason == NULL) return;
    VALUE error = rb_errinfo();
    int state = 0;
    rb_protect(warn_of, (VALUE)reason, &state); /* a program may make warnings raise: not out of a fork */
    if (state) mpp_compat_restore_error(error);
}

static VALUE
process_fork(int argc, VALUE *argv, VALUE module)
{
    (void)module;
    VALUE pid = rb_call_super(argc, argv);
    if (pid == INT2FIX(0)) mend();
    return pid;
}

/* Comes back in the child alone. */
static VALUE
process_daemon(int argc, VALUE *argv, VALUE module)
{
    (void)module;
    VALUE result = rb_call_super(argc, argv);
    mend();
    return result;
}

static VALUE
define_patch(VALUE module, const char *name, VALUE patched)
{
    VALUE patch = rb_define_module_under(module, name);
    rb_funcall(module, rb_intern("private_constant"), 1, ID2SYM(rb_intern(name)));
    rb_prepend_module(rb_singleton_class(patched), patch);
    return patch;
}

/* -- the beginning of a Ractor -- */

#if !MPP_RUBY_AT_LEAST(3, 3)
#include <ruby/ractor.h>

/* The longest wait for a thread whose beginning cannot be seen from here: it has replaced its streams, and goes on. */
#define LONGEST_NS UINT64_C(1000000000)
#define NAP_NS 100000
#define N_STREAMS 3

typedef struct {
    int argc;
    const VALUE *argv;
    int keywords;
    VALUE ractor; /* nil until it is known: it may have begun all the same when something strikes */
} creation_t;

static void
take_all_out(void)
{
    mpp_process.n_pauses++;
    for (mpp_collector_t *collector = mpp_process.running; collector; collector = collector->next_running) {
        mpp_hooks_remove_newobj(collector->self);
        mpp_bursts_close(collector);
        collector->liveness->stop(collector, collector->self);
    }
}

static VALUE
create(VALUE argument)
{
    creation_t *creation = (creation_t *)argument;
    return creation->ractor = rb_call_super_kw(creation->argc, creation->argv, creation->keywords);
}

/* What the thread allocates too early are the Ractor's three standard streams. */
static bool
has_begun(VALUE ractor)
{
    VALUE reachable = rb_funcall(rb_path2class("ObjectSpace"), rb_intern("reachable_objects_from"), 1, ractor);
    int n_streams = 0;
    for (long i = 0; i < RARRAY_LEN(reachable); i++) {
        if (RB_TYPE_P(RARRAY_AREF(reachable, i), RUBY_T_FILE)) n_streams++;
    }
    if (n_streams >= N_STREAMS) return true;
    VALUE text = rb_inspect(ractor); /* ends with its state */
    return RTEST(rb_funcall(text, rb_intern("end_with?"), 1, rb_str_new_cstr(" terminated>")));
}

static VALUE
all_have_begun(VALUE ractor)
{
    if (!NIL_P(ractor)) return has_begun(ractor) ? Qtrue : Qfalse;
    VALUE main = rb_funcall(rb_cRactor, rb_intern("main"), 0);
    VALUE each = rb_funcall(rb_path2class("ObjectSpace"), rb_intern("each_object"), 1, rb_cRactor);
    VALUE all = rb_funcall(each, rb_intern("to_a"), 0);
    for (long i = 0; i < RARRAY_LEN(all); i++) {
        VALUE one = RARRAY_AREF(all, i);
        if (one != main && !has_begun(one)) return Qfalse;
    }
    return Qtrue;
}

static void *
nap(void *unused)
{
    struct timespec time = {.tv_nsec = NAP_NS};
    (void)unused;
    nanosleep(&time, NULL);
    return NULL;
}

static VALUE
let_others_run(VALUE unused)
{
    (void)unused;
    rb_thread_call_without_gvl(nap, NULL, NULL, NULL);
    return Qnil;
}

/* What strikes meanwhile waits. */
static VALUE
await(VALUE argument)
{
    creation_t *creation = (creation_t *)argument;
    uint64_t deadline = mpp_clock_ns() + LONGEST_NS;
    VALUE former = rb_errinfo(), error = Qnil, begun = Qfalse;
    int struck = 0;
    while (!RTEST(begun) && mpp_clock_ns() < deadline) {
        int states[2] = {0, 0};
        begun = rb_protect(all_have_begun, creation->ractor, &states[0]);
        if (states[0]) begun = Qfalse;
        if (!RTEST(begun) && !states[0]) rb_protect(let_others_run, Qnil, &states[1]);
        if (!states[0] && !states[1]) continue;
        struck = states[0] ? states[0] : states[1];
        error = rb_errinfo();
        mpp_compat_restore_error(former);
    }
    if (mpp_process.n_pauses > 0 && --mpp_process.n_pauses == 0) put_all_in();
    if (mpp_process.hooks_left_out) put_all_in(); /* a child that goes on from here */
    if (struck) {
        mpp_compat_restore_error(error);
        rb_jump_tag(struck);
    }
    return Qnil;
}

static VALUE
ractor_new(int argc, VALUE *argv, VALUE class)
{
    (void)class;
    creation_t creation = {argc, argv, rb_keyword_given_p() ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS, Qnil};
    if (mpp_compat_in_other_ractor()) return create((VALUE)&creation);
    take_all_out();
    return rb_ensure(create, (VALUE)&creation, await, (VALUE)&creation);
}
#endif

void
mpp_patches_define(VALUE module)
{
    VALUE forks = define_patch(module, "Fork", rb_mProcess);
    rb_define_method(forks, "_fork", process_fork, -1);
    rb_define_method(forks, "daemon", process_daemon, -1);
#if !MPP_RUBY_AT_LEAST(3, 3)
    rb_require("objspace");
    rb_define_method(define_patch(module, "RactorPause", rb_cRactor), "new", ractor_new, -1);
#endif
}
