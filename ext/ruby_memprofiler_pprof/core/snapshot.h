#ifndef MPP_SNAPSHOT_H
#define MPP_SNAPSHOT_H

/*
 * A copy of a profile's rows at one instant. It holds the profile, and in it a reference to every stack and string that
 * its rows name, so an encoder may read all of it without the GVL while the profile goes on (or is replaced).
 */

#include "frames.h"

enum { MPP_ALLOCATED_COUNT, MPP_ALLOCATED_BYTES, MPP_RETAINED_COUNT, MPP_RETAINED_BYTES, MPP_N_VALUES };

/* What a row's `labels` hold: a label set (none yet: 0), and above it, for samples taken in bursts, 1 + their
 * group (of windows, or MPP_PRELUDE). Rows that differ in the group alone are one to the reader of a profile; the spread between them is the error. */
#define MPP_LABELS_GROUP_SHIFT 24

/* 0 … : the group; -1: none. [any] */
static inline int
mpp_labels_group(mpp_id_t labels)
{
    return (int)(labels >> MPP_LABELS_GROUP_SHIFT) - 1;
}

static inline mpp_id_t
mpp_labels_without_group(mpp_id_t labels)
{
    return labels & ((UINT32_C(1) << MPP_LABELS_GROUP_SHIFT) - 1);
}

static inline mpp_id_t
mpp_labels_with_group(mpp_id_t labels, uint8_t group)
{
    return labels | (mpp_id_t)(group + 1) << MPP_LABELS_GROUP_SHIFT;
}

typedef struct {
    mpp_sum_t values[MPP_N_VALUES]; /* in units of 2^-32 (MPP_WEIGHT_BITS) */
    mpp_id_t stack;
    mpp_id_t class_name; /* string, 0 = none */
    mpp_id_t labels; /* see above */
} mpp_snapshot_row_t;

/* The part that the encoder reads. [no-gvl] */
typedef struct {
    const mpp_snapshot_row_t *rows;
    uint32_t n_rows;
    const mpp_frames_t *frames;
    const mpp_strtab_t *strings;
} mpp_snapshot_view_t;

#endif
