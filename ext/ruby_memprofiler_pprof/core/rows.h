#ifndef MPP_ROWS_H
#define MPP_ROWS_H

/*
 * One row for each stack × class × label set: what was allocated there since the start, what earlier flushes gave out
 * of it, and what of it is live. A row holds references to its stack and its class name. Rows are bounded: the coldest
 * without live records fold into another row, so that totals stay.
 */

#include "frames.h"
#include "sampler.h"

/* A sum of samples. */
typedef struct {
    mpp_sum_t count; /* of weights */
    mpp_sum_t bytes; /* of weight × bytes */
    uint64_t samples;
} mpp_amount_t;

void mpp_amount_add(mpp_amount_t *amount, const mpp_amount_t *other);      /* [any] */
void mpp_amount_subtract(mpp_amount_t *amount, const mpp_amount_t *other); /* other ≤ amount. [any] */

typedef struct {
    mpp_amount_t allocated; /* since the start */
    mpp_amount_t flushed;   /* the part of it that earlier flushes gave out */
    mpp_sum_t live_count;
    mpp_sum_t live_bytes;
    mpp_id_t stack; /* nonzero while the row is in use */
    mpp_id_t class_name; /* string, 0 = none */
    mpp_id_t labels; /* see snapshot.h */
    uint32_t n_live; /* live records that point here */
    uint64_t last_used; /* the table's clock when it was last counted into */
} mpp_row_t;

typedef struct {
    mpp_slab_t slab;
    mpp_index_t index;
    mpp_frames_t *frames;
    mpp_strtab_t *strings;
    mpp_id_t last; /* the row obtained last, or 0: mostly the next one too */
    mpp_amount_t total; /* what all rows together were allocated; its samples are the table's clock */
    uint64_t n_evicted;
} mpp_rows_t;

/* On failure nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_rows_init(mpp_rows_t *rows, mpp_allocator_t *allocator, mpp_frames_t *frames,
                                     mpp_strtab_t *strings, uint32_t max_rows);
/* Frees the table without releasing what rows reference (their tables go too). A zeroed one is fine. [newobj] [gc] */
void mpp_rows_cleanup(mpp_rows_t *rows);

/* The row of this key, made if need be; `stack` and `class_name` are borrowed. MPP_FULL at max_rows. On failure nothing
 * has changed. [newobj] */
MPP_CHECK mpp_status_t
mpp_rows_obtain(mpp_rows_t *rows, mpp_id_t stack, mpp_id_t class_name, mpp_id_t labels, mpp_id_t *id);

/* Counts one sample of that weight and size into a row. [newobj] */
void mpp_rows_count(mpp_rows_t *rows, mpp_id_t id, mpp_weight_t weight, uint64_t bytes);

/* Folds the `n` coldest rows without live records, other than `into` and `keep`, into row `into` (all, if they are
 * fewer); gives how many were folded. O(rows), allocates nothing. [newobj] */
uint32_t mpp_rows_evict(mpp_rows_t *rows, uint32_t n, mpp_id_t into, mpp_id_t keep);

static inline mpp_row_t *
mpp_rows_at(const mpp_rows_t *rows, mpp_id_t id)
{
    return mpp_slab_at(&rows->slab, id);
}

/* The next row in use after `after` (0: the first), 0 at the end. [newobj] */
mpp_id_t mpp_rows_next(const mpp_rows_t *rows, mpp_id_t after);

uint32_t mpp_rows_count_used(const mpp_rows_t *rows); /* [any] */
size_t mpp_rows_bytes(const mpp_rows_t *rows);        /* [any] */
void mpp_rows_trim(mpp_rows_t *rows);                 /* [newobj] */

#endif
