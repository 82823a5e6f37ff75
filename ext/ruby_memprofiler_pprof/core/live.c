/*
 * Records stand in a slab, the bins map hash(key) → record id. They are the only part that is not full, and at least to
 * 2/5: 13.3 bytes a record at most, 46 with the record itself. They grow in place, and are filled again from the records.
 * An open-addressed table of whole records that doubles would need 80 at its worst.
 */

#include "live.h"

_Static_assert(sizeof(mpp_live_record_t) == 32, "the memory of a live record is promised to users");

typedef struct {
    const mpp_live_t *live;
    uintptr_t key;
    mpp_id_t other_than;
} probe_t;

static inline bool
has_key(const void *context, mpp_id_t id)
{
    const probe_t *probe = context;
    return mpp_live_at(probe->live, id)->key == probe->key && id != probe->other_than;
}

static mpp_id_t
find_other(const mpp_live_t *live, uintptr_t key, mpp_id_t other_than)
{
    return mpp_bins_find(&live->bins, mpp_live_hash(key), has_key, &(probe_t){live, key, other_than});
}

mpp_status_t
mpp_live_init(mpp_live_t *live, mpp_allocator_t *allocator, uint32_t max_records)
{
    mpp_bins_init(&live->bins, allocator);
    return mpp_slab_init(&live->records, allocator, sizeof(mpp_live_record_t), max_records);
}

void
mpp_live_cleanup(mpp_live_t *live)
{
    mpp_bins_cleanup(&live->bins);
    mpp_slab_cleanup(&live->records);
}

/* Bins for so many records. On failure nothing has changed. */
static mpp_status_t
change_bins(mpp_live_t *live, uint32_t n_records)
{
    mpp_status_t status = mpp_bins_resize(&live->bins, n_records);
    if (status != MPP_OK) return status;
    for (mpp_id_t id = 0; (id = mpp_live_next(live, id)) != 0;) {
        uintptr_t key = mpp_live_at(live, id)->key;
        if (key) (void)mpp_bins_insert(&live->bins, mpp_live_hash(key), id);
    }
    return MPP_OK;
}

mpp_status_t
mpp_live_add(mpp_live_t *live, const mpp_live_record_t *record, mpp_id_t *id, mpp_id_t *predecessor)
{
    *predecessor = 0;
    mpp_status_t status = record->key && MPP_UNLIKELY(mpp_bins_are_full(&live->bins)) ? change_bins(live, live->bins.n_used + 1) : MPP_OK;
    if (status != MPP_OK) return status;
    status = mpp_slab_take(&live->records, id);
    if (status != MPP_OK) return status;

    mpp_live_record_t *added = mpp_live_at(live, *id);
    *added = *record;
    added->serial = ++live->n_added;
    if (record->key && MPP_UNLIKELY(mpp_bins_insert(&live->bins, mpp_live_hash(record->key), *id))) {
        *predecessor = find_other(live, record->key, *id);
    }
    return MPP_OK;
}

mpp_id_t
mpp_live_find(const mpp_live_t *live, uintptr_t key)
{
    return find_other(live, key, 0);
}

mpp_id_t
mpp_live_forget(mpp_live_t *live, uintptr_t key)
{
    mpp_id_t id = mpp_bins_take(&live->bins, mpp_live_hash(key), has_key, &(probe_t){live, key, 0});
    if (id) mpp_live_at(live, id)->key = 0;
    return id;
}

void
mpp_live_remove(mpp_live_t *live, mpp_id_t id)
{
    uintptr_t key = mpp_live_at(live, id)->key;

    if (key) mpp_bins_remove(&live->bins, mpp_live_hash(key), id);
    mpp_slab_give(&live->records, id);
}

/*
 * One pass is enough although an object may have moved to where another one was: an insertion compares no keys, and the
 * bins, emptied before, have room for all that were in them.
 */
void
mpp_live_rekey(mpp_live_t *live, uintptr_t (*relocate)(void *context, uintptr_t key), void *context)
{
    mpp_bins_clear(&live->bins);
    for (mpp_id_t id = 0; (id = mpp_live_next(live, id)) != 0;) {
        mpp_live_record_t *record = mpp_live_at(live, id);
        if (!record->key) continue;
        record->key = relocate(context, record->key);
        (void)mpp_bins_insert(&live->bins, mpp_live_hash(record->key), id);
    }
}

void
mpp_live_forget_keys(mpp_live_t *live)
{
    mpp_bins_clear(&live->bins);
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
    if (key) mpp_bins_rename(&live->bins, mpp_live_hash(key), from, to);
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
    return mpp_slab_bytes(&live->records) + mpp_bins_bytes(&live->bins);
}

void
mpp_live_trim(mpp_live_t *live)
{
    if (!mpp_bins_are_sparse(&live->bins)) return;
    mpp_status_t status = change_bins(live, 2 * live->bins.n_used);
    (void)status; /* those that it has go on serving */
}
