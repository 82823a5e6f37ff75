#include "support.h"

#include <string.h>

static void
test_status_texts(void **state)
{
    (void)state;
    assert_string_equal(mpp_status_text(MPP_OK), "ok");
    assert_string_equal(mpp_status_text(MPP_OUTPUT), "the output was refused");
    assert_string_equal(mpp_status_text((mpp_status_t)(MPP_OUTPUT + 1)), "unknown status");
}

static bool
all_zero(const void *block, size_t from, size_t to)
{
    const char *bytes = block;
    for (size_t i = from; i < to; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

static void
test_gained_bytes_are_zero(void **state)
{
    (void)state;
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    void *block = NULL;

    assert_int_equal(mpp_resize(&budget.allocator, &block, 0, 100), MPP_OK);
    assert_true(all_zero(block, 0, 100));
    memset(block, 'x', 100);
    assert_int_equal(mpp_resize(&budget.allocator, &block, 100, 40), MPP_OK);
    assert_int_equal(mpp_resize(&budget.allocator, &block, 40, 100), MPP_OK);
    assert_memory_equal(block, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 40);
    assert_true(all_zero(block, 40, 100));
    assert_int_equal(mpp_resize(&budget.allocator, &block, 100, 100), MPP_OK);
    assert_int_equal(budget.used_bytes, 100);
    assert_int_equal(budget.n_requests, 2);

    assert_int_equal(mpp_resize(&budget.allocator, &block, 100, 0), MPP_OK);
    assert_null(block);
    support_assert_no_leak(&budget);
}

static void
test_nothing_to_free(void **state)
{
    (void)state;
    mpp_budget_t budget;
    mpp_budget_init(&budget, 0);
    void *block = NULL;
    assert_int_equal(mpp_resize(&budget.allocator, &block, 0, 0), MPP_OK);
    assert_null(block);
    mpp_release(&budget.allocator, NULL, 0);
    assert_int_equal(budget.n_requests, 0);
}

static void
test_limit(void **state)
{
    (void)state;
    mpp_budget_t budget;
    mpp_budget_init(&budget, 100);
    void *first = NULL, *second = NULL;

    assert_int_equal(mpp_resize(&budget.allocator, &first, 0, 101), MPP_MEMORY_LIMIT);
    assert_null(first);
    assert_int_equal(mpp_resize(&budget.allocator, &first, 0, 60), MPP_OK);
    memset(first, 'x', 60);
    const void *before = first;
    assert_int_equal(mpp_resize(&budget.allocator, &second, 0, 41), MPP_MEMORY_LIMIT);
    assert_int_equal(mpp_resize(&budget.allocator, &second, 0, 40), MPP_OK);
    assert_int_equal(mpp_resize(&budget.allocator, &first, 60, 61), MPP_MEMORY_LIMIT);
    assert_ptr_equal(first, before);
    assert_int_equal(((char *)first)[59], 'x');
    assert_int_equal(budget.used_bytes, 100);

    /* A limit lowered below what is in use refuses all, whatever the difference wraps to. */
    budget.limit_bytes = 50;
    assert_int_equal(mpp_resize(&budget.allocator, &first, 60, 61), MPP_MEMORY_LIMIT);
    mpp_release(&budget.allocator, second, 40);
    assert_int_equal(budget.used_bytes, 60);
    assert_int_equal(budget.peak_bytes, 100);
    mpp_release(&budget.allocator, first, 60);
    support_assert_no_leak(&budget);
}

static void
test_refused_by_libc(void **state)
{
    (void)state;
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    volatile size_t too_much = SIZE_MAX / 2; /* not seen by the compiler, which warns of such sizes */
    void *block = NULL;
    assert_int_equal(mpp_resize(&budget.allocator, &block, 0, too_much), MPP_NO_MEMORY);
    assert_null(block);
    assert_int_equal(mpp_resize(&budget.allocator, &block, 0, 10), MPP_OK);
    assert_int_equal(mpp_resize(&budget.allocator, &block, 10, too_much), MPP_NO_MEMORY);
    assert_int_equal(budget.used_bytes, 10);
    assert_true(all_zero(block, 0, 10));
    mpp_release(&budget.allocator, block, 10);
    support_assert_no_leak(&budget);
}

static void
test_fail_window(void **state)
{
    (void)state;
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    budget.fail_from = 2;
    budget.fail_count = 2;
    void *block = NULL;
    assert_int_equal(mpp_resize(&budget.allocator, &block, 0, 1), MPP_OK);
    assert_int_equal(mpp_resize(&budget.allocator, &block, 1, 2), MPP_NO_MEMORY);
    assert_int_equal(mpp_resize(&budget.allocator, &block, 1, 2), MPP_NO_MEMORY);
    assert_int_equal(mpp_resize(&budget.allocator, &block, 1, 2), MPP_OK);
    mpp_release(&budget.allocator, block, 2);
    assert_int_equal(budget.n_requests, 4);
    support_assert_no_leak(&budget);
}

/* Computed apart from this code: these values may never change. */
static void
test_hash_is_stable(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        mpp_view_t view;
        uint64_t hash;
    } expected[] = {
        {0, {"", sizeof("") - 1}, UINT64_C(0x0000000000000000)},
        {0, {"a", sizeof("a") - 1}, UINT64_C(0x3798a5a37f9cea9f)},
        {0, {"12345678", sizeof("12345678") - 1}, UINT64_C(0x24e3977d042e4887)},
        {0, {"Array#each", sizeof("Array#each") - 1}, UINT64_C(0xdbf91ba1d9e58f49)},
        {1, {"Array#each", sizeof("Array#each") - 1}, UINT64_C(0xa4430531769b0164)},
        {0, {"lib/ruby/set.rb", sizeof("lib/ruby/set.rb") - 1}, UINT64_C(0x8622491683885d02)},
        {0,
         {"\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff\x80", sizeof("\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff\x80") - 1},
         UINT64_C(0xdc00611db2790afe)},
    };
    for (size_t i = 0; i < SUPPORT_LENGTH(expected); i++) {
        assert_true(mpp_hash_bytes(expected[i].seed, expected[i].view) == expected[i].hash);
    }
    assert_true(mpp_hash_bytes(7, (mpp_view_t){NULL, 0}) == mpp_hash_bytes(7, MPP_VIEW("")));
}

static void
test_hash_ignores_alignment(void **state)
{
    (void)state;
    const char text[] = "lib/a/path/of/some/length.rb";
    char copy[sizeof(text) + 8];
    uint64_t hash = mpp_hash_bytes(0, MPP_VIEW(text));
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(copy + shift, text, sizeof(text));
        assert_true(mpp_hash_bytes(0, (mpp_view_t){copy + shift, sizeof(text) - 1}) == hash);
    }
}

/* The zeros that fill the last word up are told from bytes. */
static void
test_hash_tells_lengths_apart(void **state)
{
    (void)state;
    static const char zeros[33];
    uint64_t seen[SUPPORT_LENGTH(zeros)];
    for (size_t n = 0; n < SUPPORT_LENGTH(zeros); n++) {
        seen[n] = mpp_hash_bytes(0, (mpp_view_t){zeros, n});
        for (size_t earlier = 0; earlier < n; earlier++) assert_true(seen[earlier] != seen[n]);
    }
}

/* Whichever input bit flips, every output bit flips about every other time. */
static void
test_hash_avalanche(void **state)
{
    (void)state;
    enum { BYTES = 13, ROUNDS = 256 };
    support_random_t random = {1};
    uint32_t flips[BYTES * 8][64] = {{0}};
    for (int round = 0; round < ROUNDS; round++) {
        char bytes[BYTES];
        for (int i = 0; i < BYTES; i++) bytes[i] = (char)support_below(&random, 256);
        uint64_t hash = mpp_hash_bytes(0, (mpp_view_t){bytes, BYTES});
        for (int bit = 0; bit < BYTES * 8; bit++) {
            bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
            uint64_t changed = hash ^ mpp_hash_bytes(0, (mpp_view_t){bytes, BYTES});
            bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
            for (int out = 0; out < 64; out++) flips[bit][out] += (uint32_t)(changed >> out & 1);
        }
    }
    for (int bit = 0; bit < BYTES * 8; bit++) {
        for (int out = 0; out < 64; out++) {
            /* 128 expected, standard deviation 8: six of them either way */
            assert_in_range(flips[bit][out], 80, 176);
        }
    }
}

static void
test_hash_pair_has_an_order(void **state)
{
    (void)state;
    assert_true(mpp_hash_pair(1, 2) != mpp_hash_pair(2, 1));
    assert_true(mpp_hash_pair(0, 1) != mpp_hash_pair(0, 0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_gained_bytes_are_zero),
        cmocka_unit_test(test_nothing_to_free),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_refused_by_libc),
        cmocka_unit_test(test_fail_window),
        cmocka_unit_test(test_hash_is_stable),
        cmocka_unit_test(test_hash_ignores_alignment),
        cmocka_unit_test(test_hash_tells_lengths_apart),
        cmocka_unit_test(test_hash_avalanche),
        cmocka_unit_test(test_hash_pair_has_an_order),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
