#ifndef SUPPORT_PROFILE_H
#define SUPPORT_PROFILE_H

/*
 * A host for tests of the facade. Frame key n has the name "frame<n>", class key n the name "Class<n>"; a stack is a
 * frame and its callers: depth 3 from frame 10 is frame10 ← frame11 ← frame12 (the root).
 */

#include "support.h"

#include "profile_private.h"

typedef struct {
    uintptr_t object;
    mpp_weight_t weight; /* 0: one */
    uintptr_t frame;
    uint32_t depth; /* 0: one */
    uintptr_t class_key;
    uint64_t bytes;
    uint32_t gc_count;
    uint32_t longer_by; /* bytes of names that are found out for it, beyond the usual; at most 100 */
    bool dead; /* gone at the safe point */
} support_allocation_t;

/* Limits that no small test reaches. */
mpp_profile_config_t support_profile_config(void);

mpp_profile_t *support_profile_new(const mpp_profile_config_t *config);

/* The hook alone. */
void support_profile_sample(mpp_profile_t *profile, const support_allocation_t *allocation);

/* Names what the oldest waiting sample needs, and commits it with what `allocation` says of it. */
void support_profile_commit(mpp_profile_t *profile, const support_allocation_t *allocation);

/* Both; only the hook's part if the sample was dropped there. */
void support_profile_allocate(mpp_profile_t *profile, const support_allocation_t *allocation);

/* A sample that the host takes and discards. */
void support_profile_discard(mpp_profile_t *profile, const support_allocation_t *allocation, mpp_drop_t reason);

mpp_profile_stats_t support_profile_stats(const mpp_profile_t *profile);
mpp_snapshot_t *support_profile_snapshot(mpp_profile_t *profile, bool delta);

/* The row whose leaf is named so, NULL if there is none. */
const mpp_snapshot_row_t *support_profile_row(const mpp_snapshot_t *snapshot, const char *leaf);

/* One column's total in whole units. */
uint64_t support_profile_total(const mpp_snapshot_t *snapshot, int value);

/* A sum in whole units; it must be whole. */
uint64_t support_profile_whole(mpp_sum_t sum);

#endif
