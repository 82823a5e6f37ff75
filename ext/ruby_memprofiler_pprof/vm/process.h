#ifndef MPP_VM_PROCESS_H
#define MPP_VM_PROCESS_H

/*
 * What is process-wide, and nothing else: the list of running collectors, the fork generation, how much own work there is
 * (own_work.h). All of it is protected by the GVL of the main Ractor (4.0: hooks of other Ractors read only the two words
 * that every event reads).
 */

#include "compat.h"

typedef struct mpp_collector mpp_collector_t;

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

#endif
