/*
 * The live records of a profile. Each belongs to one row, whose live sums are exactly the sum of its records': whatever
 * enters, doubles, is measured again or leaves goes through the three small functions on live sums below.
 *
 * Thinning walks all n live records and leaves about n/2. Either there is room for that many new ones before the next, or
 * memory is short of other things and the next walks n/2, and so on: O(1) for each record that ever entered, amortised.
 */

#include "profile_private.h"

/* A record stands for at most 2^32 times its weight, so that sums stay far from 2^128. */
#define MAX_DOUBLINGS 32

/* What one more live record takes at most, its share of the index included. */
#define BYTES_PER_RECORD 48

/* -- live sums -- */

static void
add_to_row(mpp_row_t *row, const mpp_live_record_t *record)
{
    mpp_sum_t weight = mpp_live_weight(record);
    row->live_count += weight;
    row->live_bytes += weight * record->bytes;
}

/* One row more that may be folded: one fewer is missing of those that the last relief found too few of. */
static inline void
row_is_free(mpp_profile_t *profile)
{
    if (profile->next_relief > 0) profile->next_relief--;
}

static void
remove_record(mpp_profile_t *profile, mpp_id_t id)
{
    const mpp_live_record_t *record = mpp_live_at(&profile->live, id);
    mpp_row_t *row = mpp_rows_at(&profile->rows, record->row);
    mpp_sum_t weight = mpp_live_weight(record);
    row->live_count -= weight;
    row->live_bytes -= weight * record->bytes;
    if (--row->n_live == 0) row_is_free(profile);
    mpp_live_remove(&profile->live, id);
}

static void
resize_record(mpp_profile_t *profile, mpp_id_t id, uint64_t bytes)
{
    mpp_live_record_t *record = mpp_live_at(&profile->live, id);
    mpp_row_t *row = mpp_rows_at(&profile->rows, record->row);
    mpp_sum_t weight = mpp_live_weight(record);
    row->live_bytes -= weight * record->bytes;
    mpp_live_set_bytes(record, bytes);
    row->live_bytes += weight * record->bytes;
}

static void
lose_record(mpp_profile_t *profile, mpp_id_t id)
{
    profile->n_dropped[MPP_DROP_UNTRACKED]++;
    remove_record(profile, id);
}

/*
 * Keeps each record with probability 1/2 at double weight: no sum changes in expectation. Nor does one that may not
 * double any more and simply stays.
 */
static void
thin(mpp_profile_t *profile)
{
    uint64_t coins = 0;
    int n_coins = 0;
    for (mpp_id_t id = 0; (id = mpp_live_next(&profile->live, id)) != 0;) {
        mpp_live_record_t *record = mpp_live_at(&profile->live, id);
        if (record->doublings == MAX_DOUBLINGS) continue;
        if (n_coins == 0) {
            coins = mpp_random_next(&profile->random);
            n_coins = 64;
        }
        if (coins & 1) {
            add_to_row(mpp_rows_at(&profile->rows, record->row), record);
            record->doublings++;
        } else {
            remove_record(profile, id);
        }
        coins >>= 1;
        n_coins--;
    }
    profile->thinning++;
    profile->n_thinnings++;
}

bool
mpp_profile_thin_for_memory(mpp_profile_t *profile)
{
    bool worthwhile = mpp_live_count(&profile->live) >= profile->min_thinned && profile->thinning < MAX_DOUBLINGS;
    if (!worthwhile || profile->detached) return false;
    thin(profile);
    mpp_live_compact(&profile->live);
    mpp_live_trim(&profile->live);
    return true;
}

/* -- entering -- */

/* How many records there may be: max_live, or those that there are and what the free part of the budget would hold. */
static uint64_t
room_for_records(const mpp_profile_t *profile)
{
    const mpp_budget_t *budget = &profile->budget;
    size_t spare_bytes = budget->limit_bytes > budget->used_bytes ? budget->limit_bytes - budget->used_bytes : 0;
    uint64_t n = mpp_live_count(&profile->live) + (uint64_t)(spare_bytes / BYTES_PER_RECORD);
    return n < profile->config.max_live ? n : profile->config.max_live;
}

static void
let_up(mpp_profile_t *profile)
{
    if (profile->thinning == 0) return;
    if ((uint64_t)mpp_live_count(&profile->live) * 4 < room_for_records(profile)) profile->thinning--;
}

static mpp_status_t
add_record(mpp_profile_t *profile, mpp_id_t row, const mpp_pending_entry_t *entry, const mpp_birth_t *birth,
           mpp_id_t *id)
{
    mpp_live_record_t record = {
        .key = profile->config.late_deaths ? 0 : entry->object,
        .row = row,
        .birth = birth->gc_count,
        .doublings = profile->thinning & 63,
        .born_sweeping = birth->sweeping,
    };
    mpp_live_set_weight(&record, entry->weight);
    mpp_live_set_bytes(&record, birth->bytes);
    mpp_id_t predecessor;
    mpp_status_t status = mpp_live_add(&profile->live, &record, id, &predecessor);
    if (status != MPP_OK) return status;
    if (MPP_UNLIKELY(predecessor)) lose_record(profile, predecessor);
    mpp_row_t *of_record = mpp_rows_at(&profile->rows, row);
    of_record->n_live++;
    add_to_row(of_record, &record);
    return MPP_OK;
}

void
mpp_profile_lose_predecessor(mpp_profile_t *profile, uintptr_t object)
{
    if (MPP_LIKELY(!mpp_live_may_have(&profile->live, object))) return;
    mpp_id_t predecessor = mpp_live_find(&profile->live, object);
    if (predecessor) lose_record(profile, predecessor);
}

/* Thins, since another record was refused so. False if that is no use. */
static bool
make_room(mpp_profile_t *profile, mpp_status_t refusal)
{
    if (refusal == MPP_FULL) {
        if (profile->thinning == MAX_DOUBLINGS) return false;
        thin(profile);
        return true;
    }
    if (mpp_profile_thin_for_memory(profile)) return true;
    profile->pressure = true;
    return false;
}

/*
 * A new record enters if the first `thinning` of its coins are all tails, so one that was to enter and finds no room goes
 * on to the next coin with those who have a place. All is decided from the past and from coins: estimates stay unbiased.
 */
mpp_id_t
mpp_profile_track(mpp_profile_t *profile, mpp_id_t row, const mpp_pending_entry_t *entry, const mpp_birth_t *birth)
{
    mpp_id_t id;
    if (MPP_LIKELY(profile->thinning == 0) && add_record(profile, row, entry, birth, &id) == MPP_OK) return id;
    uint64_t coins = mpp_random_next(&profile->random);
    mpp_profile_lose_predecessor(profile, entry->object);
    let_up(profile);
    while ((coins & ((UINT64_C(1) << profile->thinning) - 1)) == 0) {
        mpp_status_t status = add_record(profile, row, entry, birth, &id);
        if (status == MPP_OK) return id;
        if (make_room(profile, status)) continue;
        profile->n_dropped[MPP_DROP_LIVE_LIMIT]++;
        break;
    }
    return 0;
}

/* -- leaving -- */

void
mpp_profile_lose_records(mpp_profile_t *profile)
{
    for (mpp_id_t id = 0; (id = mpp_live_next(&profile->live, id)) != 0;) lose_record(profile, id);
}

void
mpp_profile_forget_object(mpp_profile_t *profile, uintptr_t object)
{
    mpp_id_t id = mpp_live_forget(&profile->live, object);
    if (id) remove_record(profile, id);
}

void
mpp_profile_forget_dead(mpp_profile_t *profile, bool (*is_alive)(void *context, uintptr_t key), void *context)
{
    if (profile->detached) return;
    for (mpp_id_t id = 0; (id = mpp_live_next(&profile->live, id)) != 0;) {
        if (!is_alive(context, mpp_live_at(&profile->live, id)->key)) remove_record(profile, id);
    }
}

void
mpp_profile_give_up(mpp_profile_t *profile, mpp_id_t record, uint32_t serial)
{
    if (!profile->detached && mpp_live_has(&profile->live, record, serial)) lose_record(profile, record);
}

/* -- measuring -- */

/* `measure` may call the host, and anything may have happened since: it holds for the same record at the same key. */
static void
measure_record(mpp_profile_t *profile, mpp_id_t id, mpp_measure_t measure, void *context, uint64_t *n_stale)
{
    mpp_live_record_t before = *mpp_live_at(&profile->live, id);
    uint64_t bytes = before.bytes;
    mpp_finding_t finding = measure(context, &before, &bytes);
    if (profile->detached || !mpp_live_has(&profile->live, id, before.serial)) return;
    if (mpp_live_at(&profile->live, id)->key != before.key) return;
    switch (finding) {
    case MPP_FOUND_ALIVE: resize_record(profile, id, bytes); break;
    case MPP_FOUND_STALE: ++*n_stale; break;
    case MPP_FOUND_DEAD: remove_record(profile, id); break;
    }
}

/* Fetches what stands at the key of a record some way ahead: measuring waits for little else. It is not looked at. */
#define MEASURED_SOON 12u

static void
prefetch_ahead(const mpp_live_t *live, mpp_id_t id)
{
    mpp_id_t ahead = id + MEASURED_SOON;
    if (mpp_slab_has(&live->records, ahead)) __builtin_prefetch((const void *)mpp_live_at(live, ahead)->key);
}

bool
mpp_profile_measure(mpp_profile_t *profile, mpp_id_t *cursor, uint32_t n, mpp_measure_t measure, void *context,
                    uint64_t *n_stale)
{
    for (; n > 0; n--) {
        if (profile->detached) return false;
        mpp_id_t id = mpp_live_next(&profile->live, *cursor);
        if (id == 0) return false;
        *cursor = id;
        prefetch_ahead(&profile->live, id);
        measure_record(profile, id, measure, context, n_stale);
    }
    return true;
}

/* -- reading -- */

const mpp_live_t *
mpp_profile_live(const mpp_profile_t *profile)
{
    return &profile->live;
}

uint32_t
mpp_profile_live_count(const mpp_profile_t *profile)
{
    return mpp_live_count(&profile->live);
}
