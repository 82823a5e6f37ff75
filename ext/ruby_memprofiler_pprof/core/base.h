#ifndef MPP_BASE_H
#define MPP_BASE_H

/*
 * What every part of the core shares: status codes, string views, the memory seam, hashing.
 *
 * Calling contexts, named in brackets on every function of the project:
 *   [newobj]  inside the host's allocation of an object: libc only, no raise, no host call
 *   [gc]      inside the host's garbage collection: as [newobj], and no waiting
 *   [gvl]     an ordinary call with the host's global lock held
 *   [no-gvl]  without that lock: may touch a snapshot and what it references, nothing else
 *   [any]     pure: reads its arguments alone
 * A function marked [newobj] may be called under [gvl] too, never the other way round.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPP_CHECK __attribute__((warn_unused_result))
#define MPP_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define MPP_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* code, text. The one list of what can go wrong in the core. */
#define MPP_STATUS_LIST(X)                                                                                             \
    X(OK, "ok")                                                                                                        \
    X(NO_MEMORY, "the system has no memory")                                                                           \
    X(MEMORY_LIMIT, "the memory limit is reached")                                                                     \
    X(FULL, "the table is full")                                                                                       \
    X(ENCODING, "the encoder failed")                                                                                  \
    X(OUTPUT, "the output was refused")

typedef enum {
#define MPP_STATUS_CODE(code, text) MPP_##code,
    MPP_STATUS_LIST(MPP_STATUS_CODE)
#undef MPP_STATUS_CODE
} mpp_status_t;

/* The text of a status, static. [any] */
const char *mpp_status_text(mpp_status_t status);

/* Index of an element in one of the core's tables; 0 = absent. Ids, not pointers, cross modules. */
typedef uint32_t mpp_id_t;

/* Sums of weights, and of weights times bytes: exact, so that what was added can be taken off again. */
__extension__ typedef unsigned __int128 mpp_sum_t;

/* Bytes with a length, not terminated, not owned. */
typedef struct {
    const char *bytes;
    size_t length;
} mpp_view_t;

#define MPP_VIEW_INIT(literal) {(literal), sizeof(literal) - 1} /* for static tables */
#define MPP_VIEW(literal) ((mpp_view_t)MPP_VIEW_INIT(literal))

/*
 * The memory seam. All memory of the core comes through resize():
 * makes *block, of old_bytes (0: none yet, *block is NULL), new_bytes long (0: frees it and sets it to NULL; never
 * fails). Bytes gained are zero. On failure *block and its contents are unchanged. [newobj] [gc]
 */
typedef struct mpp_allocator mpp_allocator_t;
struct mpp_allocator {
    mpp_status_t (*resize)(mpp_allocator_t *self, void **block, size_t old_bytes, size_t new_bytes);
};

/* libc memory under a limit. Not thread-safe: one owner at a time. */
typedef struct {
    mpp_allocator_t allocator; /* first: the vtable */
    size_t limit_bytes;
    size_t used_bytes; /* sum of the sizes asked for; libc's own overhead is not in it */
    size_t peak_bytes;
    uint64_t n_requests; /* calls that asked for more memory */
    uint64_t fail_from;  /* tests: requests numbered fail_from (from 1) … fail_from + fail_count - 1 are refused */
    uint64_t fail_count;
} mpp_budget_t;

#ifdef MPP_FAIL_ALLOCATIONS
/* In builds for tests: the same for the requests of all budgets together. Not to be set while anything allocates. */
typedef struct {
    uint64_t n_requests;
    uint64_t fail_from;
    uint64_t fail_count;
} mpp_failures_t;

extern mpp_failures_t mpp_failures;
#endif

/* limit_bytes: SIZE_MAX for none. [any] */
void mpp_budget_init(mpp_budget_t *budget, size_t limit_bytes);

MPP_CHECK static inline mpp_status_t
mpp_resize(mpp_allocator_t *allocator, void **block, size_t old_bytes, size_t new_bytes)
{
    return allocator->resize(allocator, block, old_bytes, new_bytes);
}

/* Frees a block of that many bytes; NULL is fine. [newobj] [gc] */
static inline void
mpp_release(mpp_allocator_t *allocator, void *block, size_t bytes)
{
    if (block) (void)allocator->resize(allocator, &block, bytes, 0);
}

/* A strong mix of 64 bits. [any] */
static inline uint64_t
mpp_hash_mix(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    return value;
}

static inline uint64_t
mpp_hash_pair(uint64_t left, uint64_t right)
{
    return mpp_hash_mix(left * UINT64_C(0x9e3779b97f4a7c15) + right);
}

/* The same on every machine and in every release: addresses in profiles are made of it. [any] */
uint64_t mpp_hash_bytes(uint64_t seed, mpp_view_t view);

#endif
