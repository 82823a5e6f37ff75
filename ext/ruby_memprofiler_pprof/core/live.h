#ifndef MPP_LIVE_H
#define MPP_LIVE_H

/*
 * The table of sampled objects that are not known dead: object key → record. Records (32 bytes) are packed in chunks
 * behind small bins (5.3 bytes a place), so that memory follows the number of records at every fill and a death that is
 * not ours costs a look at one cache line.
 */

#include "bins.h"
#include "sampler.h"
#include "slab.h"

/* No object is larger; of what claims to be, this much is recorded. */
#define MPP_LIVE_MAX_BYTES ((UINT64_C(1) << 48) - 1)

typedef struct {
    uintptr_t key;            /* 0: the host has forgotten the address, or never gave one */
    uint64_t bytes : 48;      /* as last measured: see mpp_live_set_bytes */
    uint64_t weight_shift : 6;
    uint64_t doublings : 6;     /* by thinning */
    uint64_t born_sweeping : 1; /* drained while a sweep was going on */
    uint64_t unmeasured : 1;    /* the host's own note */
    uint32_t weight_digits;     /* see mpp_live_set_weight */
    mpp_id_t row;    /* nonzero while the record is in use */
    uint32_t birth;  /* host's stamp: collections begun when it was drained */
    uint32_t serial; /* the table's count of additions, wrapped: with the id, one that a reused id had not before */
} mpp_live_record_t;

typedef struct {
    mpp_slab_t records;
    mpp_bins_t bins;  /* of those that have a key */
    uint32_t n_added;  /* wraps */
} mpp_live_t;

/* Of a weight, its first 32 binary digits are kept, which is all that the sampler's have. [any] */
static inline void
mpp_live_set_weight(mpp_live_record_t *record, mpp_weight_t weight)
{
    uint32_t high = (uint32_t)(weight >> 32);
    unsigned shift = high ? 32 - (unsigned)__builtin_clz(high) : 0;
    record->weight_digits = (uint32_t)(weight >> shift);
    record->weight_shift = shift & 63;
}

/* What it stands for, with thinning. [any] */
static inline mpp_sum_t
mpp_live_weight(const mpp_live_record_t *record)
{
    return (mpp_sum_t)record->weight_digits << record->weight_shift << record->doublings;
}

static inline void
mpp_live_set_bytes(mpp_live_record_t *record, uint64_t bytes)
{
    record->bytes = (bytes < MPP_LIVE_MAX_BYTES ? bytes : MPP_LIVE_MAX_BYTES) & MPP_LIVE_MAX_BYTES;
}

/*
 * Keys are addresses at even distances, which the upper half of their product with 2^64 / phi spreads well for some
 * distances and table sizes, badly for others. Folding the top bits onto the low ones, multiplying once more and taking the
 * home bin from the middle does for all. [any]
 */
static inline uint32_t
mpp_live_hash(uintptr_t key)
{
    uint64_t product = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t folded = (uint32_t)(product >> 32 ^ product >> 45);
    uint32_t mixed = folded * UINT32_C(0x9e3779b1);
    return mixed >> 7 | mixed << 25;
}

/* On failure nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_live_init(mpp_live_t *live, mpp_allocator_t *allocator, uint32_t max_records);
void mpp_live_cleanup(mpp_live_t *live); /* a zeroed one is fine. [newobj] [gc] */

/* Adds a copy of *record with a serial of its own. *predecessor: the record that has the same key already, of an object
 * that died unseen, else 0; the caller removes it. On failure nothing has changed. [gvl] */
MPP_CHECK mpp_status_t mpp_live_add(mpp_live_t *live, const mpp_live_record_t *record, mpp_id_t *id,
                                    mpp_id_t *predecessor);

/* The record of a key, or 0. [newobj] [gc] */
mpp_id_t mpp_live_find(const mpp_live_t *live, uintptr_t key);

/* Whether the key may have a record: without a call and mostly one cache line. False is certain. [newobj] [gc] */
static inline bool
mpp_live_may_have(const mpp_live_t *live, uintptr_t key)
{
    return mpp_bins_may_have(&live->bins, mpp_live_hash(key));
}

/* The key will be looked up, or added, soon. [newobj] [gc] */
static inline void
mpp_live_prefetch(const mpp_live_t *live, uintptr_t key)
{
    mpp_bins_prefetch(&live->bins, mpp_live_hash(key));
}

/* Forgets the key of a record: it is not found by it any more. Gives the record, or 0. [newobj] [gc] */
mpp_id_t mpp_live_forget(mpp_live_t *live, uintptr_t key);

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

/* The key will be looked up soon, and was told to mpp_live_prefetch some time ago: fetches its record. [gc] */
static inline void
mpp_live_prefetch_record(const mpp_live_t *live, uintptr_t key)
{
    if (live->bins.n_bins <= MPP_BINS_CACHED) return;
    mpp_id_t id = mpp_bins_guess(&live->bins, mpp_live_hash(key));
    if (id) __builtin_prefetch(mpp_slab_at(&live->records, id), 1);
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
