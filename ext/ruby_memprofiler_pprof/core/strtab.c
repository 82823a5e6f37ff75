/*
 * A slab of {bytes, length, references} behind an index by hash. Each string's bytes are a block of their own, which
 * does not move while the slab and the index change. They are terminated, so that an empty string is no special case;
 * the length is what counts.
 */

#include "strtab.h"

#include <assert.h>
#include <string.h>

typedef struct {
    char *bytes;
    uint32_t length;
    uint32_t references; /* nonzero while the string is in use */
} string_t;

typedef struct {
    const mpp_strtab_t *table;
    mpp_view_t view;
} wanted_t;

static inline string_t *
string_at(const mpp_strtab_t *table, mpp_id_t id)
{
    return mpp_slab_at(&table->slab, id);
}

static inline uint32_t
hash_of(mpp_view_t view)
{
    return (uint32_t)mpp_hash_bytes(0, view);
}

static inline bool
is_wanted(const void *context, mpp_id_t id)
{
    const wanted_t *wanted = context;
    const string_t *string = string_at(wanted->table, id);
    if (string->length != wanted->view.length) return false;
    return string->length == 0 || memcmp(string->bytes, wanted->view.bytes, string->length) == 0;
}

mpp_status_t
mpp_strtab_init(mpp_strtab_t *table, mpp_allocator_t *allocator, uint32_t max_strings)
{
    *table = (mpp_strtab_t){.allocator = allocator};
    mpp_index_init(&table->index, allocator);
    return mpp_slab_init(&table->slab, allocator, sizeof(string_t), max_strings);
}

static void
free_bytes(mpp_strtab_t *table, const string_t *string)
{
    size_t size = (size_t)string->length + 1;
    mpp_release(table->allocator, string->bytes, size);
    table->string_bytes -= size;
}

void
mpp_strtab_cleanup(mpp_strtab_t *table)
{
    for (mpp_id_t id = mpp_slab_next(&table->slab, 0); id != 0; id = mpp_slab_next(&table->slab, id)) {
        if (string_at(table, id)->references != 0) free_bytes(table, string_at(table, id));
    }
    mpp_index_cleanup(&table->index);
    mpp_slab_cleanup(&table->slab);
    *table = (mpp_strtab_t){0};
}

/* A new string with one reference. */
static mpp_status_t
add_string(mpp_strtab_t *table, mpp_view_t view, uint32_t hash, mpp_id_t *id)
{
    mpp_status_t status = mpp_index_reserve(&table->index);
    if (status != MPP_OK) return status;
    mpp_id_t added;
    status = mpp_slab_take(&table->slab, &added);
    if (status != MPP_OK) return status;
    void *bytes = NULL;
    status = mpp_resize(table->allocator, &bytes, 0, view.length + 1);
    if (status != MPP_OK) {
        mpp_slab_give(&table->slab, added);
        return status;
    }
    if (view.length != 0) memcpy(bytes, view.bytes, view.length);
    *string_at(table, added) = (string_t){.bytes = bytes, .length = (uint32_t)view.length, .references = 1};
    table->string_bytes += view.length + 1;
    mpp_index_insert(&table->index, hash, added);
    *id = added;
    return MPP_OK;
}

mpp_status_t
mpp_strtab_intern(mpp_strtab_t *table, mpp_view_t view, mpp_id_t *id)
{
    if (view.length > UINT32_MAX) return MPP_FULL;
    uint32_t hash = hash_of(view);
    mpp_id_t known = mpp_index_find(&table->index, hash, is_wanted, &(wanted_t){table, view});
    if (known == 0) return add_string(table, view, hash, id);
    mpp_strtab_retain(table, known);
    *id = known;
    return MPP_OK;
}

void
mpp_strtab_retain(mpp_strtab_t *table, mpp_id_t id)
{
    if (id != 0) string_at(table, id)->references++;
}

void
mpp_strtab_release(mpp_strtab_t *table, mpp_id_t id)
{
    if (id == 0) return;
    string_t *string = string_at(table, id);
    assert(string->references > 0);
    if (--string->references > 0) return;

    mpp_index_remove(&table->index, hash_of(mpp_strtab_view(table, id)), id);
    free_bytes(table, string);
    mpp_slab_give(&table->slab, id);
}

mpp_view_t
mpp_strtab_view(const mpp_strtab_t *table, mpp_id_t id)
{
    if (id == 0) return MPP_VIEW("");
    const string_t *string = string_at(table, id);
    return (mpp_view_t){string->bytes, string->length};
}

uint32_t
mpp_strtab_count(const mpp_strtab_t *table)
{
    return table->slab.n_used;
}

size_t
mpp_strtab_bytes(const mpp_strtab_t *table)
{
    return mpp_slab_bytes(&table->slab) + mpp_index_bytes(&table->index) + table->string_bytes;
}

void
mpp_strtab_trim(mpp_strtab_t *table)
{
    mpp_index_trim(&table->index);
}
