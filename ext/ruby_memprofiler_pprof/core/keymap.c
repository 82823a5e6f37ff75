/*
 * Linear probing as in index.c, with the keys in the slots. Whenever homes change all at once (growth, sweep, rekey)
 * the table is put right in place by one routine: every entry is first marked unplaced; then each is lifted out and put
 * into the first slot from its home that does not hold a placed entry. If an unplaced entry stood there, that one is in
 * hand next. A placed entry never moves again, and all slots between its home and itself are placed: the invariant of
 * linear probing.
 */

#include "keymap.h"

#include <assert.h>
#include <string.h>

#define MIN_ENTRIES 16u
#define MAX_ENTRIES (UINT32_C(1) << 31)

void
mpp_keymap_init(mpp_keymap_t *map, mpp_allocator_t *allocator)
{
    *map = (mpp_keymap_t){.allocator = allocator};
}

void
mpp_keymap_cleanup(mpp_keymap_t *map)
{
    mpp_release(map->allocator, map->entries, mpp_keymap_bytes(map));
    *map = (mpp_keymap_t){.allocator = map->allocator};
}

static inline uint32_t
home_of(const mpp_keymap_t *map, uintptr_t key)
{
    return (uint32_t)mpp_hash_mix(key) & (map->n_entries - 1);
}

/* Where the key is, or the empty slot where it would be. */
static inline mpp_keymap_entry_t *
slot_of(const mpp_keymap_t *map, uintptr_t key)
{
    uint32_t i = home_of(map, key);
    while (map->entries[i].key != key && map->entries[i].key != 0) i = (i + 1) & (map->n_entries - 1);
    return &map->entries[i];
}

static void
place(mpp_keymap_t *map, mpp_keymap_entry_t in_hand)
{
    while (in_hand.key != 0) {
        uint32_t i = home_of(map, in_hand.key);
        while (map->entries[i].key != 0 && !map->entries[i].unplaced) i = (i + 1) & (map->n_entries - 1);
        mpp_keymap_entry_t displaced = map->entries[i];
        in_hand.unplaced = false;
        map->entries[i] = in_hand;
        in_hand = displaced;
    }
}

static void
place_all(mpp_keymap_t *map)
{
    for (uint32_t i = 0; i < map->n_entries; i++) map->entries[i].unplaced = map->entries[i].key != 0;
    for (uint32_t i = 0; i < map->n_entries; i++) {
        if (!map->entries[i].unplaced) continue;
        mpp_keymap_entry_t in_hand = map->entries[i];
        map->entries[i] = (mpp_keymap_entry_t){0};
        place(map, in_hand);
    }
}

static mpp_status_t
grow(mpp_keymap_t *map)
{
    if (map->n_entries == MAX_ENTRIES) return MPP_FULL;
    uint32_t n_entries = map->n_entries == 0 ? MIN_ENTRIES : map->n_entries * 2;
    void *block = map->entries;
    mpp_status_t status =
        mpp_resize(map->allocator, &block, mpp_keymap_bytes(map), n_entries * sizeof(mpp_keymap_entry_t));
    if (status != MPP_OK) return status;

    map->entries = block;
    map->n_entries = n_entries;
    place_all(map);
    return MPP_OK;
}

mpp_id_t
mpp_keymap_find(mpp_keymap_t *map, uintptr_t key)
{
    if (MPP_UNLIKELY(map->n_used == 0)) return 0;
    mpp_keymap_entry_t *entry = slot_of(map, key);
    if (entry->key == 0) return 0;
    entry->used = true;
    return entry->value;
}

mpp_status_t
mpp_keymap_add(mpp_keymap_t *map, uintptr_t key, mpp_id_t value)
{
    assert(key != 0);
    if (map->n_used >= map->n_entries / 4 * 3) {
        mpp_status_t status = grow(map);
        if (status != MPP_OK) return status;
    }
    mpp_keymap_entry_t *entry = slot_of(map, key);
    assert(entry->key == 0);
    *entry = (mpp_keymap_entry_t){.key = key, .value = value, .used = true};
    map->n_used++;
    return MPP_OK;
}

/* Empties a slot and closes the gap: what follows in the same run and may stand nearer to its home moves there. */
static mpp_id_t
empty_slot(mpp_keymap_t *map, uint32_t gap)
{
    mpp_id_t value = map->entries[gap].value;
    uint32_t mask = map->n_entries - 1;
    for (uint32_t i = (gap + 1) & mask; map->entries[i].key != 0; i = (i + 1) & mask) {
        uint32_t from_home = (i - home_of(map, map->entries[i].key)) & mask;
        uint32_t from_gap = (i - gap) & mask;
        if (from_home < from_gap) continue;
        map->entries[gap] = map->entries[i];
        gap = i;
    }
    map->entries[gap] = (mpp_keymap_entry_t){0};
    map->n_used--;
    return value;
}

mpp_id_t
mpp_keymap_remove(mpp_keymap_t *map, uintptr_t key)
{
    if (map->n_used == 0) return 0;
    const mpp_keymap_entry_t *entry = slot_of(map, key);
    return entry->key == 0 ? 0 : empty_slot(map, (uint32_t)(entry - map->entries));
}

void
mpp_keymap_clear(mpp_keymap_t *map, mpp_keymap_drop_t drop, void *context)
{
    if (map->n_used == 0) return;
    for (uint32_t i = 0; i < map->n_entries; i++) {
        if (map->entries[i].key != 0) drop(context, map->entries[i].value);
    }
    memset(map->entries, 0, mpp_keymap_bytes(map));
    map->n_used = 0;
}

void
mpp_keymap_sweep(mpp_keymap_t *map, mpp_keymap_visit_t visit, void *visit_context, mpp_keymap_drop_t drop,
                 void *drop_context)
{
    uint32_t n_before = map->n_used;
    for (uint32_t i = 0; i < map->n_entries; i++) {
        mpp_keymap_entry_t *entry = &map->entries[i];
        if (entry->key == 0) continue;
        if (entry->used) {
            entry->used = false;
            visit(visit_context, entry->key);
        } else {
            drop(drop_context, entry->value);
            *entry = (mpp_keymap_entry_t){0};
            map->n_used--;
        }
    }
    if (map->n_used != n_before) place_all(map);
}

/* Downwards, for what closes a gap comes from above: it was looked at before, and is not looked at twice. */
void
mpp_keymap_prune(mpp_keymap_t *map, uint32_t n_slots, mpp_keymap_drop_t drop, void *drop_context)
{
    if (n_slots > map->n_entries) n_slots = map->n_entries;
    for (; n_slots > 0; n_slots--) {
        uint32_t i = --map->pruned_to & (map->n_entries - 1);
        mpp_keymap_entry_t *entry = &map->entries[i];
        bool given_up = entry->key != 0 && !entry->used;
        entry->used = false;
        if (given_up) drop(drop_context, empty_slot(map, i));
    }
}

void
mpp_keymap_rekey(mpp_keymap_t *map, uintptr_t (*relocate)(void *context, uintptr_t key), void *context)
{
    bool moved = false;
    for (uint32_t i = 0; i < map->n_entries; i++) {
        mpp_keymap_entry_t *entry = &map->entries[i];
        if (entry->key == 0) continue;
        uintptr_t key = relocate(context, entry->key);
        assert(key != 0);
        moved |= key != entry->key;
        entry->key = key;
    }
    if (moved) place_all(map);
}

void
mpp_keymap_trim(mpp_keymap_t *map)
{
    mpp_keymap_t smaller = *map;
    void *block = NULL;
    while (smaller.n_entries > MIN_ENTRIES && map->n_used < smaller.n_entries / 8) smaller.n_entries /= 2;
    if (smaller.n_entries == map->n_entries) return;
    /* Refused memory, the larger table goes on serving. */
    if (mpp_resize(map->allocator, &block, 0, mpp_keymap_bytes(&smaller)) != MPP_OK) return;

    smaller.entries = block;
    for (uint32_t i = 0; i < map->n_entries; i++) {
        if (map->entries[i].key != 0) *slot_of(&smaller, map->entries[i].key) = map->entries[i];
    }
    mpp_keymap_cleanup(map);
    *map = smaller;
}

size_t
mpp_keymap_bytes(const mpp_keymap_t *map)
{
    return map->n_entries * sizeof(mpp_keymap_entry_t);
}
