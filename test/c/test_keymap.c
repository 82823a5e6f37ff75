#include "support.h"

#include "keymap.h"

#include <string.h>

/* The model: the keys with their values and whether each was used since the last sweep. */
enum { MAX_KEYS = 2000 };
typedef struct {
    uintptr_t key; /* 0: not in the map */
    uintptr_t moved_to;
    bool used;
} model_t;
static model_t model[MAX_KEYS + 1]; /* by value */

static mpp_budget_t budget;
static mpp_keymap_t map;
static uint32_t n_visits, n_drops;

static void
start(void)
{
    memset(model, 0, sizeof(model));
    n_visits = 0;
    n_drops = 0;
    mpp_budget_init(&budget, SIZE_MAX);
    mpp_keymap_init(&map, &budget.allocator);
}

static void
finish(void)
{
    assert_int_equal(mpp_keymap_bytes(&map), budget.used_bytes);
    mpp_keymap_cleanup(&map);
    support_assert_no_leak(&budget);
}

/* Addresses look like a host's: multiples of 40 within one heap. */
static uintptr_t
address(uint32_t slot)
{
    return UINT32_C(0x10000000) + (uintptr_t)slot * 40;
}

static void
add(mpp_id_t value, uintptr_t key)
{
    assert_int_equal(mpp_keymap_add(&map, key, value), MPP_OK);
    model[value] = (model_t){.key = key, .used = true};
}

static mpp_id_t
value_of(uintptr_t key)
{
    for (mpp_id_t value = 1; value <= MAX_KEYS; value++) {
        if (model[value].key == key) return value;
    }
    return 0;
}

/* Looking every key up would mark it as used, so the table is walked: each entry is reached from its home. */
static void
check(void)
{
    uint32_t n = 0;
    for (mpp_id_t value = 1; value <= MAX_KEYS; value++) n += model[value].key != 0;
    assert_int_equal(map.n_used, n);
    assert_true(n <= map.n_entries / 4 * 3);

    uint32_t n_entries_used = 0;
    for (uint32_t i = 0; i < map.n_entries; i++) {
        const mpp_keymap_entry_t *entry = &map.entries[i];
        assert_false(entry->unplaced);
        if (entry->key == 0) continue;
        n_entries_used++;
        assert_int_equal(entry->key, model[entry->value].key);
        assert_int_equal(entry->used, model[entry->value].used);

        mpp_keymap_t shadow = map;
        bool used = entry->used;
        assert_int_equal(mpp_keymap_find(&shadow, entry->key), entry->value);
        map.entries[i].used = used;
    }
    assert_int_equal(n_entries_used, n);
}

static void
test_empty(void **state)
{
    (void)state;
    mpp_keymap_t zeroed = {0};
    mpp_keymap_cleanup(&zeroed);

    start();
    assert_int_equal(mpp_keymap_find(&map, 1), 0);
    assert_int_equal(mpp_keymap_remove(&map, 1), 0);
    mpp_keymap_clear(&map, NULL, NULL);
    mpp_keymap_sweep(&map, NULL, NULL, NULL, NULL);
    mpp_keymap_prune(&map, 100, NULL, NULL);
    mpp_keymap_trim(&map);
    mpp_keymap_rekey(&map, NULL, NULL);
    assert_int_equal(budget.n_requests, 0);
    finish();
}

static void
test_one(void **state)
{
    (void)state;
    start();
    add(7, UINTPTR_MAX);
    assert_int_equal(mpp_keymap_find(&map, UINTPTR_MAX), 7);
    assert_int_equal(mpp_keymap_find(&map, 1), 0);
    assert_int_equal(mpp_keymap_remove(&map, 1), 0);
    assert_int_equal(mpp_keymap_remove(&map, UINTPTR_MAX), 7);
    assert_int_equal(mpp_keymap_find(&map, UINTPTR_MAX), 0);
    assert_int_equal(map.n_used, 0);
    finish();
}

static void
test_growth_boundaries(void **state)
{
    (void)state;
    start();
    uint32_t expected = 16;
    for (mpp_id_t value = 1; value <= MAX_KEYS; value++) {
        if (value > expected / 4 * 3) expected *= 2;
        add(value, address(value));
        assert_int_equal(map.n_entries, expected);
        if (value < 200) check();
    }
    check();
    finish();
}

static void
test_largest(void **state)
{
    (void)state;
    mpp_keymap_t largest = {.n_entries = UINT32_C(1) << 31, .n_used = UINT32_C(3) << 29};
    assert_int_equal(mpp_keymap_add(&largest, 1, 1), MPP_FULL);
}

/* The table at its fullest (12 of 16), so that runs are long and cross its end; every key removed, in random order. */
static void
test_removal_around_the_end(void **state)
{
    (void)state;
    support_random_t random = {5};
    for (int round = 0; round < 1000; round++) {
        start();
        for (mpp_id_t value = 1; value <= 12; value++) {
            uintptr_t key;
            do key = address(support_below(&random, 100000));
            while (value_of(key) != 0);
            add(value, key);
        }
        assert_int_equal(map.n_entries, 16);
        while (map.n_used > 0) {
            mpp_id_t value = 1 + support_below(&random, 12);
            if (model[value].key == 0) continue;
            assert_int_equal(mpp_keymap_remove(&map, model[value].key), value);
            model[value].key = 0;
            check();
        }
        finish();
    }
}

static void
count_visit(void *context, uintptr_t key)
{
    assert_ptr_equal(context, model);
    mpp_id_t value = value_of(key);
    assert_true(value != 0 && model[value].used);
    n_visits++;
}

static void
count_drop(void *context, mpp_id_t value)
{
    assert_ptr_equal(context, model);
    assert_true(model[value].key != 0);
    model[value].key = 0;
    n_drops++;
}

static void
count_sweep_drop(void *context, mpp_id_t value)
{
    assert_ptr_equal(context, &map);
    assert_false(model[value].used);
    count_drop(model, value);
}

static void
test_clear(void **state)
{
    (void)state;
    start();
    for (mpp_id_t value = 1; value <= 100; value++) add(value, address(value));
    mpp_keymap_clear(&map, count_drop, model);
    assert_int_equal(n_drops, 100);
    assert_int_equal(map.n_entries, 256);
    check();
    add(1, address(1));
    check();
    finish();
}

static void
sweep_and_check(void)
{
    uint32_t n_used = 0, n_unused = 0;
    for (mpp_id_t value = 1; value <= MAX_KEYS; value++) {
        if (model[value].key == 0) continue;
        n_used += model[value].used;
        n_unused += !model[value].used;
    }
    n_visits = 0;
    n_drops = 0;
    uint64_t n_requests = budget.n_requests;
    mpp_keymap_sweep(&map, count_visit, model, count_sweep_drop, &map);
    assert_int_equal(n_visits, n_used);
    assert_int_equal(n_drops, n_unused);
    assert_int_equal(budget.n_requests, n_requests);
    for (mpp_id_t value = 1; value <= MAX_KEYS; value++) model[value].used = false;
    check();
}

static void
test_sweep(void **state)
{
    (void)state;
    start();
    for (mpp_id_t value = 1; value <= 100; value++) add(value, address(value));
    sweep_and_check(); /* new ones count as used */
    assert_int_equal(map.n_used, 100);
    for (mpp_id_t value = 1; value <= 100; value += 3) {
        assert_int_equal(mpp_keymap_find(&map, address(value)), value);
        model[value].used = true;
    }
    sweep_and_check();
    assert_int_equal(map.n_used, 34);
    sweep_and_check();
    assert_int_equal(map.n_used, 0);
    finish();
}

/* One look at a slot: its key goes, or is unused from now on. Of what has just become unused, nothing goes. */
static void
prune_and_check(uint32_t n_slots)
{
    uint64_t n_requests = budget.n_requests;
    n_drops = 0;
    mpp_keymap_prune(&map, n_slots, count_sweep_drop, &map);
    assert_int_equal(budget.n_requests, n_requests);
    for (uint32_t i = 0; i < map.n_entries; i++) {
        const mpp_keymap_entry_t *entry = &map.entries[i];
        if (entry->key != 0 && !entry->used) model[entry->value].used = false;
    }
    check();
}

static void
test_prune(void **state)
{
    (void)state;
    start();
    for (mpp_id_t value = 1; value <= 100; value++) add(value, address(value));
    prune_and_check(UINT32_MAX); /* new ones count as used */
    assert_int_equal(map.n_used, 100);
    for (mpp_id_t value = 1; value <= 100; value += 3) {
        assert_int_equal(mpp_keymap_find(&map, address(value)), value);
        model[value].used = true;
    }
    uint32_t n_dropped = 0;
    for (uint32_t i = 0; i < map.n_entries; i += 32) {
        prune_and_check(32);
        n_dropped += n_drops;
    }
    assert_in_range(n_dropped, 60, 66); /* what closes the first gap comes from where it has not been yet */
    for (mpp_id_t value = 1; value <= 100; value += 3) assert_true(model[value].key != 0 && !model[value].used);
    for (int i = 0; i < 8; i++) prune_and_check(32);
    prune_and_check(1000);
    assert_int_equal(map.n_used, 0);
    finish();
}

/* At the fullest table, runs cross its end: what is in use between two rounds is never dropped, all else in a few. */
static void
test_prune_around_the_end(void **state)
{
    (void)state;
    support_random_t random = {6};
    for (int round = 0; round < 1000; round++) {
        start();
        for (mpp_id_t value = 1; value <= 12; value++) add(value, address(value + support_below(&random, 10000) * 12));
        mpp_id_t busy = 1 + support_below(&random, 12);
        for (int i = 0; i < 12; i++) {
            assert_int_equal(mpp_keymap_find(&map, model[busy].key), busy);
            model[busy].used = true;
            prune_and_check(1 + support_below(&random, 16));
        }
        for (int i = 0; i < 4; i++) prune_and_check(16);
        assert_int_equal(map.n_used, 0);
        finish();
    }
}

/* Keys and the notes of their use go along. */
static void
test_trim(void **state)
{
    (void)state;
    start();
    for (mpp_id_t value = 1; value <= 1000; value++) add(value, address(value));
    sweep_and_check();
    for (mpp_id_t value = 1; value <= 1000; value++) {
        if (value > 256) {
            assert_int_equal(mpp_keymap_remove(&map, address(value)), value);
            model[value].key = 0;
        } else if (value % 3 == 0) {
            assert_int_equal(mpp_keymap_find(&map, address(value)), value);
            model[value].used = true;
        }
    }
    mpp_keymap_trim(&map);
    assert_int_equal(map.n_entries, 2048); /* 256 of 2048: just not under an eighth */
    assert_int_equal(mpp_keymap_remove(&map, address(256)), 256);
    model[256].key = 0;

    /* No memory to trim with: it stays as it is. */
    budget.fail_from = budget.n_requests + 1;
    budget.fail_count = 1;
    mpp_keymap_trim(&map);
    assert_int_equal(map.n_entries, 2048);
    check();

    mpp_keymap_trim(&map);
    assert_int_equal(map.n_entries, 1024);
    check();
    mpp_keymap_clear(&map, count_drop, model);
    mpp_keymap_trim(&map);
    assert_int_equal(map.n_entries, 16);
    add(1, address(1));
    check();
    finish();
}

static uintptr_t
moved_to(void *context, uintptr_t key)
{
    assert_ptr_equal(context, model);
    mpp_id_t value = value_of(key);
    assert_true(value != 0);
    return model[value].moved_to;
}

static void
rekey_and_check(void)
{
    uint64_t n_requests = budget.n_requests;
    mpp_keymap_rekey(&map, moved_to, model);
    assert_int_equal(budget.n_requests, n_requests);
    for (mpp_id_t value = 1; value <= MAX_KEYS; value++) {
        if (model[value].key != 0) model[value].key = model[value].moved_to;
    }
    check();
}

static void
stay(void)
{
    for (mpp_id_t value = 1; value <= MAX_KEYS; value++) model[value].moved_to = model[value].key;
}

static void
swap_places(mpp_id_t left, mpp_id_t right)
{
    uintptr_t key = model[left].moved_to;
    model[left].moved_to = model[right].moved_to;
    model[right].moved_to = key;
}

static void
test_rekey_swaps_two(void **state)
{
    (void)state;
    start();
    add(1, address(1));
    add(2, address(2));
    stay();
    rekey_and_check();
    swap_places(1, 2);
    rekey_and_check();
    assert_int_equal(mpp_keymap_find(&map, address(1)), 2);
    assert_int_equal(mpp_keymap_find(&map, address(2)), 1);
    finish();
}

/* All keys, some, or none change places among themselves or move to new addresses, from 1 key to the fullest table. */
static void
test_rekey_at_random(void **state)
{
    (void)state;
    support_random_t random = {11};
    static const uint32_t sizes[] = {1, 2, 11, 12, 13, 24, 25, 47, 48, 96, 150};
    for (size_t s = 0; s < SUPPORT_LENGTH(sizes); s++) {
        start();
        uint32_t next_free = 1;
        for (mpp_id_t value = 1; value <= sizes[s]; value++) add(value, address(next_free++));
        for (int round = 0; round < 60; round++) {
            uint32_t percent_swapped = support_below(&random, 101);
            uint32_t percent_moved = support_chance(&random, 1, 2) ? support_below(&random, 101) : 0;
            stay();
            for (mpp_id_t value = 1; value <= sizes[s]; value++) {
                if (support_chance(&random, percent_swapped, 100)) {
                    swap_places(value, 1 + support_below(&random, sizes[s]));
                }
                if (support_chance(&random, percent_moved, 100)) model[value].moved_to = address(next_free++);
            }
            rekey_and_check();
        }
        finish();
    }
}

static void
test_random_against_model(void **state)
{
    (void)state;
    support_random_t random = {13};
    start();
    uint32_t next_free = 1;
    for (int step = 0; step < 30000; step++) {
        mpp_id_t value = 1 + support_below(&random, MAX_KEYS);
        uint32_t what = support_below(&random, 1000);
        if (what == 0) {
            sweep_and_check();
            mpp_keymap_trim(&map);
        } else if (what == 1) {
            stay();
            for (int i = 0; i < 200; i++) {
                mpp_id_t other = 1 + support_below(&random, MAX_KEYS);
                if (model[value].key != 0 && model[other].key != 0) swap_places(value, other);
                value = other;
            }
            rekey_and_check();
        } else if (model[value].key == 0) {
            add(value, address(next_free++));
        } else if (what < 300) {
            assert_int_equal(mpp_keymap_remove(&map, model[value].key), value);
            assert_int_equal(mpp_keymap_find(&map, model[value].key), 0);
            model[value].key = 0;
        } else {
            assert_int_equal(mpp_keymap_find(&map, model[value].key), value);
            model[value].used = true;
        }
    }
    check();
    finish();
}

static void
refused_scenario(mpp_budget_t *failing)
{
    memset(model, 0, sizeof(model));
    mpp_keymap_init(&map, &failing->allocator);
    for (mpp_id_t value = 1; value <= 100; value++) {
        mpp_keymap_t before = map;
        if (support_refused(mpp_keymap_add(&map, address(value), value))) {
            assert_memory_equal(&map, &before, sizeof(map));
            check();
        } else {
            model[value] = (model_t){.key = address(value), .used = true};
        }
    }
    check();
    mpp_keymap_cleanup(&map);
}

static void
test_refused(void **state)
{
    (void)state;
    support_sweep_failures(refused_scenario);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_growth_boundaries),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_removal_around_the_end),
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_prune),
        cmocka_unit_test(test_prune_around_the_end),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_rekey_swaps_two),
        cmocka_unit_test(test_rekey_at_random),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("keymap", tests, NULL, NULL);
}
