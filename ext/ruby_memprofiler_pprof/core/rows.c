/*
 * Rows stand in a slab, the index finds them by (stack, class name, labels). `last_used` is the table's clock, the
 * number of its samples: stamps differ, but for 0, which rows have that were never counted into.
 *
 * Eviction needs the n smallest stamps among the rows that may go. It finds the n-th smallest as a radix sort would,
 * digit by digit from the top, keeping only a histogram of the digit: a few passes over the table and no memory, for it
 * runs when memory is short. Folding adds the row's sums to another row and takes nothing away, so the totals of the
 * table stay, and what was not flushed yet is still in the next flush.
 */

#include "rows.h"

#include <string.h>

#define DIGIT_BITS 10
#define N_DIGITS (1u << DIGIT_BITS)

void
mpp_amount_add(mpp_amount_t *amount, const mpp_amount_t *other)
{
    amount->count += other->count;
    amount->bytes += other->bytes;
    amount->samples += other->samples;
}

void
mpp_amount_subtract(mpp_amount_t *amount, const mpp_amount_t *other)
{
    amount->count -= other->count;
    amount->bytes -= other->bytes;
    amount->samples -= other->samples;
}

mpp_status_t
mpp_rows_init(mpp_rows_t *rows, mpp_allocator_t *allocator, mpp_frames_t *frames, mpp_strtab_t *strings,
              uint32_t max_rows)
{
    *rows = (mpp_rows_t){.frames = frames, .strings = strings};
    mpp_index_init(&rows->index, allocator);
    return mpp_slab_init(&rows->slab, allocator, sizeof(mpp_row_t), max_rows);
}

void
mpp_rows_cleanup(mpp_rows_t *rows)
{
    mpp_index_cleanup(&rows->index);
    mpp_slab_cleanup(&rows->slab);
}

typedef struct {
    const mpp_rows_t *rows;
    mpp_id_t stack;
    mpp_id_t class_name;
    mpp_id_t labels;
} row_key_t;

static uint32_t
hash_key(mpp_id_t stack, mpp_id_t class_name, mpp_id_t labels)
{
    return (uint32_t)mpp_hash_pair((uint64_t)stack << 32 | class_name, labels);
}

static inline bool
has_key(const void *context, mpp_id_t id)
{
    const row_key_t *key = context;
    const mpp_row_t *row = mpp_rows_at(key->rows, id);
    return row->stack == key->stack && row->class_name == key->class_name && row->labels == key->labels;
}

mpp_status_t
mpp_rows_obtain(mpp_rows_t *rows, mpp_id_t stack, mpp_id_t class_name, mpp_id_t labels, mpp_id_t *id)
{
    row_key_t key = {rows, stack, class_name, labels};
    if (rows->last && has_key(&key, rows->last)) {
        *id = rows->last;
        return MPP_OK;
    }
    uint32_t hash = hash_key(stack, class_name, labels);
    mpp_id_t found = mpp_index_find(&rows->index, hash, has_key, &key);
    if (found) {
        *id = rows->last = found;
        return MPP_OK;
    }

    mpp_status_t status = mpp_index_reserve(&rows->index);
    if (status != MPP_OK) return status;
    status = mpp_slab_take(&rows->slab, &found);
    if (status != MPP_OK) return status;

    mpp_row_t *row = mpp_rows_at(rows, found);
    row->stack = stack;
    row->class_name = class_name;
    row->labels = labels;
    mpp_frames_retain_stack(rows->frames, stack);
    mpp_strtab_retain(rows->strings, class_name);
    mpp_index_insert(&rows->index, hash, found);
    *id = rows->last = found;
    return MPP_OK;
}

void
mpp_rows_count(mpp_rows_t *rows, mpp_id_t id, mpp_weight_t weight, uint64_t bytes)
{
    mpp_row_t *row = mpp_rows_at(rows, id);
    mpp_amount_t sample = {weight, (mpp_sum_t)weight * bytes, 1};

    mpp_amount_add(&row->allocated, &sample);
    mpp_amount_add(&rows->total, &sample);
    row->last_used = rows->total.samples;
}

typedef struct {
    mpp_rows_t *rows;
    mpp_id_t into;
    mpp_id_t keep;
} eviction_t;

/* The next row that may go. */
static mpp_id_t
next_candidate(const eviction_t *eviction, mpp_id_t after)
{
    mpp_id_t id = after;
    do id = mpp_rows_next(eviction->rows, id);
    while (id && (id == eviction->into || id == eviction->keep || mpp_rows_at(eviction->rows, id)->n_live));
    return id;
}

/* The n-th smallest stamp (n > 0) of the rows that may go, or one that is above all of them if they are fewer. */
static uint64_t
find_bound(const eviction_t *eviction, uint32_t n)
{
    uint32_t histogram[N_DIGITS];
    uint64_t prefix = 0;
    int shift = 0;
    while (shift + DIGIT_BITS < 64 && eviction->rows->total.samples >> (shift + DIGIT_BITS)) shift += DIGIT_BITS;

    for (; shift >= 0; shift -= DIGIT_BITS) {
        memset(histogram, 0, sizeof(histogram));
        for (mpp_id_t id = 0; (id = next_candidate(eviction, id)) != 0;) {
            uint64_t digits = mpp_rows_at(eviction->rows, id)->last_used >> shift;
            if (digits >> DIGIT_BITS == prefix) histogram[digits % N_DIGITS]++;
        }
        uint32_t digit = 0;
        while (digit < N_DIGITS - 1 && histogram[digit] < n) n -= histogram[digit++];
        prefix = prefix << DIGIT_BITS | digit;
    }
    return prefix;
}

static void
fold(const eviction_t *eviction, mpp_id_t id)
{
    mpp_rows_t *rows = eviction->rows;
    mpp_row_t *row = mpp_rows_at(rows, id);
    mpp_row_t *into = mpp_rows_at(rows, eviction->into);

    mpp_amount_add(&into->allocated, &row->allocated);
    mpp_amount_add(&into->flushed, &row->flushed);
    mpp_index_remove(&rows->index, hash_key(row->stack, row->class_name, row->labels), id);
    mpp_frames_release_stack(rows->frames, row->stack);
    mpp_strtab_release(rows->strings, row->class_name);
    mpp_slab_give(&rows->slab, id);
    rows->last = 0;
}

uint32_t
mpp_rows_evict(mpp_rows_t *rows, uint32_t n, mpp_id_t into, mpp_id_t keep)
{
    eviction_t eviction = {rows, into, keep};
    uint32_t n_folded = 0;
    if (n == 0) return 0;

    uint64_t bound = find_bound(&eviction, n);
    for (mpp_id_t id = 0; n_folded < n && (id = next_candidate(&eviction, id)) != 0;) {
        if (mpp_rows_at(rows, id)->last_used > bound) continue;
        fold(&eviction, id);
        n_folded++;
    }
    rows->n_evicted += n_folded;
    return n_folded;
}

mpp_id_t
mpp_rows_next(const mpp_rows_t *rows, mpp_id_t after)
{
    mpp_id_t id = after;
    do id = mpp_slab_next(&rows->slab, id);
    while (id && !mpp_rows_at(rows, id)->stack);
    return id;
}

uint32_t
mpp_rows_count_used(const mpp_rows_t *rows)
{
    return rows->slab.n_used;
}

size_t
mpp_rows_bytes(const mpp_rows_t *rows)
{
    return mpp_slab_bytes(&rows->slab) + mpp_index_bytes(&rows->index);
}

void
mpp_rows_trim(mpp_rows_t *rows)
{
    mpp_index_trim(&rows->index);
}
