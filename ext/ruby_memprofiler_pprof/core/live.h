#ifndef MPP_LIVE_H
#define MPP_LIVE_H

/*
 * The table of sampled objects that are not known dead: object key → record. Records (40 bytes) are packed in chunks
 * behind a small index (8 bytes a slot), so that memory follows the number of records at every fill and a death that is
 * not ours costs one probe.
 */

#include "index.h"
#include "sampler.h"
#include "slab.h"

typedef struct {
    uintptr_t key; /* 0: the host has forgotten the address, or never gave one */
    uint64_t bytes; /* as last measured */
    mpp_weight_t weight;
    mpp_id_t row; /* nonzero while the record is in use */
    uint32_t birth; /* host's stamp: collections begun when it was drained */
    uint32_t serial; /* the table's count of additions, wrapped: with the id, one that a reused id had not before */
    uint8_t doublings; /* by thinning: it stands for weight × 2^doublings */
    bool born_sweeping; /* drained while a sweep was going on */
} mpp_live_record_t;

typedef struct {
    mpp_slab_t records;
    mpp_index_t index; /* of those that have a key */
    uint32_t n_added;  /* wraps */
} mpp_live_t;

/* The weight with thinning. [any] */
static inline mpp_sum_t
mpp_live_weight(const mpp_live_record_t *record)
{
    return (mpp_sum_t)record->weight << record->doublings;
}

/*
 * Keys are addresses at even distances, which the upper half of their product with 2^64 / phi spreads well for some
 * distances and table sizes, badly for others. Folding the top bits onto the low ones, where the index has its slot
 * number from, does for all. [any]
 */
static inline uint32_t
mpp_live_hash(uintptr_t key)
{
    uint64_t product = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(product >> 32 ^ product >> 45);
}

/* On failure nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_live_init(mpp_live_t *live, mpp_allocator_t *allocator, uint32_t max_records);
void mpp_live_cleanup(mpp_live_t *live); /* a zeroed one is fine. [newobj] [gc] */

/* Adds a copy of *record, whose key is new or 0, with a serial of its own. On failure nothing has changed. [gvl] */
MPP_CHECK mpp_status_t mpp_live_add(mpp_live_t *live, const mpp_live_record_t *record, mpp_id_t *id);

/* The record of a key, or 0. [newobj] [gc] */
mpp_id_t mpp_live_find(const mpp_live_t *live, uintptr_t key);

/* Whether the key may have a record: without a call and mostly one cache line. False is certain. [newobj] [gc] */
static inline bool
mpp_live_may_have(const mpp_live_t *live, uintptr_t key)
{
    return mpp_index_has_hash(&live->index, mpp_live_hash(key));
}

/* The key will be looked up, or added, soon. [newobj] [gc] */
static inline void
mpp_live_prefetch(const mpp_live_t *live, uintptr_t key)
{
    mpp_index_prefetch(&live->index, mpp_live_hash(key));
}

/* Removes a record. [newobj] [gc] */
void mpp_live_remove(mpp_live_t *live, mpp_id_t id);

/* Every key becomes relocate(context, key). In place, without allocating. [gc] */
void mpp_live_rekey(mpp_live_t *live, uintptr_t (*relocate)(void *context, uintptr_t key), void *context);

/* Forgets every address: keys become 0, nothing is found any more, the records stay. [gvl] */
void mpp_live_forget_keys(mpp_live_t *live);

static inline mpp_live_record_t *
mpp_live_at(const mpp_live_t *live, mpp_id_t id)
{
    return mpp_slab_at(&live->records, id);
}

/* The next record in use after `after` (0: the first), 0 at the end. Records may come and go between calls.
 * [newobj] */
mpp_id_t mpp_live_next(const mpp_live_t *live, mpp_id_t after);

/* Packs the records into as few chunks as hold them, gives the others back. Ids change; allocates nothing. [newobj] */
void mpp_live_compact(mpp_live_t *live);
/* Whether the record that had that id and serial still has. [gvl] */
static inline bool
mpp_live_has(const mpp_live_t *live, mpp_id_t id, uint32_t serial)
{
    if (!mpp_slab_has(&live->records, id)) return false;
    const mpp_live_record_t *record = mpp_live_at(live, id);
    return record->row != 0 && record->serial == serial;
}

uint32_t mpp_live_count(const mpp_live_t *live); /* [any] */
size_t mpp_live_bytes(const mpp_live_t *live);   /* [any] */

/* Gives memory back after a burst. [newobj] */
void mpp_live_trim(mpp_live_t *live);

#endif
