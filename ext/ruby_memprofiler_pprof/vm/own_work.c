#include "own_work.h"

#include "vm.h"

#include <stdlib.h>
#include <string.h>

/* What is known of a stretch of own work. The array never shrinks: as many stretches as were under way at once. */
typedef struct {
    VALUE thread;
    uint64_t id;
    size_t allocated; /* the VM's count when it began, 0: not counted here */
    bool kept; /* see mpp_own_work_begin_kept */
    bool measuring; /* a size function is being called in it */
} stretch_t;

static stretch_t first_stretches[16];
static stretch_t *stretches = first_stretches; /* the latest last; mpp_process.n_own_work of them */
static uint32_t capacity = sizeof(first_stretches) / sizeof(first_stretches[0]);
static uint64_t last_id;

/* NULL: there is none. */
static stretch_t *
innermost(bool measuring)
{
    VALUE thread = rb_thread_current();
    for (uint32_t i = mpp_process.n_own_work; i > 0; i--) {
        stretch_t *stretch = &stretches[i - 1];
        if (stretch->thread == thread && (measuring ? stretch->measuring : !stretch->kept)) return stretch;
    }
    return NULL;
}

/* The old array is freed when nobody finds it any more: a fork may come amid this. */
static bool
has_room(void)
{
    stretch_t *outgrown = stretches;
    if (mpp_process.n_own_work < capacity) return true;
    stretch_t *larger = malloc(2 * sizeof(*larger) * capacity);
    if (!larger) return false;
    memcpy(larger, outgrown, sizeof(*larger) * capacity);
    stretches = larger;
    capacity *= 2;
    if (outgrown != first_stretches) free(outgrown);
    return true;
}

static void
begin(mpp_own_work_t *work, uint64_t id, bool counts, bool kept)
{
    *work = (mpp_own_work_t){.thread = rb_thread_current()};
    if (!has_room()) return;
    work->id = id;
    stretches[mpp_process.n_own_work++] = (stretch_t){
        .thread = work->thread,
        .id = id,
        .allocated = counts ? mpp_compat_allocated_objects() : 0,
        .kept = kept,
    };
}

void
mpp_own_work_begin(mpp_own_work_t *work)
{
    /* Of stretches within one another the outermost counts. */
    begin(work, ++last_id, mpp_process.n_in_bursts > 0 && innermost(false) == NULL, false);
}

void
mpp_own_work_begin_kept(mpp_own_work_t *work)
{
    begin(work, ++last_id, false, true);
}

static void
end(stretch_t *stretch)
{
    size_t n_later = (size_t)(&stretches[mpp_process.n_own_work] - stretch - 1);
    if (stretch->allocated) mpp_process.own_allocated += mpp_compat_allocated_objects() - stretch->allocated;
    memmove(stretch, stretch + 1, n_later * sizeof(*stretch));
    mpp_process.n_own_work--;
}

void
mpp_own_work_end(mpp_own_work_t *work)
{
    /* Other threads' stretches may have begun since; in a forked child it may be gone. */
    for (uint32_t i = mpp_process.n_own_work; i > 0; i--) {
        if (stretches[i - 1].id != work->id) continue;
        end(&stretches[i - 1]);
        return;
    }
}

mpp_own_work_t
mpp_own_work_suspend(void)
{
    stretch_t *stretch = innermost(false);
    if (!stretch) return (mpp_own_work_t){0};
    mpp_own_work_t work = {.thread = stretch->thread, .id = stretch->id, .measuring = stretch->measuring};
    end(stretch);
    return work;
}

void
mpp_own_work_resume(const mpp_own_work_t *work)
{
    mpp_own_work_t resumed;
    if (work->id == 0) return;
    begin(&resumed, work->id, mpp_process.n_in_bursts > 0 && innermost(false) == NULL, false);
    if (resumed.id != 0) stretches[mpp_process.n_own_work - 1].measuring = work->measuring;
}

bool
mpp_own_work_measure(VALUE object, uint64_t *bytes)
{
    if (RB_BUILTIN_TYPE(object) != RUBY_T_DATA) {
        *bytes = mpp_compat_memsize(object);
        return false;
    }
    if (innermost(true)) return false;
    stretch_t *stretch = innermost(false);
    if (stretch) stretch->measuring = true;
    *bytes = mpp_compat_memsize(object);
    stretch = innermost(true); /* not there any more in a child that the function forked */
    if (stretch) stretch->measuring = false;
    return true;
}

bool
mpp_own_work_here(void)
{
    VALUE thread = rb_thread_current();
    for (uint32_t i = 0; i < mpp_process.n_own_work; i++) {
        if (stretches[i].thread == thread) return true;
    }
    return false;
}
