#include "support_world.h"

#include <stdlib.h>
#include <string.h>

void
support_world_init(support_world_t *world, uint32_t max_rows, uint32_t max_elements)
{
    *world = (support_world_t){.max_rows = max_rows};
    mpp_budget_init(&world->budget, SIZE_MAX);
    assert_int_equal(mpp_strtab_init(&world->strings, &world->budget.allocator, max_elements), MPP_OK);
    assert_int_equal(mpp_frames_init(&world->frames, &world->budget.allocator, &world->strings, max_elements), MPP_OK);
    world->rows = calloc(max_rows + 1, sizeof(*world->rows));
    assert_non_null(world->rows);
}

void
support_world_cleanup(support_world_t *world)
{
    free(world->rows);
    mpp_frames_cleanup(&world->frames);
    mpp_strtab_cleanup(&world->strings);
    support_assert_no_leak(&world->budget);
}

mpp_id_t
support_world_string(support_world_t *world, mpp_view_t string)
{
    mpp_id_t id;
    assert_int_equal(mpp_strtab_intern(&world->strings, string, &id), MPP_OK);
    return id;
}

mpp_id_t
support_world_push(support_world_t *world, mpp_id_t parent, mpp_view_t name, mpp_view_t file, int32_t start_line,
                   int32_t line)
{
    mpp_id_t function, stack;
    assert_int_equal(mpp_frames_function(&world->frames, name, file, start_line, &function), MPP_OK);
    assert_int_equal(mpp_frames_push(&world->frames, parent, function, line, &stack), MPP_OK);
    mpp_frames_release_function(&world->frames, function);
    return stack;
}

mpp_snapshot_row_t *
support_world_add_row(support_world_t *world, mpp_id_t stack, mpp_id_t class_name, const mpp_sum_t values[MPP_N_VALUES])
{
    assert_true(world->n_rows < world->max_rows);
    mpp_snapshot_row_t *row = &world->rows[world->n_rows++];
    *row = (mpp_snapshot_row_t){.stack = stack, .class_name = class_name};
    memcpy(row->values, values, sizeof(row->values));
    return row;
}

mpp_status_t
support_world_encode(const support_world_t *world, const mpp_pprof_options_t *options, mpp_budget_t *budget,
                     support_sink_t *sink)
{
    mpp_snapshot_view_t view = {
        .rows = world->rows, .n_rows = world->n_rows, .frames = &world->frames, .strings = &world->strings};
    mpp_status_t status = mpp_pprof_encode(&view, options, &budget->allocator, support_sink_write, sink);
    support_assert_no_leak(budget);
    return status;
}
