#ifndef MPP_SCRATCH_H
#define MPP_SCRATCH_H

/*
 * The memory seam as libraries want it, which free a block without saying how long it is: the length stands before the
 * block.
 */

#include "base.h"

typedef struct {
    mpp_allocator_t *allocator;
    mpp_status_t status; /* why the last request was refused, MPP_OK if none ever was */
} mpp_scratch_t;

/*
 * Makes the block (NULL: a new one) that long and gives where it is now; 0 frees it and gives NULL. Bytes gained are zero.
 * NULL on failure: the block is unchanged, the reason is in status. [no-gvl]
 */
void *mpp_scratch_resize(mpp_scratch_t *scratch, void *block, size_t bytes);

#endif
