/*
 * A header before each block holds the length of both.
 */

#include "scratch.h"

typedef union {
    size_t bytes;
    max_align_t alignment;
} header_t;

void *
mpp_scratch_resize(mpp_scratch_t *scratch, void *block, size_t bytes)
{
    header_t *header = block ? (header_t *)block - 1 : NULL;
    void *memory = header;
    size_t old_bytes = header ? header->bytes : 0;
    size_t new_bytes = bytes ? bytes + sizeof(header_t) : 0;

    mpp_status_t status = MPP_NO_MEMORY;
    if (new_bytes >= bytes) status = mpp_resize(scratch->allocator, &memory, old_bytes, new_bytes);
    if (status != MPP_OK) {
        scratch->status = status;
        return NULL;
    }
    if (!memory) return NULL;
    header = memory;
    header->bytes = new_bytes;
    return header + 1;
}
