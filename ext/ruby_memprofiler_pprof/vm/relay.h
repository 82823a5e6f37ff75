#ifndef MPP_VM_RELAY_H
#define MPP_VM_RELAY_H

/*
 * Before Linux 6.4 a timer of the process's CPU time may signal any thread, mostly the main one, though it waits: which may
 * show in its system call, and from Ruby 3.3 on a job that is triggered there is left to it, for seconds. So there the timer
 * signals a thread of ours, which does nothing but wait for that and sends the signal on to the thread that has the GVL, as the
 * VM's thread events tell. Threads go by the kernel's numbers, so that one that has ended is harmless. Linux and Ruby 3.3 or
 * later alone; elsewhere it never starts.
 */

#include "compat.h"

#include <signal.h>

/* on_tick is called in the relay's thread, without the GVL, for each signal of that number that does not come from us.
 * False: it cannot be had. [gvl] */
bool mpp_relay_start(int signal_number, void (*on_tick)(const siginfo_t *info));

/* Nothing is sent on any more. Fine if it does not run. [gvl] */
void mpp_relay_stop(void);

/* In a forked child, where there is no such thread. [any] */
void mpp_relay_forget(void);

bool mpp_relay_runs(void);  /* [any] */
pid_t mpp_relay_thread(void); /* the one to be signalled. [gvl] */

/* Signals the thread that has the GVL; false if none has. [relay's thread] */
bool mpp_relay_send_on(void);

#endif
