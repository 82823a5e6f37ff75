#ifndef MPP_SNAPSHOT_H
#define MPP_SNAPSHOT_H

/*
 * A copy of a profile's rows at one instant. It holds the profile, and in it a reference to every stack and string that
 * its rows name, so an encoder may read all of it without the GVL while the profile goes on (or is replaced).
 */

#include "frames.h"

enum { MPP_ALLOCATED_COUNT, MPP_ALLOCATED_BYTES, MPP_RETAINED_COUNT, MPP_RETAINED_BYTES, MPP_N_VALUES };

typedef struct {
    mpp_sum_t values[MPP_N_VALUES]; /* in units of 2^-32 (MPP_WEIGHT_BITS) */
    mpp_id_t stack;
    mpp_id_t class_name; /* string, 0 = none */
    mpp_id_t labels;
} mpp_snapshot_row_t;

/* The part that the encoder reads. [no-gvl] */
typedef struct {
    const mpp_snapshot_row_t *rows;
    uint32_t n_rows;
    const mpp_frames_t *frames;
    const mpp_strtab_t *strings;
} mpp_snapshot_view_t;

#endif
