/*
 * See process.h. The fork handler runs inside fork(2) in the child, where nothing but our own plain memory may be
 * touched: it bumps the generation and forgets the own work of threads that do not exist there. Collectors notice at
 * their next event.
 */
#include "timer.h"
#include "vm.h"

#include <pthread.h>

mpp_process_t mpp_process;

static void
in_child(void)
{
    mpp_process.fork_generation++;
    mpp_process.hooks_left_out |= mpp_process.n_pauses > 0; /* whoever would put them in again is not here */
    mpp_process.n_pauses = 0;
    mpp_process.n_own_work = 0;
    mpp_timer_forget();
}

void
mpp_process_init(void)
{
    if (pthread_atfork(NULL, NULL, in_child) != 0) {
        rb_raise(rb_eLoadError, "ruby_memprofiler_pprof: no fork handler can be installed");
    }
}

void
mpp_process_add(mpp_collector_t *collector)
{
    collector->next_running = mpp_process.running;
    mpp_process.running = collector;
}

void
mpp_process_remove(mpp_collector_t *collector)
{
    for (mpp_collector_t **link = &mpp_process.running; *link; link = &(*link)->next_running) {
        if (*link != collector) continue;
        *link = collector->next_running;
        collector->next_running = NULL;
        return;
    }
}
