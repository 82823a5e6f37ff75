#ifndef MPP_PENDING_H
#define MPP_PENDING_H

/*
 * The bounded first-in-first-out buffer between the hook and the safe point: {object, weight, stack}. A stack that has
 * frames nobody has named yet waits here as its raw frames; consecutive entries of the same raw stack share one copy.
 * The host marks what waits (mpp_pending_each), so none of it dies or moves.
 */

#include "base.h"
#include "sampler.h"

/* A backtrace as the host hands it over: leaf first. */
typedef struct {
    const uintptr_t *frames; /* host keys, nonzero */
    const int *lines;
    uint32_t n;
    bool truncated; /* frames towards the root were cut off */
} mpp_backtrace_t;

/* A copy of a backtrace, shared by the entries that came with it. */
typedef struct mpp_raw_stack mpp_raw_stack_t;
struct mpp_raw_stack {
    mpp_raw_stack_t *next; /* in the list of all */
    mpp_raw_stack_t *previous;
    uint32_t references;
    mpp_backtrace_t backtrace; /* points behind this struct */
};

typedef struct {
    uintptr_t object;
    mpp_weight_t weight;
    mpp_id_t stack;       /* with one reference, or 0: see raw */
    mpp_id_t labels;      /* as the buffer had them when it was pushed */
    mpp_raw_stack_t *raw; /* with one reference, or NULL */
} mpp_pending_entry_t;

typedef struct {
    mpp_allocator_t *allocator;
    mpp_pending_entry_t *entries; /* a ring of n_entries, a power of two */
    uint32_t n_entries;
    uint32_t max_entries;
    uint32_t head;
    uint32_t n_used;
    mpp_id_t labels; /* of what is pushed from now on; the owner's to set */
    mpp_raw_stack_t *raw_stacks; /* all that are referenced, newest first */
    size_t raw_bytes;
} mpp_pending_t;

/* max_entries: rounded up to a power of two. Owns nothing yet. [any] */
void mpp_pending_init(mpp_pending_t *pending, mpp_allocator_t *allocator, uint32_t max_entries);

/* Frees all, entries and raw stacks; references to stacks are the owner's business. [newobj] [gc] */
void mpp_pending_cleanup(mpp_pending_t *pending);

/* Appends an entry that takes over the caller's reference to `stack`. MPP_FULL at max_entries. On failure the reference
 * stays the caller's. [newobj] */
MPP_CHECK mpp_status_t
mpp_pending_push(mpp_pending_t *pending, uintptr_t object, mpp_weight_t weight, mpp_id_t stack);

/* Appends an entry with a raw stack: the newest one if it is the same, else a copy. On failure nothing has changed.
 * [newobj] */
MPP_CHECK mpp_status_t mpp_pending_push_raw(mpp_pending_t *pending, uintptr_t object, mpp_weight_t weight,
                                            const mpp_backtrace_t *backtrace);

/* Takes the oldest entry off; its references are the caller's now. False when there is none. [gvl] */
bool mpp_pending_take(mpp_pending_t *pending, mpp_pending_entry_t *entry);

/* Gives back a raw stack's reference; NULL is fine. [gvl] */
void mpp_pending_release_raw(mpp_pending_t *pending, mpp_raw_stack_t *raw);

/* Visits every waiting object and every frame of every raw stack (also of those taken off and not released yet). [gc] */
void mpp_pending_each(const mpp_pending_t *pending, void (*visit)(void *context, uintptr_t key), void *context);

/* Gives memory back after a burst: when empty, a large ring goes back to a small one. [newobj] */
void mpp_pending_trim(mpp_pending_t *pending);

size_t mpp_pending_bytes(const mpp_pending_t *pending); /* [any] */

#endif
