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
    mpp_process.own_work = NULL;
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

static mpp_own_work_t *
innermost(void)
{
    VALUE thread = rb_thread_current();
    mpp_own_work_t *work = mpp_process.own_work;
    while (work && (work->kept || work->thread != thread)) work = work->next;
    return work;
}

static void
begin(mpp_own_work_t *work, bool counts, bool kept)
{
    work->kept = kept;
    work->measuring = false;
    work->allocated = counts ? mpp_compat_allocated_objects() : 0;
    work->thread = rb_thread_current();
    work->next = mpp_process.own_work;
    mpp_process.own_work = work;
    mpp_process.n_own_work++;
}

void
mpp_own_work_begin(mpp_own_work_t *work)
{
    /* Of stretches within one another the outermost counts. */
    begin(work, mpp_process.n_in_bursts > 0 && innermost() == NULL, false);
}

void
mpp_own_work_begin_kept(mpp_own_work_t *work)
{
    begin(work, false, true);
}

void
mpp_own_work_end(mpp_own_work_t *work)
{
    /* Other threads' stretches may have begun since; in a forked child it may be gone. */
    for (mpp_own_work_t **link = &mpp_process.own_work; *link; link = &(*link)->next) {
        if (*link != work) continue;
        *link = work->next;
        mpp_process.n_own_work--;
        if (work->allocated) mpp_process.own_allocated += mpp_compat_allocated_objects() - work->allocated;
        return;
    }
}

mpp_own_work_t *
mpp_own_work_suspend(void)
{
    mpp_own_work_t *work = innermost();
    if (work) mpp_own_work_end(work);
    return work;
}

void
mpp_own_work_resume(mpp_own_work_t *work)
{
    if (!work) return;
    bool measuring = work->measuring;
    mpp_own_work_begin(work);
    work->measuring = measuring;
}

static mpp_own_work_t *
measuring_here(void)
{
    VALUE thread = rb_thread_current();
    mpp_own_work_t *work = mpp_process.own_work;
    while (work && !(work->measuring && work->thread == thread)) work = work->next;
    return work;
}

bool
mpp_own_work_measure(VALUE object, uint64_t *bytes)
{
    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA) {
        *bytes = mpp_compat_memsize(object);
        return false;
    }
    if (measuring_here()) return false;
    mpp_own_work_t *work = innermost();
    if (work) work->measuring = true;
    *bytes = mpp_compat_memsize(object);
    work = measuring_here(); /* not there any more in a child that the function forked */
    if (work) work->measuring = false;
    return true;
}

bool
mpp_own_work_here(void)
{
    VALUE thread = rb_thread_current();
    for (const mpp_own_work_t *work = mpp_process.own_work; work; work = work->next) {
        if (work->thread == thread) return true;
    }
    return false;
}
