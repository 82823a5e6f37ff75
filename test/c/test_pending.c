#include "support.h"

#include "pending.h"

#include <string.h>

/* A budget that can be told to refuse everything but frees, shrinking included. */
typedef struct {
    mpp_allocator_t allocator;
    mpp_budget_t budget;
    bool refuses;
} moody_t;

static mpp_status_t
moody_resize(mpp_allocator_t *self, void **block, size_t old_bytes, size_t new_bytes)
{
    moody_t *moody = (moody_t *)self;
    if (moody->refuses && new_bytes != 0) return MPP_NO_MEMORY;
    return mpp_resize(&moody->budget.allocator, block, old_bytes, new_bytes);
}

static moody_t memory;
static mpp_pending_t pending;

static void
start(uint32_t max_entries)
{
    memory = (moody_t){.allocator = {moody_resize}};
    mpp_budget_init(&memory.budget, SIZE_MAX);
    mpp_pending_init(&pending, &memory.allocator, max_entries);
}

static void
end(void)
{
    mpp_pending_cleanup(&pending);
    support_assert_no_leak(&memory.budget);
}

/* Everything about entry n follows from n. */
static mpp_status_t
push(uint32_t n)
{
    return mpp_pending_push(&pending, (uintptr_t)n * 8, n + 1, n + 2);
}

static void
assert_takes(uint32_t n)
{
    mpp_pending_entry_t entry;
    assert_true(mpp_pending_take(&pending, &entry));
    assert_int_equal(entry.object, (uintptr_t)n * 8);
    assert_int_equal(entry.weight, n + 1);
    assert_int_equal(entry.stack, n + 2);
    assert_null(entry.raw);
}

static void
test_empty(void **state)
{
    (void)state;
    mpp_pending_entry_t entry;
    start(100);
    assert_false(mpp_pending_take(&pending, &entry));
    assert_int_equal(mpp_pending_bytes(&pending), 0);
    mpp_pending_trim(&pending);
    mpp_pending_release_raw(&pending, NULL);
    end();
}

static void
test_first_in_first_out(void **state)
{
    (void)state;
    start(100);
    for (uint32_t n = 0; n < 3; n++) assert_int_equal(push(n), MPP_OK);
    for (uint32_t n = 0; n < 3; n++) assert_takes(n);
    assert_int_equal(pending.n_used, 0);
    end();
}

static void
test_limit_is_a_power_of_two(void **state)
{
    (void)state;
    const uint32_t cases[][2] = {{0, 1}, {1, 1}, {5, 8}, {262144, 262144}, {262145, 524288}};
    for (size_t i = 0; i < SUPPORT_LENGTH(cases); i++) {
        start(cases[i][0]);
        assert_int_equal(pending.max_entries, cases[i][1]);
        end();
    }
    start(UINT32_MAX);
    assert_int_equal(pending.max_entries, UINT32_C(1) << 31);
    end();
}

static void
test_full(void **state)
{
    (void)state;
    const mpp_backtrace_t nothing = {0};
    start(4096);
    for (uint32_t n = 0; n < 4096; n++) assert_int_equal(push(n), MPP_OK);
    uint64_t n_requests = memory.budget.n_requests;
    assert_int_equal(push(4096), MPP_FULL);
    assert_int_equal(mpp_pending_push_raw(&pending, 8, 1, &nothing), MPP_FULL);
    assert_int_equal(memory.budget.n_requests, n_requests);
    assert_takes(0);
    assert_int_equal(push(4096), MPP_OK);
    for (uint32_t n = 1; n <= 4096; n++) assert_takes(n);
    end();
}

/* At every place of the head, also where the ring is one entry long. */
static void
test_growing_unrolls_the_ring(void **state)
{
    (void)state;
    for (uint32_t head = 0; head < 1024; head += 31) {
        uint32_t n = 0;
        start(1 << 14);
        for (; n < head; n++) {
            assert_int_equal(push(n), MPP_OK);
            assert_takes(n);
        }
        for (; n < head + 1024; n++) assert_int_equal(push(n), MPP_OK);
        assert_int_equal(pending.n_entries, 1024);
        assert_int_equal(pending.head, head);
        for (; n < head + 5000; n++) assert_int_equal(push(n), MPP_OK);
        for (uint32_t i = head; i < n; i++) assert_takes(i);
        end();
    }
}

static void
test_any_order_of_pushes_and_takes(void **state)
{
    (void)state;
    support_random_t random = {5};
    uint32_t pushed = 0, taken = 0;
    start(1 << 13);
    for (int round = 0; round < 200; round++) {
        uint32_t n_pushes = support_below(&random, 1000), n_takes = support_below(&random, 1000);
        while (n_pushes-- && pushed - taken < 1 << 13) assert_int_equal(push(pushed++), MPP_OK);
        while (n_takes-- && taken < pushed) assert_takes(taken++);
        assert_int_equal(pending.n_used, pushed - taken);
        if (support_chance(&random, 1, 10)) mpp_pending_trim(&pending);
    }
    end();
}

static const uintptr_t frames[] = {80, 40, 120};
static const int lines[] = {3, 1, 2};
static const mpp_backtrace_t three = {frames, lines, 3, false};

static uint32_t
count_raw(void)
{
    uint32_t n = 0;
    for (const mpp_raw_stack_t *raw = pending.raw_stacks; raw; raw = raw->next) {
        assert_ptr_equal(raw->previous ? raw->previous->next : pending.raw_stacks, raw);
        n++;
    }
    return n;
}

static void
test_raw_stack_is_a_copy(void **state)
{
    (void)state;
    uintptr_t my_frames[] = {80, 40};
    int my_lines[] = {-1, 7};
    mpp_pending_entry_t entry;
    start(8);
    assert_int_equal(mpp_pending_push_raw(&pending, 16, 5, &(mpp_backtrace_t){my_frames, my_lines, 2, true}), MPP_OK);
    my_frames[0] = my_frames[1] = 0;
    my_lines[0] = my_lines[1] = 0;

    assert_true(mpp_pending_take(&pending, &entry));
    assert_int_equal(entry.object, 16);
    assert_int_equal(entry.weight, 5);
    assert_int_equal(entry.stack, 0);
    assert_int_equal(entry.raw->backtrace.n, 2);
    assert_true(entry.raw->backtrace.truncated);
    assert_int_equal(entry.raw->backtrace.frames[0], 80);
    assert_int_equal(entry.raw->backtrace.frames[1], 40);
    assert_int_equal(entry.raw->backtrace.lines[0], -1);
    assert_int_equal(entry.raw->backtrace.lines[1], 7);
    mpp_pending_release_raw(&pending, entry.raw);
    assert_null(pending.raw_stacks);
    assert_int_equal(pending.raw_bytes, 0);
    end();
}

static void
test_equal_neighbours_share_a_raw_stack(void **state)
{
    (void)state;
    const uintptr_t other_frames[] = {80, 48, 120};
    const int other_lines[] = {3, 1, 4};
    const mpp_backtrace_t others[] = {
        {other_frames, lines, 3, false}, {frames, other_lines, 3, false}, {frames, lines, 2, false},
        {frames, lines, 3, true},        {NULL, NULL, 0, false},          {NULL, NULL, 0, true},
    };
    start(64);
    for (size_t i = 0; i < SUPPORT_LENGTH(others); i++) {
        for (int times = 0; times < 3; times++) {
            assert_int_equal(mpp_pending_push_raw(&pending, 8, 1, &three), MPP_OK);
        }
        for (int times = 0; times < 3; times++) {
            assert_int_equal(mpp_pending_push_raw(&pending, 8, 1, &others[i]), MPP_OK);
        }
        assert_int_equal(count_raw(), 2 * (i + 1));
        assert_int_equal(pending.raw_stacks->references, 3);
    }
    end();
}

static void
test_a_raw_stack_in_the_hands_of_a_drain_is_shared_too(void **state)
{
    (void)state;
    mpp_pending_entry_t first, second;
    start(8);
    assert_int_equal(mpp_pending_push_raw(&pending, 8, 1, &three), MPP_OK);
    assert_true(mpp_pending_take(&pending, &first));
    assert_int_equal(mpp_pending_push_raw(&pending, 16, 1, &three), MPP_OK);
    assert_int_equal(count_raw(), 1);
    mpp_pending_release_raw(&pending, first.raw);
    assert_true(mpp_pending_take(&pending, &second));
    assert_int_equal(second.raw->backtrace.frames[2], 120);
    mpp_pending_release_raw(&pending, second.raw);
    assert_int_equal(count_raw(), 0);
    end();
}

static void
test_raw_stacks_go_in_any_order(void **state)
{
    (void)state;
    const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};
    for (size_t i = 0; i < SUPPORT_LENGTH(orders); i++) {
        mpp_pending_entry_t entries[3];
        start(8);
        for (uint32_t n = 0; n < 3; n++) {
            mpp_backtrace_t backtrace = {frames, lines, n + 1, false};
            assert_int_equal(mpp_pending_push_raw(&pending, 8, 1, &backtrace), MPP_OK);
        }
        for (int n = 0; n < 3; n++) assert_true(mpp_pending_take(&pending, &entries[n]));
        for (uint32_t n = 0; n < 3; n++) {
            mpp_pending_release_raw(&pending, entries[orders[i][n]].raw);
            assert_int_equal(count_raw(), 2 - n);
        }
        assert_int_equal(pending.raw_bytes, 0);
        end();
    }
}

typedef struct {
    uintptr_t sum;
    int n;
} visited_t;

static void
visit(void *context, uintptr_t key)
{
    visited_t *visited = context;
    visited->sum += key;
    visited->n++;
}

static void
test_each_visits_all_that_waits_or_is_held(void **state)
{
    (void)state;
    visited_t visited = {0};
    mpp_pending_entry_t entry;
    start(8);
    mpp_pending_each(&pending, visit, &visited);
    assert_int_equal(visited.n, 0);

    assert_int_equal(mpp_pending_push_raw(&pending, 1000, 1, &three), MPP_OK);
    assert_int_equal(mpp_pending_push(&pending, 2000, 1, 1), MPP_OK);
    assert_int_equal(mpp_pending_push(&pending, 4000, 1, 1), MPP_OK);
    mpp_pending_each(&pending, visit, &visited);
    assert_int_equal(visited.n, 6);
    assert_int_equal(visited.sum, 7000 + 80 + 40 + 120);

    visited = (visited_t){0};
    assert_true(mpp_pending_take(&pending, &entry));
    mpp_pending_each(&pending, visit, &visited);
    assert_int_equal(visited.n, 5);
    assert_int_equal(visited.sum, 6000 + 80 + 40 + 120);

    visited = (visited_t){0};
    mpp_pending_release_raw(&pending, entry.raw);
    mpp_pending_each(&pending, visit, &visited);
    assert_int_equal(visited.sum, 6000);
    end();
}

static void
test_each_visits_a_wrapped_ring(void **state)
{
    (void)state;
    visited_t visited = {0};
    start(8);
    for (uint32_t n = 0; n < 6; n++) assert_int_equal(push(n), MPP_OK);
    for (uint32_t n = 0; n < 6; n++) assert_takes(n);
    for (uint32_t n = 6; n < 12; n++) assert_int_equal(push(n), MPP_OK);
    mpp_pending_each(&pending, visit, &visited);
    assert_int_equal(visited.n, 6);
    assert_int_equal(visited.sum, (6 + 7 + 8 + 9 + 10 + 11) * 8);
    end();
}

static void
test_trim_gives_a_large_empty_ring_back(void **state)
{
    (void)state;
    start(1 << 16);
    for (uint32_t n = 0; n < 20000; n++) assert_int_equal(push(n), MPP_OK);
    size_t large = mpp_pending_bytes(&pending);
    mpp_pending_trim(&pending);
    assert_int_equal(mpp_pending_bytes(&pending), large);
    for (uint32_t n = 0; n < 20000; n++) assert_takes(n);

    memory.refuses = true;
    mpp_pending_trim(&pending);
    memory.refuses = false;
    assert_int_equal(mpp_pending_bytes(&pending), large);
    assert_int_equal(push(1), MPP_OK);
    assert_takes(1);

    mpp_pending_trim(&pending);
    assert_true(mpp_pending_bytes(&pending) < large / 10);
    assert_int_equal(memory.budget.used_bytes, mpp_pending_bytes(&pending));
    for (uint32_t n = 0; n < 5000; n++) assert_int_equal(push(n), MPP_OK);
    for (uint32_t n = 0; n < 5000; n++) assert_takes(n);
    end();
}

static void
test_refused_growth_changes_nothing(void **state)
{
    (void)state;
    uint32_t n = 100;
    start(1 << 16);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(push(i), MPP_OK);
        assert_takes(i);
    }
    for (; n < 100 + 1024; n++) assert_int_equal(push(n), MPP_OK);
    memory.refuses = true;
    assert_int_equal(push(n), MPP_NO_MEMORY);
    assert_int_equal(mpp_pending_push_raw(&pending, 8, 1, &three), MPP_NO_MEMORY);
    memory.refuses = false;
    for (; n < 3000; n++) assert_int_equal(push(n), MPP_OK);
    for (uint32_t i = 100; i < 3000; i++) assert_takes(i);
    end();
}

/* Entries of all kinds over two growths of the ring. What a refused push leaves is what was there before it. */
static void
push_and_take_under_refusals(mpp_budget_t *budget)
{
    mpp_pending_t queue;
    mpp_pending_entry_t entry;
    uint32_t n_pushed = 0;
    mpp_pending_init(&queue, &budget->allocator, 1 << 14);
    for (uint32_t i = 0; i < 2100; i++) {
        size_t bytes = mpp_pending_bytes(&queue);
        const mpp_raw_stack_t *newest = queue.raw_stacks;
        uint32_t references = newest ? newest->references : 0;
        mpp_backtrace_t backtrace = {frames, lines, i / 300 % 3, false};
        mpp_status_t status =
            i % 3 ? mpp_pending_push(&queue, 8, 1, 1) : mpp_pending_push_raw(&queue, 8, 1, &backtrace);
        if (support_refused(status)) {
            assert_int_equal(mpp_pending_bytes(&queue), bytes);
            assert_ptr_equal(queue.raw_stacks, newest);
            if (newest) assert_int_equal(newest->references, references);
        } else {
            n_pushed++;
        }
        assert_int_equal(queue.n_used, n_pushed);
        assert_int_equal(budget->used_bytes, mpp_pending_bytes(&queue));
    }
    for (; n_pushed; n_pushed--) {
        assert_true(mpp_pending_take(&queue, &entry));
        assert_true((entry.stack == 0) != (entry.raw == NULL));
        mpp_pending_release_raw(&queue, entry.raw);
    }
    assert_null(queue.raw_stacks);
    mpp_pending_cleanup(&queue);
}

static void
test_every_allocation_failing(void **state)
{
    (void)state;
    support_sweep_failures(push_and_take_under_refusals);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_first_in_first_out),
        cmocka_unit_test(test_limit_is_a_power_of_two),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_growing_unrolls_the_ring),
        cmocka_unit_test(test_any_order_of_pushes_and_takes),
        cmocka_unit_test(test_raw_stack_is_a_copy),
        cmocka_unit_test(test_equal_neighbours_share_a_raw_stack),
        cmocka_unit_test(test_a_raw_stack_in_the_hands_of_a_drain_is_shared_too),
        cmocka_unit_test(test_raw_stacks_go_in_any_order),
        cmocka_unit_test(test_each_visits_all_that_waits_or_is_held),
        cmocka_unit_test(test_each_visits_a_wrapped_ring),
        cmocka_unit_test(test_trim_gives_a_large_empty_ring_back),
        cmocka_unit_test(test_refused_growth_changes_nothing),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests_name("pending", tests, NULL, NULL);
}
