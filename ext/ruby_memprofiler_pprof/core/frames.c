/*
 * Three interned tables, each a slab behind an index by the hash of its contents: find or add, then count a reference.
 * References point one way (stack → parent and location, location → function, function → strings), so the last release
 * of an element ends in a chain of bounded depth, but for the parents of a stack, which are walked in a loop.
 * An element's contents do not change while it is referenced, only its count does, so the hash under which it was
 * added is computed again to remove it.
 */

#include "frames.h"

#include <assert.h>

_Static_assert(sizeof(mpp_stack_t) <= 24, "there are many more nodes than functions and lines: bench/live_memory.rb");

typedef struct {
    const mpp_frames_t *frames;
    mpp_id_t left;
    mpp_id_t right;
    int32_t line;
} wanted_t;

mpp_status_t
mpp_frames_init(mpp_frames_t *frames, mpp_allocator_t *allocator, mpp_strtab_t *strings, uint32_t max_elements)
{
    *frames = (mpp_frames_t){.strings = strings};
    mpp_index_init(&frames->function_index, allocator);
    mpp_index_init(&frames->location_index, allocator);
    mpp_index_init(&frames->stack_index, allocator);
    mpp_status_t status = mpp_slab_init(&frames->functions, allocator, sizeof(mpp_function_t), max_elements);
    if (status == MPP_OK) status = mpp_slab_init(&frames->locations, allocator, sizeof(mpp_location_t), max_elements);
    if (status == MPP_OK) status = mpp_slab_init(&frames->stacks, allocator, sizeof(mpp_stack_t), max_elements);
    if (status != MPP_OK) mpp_frames_cleanup(frames);
    return status;
}

void
mpp_frames_cleanup(mpp_frames_t *frames)
{
    mpp_index_cleanup(&frames->function_index);
    mpp_index_cleanup(&frames->location_index);
    mpp_index_cleanup(&frames->stack_index);
    mpp_slab_cleanup(&frames->functions);
    mpp_slab_cleanup(&frames->locations);
    mpp_slab_cleanup(&frames->stacks);
    *frames = (mpp_frames_t){0};
}

static inline mpp_function_t *
function_at(const mpp_frames_t *frames, mpp_id_t id)
{
    return mpp_slab_at(&frames->functions, id);
}

static inline mpp_location_t *
location_at(const mpp_frames_t *frames, mpp_id_t id)
{
    return mpp_slab_at(&frames->locations, id);
}

static inline mpp_stack_t *
stack_at(const mpp_frames_t *frames, mpp_id_t id)
{
    return mpp_slab_at(&frames->stacks, id);
}

static inline uint32_t
hash_of_function(mpp_id_t name, mpp_id_t filename, int32_t start_line)
{
    return (uint32_t)mpp_hash_pair(mpp_hash_pair(name, filename), (uint32_t)start_line);
}

static inline uint32_t
hash_of_location(mpp_id_t function, int32_t line)
{
    return (uint32_t)mpp_hash_pair(function, (uint32_t)line);
}

static inline uint32_t
hash_of_stack(mpp_id_t parent, mpp_id_t location)
{
    return (uint32_t)mpp_hash_pair(parent, location);
}

static inline bool
is_wanted_function(const void *context, mpp_id_t id)
{
    const wanted_t *wanted = context;
    const mpp_function_t *function = function_at(wanted->frames, id);
    return function->name == wanted->left && function->filename == wanted->right &&
           function->start_line == wanted->line;
}

static inline bool
is_wanted_location(const void *context, mpp_id_t id)
{
    const wanted_t *wanted = context;
    const mpp_location_t *location = location_at(wanted->frames, id);
    return location->function == wanted->left && location->line == wanted->line;
}

static inline bool
is_wanted_stack(const void *context, mpp_id_t id)
{
    const wanted_t *wanted = context;
    const mpp_stack_t *stack = stack_at(wanted->frames, id);
    return stack->parent == wanted->left && stack->location == wanted->right;
}

/* A zeroed element that its index knows; the caller fills it before anything else looks. On failure *id is untouched. */
static mpp_status_t
add_element(mpp_slab_t *slab, mpp_index_t *index, uint32_t hash, mpp_id_t *id)
{
    mpp_status_t status = mpp_index_reserve(index);
    if (status == MPP_OK) status = mpp_slab_take(slab, id);
    if (status == MPP_OK) mpp_index_insert(index, hash, *id);
    return status;
}

/* Takes over the references to the two strings unless it fails. */
static mpp_status_t
obtain_function(mpp_frames_t *frames, mpp_id_t name, mpp_id_t filename, int32_t start_line, mpp_id_t *id)
{
    uint32_t hash = hash_of_function(name, filename, start_line);
    wanted_t wanted = {.frames = frames, .left = name, .right = filename, .line = start_line};
    mpp_id_t known = mpp_index_find(&frames->function_index, hash, is_wanted_function, &wanted);
    if (known != 0) {
        function_at(frames, known)->references++;
        mpp_strtab_release(frames->strings, name);
        mpp_strtab_release(frames->strings, filename);
        *id = known;
        return MPP_OK;
    }
    mpp_status_t status = add_element(&frames->functions, &frames->function_index, hash, id);
    if (status != MPP_OK) return status;
    *function_at(frames, *id) =
        (mpp_function_t){.name = name, .filename = filename, .start_line = start_line, .references = 1};
    return MPP_OK;
}

mpp_status_t
mpp_frames_function(mpp_frames_t *frames, mpp_view_t name, mpp_view_t filename, int32_t start_line, mpp_id_t *id)
{
    mpp_id_t name_id = 0;
    mpp_id_t filename_id = 0;
    mpp_status_t status = mpp_strtab_intern(frames->strings, name, &name_id);
    if (status == MPP_OK && filename.length != 0) status = mpp_strtab_intern(frames->strings, filename, &filename_id);
    if (status == MPP_OK) status = obtain_function(frames, name_id, filename_id, start_line, id);
    if (status != MPP_OK) {
        mpp_strtab_release(frames->strings, filename_id);
        mpp_strtab_release(frames->strings, name_id);
    }
    return status;
}

mpp_status_t
mpp_frames_function_in(mpp_frames_t *frames, mpp_id_t function, mpp_id_t filename, mpp_id_t *id)
{
    const mpp_function_t *model = function_at(frames, function);
    mpp_id_t name = model->name;
    mpp_strtab_retain(frames->strings, name);
    mpp_strtab_retain(frames->strings, filename);
    mpp_status_t status = obtain_function(frames, name, filename, model->start_line, id);
    if (status != MPP_OK) {
        mpp_strtab_release(frames->strings, filename);
        mpp_strtab_release(frames->strings, name);
    }
    return status;
}

void
mpp_frames_retain_function(mpp_frames_t *frames, mpp_id_t function)
{
    function_at(frames, function)->references++;
}

void
mpp_frames_release_function(mpp_frames_t *frames, mpp_id_t id)
{
    mpp_function_t *function = function_at(frames, id);
    assert(function->references > 0);
    if (--function->references > 0) return;

    uint32_t hash = hash_of_function(function->name, function->filename, function->start_line);
    mpp_index_remove(&frames->function_index, hash, id);
    mpp_strtab_release(frames->strings, function->name);
    mpp_strtab_release(frames->strings, function->filename);
    mpp_slab_give(&frames->functions, id);
}

static mpp_status_t
obtain_location(mpp_frames_t *frames, mpp_id_t function, int32_t line, mpp_id_t *id)
{
    uint32_t hash = hash_of_location(function, line);
    wanted_t wanted = {.frames = frames, .left = function, .line = line};
    mpp_id_t known = mpp_index_find(&frames->location_index, hash, is_wanted_location, &wanted);
    if (MPP_LIKELY(known != 0)) {
        location_at(frames, known)->references++;
        *id = known;
        return MPP_OK;
    }
    mpp_status_t status = add_element(&frames->locations, &frames->location_index, hash, id);
    if (status != MPP_OK) return status;
    *location_at(frames, *id) = (mpp_location_t){.function = function, .line = line, .references = 1};
    mpp_frames_retain_function(frames, function);
    return MPP_OK;
}

static void
release_location(mpp_frames_t *frames, mpp_id_t id)
{
    mpp_location_t *location = location_at(frames, id);
    assert(location->references > 0);
    if (--location->references > 0) return;

    mpp_index_remove(&frames->location_index, hash_of_location(location->function, location->line), id);
    mpp_frames_release_function(frames, location->function);
    mpp_slab_give(&frames->locations, id);
}

/* Takes over the reference to the location unless it fails. */
static mpp_status_t
obtain_stack(mpp_frames_t *frames, mpp_id_t parent, mpp_id_t location, mpp_id_t *id)
{
    uint32_t hash = hash_of_stack(parent, location);
    wanted_t wanted = {.frames = frames, .left = parent, .right = location};
    mpp_id_t known = mpp_index_find(&frames->stack_index, hash, is_wanted_stack, &wanted);
    if (MPP_LIKELY(known != 0)) {
        stack_at(frames, known)->references++;
        release_location(frames, location);
        *id = known;
        return MPP_OK;
    }
    mpp_status_t status = add_element(&frames->stacks, &frames->stack_index, hash, id);
    if (status != MPP_OK) return status;
    uint32_t depth = parent == 0 ? 1 : stack_at(frames, parent)->depth + 1;
    *stack_at(frames, *id) = (mpp_stack_t){.parent = parent, .location = location, .references = 1, .depth = depth};
    mpp_frames_retain_stack(frames, parent);
    return MPP_OK;
}

mpp_status_t
mpp_frames_push(mpp_frames_t *frames, mpp_id_t parent, mpp_id_t function, int32_t line, mpp_id_t *stack)
{
    mpp_id_t location;
    mpp_status_t status = obtain_location(frames, function, line, &location);
    if (status != MPP_OK) return status;
    status = obtain_stack(frames, parent, location, stack);
    if (status != MPP_OK) release_location(frames, location);
    return status;
}

mpp_status_t
mpp_frames_pseudo_stack(mpp_frames_t *frames, mpp_view_t name, mpp_id_t *stack)
{
    mpp_id_t function;
    mpp_status_t status = mpp_frames_function(frames, name, MPP_VIEW(""), 0, &function);
    if (status != MPP_OK) return status;
    status = mpp_frames_push(frames, 0, function, 0, stack);
    mpp_frames_release_function(frames, function);
    return status;
}

void
mpp_frames_retain_stack(mpp_frames_t *frames, mpp_id_t stack)
{
    if (stack != 0) stack_at(frames, stack)->references++;
}

void
mpp_frames_release_stack(mpp_frames_t *frames, mpp_id_t id)
{
    while (id != 0) {
        mpp_stack_t *stack = stack_at(frames, id);
        assert(stack->references > 0);
        if (--stack->references > 0) return;

        mpp_id_t parent = stack->parent;
        mpp_index_remove(&frames->stack_index, hash_of_stack(parent, stack->location), id);
        release_location(frames, stack->location);
        mpp_slab_give(&frames->stacks, id);
        id = parent;
    }
}

void
mpp_frames_trim(mpp_frames_t *frames)
{
    mpp_index_trim(&frames->function_index);
    mpp_index_trim(&frames->location_index);
    mpp_index_trim(&frames->stack_index);
}
