#ifndef MPP_PROFILE_H
#define MPP_PROFILE_H

/*
 * The facade of the core: one profile is one run of a collector. It owns every table and their memory budget.
 *
 *   hook        mpp_profile_sample                      → waits in `pending`
 *   safe point  take → (name frames, class) → commit, or discard → rows, live records
 *   gc          forget_*, rekey, sweep, each_pending
 *   flush       measure (in slices) → snapshot → [pprof] → free, or give_back
 *
 * Concurrency: everything here is called by one thread at a time (the host's lock), except that a snapshot's view may be
 * read by another thread meanwhile. Nothing here calls the host, but for the callbacks handed in.
 * A host may call in again from within a callback, and a collection may call forget_* at any host call between two calls
 * of ours: no pointer into a table is kept across one.
 *
 * Thinning: when one more live record finds no room (max_live are there, or memory is short), each is kept with
 * probability 1/2 at double weight and new ones enter at that probability, so retained sums stay unbiased. The entry
 * probability doubles again when the records are fewer than a quarter of what there is room for: max_live, or those that
 * there are and as many more as the free part of the budget would hold, whichever is less. Below 512 records memory is
 * short because of other things: nothing is thinned, the new record is dropped (live_limit), and retained sums lack it.
 */

#include "live.h"
#include "pending.h"
#include "resolver.h"
#include "rows.h"
#include "snapshot.h"

/* code, name. Why a sample, or the live record of one, was dropped. */
#define MPP_DROP_LIST(X)                                                                                               \
    X(PENDING_FULL, "pending_full") /* more waited for the safe point than the buffer holds */                         \
    X(MEMORY_LIMIT, "memory_limit") /* the profile's budget is spent */                                                \
    X(NO_MEMORY, "no_memory")       /* the system refused memory */                                                    \
    X(ROW_LIMIT, "row_limit")       /* no row is free, and too few without live objects to fold */                     \
    X(UNNAMED, "unnamed")           /* the names of its frames were forgotten as fast as they were given */            \
    X(LIVE_LIMIT, "live_limit")     /* counted as allocated, but no live record could be made */                       \
    X(UNTRACKED, "untracked")       /* counted as allocated, then nobody knew any more whether it lives */

typedef enum {
#define MPP_DROP_CODE(code, name) MPP_DROP_##code,
    MPP_DROP_LIST(MPP_DROP_CODE)
#undef MPP_DROP_CODE
        MPP_N_DROPS
} mpp_drop_t;

const char *mpp_drop_name(mpp_drop_t drop); /* static. [any] */

typedef struct {
    size_t memory_limit_bytes;
    uint32_t max_rows;
    uint32_t max_live;
    uint32_t max_pending;
    uint32_t max_depth;
    bool tracks_live; /* false: no live records, retained is zero */
    bool late_deaths; /* found out by `measure` alone, and moves not at all: live records have no key */
    uint64_t seed; /* for thinning */
} mpp_profile_config_t;

typedef struct mpp_profile mpp_profile_t;

/* A profile with one reference. On failure *profile is NULL and nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_profile_new(const mpp_profile_config_t *config, mpp_profile_t **profile);

/* Further references (snapshots take one each, a drain may); the last release frees all. NULL is fine. [newobj] [gc] */
void mpp_profile_retain(mpp_profile_t *profile);
void mpp_profile_release(mpp_profile_t *profile);

/* -- hook -- */

/* An allocation was sampled. What cannot be kept is counted as dropped. [newobj] */
void mpp_profile_sample(mpp_profile_t *profile, uintptr_t object, mpp_weight_t weight,
                        const mpp_backtrace_t *backtrace);

/* What the samples from now on carry: see snapshot.h. At first 0. [newobj] */
void mpp_profile_set_labels(mpp_profile_t *profile, mpp_id_t labels);

/* -- safe point -- */

/* A sample in hand: between take and its end it owns its references. */
typedef struct {
    mpp_pending_entry_t entry;
    /* of mpp_profile_unknown_frame: where it goes on, in which pass, and whether that one found any */
    uint32_t next_frame;
    uint32_t n_passes;
    bool looks_again;
    uint64_t n_naming_failures; /* the profile's when it was taken */
    mpp_id_t record; /* of the commit: its live record, 0 if it has none */
} mpp_sample_t;

/* Takes the oldest waiting sample off; each must be ended by commit or discard. False when none waits. [gvl] */
bool mpp_profile_take(mpp_profile_t *profile, mpp_sample_t *sample);

/*
 * The next of the sample's frames that has no function: name each with define_frame. 0 when all have one, or when names
 * are forgotten as fast as they are given: it goes through the frames again until it finds none, but only a few times.
 * [gvl]
 */
uintptr_t mpp_profile_unknown_frame(mpp_profile_t *profile, mpp_sample_t *sample);

/* Names a frame. On failure nothing has changed, and the sample will be dropped by its commit. [gvl] */
MPP_CHECK mpp_status_t mpp_profile_define_frame(mpp_profile_t *profile, uintptr_t frame, mpp_view_t name,
                                                mpp_view_t filename, int32_t start_line);

/* The name of a class that was defined with a key, with a reference that the caller owns, or 0. [gvl] */
mpp_id_t mpp_profile_find_class(mpp_profile_t *profile, uintptr_t class_key);

/* The name as an id with a reference that the caller owns; remembered under class_key unless that is 0. 0 when memory is
 * short. [gvl] */
mpp_id_t mpp_profile_define_class(mpp_profile_t *profile, uintptr_t class_key, mpp_view_t name);

/* What the host found out about the sample at the safe point. */
typedef struct {
    mpp_id_t class_name; /* its reference is taken over; 0 = none */
    uint64_t bytes;
    uint32_t gc_count;  /* collections begun */
    bool sweeping;
    bool live; /* false: the object is gone or cannot be followed: allocation values alone */
} mpp_birth_t;

/* Ends a sample: into its row and the live records, or into (dropped). [gvl] */
void mpp_profile_commit(mpp_profile_t *profile, mpp_sample_t *sample, const mpp_birth_t *birth);

/* Ends a sample that the host could not name or measure: into (dropped), with no bytes. [gvl] */
void mpp_profile_discard(mpp_profile_t *profile, mpp_sample_t *sample, mpp_drop_t reason);

/* The host cannot follow this record's object, or not any more: drops it (untracked) if it is still there. [gvl] */
void mpp_profile_give_up(mpp_profile_t *profile, mpp_id_t record, uint32_t serial);

/* Samples that wait. [any] */
uint32_t mpp_profile_pending_count(const mpp_profile_t *profile);

/* Gives memory back after a burst. [gvl] */
void mpp_profile_trim(mpp_profile_t *profile);

/* -- garbage collection -- */

typedef void (*mpp_visit_t)(void *context, uintptr_t key);
typedef uintptr_t (*mpp_relocate_t)(void *context, uintptr_t key);

void mpp_profile_each_pending(const mpp_profile_t *profile, mpp_visit_t visit, void *context); /* [gc] */
/* The live records, so that a host can ask mpp_live_may_have before it calls forget_object. Stays where it is. [any] */
const mpp_live_t *mpp_profile_live(const mpp_profile_t *profile);
void mpp_profile_forget_object(mpp_profile_t *profile, uintptr_t object);                      /* it died. [gc] */
void mpp_profile_forget_frame(mpp_profile_t *profile, uintptr_t frame);                        /* it died. [gc] */
void mpp_profile_forget_class(mpp_profile_t *profile, uintptr_t class_key);                    /* it died. [gc] */

/* The objects of live records for which is_alive is false died. [gc] */
void mpp_profile_forget_dead(mpp_profile_t *profile, bool (*is_alive)(void *context, uintptr_t key), void *context);

/* Deaths went unseen: drops every live record (untracked) and forgets every key, all of it untouched. [gc] */
void mpp_profile_lose_track(mpp_profile_t *profile);

/* Where deaths are not seen: visits the frame and class keys used since the last sweep, forgets the others. [gc] */
void mpp_profile_sweep_keys(mpp_profile_t *profile, mpp_visit_t visit, void *context);

/* Objects have moved: live records, frame and class keys. [gc] */
void mpp_profile_rekey(mpp_profile_t *profile, mpp_relocate_t relocate, void *context);

/* -- flush -- */

typedef enum {
    MPP_FOUND_ALIVE, /* *bytes is its size */
    MPP_FOUND_STALE, /* not known dead, and not to be touched now: it keeps its size */
    MPP_FOUND_DEAD,
} mpp_finding_t;

/* Finds out about one live object: sets *bytes if it measured it. It may call the host. */
typedef mpp_finding_t (*mpp_measure_t)(void *context, const mpp_live_record_t *record, uint64_t *bytes);

/*
 * Asks `measure` of up to n records, going on after *cursor (0: from the first), and moves *cursor; false at the end.
 * The dead leave, the stale are added to *n_stale; what thinning moves meanwhile may keep its size, too. [gvl]
 */
bool mpp_profile_measure(mpp_profile_t *profile, mpp_id_t *cursor, uint32_t n, mpp_measure_t measure, void *context,
                         uint64_t *n_stale);

/* The run has ended: forgets every host key; rows and records stay readable. Nothing may wait in pending. [gvl] */
void mpp_profile_detach(mpp_profile_t *profile);

typedef struct {
    bool delta; /* allocations since the last delta snapshot, which becomes the last; else since the start */
    uint32_t min_gc_age; /* leave live records out that have not survived so many collections */
    uint32_t gc_count_finished; /* collections begun and finished until now */
} mpp_snapshot_options_t;

typedef struct {
    mpp_snapshot_view_t view;
    mpp_profile_t *profile; /* one reference */
    mpp_snapshot_row_t *rows;
    mpp_id_t *row_ids; /* with delta: the row of each, and … */
    mpp_amount_t *given; /* … what was given out of it, for give_back */
    uint32_t capacity;
    bool delta;
    uint64_t n_allocation_samples; /* counted into rows, in the interval */
    uint64_t n_live_samples; /* live records in it */
    uint64_t dropped[MPP_N_DROPS]; /* in the interval */
    uint64_t n_evicted; /* rows folded since the start */
    mpp_budget_t budget; /* its own memory, outside the profile's limit */
} mpp_snapshot_t;

/* Copies the rows. On failure *snapshot is NULL and nothing has changed. [gvl] */
MPP_CHECK mpp_status_t
mpp_profile_snapshot(mpp_profile_t *profile, const mpp_snapshot_options_t *options, mpp_snapshot_t **snapshot);

/* Undoes what a delta snapshot gave out: the next one includes it. Rows folded meanwhile give back to (evicted). At most
 * once, before free. [gvl] */
void mpp_snapshot_give_back(mpp_snapshot_t *snapshot);

/* Multiplies its values, where what the samples stand for is known better than at sampling. give_back still undoes what
 * was given out. [gvl] */
void mpp_snapshot_scale(mpp_snapshot_t *snapshot, double allocated, double retained);

/* Releases what it references. NULL is fine. [gvl] */
void mpp_snapshot_free(mpp_snapshot_t *snapshot);

/* -- numbers -- */

typedef struct {
    mpp_amount_t dropped; /* the row (dropped) */
    uint64_t n_dropped[MPP_N_DROPS];
    uint64_t n_evicted; /* rows folded */
    uint32_t n_live, n_pending, n_rows, n_strings, n_functions, n_locations, n_stacks;
    uint32_t thinning; /* entry probability of live records is 2^-thinning */
    uint64_t n_thinnings; /* how often they were halved */
    /* bytes */
    size_t memory_used, memory_peak, memory_limit;
    size_t strings_bytes, functions_bytes, locations_bytes, stacks_bytes, rows_bytes, live_bytes, pending_bytes,
        caches_bytes;
} mpp_profile_stats_t;

void mpp_profile_stats(const mpp_profile_t *profile, mpp_profile_stats_t *stats); /* walks no table. [gvl] */

/* The sum of all rows, (evicted) included, (dropped) not. [any] */
mpp_amount_t mpp_profile_counted(const mpp_profile_t *profile);

/* Live records now. [any] */
uint32_t mpp_profile_live_count(const mpp_profile_t *profile);

#endif
