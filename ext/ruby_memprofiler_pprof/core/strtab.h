#ifndef MPP_STRTAB_H
#define MPP_STRTAB_H

/*
 * Interned strings with reference counts: equal bytes, equal id. The last release frees the string. The bytes of a
 * string that one holds a reference to do not move or change, so they may be read without the GVL.
 */

#include "index.h"
#include "slab.h"

typedef struct {
    mpp_slab_t slab;
    mpp_index_t index;
    mpp_allocator_t *allocator;
    size_t string_bytes;
} mpp_strtab_t;

/* On failure nothing is owned. [newobj] */
MPP_CHECK mpp_status_t mpp_strtab_init(mpp_strtab_t *table, mpp_allocator_t *allocator, uint32_t max_strings);

/* Frees all, whatever is still referenced. A zeroed table is fine. [newobj] [gc] */
void mpp_strtab_cleanup(mpp_strtab_t *table);

/* The id of these bytes, with one more reference that the caller owns. At most UINT32_MAX bytes (MPP_FULL). [newobj] */
MPP_CHECK mpp_status_t mpp_strtab_intern(mpp_strtab_t *table, mpp_view_t view, mpp_id_t *id);

void mpp_strtab_retain(mpp_strtab_t *table, mpp_id_t id);  /* 0 is fine. [newobj] [gc] */
void mpp_strtab_release(mpp_strtab_t *table, mpp_id_t id); /* 0 is fine. [newobj] [gc] */

/* The bytes; id 0 is the empty view. Valid while a reference is held. [no-gvl] */
mpp_view_t mpp_strtab_view(const mpp_strtab_t *table, mpp_id_t id);

/* Strings in the table. [any] */
uint32_t mpp_strtab_count(const mpp_strtab_t *table);
size_t mpp_strtab_bytes(const mpp_strtab_t *table);

/* Gives memory back after a burst. [newobj] */
void mpp_strtab_trim(mpp_strtab_t *table);

#endif
