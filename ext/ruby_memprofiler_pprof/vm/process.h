#ifndef MPP_VM_PROCESS_H
#define MPP_VM_PROCESS_H

/*
 * What is process-wide, and nothing else: the list of running collectors, the fork generation, the suppression of our
 * own work. All of it is protected by the GVL of the main Ractor (4.0: hooks of other Ractors read only the two words
 * that every event reads).
 */

#include "compat.h"

typedef struct mpp_collector mpp_collector_t;

/*
 * A stretch of our own work on one Ruby thread; lives on that thread's C stack, which pins the thread object. What events
 * look at is elsewhere: a size function that leaves its fiber for good takes the stack along.
 */
typedef struct {
    VALUE thread;
    uint64_t id; /* 0: not noted, for want of memory, or suspended */
    bool measuring; /* as it was when suspended */
} mpp_own_work_t;

typedef struct {
    uint32_t fork_generation; /* bumped in the child; a collector that has another one clears itself first */
    uint32_t n_own_work; /* stretches of it: while 0, no event needs to ask whose thread it is on */
    uint32_t n_pauses; /* while not 0, no hook is in */
    bool hooks_left_out; /* by a fork during a pause, until patches.c puts them in */
    uint32_t n_in_bursts;  /* running collectors in burst mode: while not 0, own work is counted by the VM's counter */
    size_t own_allocated;  /* objects that our own work allocated meanwhile, in all threads */
    mpp_collector_t *running; /* linked through their `next_running` */
} mpp_process_t;

extern mpp_process_t mpp_process;

/* Installs the fork handler. [gvl] */
void mpp_process_init(void);

void mpp_process_add(mpp_collector_t *collector);    /* [gvl] */
void mpp_process_remove(mpp_collector_t *collector); /* Fine if it is not there. [gvl] [gc] */

/* Allocations of this thread are our own from begin to end; may nest. Nothing in between may switch the thread off for
 * good without end being called (rb_ensure where code can raise). [gvl] */
void mpp_own_work_begin(mpp_own_work_t *work);
void mpp_own_work_end(mpp_own_work_t *work);

/* The same, but for what the VM's counter tells, and it is never suspended: others run meanwhile. [gvl] */
void mpp_own_work_begin_kept(mpp_own_work_t *work);

/* The innermost stretch of the running thread, if there is one (in a forked child not), ends for a while, for a call in
 * which others may run. [gvl] */
mpp_own_work_t mpp_own_work_suspend(void);
void mpp_own_work_resume(const mpp_own_work_t *work);

/*
 * The object's size in bytes, within our own work. A T_DATA's size function is another extension's code and may do anything,
 * a flush among it: within one no other is called, and *bytes is left alone. True: such code has run, and the VM may have done
 * anything meanwhile. [gvl]
 */
bool mpp_own_work_measure(VALUE object, uint64_t *bytes);

/* Whether the running thread is in a stretch of our own work; ask only while mpp_process.n_own_work is not 0. [newobj] */
bool mpp_own_work_here(void);

#endif
