#include "support.h"

#include "live.h"

static mpp_budget_t budget;
static mpp_live_t live;
static mpp_id_t predecessor; /* as mpp_live_add gave it last */

static void
start(uint32_t max_records)
{
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(mpp_live_init(&live, &budget.allocator, max_records), MPP_OK);
}

static void
end(void)
{
    mpp_live_cleanup(&live);
    support_assert_no_leak(&budget);
}

/* Addresses as a heap of slots of 40 bytes in pages of 64 KiB has them; every third page belongs to it. */
static uintptr_t
heap_key(uint32_t n)
{
    enum { SLOTS = 1600 };
    return (uintptr_t)UINT64_C(0x7f3a00000000) + (uintptr_t)(n / SLOTS) * 3 * 65536 + 16 + (uintptr_t)(n % SLOTS) * 40;
}

static mpp_id_t
add(uintptr_t key)
{
    mpp_id_t id = 0;
    mpp_live_record_t record = {.key = key, .row = 1, .birth = 3};
    mpp_live_set_bytes(&record, key + 1);
    mpp_live_set_weight(&record, key + 2);
    assert_int_equal(mpp_live_add(&live, &record, &id, &predecessor), MPP_OK);
    assert_int_not_equal(id, 0);
    return id;
}

static void
assert_found(uintptr_t key, mpp_id_t id)
{
    assert_int_equal(mpp_live_find(&live, key), id);
    assert_int_equal(mpp_live_at(&live, id)->key, key);
}

static void
test_empty(void **state)
{
    (void)state;
    start(10);
    assert_int_equal(mpp_live_find(&live, 8), 0);
    assert_int_equal(mpp_live_next(&live, 0), 0);
    assert_int_equal(mpp_live_count(&live), 0);
    mpp_live_forget_keys(&live);
    mpp_live_trim(&live);
    end();
    live = (mpp_live_t){0};
    mpp_live_cleanup(&live);
}

static void
test_one(void **state)
{
    (void)state;
    mpp_live_record_t record = {.key = 4096,
                                .bytes = UINT64_C(1) << 40,
                                .row = 9,
                                .birth = 5,
                                .doublings = 2,
                                .born_sweeping = true};
    mpp_id_t id;
    start(10);
    assert_int_equal(mpp_live_add(&live, &record, &id, &predecessor), MPP_OK);
    assert_found(4096, id);
    record.serial = 1;
    assert_memory_equal(mpp_live_at(&live, id), &record, sizeof(record));
    assert_int_equal(mpp_live_find(&live, 4104), 0);
    assert_int_equal(mpp_live_next(&live, 0), id);
    assert_int_equal(mpp_live_next(&live, id), 0);

    mpp_live_remove(&live, id);
    assert_int_equal(mpp_live_find(&live, 4096), 0);
    assert_int_equal(mpp_live_next(&live, 0), 0);
    end();
}

static void
test_weight_with_thinning(void **state)
{
    (void)state;
    mpp_live_record_t record = {.doublings = 40};
    mpp_live_set_weight(&record, UINT64_C(1) << 52);
    assert_true(mpp_live_weight(&record) == (mpp_sum_t)1 << 92);
}

/* Digits beyond the 32nd go, and no digit before. */
static void
test_weights(void **state)
{
    (void)state;
    const mpp_weight_t exact[] = {0, 1, MPP_WEIGHT_ONE - 1, MPP_WEIGHT_ONE, MPP_WEIGHT_ONE * 100, UINT64_C(1) << 63,
                                  UINT64_C(0xffffffff) << 32};
    for (size_t i = 0; i < SUPPORT_LENGTH(exact); i++) {
        mpp_live_record_t record = {0};
        mpp_live_set_weight(&record, exact[i]);
        assert_true(mpp_live_weight(&record) == exact[i]);
    }
    mpp_live_record_t record = {0};
    mpp_live_set_weight(&record, MPP_WEIGHT_ONE * 100 + 127);
    assert_true(mpp_live_weight(&record) == MPP_WEIGHT_ONE * 100);
    mpp_live_set_weight(&record, UINT64_MAX);
    assert_true(mpp_live_weight(&record) == (mpp_sum_t)UINT32_MAX << 32);
}

static void
test_sizes(void **state)
{
    (void)state;
    const uint64_t sizes[] = {0, 40, MPP_LIVE_MAX_BYTES, MPP_LIVE_MAX_BYTES + 1, UINT64_MAX};
    for (size_t i = 0; i < SUPPORT_LENGTH(sizes); i++) {
        mpp_live_record_t record = {0};
        mpp_live_set_bytes(&record, sizes[i]);
        assert_int_equal(record.bytes, sizes[i] < MPP_LIVE_MAX_BYTES ? sizes[i] : MPP_LIVE_MAX_BYTES);
    }
}

static void
test_full(void **state)
{
    (void)state;
    mpp_live_record_t record = {.key = heap_key(3000), .row = 1};
    mpp_id_t id;
    start(3000);
    for (uint32_t n = 0; n < 3000; n++) add(heap_key(n));
    assert_int_equal(mpp_live_add(&live, &record, &id, &predecessor), MPP_FULL);
    assert_int_equal(mpp_live_count(&live), 3000);
    assert_int_equal(mpp_live_find(&live, record.key), 0);
    mpp_live_remove(&live, mpp_live_find(&live, heap_key(1500)));
    assert_int_equal(mpp_live_add(&live, &record, &id, &predecessor), MPP_OK);
    assert_found(record.key, id);
    end();
}

/* Against an array, with more and fewer records by turns. */
static void
test_any_order_of_births_and_deaths(void **state)
{
    (void)state;
    enum { N_KEYS = 6000 };
    static mpp_id_t ids[N_KEYS];
    support_random_t random = {11};
    uint32_t n_live = 0;
    start(N_KEYS);
    for (uint32_t i = 0; i < N_KEYS; i++) ids[i] = 0;
    for (uint32_t step = 0; step < 200000; step++) {
        uint32_t n = support_below(&random, N_KEYS);
        bool wants_alive = support_chance(&random, step / 20000 % 2 ? 1 : 9, 10);
        assert_int_equal(mpp_live_find(&live, heap_key(n)), ids[n]);
        if (wants_alive && !ids[n]) {
            ids[n] = add(heap_key(n));
            n_live++;
        } else if (!wants_alive && ids[n]) {
            mpp_live_remove(&live, ids[n]);
            ids[n] = 0;
            n_live--;
        }
        assert_int_equal(mpp_live_count(&live), n_live);
        if (step % 5000 == 0) mpp_live_trim(&live);
    }
    for (mpp_id_t id = 0; (id = mpp_live_next(&live, id)) != 0; n_live--) {
        assert_found(mpp_live_at(&live, id)->key, id);
    }
    assert_int_equal(n_live, 0);
    end();
}

/* Of so many random keys, some pairs have the same hash of 32 bits. */
static void
test_equal_hashes_are_told_apart(void **state)
{
    (void)state;
    support_random_t random = {1};
    start(200000);
    for (uint32_t n = 0; n < 200000; n++) add((uintptr_t)support_next(&random));
    for (mpp_id_t id = 0; (id = mpp_live_next(&live, id)) != 0;) assert_found(mpp_live_at(&live, id)->key, id);
    end();
}

static uintptr_t find_twin(uintptr_t key);

/* Of two records with the same key, the newer one tells of the older one, also past others with the same hash. */
static void
test_predecessors(void **state)
{
    (void)state;
    static mpp_id_t ids[3000];
    start(20000);
    for (uint32_t n = 0; n < 3000; n++) {
        ids[n] = add(heap_key(n));
        assert_int_equal(predecessor, 0);
    }
    mpp_id_t twin = add(find_twin(heap_key(7)));
    assert_int_equal(predecessor, 0);
    for (uint32_t n = 0; n < 3000; n++) {
        mpp_id_t id = add(heap_key(n));
        assert_int_equal(predecessor, ids[n]);
        mpp_live_remove(&live, predecessor);
        assert_found(heap_key(n), id);
    }
    assert_found(find_twin(heap_key(7)), twin);
    end();
}

/* A key whose hash is that of `key`: they differ by what takes the product by 2^32, folded back. */
static uintptr_t
find_twin(uintptr_t key)
{
    const uint64_t inverse = UINT64_C(0xf1de83e19937733d); /* of the multiplier, modulo 2^64 */
    uint64_t product = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    return (uintptr_t)((product ^ 1) * inverse);
}

/* Never false for a key that has a record; rarely true for others. */
static void
test_may_have(void **state)
{
    (void)state;
    uintptr_t key = heap_key(7), twin = find_twin(key);
    start(20000);
    assert_false(mpp_live_may_have(&live, key));
    mpp_id_t id = add(key);
    assert_int_not_equal(twin, key);
    assert_int_equal(mpp_live_hash(twin), mpp_live_hash(key));
    assert_true(mpp_live_may_have(&live, key));
    assert_true(mpp_live_may_have(&live, twin));
    assert_int_equal(mpp_live_find(&live, twin), 0);
    mpp_live_remove(&live, id);
    assert_false(mpp_live_may_have(&live, key));

    uint32_t n_mistaken = 0;
    for (uint32_t n = 0; n < 20000; n += 2) add(heap_key(n));
    for (uint32_t n = 0; n < 20000; n += 2) {
        assert_true(mpp_live_may_have(&live, heap_key(n)));
        n_mistaken += mpp_live_may_have(&live, heap_key(n + 1));
    }
    assert_true(n_mistaken < 600); /* of 10000; by chance 12 places that are 0.4 to 0.8 full, of 255 tags: 190 to 380 */
    mpp_live_forget_keys(&live);
    assert_false(mpp_live_may_have(&live, heap_key(0)));
    end();
}

static void
test_at_most_48_bytes_a_record(void **state)
{
    (void)state;
    double worst = 0;
    start(200000);
    for (uint32_t n = 1; n <= 200000; n++) {
        add(heap_key(n));
        if (n < 50000) continue;
        double each = (double)mpp_live_bytes(&live) / n;
        if (each > worst) worst = each;
        assert_true(each <= 48);
        assert_int_equal(mpp_live_bytes(&live), budget.used_bytes);
    }
    print_message("live record: at most %.1f bytes; peak while growing %.1f MiB\n", worst,
                  (double)budget.peak_bytes / (1 << 20));
    end();
}

/* Share of the records that found their bin full. At 4 / 5 full, chance gives a sixth. */
static double
share_of_passed(void)
{
    uint64_t n_passed = 0;
    for (uint32_t i = 0; i < live.bins.n_bins; i++) n_passed += live.bins.bins[i].n_passed;
    return (double)n_passed / live.bins.n_used;
}

static void
test_addresses_do_not_pile_up(void **state)
{
    (void)state;
    const struct {
        uintptr_t distance;
        uint32_t every;
    } cases[] = {{8, 1},   {32, 1},   {40, 1},    {64, 1}, {80, 1}, {160, 1}, {320, 1},
                 {640, 1}, {4096, 1}, {65536, 1}, {0, 1},  {0, 2},  {0, 101}, {0, 1000}};
    for (size_t i = 0; i < SUPPORT_LENGTH(cases); i++) {
        int n_full = 0;
        start(100000);
        for (uint32_t n = 0; n < 98304; n++) {
            add(cases[i].distance ? UINT64_C(0x7f0000001000) + n * cases[i].distance : heap_key(n * cases[i].every));
            if (n < 1000 || !mpp_bins_are_full(&live.bins)) continue;
            assert_true(share_of_passed() < 0.3);
            n_full++;
        }
        assert_true(n_full > 5);
        end();
    }
}

/* Each object moves to where its neighbour was. */
static uintptr_t
to_neighbour(void *context, uintptr_t key)
{
    uint32_t *n_calls = context;
    assert_int_not_equal(key, 0);
    ++*n_calls;
    return key == heap_key(2999) ? heap_key(0) : key + 40;
}

static void
test_rekey(void **state)
{
    (void)state;
    static mpp_id_t ids[1600];
    uint32_t n_calls = 0;
    start(3000);
    for (uint32_t n = 0; n < 1600; n++) ids[n] = add(heap_key(n));
    mpp_live_remove(&live, ids[70]);

    uint64_t n_requests = budget.n_requests;
    mpp_live_rekey(&live, to_neighbour, &n_calls);
    assert_int_equal(budget.n_requests, n_requests);
    assert_int_equal(n_calls, 1599);
    assert_int_equal(mpp_live_count(&live), 1599);
    for (uint32_t n = 0; n < 1600; n++) {
        if (n != 70) assert_found(heap_key(n) + 40, ids[n]);
    }
    assert_int_equal(mpp_live_find(&live, heap_key(0)), 0);
    assert_int_equal(mpp_live_find(&live, heap_key(71)), 0);
    mpp_live_remove(&live, ids[5]);
    assert_int_equal(mpp_live_find(&live, heap_key(6)), 0);
    end();
}

static void
test_forget(void **state)
{
    (void)state;
    start(3000);
    assert_int_equal(mpp_live_forget(&live, 8), 0);
    for (uint32_t n = 0; n < 1000; n++) add(heap_key(n));
    for (uint32_t n = 0; n < 1000; n += 2) {
        mpp_id_t id = mpp_live_find(&live, heap_key(n));
        assert_int_equal(mpp_live_forget(&live, heap_key(n)), id);
        assert_int_equal(mpp_live_forget(&live, heap_key(n)), 0);
        assert_int_equal(mpp_live_at(&live, id)->key, 0);
        mpp_live_remove(&live, id);
    }
    for (uint32_t n = 0; n < 1000; n++) assert_int_equal(mpp_live_find(&live, heap_key(n)) != 0, n % 2);
    assert_int_equal(mpp_live_count(&live), 500);
    end();
}

static void
test_forget_keys(void **state)
{
    (void)state;
    uint32_t n_calls = 0;
    start(3000);
    for (uint32_t n = 0; n < 1000; n++) add(heap_key(n));
    mpp_live_forget_keys(&live);
    assert_int_equal(mpp_live_count(&live), 1000);
    for (uint32_t n = 0; n < 1000; n++) assert_int_equal(mpp_live_find(&live, heap_key(n)), 0);
    mpp_live_rekey(&live, to_neighbour, &n_calls);
    assert_int_equal(n_calls, 0);

    mpp_id_t id = mpp_live_next(&live, 0);
    assert_int_equal(mpp_live_at(&live, id)->key, 0);
    assert_int_equal(mpp_live_at(&live, id)->row, 1);
    mpp_live_remove(&live, id);
    assert_int_equal(mpp_live_count(&live), 999);
    mpp_id_t again = add(heap_key(7));
    assert_found(heap_key(7), again);
    end();
}

static void
test_next_goes_on_while_records_leave(void **state)
{
    (void)state;
    uint32_t n_visited = 0;
    start(10000);
    for (uint32_t n = 0; n < 10000; n++) add(heap_key(n));
    for (mpp_id_t id = 0; (id = mpp_live_next(&live, id)) != 0; n_visited++) mpp_live_remove(&live, id);
    assert_int_equal(n_visited, 10000);
    assert_int_equal(mpp_live_count(&live), 0);
    end();
}

static void
test_trim_gives_memory_back(void **state)
{
    (void)state;
    start(100000);
    for (uint32_t n = 0; n < 100000; n++) add(heap_key(n));
    size_t large = mpp_live_bytes(&live);
    for (uint32_t n = 100; n < 100000; n++) mpp_live_remove(&live, mpp_live_find(&live, heap_key(n)));
    mpp_live_trim(&live);
    assert_true(mpp_live_bytes(&live) < large / 20);
    for (uint32_t n = 0; n < 100; n++) assert_found(heap_key(n), mpp_live_find(&live, heap_key(n)));
    end();
}

static void
test_compaction(void **state)
{
    (void)state;
    start(100000);
    for (uint32_t n = 0; n < 10000; n++) add(heap_key(n));
    for (uint32_t n = 0; n < 10000; n++) {
        if (n % 5) mpp_live_remove(&live, mpp_live_find(&live, heap_key(n)));
    }
    uint64_t n_requests = budget.n_requests;
    mpp_live_compact(&live);
    assert_int_equal(budget.n_requests, n_requests);
    assert_int_equal(live.records.n_chunks_allocated, 2);
    assert_int_equal(mpp_live_bytes(&live), budget.used_bytes);
    for (uint32_t n = 0; n < 10000; n++) {
        mpp_id_t id = mpp_live_find(&live, heap_key(n));
        assert_int_equal(id != 0, n % 5 == 0);
        if (id) assert_int_equal(mpp_live_at(&live, id)->bytes, heap_key(n) + 1);
    }
    mpp_live_forget_keys(&live);
    mpp_id_t next = 0;
    for (int i = 0; i < 1200; i++) mpp_live_remove(&live, next = mpp_live_next(&live, next));
    mpp_live_compact(&live);
    assert_int_equal(live.records.n_chunks_allocated, 1);
    assert_int_equal(mpp_live_count(&live), 800);
    mpp_live_trim(&live);
    end();
}

static void
test_a_record_without_a_key_takes_no_slot(void **state)
{
    (void)state;
    mpp_live_record_t record = {.bytes = 5, .row = 1};
    mpp_id_t id;
    start(10);
    for (int i = 0; i < 3; i++) assert_int_equal(mpp_live_add(&live, &record, &id, &predecessor), MPP_OK);
    assert_int_equal(mpp_bins_bytes(&live.bins), 0);
    assert_int_equal(mpp_live_find(&live, 0), 0);
    assert_int_equal(mpp_live_next(&live, 2), 3);
    mpp_live_remove(&live, 2);
    mpp_live_forget_keys(&live);
    assert_int_equal(mpp_live_count(&live), 2);
    end();
}

static void
test_a_reused_id_has_another_serial(void **state)
{
    (void)state;
    start(3000);
    mpp_id_t id = add(heap_key(0));
    uint32_t serial = mpp_live_at(&live, id)->serial;
    assert_true(mpp_live_has(&live, id, serial));
    mpp_live_remove(&live, id);
    assert_false(mpp_live_has(&live, id, serial));
    assert_int_equal(add(heap_key(1)), id);
    assert_false(mpp_live_has(&live, id, serial));
    assert_true(mpp_live_has(&live, id, serial + 1));

    for (uint32_t n = 2; n < 3000; n++) add(heap_key(n));
    for (uint32_t n = 1; n < 3000; n++) mpp_live_remove(&live, mpp_live_find(&live, heap_key(n)));
    for (uint32_t n = 1; n <= 3000; n++) assert_false(mpp_live_has(&live, n, n)); /* also where no chunk is left */
    end();
}

/* Over several growths of the index and two chunks of records. */
static void
add_under_refusals(mpp_budget_t *refusing)
{
    mpp_live_t table;
    uint32_t n_added = 0;
    if (support_refused(mpp_live_init(&table, &refusing->allocator, 3000))) {
        mpp_live_cleanup(&table);
        return;
    }
    for (uint32_t n = 0; n < 1500; n++) {
        mpp_live_record_t record = {.key = heap_key(n), .row = 1};
        mpp_id_t id;
        bool refused = support_refused(mpp_live_add(&table, &record, &id, &predecessor));
        n_added += !refused;
        assert_int_equal(mpp_live_count(&table), n_added);
        assert_int_equal(mpp_live_find(&table, record.key) != 0, !refused);
    }
    for (mpp_id_t id = 0; (id = mpp_live_next(&table, id)) != 0; n_added--) {
        assert_int_equal(mpp_live_find(&table, mpp_live_at(&table, id)->key), id);
    }
    assert_int_equal(n_added, 0);
    mpp_live_cleanup(&table);
}

static void
test_every_allocation_failing(void **state)
{
    (void)state;
    support_sweep_failures(add_under_refusals);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_weight_with_thinning),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_any_order_of_births_and_deaths),
        cmocka_unit_test(test_equal_hashes_are_told_apart),
        cmocka_unit_test(test_predecessors),
        cmocka_unit_test(test_may_have),
        cmocka_unit_test(test_at_most_48_bytes_a_record),
        cmocka_unit_test(test_addresses_do_not_pile_up),
        cmocka_unit_test(test_rekey),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_forget_keys),
        cmocka_unit_test(test_next_goes_on_while_records_leave),
        cmocka_unit_test(test_trim_gives_memory_back),
        cmocka_unit_test(test_compaction),
        cmocka_unit_test(test_a_record_without_a_key_takes_no_slot),
        cmocka_unit_test(test_a_reused_id_has_another_serial),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
