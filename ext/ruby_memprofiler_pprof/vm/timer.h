#ifndef MPP_VM_TIMER_H
#define MPP_VM_TIMER_H

/*
 * The one CPU timer of the process: a signal after so much CPU time, of which the handler notes when and in which thread
 * it came, and triggers the job. Linux alone; elsewhere it never starts.
 */

#include "compat.h"

/* A tick whose safe point has come. */
typedef struct {
    uint64_t late_ns; /* CPU time of this thread since the tick */
    bool in_gc;       /* the tick hit a garbage collection */
    bool usable;      /* false: it hit a thread that ran without the GVL, where nothing allocates */
} mpp_tick_t;

/* Takes the signal, and tests that ticks arrive (once a process, a few ms). signal_number 0: a real-time signal that
 * nobody handles. NULL when it runs, else a static text that says why it cannot. [gvl] */
const char *mpp_timer_start(int signal_number);

/* No tick comes any more; the signal's former handler is back, unless somebody has taken the signal meanwhile. Fine if it
 * does not run. [gvl] */
void mpp_timer_stop(void);

/* In a forked child, which inherits the handler but no timer: makes one. False if there is none to be had. [gvl] */
bool mpp_timer_restart(void);

/* In a forked child: there is no timer. [any] */
void mpp_timer_forget(void);

/* The next tick comes at that CPU time of the process, then, should it hit no thread of Ruby's, each repeat_ns. [gvl] */
void mpp_timer_arm(uint64_t due_ns, uint64_t repeat_ns);

/* Whether a tick has come since the last call. [gvl] */
bool mpp_timer_take(mpp_tick_t *tick);

/* The safe point of the tick has come in another Ractor: if the tick hit that one, it is over, and the next comes
 * at one of the kernel's next two looks: at a fixed distance it would go in step with Ractors that take turns. Called
 * there, at any time. */
void mpp_timer_refuse(void);

/* CPU time of the process at the last tick that was refused since the last call, 0: there was none. [gvl] */
uint64_t mpp_timer_refused_ns(void);

int mpp_timer_signal(void); /* the signal's number, 0 while it does not run. [gvl] */

/* How often the kernel looks at timers of CPU time. [newobj] */
uint64_t mpp_timer_resolution_ns(void);

uint64_t mpp_cpu_ns(void);        /* CPU time of the process, up to a few ms stale. [newobj] */
uint64_t mpp_thread_cpu_ns(void); /* of this thread. [newobj] */

#endif
