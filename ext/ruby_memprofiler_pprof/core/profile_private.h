#ifndef MPP_PROFILE_PRIVATE_H
#define MPP_PROFILE_PRIVATE_H

/* What profile.c, profile_live.c, snapshot.c and the white-box tests share. Nobody else includes it. */

#include "profile.h"

struct mpp_profile {
    uint32_t references;
    mpp_budget_t budget;          /* of everything here, this struct included */
    mpp_budget_t snapshot_budget; /* what each snapshot's own starts as; a test may set limits */
    mpp_profile_config_t config;

    mpp_strtab_t strings;
    mpp_frames_t frames;
    mpp_resolver_t resolver;
    mpp_keymap_t classes; /* class key → name; holds a reference to each */
    mpp_pending_t pending;
    mpp_rows_t rows;
    mpp_live_t live;

    mpp_id_t dropped_row; /* made at the start, never folded */
    mpp_id_t evicted_row; /* likewise: others fold into it */
    uint64_t n_dropped[MPP_N_DROPS];
    uint64_t n_dropped_flushed[MPP_N_DROPS]; /* the part of it that delta snapshots gave out */

    mpp_random_t random;
    uint32_t thinning; /* a new live record enters with probability 2^-thinning */
    uint64_t n_thinnings;
    uint32_t min_thinned; /* fewer live records are not thinned for memory; a test may lower it */

    bool detached;               /* no host key may come in any more */
    bool pressure;               /* memory was short: the next safe point makes room */
    mpp_status_t naming_failure; /* of the last frame that could not be named, … */
    uint64_t n_naming_failures;  /* … and of how many there were */
    uint64_t next_relief;        /* rows.total.samples before which looking for cold rows is not worth its while, … */
    uint64_t relief_lasts;       /* … and up to which the rows that the last one folded should have been enough */
};

/* -- profile_live.c -- */

/* The live record of a sample that has been counted in that row, or 0: it did not enter. [gvl] */
mpp_id_t mpp_profile_track(mpp_profile_t *profile, mpp_id_t row, const mpp_pending_entry_t *entry,
                           const mpp_birth_t *birth);

/* The address of a sample is in use again: if it has a record, that object died unseen. mpp_profile_track tells by
 * itself. [gvl] */
void mpp_profile_lose_predecessor(mpp_profile_t *profile, uintptr_t object);

/* Nobody knows any more of what is tracked whether it lives. [gvl] */
void mpp_profile_lose_records(mpp_profile_t *profile);

/* Thins for want of memory, which it gives back. False if that would be too little for what it costs in precision.
 * [newobj] */
bool mpp_profile_thin_for_memory(mpp_profile_t *profile);

#endif
