#include "support.h"

#include "index.h"

#include <string.h>

/* The model: element `id` has the contents keys[id] and is in the index, or keys[id] is 0. */
enum { MAX_IDS = 3000 };
static uint64_t keys[MAX_IDS + 1];
static uint32_t hashes[MAX_IDS + 1];

static mpp_budget_t budget;
static mpp_index_t table;

static void
start(void)
{
    memset(keys, 0, sizeof(keys));
    mpp_budget_init(&budget, SIZE_MAX);
    mpp_index_init(&table, &budget.allocator);
}

static void
finish(void)
{
    assert_int_equal(mpp_index_bytes(&table), budget.used_bytes);
    mpp_index_cleanup(&table);
    assert_int_equal(mpp_index_bytes(&table), 0);
    support_assert_no_leak(&budget);
}

static bool
has_key(const void *context, mpp_id_t id)
{
    return keys[id] == *(const uint64_t *)context;
}

static mpp_id_t
find(uint32_t hash, uint64_t key)
{
    return mpp_index_find(&table, hash, has_key, &key);
}

static void
insert(mpp_id_t id, uint32_t hash)
{
    assert_int_equal(mpp_index_reserve(&table), MPP_OK);
    keys[id] = UINT64_C(1000000) + id;
    hashes[id] = hash;
    mpp_index_insert(&table, hash, id);
}

static void
drop(mpp_id_t id)
{
    mpp_index_remove(&table, hashes[id], id);
    keys[id] = 0;
}

/* In a table of 16 slots, the hashes number 0, 16, 32 … are at home in slot 0, and so on. */
static uint32_t
hash_number(uint32_t number)
{
    return number % 16 << 28 | number / 16;
}

/* Every element of the model is found, nothing else is in the table, and at most 3 of 4 slots are used. */
static void
check(mpp_id_t max_id)
{
    uint32_t n = 0;
    for (mpp_id_t id = 1; id <= max_id; id++) {
        if (keys[id] == 0) {
            assert_int_equal(find(hashes[id], UINT64_C(1000000) + id), 0);
        } else {
            assert_int_equal(find(hashes[id], keys[id]), id);
            n++;
        }
    }
    uint32_t n_slots_used = 0;
    for (uint32_t i = 0; i < table.n_slots; i++) n_slots_used += table.slots[i].id != 0;
    assert_int_equal(table.n_used, n);
    assert_int_equal(n_slots_used, n);
    assert_true(n <= table.n_slots / 4 * 3);
}

static void
test_empty(void **state)
{
    (void)state;
    mpp_index_t zeroed = {0};
    mpp_index_cleanup(&zeroed);

    start();
    assert_int_equal(find(1, 1), 0);
    mpp_index_clear(&table);
    mpp_index_trim(&table);
    assert_int_equal(budget.n_requests, 0);
    assert_int_equal(mpp_index_reserve(&table), MPP_OK);
    assert_int_equal(find(1, 1), 0);
    finish();
}

static void
test_one(void **state)
{
    (void)state;
    start();
    insert(1, UINT32_MAX);
    assert_int_equal(table.n_slots, 16);
    check(1);
    drop(1);
    check(1);
    insert(1, 0);
    check(1);
    finish();
}

static void
test_growth_boundaries(void **state)
{
    (void)state;
    start();
    uint32_t expected_slots = 16;
    for (mpp_id_t id = 1; id <= 1000; id++) {
        if (id > expected_slots / 4 * 3) expected_slots *= 2;
        insert(id, (uint32_t)mpp_hash_mix(id));
        assert_int_equal(table.n_slots, expected_slots);
    }
    check(1000);
    finish();
}

/* Equal hashes, other contents: told apart by `equal`. */
static void
test_equal_hashes(void **state)
{
    (void)state;
    start();
    for (mpp_id_t id = 1; id <= 100; id++) insert(id, 0xfffffff0u);
    check(100);
    for (mpp_id_t id = 1; id <= 100; id += 3) drop(id);
    check(100);
    finish();
}

static bool
never_called(const void *context, mpp_id_t id)
{
    (void)context;
    fail_msg("element %u was looked at", (unsigned)id);
    return false;
}

/* Entries whose hash differs, in the same run, cost no look at their elements. */
static void
test_miss_touches_no_element(void **state)
{
    (void)state;
    start();
    for (mpp_id_t id = 1; id <= 10; id++) insert(id, hash_number(id * 16 + 15));
    assert_int_equal(mpp_index_find(&table, hash_number(15), never_called, NULL), 0);
    finish();
}

/* Runs that cross the end of the table, removed from in every order of a few hundred random ones. */
static void
test_removal_around_the_end(void **state)
{
    (void)state;
    support_random_t random = {7};
    for (int round = 0; round < 2000; round++) {
        start();
        uint32_t n = 1 + support_below(&random, 12);
        for (mpp_id_t id = 1; id <= n; id++) insert(id, hash_number(12 + support_below(&random, 7)));
        assert_int_equal(table.n_slots, 16);
        for (uint32_t left = n; left > 0; left--) {
            mpp_id_t id;
            do id = 1 + support_below(&random, n);
            while (keys[id] == 0);
            drop(id);
            check(n);
        }
        finish();
    }
}

static void
test_random_against_model(void **state)
{
    (void)state;
    support_random_t random = {3};
    start();
    for (int step = 0; step < 100000; step++) {
        mpp_id_t id = 1 + support_below(&random, MAX_IDS);
        if (keys[id] != 0) {
            assert_int_equal(find(hashes[id], keys[id]), id);
            drop(id);
        } else {
            /* few home slots: long runs */
            insert(id, support_chance(&random, 1, 2) ? support_below(&random, 300) << 20 : (uint32_t)support_next(&random));
        }
        if (step % 5000 == 0) check(MAX_IDS);
    }
    check(MAX_IDS);
    finish();
}

/* Runs that go around the end, in a table that shrinks. */
static void
test_trim_around_the_end(void **state)
{
    (void)state;
    support_random_t random = {11};
    for (int round = 0; round < 2000; round++) {
        start();
        for (mpp_id_t id = 1; id <= 100; id++) {
            bool at_the_end = support_chance(&random, 1, 2);
            insert(id, at_the_end ? UINT32_MAX - support_below(&random, 64) : (uint32_t)support_next(&random));
        }
        for (mpp_id_t id = 1; id <= 100; id++) {
            if (!support_chance(&random, 1, 10)) drop(id);
        }
        mpp_index_trim(&table);
        check(100);
        finish();
    }
}

static void
test_clear(void **state)
{
    (void)state;
    start();
    for (mpp_id_t id = 1; id <= 100; id++) insert(id, id * 3);
    uint32_t n_slots = table.n_slots;
    mpp_index_clear(&table);
    memset(keys, 0, sizeof(keys));
    check(100);
    assert_int_equal(table.n_slots, n_slots);
    insert(5, 15);
    check(100);
    finish();
}

static void
test_trim(void **state)
{
    (void)state;
    start();
    for (mpp_id_t id = 1; id <= 1000; id++) insert(id, (uint32_t)mpp_hash_mix(id));
    uint32_t n_slots = table.n_slots, n = n_slots / 8;
    for (mpp_id_t id = n + 1; id <= 1000; id++) drop(id);
    mpp_index_trim(&table);
    assert_int_equal(table.n_slots, n_slots); /* just not under an eighth */
    drop(n);

    /* It takes none to give some back. */
    budget.fail_from = budget.n_requests + 1;
    budget.fail_count = 1000;
    mpp_index_trim(&table);
    assert_int_equal(table.n_slots, n_slots / 2);
    check(1000);
    for (mpp_id_t id = 1; id < n; id++) drop(id);
    mpp_index_trim(&table);
    assert_true(table.n_slots <= 16);
    check(1000);
    budget.fail_count = 0;
    insert(1, UINT32_MAX);
    check(1000);
    finish();
}

static void
test_largest(void **state)
{
    (void)state;
    mpp_index_t largest = {.n_slots = UINT32_C(1) << 31, .n_used = UINT32_C(3) << 29};
    assert_int_equal(mpp_index_reserve(&largest), MPP_FULL);
    largest.n_used--;
    assert_int_equal(mpp_index_reserve(&largest), MPP_OK);
}

static void
refused_scenario(mpp_budget_t *failing)
{
    memset(keys, 0, sizeof(keys));
    mpp_index_init(&table, &failing->allocator);
    for (mpp_id_t id = 1; id <= 100; id++) {
        mpp_index_t before = table;
        if (support_refused(mpp_index_reserve(&table))) {
            assert_memory_equal(&table, &before, sizeof(table));
            check(id);
            continue;
        }
        keys[id] = UINT64_C(1000000) + id;
        hashes[id] = id % 20;
        mpp_index_insert(&table, hashes[id], id);
    }
    check(100);
    mpp_index_cleanup(&table);
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
        cmocka_unit_test(test_equal_hashes),
        cmocka_unit_test(test_miss_touches_no_element),
        cmocka_unit_test(test_removal_around_the_end),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_trim_around_the_end),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
