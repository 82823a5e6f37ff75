#ifndef MPP_VM_OWN_WORK_H
#define MPP_VM_OWN_WORK_H

/*
 * What we allocate ourselves is not sampled. Protected by the GVL of the main Ractor, in which alone it is asked.
 */

#include "process.h"

/* A stretch of our own work on one Ruby thread; lives on that thread's C stack. */
typedef struct {
    uint64_t id; /* 0: not noted, for want of memory, or suspended */
    bool measuring; /* as it was when suspended */
} mpp_own_work_t;

/* [gvl] */
void mpp_own_work_init(void);

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
 * a flush among it: within one no other is called, and *bytes is left alone. What is allocated meanwhile, by whomever, is not
 * taken for ours by the VM's counter. True: such code has run, and the VM may have done anything meanwhile. [gvl]
 */
bool mpp_own_work_measure(VALUE object, uint64_t *bytes);

/* Whether the running thread is in a stretch of our own work; ask only while mpp_process.n_own_work is not 0. [newobj] */
bool mpp_own_work_here(void);

#endif
