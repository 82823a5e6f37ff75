#ifndef MPP_SLAB_H
#define MPP_SLAB_H

/*
 * A table of equal-sized elements named by ids, in chunks that never move: an element keeps its address from take to
 * give, so what a reader without the GVL references stays where it is while the owner adds and removes others. Only
 * mpp_slab_compact moves elements.
 * A chunk that has become empty goes back to the allocator (one is kept, against thrashing).
 * Ids run from 1 to max_elements and are reused.
 */

#include "base.h"

#define MPP_SLAB_CHUNK_ELEMENTS 1024u

typedef struct {
    unsigned char *elements; /* NULL: not allocated */
    uint16_t n_used;
    uint16_t n_touched;  /* elements below this offset were used at least once since the chunk was allocated */
    uint16_t first_free; /* 1 + offset of the first given-back element, 0 = none; the next follows in its first bytes */
    uint32_t next;       /* 1 + chunk number, 0 = none; allocated chunks with room and chunks that were released form */
    uint32_t previous;   /* a list each, full ones are in neither */
} mpp_slab_chunk_t;

typedef struct {
    mpp_allocator_t *allocator;
    mpp_slab_chunk_t *chunks; /* max_chunks of them, allocated once: the directory never moves either */
    uint32_t max_chunks;
    uint32_t max_elements;
    uint32_t element_bytes;
    uint32_t n_used;
    uint32_t n_chunks_allocated;
    uint32_t end_chunk;      /* chunks at and above this number were never allocated */
    uint32_t first_open;     /* 1 + chunk number, 0 = none: allocated, with room */
    uint32_t first_released; /* 1 + chunk number, 0 = none: below end_chunk, not allocated */
    uint32_t spare;          /* 1 + chunk number, 0 = none: the one empty chunk that is kept */
} mpp_slab_t;

/* element_bytes: at least 4. Allocates the directory. On failure nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_slab_init(mpp_slab_t *slab, mpp_allocator_t *allocator, size_t element_bytes,
                                     uint32_t max_elements);

/* Frees all. A zeroed slab is fine. [newobj] [gc] */
void mpp_slab_cleanup(mpp_slab_t *slab);

/* Gives a zeroed element. MPP_FULL beyond max_elements. On failure nothing has changed. [newobj] */
MPP_CHECK mpp_status_t mpp_slab_take(mpp_slab_t *slab, mpp_id_t *id);

/*
 * Takes an element back. Its bytes are zeroed, then its first 4 hold a link: whoever scans a slab keeps the field that
 * tells "in use" behind them. [newobj] [gc]
 */
void mpp_slab_give(mpp_slab_t *slab, mpp_id_t id);

/*
 * Moves elements from the last chunks into the gaps of others until no chunk more can be emptied, and gives the empty
 * ones back, the spare too. `in_use` tells which elements are; `moved` hears of each that has a new id. Only for tables
 * of which nobody holds an address or an id meanwhile. O(elements of the emptied chunks), allocates nothing. [newobj]
 */
void mpp_slab_compact(mpp_slab_t *slab, bool (*in_use)(const void *element),
                      void (*moved)(void *context, mpp_id_t from, mpp_id_t to), void *context);

/* The element of an id that was taken. [any] */
static inline void *
mpp_slab_at(const mpp_slab_t *slab, mpp_id_t id)
{
    uint32_t offset = id - 1;
    return slab->chunks[offset / MPP_SLAB_CHUNK_ELEMENTS].elements +
           (size_t)(offset % MPP_SLAB_CHUNK_ELEMENTS) * slab->element_bytes;
}

/* Whether an id has an element, in use or not: chunks that became empty have none. [any] */
static inline bool
mpp_slab_has(const mpp_slab_t *slab, mpp_id_t id)
{
    if (id > slab->max_elements) return false;
    const mpp_slab_chunk_t *chunk = &slab->chunks[(id - 1) / MPP_SLAB_CHUNK_ELEMENTS];
    return chunk->elements && (id - 1) % MPP_SLAB_CHUNK_ELEMENTS < chunk->n_touched;
}

/*
 * For scans: the smallest id above `after` whose element was used since its chunk was allocated, 0 at the end. It may
 * no longer be in use. [any]
 */
mpp_id_t mpp_slab_next(const mpp_slab_t *slab, mpp_id_t after);

/* Bytes held, directory and all. [any] */
size_t mpp_slab_bytes(const mpp_slab_t *slab);

#endif
