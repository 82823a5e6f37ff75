/*
 * A snapshot is made in one go under the host's lock: first the retained sums if they must be counted record by record
 * (min_gc_age), then one pass over the rows to learn how many have something to say, then all memory, then one pass that
 * copies them, takes the references and, for a delta, moves `flushed` up to `allocated`. Nothing of the profile is
 * touched before the last step that can fail.
 *
 * allocated − flushed is what the next delta gives, and never negative. `flushed` alone may be: a row can be folded and
 * made again between a snapshot and its give-back. Sums are modulo 2^128, so the difference stays right.
 */

#include "profile_private.h"

/* Retained sums of a row, of the records that are old enough. */
typedef struct {
    mpp_sum_t count;
    mpp_sum_t bytes;
} retained_t;

typedef struct {
    mpp_profile_t *profile;
    const mpp_snapshot_options_t *options;
    retained_t *retained; /* by row id; NULL: every record is old enough, the rows know their sums */
    size_t retained_bytes;
    uint64_t n_live;
} reading_t;

static bool
is_old_enough(const mpp_snapshot_options_t *options, const mpp_live_record_t *record)
{
    uint32_t age = options->gc_count_finished - record->birth; /* wraps if the collection it was born in goes on */
    return age <= INT32_MAX && age >= options->min_gc_age;
}

static mpp_status_t
read_records(reading_t *reading, mpp_allocator_t *allocator)
{
    const mpp_profile_t *profile = reading->profile;
    reading->n_live = mpp_live_count(&profile->live);
    if (reading->options->min_gc_age == 0) return MPP_OK;

    size_t n_ids = (size_t)profile->rows.slab.end_chunk * MPP_SLAB_CHUNK_ELEMENTS + 1;
    void *block = NULL;
    mpp_status_t status = mpp_resize(allocator, &block, 0, n_ids * sizeof(retained_t));
    if (status != MPP_OK) return status;
    reading->retained = block;
    reading->retained_bytes = n_ids * sizeof(retained_t);

    reading->n_live = 0;
    for (mpp_id_t id = 0; (id = mpp_live_next(&profile->live, id)) != 0;) {
        const mpp_live_record_t *record = mpp_live_at(&profile->live, id);
        if (!is_old_enough(reading->options, record)) continue;
        mpp_sum_t weight = mpp_live_weight(record);
        reading->retained[record->row].count += weight;
        reading->retained[record->row].bytes += weight * record->bytes;
        reading->n_live++;
    }
    return MPP_OK;
}

/* What there is to say of a row; false if that is nothing. */
static bool
read_row(const reading_t *reading, mpp_id_t id, mpp_snapshot_row_t *copy, mpp_amount_t *given)
{
    const mpp_row_t *row = mpp_rows_at(&reading->profile->rows, id);
    retained_t retained = {row->live_count, row->live_bytes};
    if (reading->retained) retained = reading->retained[id];

    *given = row->allocated;
    if (reading->options->delta) mpp_amount_subtract(given, &row->flushed);
    if (given->samples == 0 && retained.count == 0) return false;

    *copy = (mpp_snapshot_row_t){
        .values = {given->count, given->bytes, retained.count, retained.bytes},
        .stack = row->stack,
        .class_name = row->class_name,
        .labels = row->labels,
    };
    return true;
}

static uint32_t
count_rows(const reading_t *reading)
{
    const mpp_rows_t *rows = &reading->profile->rows;
    mpp_snapshot_row_t copy;
    mpp_amount_t given;
    uint32_t n = 0;
    for (mpp_id_t id = 0; (id = mpp_rows_next(rows, id)) != 0;) n += read_row(reading, id, &copy, &given);
    return n;
}

static void
release_memory(mpp_snapshot_t *snapshot)
{
    size_t n = snapshot->capacity;
    mpp_budget_t budget = snapshot->budget; /* it outlives the block that it stands in */
    mpp_release(&budget.allocator, snapshot->rows, n * sizeof *snapshot->rows);
    mpp_release(&budget.allocator, snapshot->row_ids, n * sizeof *snapshot->row_ids);
    mpp_release(&budget.allocator, snapshot->given, n * sizeof *snapshot->given);
    mpp_release(&budget.allocator, snapshot, sizeof *snapshot);
}

static mpp_status_t
reserve_rows(mpp_snapshot_t *snapshot, uint32_t n)
{
    mpp_allocator_t *allocator = &snapshot->budget.allocator;
    void *rows = NULL, *row_ids = NULL, *given = NULL;
    mpp_status_t status = MPP_OK;
    snapshot->capacity = n;
    if (n == 0) return MPP_OK;

    status = mpp_resize(allocator, &rows, 0, n * sizeof *snapshot->rows);
    if (status == MPP_OK && snapshot->delta) {
        status = mpp_resize(allocator, &row_ids, 0, n * sizeof *snapshot->row_ids);
        if (status == MPP_OK) status = mpp_resize(allocator, &given, 0, n * sizeof *snapshot->given);
    }
    snapshot->rows = rows;
    snapshot->row_ids = row_ids;
    snapshot->given = given;
    return status;
}

static void
copy_rows(mpp_snapshot_t *snapshot, const reading_t *reading)
{
    mpp_profile_t *profile = reading->profile;
    uint32_t n = 0;
    for (mpp_id_t id = 0; (id = mpp_rows_next(&profile->rows, id)) != 0;) {
        mpp_snapshot_row_t copy; /* there may be no room for one more, nor need for it */
        mpp_amount_t given;
        if (!read_row(reading, id, &copy, &given)) continue;
        if (snapshot->delta) {
            snapshot->row_ids[n] = id;
            snapshot->given[n] = given;
            mpp_row_t *row = mpp_rows_at(&profile->rows, id);
            row->flushed = row->allocated;
        }
        if (id != profile->dropped_row) snapshot->n_allocation_samples += given.samples;
        mpp_frames_retain_stack(&profile->frames, copy.stack);
        mpp_strtab_retain(&profile->strings, copy.class_name);
        snapshot->rows[n++] = copy;
    }
    snapshot->view = (mpp_snapshot_view_t){
        .rows = snapshot->rows, .n_rows = n, .frames = &profile->frames, .strings = &profile->strings};
}

static void
copy_drops(mpp_snapshot_t *snapshot, mpp_profile_t *profile)
{
    for (int i = 0; i < MPP_N_DROPS; i++) {
        snapshot->dropped[i] = profile->n_dropped[i];
        if (!snapshot->delta) continue;
        snapshot->dropped[i] -= profile->n_dropped_flushed[i];
        profile->n_dropped_flushed[i] = profile->n_dropped[i];
    }
}

static mpp_status_t
new_snapshot(mpp_budget_t budget, bool delta, mpp_snapshot_t **snapshot)
{
    void *block = NULL;
    mpp_status_t status = mpp_resize(&budget.allocator, &block, 0, sizeof **snapshot);
    if (status != MPP_OK) return status;
    *snapshot = block;
    (*snapshot)->budget = budget;
    (*snapshot)->delta = delta;
    return MPP_OK;
}

mpp_status_t
mpp_profile_snapshot(mpp_profile_t *profile, const mpp_snapshot_options_t *options, mpp_snapshot_t **result)
{
    *result = NULL;
    mpp_snapshot_t *snapshot;
    mpp_status_t status = new_snapshot(profile->snapshot_budget, options->delta, &snapshot);
    if (status != MPP_OK) return status;

    reading_t reading = {.profile = profile, .options = options};
    status = read_records(&reading, &snapshot->budget.allocator);
    if (status == MPP_OK) status = reserve_rows(snapshot, count_rows(&reading));
    if (status == MPP_OK) {
        copy_rows(snapshot, &reading);
        copy_drops(snapshot, profile);
        snapshot->n_live_samples = reading.n_live;
        snapshot->n_evicted = profile->rows.n_evicted;
        snapshot->profile = profile;
        mpp_profile_retain(profile);
    }
    mpp_release(&snapshot->budget.allocator, reading.retained, reading.retained_bytes);
    if (status != MPP_OK) {
        release_memory(snapshot);
        return status;
    }
    *result = snapshot;
    return MPP_OK;
}

/* The row that a copy was made of, or if it has been folded since, the one that it was folded into. */
static mpp_row_t *
source_row(const mpp_profile_t *profile, mpp_id_t id, const mpp_snapshot_row_t *copy)
{
    if (mpp_slab_next(&profile->rows.slab, id - 1) == id) { /* else even its chunk is gone */
        mpp_row_t *row = mpp_rows_at(&profile->rows, id);
        bool same = row->stack == copy->stack && row->class_name == copy->class_name && row->labels == copy->labels;
        if (same) return row;
    }
    return mpp_rows_at(&profile->rows, profile->evicted_row);
}

void
mpp_snapshot_give_back(mpp_snapshot_t *snapshot)
{
    if (!snapshot->delta) return;
    mpp_profile_t *profile = snapshot->profile;
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        mpp_row_t *row = source_row(profile, snapshot->row_ids[i], &snapshot->rows[i]);
        mpp_amount_subtract(&row->flushed, &snapshot->given[i]);
    }
    for (int i = 0; i < MPP_N_DROPS; i++) profile->n_dropped_flushed[i] -= snapshot->dropped[i];
}

void
mpp_snapshot_free(mpp_snapshot_t *snapshot)
{
    if (!snapshot) return;
    mpp_profile_t *profile = snapshot->profile;
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        mpp_frames_release_stack(&profile->frames, snapshot->rows[i].stack);
        mpp_strtab_release(&profile->strings, snapshot->rows[i].class_name);
    }
    release_memory(snapshot);
    mpp_profile_release(profile);
}

static mpp_sum_t
scaled(mpp_sum_t sum, double factor)
{
    return (mpp_sum_t)((long double)sum * (long double)factor);
}

void
mpp_snapshot_scale(mpp_snapshot_t *snapshot, double allocated, double retained)
{
    for (uint32_t i = 0; i < snapshot->view.n_rows; i++) {
        mpp_sum_t *values = snapshot->rows[i].values;
        values[MPP_ALLOCATED_COUNT] = scaled(values[MPP_ALLOCATED_COUNT], allocated);
        values[MPP_ALLOCATED_BYTES] = scaled(values[MPP_ALLOCATED_BYTES], allocated);
        values[MPP_RETAINED_COUNT] = scaled(values[MPP_RETAINED_COUNT], retained);
        values[MPP_RETAINED_BYTES] = scaled(values[MPP_RETAINED_BYTES], retained);
    }
}
