/* Snapshots: deltas, what is given back, ages, and reading without the lock. */

#include "support_profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define ONE MPP_WEIGHT_ONE

static mpp_profile_t *
new_profile(uint32_t max_rows)
{
    mpp_profile_config_t config = support_profile_config();
    config.max_rows = max_rows;
    return support_profile_new(&config);
}

/* One object of that many bytes, dead at once, from that frame. */
static void
allocate(mpp_profile_t *profile, uintptr_t frame, uint64_t bytes)
{
    support_profile_allocate(profile,
                             &(support_allocation_t){.object = 8, .frame = frame, .bytes = bytes, .dead = true});
}

static void
drop(mpp_profile_t *profile, mpp_drop_t reason, mpp_weight_t weight)
{
    support_profile_discard(profile, &(support_allocation_t){.object = 8000, .frame = 1, .weight = weight}, reason);
}

static uint64_t
allocated_bytes(const mpp_snapshot_t *snapshot)
{
    return support_profile_total(snapshot, MPP_ALLOCATED_BYTES);
}

/* What the next delta gives. */
static uint64_t
flush(mpp_profile_t *profile)
{
    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, true);
    uint64_t bytes = allocated_bytes(snapshot);
    mpp_snapshot_free(snapshot);
    return bytes;
}

static void
an_empty_profile_has_no_rows(void **state)
{
    (void)state;
    for (int delta = 0; delta < 2; delta++) {
        mpp_profile_t *profile = new_profile(10);
        mpp_snapshot_t *snapshot = support_profile_snapshot(profile, delta);
        assert_int_equal(snapshot->view.n_rows, 0);
        assert_int_equal(snapshot->n_allocation_samples, 0);
        mpp_snapshot_give_back(snapshot);
        mpp_snapshot_free(snapshot);
        mpp_snapshot_free(NULL);
        mpp_profile_release(profile);
    }
}

static void
copies_rows(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    for (uintptr_t i = 1; i <= 10; i++) {
        support_profile_allocate(
            profile,
            &(support_allocation_t){
                .object = i * 8, .frame = 1 + i % 2 * 10, .depth = 3, .class_key = 5, .bytes = i, .weight = 3 * ONE});
    }
    mpp_profile_forget_object(profile, 16);
    drop(profile, MPP_DROP_PENDING_FULL, 7 * ONE);
    drop(profile, MPP_DROP_MEMORY_LIMIT, ONE);

    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, false);
    assert_int_equal(snapshot->view.n_rows, 3);
    assert_int_equal(snapshot->n_allocation_samples, 10);
    assert_int_equal(snapshot->n_live_samples, 9);
    assert_int_equal(snapshot->dropped[MPP_DROP_PENDING_FULL], 1);
    assert_int_equal(snapshot->dropped[MPP_DROP_MEMORY_LIMIT], 1);

    const mpp_snapshot_row_t *row = support_profile_row(snapshot, "frame1");
    assert_int_equal(support_profile_whole(row->values[MPP_ALLOCATED_COUNT]), 15);
    assert_int_equal(support_profile_whole(row->values[MPP_ALLOCATED_BYTES]), 90);
    assert_int_equal(support_profile_whole(row->values[MPP_RETAINED_COUNT]), 12);
    assert_int_equal(support_profile_whole(row->values[MPP_RETAINED_BYTES]), 84);
    assert_memory_equal(mpp_strtab_view(snapshot->view.strings, row->class_name).bytes, "Class5", 6);
    assert_int_equal(mpp_frames_get_stack(snapshot->view.frames, row->stack)->depth, 3);

    const mpp_snapshot_row_t *dropped = support_profile_row(snapshot, "(dropped)");
    assert_int_equal(support_profile_whole(dropped->values[MPP_ALLOCATED_COUNT]), 8);
    assert_int_equal(dropped->values[MPP_ALLOCATED_BYTES], 0);
    assert_int_equal(dropped->values[MPP_RETAINED_COUNT], 0);
    mpp_snapshot_free(snapshot);
    mpp_profile_release(profile);
}

static void
each_allocation_is_in_one_delta(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    allocate(profile, 1, 10);
    assert_int_equal(flush(profile), 10);
    assert_int_equal(flush(profile), 0);
    allocate(profile, 1, 5);
    allocate(profile, 2, 1);
    drop(profile, MPP_DROP_NO_MEMORY, ONE);
    mpp_snapshot_t *cumulative = support_profile_snapshot(profile, false);
    mpp_snapshot_t *delta = support_profile_snapshot(profile, true);
    assert_int_equal(allocated_bytes(cumulative), 16);
    assert_int_equal(allocated_bytes(delta), 6);
    assert_int_equal(delta->n_allocation_samples, 2);
    assert_int_equal(delta->dropped[MPP_DROP_NO_MEMORY], 1);
    mpp_snapshot_free(delta);
    mpp_snapshot_free(cumulative);

    delta = support_profile_snapshot(profile, true);
    assert_int_equal(delta->view.n_rows, 0);
    assert_int_equal(delta->dropped[MPP_DROP_NO_MEMORY], 0);
    mpp_snapshot_free(delta);
    mpp_profile_release(profile);
}

/* A row with nothing allocated in the interval stays in as long as something of it lives. */
static void
what_lives_is_in_every_delta(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1, .bytes = 40});
    for (int i = 0; i < 3; i++) {
        mpp_snapshot_t *snapshot = support_profile_snapshot(profile, true);
        assert_int_equal(support_profile_total(snapshot, MPP_RETAINED_BYTES), 40);
        assert_int_equal(allocated_bytes(snapshot), i == 0 ? 40 : 0);
        mpp_snapshot_free(snapshot);
    }
    mpp_profile_forget_object(profile, 8);
    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, true);
    assert_int_equal(snapshot->view.n_rows, 0);
    mpp_snapshot_free(snapshot);
    mpp_profile_release(profile);
}

/* -- give back -- */

static void
gives_back(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    allocate(profile, 1, 10);
    drop(profile, MPP_DROP_NO_MEMORY, ONE);
    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, true);
    allocate(profile, 1, 3);
    mpp_snapshot_give_back(snapshot);
    mpp_snapshot_free(snapshot);

    snapshot = support_profile_snapshot(profile, true);
    assert_int_equal(allocated_bytes(snapshot), 13);
    assert_int_equal(snapshot->n_allocation_samples, 2);
    assert_int_equal(snapshot->dropped[MPP_DROP_NO_MEMORY], 1);
    mpp_snapshot_free(snapshot);
    assert_int_equal(flush(profile), 0);

    snapshot = support_profile_snapshot(profile, false);
    mpp_snapshot_give_back(snapshot); /* a cumulative one took nothing */
    mpp_snapshot_free(snapshot);
    assert_int_equal(flush(profile), 0);
    mpp_profile_release(profile);
}

static void
evict_all(mpp_profile_t *profile)
{
    (void)mpp_rows_evict(&profile->rows, UINT32_MAX, profile->evicted_row, profile->dropped_row);
}

static void
gives_back_what_was_folded(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    allocate(profile, 1, 10);
    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, true);
    evict_all(profile);
    assert_int_equal(flush(profile), 0);
    mpp_snapshot_give_back(snapshot);
    mpp_snapshot_free(snapshot);
    snapshot = support_profile_snapshot(profile, true);
    assert_int_equal(support_profile_whole(support_profile_row(snapshot, "(evicted)")->values[MPP_ALLOCATED_BYTES]),
                     10);
    assert_int_equal(snapshot->view.n_rows, 1);
    assert_int_equal(snapshot->n_evicted, 1);
    allocate(profile, 1, 10);
    evict_all(profile);
    assert_int_equal(snapshot->n_evicted, 1);
    mpp_snapshot_free(snapshot);
    mpp_profile_release(profile);
}

/* The row was folded and made again, under the same id; two snapshots of it come back in either order. */
static void
gives_back_to_a_row_made_again(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        mpp_profile_t *profile = new_profile(10);
        allocate(profile, 1, 10);
        mpp_snapshot_t *snapshots[2] = {support_profile_snapshot(profile, true), NULL};
        evict_all(profile);
        allocate(profile, 1, 4);
        snapshots[1] = support_profile_snapshot(profile, true);
        assert_int_equal(snapshots[0]->row_ids[0], snapshots[1]->row_ids[0]);
        allocate(profile, 1, 1);
        mpp_snapshot_give_back(snapshots[order]);
        mpp_snapshot_give_back(snapshots[1 - order]);
        assert_int_equal(flush(profile), 15);
        assert_int_equal(flush(profile), 0);
        mpp_snapshot_free(snapshots[0]);
        mpp_snapshot_free(snapshots[1]);
        mpp_profile_release(profile);
    }
}

/* The id now means another row, or its chunk has even been freed. */
static void
gives_back_when_the_id_means_something_else(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10000);
    for (uintptr_t i = 1; i <= 5000; i++) allocate(profile, i, 1);
    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, true);
    evict_all(profile);
    assert_true(profile->rows.slab.n_chunks_allocated < 4);
    for (uintptr_t i = 1; i <= 100; i++) allocate(profile, 6000 + i, 1);
    mpp_snapshot_give_back(snapshot);
    mpp_snapshot_free(snapshot);
    assert_int_equal(flush(profile), 5100);
    assert_int_equal(flush(profile), 0);
    mpp_profile_release(profile);
}

/* -- ages -- */

static uint64_t
retained(mpp_profile_t *profile, uint32_t min_gc_age, uint32_t gc_count_finished)
{
    mpp_snapshot_options_t options = {.min_gc_age = min_gc_age, .gc_count_finished = gc_count_finished};
    mpp_snapshot_t *snapshot;
    assert_int_equal(mpp_profile_snapshot(profile, &options, &snapshot), MPP_OK);
    uint64_t bytes = support_profile_total(snapshot, MPP_RETAINED_BYTES);
    assert_int_equal(snapshot->n_live_samples, support_profile_total(snapshot, MPP_RETAINED_COUNT));
    mpp_snapshot_free(snapshot);
    return bytes;
}

static void
leaves_the_young_out(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    for (uint32_t i = 0; i < 5; i++) {
        support_profile_allocate(
            profile,
            &(support_allocation_t){.object = 8 + i * 8, .frame = 1 + i % 2, .bytes = 1u << i, .gc_count = 10 + i});
    }
    assert_int_equal(retained(profile, 0, 13), 31);
    assert_int_equal(retained(profile, 1, 13), 7);
    assert_int_equal(retained(profile, 2, 13), 3);
    assert_int_equal(retained(profile, 4, 13), 0);
    assert_int_equal(retained(profile, 3, 14), 3);
    mpp_profile_detach(profile);
    assert_int_equal(retained(profile, 3, 14), 3);
    mpp_profile_release(profile);
}

static void
ages_wrap_around(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    support_profile_allocate(profile,
                             &(support_allocation_t){.object = 8, .frame = 1, .bytes = 1, .gc_count = UINT32_MAX});
    support_profile_allocate(profile, &(support_allocation_t){.object = 16, .frame = 1, .bytes = 2, .gc_count = 1});
    assert_int_equal(retained(profile, 1, UINT32_MAX), 0);
    assert_int_equal(retained(profile, 1, 0), 1);
    assert_int_equal(retained(profile, 2, 1), 1);
    assert_int_equal(retained(profile, 1, 2), 3);
    assert_int_equal(retained(profile, UINT32_MAX, 2), 0);
    mpp_profile_release(profile);
}

/* -- ownership -- */

static void
outlives_the_profiles_owner(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1, .depth = 5, .bytes = 9});
    mpp_snapshot_t *snapshots[] = {support_profile_snapshot(profile, true), support_profile_snapshot(profile, false)};
    mpp_profile_release(profile);
    for (int i = 0; i < 2; i++) {
        assert_non_null(support_profile_row(snapshots[i], "frame1"));
        assert_int_equal(allocated_bytes(snapshots[i]), 9);
        mpp_snapshot_give_back(snapshots[i]);
        mpp_snapshot_free(snapshots[i]);
    }
}

static void
names_stay_while_it_lives(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    uint32_t n_strings = mpp_strtab_count(&profile->strings);
    support_profile_allocate(
        profile,
        &(support_allocation_t){.object = 8, .frame = 1, .depth = 5, .class_key = 3, .bytes = 9, .dead = true});
    mpp_snapshot_t *snapshot = support_profile_snapshot(profile, true);
    mpp_profile_lose_track(profile);
    evict_all(profile);
    assert_int_equal(mpp_strtab_count(&profile->strings), n_strings + 5 + 1 + 1); /* names, the file, the class */
    const mpp_snapshot_row_t *row = support_profile_row(snapshot, "frame1");
    assert_memory_equal(mpp_strtab_view(snapshot->view.strings, row->class_name).bytes, "Class3", 6);
    mpp_snapshot_free(snapshot);
    assert_int_equal(mpp_strtab_count(&profile->strings), n_strings);
    mpp_profile_release(profile);
}

static void
a_refused_snapshot_changes_nothing(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(10);
    support_profile_allocate(profile, &(support_allocation_t){.object = 8, .frame = 1, .bytes = 9});
    mpp_snapshot_options_t options = {.delta = true, .min_gc_age = 1, .gc_count_finished = 5};
    mpp_snapshot_t *snapshot = NULL;
    uint64_t n = 0;
    profile->snapshot_budget.fail_count = 1;
    do {
        profile->snapshot_budget.fail_from = ++n;
        mpp_status_t status = mpp_profile_snapshot(profile, &options, &snapshot);
        assert_true((snapshot == NULL) == support_refused(status));
    } while (snapshot == NULL);
    assert_int_equal(n, 6); /* itself, the retained sums, three arrays */
    assert_int_equal(allocated_bytes(snapshot), 9);
    assert_true(snapshot->budget.peak_bytes > snapshot->budget.used_bytes);
    mpp_snapshot_free(snapshot);
    mpp_profile_release(profile);
}

/* -- reading without the lock -- */

typedef struct {
    const mpp_snapshot_view_t *view;
    atomic_bool go_on;
    uint64_t hash;
    uint64_t n_rounds;
} reader_t;

static uint64_t
hash_of_view(const mpp_snapshot_view_t *view)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < view->n_rows; i++) {
        hash = mpp_hash_bytes(hash, mpp_strtab_view(view->strings, view->rows[i].class_name));
        for (mpp_id_t id = view->rows[i].stack; id;) {
            const mpp_stack_t *stack = mpp_frames_get_stack(view->frames, id);
            const mpp_location_t *location = mpp_frames_get_location(view->frames, stack->location);
            const mpp_function_t *function = mpp_frames_get_function(view->frames, location->function);
            hash = mpp_hash_bytes(hash, mpp_strtab_view(view->strings, function->name));
            hash = mpp_hash_pair(hash, (uint32_t)location->line);
            id = stack->parent;
        }
    }
    return hash;
}

static void *
read_on(void *context)
{
    reader_t *reader = context;
    do {
        uint64_t hash = hash_of_view(reader->view);
        if (hash != reader->hash) reader->hash = 0;
        reader->n_rounds++;
    } while (atomic_load(&reader->go_on));
    return NULL;
}

/* New stacks and classes all the time, folding, forgetting, trimming: the tables grow and shrink. */
static void
churn(mpp_profile_t *profile, uintptr_t from, uintptr_t n)
{
    for (uintptr_t i = from; i < from + n; i++) {
        support_profile_allocate(profile, &(support_allocation_t){.object = i * 8,
                                                                  .frame = 1 + i * 3,
                                                                  .depth = 1 + (uint32_t)(i % 20),
                                                                  .class_key = 1 + i % 1000,
                                                                  .bytes = i});
        if (i >= 64) mpp_profile_forget_object(profile, (i - 64) * 8);
        if (i % 50 == 0) mpp_profile_forget_frame(profile, i);
        if (i % 500 == 0) mpp_profile_lose_track(profile);
        if (i % 700 == 0) mpp_profile_trim(profile);
    }
}

static void
another_thread_may_read(void **state)
{
    (void)state;
    mpp_profile_t *profile = new_profile(300);
    churn(profile, 1, 2000);
    for (uintptr_t round = 1; round <= 5; round++) {
        mpp_snapshot_t *snapshot = support_profile_snapshot(profile, round % 2);
        uint64_t hash = hash_of_view(&snapshot->view);
        reader_t reader = {.view = &snapshot->view, .go_on = true, .hash = hash};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, read_on, &reader), 0);
        churn(profile, round * 2000, 2000);
        mpp_snapshot_free(support_profile_snapshot(profile, true));
        evict_all(profile);
        mpp_profile_trim(profile);
        atomic_store(&reader.go_on, false);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(reader.n_rounds > 0);
        assert_true(reader.hash == hash);
        mpp_snapshot_free(snapshot);
    }
    mpp_profile_release(profile);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_profile_has_no_rows),
        cmocka_unit_test(copies_rows),
        cmocka_unit_test(each_allocation_is_in_one_delta),
        cmocka_unit_test(what_lives_is_in_every_delta),
        cmocka_unit_test(gives_back),
        cmocka_unit_test(gives_back_what_was_folded),
        cmocka_unit_test(gives_back_to_a_row_made_again),
        cmocka_unit_test(gives_back_when_the_id_means_something_else),
        cmocka_unit_test(leaves_the_young_out),
        cmocka_unit_test(ages_wrap_around),
        cmocka_unit_test(outlives_the_profiles_owner),
        cmocka_unit_test(names_stay_while_it_lives),
        cmocka_unit_test(a_refused_snapshot_changes_nothing),
        cmocka_unit_test(another_thread_may_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
