/*
 * A stretch is known by its id, and belongs to a Ruby thread, not to a fiber. What events look at is here and on nobody's
 * stack: a size function may leave its fiber, and so the C frame that began the stretch, for good. Such a stretch stays,
 * and so does its thread, lest another one at the same address be taken for it. A child of a fork has none.
 */
#include "own_work.h"

#include "vm.h"

#include <stdlib.h>
#include <string.h>

/* What is known of a stretch of own work. The array never shrinks: as many stretches as were under way at once. */
typedef struct {
    VALUE thread;
    uint64_t id;
    size_t allocated; /* the VM's count when it began, 0: it is not this one that counts */
    bool kept; /* see mpp_own_work_begin_kept */
    bool measuring; /* a size function is being called in it */
} stretch_t;

static stretch_t first_stretches[16];
static stretch_t *stretches = first_stretches; /* the latest last; mpp_process.n_own_work of them */
static uint32_t capacity = sizeof(first_stretches) / sizeof(first_stretches[0]);
static uint64_t last_id;

static void
mark_threads(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < mpp_process.n_own_work; i++) rb_gc_mark(stretches[i].thread);
}

static const rb_data_type_t root_type = {.wrap_struct_name = "memprofiler_pprof_own_work", .function = {.dmark = mark_threads}};

void
mpp_own_work_init(void)
{
    rb_gc_register_mark_object(TypedData_Wrap_Struct(0, &root_type, stretches));
}

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

/* That of the running thread by which the VM's counter tells what is ours: of those within one another the outermost. */
static stretch_t *
counting(void)
{
    VALUE thread = rb_thread_current();
    for (uint32_t i = 0; i < mpp_process.n_own_work; i++) {
        if (stretches[i].thread == thread && stretches[i].allocated != 0) return &stretches[i];
    }
    return NULL;
}

static void
begin(mpp_own_work_t *work, uint64_t id, bool kept)
{
    bool counts = mpp_process.n_in_bursts > 0 && !kept && !counting();
    size_t allocated = counts ? mpp_compat_allocated_objects() : 0;
    *work = (mpp_own_work_t){0};
    if (!has_room()) return;
    stretches[mpp_process.n_own_work] = (stretch_t){
        .thread = rb_thread_current(),
        .id = id,
        .allocated = allocated,
        .kept = kept,
    };
    mpp_process.n_own_work++;
    work->id = id;
}

void
mpp_own_work_begin(mpp_own_work_t *work)
{
    begin(work, ++last_id, false);
}

void
mpp_own_work_begin_kept(mpp_own_work_t *work)
{
    begin(work, ++last_id, true);
}

static void
count(stretch_t *stretch)
{
    if (stretch->allocated) mpp_process.own_allocated += mpp_compat_allocated_objects() - stretch->allocated;
    stretch->allocated = 0;
}

static void
end(stretch_t *stretch)
{
    size_t n_later = (size_t)(&stretches[mpp_process.n_own_work] - stretch - 1);
    count(stretch);
    memmove(stretch, stretch + 1, n_later * sizeof(*stretch));
    mpp_process.n_own_work--;
}

static stretch_t *
find(uint64_t id)
{
    for (uint32_t i = mpp_process.n_own_work; i > 0; i--) {
        if (stretches[i - 1].id == id) return &stretches[i - 1];
    }
    return NULL;
}

void
mpp_own_work_end(mpp_own_work_t *work)
{
    /* Other threads' stretches may have begun since; in a forked child it may be gone. */
    stretch_t *stretch = find(work->id);
    if (stretch) end(stretch);
}

mpp_own_work_t
mpp_own_work_suspend(void)
{
    stretch_t *stretch = innermost(false);
    if (!stretch) return (mpp_own_work_t){0};
    mpp_own_work_t work = {.id = stretch->id, .measuring = stretch->measuring};
    end(stretch);
    return work;
}

void
mpp_own_work_resume(const mpp_own_work_t *work)
{
    mpp_own_work_t resumed;
    if (work->id == 0) return;
    begin(&resumed, work->id, false);
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
    stretch_t *measuring = innermost(false), *counter = counting();
    uint64_t measuring_id = measuring ? measuring->id : 0, counter_id = counter ? counter->id : 0;
    if (measuring) measuring->measuring = true;
    if (counter) count(counter);
    *bytes = mpp_compat_memsize(object);
    measuring = find(measuring_id); /* neither is there any more in a child that the function forked */
    counter = find(counter_id);
    if (measuring) measuring->measuring = false;
    if (counter) counter->allocated = mpp_compat_allocated_objects();
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
