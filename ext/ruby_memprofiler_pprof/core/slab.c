/*
 * A directory of chunks. A chunk is in the open list while it has room; taking uses the first of that list, which
 * leaves it when full, and giving back puts a full chunk in again: both O(1). Within a chunk, elements that were given
 * back are used before those never touched, linked through their first bytes.
 * A chunk that becomes empty stays as the spare if there is none, else its memory goes back and its number waits in the
 * released list to be used again before new ones are. Compaction empties chunks from the last down, as long as the
 * others have room for it, which it fills from the first up: so each element moves once at most.
 */

#include "slab.h"

#include <assert.h>
#include <string.h>

mpp_status_t
mpp_slab_init(mpp_slab_t *slab, mpp_allocator_t *allocator, size_t element_bytes, uint32_t max_elements)
{
    assert(element_bytes >= sizeof(uint32_t) && element_bytes <= UINT32_MAX / MPP_SLAB_CHUNK_ELEMENTS);
    *slab = (mpp_slab_t){
        .allocator = allocator,
        .max_chunks = max_elements / MPP_SLAB_CHUNK_ELEMENTS + (max_elements % MPP_SLAB_CHUNK_ELEMENTS != 0),
        .max_elements = max_elements,
        .element_bytes = (uint32_t)element_bytes,
    };
    void *directory = NULL;
    mpp_status_t status = mpp_resize(allocator, &directory, 0, slab->max_chunks * sizeof(mpp_slab_chunk_t));
    if (status != MPP_OK) *slab = (mpp_slab_t){0};
    slab->chunks = directory;
    return status;
}

static size_t
chunk_bytes(const mpp_slab_t *slab)
{
    return (size_t)MPP_SLAB_CHUNK_ELEMENTS * slab->element_bytes;
}

void
mpp_slab_cleanup(mpp_slab_t *slab)
{
    for (uint32_t number = 0; number < slab->end_chunk; number++) {
        mpp_release(slab->allocator, slab->chunks[number].elements, chunk_bytes(slab));
    }
    mpp_release(slab->allocator, slab->chunks, slab->max_chunks * sizeof(mpp_slab_chunk_t));
    *slab = (mpp_slab_t){0};
}

static void
list_add(mpp_slab_t *slab, uint32_t *first, uint32_t number)
{
    slab->chunks[number].next = *first;
    slab->chunks[number].previous = 0;
    if (*first != 0) slab->chunks[*first - 1].previous = number + 1;
    *first = number + 1;
}

static void
list_remove(mpp_slab_t *slab, uint32_t *first, uint32_t number)
{
    const mpp_slab_chunk_t *chunk = &slab->chunks[number];
    if (chunk->next != 0) slab->chunks[chunk->next - 1].previous = chunk->previous;
    if (chunk->previous != 0) {
        slab->chunks[chunk->previous - 1].next = chunk->next;
    } else {
        *first = chunk->next;
    }
}

static uint32_t
capacity_of(const mpp_slab_t *slab, uint32_t number)
{
    uint32_t rest = slab->max_elements - number * MPP_SLAB_CHUNK_ELEMENTS;
    return rest < MPP_SLAB_CHUNK_ELEMENTS ? rest : MPP_SLAB_CHUNK_ELEMENTS;
}

static mpp_status_t
allocate_chunk(mpp_slab_t *slab)
{
    bool reuses = slab->first_released != 0;
    uint32_t number = reuses ? slab->first_released - 1 : slab->end_chunk;
    void *elements = NULL;
    mpp_status_t status = mpp_resize(slab->allocator, &elements, 0, chunk_bytes(slab));
    if (status != MPP_OK) return status;

    if (reuses) {
        list_remove(slab, &slab->first_released, number);
    } else {
        slab->end_chunk++;
    }
    slab->chunks[number] = (mpp_slab_chunk_t){.elements = elements};
    slab->n_chunks_allocated++;
    list_add(slab, &slab->first_open, number);
    return MPP_OK;
}

/* The chunk is empty and in no list. */
static void
free_chunk(mpp_slab_t *slab, uint32_t number)
{
    mpp_release(slab->allocator, slab->chunks[number].elements, chunk_bytes(slab));
    slab->chunks[number] = (mpp_slab_chunk_t){0};
    slab->n_chunks_allocated--;
    list_add(slab, &slab->first_released, number);
}

static void
release_chunk(mpp_slab_t *slab, uint32_t number)
{
    list_remove(slab, &slab->first_open, number);
    free_chunk(slab, number);
}

/* The offset of an element of the chunk that is not in use; it is zeroed. */
static uint32_t
take_offset(const mpp_slab_t *slab, mpp_slab_chunk_t *chunk)
{
    if (chunk->first_free == 0) return chunk->n_touched++;

    uint32_t offset = chunk->first_free - 1u;
    unsigned char *element = chunk->elements + (size_t)offset * slab->element_bytes;
    uint32_t next;
    memcpy(&next, element, sizeof(next));
    memset(element, 0, sizeof(next));
    chunk->first_free = (uint16_t)next;
    if (next) __builtin_prefetch(chunk->elements + (size_t)(next - 1) * slab->element_bytes, 1); /* for the next one */
    return offset;
}

/* An element of a chunk with room. */
static mpp_id_t
take_from(mpp_slab_t *slab, uint32_t number)
{
    mpp_slab_chunk_t *chunk = &slab->chunks[number];
    if (slab->spare == number + 1) slab->spare = 0;

    mpp_id_t id = number * MPP_SLAB_CHUNK_ELEMENTS + take_offset(slab, chunk) + 1;
    chunk->n_used++;
    slab->n_used++;
    if (chunk->n_used == capacity_of(slab, number)) list_remove(slab, &slab->first_open, number);
    return id;
}

mpp_status_t
mpp_slab_take(mpp_slab_t *slab, mpp_id_t *id)
{
    if (slab->n_used == slab->max_elements) return MPP_FULL;
    if (slab->first_open == 0) {
        mpp_status_t status = allocate_chunk(slab);
        if (status != MPP_OK) return status;
    }
    *id = take_from(slab, slab->first_open - 1);
    return MPP_OK;
}

void
mpp_slab_give(mpp_slab_t *slab, mpp_id_t id)
{
    uint32_t number = (id - 1) / MPP_SLAB_CHUNK_ELEMENTS;
    uint32_t offset = (id - 1) % MPP_SLAB_CHUNK_ELEMENTS;
    mpp_slab_chunk_t *chunk = &slab->chunks[number];
    assert(chunk->n_used > 0 && offset < chunk->n_touched);

    unsigned char *element = mpp_slab_at(slab, id);
    uint32_t next = chunk->first_free;
    memset(element, 0, slab->element_bytes);
    memcpy(element, &next, sizeof(next));
    chunk->first_free = (uint16_t)(offset + 1);

    if (chunk->n_used == capacity_of(slab, number)) list_add(slab, &slab->first_open, number);
    chunk->n_used--;
    slab->n_used--;
    if (chunk->n_used > 0) return;
    if (slab->spare == 0) {
        slab->spare = number + 1;
    } else {
        release_chunk(slab, number);
    }
}

/* Only the last chunk may be smaller than the others, and it is the first to go. */
static bool
can_spare_chunk(const mpp_slab_t *slab)
{
    return slab->n_chunks_allocated > 0 &&
           slab->n_used <= (uint64_t)(slab->n_chunks_allocated - 1) * MPP_SLAB_CHUNK_ELEMENTS;
}

static bool
has_room(const mpp_slab_t *slab, uint32_t number)
{
    return slab->chunks[number].elements != NULL && slab->chunks[number].n_used < capacity_of(slab, number);
}

/* The chunk is in no list. Chunks from *target on, all before it, have room for what is in it. */
static void
move_out(mpp_slab_t *slab, uint32_t number, uint32_t *target, bool (*in_use)(const void *element),
         void (*moved)(void *context, mpp_id_t from, mpp_id_t to), void *context)
{
    const mpp_slab_chunk_t *chunk = &slab->chunks[number];
    slab->n_used -= chunk->n_used;
    for (uint32_t offset = 0; offset < chunk->n_touched; offset++) {
        const unsigned char *element = chunk->elements + (size_t)offset * slab->element_bytes;
        if (!in_use(element)) continue;
        while (!has_room(slab, *target)) ++*target;
        mpp_id_t to = take_from(slab, *target);
        memcpy(mpp_slab_at(slab, to), element, slab->element_bytes);
        moved(context, number * MPP_SLAB_CHUNK_ELEMENTS + offset + 1, to);
    }
}

void
mpp_slab_compact(mpp_slab_t *slab, bool (*in_use)(const void *element),
                 void (*moved)(void *context, mpp_id_t from, mpp_id_t to), void *context)
{
    if (slab->spare != 0) release_chunk(slab, slab->spare - 1);
    slab->spare = 0;
    uint32_t target = 0;
    for (uint32_t number = slab->end_chunk; number-- > 0 && can_spare_chunk(slab);) {
        if (slab->chunks[number].elements == NULL) continue;
        if (has_room(slab, number)) list_remove(slab, &slab->first_open, number);
        move_out(slab, number, &target, in_use, moved, context);
        free_chunk(slab, number);
    }
}

mpp_id_t
mpp_slab_next(const mpp_slab_t *slab, mpp_id_t after)
{
    uint32_t number = after / MPP_SLAB_CHUNK_ELEMENTS;
    uint32_t offset = after % MPP_SLAB_CHUNK_ELEMENTS;
    for (; number < slab->end_chunk; number++, offset = 0) {
        if (offset < slab->chunks[number].n_touched) return number * MPP_SLAB_CHUNK_ELEMENTS + offset + 1;
    }
    return 0;
}

size_t
mpp_slab_bytes(const mpp_slab_t *slab)
{
    return slab->max_chunks * sizeof(mpp_slab_chunk_t) + slab->n_chunks_allocated * chunk_bytes(slab);
}
