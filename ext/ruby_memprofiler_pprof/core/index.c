/*
 * Linear probing from slot `hash & mask`. The invariant that every function keeps: between an entry's home slot and the
 * slot it stands in there is no empty one. Removing therefore closes its gap: the next entry of the run whose home is
 * not behind the gap moves into it and leaves the next gap, up to the end of the run.
 * At most 3 of 4 slots are used, so every probe meets an empty one.
 */

#include "index.h"

#include <assert.h>
#include <string.h>

#define MIN_SLOTS 16u
#define MAX_SLOTS (UINT32_C(1) << 31)

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

static void
place(mpp_index_slot_t *slots, uint32_t n_slots, mpp_index_slot_t entry)
{
    uint32_t mask = n_slots - 1;
    uint32_t i = entry.hash & mask;
    while (slots[i].id != 0) i = (i + 1) & mask;
    slots[i] = entry;
}

static mpp_status_t
rehash(mpp_index_t *index, uint32_t n_slots)
{
    void *block = NULL;
    mpp_status_t status = mpp_resize(index->allocator, &block, 0, n_slots * sizeof(mpp_index_slot_t));
    if (status != MPP_OK) return status;

    mpp_index_slot_t *slots = block;
    for (uint32_t i = 0; i < index->n_slots; i++) {
        if (index->slots[i].id != 0) place(slots, n_slots, index->slots[i]);
    }
    mpp_release(index->allocator, index->slots, mpp_index_bytes(index));
    index->slots = slots;
    index->n_slots = n_slots;
    return MPP_OK;
}

mpp_status_t
mpp_index_reserve(mpp_index_t *index)
{
    if (MPP_LIKELY(index->n_used < index->n_slots / 4 * 3)) return MPP_OK;
    if (index->n_slots == MAX_SLOTS) return MPP_FULL;
    return rehash(index, index->n_slots == 0 ? MIN_SLOTS : index->n_slots * 2);
}

void
mpp_index_insert(mpp_index_t *index, uint32_t hash, mpp_id_t id)
{
    assert(id != 0);
    assert(index->n_used < index->n_slots / 4 * 3);
    place(index->slots, index->n_slots, (mpp_index_slot_t){.id = id, .hash = hash});
    index->n_used++;
}

void
mpp_index_remove(mpp_index_t *index, uint32_t hash, mpp_id_t id)
{
    mpp_index_slot_t *slots = index->slots;
    uint32_t mask = index->n_slots - 1;
    uint32_t gap = hash & mask;
    while (slots[gap].id != id) {
        assert(slots[gap].id != 0);
        gap = (gap + 1) & mask;
    }
    for (uint32_t i = (gap + 1) & mask; slots[i].id != 0; i = (i + 1) & mask) {
        uint32_t from_home = (i - slots[i].hash) & mask;
        uint32_t from_gap = (i - gap) & mask;
        if (from_home < from_gap) continue;
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
    uint32_t n_slots = index->n_slots;
    while (n_slots > MIN_SLOTS && index->n_used < n_slots / 8) n_slots /= 2;
    if (n_slots == index->n_slots) return;

    mpp_status_t status = rehash(index, n_slots);
    (void)status; /* the larger table goes on serving */
}

size_t
mpp_index_bytes(const mpp_index_t *index)
{
    return index->n_slots * sizeof(mpp_index_slot_t);
}
