/*
 * The memo is the last backtrace with the stack id of each of its prefixes. keys[] and lines[] hold it leaf first as it
 * came, pushed against the end of the arrays, so that two backtraces of any length lie root to root and what they share
 * is compared in one go; stacks[depth] is the id from the root to the frame `depth` above it. Only the frames that are
 * not shared are looked up and pushed.
 *
 * Invariants: every key in the memo is in `functions`, with the function that the memo's ids were made of. So whatever
 * takes a key out of `functions`, or changes one, empties the memo, and a key that is not in `functions` need not be
 * searched for in the memo. The reference to the memo's last stack keeps all its prefixes, which are its ancestors.
 */

#include "resolver.h"

#include <string.h>

#define FIRST_CAPACITY 64u
#define BYTES_PER_FRAME (sizeof(uintptr_t) + sizeof(int) + sizeof(mpp_id_t))

mpp_status_t
mpp_resolver_init(mpp_resolver_t *resolver, mpp_allocator_t *allocator, mpp_frames_t *frames, uint32_t max_depth)
{
    *resolver = (mpp_resolver_t){.allocator = allocator, .frames = frames, .max_depth = max_depth};
    mpp_keymap_init(&resolver->functions, allocator);

    mpp_status_t status = mpp_frames_pseudo_stack(frames, MPP_VIEW("(truncated)"), &resolver->truncated);
    if (status == MPP_OK) status = mpp_frames_pseudo_stack(frames, MPP_VIEW("(no frames)"), &resolver->no_frames);
    if (status != MPP_OK) mpp_resolver_cleanup(resolver);
    return status;
}

static void
empty_memo(mpp_resolver_t *resolver)
{
    if (resolver->last.n) mpp_frames_release_stack(resolver->frames, resolver->last.stacks[resolver->last.n - 1]);
    resolver->last.n = 0;
}

static void
drop_function(void *frames, mpp_id_t function)
{
    mpp_frames_release_function(frames, function);
}

void
mpp_resolver_cleanup(mpp_resolver_t *resolver)
{
    mpp_resolver_forget_all(resolver);
    mpp_frames_release_stack(resolver->frames, resolver->truncated);
    mpp_frames_release_stack(resolver->frames, resolver->no_frames);
    mpp_keymap_cleanup(&resolver->functions);
    mpp_release(resolver->allocator, resolver->last.keys, resolver->last.capacity * BYTES_PER_FRAME);
    *resolver = (mpp_resolver_t){0};
}

/* The three arrays are one block. It is made anew and starts empty: growing is rare, the next backtrace fills it. */
static mpp_status_t
grow_memo(mpp_resolver_t *resolver, uint32_t n)
{
    uint32_t capacity = resolver->last.capacity * 2;
    void *block = NULL;
    if (n > resolver->max_depth) return MPP_FULL;

    if (capacity < FIRST_CAPACITY) capacity = FIRST_CAPACITY;
    if (capacity < n) capacity = n;
    if (capacity > resolver->max_depth) capacity = resolver->max_depth;
    mpp_status_t status = mpp_resize(resolver->allocator, &block, 0, capacity * BYTES_PER_FRAME);
    if (status != MPP_OK) return status;

    empty_memo(resolver);
    mpp_release(resolver->allocator, resolver->last.keys, resolver->last.capacity * BYTES_PER_FRAME);
    resolver->last.keys = block;
    resolver->last.lines = (int *)(resolver->last.keys + capacity);
    resolver->last.stacks = (mpp_id_t *)(resolver->last.lines + capacity);
    resolver->last.capacity = capacity;
    return MPP_OK;
}

/*
 * How many frames from the root on are those of the memo. Mostly it is all but the last few: it compares all but the
 * leaf-most 1, 2, 4 … until the others are equal, and goes on from there frame by frame.
 */
static uint32_t
count_shared(const mpp_resolver_t *resolver, const mpp_backtrace_t *backtrace)
{
    const uintptr_t *keys = resolver->last.keys + resolver->last.capacity;
    const uintptr_t *new_keys = backtrace->frames + backtrace->n;
    const int *lines = resolver->last.lines + resolver->last.capacity;
    const int *new_lines = backtrace->lines + backtrace->n;
    uint32_t max = backtrace->n < resolver->last.n ? backtrace->n : resolver->last.n;
    uint32_t skipped = 1;
    uint32_t n = 0;
    if (backtrace->truncated != resolver->last.truncated) return 0;

    for (; n == 0 && skipped < max; skipped *= 2) {
        size_t rest = max - skipped;
        if (memcmp(lines - rest, new_lines - rest, rest * sizeof(*lines)) == 0 &&
            memcmp(keys - rest, new_keys - rest, rest * sizeof(*keys)) == 0) {
            n = (uint32_t)rest;
        }
    }
    while (n < max && *(keys - n - 1) == *(new_keys - n - 1) && *(lines - n - 1) == *(new_lines - n - 1)) n++;
    return n;
}

static bool
is_all_shared(const mpp_resolver_t *resolver, const mpp_backtrace_t *backtrace)
{
    uint32_t n = backtrace->n;
    if (n != resolver->last.n || backtrace->truncated != resolver->last.truncated) return false;
    const int *lines = resolver->last.lines + resolver->last.capacity - n;
    const uintptr_t *keys = resolver->last.keys + resolver->last.capacity - n;
    return memcmp(lines, backtrace->lines, n * sizeof(*lines)) == 0 &&
           memcmp(keys, backtrace->frames, n * sizeof(*keys)) == 0;
}

/* A function without a file (one written in C) stands where its caller is, as in the host's own backtraces. */
static mpp_status_t
push_frame(mpp_frames_t *frames, mpp_id_t parent, mpp_id_t function, int line, mpp_id_t *stack)
{
    if (parent == 0 || mpp_frames_get_function(frames, function)->filename != 0) {
        return mpp_frames_push(frames, parent, function, line, stack);
    }
    mpp_id_t placed;
    const mpp_location_t *caller = mpp_frames_get_location(frames, mpp_frames_get_stack(frames, parent)->location);
    mpp_id_t filename = mpp_frames_get_function(frames, caller->function)->filename;
    mpp_status_t status = mpp_frames_function_in(frames, function, filename, &placed);
    if (status != MPP_OK) return status;
    status = mpp_frames_push(frames, parent, placed, caller->line, stack);
    mpp_frames_release_function(frames, placed);
    return status;
}

/*
 * Makes the memo the backtrace, of which it shares n_shared frames, or as much of it as can be had: up to the first
 * frame that has no function, or cannot be pushed.
 */
static mpp_status_t
replace_memo(mpp_resolver_t *resolver, const mpp_backtrace_t *backtrace, uint32_t n_shared)
{
    mpp_frames_t *frames = resolver->frames;
    mpp_id_t replaced = resolver->last.n ? resolver->last.stacks[resolver->last.n - 1] : 0;
    mpp_id_t stack = n_shared ? resolver->last.stacks[n_shared - 1] : backtrace->truncated ? resolver->truncated : 0;
    mpp_status_t status = MPP_OK;
    uint32_t depth;

    for (depth = n_shared; depth < backtrace->n; depth++) {
        uint32_t from_end = depth + 1;
        uintptr_t key = backtrace->frames[backtrace->n - from_end];
        int line = backtrace->lines[backtrace->n - from_end];
        mpp_id_t function = mpp_keymap_find(&resolver->functions, key);
        mpp_id_t parent = stack;
        if (!function) break;
        status = push_frame(frames, parent, function, line, &stack);
        if (status != MPP_OK) break;

        if (depth > n_shared) mpp_frames_release_stack(frames, parent);
        resolver->last.keys[resolver->last.capacity - from_end] = key;
        resolver->last.lines[resolver->last.capacity - from_end] = line;
        resolver->last.stacks[depth] = stack;
    }
    if (depth == n_shared && depth > 0) mpp_frames_retain_stack(frames, stack);
    resolver->last.n = depth;
    resolver->last.truncated = backtrace->truncated;
    mpp_frames_release_stack(frames, replaced);
    return status;
}

/* The stack of a backtrace that has frames, as the memo's; 0 if a frame has no function. */
static mpp_status_t
look_up(mpp_resolver_t *resolver, const mpp_backtrace_t *backtrace, mpp_id_t *stack)
{
    mpp_status_t status = MPP_OK;
    if (MPP_UNLIKELY(backtrace->n > resolver->last.capacity)) status = grow_memo(resolver, backtrace->n);
    if (status != MPP_OK) return status;

    uint32_t n_shared = count_shared(resolver, backtrace);
    if (n_shared < backtrace->n) status = replace_memo(resolver, backtrace, n_shared);
    if (resolver->last.n >= backtrace->n) *stack = resolver->last.stacks[backtrace->n - 1];
    return status;
}

mpp_status_t
mpp_resolver_resolve(mpp_resolver_t *resolver, const mpp_backtrace_t *backtrace, mpp_id_t *stack)
{
    mpp_status_t status = MPP_OK;

    *stack = 0;
    if (backtrace->n > 0 && is_all_shared(resolver, backtrace)) {
        *stack = resolver->last.stacks[backtrace->n - 1];
    } else if (backtrace->n > 0) {
        status = look_up(resolver, backtrace, stack);
    } else {
        *stack = backtrace->truncated ? resolver->truncated : resolver->no_frames;
    }
    mpp_frames_retain_stack(resolver->frames, *stack);
    return status;
}

bool
mpp_resolver_knows(mpp_resolver_t *resolver, uintptr_t frame)
{
    return mpp_keymap_find(&resolver->functions, frame) != 0;
}

mpp_status_t
mpp_resolver_define(mpp_resolver_t *resolver, uintptr_t frame, mpp_view_t name, mpp_view_t filename, int32_t start_line)
{
    mpp_id_t function;
    if (mpp_resolver_knows(resolver, frame)) return MPP_OK;

    mpp_status_t status = mpp_frames_function(resolver->frames, name, filename, start_line, &function);
    if (status != MPP_OK) return status;
    status = mpp_keymap_add(&resolver->functions, frame, function);
    if (status != MPP_OK) mpp_frames_release_function(resolver->frames, function);
    return status;
}

void
mpp_resolver_forget(mpp_resolver_t *resolver, uintptr_t frame)
{
    mpp_id_t function = mpp_keymap_remove(&resolver->functions, frame);
    if (!function) return;
    empty_memo(resolver);
    mpp_frames_release_function(resolver->frames, function);
}

void
mpp_resolver_forget_all(mpp_resolver_t *resolver)
{
    empty_memo(resolver);
    mpp_keymap_clear(&resolver->functions, drop_function, resolver->frames);
}

/*
 * A key matched in the memo is not looked up, so it is not noted as used. That loses none: the memo is empty after each
 * sweep or pruning, and a key enters it by a look-up only, so what the memo holds was looked up since.
 */
void
mpp_resolver_sweep(mpp_resolver_t *resolver, void (*visit)(void *context, uintptr_t key), void *context)
{
    empty_memo(resolver);
    mpp_keymap_sweep(&resolver->functions, visit, context, drop_function, resolver->frames);
}

void
mpp_resolver_prune(mpp_resolver_t *resolver, uint32_t n_slots)
{
    empty_memo(resolver);
    mpp_keymap_prune(&resolver->functions, n_slots, drop_function, resolver->frames);
}

void
mpp_resolver_rekey(mpp_resolver_t *resolver, uintptr_t (*relocate)(void *context, uintptr_t key), void *context)
{
    empty_memo(resolver);
    mpp_keymap_rekey(&resolver->functions, relocate, context);
}

void
mpp_resolver_trim(mpp_resolver_t *resolver)
{
    mpp_keymap_trim(&resolver->functions);
}

size_t
mpp_resolver_bytes(const mpp_resolver_t *resolver)
{
    return mpp_keymap_bytes(&resolver->functions) + resolver->last.capacity * BYTES_PER_FRAME;
}
