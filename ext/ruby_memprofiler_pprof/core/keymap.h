#ifndef MPP_KEYMAP_H
#define MPP_KEYMAP_H

/*
 * Host key (an address, never dereferenced) → id. The caches frame → function and class → name are keymaps.
 * A key stays only as long as the host says that the thing at the address is the same: it is removed when the thing
 * dies (mpp_keymap_remove), re-keyed when it moves, or, where deaths cannot be seen, kept only while used
 * (mpp_keymap_sweep). Where memory is short, what has not been used of late is given up (mpp_keymap_prune). The ids'
 * references are the caller's business: `drop` tells it of each id that leaves.
 */

#include "base.h"

typedef struct {
    uintptr_t key; /* 0: empty */
    mpp_id_t value;
    bool used;     /* looked up or added since the last sweep, or since pruning came by */
    bool unplaced; /* only while the table is put in order in place */
} mpp_keymap_entry_t;

typedef struct {
    mpp_allocator_t *allocator;
    mpp_keymap_entry_t *entries; /* n_entries, a power of two; open addressing, at most 3 of 4 used */
    uint32_t n_entries;
    uint32_t n_used;
    uint32_t pruned_to; /* the slot, modulo n_entries, below which pruning goes on */
} mpp_keymap_t;

typedef void (*mpp_keymap_visit_t)(void *context, uintptr_t key);
typedef void (*mpp_keymap_drop_t)(void *context, mpp_id_t value);

void mpp_keymap_init(mpp_keymap_t *map, mpp_allocator_t *allocator); /* owns nothing yet. [any] */
void mpp_keymap_cleanup(mpp_keymap_t *map);                          /* drops nothing. [newobj] [gc] */

/* The id of a key, or 0; marks it as used. [newobj] */
mpp_id_t mpp_keymap_find(mpp_keymap_t *map, uintptr_t key);

/* Adds a nonzero key that is not there. On failure nothing has changed. [newobj] */
MPP_CHECK mpp_status_t mpp_keymap_add(mpp_keymap_t *map, uintptr_t key, mpp_id_t value);

/* Removes a key; gives its id, or 0 if it is not there. [newobj] [gc] */
mpp_id_t mpp_keymap_remove(mpp_keymap_t *map, uintptr_t key);

/* Removes all keys, telling `drop` of each id; keeps the memory. [newobj] [gc] */
void mpp_keymap_clear(mpp_keymap_t *map, mpp_keymap_drop_t drop, void *context);

/*
 * Where deaths are not seen: visits (visit) each key used since the last sweep and makes it unused, drops each other
 * one. [gc]
 */
void mpp_keymap_sweep(mpp_keymap_t *map, mpp_keymap_visit_t visit, void *visit_context, mpp_keymap_drop_t drop,
                      void *drop_context);

/*
 * Goes on through the table, over n_slots of it but once around at most: drops each key that was not used since it came
 * by before, or since the last sweep, and makes the others unused. [newobj] [gc]
 */
void mpp_keymap_prune(mpp_keymap_t *map, uint32_t n_slots, mpp_keymap_drop_t drop, void *drop_context);

/* Every key becomes relocate(context, key). Works in place, without allocating. [gc] */
void mpp_keymap_rekey(mpp_keymap_t *map, uintptr_t (*relocate)(void *context, uintptr_t key), void *context);

/* Gives memory back after a burst: halves while under 1/8 full. Best effort, cannot fail. [newobj] */
void mpp_keymap_trim(mpp_keymap_t *map);

size_t mpp_keymap_bytes(const mpp_keymap_t *map); /* [any] */

#endif
