/*
 * Linear probing from a home slot in proportion to the hash. The invariant that every function keeps: between an entry's
 * home slot and the slot it stands in there is no empty one. Removing therefore closes its gap: the next entry of the
 * run whose home is not behind the gap moves into it and leaves the next gap, up to the end of the run.
 * At most 3 of 4 slots are used, so every probe meets an empty one.
 * The size changes in place, so that it takes no more memory than the difference. All homes are other ones then: the
 * entries are moved up by all that the table grows, and one pass puts each into the first free slot from its new home.
 * They stand nearly in the order of their homes, so that is a slot which the pass has been at, but for the few that stand
 * at the beginning because their run went around the end: these push away what they meet ahead, and are marked there, so
 * that the pass leaves them. Only what the pass or a mark has placed counts as in the way.
 */

#include "index.h"

#include <assert.h>
#include <string.h>

#define MIN_SLOTS 16u
#define MAX_SLOTS (UINT32_C(1) << 31)
#define AHEAD (UINT32_C(1) << 31) /* in an id: placed where the pass is still to come */

static inline uint32_t
limit_of(uint32_t n_slots)
{
    return n_slots / 4 * 3;
}

/* How far it is from a slot on to another, around the end. */
static inline uint32_t
distance(const mpp_index_t *index, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + index->n_slots - from;
}

void
mpp_index_init(mpp_index_t *index, mpp_allocator_t *allocator)
{
    *index = (mpp_index_t){.allocator = allocator};
}

void
mpp_index_cleanup(mpp_index_t *index)
{
    mpp_release(index->allocator, index->slots, mpp_index_bytes(index));
    *index = (mpp_index_t){.allocator = index->allocator};
}

/* The pass has been at the slots up to `reached`. */
static inline void
place(mpp_index_t *index, mpp_index_slot_t in_hand, uint32_t reached)
{
    mpp_index_slot_t *slots = index->slots;
    do {
        uint32_t i = mpp_index_home(index, in_hand.hash);
        while (slots[i].id != 0 && (i <= reached || (slots[i].id & AHEAD))) i = mpp_index_after(index, i);
        mpp_index_slot_t displaced = slots[i];
        if (MPP_UNLIKELY(i > reached)) in_hand.id |= AHEAD;
        slots[i] = in_hand;
        in_hand = displaced;
    } while (MPP_UNLIKELY(in_hand.id != 0));
}

/* Puts the n_before slots in order for n_slots, fewer or more; there is memory for both. */
static void
place_all(mpp_index_t *index, uint32_t n_before)
{
    mpp_index_slot_t *slots = index->slots;
    uint32_t n_moved = index->n_slots > n_before ? index->n_slots - n_before : 0;
    memmove(slots + n_moved, slots, n_before * sizeof(*slots));
    memset(slots, 0, (n_moved < n_before ? n_moved : n_before) * sizeof(*slots));

    for (uint32_t i = n_moved; i < n_moved + n_before; i++) {
        mpp_index_slot_t in_hand = slots[i];
        if (in_hand.id == 0) continue;
        if (MPP_UNLIKELY(in_hand.id & AHEAD)) {
            slots[i].id &= ~AHEAD;
        } else {
            slots[i] = (mpp_index_slot_t){0};
            place(index, in_hand, i);
        }
    }
}

static mpp_status_t
grow(mpp_index_t *index)
{
    uint32_t n_before = index->n_slots, n_slots = n_before == 0 ? MIN_SLOTS : n_before * 2;
    void *block = index->slots;
    mpp_status_t status =
        mpp_resize(index->allocator, &block, mpp_index_bytes(index), n_slots * sizeof(mpp_index_slot_t));
    if (status != MPP_OK) return status;

    index->slots = block;
    index->n_slots = n_slots;
    place_all(index, n_before);
    return MPP_OK;
}

mpp_status_t
mpp_index_reserve(mpp_index_t *index)
{
    if (MPP_LIKELY(index->n_used < limit_of(index->n_slots))) return MPP_OK;
    if (index->n_slots == MAX_SLOTS) return MPP_FULL;
    return grow(index);
}

void
mpp_index_insert(mpp_index_t *index, uint32_t hash, mpp_id_t id)
{
    assert(id != 0 && !(id & AHEAD));
    assert(index->n_used < limit_of(index->n_slots));
    place(index, (mpp_index_slot_t){.id = id, .hash = hash}, index->n_slots);
    index->n_used++;
}

void
mpp_index_remove(mpp_index_t *index, uint32_t hash, mpp_id_t id)
{
    mpp_index_slot_t *slots = index->slots;
    uint32_t gap = mpp_index_home(index, hash);
    while (slots[gap].id != id) {
        assert(slots[gap].id != 0);
        gap = mpp_index_after(index, gap);
    }
    for (uint32_t i = mpp_index_after(index, gap); slots[i].id != 0; i = mpp_index_after(index, i)) {
        uint32_t from_home = distance(index, mpp_index_home(index, slots[i].hash), i);
        if (from_home < distance(index, gap, i)) continue;
        slots[gap] = slots[i];
        gap = i;
    }
    slots[gap] = (mpp_index_slot_t){0};
    index->n_used--;
}

void
mpp_index_clear(mpp_index_t *index)
{
    if (index->n_used == 0) return;
    memset(index->slots, 0, mpp_index_bytes(index));
    index->n_used = 0;
}

void
mpp_index_trim(mpp_index_t *index)
{
    uint32_t n_before = index->n_slots;
    size_t bytes_before = mpp_index_bytes(index);
    while (index->n_slots > MIN_SLOTS && index->n_used < index->n_slots / 8) index->n_slots /= 2;
    if (index->n_slots == n_before) return;

    place_all(index, n_before);
    void *block = index->slots;
    mpp_status_t status = mpp_resize(index->allocator, &block, bytes_before, mpp_index_bytes(index));
    (void)status; /* to less memory it cannot fail */
    index->slots = block;
}

size_t
mpp_index_bytes(const mpp_index_t *index)
{
    return index->n_slots * sizeof(mpp_index_slot_t);
}
