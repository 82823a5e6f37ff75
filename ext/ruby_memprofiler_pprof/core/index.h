#ifndef MPP_INDEX_H
#define MPP_INDEX_H

/*
 * Hash → id: the way into a slab by contents. Open addressing, linear probing, 8 bytes a slot; the hash stands beside
 * the id, so that a look-up that finds nothing touches no element. Deletion shifts the run back: no tombstones.
 * The caller owns the elements and compares them (`equal`).
 */

#include "base.h"

/* Slots that stay in the processor's first cache among other things. */
#define MPP_INDEX_CACHED_SLOTS 2048u

typedef struct {
    mpp_id_t id; /* 0: empty */
    uint32_t hash;
} mpp_index_slot_t;

typedef struct {
    mpp_allocator_t *allocator;
    mpp_index_slot_t *slots; /* n_slots, a power of two, or NULL when n_slots is 0 */
    uint32_t n_slots;
    uint32_t n_used;
} mpp_index_t;

/* Owns nothing yet. [any] */
void mpp_index_init(mpp_index_t *index, mpp_allocator_t *allocator);
void mpp_index_cleanup(mpp_index_t *index);

/* Makes room for one more (at most 3 of 4 slots are used). On failure the index is unchanged and usable. [newobj] */
MPP_CHECK mpp_status_t mpp_index_reserve(mpp_index_t *index);

/* Adds an id that is not there; mpp_index_reserve came before, so it cannot fail. [newobj] */
void mpp_index_insert(mpp_index_t *index, uint32_t hash, mpp_id_t id);

/* Removes an id that is there. Never shrinks. [newobj] [gc] */
void mpp_index_remove(mpp_index_t *index, uint32_t hash, mpp_id_t id);

/* Empties it, keeps its memory. [newobj] [gc] */
void mpp_index_clear(mpp_index_t *index);

/* Gives memory back after a burst: halves while under 1/8 full. Best effort, cannot fail. [newobj] */
void mpp_index_trim(mpp_index_t *index);

/* The id whose hash is `hash` and for which equal(context, id) holds, or 0. [newobj] [gc] */
static inline mpp_id_t
mpp_index_find(const mpp_index_t *index, uint32_t hash, bool (*equal)(const void *context, mpp_id_t id),
               const void *context)
{
    if (index->n_slots == 0) return 0;
    uint32_t mask = index->n_slots - 1;
    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        mpp_index_slot_t slot = index->slots[i];
        if (slot.id == 0) return 0;
        if (slot.hash == hash && equal(context, slot.id)) return slot.id;
    }
}

/* Whether any id has that hash: a look-up without a comparison. False is certain. [newobj] [gc] */
static inline bool
mpp_index_has_hash(const mpp_index_t *index, uint32_t hash)
{
    if (index->n_slots == 0) return false;
    uint32_t mask = index->n_slots - 1;
    for (uint32_t i = hash & mask; index->slots[i].id != 0; i = (i + 1) & mask) {
        if (index->slots[i].hash == hash) return true;
    }
    return false;
}

/* Fetches the slots of a hash that will be looked up soon, where the table is larger than the first cache. [newobj] [gc] */
static inline void
mpp_index_prefetch(const mpp_index_t *index, uint32_t hash)
{
    if (index->n_slots > MPP_INDEX_CACHED_SLOTS) __builtin_prefetch(&index->slots[hash & (index->n_slots - 1)], 1);
}

/* Bytes held. [any] */
size_t mpp_index_bytes(const mpp_index_t *index);

#endif
