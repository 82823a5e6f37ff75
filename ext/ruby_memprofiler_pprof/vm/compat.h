#ifndef MPP_VM_COMPAT_H
#define MPP_VM_COMPAT_H

/*
 * All that differs between the Rubies we build on (3.1 … 4.0), and the three functions that Ruby exports without
 * declaring them. Everything else in vm/ uses the public C API alone.
 */

#include <ruby.h>
#include <ruby/debug.h>
#include <ruby/encoding.h>
#include <ruby/thread.h>
#include <ruby/version.h>

#include <stdbool.h>
#include <stdint.h>

#define MPP_RUBY_AT_LEAST(major, minor)                                                                                \
    (RUBY_API_VERSION_MAJOR > (major) || (RUBY_API_VERSION_MAJOR == (major) && RUBY_API_VERSION_MINOR >= (minor)))

/* From 4.0 a hook of the main Ractor gets the events of every Ractor. */
#define MPP_HOOKS_SEE_ALL_RACTORS MPP_RUBY_AT_LEAST(4, 0)

/* Resolves symbols, registers the job and makes every call that allocates on first use once. Call at load. [gvl] */
void mpp_compat_init(void (*job)(void *unused));

/* Asks for the job at the next safe point of this thread. [newobj] */
void mpp_compat_trigger_job(void);

/* Whether this is a Ractor other than the main one. Jobs run in whichever Ractor comes first. [newobj] [gc] */
bool mpp_compat_in_other_ractor(void);

/* The second `<main>`, without a line, that Ruby before 3.3 puts at the root of the main thread's stack, 0 if unknown. */
extern VALUE mpp_compat_dummy_root;

/*
 * Whether the system would give the VM memory for more objects. Where it does not and the heap has no place left, the VM
 * ends the process rather than raise, for NoMemoryError is an object too: what may as well not be done is not to be tried
 * then. A microsecond. [gvl]
 */
bool mpp_compat_has_memory(void);

/* After rb_protect caught something: puts rb_errinfo() back to what it was before. [gvl] */
void mpp_compat_restore_error(VALUE error);

/* Whether a frame of rb_profile_frames is of Ruby code, not of a function in C. [newobj] [gvl] */
bool mpp_compat_is_ruby(VALUE frame);

#ifdef HAVE_RB_GC_SET_PENDING_INTERRUPT
#define MPP_HOLDS_EXCEPTIONS true
#else
#define MPP_HOLDS_EXCEPTIONS false
#endif

typedef enum {
    MPP_NOT_HELD, /* it cannot be had, or the VM may hold it */
    MPP_HELD,     /* until release */
    MPP_HELD_BY_VM
} mpp_holding_t;

/* What Thread#raise and Thread#kill have for the running thread waits. The VM holds it itself around the finalizers that
 * GC.start and its like run, and a release would be the end of that. [gvl] */
mpp_holding_t mpp_compat_hold_exceptions(void);
void mpp_compat_release_exceptions(void);

/* The VM's own counts, compaction's moves taken off. [newobj] [gc] (not in dcompact) */
size_t mpp_compat_allocated_objects(void);
size_t mpp_compat_freed_objects(void); /* those that wait for their finalizer included */

/* Whether compaction has moved anything in this process, on a Ruby that counts moves as allocations and deaths. [gvl] [gc] */
bool mpp_compat_counts_moves(void);

/* Whether the collector is in the sweep of a collection, or in any part of one. [gvl] [gc] */
bool mpp_compat_gc_sweeping(void);
bool mpp_compat_gc_marking(void);
bool mpp_compat_gc_idle(void);

/* A sweep that is going on, to its end: work that the VM would do at the next allocations. [gvl] */
void mpp_compat_finish_sweep(void);

/* A whole collection as GC.start makes it, also where the program has disabled the GC. Runs finalizers. [gvl] */
void mpp_compat_collect_garbage(void);

/* During a sweep: whether the object at this address is known to be alive. False is "cannot tell". [gvl] */
bool mpp_compat_survives_sweep(VALUE object);

/* At the end of marking, whether the object lives on; where the VM tells. [gc] */
#if !MPP_RUBY_AT_LEAST(3, 4) && defined(HAVE_RB_OBJSPACE_MARKED_OBJECT_P)
#define MPP_TELLS_MARKED true
#else
#define MPP_TELLS_MARKED false
#endif
bool mpp_compat_is_marked(VALUE object);

/*
 * The object's size in bytes as ObjectSpace.memsize_of tells it. Runs a T_DATA's size function protected: an exception
 * counts as size 0. [gvl]
 */
size_t mpp_compat_memsize(VALUE object);

#endif
