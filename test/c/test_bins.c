#include "support.h"

#include "bins.h"

/* The model: id i has the contents keys[i] and is in the bins by hashes[i], or keys[i] is 0. */
enum { MAX_IDS = 3000 };
static uint64_t keys[MAX_IDS + 1];
static uint32_t hashes[MAX_IDS + 1];

static mpp_budget_t budget;
static mpp_bins_t bins;

static void
start(uint32_t n_ids)
{
    memset(keys, 0, sizeof(keys));
    mpp_budget_init(&budget, SIZE_MAX);
    mpp_bins_init(&bins, &budget.allocator);
    assert_int_equal(mpp_bins_resize(&bins, n_ids), MPP_OK);
    assert_int_equal((uintptr_t)bins.bins % 64, 0);
}

static void
finish(void)
{
    assert_int_equal(mpp_bins_bytes(&bins), budget.used_bytes);
    mpp_bins_cleanup(&bins);
    assert_int_equal(mpp_bins_bytes(&bins), 0);
    support_assert_no_leak(&budget);
}

static bool
has_key(const void *context, mpp_id_t id)
{
    assert_in_range(id, 1, MAX_IDS);
    return keys[id] == *(const uint64_t *)context;
}

static mpp_id_t
find(uint32_t hash, uint64_t key)
{
    return mpp_bins_find(&bins, hash, has_key, &key);
}

static void
insert(mpp_id_t id, uint32_t hash)
{
    bool known = mpp_bins_may_have(&bins, hash);
    keys[id] = UINT64_C(1000000) + id;
    hashes[id] = hash;
    bool others = mpp_bins_insert(&bins, hash, id);
    assert_true(others || !known);
}

static void
drop(mpp_id_t id)
{
    mpp_bins_remove(&bins, hashes[id], id);
    keys[id] = 0;
}

/* Every id of the model is found, and nothing else is in the bins. */
static void
check(mpp_id_t max_id)
{
    uint32_t n = 0, n_places = 0;
    for (mpp_id_t id = 1; id <= max_id; id++) {
        if (keys[id] == 0) {
            assert_int_equal(find(hashes[id], UINT64_C(1000000) + id), 0);
        } else {
            assert_int_equal(find(hashes[id], keys[id]), id);
            assert_true(mpp_bins_may_have(&bins, hashes[id]));
            n++;
        }
    }
    for (uint32_t i = 0; i < bins.n_bins * MPP_BIN_PLACES; i++) {
        const mpp_bin_t *bin = &bins.bins[i / MPP_BIN_PLACES];
        assert_int_equal(bin->tags[i % MPP_BIN_PLACES] != 0, bin->ids[i % MPP_BIN_PLACES] != 0);
        n_places += bin->ids[i % MPP_BIN_PLACES] != 0;
    }
    assert_int_equal(bins.n_used, n);
    assert_int_equal(n_places, n);
}

static uint64_t
n_passed(void)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < bins.n_bins; i++) n += bins.bins[i].n_passed;
    return n;
}

static void
test_without_any(void **state)
{
    (void)state;
    uint64_t key = 1;
    mpp_bins_t zeroed = {0};
    mpp_budget_init(&budget, SIZE_MAX);
    mpp_bins_init(&bins, &budget.allocator);
    assert_true(mpp_bins_are_full(&bins));
    assert_false(mpp_bins_are_sparse(&bins));
    assert_false(mpp_bins_may_have(&bins, 0));
    assert_int_equal(find(1, 1), 0);
    assert_int_equal(mpp_bins_take(&bins, 1, has_key, &key), 0);
    mpp_bins_prefetch(&bins, 1);
    mpp_bins_clear(&bins);
    assert_int_equal(budget.n_requests, 0);
    mpp_bins_cleanup(&bins);
    mpp_bins_cleanup(&zeroed);
}

static void
test_sizes(void **state)
{
    (void)state;
    const struct {
        uint32_t n_ids, n_bins;
    } cases[] = {{0, 2}, {1, 2}, {19, 2}, {20, 4}, {38, 4}, {39, 8}, {1000, 128}};
    for (size_t i = 0; i < SUPPORT_LENGTH(cases); i++) {
        start(cases[i].n_ids);
        assert_int_equal(bins.n_bins, cases[i].n_bins);
        finish();
    }
    mpp_budget_init(&budget, SIZE_MAX);
    mpp_bins_init(&bins, &budget.allocator);
    assert_int_equal(mpp_bins_resize(&bins, UINT32_MAX), MPP_FULL);
    assert_int_equal(budget.n_requests, 0);
}

static void
test_full_and_sparse(void **state)
{
    (void)state;
    start(100);
    assert_int_equal(bins.n_bins, 16);
    for (mpp_id_t id = 1; id <= 153; id++) {
        assert_false(mpp_bins_are_full(&bins));
        assert_int_equal(mpp_bins_are_sparse(&bins), id - 1 < 19);
        insert(id, (uint32_t)mpp_hash_mix(id));
    }
    assert_true(mpp_bins_are_full(&bins));
    check(153);
    finish();
}

/* More than a bin holds: further bins, around the end of the table, and back. */
static void
test_one_home_for_all(void **state)
{
    (void)state;
    start(100);
    for (mpp_id_t id = 1; id <= 150; id++) insert(id, 15 | id << 24);
    check(150);
    assert_int_equal(bins.bins[15].n_passed, 138);
    assert_int_equal(bins.bins[0].n_passed, 126);
    for (mpp_id_t id = 1; id <= 150; id += 2) drop(id);
    check(150);
    for (mpp_id_t id = 1; id <= 150; id += 2) insert(id, 15 | id << 24);
    check(150);
    for (mpp_id_t id = 150; id >= 1; id--) drop(id);
    assert_int_equal(n_passed(), 0);
    finish();
}

/* All hashes equal: told apart by `equal`. */
static void
test_equal_hashes(void **state)
{
    (void)state;
    start(100);
    for (mpp_id_t id = 1; id <= 100; id++) insert(id, 0x42000007);
    check(100);
    for (mpp_id_t id = 1; id <= 100; id += 3) drop(id);
    check(100);
    finish();
}

/* A count that has reached its end stays, and nothing is lost by it. */
static void
test_a_count_beyond_its_range(void **state)
{
    (void)state;
    start(1000);
    for (mpp_id_t id = 1; id <= 400; id++) insert(id, 3);
    check(400);
    assert_int_equal(bins.bins[3].n_passed, 255);
    for (mpp_id_t id = 1; id <= 399; id++) drop(id);
    check(400);
    assert_int_equal(bins.bins[3].n_passed, 255);
    drop(400);
    assert_true(mpp_bins_insert(&bins, 3, 1)); /* it cannot tell any more */
    mpp_bins_remove(&bins, 3, 1);
    mpp_bins_clear(&bins);
    assert_int_equal(n_passed(), 0);
    finish();
}

static void
test_take_and_rename(void **state)
{
    (void)state;
    start(100);
    for (mpp_id_t id = 1; id <= 50; id++) insert(id, id % 3);
    for (mpp_id_t id = 1; id <= 50; id += 2) {
        assert_int_equal(mpp_bins_take(&bins, hashes[id], has_key, &keys[id]), id);
        assert_int_equal(mpp_bins_take(&bins, hashes[id], has_key, &keys[id]), 0);
        keys[id] = 0;
    }
    check(50);
    for (mpp_id_t id = 2; id <= 50; id += 2) {
        mpp_bins_rename(&bins, hashes[id], id, id - 1);
        keys[id - 1] = UINT64_C(1000000) + id - 1;
        hashes[id - 1] = hashes[id];
        keys[id] = 0;
    }
    check(50);
    finish();
}

/* Tags next to each other in value and place, where comparing eight at once may see one too many. */
static void
test_tags_that_differ_by_one(void **state)
{
    (void)state;
    support_random_t random = {5};
    for (int round = 0; round < 2000; round++) {
        start(19);
        uint32_t n = 1 + support_below(&random, 12);
        for (mpp_id_t id = 1; id <= n; id++) insert(id, support_below(&random, 4) << 24);
        for (mpp_id_t id = 1; id <= n; id++) {
            if (support_chance(&random, 1, 2)) drop(id);
        }
        check(n);
        for (mpp_id_t id = 1; id <= n; id++) {
            if (keys[id] == 0) insert(id, support_below(&random, 4) << 24);
        }
        check(n);
        finish();
    }
}

static void
test_random_against_model(void **state)
{
    (void)state;
    support_random_t random = {3};
    start(MAX_IDS);
    for (int step = 0; step < 100000; step++) {
        mpp_id_t id = 1 + support_below(&random, MAX_IDS);
        if (keys[id] != 0) {
            assert_int_equal(find(hashes[id], keys[id]), id);
            drop(id);
        } else {
            /* few homes: bins that overflow */
            insert(id, support_chance(&random, 1, 2) ? support_below(&random, 30) : (uint32_t)support_next(&random));
        }
        if (step % 5000 == 0) check(MAX_IDS);
    }
    check(MAX_IDS);
    for (mpp_id_t id = 1; id <= MAX_IDS; id++) {
        if (keys[id]) drop(id);
    }
    check(MAX_IDS);
    finish();
}

static void
test_refused(void **state)
{
    (void)state;
    mpp_budget_init(&budget, 100);
    mpp_bins_init(&bins, &budget.allocator);
    assert_int_equal(mpp_bins_resize(&bins, 1), MPP_MEMORY_LIMIT);
    assert_int_equal(mpp_bins_bytes(&bins), 0);
    support_assert_no_leak(&budget);
}

/* Both ways, in place: what it holds at its peak is the larger of the two. */
static void
test_resizing(void **state)
{
    (void)state;
    start(1);
    for (uint32_t n_ids = 19; n_ids <= MAX_IDS; n_ids *= 2) {
        assert_int_equal(mpp_bins_resize(&bins, n_ids), MPP_OK);
        assert_int_equal((uintptr_t)bins.bins % 64, 0);
        assert_int_equal(bins.n_used, 0);
        assert_int_equal(budget.peak_bytes, mpp_bins_bytes(&bins));
        for (uint32_t id = 1; id <= n_ids; id++) (void)mpp_bins_insert(&bins, id, id);
        size_t bytes = mpp_bins_bytes(&bins);
        budget.limit_bytes = budget.used_bytes;
        assert_int_equal(mpp_bins_resize(&bins, 2 * n_ids), MPP_MEMORY_LIMIT);
        assert_int_equal(bins.n_used, n_ids);
        assert_int_equal(mpp_bins_bytes(&bins), bytes);
        budget.limit_bytes = SIZE_MAX;
    }
    assert_int_equal(mpp_bins_resize(&bins, 1), MPP_OK);
    assert_false(mpp_bins_may_have(&bins, 1));
    assert_int_equal(budget.used_bytes, mpp_bins_bytes(&bins));
    finish();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_any),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_full_and_sparse),
        cmocka_unit_test(test_one_home_for_all),
        cmocka_unit_test(test_equal_hashes),
        cmocka_unit_test(test_a_count_beyond_its_range),
        cmocka_unit_test(test_take_and_rename),
        cmocka_unit_test(test_tags_that_differ_by_one),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_resizing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
