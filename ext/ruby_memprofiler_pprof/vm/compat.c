/*
 * See compat.h. Symbols are resolved once: rb_gc_stat and its kin allocate on their first use, and the hooks may not.
 */
#include "contract.h"

#include <ruby/ractor.h>
#include <sys/mman.h>

#ifdef HAVE_RB_OBJ_MEMSIZE_OF
extern size_t rb_obj_memsize_of(VALUE object);
#else
#error "this Ruby does not export rb_obj_memsize_of"
#endif
#if MPP_RUBY_AT_LEAST(3, 4) && defined(HAVE_RB_OBJSPACE_GARBAGE_OBJECT_P)
#define MPP_ASK_GARBAGE
extern bool rb_objspace_garbage_object_p(VALUE object);
#elif MPP_TELLS_MARKED
extern int rb_objspace_marked_object_p(VALUE object);
#endif
#ifdef HAVE_RB_GC_SET_PENDING_INTERRUPT
extern void rb_gc_set_pending_interrupt(void);
extern void rb_gc_unset_pending_interrupt(void);
#endif

static VALUE sym_total_allocated_objects, sym_total_freed_objects, sym_heap_final_slots, sym_state, sym_sweeping,
    sym_marking, sym_none;
#if MPP_RUBY_AT_LEAST(3, 4)
static VALUE sym_total_moved_objects;
#endif

static VALUE
symbol(const char *name)
{
    return ID2SYM(rb_intern(name)); /* interned by name from C: never collected */
}

#ifdef HAVE_RB_POSTPONED_JOB_PREREGISTER
static rb_postponed_job_handle_t job_handle;

static void
register_job(void (*job)(void *))
{
    job_handle = rb_postponed_job_preregister(0, job, NULL);
    if (job_handle == POSTPONED_JOB_HANDLE_INVALID) {
        rb_raise(rb_eLoadError, "ruby_memprofiler_pprof: Ruby has no postponed job left to register");
    }
}

void
mpp_compat_trigger_job(void)
{
    rb_postponed_job_trigger(job_handle);
}
#else
static void (*job_function)(void *);

static void
register_job(void (*job)(void *))
{
    job_function = job;
}

void
mpp_compat_trigger_job(void)
{
    rb_postponed_job_register_one(0, job_function, NULL);
}
#endif

static rb_ractor_local_key_t main_ractor_key;

static void
note_main_ractor(void)
{
    static const struct rb_ractor_local_storage_type not_owned = {NULL, NULL};
    static char marker;
    main_ractor_key = rb_ractor_local_storage_ptr_newkey(&not_owned);
    rb_ractor_local_storage_ptr_set(main_ractor_key, &marker);
}

bool
mpp_compat_in_other_ractor(void)
{
    return rb_ractor_local_storage_ptr(main_ractor_key) == NULL;
}

#define MAX_FRAMES_AT_LOAD 4096

/* It is the VM's for good: never freed, never moved. */
VALUE mpp_compat_dummy_root;

static void
find_dummy_root(void)
{
    static VALUE frames[MAX_FRAMES_AT_LOAD];
    static int lines[MAX_FRAMES_AT_LOAD];
    int n = rb_profile_frames(0, MAX_FRAMES_AT_LOAD, frames, lines);
    if (n == 0 || n == MAX_FRAMES_AT_LOAD) return;
    VALUE root = frames[n - 1];
    if (lines[n - 1] == 0 && NIL_P(rb_profile_frame_absolute_path(root)) && NIL_P(rb_profile_frame_method_name(root))) {
        mpp_compat_dummy_root = root;
    }
}

void
mpp_compat_init(void (*job)(void *))
{
    sym_total_allocated_objects = symbol("total_allocated_objects");
    sym_total_freed_objects = symbol("total_freed_objects");
    sym_heap_final_slots = symbol("heap_final_slots");
#if MPP_RUBY_AT_LEAST(3, 4)
    sym_total_moved_objects = symbol("total_moved_objects");
#endif
    sym_state = symbol("state");
    sym_sweeping = symbol("sweeping");
    sym_marking = symbol("marking");
    sym_none = symbol("none");
    register_job(job);
    note_main_ractor();
    find_dummy_root();
    (void)mpp_compat_allocated_objects();
    (void)mpp_compat_freed_objects();
    (void)mpp_compat_gc_sweeping();
}

static size_t
moved_objects(void)
{
#if MPP_RUBY_AT_LEAST(3, 4)
    return rb_gc_stat(sym_total_moved_objects); /* each move adds one to both counters, without an event */
#else
    return 0;
#endif
}

bool
mpp_compat_counts_moves(void)
{
    return moved_objects() > 0;
}

size_t
mpp_compat_allocated_objects(void)
{
    return rb_gc_stat(sym_total_allocated_objects) - moved_objects();
}

size_t
mpp_compat_freed_objects(void)
{
    return rb_gc_stat(sym_total_freed_objects) + rb_gc_stat(sym_heap_final_slots) - moved_objects();
}

bool
mpp_compat_gc_sweeping(void)
{
    return rb_gc_latest_gc_info(sym_state) == sym_sweeping;
}

bool
mpp_compat_gc_marking(void)
{
    return rb_gc_latest_gc_info(sym_state) == sym_marking;
}

bool
mpp_compat_gc_idle(void)
{
    return rb_gc_latest_gc_info(sym_state) == sym_none;
}

void
mpp_compat_finish_sweep(void)
{
    if (mpp_compat_gc_sweeping() && !RTEST(rb_gc_disable())) rb_gc_enable(); /* what to disable ends first */
}

static VALUE
collect(VALUE unused)
{
    rb_gc_start();
    return unused;
}

static VALUE
end_collecting(VALUE was_disabled)
{
    if (RTEST(was_disabled)) rb_gc_disable();
    return Qnil;
}

void
mpp_compat_collect_garbage(void)
{
    VALUE was_disabled = rb_gc_enable(); /* before 3.4 rb_gc_start does nothing while it is disabled */
    rb_ensure(collect, Qnil, end_collecting, was_disabled);
}

bool
mpp_compat_survives_sweep(VALUE object)
{
#if defined(MPP_ASK_GARBAGE)
    return !rb_objspace_garbage_object_p(object);
#else
    return mpp_compat_is_marked(object);
#endif
}

bool
mpp_compat_is_marked(VALUE object)
{
#if MPP_TELLS_MARKED
    return rb_objspace_marked_object_p(object);
#else
    (void)object;
    return false;
#endif
}

bool
mpp_compat_is_ruby(VALUE frame)
{
    return !NIL_P(rb_profile_frame_path(frame));
}

#ifdef HAVE_RB_GC_SET_PENDING_INTERRUPT
static bool
is_named(VALUE frame, const char *name)
{
    VALUE method = rb_profile_frame_method_name(frame);
    size_t length = strlen(name);
    if (!RB_TYPE_P(method, RUBY_T_STRING) || (size_t)RSTRING_LEN(method) != length) return false;
    return memcmp(RSTRING_PTR(method), name, length) == 0;
}

/* A thread whose interrupts are looked for in Ruby code, or where an object is made, does not sleep. Others may. */
static bool
is_awake(void)
{
    VALUE frame;
    int line;
    if (rb_profile_frames(0, 1, &frame, &line) < 1) return false;
    return mpp_compat_is_ruby(frame) || is_named(frame, "initialize") || is_named(frame, "new");
}

/* Whether interrupts of the running thread are held: one that nothing comes of does not show then. Not for a thread that
 * sleeps: that would go on. */
static bool
are_held(void)
{
    VALUE thread = rb_thread_current();
    if (rb_thread_interrupted(thread)) return false;
    rb_thread_wakeup_alive(thread);
    return !rb_thread_interrupted(thread);
}
#endif

mpp_holding_t
mpp_compat_hold_exceptions(void)
{
#ifdef HAVE_RB_GC_SET_PENDING_INTERRUPT
    /* An object counts as one that waits for its finalizers until these have run. */
    if (rb_gc_stat(sym_heap_final_slots) > 0) {
        if (!is_awake()) return MPP_NOT_HELD;
        if (are_held()) return MPP_HELD_BY_VM;
    }
    rb_gc_set_pending_interrupt();
    return MPP_HELD;
#else
    return MPP_NOT_HELD;
#endif
}

void
mpp_compat_release_exceptions(void)
{
#ifdef HAVE_RB_GC_SET_PENDING_INTERRUPT
    rb_gc_unset_pending_interrupt();
#endif
}

/* More than a page of the VM's heap and what it takes to align it. */
#define ROOM_BYTES (256 * 1024)

bool
mpp_compat_has_memory(void)
{
    void *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, ROOM_BYTES);
    return true;
}

void
mpp_compat_restore_error(VALUE error)
{
    /* Amid a throw or a break it is an internal object, which rb_set_errinfo does not take; rb_ensure restores that. */
    bool is_exception = !RB_SPECIAL_CONST_P(error) && RB_BUILTIN_TYPE(error) != RUBY_T_IMEMO;
    if (NIL_P(error) || is_exception) rb_set_errinfo(error);
}

static VALUE
measure(VALUE argument)
{
    VALUE *object_and_size = (VALUE *)argument;
    object_and_size[1] = (VALUE)rb_obj_memsize_of(object_and_size[0]);
    return Qnil;
}

static size_t
memsize_of_data(VALUE object)
{
    VALUE object_and_size[2] = {object, 0};
    VALUE error = rb_errinfo();
    int state = 0;
    rb_protect(measure, (VALUE)object_and_size, &state);
    if (state) mpp_compat_restore_error(error);
    RB_GC_GUARD(object);
    return (size_t)object_and_size[1];
}

size_t
mpp_compat_memsize(VALUE object)
{
    switch (RB_BUILTIN_TYPE(object)) {
#if MPP_RUBY_AT_LEAST(4, 0)
    case RUBY_T_CLASS: /* its size walks class extensions that may be invalid */
    case RUBY_T_MODULE:
#endif
    case RUBY_T_NONE: /* the rest is never an object of the program */
    case RUBY_T_ICLASS:
    case RUBY_T_IMEMO:
    case RUBY_T_NODE:
    case RUBY_T_ZOMBIE:
    case RUBY_T_MOVED:
        return 0;
    case RUBY_T_DATA:
        return memsize_of_data(object);
    default:
        return rb_obj_memsize_of(object);
    }
}
