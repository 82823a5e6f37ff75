#include "support.h"

#include "strtab.h"

#include <stdio.h>
#include <string.h>

static mpp_budget_t budget;
static mpp_strtab_t table;

static void
start(uint32_t max_strings)
{
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(mpp_strtab_init(&table, &budget.allocator, max_strings), MPP_OK);
}

static void
finish(void)
{
    assert_int_equal(mpp_strtab_bytes(&table), budget.used_bytes);
    mpp_strtab_cleanup(&table);
    support_assert_no_leak(&budget);
}

static mpp_id_t
intern(mpp_view_t view)
{
    mpp_id_t id = 0;
    assert_int_equal(mpp_strtab_intern(&table, view, &id), MPP_OK);
    assert_int_not_equal(id, 0);
    mpp_view_t stored = mpp_strtab_view(&table, id);
    assert_int_equal(stored.length, view.length);
    assert_non_null(stored.bytes);
    if (view.length != 0) assert_memory_equal(stored.bytes, view.bytes, view.length);
    return id;
}

/* A view into a buffer that the next call overwrites: the table must have copied it. */
static mpp_view_t
numbered(uint32_t number)
{
    static char buffer[64];
    int length =
        snprintf(buffer, sizeof(buffer), "Namespace%u::Class#method_%u", (unsigned)(number % 7), (unsigned)number);
    return (mpp_view_t){buffer, (size_t)length};
}

static void
test_zeroed(void **state)
{
    (void)state;
    mpp_strtab_t zeroed = {0};
    mpp_strtab_cleanup(&zeroed);
}

static void
test_id_0_is_the_empty_view(void **state)
{
    (void)state;
    start(10);
    assert_int_equal(mpp_strtab_view(&table, 0).length, 0);
    assert_non_null(mpp_strtab_view(&table, 0).bytes);
    mpp_strtab_retain(&table, 0);
    mpp_strtab_release(&table, 0);
    finish();
}

static void
test_equal_bytes_equal_id(void **state)
{
    (void)state;
    start(10);
    mpp_id_t each = intern(MPP_VIEW("Array#each"));
    assert_int_equal(intern(MPP_VIEW("Array#each")), each);
    assert_int_not_equal(intern(MPP_VIEW("Array#eacH")), each);
    assert_int_not_equal(intern(MPP_VIEW("Array#eac")), each);
    assert_int_not_equal(intern(MPP_VIEW("Array#each\0")), each);
    assert_int_not_equal(intern(MPP_VIEW("Array\0each")), each);
    assert_int_equal(mpp_strtab_count(&table), 5);
    finish();
}

/* These collide in the 32 bits that the index keeps of the hash, as one pair among some 80,000 names does. */
static void
test_colliding_hashes(void **state)
{
    (void)state;
    static const mpp_view_t pairs[][2] = {
        {{"Klass209011#call", 16}, {"Klass228218#call", 16}},
        {{"Array#each", 10}, {"Array#eachmr1pacc", 17}},
    };
    start(10);
    for (size_t i = 0; i < SUPPORT_LENGTH(pairs); i++) {
        uint64_t left = mpp_hash_bytes(0, pairs[i][0]), right = mpp_hash_bytes(0, pairs[i][1]);
        assert_int_equal((uint32_t)left, (uint32_t)right);
        mpp_id_t second = intern(pairs[i][1]);
        mpp_id_t first = intern(pairs[i][0]);
        assert_int_not_equal(first, second);
        mpp_strtab_release(&table, second);
        assert_int_equal(intern(pairs[i][0]), first);
        assert_int_not_equal(intern(pairs[i][1]), first);
    }
    finish();
}

static void
test_empty_string(void **state)
{
    (void)state;
    start(10);
    mpp_id_t empty = intern(MPP_VIEW(""));
    assert_int_equal(intern((mpp_view_t){NULL, 0}), empty);
    assert_int_not_equal(intern(MPP_VIEW("\0")), empty);
    mpp_strtab_release(&table, empty);
    mpp_strtab_release(&table, empty);
    assert_int_equal(mpp_strtab_count(&table), 1);
    finish();
}

static void
test_last_release_frees(void **state)
{
    (void)state;
    start(10);
    mpp_id_t kept = intern(MPP_VIEW("kept"));
    size_t bytes = mpp_strtab_bytes(&table);

    mpp_id_t id = intern(MPP_VIEW("short-lived"));
    assert_int_equal(intern(MPP_VIEW("short-lived")), id);
    mpp_strtab_retain(&table, id);
    for (int references = 3; references > 0; references--) {
        assert_int_equal(mpp_strtab_count(&table), 2);
        assert_int_equal(mpp_strtab_bytes(&table), bytes + sizeof("short-lived"));
        mpp_strtab_release(&table, id);
    }
    assert_int_equal(mpp_strtab_count(&table), 1);
    assert_int_equal(mpp_strtab_bytes(&table), bytes);

    /* Its id may name another string now. */
    assert_int_equal(intern(MPP_VIEW("another")), id);
    assert_int_equal(intern(MPP_VIEW("kept")), kept);
    finish();
}

static void
test_too_long(void **state)
{
    (void)state;
    if (SIZE_MAX == UINT32_MAX) skip();
    start(10);
    mpp_id_t id = 77;
    mpp_view_t view = {"never read", (size_t)UINT32_MAX + (SIZE_MAX > UINT32_MAX)};
    assert_int_equal(mpp_strtab_intern(&table, view, &id), MPP_FULL);
    assert_int_equal(id, 77);
    finish();
}

static void
test_full(void **state)
{
    (void)state;
    start(1025);
    mpp_id_t first = intern(numbered(0));
    for (uint32_t i = 1; i < 1025; i++) (void)intern(numbered(i));
    mpp_id_t id = 77;
    assert_int_equal(mpp_strtab_intern(&table, MPP_VIEW("one more"), &id), MPP_FULL);
    assert_int_equal(id, 77);
    assert_int_equal(intern(numbered(0)), first);
    mpp_strtab_release(&table, first);
    mpp_strtab_release(&table, first);
    assert_int_equal(intern(MPP_VIEW("one more")), first);
    finish();
}

static void
test_limit_of_memory(void **state)
{
    (void)state;
    start(10);
    (void)intern(MPP_VIEW("first"));
    budget.limit_bytes = budget.used_bytes + 10;
    size_t bytes = budget.used_bytes;
    mpp_id_t id = 77;
    assert_int_equal(mpp_strtab_intern(&table, MPP_VIEW("ten bytes!"), &id), MPP_MEMORY_LIMIT);
    assert_int_equal(id, 77);
    assert_int_equal(budget.used_bytes, bytes);
    assert_int_equal(mpp_strtab_count(&table), 1);
    (void)intern(MPP_VIEW("nine byte"));
    finish();
}

static void
test_bytes_stand_still(void **state)
{
    (void)state;
    start(10000);
    mpp_id_t id = intern(MPP_VIEW("stands still"));
    mpp_view_t view = mpp_strtab_view(&table, id);
    for (uint32_t i = 0; i < 5000; i++) (void)intern(numbered(i));
    for (uint32_t i = 0; i < 5000; i++) {
        mpp_id_t known = intern(numbered(i));
        mpp_strtab_release(&table, known);
        mpp_strtab_release(&table, known);
    }
    mpp_strtab_trim(&table);
    assert_ptr_equal(mpp_strtab_view(&table, id).bytes, view.bytes);
    assert_memory_equal(view.bytes, "stands still", view.length);
    assert_int_equal(mpp_strtab_count(&table), 1);
    finish();
}

static void
test_trim_gives_back(void **state)
{
    (void)state;
    start(10000);
    mpp_id_t ids[5000];
    for (uint32_t i = 0; i < 5000; i++) ids[i] = intern(numbered(i));
    for (uint32_t i = 1; i < 5000; i++) mpp_strtab_release(&table, ids[i]);
    size_t before = mpp_strtab_bytes(&table);
    mpp_strtab_trim(&table);
    assert_true(mpp_strtab_bytes(&table) < before);
    assert_int_equal(intern(numbered(0)), ids[0]);
    finish();
}

static void
test_random_against_model(void **state)
{
    (void)state;
    enum { MAX = 2000 };
    static mpp_id_t ids[MAX];
    static uint32_t references[MAX];
    support_random_t random = {17};
    uint32_t n = 0;
    start(MAX);
    for (int step = 0; step < 100000; step++) {
        uint32_t i = support_below(&random, MAX);
        switch (support_below(&random, 4)) {
        case 0: {
            mpp_id_t id = intern(numbered(i));
            if (references[i] == 0) n++;
            if (references[i] > 0) assert_int_equal(id, ids[i]);
            ids[i] = id;
            references[i]++;
            break;
        }
        case 1:
            if (references[i] > 0) {
                mpp_strtab_retain(&table, ids[i]);
                references[i]++;
            }
            break;
        default:
            if (references[i] > 0) {
                mpp_strtab_release(&table, ids[i]);
                if (--references[i] == 0) n--;
            }
        }
        assert_int_equal(mpp_strtab_count(&table), n);
    }
    for (uint32_t i = 0; i < MAX; i++) {
        if (references[i] == 0) continue;
        mpp_view_t expected = numbered(i);
        mpp_view_t view = mpp_strtab_view(&table, ids[i]);
        assert_int_equal(view.length, expected.length);
        assert_memory_equal(view.bytes, expected.bytes, view.length);
        while (references[i]-- > 0) mpp_strtab_release(&table, ids[i]);
    }
    assert_int_equal(mpp_strtab_count(&table), 0);
    assert_int_equal(table.string_bytes, 0);
    finish();
}

static void
refused_scenario(mpp_budget_t *failing)
{
    if (support_refused(mpp_strtab_init(&table, &failing->allocator, 100))) return;
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t n = mpp_strtab_count(&table);
        size_t string_bytes = table.string_bytes;
        mpp_id_t id = 77;
        bool refused = support_refused(mpp_strtab_intern(&table, numbered(i), &id));
        if (refused) assert_int_equal(id, 77);
        assert_int_equal(mpp_strtab_count(&table), n + !refused);
        assert_int_equal(table.string_bytes, string_bytes + (refused ? 0 : numbered(i).length + 1));
        assert_int_equal(table.index.n_used, table.slab.n_used);
        assert_int_equal(mpp_strtab_bytes(&table), failing->used_bytes);
        if (i % 3 == 0 && !refused) mpp_strtab_release(&table, id);
    }
    mpp_strtab_cleanup(&table);
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
        cmocka_unit_test(test_zeroed),
        cmocka_unit_test(test_id_0_is_the_empty_view),
        cmocka_unit_test(test_equal_bytes_equal_id),
        cmocka_unit_test(test_colliding_hashes),
        cmocka_unit_test(test_empty_string),
        cmocka_unit_test(test_last_release_frees),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_limit_of_memory),
        cmocka_unit_test(test_bytes_stand_still),
        cmocka_unit_test(test_trim_gives_back),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("strtab", tests, NULL, NULL);
}
