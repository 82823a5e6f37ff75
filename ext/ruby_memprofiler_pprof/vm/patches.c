/*
 * The methods of Ruby's that are patched: prepended, and in C, so that what they call is called from where the program
 * stands, no exception of another thread comes in between, and no scheduler of fibers runs. Every Ractor may call them.
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

static VALUE
ignore(VALUE unused, VALUE error)
{
    (void)unused, (void)error;
    return Qnil;
}

static void
mend(void)
{
    if (mpp_compat_in_other_ractor()) return;
    if (mpp_process.hooks_left_out) put_all_in();
    const char *reason = mpp_bursts_after_fork();
    if (reason == NULL) return;
    /* A program may make warnings raise: not out of a fork. */
    rb_rescue2(warn_of, (VALUE)reason, ignore, Qnil, rb_eStandardError, (VALUE)0);
}

static VALUE
process_fork(VALUE module)
{
    (void)module;
    VALUE pid = rb_call_super(0, NULL);
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
#include <ruby/thread.h>

#define NAP_NS 100000
#define N_STREAMS 3
/* The longest waits for a thread whose beginning cannot be seen for certain: where it has some of its streams, or others of the
 * program's in their place; and where it has none that are seen. */
#define LONGEST_WITH_STREAMS_NS UINT64_C(50000000)
#define LONGEST_NS UINT64_C(1000000000)

static VALUE main_ractor, reachable_objects_from; /* the latter a Method */

typedef struct {
    int argc;
    const VALUE *argv;
    int keywords;
    VALUE ractor; /* nil where something struck: it may have begun all the same */
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

/*
 * What the thread allocates too early are the Ractor's three standard streams. One that has ended has no thread any more.
 * No method in Ruby is called, so no interrupt is checked.
 */
static bool
has_begun(VALUE ractor, uint64_t waited_ns)
{
    VALUE objects = rb_method_call(1, &ractor, reachable_objects_from);
    int n_streams = 0, n_threads = 0;
    if (!RB_TYPE_P(objects, RUBY_T_ARRAY)) return true;
    for (long i = 0; i < RARRAY_LEN(objects); i++) {
        VALUE object = RARRAY_AREF(objects, i);
        if (RB_TYPE_P(object, RUBY_T_FILE)) n_streams++;
        if (RTEST(rb_obj_is_kind_of(object, rb_cThread))) n_threads++;
    }
    if (n_streams >= N_STREAMS || n_threads == 0) return true;
    return waited_ns > (n_streams > 0 ? LONGEST_WITH_STREAMS_NS : LONGEST_NS);
}

static bool
all_have_begun(uint64_t waited_ns)
{
    VALUE each = rb_funcall(rb_path2class("ObjectSpace"), rb_intern("each_object"), 1, rb_cRactor);
    VALUE all = rb_funcall(each, rb_intern("to_a"), 0);
    for (long i = 0; i < RARRAY_LEN(all); i++) {
        VALUE ractor = RARRAY_AREF(all, i);
        if (ractor != main_ractor && !has_begun(ractor, waited_ns)) return false;
    }
    return true;
}

static void *
nap(void *unused)
{
    struct timespec time = {.tv_nsec = NAP_NS};
    (void)unused;
    nanosleep(&time, NULL);
    return NULL;
}

/* What waits to strike this thread goes on waiting: then the VM does not let go of its lock. */
static void
let_others_run(void)
{
    uint64_t start = mpp_clock_ns();
    rb_thread_call_without_gvl2(nap, NULL, NULL, NULL);
    if (mpp_clock_ns() - start < NAP_NS) nap(NULL);
}

static VALUE
await(VALUE argument)
{
    const creation_t *creation = (const creation_t *)argument;
    uint64_t start = mpp_clock_ns();
    for (;;) {
        uint64_t waited_ns = mpp_clock_ns() - start;
        bool known = RTEST(rb_obj_is_kind_of(creation->ractor, rb_cRactor));
        if (known ? has_begun(creation->ractor, waited_ns) : all_have_begun(waited_ns)) break;
        let_others_run();
    }
    if (mpp_process.n_pauses > 0 && --mpp_process.n_pauses == 0) put_all_in();
    if (mpp_process.hooks_left_out) put_all_in(); /* a child that goes on from here */
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
#if !MPP_RUBY_AT_LEAST(3, 3)
    VALUE beginnings = define_patch(module, "RactorPause", rb_cRactor);
    rb_require("objspace");
    main_ractor = rb_funcall(rb_cRactor, rb_intern("main"), 0);
    reachable_objects_from = rb_obj_method(rb_path2class("ObjectSpace"), ID2SYM(rb_intern("reachable_objects_from")));
    rb_gc_register_mark_object(main_ractor);
    rb_gc_register_mark_object(reachable_objects_from);
#endif
    rb_ext_ractor_safe(true);
    rb_define_method(forks, "_fork", process_fork, 0);
    rb_define_method(forks, "daemon", process_daemon, -1);
#if !MPP_RUBY_AT_LEAST(3, 3)
    rb_define_method(beginnings, "new", ractor_new, -1);
#endif
    rb_ext_ractor_safe(false);
}
