#ifndef MPP_FRAMES_H
#define MPP_FRAMES_H

/*
 * Functions, locations and stacks, each interned by contents and reference-counted:
 *   function = name, filename, start line          holds its two strings
 *   location = function, line                      holds its function
 *   stack    = parent stack (towards the root), location; 0 is the empty stack. Holds its parent and its location
 * so a stack is a node of a prefix tree, and its id stands for the whole way to the root. Releasing the last reference
 * of a node releases down the chain stack → location → function → string (without recursion).
 * What one holds a reference to may be read without the GVL: elements do not move and do not change.
 */

#include "strtab.h"

typedef struct {
    mpp_id_t name;     /* string */
    mpp_id_t filename; /* string, 0 = none */
    int32_t start_line;
    uint32_t references;
} mpp_function_t;

typedef struct {
    mpp_id_t function;
    int32_t line;
    uint32_t references;
} mpp_location_t;

typedef struct {
    mpp_id_t parent;
    mpp_id_t location;
    uint32_t references; /* children count as one each */
    uint32_t depth;      /* nodes from here to the root, this one included */
} mpp_stack_t;

typedef struct {
    mpp_strtab_t *strings;
    mpp_slab_t functions;
    mpp_index_t function_index;
    mpp_slab_t locations;
    mpp_index_t location_index;
    mpp_slab_t stacks;
    mpp_index_t stack_index;
} mpp_frames_t;

/* max_elements bounds each of the three tables. On failure nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_frames_init(mpp_frames_t *frames, mpp_allocator_t *allocator, mpp_strtab_t *strings,
                                       uint32_t max_elements);
/* Frees the tables; the strings belong to the string table. A zeroed one is fine. [newobj] [gc] */
void mpp_frames_cleanup(mpp_frames_t *frames);

/*
 * Each gives an id with one more reference that the caller owns, or fails and changes nothing. An empty filename is
 * none. [newobj]
 */
MPP_CHECK mpp_status_t mpp_frames_function(mpp_frames_t *frames, mpp_view_t name, mpp_view_t filename,
                                           int32_t start_line, mpp_id_t *id);
/* The same function in another file (a string id); both are borrowed. [newobj] */
MPP_CHECK mpp_status_t mpp_frames_function_in(mpp_frames_t *frames, mpp_id_t function, mpp_id_t filename, mpp_id_t *id);
/* `parent` and `function` are borrowed: the new node takes references of its own. [newobj] */
MPP_CHECK mpp_status_t mpp_frames_push(mpp_frames_t *frames, mpp_id_t parent, mpp_id_t function, int32_t line,
                                       mpp_id_t *stack);

/* The stack of one frame of that name, without a file. [newobj] */
MPP_CHECK mpp_status_t mpp_frames_pseudo_stack(mpp_frames_t *frames, mpp_view_t name, mpp_id_t *stack);

void mpp_frames_retain_function(mpp_frames_t *frames, mpp_id_t function);  /* [newobj] [gc] */
void mpp_frames_release_function(mpp_frames_t *frames, mpp_id_t function); /* [newobj] [gc] */
void mpp_frames_retain_stack(mpp_frames_t *frames, mpp_id_t stack);        /* 0 is fine. [newobj] [gc] */
void mpp_frames_release_stack(mpp_frames_t *frames, mpp_id_t stack);       /* 0 is fine. [newobj] [gc] */

/* Valid while a reference is held. [no-gvl] */
static inline const mpp_function_t *
mpp_frames_get_function(const mpp_frames_t *frames, mpp_id_t id)
{
    return mpp_slab_at(&frames->functions, id);
}
static inline const mpp_location_t *
mpp_frames_get_location(const mpp_frames_t *frames, mpp_id_t id)
{
    return mpp_slab_at(&frames->locations, id);
}
static inline const mpp_stack_t *
mpp_frames_get_stack(const mpp_frames_t *frames, mpp_id_t id)
{
    return mpp_slab_at(&frames->stacks, id);
}

/* Gives memory back after a burst. [newobj] */
void mpp_frames_trim(mpp_frames_t *frames);

#endif
