#ifndef MPP_RESOLVER_H
#define MPP_RESOLVER_H

/*
 * Backtrace of host keys → stack id. Two memories make it cheap: which function a frame key stands for (a keymap,
 * filled when the host has named a frame), and the last backtrace with the stack id at each depth, so that the part
 * shared with the next one, from the root on, costs a comparison and no look-up.
 * A function without a filename takes the filename and the line of its caller, the next frame towards the root.
 */

#include "frames.h"
#include "keymap.h"
#include "pending.h"

typedef struct {
    mpp_allocator_t *allocator;
    mpp_frames_t *frames;
    uint32_t max_depth;
    mpp_keymap_t functions; /* frame key → function; holds a reference to each */
    mpp_id_t truncated;     /* the stack of the one location (truncated) */
    mpp_id_t no_frames;     /* the stack of the one location (no frames) */
    /* the last backtrace: keys and lines leaf first, at the end of the arrays; stack ids root first, with a reference to
     * the last */
    struct {
        uintptr_t *keys;
        int *lines;
        mpp_id_t *stacks;
        uint32_t n;
        uint32_t capacity;
        bool truncated;
    } last;
} mpp_resolver_t;

/* max_depth: frames a backtrace has at most. On failure nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_resolver_init(mpp_resolver_t *resolver, mpp_allocator_t *allocator, mpp_frames_t *frames,
                                         uint32_t max_depth);
/* Releases what it references; a zeroed one is fine. [newobj] [gc] */
void mpp_resolver_cleanup(mpp_resolver_t *resolver);

/*
 * The stack of a backtrace, with one more reference that the caller owns. *stack is 0, and the status MPP_OK, when a
 * frame has no function yet. MPP_FULL for more than max_depth frames. Failure changes nothing. [newobj]
 */
MPP_CHECK mpp_status_t
mpp_resolver_resolve(mpp_resolver_t *resolver, const mpp_backtrace_t *backtrace, mpp_id_t *stack);

/* Whether the key has a function. [newobj] */
bool mpp_resolver_knows(mpp_resolver_t *resolver, uintptr_t frame);

/* Names a frame. A key that has a function already keeps it. On failure nothing has changed. [gvl] */
MPP_CHECK mpp_status_t mpp_resolver_define(mpp_resolver_t *resolver, uintptr_t frame, mpp_view_t name,
                                           mpp_view_t filename, int32_t start_line);

/* The frame has died: its key may soon stand for another one. [gc] */
void mpp_resolver_forget(mpp_resolver_t *resolver, uintptr_t frame);

/* All keys are in doubt: forgets every one. [gc] */
void mpp_resolver_forget_all(mpp_resolver_t *resolver);

/* Where deaths are not seen: visits each frame used since the last sweep, forgets the others. [gc] */
void mpp_resolver_sweep(mpp_resolver_t *resolver, void (*visit)(void *context, uintptr_t key), void *context);

/* Memory is short: goes over n_slots of the frames, forgets those not used since it last came by. [newobj] [gc] */
void mpp_resolver_prune(mpp_resolver_t *resolver, uint32_t n_slots);

/* Objects have moved. [gc] */
void mpp_resolver_rekey(mpp_resolver_t *resolver, uintptr_t (*relocate)(void *context, uintptr_t key), void *context);

/* Gives memory back after a burst. [newobj] */
void mpp_resolver_trim(mpp_resolver_t *resolver);

size_t mpp_resolver_bytes(const mpp_resolver_t *resolver); /* [any] */

#endif
