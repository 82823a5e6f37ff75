/*
 * See bins.h. An id that went past full bins has raised the count of each, which its removal lowers again; a count that has
 * reached 255 stays, and costs look-ups a bin more.
 */

#include "bins.h"

#include <assert.h>

#define MIN_BINS 2u
#define MAX_BINS (UINT32_C(1) << 24) /* the tags are of other bits of the hash */
#define LINE_BYTES 64u
#define STICKY UINT8_MAX

_Static_assert(sizeof(mpp_bin_t) == LINE_BYTES, "a bin is a cache line");

static uint32_t
capacity_of(uint32_t n_bins)
{
    return (uint32_t)((uint64_t)n_bins * MPP_BIN_PLACES * 4 / 5);
}

static size_t
block_bytes(uint32_t n_bins)
{
    return n_bins ? n_bins * sizeof(mpp_bin_t) + LINE_BYTES - 1 : 0;
}

void
mpp_bins_init(mpp_bins_t *bins, mpp_allocator_t *allocator)
{
    *bins = (mpp_bins_t){.allocator = allocator};
}

mpp_status_t
mpp_bins_resize(mpp_bins_t *bins, uint32_t n_ids)
{
    uint32_t n_bins = MIN_BINS;
    void *block = bins->block;
    while (capacity_of(n_bins) < n_ids && n_bins < MAX_BINS) n_bins *= 2;
    if (capacity_of(n_bins) < n_ids) return MPP_FULL;
    mpp_status_t status = mpp_resize(bins->allocator, &block, block_bytes(bins->n_bins), block_bytes(n_bins));
    if (status != MPP_OK) return status;

    bins->block = block;
    bins->bins = (mpp_bin_t *)(((uintptr_t)block + LINE_BYTES - 1) & ~(uintptr_t)(LINE_BYTES - 1));
    bins->n_bins = n_bins;
    mpp_bins_clear(bins);
    return MPP_OK;
}

void
mpp_bins_cleanup(mpp_bins_t *bins)
{
    mpp_release(bins->allocator, bins->block, block_bytes(bins->n_bins));
    mpp_bins_init(bins, bins->allocator);
}

bool
mpp_bins_are_full(const mpp_bins_t *bins)
{
    return bins->n_used >= capacity_of(bins->n_bins);
}

bool
mpp_bins_are_sparse(const mpp_bins_t *bins)
{
    return bins->n_bins > MIN_BINS && bins->n_used < capacity_of(bins->n_bins) / 8;
}

static mpp_bin_t *
bin_after(const mpp_bins_t *bins, mpp_bin_t *bin)
{
    return bin + 1 < bins->bins + bins->n_bins ? bin + 1 : bins->bins;
}

bool
mpp_bins_insert(mpp_bins_t *bins, uint32_t hash, mpp_id_t id)
{
    assert(id != 0 && !mpp_bins_are_full(bins));
    mpp_bin_t *bin = mpp_bins_home(bins, hash);
    uint8_t tag = mpp_bins_tag(hash);
    bool others = false;
    uint32_t free;
    for (;; bin = bin_after(bins, bin)) {
        others |= mpp_bin_has(bin, tag);
        free = mpp_bin_matches(bin, 0);
        if (MPP_LIKELY(free)) break;
        if (bin->n_passed < STICKY) bin->n_passed++;
    }
    unsigned place = (unsigned)__builtin_ctz(free);
    others |= bin->n_passed != 0; /* further on, where it does not look */
    bin->tags[place] = tag;
    bin->ids[place] = id;
    bins->n_used++;
    return others;
}

/* The place of an id that compares equal. */
typedef struct {
    mpp_bin_t *bin; /* NULL: nowhere */
    unsigned number;
} place_t;

static inline place_t
locate(const mpp_bins_t *bins, uint32_t hash, mpp_bins_equal_t equal, const void *context)
{
    if (bins->n_bins == 0) return (place_t){0};
    uint8_t tag = mpp_bins_tag(hash);
    mpp_bin_t *bin = mpp_bins_home(bins, hash);
    for (uint32_t n = 0; n < bins->n_bins; n++) {
        for (uint32_t matches = mpp_bin_matches(bin, tag); matches; matches &= matches - 1) {
            unsigned number = (unsigned)__builtin_ctz(matches);
            mpp_id_t id = bin->ids[number]; /* 0 where a free place was taken for a match */
            if (id != 0 && equal(context, id)) return (place_t){bin, number};
        }
        if (MPP_LIKELY(bin->n_passed == 0)) break;
        bin = bin_after(bins, bin);
    }
    return (place_t){0};
}

static void
leave(mpp_bins_t *bins, uint32_t hash, place_t place)
{
    for (mpp_bin_t *bin = mpp_bins_home(bins, hash); bin != place.bin; bin = bin_after(bins, bin)) {
        if (bin->n_passed < STICKY) bin->n_passed--;
    }
    place.bin->tags[place.number] = 0;
    place.bin->ids[place.number] = 0;
    bins->n_used--;
}

mpp_id_t
mpp_bins_find(const mpp_bins_t *bins, uint32_t hash, mpp_bins_equal_t equal, const void *context)
{
    place_t place = locate(bins, hash, equal, context);
    return place.bin ? place.bin->ids[place.number] : 0;
}

mpp_id_t
mpp_bins_take(mpp_bins_t *bins, uint32_t hash, mpp_bins_equal_t equal, const void *context)
{
    place_t place = locate(bins, hash, equal, context);
    if (!place.bin) return 0;
    mpp_id_t id = place.bin->ids[place.number];
    leave(bins, hash, place);
    return id;
}

static bool
is_same(const void *id, mpp_id_t other)
{
    return *(const mpp_id_t *)id == other;
}

void
mpp_bins_remove(mpp_bins_t *bins, uint32_t hash, mpp_id_t id)
{
    place_t place = locate(bins, hash, is_same, &id);
    assert(place.bin);
    leave(bins, hash, place);
}

void
mpp_bins_rename(mpp_bins_t *bins, uint32_t hash, mpp_id_t from, mpp_id_t to)
{
    place_t place = locate(bins, hash, is_same, &from);
    assert(place.bin);
    place.bin->ids[place.number] = to;
}

static bool
any(const void *unused, mpp_id_t id)
{
    (void)unused;
    (void)id;
    return true;
}

bool
mpp_bins_have_further(const mpp_bins_t *bins, uint32_t hash)
{
    return locate(bins, hash, any, NULL).bin != NULL;
}

void
mpp_bins_clear(mpp_bins_t *bins)
{
    if (bins->n_bins) memset(bins->bins, 0, bins->n_bins * sizeof(mpp_bin_t));
    bins->n_used = 0;
}

size_t
mpp_bins_bytes(const mpp_bins_t *bins)
{
    return block_bytes(bins->n_bins);
}
