#include "support.h"

#include "rows.h"

#include <stdio.h>
#include <string.h>

static mpp_budget_t budget;
static mpp_strtab_t strings;
static mpp_frames_t frames;
static mpp_rows_t rows;

static void
start(uint32_t max_rows)
{
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(mpp_strtab_init(&strings, &budget.allocator, 300000), MPP_OK);
    assert_int_equal(mpp_frames_init(&frames, &budget.allocator, &strings, 300000), MPP_OK);
    assert_int_equal(mpp_rows_init(&rows, &budget.allocator, &frames, &strings, max_rows), MPP_OK);
}

static void
end(void)
{
    mpp_rows_cleanup(&rows);
    mpp_frames_cleanup(&frames);
    mpp_strtab_cleanup(&strings);
    support_assert_no_leak(&budget);
}

/* A stack of one frame, with a reference. */
static mpp_id_t
make_stack(int32_t line)
{
    mpp_id_t function, stack;
    assert_int_equal(mpp_frames_function(&frames, MPP_VIEW("f"), MPP_VIEW("f.rb"), 1, &function), MPP_OK);
    assert_int_equal(mpp_frames_push(&frames, 0, function, line, &stack), MPP_OK);
    mpp_frames_release_function(&frames, function);
    return stack;
}

static mpp_id_t
make_string(const char *bytes)
{
    mpp_id_t id;
    assert_int_equal(mpp_strtab_intern(&strings, (mpp_view_t){bytes, strlen(bytes)}, &id), MPP_OK);
    return id;
}

static mpp_id_t
obtain(mpp_id_t stack, mpp_id_t class_name, mpp_id_t labels)
{
    mpp_id_t id = 0;
    assert_int_equal(mpp_rows_obtain(&rows, stack, class_name, labels, &id), MPP_OK);
    assert_int_not_equal(id, 0);
    return id;
}

/* A row of its own stack, to which it alone has a reference, counted into so many times. */
static mpp_id_t
make_row(int32_t line, uint32_t n_counts)
{
    mpp_id_t stack = make_stack(line);
    mpp_id_t id = obtain(stack, 0, 0);
    mpp_frames_release_stack(&frames, stack);
    while (n_counts--) mpp_rows_count(&rows, id, MPP_WEIGHT_ONE, 40);
    return id;
}

static bool
is_in_use(mpp_id_t id)
{
    return mpp_rows_next(&rows, id - 1) == id;
}

static void
add_totals(mpp_amount_t *allocated, mpp_amount_t *flushed)
{
    for (mpp_id_t id = 0; (id = mpp_rows_next(&rows, id)) != 0;) {
        mpp_amount_add(allocated, &mpp_rows_at(&rows, id)->allocated);
        mpp_amount_add(flushed, &mpp_rows_at(&rows, id)->flushed);
    }
}

static void
assert_same_amount(const mpp_amount_t *left, const mpp_amount_t *right)
{
    assert_true(left->count == right->count);
    assert_true(left->bytes == right->bytes);
    assert_int_equal(left->samples, right->samples);
}

static void
test_empty(void **state)
{
    (void)state;
    start(10);
    assert_int_equal(mpp_rows_next(&rows, 0), 0);
    assert_int_equal(mpp_rows_count_used(&rows), 0);
    assert_int_equal(mpp_rows_evict(&rows, 10, 0, 0), 0);
    mpp_rows_trim(&rows);
    end();
    rows = (mpp_rows_t){0};
    mpp_rows_cleanup(&rows);
}

static void
test_amounts_are_exact_beyond_64_bits(void **state)
{
    (void)state;
    mpp_amount_t amount = {(mpp_sum_t)1 << 100, ((mpp_sum_t)1 << 120) + 1, 5};
    const mpp_amount_t before = amount, other = {((mpp_sum_t)1 << 64) - 1, (mpp_sum_t)3 << 90, 2};
    mpp_amount_add(&amount, &other);
    assert_true(amount.count == ((mpp_sum_t)1 << 100) + ((mpp_sum_t)1 << 64) - 1);
    assert_int_equal(amount.samples, 7);
    mpp_amount_subtract(&amount, &other);
    assert_same_amount(&amount, &before);
}

static void
test_each_part_of_the_key_counts(void **state)
{
    (void)state;
    start(100);
    mpp_id_t stacks[] = {make_stack(1), make_stack(2)};
    mpp_id_t names[] = {0, make_string("String"), make_string("Array")};
    mpp_id_t ids[2][3][2];
    for (uint32_t i = 0; i < 12; i++) ids[i / 6][i / 2 % 3][i % 2] = obtain(stacks[i / 6], names[i / 2 % 3], i % 2);
    assert_int_equal(mpp_rows_count_used(&rows), 12);
    for (uint32_t i = 0; i < 12; i++) {
        mpp_id_t id = obtain(stacks[i / 6], names[i / 2 % 3], i % 2);
        const mpp_row_t *row = mpp_rows_at(&rows, id);
        assert_int_equal(id, ids[i / 6][i / 2 % 3][i % 2]);
        assert_int_equal(row->stack, stacks[i / 6]);
        assert_int_equal(row->class_name, names[i / 2 % 3]);
        assert_int_equal(row->labels, i % 2);
    }
    assert_int_equal(mpp_rows_count_used(&rows), 12);
    end();
}

/* Of so many rows that differ in one part alone, some pairs have the same hash of 32 bits. */
static void
test_equal_hashes_are_told_apart(void **state)
{
    (void)state;
    enum { N = 200000 };
    start(3 * N);
    mpp_id_t stack = make_stack(0), name = make_string("String");
    for (uint32_t n = 1; n <= N; n++) {
        char bytes[16];
        snprintf(bytes, sizeof(bytes), "Class%u", (unsigned)n);
        (void)obtain(make_stack((int32_t)n), name, 0);
        (void)obtain(stack, make_string(bytes), 0);
        (void)obtain(stack, name, n);
        assert_int_equal(mpp_rows_count_used(&rows), 3 * n);
    }
    end();
}

static void
test_a_row_holds_its_stack_and_class_name(void **state)
{
    (void)state;
    start(100);
    mpp_id_t stack = make_stack(1), name = make_string("String");
    mpp_id_t id = obtain(stack, name, 0);
    (void)obtain(stack, name, 0);
    assert_int_equal(mpp_frames_get_stack(&frames, stack)->references, 2);
    mpp_frames_release_stack(&frames, stack);
    mpp_strtab_release(&strings, name);
    assert_int_equal(mpp_strtab_count(&strings), 3);
    assert_memory_equal(mpp_strtab_view(&strings, mpp_rows_at(&rows, id)->class_name).bytes, "String", 6);

    mpp_id_t into = make_row(2, 0);
    assert_int_equal(mpp_rows_evict(&rows, 1, into, 0), 1);
    assert_int_equal(mpp_strtab_count(&strings), 2);
    assert_int_equal(frames.stacks.n_used, 1);
    end();
}

static void
test_full(void **state)
{
    (void)state;
    mpp_id_t id = 77;
    start(2000);
    for (int32_t line = 0; line < 2000; line++) (void)make_row(line, 0);
    mpp_id_t stack = make_stack(2000);
    assert_int_equal(mpp_rows_obtain(&rows, stack, 0, 0, &id), MPP_FULL);
    assert_int_equal(mpp_frames_get_stack(&frames, stack)->references, 1);
    assert_int_equal(mpp_rows_count_used(&rows), 2000);
    assert_int_equal(mpp_rows_evict(&rows, 1, obtain(make_stack(0), 0, 0), 0), 1);
    assert_int_equal(mpp_rows_obtain(&rows, stack, 0, 0, &id), MPP_OK);
    end();
}

static void
test_count(void **state)
{
    (void)state;
    start(10);
    mpp_id_t id = make_row(1, 0), other = make_row(2, 0);
    mpp_rows_count(&rows, id, UINT64_C(1) << 52, UINT64_MAX);
    mpp_rows_count(&rows, other, 1, 1);
    mpp_rows_count(&rows, id, 100 * MPP_WEIGHT_ONE, 40);
    mpp_row_t *row = mpp_rows_at(&rows, id);
    assert_int_equal(row->allocated.samples, 2);
    assert_true(row->allocated.count == ((mpp_sum_t)1 << 52) + 100 * MPP_WEIGHT_ONE);
    assert_true(row->allocated.bytes == ((mpp_sum_t)UINT64_MAX << 52) + (mpp_sum_t)4000 * MPP_WEIGHT_ONE);
    assert_int_equal(rows.total.samples, 3);
    assert_int_equal(row->last_used, 3);
    assert_int_equal(mpp_rows_at(&rows, other)->last_used, 2);
    end();
}

static void
test_evict_folds_the_coldest(void **state)
{
    (void)state;
    mpp_id_t ids[8];
    start(100);
    for (int32_t i = 0; i < 8; i++) ids[i] = make_row(i, 1);
    mpp_rows_count(&rows, ids[0], MPP_WEIGHT_ONE, 8); /* warm again */
    mpp_rows_at(&rows, ids[1])->n_live = 1;
    mpp_rows_at(&rows, ids[3])->flushed = (mpp_amount_t){MPP_WEIGHT_ONE, 40 * MPP_WEIGHT_ONE, 1};

    /* from the coldest on: 1 has live records, 2 is to be kept, 4 is the row to fold into */
    assert_int_equal(mpp_rows_evict(&rows, 2, ids[4], ids[2]), 2);
    assert_int_equal(rows.n_evicted, 2);
    const bool expected[] = {true, true, true, false, true, false, true, true};
    for (int i = 0; i < 8; i++) assert_int_equal(is_in_use(ids[i]), expected[i]);

    const mpp_row_t *into = mpp_rows_at(&rows, ids[4]);
    assert_int_equal(into->allocated.samples, 3);
    assert_true(into->allocated.count == 3 * MPP_WEIGHT_ONE);
    assert_true(into->allocated.bytes == 120 * (mpp_sum_t)MPP_WEIGHT_ONE);
    assert_int_equal(into->flushed.samples, 1);
    assert_int_equal(into->last_used, 5);
    assert_int_equal(mpp_rows_at(&rows, make_row(3, 0))->allocated.samples, 0);
    end();
}

static void
test_evict_takes_all_if_they_are_fewer(void **state)
{
    (void)state;
    start(100);
    mpp_id_t into = make_row(0, 1), keep = make_row(1, 1);
    for (int32_t i = 2; i < 50; i++) (void)make_row(i, (uint32_t)i % 3);
    assert_int_equal(mpp_rows_evict(&rows, 0, into, keep), 0);
    assert_int_equal(mpp_rows_evict(&rows, UINT32_MAX, into, keep), 48);
    assert_int_equal(mpp_rows_count_used(&rows), 2);
    assert_int_equal(mpp_rows_evict(&rows, 1, into, keep), 0);
    assert_int_equal(frames.stacks.n_used, 2);
    end();
}

static void
test_rows_never_counted_into_are_the_coldest(void **state)
{
    (void)state;
    start(100);
    mpp_id_t into = make_row(0, 1), warm = make_row(1, 1);
    for (int32_t i = 2; i < 12; i++) (void)make_row(i, 0);
    assert_int_equal(mpp_rows_evict(&rows, 4, into, 0), 4);
    assert_int_equal(mpp_rows_evict(&rows, 6, into, 0), 6);
    assert_true(is_in_use(warm));
    assert_int_equal(mpp_rows_evict(&rows, 1, into, 0), 1);
    assert_false(is_in_use(warm));
    end();
}

/* Rows 1 … N_ROWS, row 1 to fold into and row 2 to keep, with random amounts; a quarter has live records. */
enum { N_ROWS = 3000 };

static void
fill(uint64_t clock, support_random_t *random)
{
    rows.total.samples = clock;
    for (int32_t line = 0; line < N_ROWS; line++) (void)make_row(line, 0);
    for (int n = 0; n < 5 * N_ROWS; n++) {
        mpp_id_t id = 1 + support_below(random, N_ROWS);
        mpp_rows_count(&rows, id, support_next(random) >> 12, support_next(random));
        if (support_chance(random, 1, 3)) mpp_rows_at(&rows, id)->flushed = mpp_rows_at(&rows, id)->allocated;
        mpp_rows_at(&rows, id)->n_live = support_chance(random, 1, 4);
    }
}

/* Evicts n and checks that of those that could go, none that is left is colder than one that went. */
static void
assert_evicts_the_coldest(uint32_t n)
{
    static mpp_row_t before[N_ROWS + 1];
    uint64_t warmest_gone = 0, coldest_left = UINT64_MAX;
    for (mpp_id_t id = 1; id <= N_ROWS; id++) before[id] = is_in_use(id) ? *mpp_rows_at(&rows, id) : (mpp_row_t){0};

    assert_int_equal(mpp_rows_evict(&rows, n, 1, 2), n);
    for (mpp_id_t id = 3; id <= N_ROWS; id++) {
        uint64_t stamp = before[id].last_used;
        if (!before[id].stack || (is_in_use(id) && before[id].n_live)) continue;
        if (is_in_use(id)) {
            coldest_left = stamp < coldest_left ? stamp : coldest_left;
        } else {
            assert_int_equal(before[id].n_live, 0);
            warmest_gone = stamp > warmest_gone ? stamp : warmest_gone;
        }
    }
    assert_true(warmest_gone <= coldest_left); /* equal only where neither was ever counted into */
    assert_true(is_in_use(1) && is_in_use(2));
}

/* With clocks of one digit and of many, and no memory to be had. */
static void
test_evict_at_any_clock(void **state)
{
    (void)state;
    const uint64_t clocks[] = {0, 1000, 1 << 20, UINT64_C(0xfffffff000), UINT64_MAX - 100000};
    for (size_t i = 0; i < SUPPORT_LENGTH(clocks); i++) {
        support_random_t random = {i};
        mpp_amount_t allocated[2] = {0}, flushed[2] = {0};
        start(N_ROWS);
        fill(clocks[i], &random);
        add_totals(&allocated[0], &flushed[0]);
        budget.fail_from = 1;
        budget.fail_count = UINT64_MAX;
        for (uint32_t n = 1; n < 300; n += 37) assert_evicts_the_coldest(n);
        add_totals(&allocated[1], &flushed[1]);
        assert_same_amount(&allocated[0], &allocated[1]);
        assert_same_amount(&flushed[0], &flushed[1]);
        assert_int_equal(frames.stacks.n_used, mpp_rows_count_used(&rows));
        end();
    }
}

/* Over several growths of the index and two chunks of rows, with the stack and name tables on a budget of their own. */
static void
obtain_under_refusals(mpp_budget_t *refusing)
{
    mpp_rows_t table;
    uint32_t n_rows = 0;
    start(1);
    mpp_id_t stack = make_stack(1), name = make_string("String");
    if (support_refused(mpp_rows_init(&table, &refusing->allocator, &frames, &strings, 3000))) {
        mpp_rows_cleanup(&table);
        end();
        return;
    }
    for (mpp_id_t labels = 0; labels < 1500; labels++) {
        mpp_id_t id, again;
        if (!support_refused(mpp_rows_obtain(&table, stack, name, labels, &id))) {
            n_rows++;
            assert_int_equal(mpp_rows_obtain(&table, stack, name, labels, &again), MPP_OK);
            assert_int_equal(again, id);
        }
        assert_int_equal(mpp_rows_count_used(&table), n_rows);
        assert_int_equal(mpp_frames_get_stack(&frames, stack)->references, 1 + n_rows);
    }
    assert_int_equal(refusing->used_bytes, mpp_rows_bytes(&table));
    mpp_rows_cleanup(&table);
    end();
}

static void
test_every_allocation_failing(void **state)
{
    (void)state;
    support_sweep_failures(obtain_under_refusals);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_amounts_are_exact_beyond_64_bits),
        cmocka_unit_test(test_each_part_of_the_key_counts),
        cmocka_unit_test(test_equal_hashes_are_told_apart),
        cmocka_unit_test(test_a_row_holds_its_stack_and_class_name),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_evict_folds_the_coldest),
        cmocka_unit_test(test_evict_takes_all_if_they_are_fewer),
        cmocka_unit_test(test_rows_never_counted_into_are_the_coldest),
        cmocka_unit_test(test_evict_at_any_clock),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
