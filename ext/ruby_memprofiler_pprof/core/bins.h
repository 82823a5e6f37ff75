#ifndef MPP_BINS_H
#define MPP_BINS_H

/*
 * Hash → id for tables of which most look-ups find nothing, and where adding and removing must cost the same always: the
 * live records. A bin is one cache line with 12 ids and a byte of each one's hash; an id is in the bin of its hash, or if
 * that is full in the next with room. Nothing ever moves: removing clears a byte. A bin counts the ids that went past it
 * (`n_passed`), and where none did, a look-up ends.
 * At most 4 of 5 places are used and the table doubles: 6.7 to 13.3 bytes an id. The caller owns what the ids stand for,
 * and compares.
 */

#include "base.h"

#include <string.h>

#define MPP_BIN_PLACES 12u

/* Bins that stay in the processor's first cache among other things. */
#define MPP_BINS_CACHED 256u

typedef struct {
    uint8_t tags[MPP_BIN_PLACES]; /* a byte of the hash, 0: the place is free */
    uint8_t n_passed;             /* 255: that many or more, for good */
    uint8_t unused[3];
    mpp_id_t ids[MPP_BIN_PLACES];
} mpp_bin_t;

typedef struct {
    mpp_allocator_t *allocator;
    void *block;     /* of the bins, which are aligned to cache lines in it */
    mpp_bin_t *bins; /* n_bins, a power of two, or NULL when that is 0 */
    uint32_t n_bins;
    uint32_t n_used;
} mpp_bins_t;

typedef bool (*mpp_bins_equal_t)(const void *context, mpp_id_t id);

/* Owns nothing yet. [any] */
void mpp_bins_init(mpp_bins_t *bins, mpp_allocator_t *allocator);
void mpp_bins_cleanup(mpp_bins_t *bins); /* a zeroed one is fine. [newobj] [gc] */

/* Empties it and makes room for so many ids, in place: the old bins and the new ones never stand side by side. On failure
 * nothing has changed. [newobj] */
MPP_CHECK mpp_status_t mpp_bins_resize(mpp_bins_t *bins, uint32_t n_ids);

/* Whether there is room for one more, and whether less than an eighth is used of what a table has at least: else the
 * caller resizes it and adds all again that were in it. [any] */
bool mpp_bins_are_full(const mpp_bins_t *bins);
bool mpp_bins_are_sparse(const mpp_bins_t *bins);

/* Adds an id that is not there; there is room. True: others may have the same hash. False: none has. [newobj] [gc] */
bool mpp_bins_insert(mpp_bins_t *bins, uint32_t hash, mpp_id_t id);

/* Removes, or renames, an id that is there. [newobj] [gc] */
void mpp_bins_remove(mpp_bins_t *bins, uint32_t hash, mpp_id_t id);
void mpp_bins_rename(mpp_bins_t *bins, uint32_t hash, mpp_id_t from, mpp_id_t to);

/* Empties it, keeps its memory. [newobj] [gc] */
void mpp_bins_clear(mpp_bins_t *bins);

size_t mpp_bins_bytes(const mpp_bins_t *bins); /* [any] */

static inline mpp_bin_t *
mpp_bins_home(const mpp_bins_t *bins, uint32_t hash)
{
    return &bins->bins[hash & (bins->n_bins - 1)];
}

static inline uint8_t
mpp_bins_tag(uint32_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 24);
    return tag ? tag : 1;
}

/* The high bit of byte i is set if that byte is the tag; it may be also above the first byte that is. [any] */
static inline uint64_t
mpp_bins_compare(uint64_t tags, uint8_t tag)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t differences = tags ^ ones * tag;
    return (differences - ones) & ~differences & ones << 7;
}

/* Of eight such bits, one a byte, eight in a row. */
static inline uint32_t
mpp_bins_gather(uint64_t bits)
{
    return (uint32_t)((bits >> 7) * UINT64_C(0x0102040810204080) >> 56);
}

typedef struct {
    uint64_t low, high; /* the first 8, and the other 4 */
} mpp_bin_tags_t;

static inline mpp_bin_tags_t
mpp_bin_tags(const mpp_bin_t *bin)
{
    uint64_t low;
    uint32_t high;
    memcpy(&low, bin->tags, sizeof low);
    memcpy(&high, bin->tags + sizeof low, sizeof high);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    low = __builtin_bswap64(low);
    high = __builtin_bswap32(high);
#endif
    return (mpp_bin_tags_t){low, high};
}

/* Bit i is set if place i has that tag; it may be also above the first place that has. [any] */
static inline uint32_t
mpp_bin_matches(const mpp_bin_t *bin, uint8_t tag)
{
    mpp_bin_tags_t tags = mpp_bin_tags(bin);
    uint32_t high = mpp_bins_gather(mpp_bins_compare(tags.high, tag)) & 0xf;
    return mpp_bins_gather(mpp_bins_compare(tags.low, tag)) | high << 8;
}

/* Whether any place has that tag, which is not 0. [any] */
static inline bool
mpp_bin_has(const mpp_bin_t *bin, uint8_t tag)
{
    mpp_bin_tags_t tags = mpp_bin_tags(bin);
    return (mpp_bins_compare(tags.low, tag) | mpp_bins_compare(tags.high, tag)) != 0;
}

/* One id in the home bin that may have that hash, or 0. [newobj] [gc] */
static inline mpp_id_t
mpp_bins_guess(const mpp_bins_t *bins, uint32_t hash)
{
    const mpp_bin_t *bin = mpp_bins_home(bins, hash);
    uint32_t matches = mpp_bin_matches(bin, mpp_bins_tag(hash));
    return matches ? bin->ids[__builtin_ctz(matches)] : 0;
}

/* As below, where the home bin does not decide. [newobj] [gc] */
bool mpp_bins_have_further(const mpp_bins_t *bins, uint32_t hash);

/* Whether any id may have that hash: mostly one cache line. False is certain. [newobj] [gc] */
static inline bool
mpp_bins_may_have(const mpp_bins_t *bins, uint32_t hash)
{
    if (bins->n_bins == 0) return false;
    const mpp_bin_t *bin = mpp_bins_home(bins, hash);
    if (mpp_bin_has(bin, mpp_bins_tag(hash))) return true;
    return MPP_UNLIKELY(bin->n_passed != 0) && mpp_bins_have_further(bins, hash);
}

/* The id for which equal(context, id) holds, or 0; `take` removes it. [newobj] [gc] */
mpp_id_t mpp_bins_find(const mpp_bins_t *bins, uint32_t hash, mpp_bins_equal_t equal, const void *context);
mpp_id_t mpp_bins_take(mpp_bins_t *bins, uint32_t hash, mpp_bins_equal_t equal, const void *context);

/* Fetches the bin of a hash that will be looked up soon, where the table is larger than the first cache. [newobj] [gc] */
static inline void
mpp_bins_prefetch(const mpp_bins_t *bins, uint32_t hash)
{
    if (bins->n_bins > MPP_BINS_CACHED) __builtin_prefetch(mpp_bins_home(bins, hash), 1);
}

#endif
