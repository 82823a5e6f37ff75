/*
 * Records stand in a slab, the index maps hash(key) → record id. The index is the only part that grows by doubling and
 * so is at worst 3/8 full: 8 / (3/8) = 21.3 bytes a record, 61.3 with the record itself. An open-addressed table of
 * whole records would need 107 at its worst.
 *
 * Most deaths in the host are of objects that were not sampled. Such a look-up is a multiplication and the slots from
 * the hash on to the next empty one, mostly one cache line; the full hash in the slot spares it the records.
 */

#include "live.h"

_Static_assert(sizeof(mpp_live_record_t) == 40, "the memory of a live record is promised to users");

typedef struct {
    const mpp_live_t *live;
    uintptr_t key;
} probe_t;

static bool
has_key(const void *context, mpp_id_t id)
{
    const probe_t *probe = context;
    return mpp_live_at(probe->live, id)->key == probe->key;
}

mpp_status_t
mpp_live_init(mpp_live_t *live, mpp_allocator_t *allocator, uint32_t max_records)
{
    mpp_index_init(&live->index, allocator);
    return mpp_slab_init(&live->records, allocator, sizeof(mpp_live_record_t), max_records);
}

void
mpp_live_cleanup(mpp_live_t *live)
{
    mpp_index_cleanup(&live->index);
    mpp_slab_cleanup(&live->records);
}

mpp_status_t
mpp_live_add(mpp_live_t *live, const mpp_live_record_t *record, mpp_id_t *id)
{
    mpp_status_t status = record->key ? mpp_index_reserve(&live->index) : MPP_OK;
    if (status != MPP_OK) return status;
    status = mpp_slab_take(&live->records, id);
    if (status != MPP_OK) return status;

    mpp_live_record_t *added = mpp_live_at(live, *id);
    *added = *record;
    added->serial = ++live->n_added;
    if (record->key) mpp_index_insert(&live->index, mpp_live_hash(record->key), *id);
    return MPP_OK;
}

mpp_id_t
mpp_live_find(const mpp_live_t *live, uintptr_t key)
{
    return mpp_index_find(&live->index, mpp_live_hash(key), has_key, &(probe_t){live, key});
}

void
mpp_live_remove(mpp_live_t *live, mpp_id_t id)
{
    uintptr_t key = mpp_live_at(live, id)->key;

    if (key) mpp_index_remove(&live->index, mpp_live_hash(key), id);
    mpp_slab_give(&live->records, id);
}

/*
 * One pass is enough although an object may have moved to where another one was: an insertion compares no keys, and the
 * index, emptied before, has room for all that were in it.
 */
void
mpp_live_rekey(mpp_live_t *live, uintptr_t (*relocate)(void *context, uintptr_t key), void *context)
{
    mpp_index_clear(&live->index);
    for (mpp_id_t id = 0; (id = mpp_live_next(live, id)) != 0;) {
        mpp_live_record_t *record = mpp_live_at(live, id);
        if (!record->key) continue;
        record->key = relocate(context, record->key);
        mpp_index_insert(&live->index, mpp_live_hash(record->key), id);
    }
}

void
mpp_live_forget_keys(mpp_live_t *live)
{
    mpp_index_clear(&live->index);
    for (mpp_id_t id = 0; (id = mpp_live_next(live, id)) != 0;) mpp_live_at(live, id)->key = 0;
}

mpp_id_t
mpp_live_next(const mpp_live_t *live, mpp_id_t after)
{
    mpp_id_t id = after;
    do id = mpp_slab_next(&live->records, id);
    while (id && !mpp_live_at(live, id)->row);
    return id;
}

static bool
is_record(const void *element)
{
    const mpp_live_record_t *record = element;
    return record->row != 0;
}

static void
follow_record(void *context, mpp_id_t from, mpp_id_t to)
{
    mpp_live_t *live = context;
    uintptr_t key = mpp_live_at(live, to)->key;
    if (!key) return;
    mpp_index_remove(&live->index, mpp_live_hash(key), from);
    mpp_index_insert(&live->index, mpp_live_hash(key), to);
}

void
mpp_live_compact(mpp_live_t *live)
{
    mpp_slab_compact(&live->records, is_record, follow_record, live);
}

uint32_t
mpp_live_count(const mpp_live_t *live)
{
    return live->records.n_used;
}

size_t
mpp_live_bytes(const mpp_live_t *live)
{
    return mpp_slab_bytes(&live->records) + mpp_index_bytes(&live->index);
}

void
mpp_live_trim(mpp_live_t *live)
{
    mpp_index_trim(&live->index);
}
