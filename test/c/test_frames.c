#include "support.h"

#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mpp_budget_t budget;
static mpp_strtab_t strings;
static mpp_frames_t frames;

static size_t
frames_bytes(void)
{
    return mpp_slab_bytes(&frames.functions) + mpp_index_bytes(&frames.function_index) +
           mpp_slab_bytes(&frames.locations) + mpp_index_bytes(&frames.location_index) +
           mpp_slab_bytes(&frames.stacks) + mpp_index_bytes(&frames.stack_index);
}

static void
start(uint32_t max_elements)
{
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(mpp_strtab_init(&strings, &budget.allocator, 100000), MPP_OK);
    assert_int_equal(mpp_frames_init(&frames, &budget.allocator, &strings, max_elements), MPP_OK);
}

static void
finish(void)
{
    assert_int_equal(frames_bytes() + mpp_strtab_bytes(&strings), budget.used_bytes);
    mpp_frames_cleanup(&frames);
    mpp_strtab_cleanup(&strings);
    support_assert_no_leak(&budget);
}

static void
assert_counts(uint32_t n_strings, uint32_t n_functions, uint32_t n_locations, uint32_t n_stacks)
{
    assert_int_equal(mpp_strtab_count(&strings), n_strings);
    assert_int_equal(frames.functions.n_used, n_functions);
    assert_int_equal(frames.function_index.n_used, n_functions);
    assert_int_equal(frames.locations.n_used, n_locations);
    assert_int_equal(frames.location_index.n_used, n_locations);
    assert_int_equal(frames.stacks.n_used, n_stacks);
    assert_int_equal(frames.stack_index.n_used, n_stacks);
}

static mpp_id_t
function(mpp_view_t name, mpp_view_t filename, int32_t start_line)
{
    mpp_id_t id = 0;
    assert_int_equal(mpp_frames_function(&frames, name, filename, start_line, &id), MPP_OK);
    assert_int_not_equal(id, 0);
    return id;
}

static mpp_id_t
push(mpp_id_t parent, mpp_id_t of, int32_t line)
{
    mpp_id_t id = 0;
    assert_int_equal(mpp_frames_push(&frames, parent, of, line, &id), MPP_OK);
    assert_int_not_equal(id, 0);
    return id;
}

static void
test_zeroed(void **state)
{
    (void)state;
    mpp_frames_t zeroed = {0};
    mpp_frames_cleanup(&zeroed);
}

static void
test_functions_are_interned(void **state)
{
    (void)state;
    start(100);
    mpp_id_t id = function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), 3);
    assert_int_equal(function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), 3), id);
    assert_counts(2, 1, 0, 0);
    assert_int_not_equal(function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), 4), id);
    assert_int_not_equal(function(MPP_VIEW("A#m"), MPP_VIEW("b.rb"), 3), id);
    assert_int_not_equal(function(MPP_VIEW("A#n"), MPP_VIEW("a.rb"), 3), id);
    assert_int_not_equal(function(MPP_VIEW("a.rb"), MPP_VIEW("A#m"), 3), id);
    assert_int_not_equal(function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), -3), id);
    assert_counts(4, 6, 0, 0);

    const mpp_function_t *stored = mpp_frames_get_function(&frames, id);
    assert_memory_equal(mpp_strtab_view(&strings, stored->name).bytes, "A#m", 4);
    assert_memory_equal(mpp_strtab_view(&strings, stored->filename).bytes, "a.rb", 5);
    assert_int_equal(stored->start_line, 3);
    finish();
}

static void
test_function_without_a_file(void **state)
{
    (void)state;
    start(100);
    mpp_id_t id = function(MPP_VIEW("Integer#+"), MPP_VIEW(""), 0);
    assert_int_equal(mpp_frames_get_function(&frames, id)->filename, 0);
    assert_int_equal(function(MPP_VIEW("Integer#+"), (mpp_view_t){NULL, 0}, 0), id);
    assert_counts(1, 1, 0, 0);
    mpp_frames_release_function(&frames, id);
    mpp_frames_release_function(&frames, id);
    assert_counts(0, 0, 0, 0);
    finish();
}

static void
test_function_in_another_file(void **state)
{
    (void)state;
    start(2);
    mpp_id_t plus = function(MPP_VIEW("Integer#+"), MPP_VIEW(""), 7);
    mpp_id_t main_id = function(MPP_VIEW("<main>"), MPP_VIEW("a.rb"), 0);
    mpp_id_t filename = mpp_frames_get_function(&frames, main_id)->filename;
    mpp_id_t placed = 77;
    assert_int_equal(mpp_frames_function_in(&frames, plus, filename, &placed), MPP_FULL);
    assert_int_equal(placed, 77);
    assert_counts(3, 2, 0, 0);

    /* A hit, also on itself, counts a reference and leaves those of the strings as they were. */
    assert_int_equal(mpp_frames_function_in(&frames, main_id, filename, &placed), MPP_OK);
    assert_int_equal(placed, main_id);
    mpp_frames_release_function(&frames, placed);
    mpp_frames_release_function(&frames, main_id);
    assert_counts(1, 1, 0, 0);

    mpp_id_t file = 0;
    assert_int_equal(mpp_strtab_intern(&strings, MPP_VIEW("b.rb"), &file), MPP_OK);
    assert_int_equal(mpp_frames_function_in(&frames, plus, file, &placed), MPP_OK);
    mpp_strtab_release(&strings, file);
    assert_counts(2, 2, 0, 0);
    assert_int_equal(function(MPP_VIEW("Integer#+"), MPP_VIEW("b.rb"), 7), placed);
    mpp_frames_release_function(&frames, placed);
    mpp_frames_release_function(&frames, plus);
    mpp_frames_release_function(&frames, placed);
    assert_counts(0, 0, 0, 0);
    finish();
}

static void
test_function_dies_with_its_last_reference(void **state)
{
    (void)state;
    start(100);
    mpp_id_t id = function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), 3);
    (void)function(MPP_VIEW("A#n"), MPP_VIEW("a.rb"), 9);
    mpp_frames_retain_function(&frames, id);
    mpp_frames_release_function(&frames, id);
    assert_counts(3, 2, 0, 0);
    mpp_frames_release_function(&frames, id);
    assert_counts(2, 1, 0, 0); /* "a.rb" is the other one's too */
    finish();
}

static void
test_stacks_share_their_roots(void **state)
{
    (void)state;
    start(100);
    mpp_id_t main_id = function(MPP_VIEW("<main>"), MPP_VIEW("a.rb"), 0);
    mpp_id_t m = function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), 3);
    mpp_id_t root = push(0, main_id, 10);
    mpp_id_t left = push(root, m, 4);
    mpp_id_t right = push(root, m, 5);
    assert_int_equal(push(root, m, 4), left);
    assert_int_not_equal(left, right);
    assert_counts(3, 2, 3, 3);

    const mpp_stack_t *stack = mpp_frames_get_stack(&frames, left);
    assert_int_equal(stack->parent, root);
    assert_int_equal(stack->depth, 2);
    assert_int_equal(mpp_frames_get_stack(&frames, root)->depth, 1);
    assert_int_equal(mpp_frames_get_stack(&frames, root)->parent, 0);
    assert_int_equal(mpp_frames_get_location(&frames, stack->location)->function, m);
    assert_int_equal(mpp_frames_get_location(&frames, stack->location)->line, 4);

    /* Recursion: the same location at another depth is another stack of the same location. */
    mpp_id_t deeper = push(left, m, 4);
    assert_int_not_equal(deeper, left);
    assert_int_equal(mpp_frames_get_stack(&frames, deeper)->location, stack->location);
    assert_counts(3, 2, 3, 4);
    finish();
}

static void
test_release_goes_down_the_chain(void **state)
{
    (void)state;
    start(100);
    mpp_id_t main_id = function(MPP_VIEW("<main>"), MPP_VIEW("a.rb"), 0);
    mpp_id_t m = function(MPP_VIEW("A#m"), MPP_VIEW("b.rb"), 3);
    mpp_id_t root = push(0, main_id, 10);
    mpp_id_t leaf = push(root, m, 4);
    mpp_frames_release_function(&frames, main_id);
    mpp_frames_release_function(&frames, m);
    mpp_frames_release_stack(&frames, root);
    assert_counts(4, 2, 2, 2);

    mpp_frames_retain_stack(&frames, leaf);
    mpp_frames_release_stack(&frames, leaf);
    assert_counts(4, 2, 2, 2);
    mpp_id_t sibling = push(root, mpp_frames_get_location(&frames, 1)->function, 11);
    mpp_frames_release_stack(&frames, leaf);
    assert_counts(2, 1, 2, 2); /* the sibling keeps the root, and "<main>" twice */
    mpp_frames_release_stack(&frames, sibling);
    assert_counts(0, 0, 0, 0);

    mpp_frames_retain_stack(&frames, 0);
    mpp_frames_release_stack(&frames, 0);
    finish();
}

/* Deeper than any C stack would bear recursion. */
static void
test_very_deep_stack(void **state)
{
    (void)state;
    enum { DEPTH = 500000 };
    start(DEPTH);
    mpp_id_t m = function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), 3);
    mpp_id_t leaf = 0;
    for (int depth = 0; depth < DEPTH; depth++) {
        mpp_id_t deeper = push(leaf, m, 4);
        mpp_frames_release_stack(&frames, leaf);
        leaf = deeper;
    }
    assert_int_equal(mpp_frames_get_stack(&frames, leaf)->depth, DEPTH);
    assert_counts(2, 1, 1, DEPTH);
    mpp_frames_release_stack(&frames, leaf);
    assert_counts(2, 1, 0, 0);

    size_t before = frames_bytes();
    mpp_frames_trim(&frames);
    assert_true(frames_bytes() < before / 4);
    finish();
}

static mpp_id_t
function_of_strings(mpp_id_t name, mpp_id_t filename, int32_t start_line)
{
    return function(mpp_strtab_view(&strings, name), mpp_strtab_view(&strings, filename), start_line);
}

/*
 * Contents that differ in one part and whose hashes agree in the 32 bits that the index keeps, as happens once among
 * some 80,000 elements. They were searched for; ids are given out in order by new tables.
 */
static void
test_colliding_functions(void **state)
{
    (void)state;
    start(5000);
    for (unsigned i = 1; i <= 953; i++) {
        char text[8];
        mpp_id_t id = 0;
        int length = snprintf(text, sizeof(text), "s%u", i);
        assert_int_equal(mpp_strtab_intern(&strings, (mpp_view_t){text, (size_t)length}, &id), MPP_OK);
        assert_int_equal(id, i);
    }
    static const struct {
        uint32_t name, filename, start_line;
    } pairs[][2] = {
        {{1, 2, 97375}, {1, 2, 106831}},
        {{1, 451, 947}, {1, 953, 947}},
        {{80, 1, 6575}, {311, 1, 6575}},
    };
    for (size_t i = 0; i < SUPPORT_LENGTH(pairs); i++) {
        uint64_t hashes[2];
        mpp_id_t ids[2];
        for (int k = 0; k < 2; k++) {
            hashes[k] = mpp_hash_pair(mpp_hash_pair(pairs[i][k].name, pairs[i][k].filename), pairs[i][k].start_line);
            ids[k] = function_of_strings(pairs[i][k].name, pairs[i][k].filename, (int32_t)pairs[i][k].start_line);
        }
        assert_int_equal((uint32_t)hashes[0], (uint32_t)hashes[1]);
        assert_int_not_equal(ids[0], ids[1]);
    }
    finish();
}

static void
test_colliding_locations_and_stacks(void **state)
{
    (void)state;
    start(5000);
    for (int32_t i = 1; i <= 484; i++) assert_int_equal(function(MPP_VIEW("f"), MPP_VIEW("f.rb"), i), i);
    for (int32_t i = 1; i <= 4000; i++) assert_int_equal(push(0, 1, i), i); /* stack i of location i */
    assert_int_equal((uint32_t)mpp_hash_pair(332, 9246), (uint32_t)mpp_hash_pair(484, 9246));
    assert_int_not_equal(push(0, 332, 9246), push(0, 484, 9246));
    assert_int_equal((uint32_t)mpp_hash_pair(1, 113424), (uint32_t)mpp_hash_pair(1, 136869));
    assert_int_not_equal(push(0, 1, 113424), push(0, 1, 136869));
    assert_int_equal((uint32_t)mpp_hash_pair(881, 452), (uint32_t)mpp_hash_pair(3379, 452));
    assert_int_not_equal(push(881, 1, 452), push(3379, 1, 452));
    assert_int_equal((uint32_t)mpp_hash_pair(101, 1363), (uint32_t)mpp_hash_pair(101, 3833));
    assert_int_not_equal(push(101, 1, 1363), push(101, 1, 3833));
    finish();
}

/* Which of the three tables is full: nothing is left behind in the other two. */
static void
test_full(void **state)
{
    (void)state;
    mpp_id_t id = 77;
    start(2);
    mpp_id_t first = function(MPP_VIEW("f"), MPP_VIEW("f.rb"), 1);
    mpp_id_t second = function(MPP_VIEW("g"), MPP_VIEW("g.rb"), 1);
    assert_int_equal(mpp_frames_function(&frames, MPP_VIEW("h"), MPP_VIEW("h.rb"), 1, &id), MPP_FULL);
    assert_counts(4, 2, 0, 0);

    mpp_id_t root = push(0, first, 1);
    mpp_id_t leaf = push(root, first, 1);
    assert_counts(4, 2, 1, 2);
    assert_int_equal(mpp_frames_push(&frames, leaf, first, 1, &id), MPP_FULL);  /* stacks, location known */
    assert_int_equal(mpp_frames_push(&frames, leaf, second, 1, &id), MPP_FULL); /* stacks, location new */
    assert_counts(4, 2, 1, 2);
    assert_int_equal(push(root, first, 1), leaf);
    mpp_frames_release_stack(&frames, leaf);
    mpp_frames_release_stack(&frames, leaf);

    leaf = push(0, second, 1);
    assert_int_equal(mpp_frames_push(&frames, 0, second, 2, &id), MPP_FULL); /* locations */
    assert_counts(4, 2, 2, 2);
    assert_int_equal(id, 77);
    finish();
}

static void
test_growth_boundaries(void **state)
{
    (void)state;
    start(3000);
    mpp_id_t m = function(MPP_VIEW("A#m"), MPP_VIEW("a.rb"), 3);
    static mpp_id_t ids[2500];
    static const mpp_stack_t *addresses[2500];
    for (int32_t i = 0; i < 2500; i++) {
        ids[i] = push(0, m, i);
        addresses[i] = mpp_frames_get_stack(&frames, ids[i]);
    }
    for (int32_t i = 0; i < 2500; i++) {
        assert_int_equal(push(0, m, i), ids[i]);
        assert_ptr_equal(mpp_frames_get_stack(&frames, ids[i]), addresses[i]);
        assert_int_equal(mpp_frames_get_location(&frames, addresses[i]->location)->line, i);
    }
    assert_counts(2, 1, 2500, 2500);
    finish();
}

/* The model: whole backtraces as text, each held or not, against the tree. */
enum { MAX_HELD = 200, MAX_DEPTH = 12 };
typedef struct {
    mpp_id_t stack; /* 0: not held */
    uint32_t depth;
    uint8_t functions[MAX_DEPTH]; /* root first */
    uint8_t lines[MAX_DEPTH];
} held_t;
static held_t held[MAX_HELD];

static bool
same_prefix(const held_t *left, const held_t *right, uint32_t depth)
{
    return left->depth >= depth && right->depth >= depth && memcmp(left->functions, right->functions, depth) == 0 &&
           memcmp(left->lines, right->lines, depth) == 0;
}

/* Stacks that the tree must have: the different prefixes of all that is held. */
static uint32_t
count_prefixes(void)
{
    uint32_t n = 0;
    for (int i = 0; i < MAX_HELD; i++) {
        for (uint32_t depth = 1; held[i].stack != 0 && depth <= held[i].depth; depth++) {
            bool first = true;
            for (int j = 0; j < i && first; j++) first = held[j].stack == 0 || !same_prefix(&held[j], &held[i], depth);
            n += first;
        }
    }
    return n;
}

static mpp_id_t
push_whole(const held_t *backtrace)
{
    mpp_id_t stack = 0;
    for (uint32_t depth = 0; depth < backtrace->depth; depth++) {
        char name[8];
        int length = snprintf(name, sizeof(name), "f%u", (unsigned)backtrace->functions[depth]);
        mpp_id_t of = function((mpp_view_t){name, (size_t)length}, MPP_VIEW("a.rb"), 0);
        mpp_id_t deeper = push(stack, of, backtrace->lines[depth]);
        mpp_frames_release_function(&frames, of);
        mpp_frames_release_stack(&frames, stack);
        stack = deeper;
    }
    return stack;
}

static void
check_whole(const held_t *backtrace)
{
    mpp_id_t id = backtrace->stack;
    for (uint32_t depth = backtrace->depth; depth > 0; depth--) {
        const mpp_stack_t *stack = mpp_frames_get_stack(&frames, id);
        assert_int_equal(stack->depth, depth);
        const mpp_location_t *location = mpp_frames_get_location(&frames, stack->location);
        assert_int_equal(location->line, backtrace->lines[depth - 1]);
        mpp_view_t name = mpp_strtab_view(&strings, mpp_frames_get_function(&frames, location->function)->name);
        assert_int_equal(strtoul(name.bytes + 1, NULL, 10), backtrace->functions[depth - 1]);
        id = stack->parent;
    }
    assert_int_equal(id, 0);
}

static void
test_random_against_model(void **state)
{
    (void)state;
    support_random_t random = {23};
    start(5000);
    for (int step = 0; step < 20000; step++) {
        held_t *backtrace = &held[support_below(&random, MAX_HELD)];
        if (backtrace->stack != 0) {
            check_whole(backtrace);
            mpp_frames_release_stack(&frames, backtrace->stack);
            backtrace->stack = 0;
        } else {
            backtrace->depth = 1 + support_below(&random, MAX_DEPTH);
            for (uint32_t depth = 0; depth < backtrace->depth; depth++) {
                backtrace->functions[depth] = (uint8_t)support_below(&random, depth < 6 ? 2 : 40);
                backtrace->lines[depth] = (uint8_t)support_below(&random, depth < 6 ? 2 : 40);
            }
            backtrace->stack = push_whole(backtrace);
            assert_int_equal(push_whole(backtrace), backtrace->stack);
            mpp_frames_release_stack(&frames, backtrace->stack);
        }
        if (step % 500 == 0) assert_int_equal(frames.stacks.n_used, count_prefixes());
    }
    for (int i = 0; i < MAX_HELD; i++) {
        mpp_frames_release_stack(&frames, held[i].stack);
        held[i].stack = 0;
    }
    assert_counts(0, 0, 0, 0);
    finish();
}

typedef struct {
    uint32_t counts[4];
} counts_t;

static counts_t
counts(void)
{
    return (counts_t){
        {mpp_strtab_count(&strings), frames.functions.n_used, frames.locations.n_used, frames.stacks.n_used}};
}

/* Every call is refused or does all of its work; what was refused leaves no trace in any of the four tables. */
static void
refused_scenario(mpp_budget_t *failing)
{
    if (support_refused(mpp_strtab_init(&strings, &failing->allocator, 1000))) return;
    if (support_refused(mpp_frames_init(&frames, &failing->allocator, &strings, 1000))) {
        mpp_strtab_cleanup(&strings);
        return;
    }
    mpp_id_t stacks[20] = {0};
    for (int32_t i = 0; i < 20; i++) {
        char name[8];
        int length = snprintf(name, sizeof(name), "f%d", (int)i);
        counts_t before = counts();
        mpp_id_t of = 0;
        mpp_view_t view = {name, (size_t)length};
        if (support_refused(mpp_frames_function(&frames, view, MPP_VIEW("a.rb"), i, &of))) {
            counts_t after = counts();
            assert_memory_equal(&after, &before, sizeof(before));
            assert_int_equal(of, 0);
            continue;
        }
        before = counts();
        if (support_refused(mpp_frames_push(&frames, i % 5 == 0 ? 0 : stacks[i - 1], of, i, &stacks[i]))) {
            counts_t after = counts();
            assert_memory_equal(&after, &before, sizeof(before));
            assert_int_equal(stacks[i], 0);
        }
        mpp_frames_release_function(&frames, of);
    }
    for (int i = 0; i < 20; i++) mpp_frames_release_stack(&frames, stacks[i]);
    assert_counts(0, 0, 0, 0);
    assert_int_equal(frames_bytes() + mpp_strtab_bytes(&strings), failing->used_bytes);
    mpp_frames_cleanup(&frames);
    mpp_strtab_cleanup(&strings);
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
        cmocka_unit_test(test_functions_are_interned),
        cmocka_unit_test(test_function_without_a_file),
        cmocka_unit_test(test_function_in_another_file),
        cmocka_unit_test(test_function_dies_with_its_last_reference),
        cmocka_unit_test(test_stacks_share_their_roots),
        cmocka_unit_test(test_release_goes_down_the_chain),
        cmocka_unit_test(test_very_deep_stack),
        cmocka_unit_test(test_colliding_functions),
        cmocka_unit_test(test_colliding_locations_and_stacks),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_growth_boundaries),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("frames", tests, NULL, NULL);
}
