/*
 * The shared ground of the core: status texts, libc memory under a byte budget, a stable hash of bytes.
 * The budget counts what is asked for and refuses before libc is called, so that a refusal costs nothing and leaves the
 * block as it was. It keeps no list of blocks: whoever owns a block knows its size and says it again.
 */

#include "base.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *
mpp_status_text(mpp_status_t status)
{
    switch (status) {
#define MPP_STATUS_TEXT(code, text)                                                                                    \
    case MPP_##code: return text;
        MPP_STATUS_LIST(MPP_STATUS_TEXT)
#undef MPP_STATUS_TEXT
    }
    return "unknown status";
}

static inline bool
is_to_fail(uint64_t request, uint64_t from, uint64_t count)
{
    return MPP_UNLIKELY(request >= from && request - from < count);
}

#ifdef MPP_FAIL_ALLOCATIONS
mpp_failures_t mpp_failures;

static bool
is_to_fail_for_all(void)
{
    uint64_t request = __atomic_add_fetch(&mpp_failures.n_requests, 1, __ATOMIC_RELAXED);
    return is_to_fail(request, mpp_failures.fail_from, mpp_failures.fail_count);
}
#else
static inline bool
is_to_fail_for_all(void)
{
    return false;
}
#endif

/* May `growth` more bytes be asked of libc? Counts the request. */
static mpp_status_t
budget_admit(mpp_budget_t *budget, size_t growth)
{
    uint64_t request = ++budget->n_requests;
    if (is_to_fail(request, budget->fail_from, budget->fail_count) || is_to_fail_for_all()) return MPP_NO_MEMORY;
    if (budget->used_bytes > budget->limit_bytes || growth > budget->limit_bytes - budget->used_bytes) {
        return MPP_MEMORY_LIMIT;
    }
    return MPP_OK;
}

static mpp_status_t
budget_grow(mpp_budget_t *budget, void **block, size_t old_bytes, size_t new_bytes)
{
    size_t growth = new_bytes - old_bytes;
    mpp_status_t status = budget_admit(budget, growth);
    if (status != MPP_OK) return status;

    void *grown = old_bytes == 0 ? calloc(1, new_bytes) : realloc(*block, new_bytes);
    if (grown == NULL) return MPP_NO_MEMORY;
    if (old_bytes != 0) memset((char *)grown + old_bytes, 0, growth);

    *block = grown;
    budget->used_bytes += growth;
    if (budget->used_bytes > budget->peak_bytes) budget->peak_bytes = budget->used_bytes;
    return MPP_OK;
}

static mpp_status_t
budget_resize(mpp_allocator_t *self, void **block, size_t old_bytes, size_t new_bytes)
{
    mpp_budget_t *budget = (mpp_budget_t *)self;
    assert((old_bytes == 0) == (*block == NULL));
    assert(old_bytes <= budget->used_bytes);

    if (new_bytes > old_bytes) return budget_grow(budget, block, old_bytes, new_bytes);

    if (new_bytes == 0) {
        free(*block);
        *block = NULL;
    } else if (new_bytes < old_bytes) {
        /* When libc cannot shrink a block, the old one serves as well. */
        void *shrunk = realloc(*block, new_bytes);
        if (shrunk != NULL) *block = shrunk;
    }
    budget->used_bytes -= old_bytes - new_bytes;
    return MPP_OK;
}

void
mpp_budget_init(mpp_budget_t *budget, size_t limit_bytes)
{
    *budget = (mpp_budget_t){.allocator = {.resize = budget_resize}, .limit_bytes = limit_bytes};
}

/* Little-endian whatever the machine's order; where that is the machine's, compilers make one load of it. */
static inline uint64_t
load_word(const unsigned char *bytes)
{
    return (uint64_t)bytes[0] | (uint64_t)bytes[1] << 8 | (uint64_t)bytes[2] << 16 | (uint64_t)bytes[3] << 24 |
           (uint64_t)bytes[4] << 32 | (uint64_t)bytes[5] << 40 | (uint64_t)bytes[6] << 48 | (uint64_t)bytes[7] << 56;
}

uint64_t
mpp_hash_bytes(uint64_t seed, mpp_view_t view)
{
    /* The length goes in first: the zeros that fill up the last word must not look like bytes. */
    uint64_t hash = mpp_hash_pair(seed, view.length);
    const unsigned char *bytes = (const unsigned char *)view.bytes;
    size_t left = view.length;
    for (; left >= 8; left -= 8, bytes += 8) hash = mpp_hash_pair(hash, load_word(bytes));
    if (left == 0) return hash;

    unsigned char tail[8] = {0};
    memcpy(tail, bytes, left);
    return mpp_hash_pair(hash, load_word(tail));
}
