/*
 * A ring that doubles when full, from RING_ENTRIES to max_entries, plus a list of raw stacks. Entry i of the queue is
 * entries[(head + i) & (n_entries - 1)].
 *
 * A raw stack is one block: the struct, its frames, its lines. An entry holds one reference to it, which goes over to
 * whoever takes the entry; the list holds none, it is there so that the collector's mark phase finds every raw stack,
 * also one in the hands of a drain. Its first element is the newest, the only one that a push compares with: a loop
 * that allocates at one place shares one copy, and a push stays O(1) in the number of entries.
 */

#include "pending.h"

#include <string.h>

#define RING_ENTRIES 1024u
#define MAX_RING_ENTRIES (UINT32_C(1) << 31)

static uint32_t
round_up_to_power_of_two(uint32_t n)
{
    uint32_t power = 1;
    while (power < n && power < MAX_RING_ENTRIES) power *= 2;
    return power;
}

static uint32_t
small_ring(const mpp_pending_t *pending)
{
    return pending->max_entries < RING_ENTRIES ? pending->max_entries : RING_ENTRIES;
}

static size_t
ring_bytes(uint32_t n_entries)
{
    return n_entries * sizeof(mpp_pending_entry_t);
}

static size_t
raw_stack_bytes(uint32_t n)
{
    return sizeof(mpp_raw_stack_t) + n * (sizeof(uintptr_t) + sizeof(int));
}

void
mpp_pending_init(mpp_pending_t *pending, mpp_allocator_t *allocator, uint32_t max_entries)
{
    *pending = (mpp_pending_t){.allocator = allocator, .max_entries = round_up_to_power_of_two(max_entries)};
}

static void
free_raw(mpp_pending_t *pending, mpp_raw_stack_t *raw)
{
    size_t bytes = raw_stack_bytes(raw->backtrace.n);

    if (raw->next) raw->next->previous = raw->previous;
    if (raw->previous) {
        raw->previous->next = raw->next;
    } else {
        pending->raw_stacks = raw->next;
    }
    pending->raw_bytes -= bytes;
    mpp_release(pending->allocator, raw, bytes);
}

void
mpp_pending_cleanup(mpp_pending_t *pending)
{
    while (pending->raw_stacks) free_raw(pending, pending->raw_stacks);
    mpp_release(pending->allocator, pending->entries, ring_bytes(pending->n_entries));
    mpp_pending_init(pending, pending->allocator, pending->max_entries);
}

static bool
is_full(const mpp_pending_t *pending)
{
    return pending->n_used == pending->max_entries;
}

/* Doubles the ring and unrolls it: what had wrapped to the start, [0, head), follows the old end. */
static mpp_status_t
grow(mpp_pending_t *pending)
{
    uint32_t old = pending->n_entries;
    uint32_t grown = old ? old * 2 : small_ring(pending);
    void *block = pending->entries;
    mpp_status_t status = mpp_resize(pending->allocator, &block, ring_bytes(old), ring_bytes(grown));
    if (status != MPP_OK) return status;

    pending->entries = block;
    pending->n_entries = grown;
    if (pending->head) memcpy(pending->entries + old, pending->entries, ring_bytes(pending->head));
    return MPP_OK;
}

static mpp_status_t
append(mpp_pending_t *pending, const mpp_pending_entry_t *entry)
{
    if (MPP_UNLIKELY(is_full(pending))) return MPP_FULL;
    if (MPP_UNLIKELY(pending->n_used == pending->n_entries)) {
        mpp_status_t status = grow(pending);
        if (status != MPP_OK) return status;
    }
    pending->entries[(pending->head + pending->n_used++) & (pending->n_entries - 1)] = *entry;
    return MPP_OK;
}

mpp_status_t
mpp_pending_push(mpp_pending_t *pending, uintptr_t object, mpp_weight_t weight, mpp_id_t stack)
{
    return append(pending, &(mpp_pending_entry_t){
                               .object = object, .weight = weight, .stack = stack, .labels = pending->labels});
}

static bool
same_backtrace(const mpp_backtrace_t *left, const mpp_backtrace_t *right)
{
    uint32_t n = left->n;

    if (n != right->n || left->truncated != right->truncated) return false;
    if (n == 0) return true;
    return memcmp(left->frames, right->frames, n * sizeof(*left->frames)) == 0 &&
           memcmp(left->lines, right->lines, n * sizeof(*left->lines)) == 0;
}

static mpp_status_t
copy_raw(mpp_pending_t *pending, const mpp_backtrace_t *backtrace, mpp_raw_stack_t **copy)
{
    uint32_t n = backtrace->n;
    void *block = NULL;
    mpp_status_t status = mpp_resize(pending->allocator, &block, 0, raw_stack_bytes(n));
    if (status != MPP_OK) return status;

    mpp_raw_stack_t *raw = block;
    uintptr_t *frames = (uintptr_t *)(raw + 1);
    int *lines = (int *)(frames + n);
    if (n) {
        memcpy(frames, backtrace->frames, n * sizeof(*frames));
        memcpy(lines, backtrace->lines, n * sizeof(*lines));
    }
    raw->backtrace = (mpp_backtrace_t){frames, lines, n, backtrace->truncated};
    raw->next = pending->raw_stacks;
    if (raw->next) raw->next->previous = raw;
    pending->raw_stacks = raw;
    pending->raw_bytes += raw_stack_bytes(n);
    *copy = raw;
    return MPP_OK;
}

mpp_status_t
mpp_pending_push_raw(mpp_pending_t *pending, uintptr_t object, mpp_weight_t weight, const mpp_backtrace_t *backtrace)
{
    mpp_raw_stack_t *raw = pending->raw_stacks;
    mpp_status_t status;

    if (is_full(pending)) return MPP_FULL; /* before a copy is made in vain */
    if (!raw || !same_backtrace(&raw->backtrace, backtrace)) {
        status = copy_raw(pending, backtrace, &raw);
        if (status != MPP_OK) return status;
    }
    raw->references++;
    status = append(pending, &(mpp_pending_entry_t){
                                 .object = object, .weight = weight, .labels = pending->labels, .raw = raw});
    if (status != MPP_OK) mpp_pending_release_raw(pending, raw);
    return status;
}

bool
mpp_pending_take(mpp_pending_t *pending, mpp_pending_entry_t *entry)
{
    if (pending->n_used == 0) return false;
    *entry = pending->entries[pending->head];
    pending->head = (pending->head + 1) & (pending->n_entries - 1);
    pending->n_used--;
    return true;
}

void
mpp_pending_release_raw(mpp_pending_t *pending, mpp_raw_stack_t *raw)
{
    if (raw && --raw->references == 0) free_raw(pending, raw);
}

void
mpp_pending_each(const mpp_pending_t *pending, void (*visit)(void *context, uintptr_t key), void *context)
{
    for (uint32_t i = 0; i < pending->n_used; i++) {
        visit(context, pending->entries[(pending->head + i) & (pending->n_entries - 1)].object);
    }
    for (const mpp_raw_stack_t *raw = pending->raw_stacks; raw; raw = raw->next) {
        for (uint32_t i = 0; i < raw->backtrace.n; i++) visit(context, raw->backtrace.frames[i]);
    }
}

void
mpp_pending_trim(mpp_pending_t *pending)
{
    uint32_t small = small_ring(pending);
    void *block = pending->entries;

    if (pending->n_used != 0 || pending->n_entries <= small) return;
    if (mpp_resize(pending->allocator, &block, ring_bytes(pending->n_entries), ring_bytes(small)) != MPP_OK) return;
    pending->entries = block;
    pending->n_entries = small;
    pending->head = 0;
}

size_t
mpp_pending_bytes(const mpp_pending_t *pending)
{
    return ring_bytes(pending->n_entries) + pending->raw_bytes;
}
