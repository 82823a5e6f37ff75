#ifndef MPP_INDEX_H
#define MPP_INDEX_H

/*
 * Hash → id: the way into a slab by contents. Open addressing, linear probing, 8 bytes a slot; the hash stands beside
 * the id, so that a look-up that finds nothing touches no element. Deletion shifts the run back: no tombstones.
 * The caller owns the elements and compares them (`equal`).
 */

#include "base.h"

typedef struct {
    mpp_id_t id; /* 0: empty */
    uint32_t hash;
} mpp_index_slot_t;

typedef struct {
    mpp_allocator_t *allocator;
    mpp_index_slot_t *slots; /* n_slots, or NULL when that is 0 */
    uint32_t n_slots;
    uint32_t n_used;
} mpp_index_t;

/* Owns nothing yet. [any] */
void mpp_index_init(mpp_index_t *index, mpp_allocator_t *allocator);
void mpp_index_cleanup(mpp_index_t *index);

/* Makes room for one more (at most 3 of 4 slots are used). On failure the index is unchanged and usable. [newobj] */
MPP_CHECK mpp_status_t mpp_index_reserve(mpp_index_t *index);

/* Adds an id (below 2^31) that is not there; mpp_index_reserve came before, so it cannot fail. [newobj] */
void mpp_index_insert(mpp_index_t *index, uint32_t hash, mpp_id_t id);

/* Removes an id that is there. Never shrinks. [newobj] [gc] */
void mpp_index_remove(mpp_index_t *index, uint32_t hash, mpp_id_t id);

/* Empties it, keeps its memory. [newobj] [gc] */
void mpp_index_clear(mpp_index_t *index);

/* Gives memory back after a burst: halves while under 1/8 full. [newobj] */
void mpp_index_trim(mpp_index_t *index);

/* The slot from which a hash is looked for, by its top bits. */
static inline uint32_t
mpp_index_home(const mpp_index_t *index, uint32_t hash)
{
    return (uint32_t)((uint64_t)hash * index->n_slots >> 32);
}

static inline uint32_t
mpp_index_after(const mpp_index_t *index, uint32_t slot)
{
    return MPP_LIKELY(slot + 1 < index->n_slots) ? slot + 1 : 0;
}

/* The id whose hash is `hash` and for which equal(context, id) holds, or 0. [newobj] [gc] */
static inline mpp_id_t
mpp_index_find(const mpp_index_t *index, uint32_t hash, bool (*equal)(const void *context, mpp_id_t id),
               const void *context)
{
    if (index->n_slots == 0) return 0;
    for (uint32_t i = mpp_index_home(index, hash);; i = mpp_index_after(index, i)) {
        mpp_index_slot_t slot = index->slots[i];
        if (slot.id == 0) return 0;
        if (slot.hash == hash && equal(context, slot.id)) return slot.id;
    }
}

/* Bytes held. [any] */
size_t mpp_index_bytes(const mpp_index_t *index);

#endif
