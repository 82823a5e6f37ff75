/*
 * The least an allocation profiler pays, to measure ours against: the raw NEWOBJ hook, empty or with a walk of the stack
 * (frames and lines) at every n-th allocation and an empty job at the safe point after it, and the raw FREEOBJ hook,
 * empty. What is walked is thrown away.
 */
#include <ruby.h>
#include <ruby/debug.h>

#define MAX_FRAMES 513 /* as a collector with the default depth asks for */

static VALUE frames[MAX_FRAMES];
static int lines[MAX_FRAMES];
static int n_frames;
static long walk_every, until_walk;
static int with_job;

#ifdef HAVE_RB_POSTPONED_JOB_PREREGISTER
static rb_postponed_job_handle_t job_handle;
#endif

static void
empty_job(void *unused)
{
    (void)unused;
}

static void
trigger_job(void)
{
#ifdef HAVE_RB_POSTPONED_JOB_PREREGISTER
    rb_postponed_job_trigger(job_handle);
#else
    rb_postponed_job_register_one(0, empty_job, NULL);
#endif
}

static void
on_newobj(VALUE data, const rb_trace_arg_t *event)
{
    (void)data;
    (void)event;
}

static void
on_newobj_walk(VALUE data, const rb_trace_arg_t *event)
{
    (void)data;
    (void)event;
    if (--until_walk > 0) return;
    until_walk = walk_every;
    n_frames = rb_profile_frames(0, MAX_FRAMES, frames, lines);
    if (with_job) trigger_job();
}

static void
on_freeobj(VALUE data, const rb_trace_arg_t *event)
{
    (void)data;
    (void)event;
}

static rb_event_hook_func_t
hook(void (*function)(VALUE, const rb_trace_arg_t *))
{
    return (rb_event_hook_func_t)(void (*)(void))function;
}

static void
add(void (*function)(VALUE, const rb_trace_arg_t *), rb_event_flag_t event)
{
    rb_add_event_hook2(hook(function), event, Qnil, RUBY_EVENT_HOOK_FLAG_SAFE | RUBY_EVENT_HOOK_FLAG_RAW_ARG);
}

static VALUE
install(VALUE self, VALUE every, VALUE job, VALUE deaths)
{
    walk_every = until_walk = NUM2LONG(every);
    with_job = RTEST(job);
    add(walk_every ? on_newobj_walk : on_newobj, RUBY_INTERNAL_EVENT_NEWOBJ);
    if (RTEST(deaths)) add(on_freeobj, RUBY_INTERNAL_EVENT_FREEOBJ);
    return self;
}

static VALUE
take_out(VALUE self)
{
    rb_remove_event_hook(hook(on_newobj));
    rb_remove_event_hook(hook(on_newobj_walk));
    rb_remove_event_hook(hook(on_freeobj));
    return self;
}

static VALUE
last_depth(VALUE self)
{
    (void)self;
    return INT2FIX(n_frames);
}

void
Init_memprofiler_floor(void)
{
#ifdef HAVE_RB_POSTPONED_JOB_PREREGISTER
    job_handle = rb_postponed_job_preregister(0, empty_job, NULL);
#endif
    VALUE module = rb_define_module("MemprofilerFloor");
    rb_define_module_function(module, "install", install, 3);
    rb_define_module_function(module, "remove", take_out, 0);
    rb_define_module_function(module, "last_depth", last_depth, 0);
}
