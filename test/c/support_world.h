#ifndef SUPPORT_WORLD_H
#define SUPPORT_WORLD_H

/*
 * What an encoder reads, made by hand: tables of strings and frames, and rows. It keeps every reference that it is given
 * until its cleanup, so ids stay.
 */

#include "support.h"

#include "support_pprof.h"

typedef struct {
    mpp_budget_t budget;
    mpp_strtab_t strings;
    mpp_frames_t frames;
    mpp_snapshot_row_t *rows;
    uint32_t n_rows;
    uint32_t max_rows;
} support_world_t;

void support_world_init(support_world_t *world, uint32_t max_rows, uint32_t max_elements);

/* Fails the test if not all memory is given back. */
void support_world_cleanup(support_world_t *world);

mpp_id_t support_world_string(support_world_t *world, mpp_view_t string);

/* The stack of one more frame on `parent`. */
mpp_id_t support_world_push(support_world_t *world, mpp_id_t parent, mpp_view_t name, mpp_view_t file,
                            int32_t start_line, int32_t line);

/* Values in units of 2^-32. */
mpp_snapshot_row_t *support_world_add_row(support_world_t *world, mpp_id_t stack, mpp_id_t class_name,
                                          const mpp_sum_t values[MPP_N_VALUES]);

/* Encodes with scratch memory out of `budget`, all of which must come back. */
mpp_status_t support_world_encode(const support_world_t *world, const mpp_pprof_options_t *options,
                                  mpp_budget_t *budget, support_sink_t *sink);

#endif
