#include "support.h"

#include "resolver.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 200 };

static mpp_budget_t budget;
static mpp_strtab_t strings;
static mpp_frames_t frames;
static mpp_resolver_t resolver;

static void
start(void)
{
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(mpp_strtab_init(&strings, &budget.allocator, 100000), MPP_OK);
    assert_int_equal(mpp_frames_init(&frames, &budget.allocator, &strings, 100000), MPP_OK);
    assert_int_equal(mpp_resolver_init(&resolver, &budget.allocator, &frames, MAX_DEPTH), MPP_OK);
}

/* Nothing may be left in the tables but what the test itself still holds: no reference was lost or taken twice. */
static void
end(void)
{
    mpp_resolver_cleanup(&resolver);
    assert_int_equal(frames.stacks.n_used, 0);
    assert_int_equal(frames.locations.n_used, 0);
    assert_int_equal(frames.functions.n_used, 0);
    assert_int_equal(mpp_strtab_count(&strings), 0);
    mpp_frames_cleanup(&frames);
    mpp_strtab_cleanup(&strings);
    support_assert_no_leak(&budget);
}

/* Frames 0 … 9 of the host program; those from FIRST_IN_C on have no file. */
enum { N_FRAMES = 10, FIRST_IN_C = 8 };

static uintptr_t
key_of(uint32_t n)
{
    return 4096 + (uintptr_t)n * 40;
}

static mpp_status_t
try_define(uint32_t n, uint32_t name)
{
    char bytes[16];
    int length = snprintf(bytes, sizeof(bytes), "f%u", (unsigned)name);
    mpp_view_t filename = n < FIRST_IN_C ? MPP_VIEW("a.rb") : MPP_VIEW("");
    return mpp_resolver_define(&resolver, key_of(n), (mpp_view_t){bytes, (size_t)length}, filename, 1);
}

static void
define(uint32_t n, uint32_t name)
{
    assert_int_equal(try_define(n, name), MPP_OK);
}

/* A backtrace of the test, written root first: frame numbers and lines. */
typedef struct {
    uint32_t frames[MAX_DEPTH];
    int lines[MAX_DEPTH];
    uint32_t n;
    bool truncated;
} path_t;

static mpp_status_t
try_resolve(const path_t *path, mpp_id_t *stack)
{
    uintptr_t keys[MAX_DEPTH];
    int lines[MAX_DEPTH];
    for (uint32_t depth = 0; depth < path->n; depth++) {
        keys[path->n - 1 - depth] = key_of(path->frames[depth]);
        lines[path->n - 1 - depth] = path->lines[depth];
    }
    return mpp_resolver_resolve(&resolver, &(mpp_backtrace_t){keys, lines, path->n, path->truncated}, stack);
}

static mpp_id_t
resolve(const path_t *path)
{
    mpp_id_t stack = 77;
    assert_int_equal(try_resolve(path, &stack), MPP_OK);
    return stack;
}

static void
release(mpp_id_t stack)
{
    mpp_frames_release_stack(&frames, stack);
}

static const mpp_location_t *
location_of(mpp_id_t stack)
{
    return mpp_frames_get_location(&frames, mpp_frames_get_stack(&frames, stack)->location);
}

static bool
is_string(mpp_id_t id, const char *expected)
{
    mpp_view_t view = mpp_strtab_view(&strings, id);
    return view.length == strlen(expected) && memcmp(view.bytes, expected, view.length) == 0;
}

static bool
has_name(mpp_id_t stack, const char *name)
{
    return is_string(mpp_frames_get_function(&frames, location_of(stack)->function)->name, name);
}

/* Where each frame of a path must be shown: one in C where its caller is, if it has one. */
static void
place(const path_t *path, int *lines, bool *has_file)
{
    int line = 0;
    bool file = false;
    for (uint32_t depth = 0; depth < path->n; depth++) {
        bool in_c = path->frames[depth] >= FIRST_IN_C, has_caller = depth > 0 || path->truncated;
        if (!in_c || !has_caller) line = path->lines[depth];
        if (!in_c) file = true;
        lines[depth] = line;
        has_file[depth] = file;
    }
}

/* Reads the stack back. names[n] is the function that frame n stands for. */
static void
assert_is(mpp_id_t stack, const path_t *path, const uint32_t *names)
{
    int lines[MAX_DEPTH];
    bool has_file[MAX_DEPTH];
    place(path, lines, has_file);
    for (uint32_t depth = path->n; depth-- > 0;) {
        char name[16];
        mpp_id_t function = location_of(stack)->function;
        snprintf(name, sizeof(name), "f%u", (unsigned)names[path->frames[depth]]);
        assert_true(has_name(stack, name));
        assert_true(is_string(mpp_frames_get_function(&frames, function)->filename, has_file[depth] ? "a.rb" : ""));
        assert_int_equal(location_of(stack)->line, lines[depth]);
        stack = mpp_frames_get_stack(&frames, stack)->parent;
    }
    if (path->truncated) {
        assert_true(has_name(stack, "(truncated)"));
        stack = mpp_frames_get_stack(&frames, stack)->parent;
    }
    assert_int_equal(stack, 0);
}

static uint32_t
references(mpp_id_t stack)
{
    return mpp_frames_get_stack(&frames, stack)->references;
}

static const uint32_t same_names[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
static const path_t three = {.frames = {1, 2, 3}, .lines = {10, 20, 30}, .n = 3};

static void
define_ten(void)
{
    for (uint32_t n = 0; n < N_FRAMES; n++) define(n, n);
}

static void
test_no_frames(void **state)
{
    (void)state;
    start();
    mpp_id_t stack = resolve(&(path_t){.n = 0});
    assert_true(has_name(stack, "(no frames)"));
    assert_int_equal(mpp_frames_get_stack(&frames, stack)->depth, 1);
    mpp_id_t cut = resolve(&(path_t){.n = 0, .truncated = true});
    assert_true(has_name(cut, "(truncated)"));
    release(stack);
    release(cut);
    end();
    mpp_resolver_t zeroed = {0};
    mpp_resolver_cleanup(&zeroed);
}

static void
test_leaf_is_the_deepest(void **state)
{
    (void)state;
    start();
    define_ten();
    mpp_id_t stack = resolve(&three);
    assert_is(stack, &three, same_names);
    assert_int_equal(mpp_frames_get_stack(&frames, stack)->depth, 3);
    release(stack);
    end();
}

static void
test_truncated_has_a_root_of_its_own(void **state)
{
    (void)state;
    path_t cut = three;
    cut.truncated = true;
    start();
    define_ten();
    mpp_id_t whole = resolve(&three), truncated = resolve(&cut), again = resolve(&three);
    assert_is(truncated, &cut, same_names);
    assert_int_not_equal(whole, truncated);
    assert_int_equal(whole, again);
    release(whole);
    release(truncated);
    release(again);
    end();
}

static void
test_a_frame_in_c_stands_where_its_caller_is(void **state)
{
    (void)state;
    const path_t paths[] = {
        {.frames = {1, 8}, .lines = {10, 99}, .n = 2},
        {.frames = {1, 8, 9, 2, 9}, .lines = {10, 98, 99, 20, 97}, .n = 5},
        {.frames = {8, 9, 1}, .lines = {7, 8, 10}, .n = 3},
        {.frames = {8, 1}, .lines = {7, 10}, .n = 2, .truncated = true},
    };
    start();
    define_ten();
    for (size_t i = 0; i < SUPPORT_LENGTH(paths); i++) {
        mpp_id_t stack = resolve(&paths[i]);
        assert_is(stack, &paths[i], same_names);
        release(stack);
    }
    end();
}

static void
test_one_reference_for_the_caller_and_one_for_the_memo(void **state)
{
    (void)state;
    path_t two = three, other = three;
    two.n = 2;
    other.lines[2]++;
    start();
    define_ten();
    mpp_id_t stack = resolve(&three);
    assert_int_equal(references(stack), 2);
    assert_int_equal(resolve(&three), stack);
    assert_int_equal(references(stack), 3);
    mpp_id_t shorter = resolve(&two);
    assert_int_equal(shorter, mpp_frames_get_stack(&frames, stack)->parent);
    assert_int_equal(references(shorter), 2);

    mpp_id_t sibling = resolve(&other);
    assert_int_equal(references(sibling), 2);
    assert_int_equal(references(stack), 2);
    assert_int_equal(references(shorter), 3);
    release(stack);
    release(stack);
    release(shorter);
    release(sibling);
    end();
}

static void
test_unknown_frame(void **state)
{
    (void)state;
    path_t path = three;
    start();
    for (uint32_t n = 1; n < 4; n++) {
        assert_false(mpp_resolver_knows(&resolver, key_of(n)));
        assert_int_equal(resolve(&path), 0);
        assert_int_equal(resolve(&path), 0);
        define(n, n);
        assert_true(mpp_resolver_knows(&resolver, key_of(n)));
    }
    mpp_id_t stack = resolve(&path);
    assert_is(stack, &path, same_names);
    path.frames[1] = 9;
    assert_int_equal(resolve(&path), 0);
    assert_int_equal(resolve(&three), stack);
    release(stack);
    release(stack);
    end();
}

static void
test_a_defined_key_keeps_its_function(void **state)
{
    (void)state;
    start();
    define_ten();
    define(1, 9);
    mpp_id_t stack = resolve(&three);
    assert_is(stack, &three, same_names);
    release(stack);
    end();
}

static void
test_a_key_may_stand_for_another_function_later(void **state)
{
    (void)state;
    const uint32_t new_names[] = {0, 1, 8, 3};
    start();
    define_ten();
    mpp_id_t old = resolve(&three);
    mpp_resolver_forget(&resolver, key_of(2));
    assert_false(mpp_resolver_knows(&resolver, key_of(2)));
    assert_int_equal(resolve(&three), 0);
    define(2, 8);
    mpp_id_t new = resolve(&three);
    assert_is(new, &three, new_names);
    assert_is(old, &three, same_names);
    mpp_resolver_forget(&resolver, key_of(99));
    release(old);
    release(new);
    end();
}

static void
test_forget_all(void **state)
{
    (void)state;
    start();
    define_ten();
    mpp_id_t stack = resolve(&three);
    mpp_resolver_forget_all(&resolver);
    for (uint32_t n = 0; n < N_FRAMES; n++) assert_false(mpp_resolver_knows(&resolver, key_of(n)));
    assert_int_equal(resolve(&three), 0);
    assert_int_equal(references(stack), 1);
    release(stack);
    assert_int_equal(frames.functions.n_used, 2);
    end();
}

static void
note_visit(void *context, uintptr_t key)
{
    bool *visited = context;
    for (uint32_t n = 0; n < N_FRAMES; n++) visited[n] |= key == key_of(n);
}

/* Frames 1, 2, 3 are matched in the memo all the time, 4 is not used. */
static void
test_sweep_keeps_what_only_the_memo_saw(void **state)
{
    (void)state;
    const bool kept[N_FRAMES] = {false, true, true, true};
    start();
    define_ten();
    for (int cycle = 0; cycle < 5; cycle++) {
        bool visited[N_FRAMES] = {false};
        for (int i = 0; i < 10; i++) {
            mpp_id_t stack = resolve(&three);
            assert_is(stack, &three, same_names);
            release(stack);
        }
        mpp_resolver_sweep(&resolver, note_visit, visited);
        for (uint32_t n = 0; n < N_FRAMES; n++) assert_int_equal(visited[n], cycle == 0 || kept[n]);
    }
    assert_int_equal(resolver.functions.n_used, 3);
    end();
}

static void
test_pruning_keeps_what_only_the_memo_saw(void **state)
{
    (void)state;
    start();
    define_ten();
    for (int cycle = 0; cycle < 5; cycle++) {
        for (int i = 0; i < 10; i++) {
            mpp_id_t stack = resolve(&three);
            assert_is(stack, &three, same_names);
            release(stack);
        }
        mpp_resolver_prune(&resolver, UINT32_MAX);
        assert_int_equal(resolver.functions.n_used, cycle == 0 ? N_FRAMES : 3);
    }
    mpp_resolver_prune(&resolver, UINT32_MAX);
    assert_int_equal(resolver.functions.n_used, 0);
    assert_int_equal(frames.functions.n_used, 2);
    end();
}

static uintptr_t
move_frames(void *context, uintptr_t key)
{
    (void)context;
    return key == key_of(2) ? key_of(7) : key == key_of(7) ? key_of(2) : key;
}

static void
test_rekey(void **state)
{
    (void)state;
    const uint32_t new_names[] = {0, 1, 7, 3, 4, 5, 6, 2};
    path_t moved = three;
    moved.frames[1] = 7;
    start();
    define_ten();
    mpp_id_t before = resolve(&three);
    mpp_resolver_rekey(&resolver, move_frames, NULL);
    mpp_id_t after = resolve(&moved), other = resolve(&three);
    assert_int_equal(after, before);
    assert_is(other, &three, new_names);
    release(before);
    release(after);
    release(other);
    end();
}

static void
test_depths(void **state)
{
    (void)state;
    const uint32_t depths[] = {1, 63, 64, 65, 128, 129, MAX_DEPTH, 3};
    static const mpp_backtrace_t too_deep = {.n = MAX_DEPTH + 1};
    mpp_id_t stack;
    start();
    define_ten();
    for (size_t i = 0; i < SUPPORT_LENGTH(depths); i++) {
        path_t path = {.n = depths[i]};
        for (uint32_t depth = 0; depth < path.n; depth++) path.frames[depth] = (depth + path.n) % N_FRAMES;
        stack = resolve(&path);
        assert_is(stack, &path, same_names);
        release(stack);
    }
    assert_int_equal(resolver.last.capacity, MAX_DEPTH);
    assert_int_equal(mpp_resolver_resolve(&resolver, &too_deep, &stack), MPP_FULL);
    assert_int_equal(stack, 0);
    end();
}

/* Changes a path as calls, returns and steps to the next line do, mostly near the leaf. */
static void
mutate(path_t *path, support_random_t *random)
{
    uint32_t n_cut = support_chance(random, 1, 20) ? support_below(random, MAX_DEPTH) : support_below(random, 4);
    uint32_t n_added = support_chance(random, 1, 20) ? support_below(random, 50) : support_below(random, 5);
    path->n -= n_cut < path->n ? n_cut : path->n;
    for (; n_added && path->n < MAX_DEPTH; n_added--) {
        path->frames[path->n] = support_below(random, N_FRAMES);
        path->lines[path->n++] = (int)support_below(random, 3) - 1;
    }
    if (path->n && support_chance(random, 1, 3)) path->lines[path->n - 1] = (int)support_below(random, 3);
    if (path->n && support_chance(random, 1, 10)) path->lines[support_below(random, path->n)] = 7;
    if (path->n && support_chance(random, 1, 10)) path->frames[support_below(random, path->n)] = 5;
    if (support_chance(random, 1, 15)) path->truncated = !path->truncated;
}

/* Deaths, moves and sweeps, which all the names follow. names[n] is 0 if frame n has no function. */
static void
disturb(uint32_t *names, uint32_t next_name, support_random_t *random)
{
    bool visited[N_FRAMES] = {false};
    uint32_t n = support_below(random, N_FRAMES), moved = names[2];
    switch (support_below(random, 20)) {
    case 0: mpp_resolver_forget_all(&resolver); break;
    case 1:
        mpp_resolver_sweep(&resolver, note_visit, visited);
        for (uint32_t i = 0; i < N_FRAMES; i++) assert_true(visited[i] == mpp_resolver_knows(&resolver, key_of(i)));
        break;
    case 2:
        mpp_resolver_rekey(&resolver, move_frames, NULL);
        names[2] = names[7];
        names[7] = moved;
        break;
    case 3: mpp_resolver_forget(&resolver, key_of(n)); break;
    default: break;
    }
    for (uint32_t i = 0; i < N_FRAMES; i++) {
        if (!mpp_resolver_knows(&resolver, key_of(i))) names[i] = 0;
    }
    for (uint32_t i = 0; i < N_FRAMES; i++) {
        if (!names[i] && support_chance(random, 1, 2)) define(i, names[i] = next_name + i);
    }
}

static void
test_any_order_of_backtraces_and_disturbances(void **state)
{
    (void)state;
    support_random_t random = {3};
    path_t path = {.n = 0};
    uint32_t names[N_FRAMES] = {0}, n_resolved = 0;
    mpp_id_t kept[64] = {0};
    start();
    for (uint32_t step = 1; step < 40000; step++) {
        bool is_known = true;
        mutate(&path, &random);
        disturb(names, step * 10, &random);
        for (uint32_t depth = 0; depth < path.n; depth++) is_known &= names[path.frames[depth]] != 0;

        mpp_id_t stack = resolve(&path);
        assert_int_equal(stack != 0, is_known);
        if (!is_known) continue;
        if (path.n) assert_is(stack, &path, names);
        release(kept[step % 64]);
        kept[step % 64] = stack;
        n_resolved++;
    }
    assert_true(n_resolved > 10000);
    for (uint32_t i = 0; i < 64; i++) release(kept[i]);
    end();
}

/* What was refused is tried again: the refusal must have left the memo right. */
static void
resolve_under_refusals(mpp_budget_t *refusing)
{
    mpp_id_t stack;
    strings = (mpp_strtab_t){0};
    frames = (mpp_frames_t){0};
    resolver = (mpp_resolver_t){0};
    bool refused = support_refused(mpp_strtab_init(&strings, &refusing->allocator, 3000)) ||
                   support_refused(mpp_frames_init(&frames, &refusing->allocator, &strings, 3000)) ||
                   support_refused(mpp_resolver_init(&resolver, &refusing->allocator, &frames, MAX_DEPTH));
    if (refused) resolver = (mpp_resolver_t){0}; /* it owns nothing, so nothing may be missed below */
    for (uint32_t n = 0; n < N_FRAMES && !refused; n++) {
        bool undefined = support_refused(try_define(n, n)) && support_refused(try_define(n, n));
        assert_int_equal(mpp_resolver_knows(&resolver, key_of(n)), !undefined);
    }
    for (uint32_t i = 0; i < 12 && !refused; i++) {
        path_t path = {.n = 3 + i * 9};
        for (uint32_t depth = 0; depth < path.n; depth++) {
            path.frames[depth] = depth % N_FRAMES;
            path.lines[depth] = (int)(depth > 3 * i ? i : 0);
        }
        if (support_refused(try_resolve(&path, &stack))) {
            assert_int_equal(stack, 0);
            if (support_refused(try_resolve(&path, &stack))) continue;
        }
        if (stack) assert_is(stack, &path, same_names);
        if (stack) assert_int_equal(references(stack), 2);
        release(stack);
    }
    mpp_resolver_cleanup(&resolver);
    assert_int_equal(frames.stacks.n_used, 0);
    assert_int_equal(frames.functions.n_used, 0);
    assert_int_equal(strings.slab.n_used, 0);
    mpp_frames_cleanup(&frames);
    mpp_strtab_cleanup(&strings);
}

static void
test_every_allocation_failing(void **state)
{
    (void)state;
    support_sweep_failures(resolve_under_refusals);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_frames),
        cmocka_unit_test(test_leaf_is_the_deepest),
        cmocka_unit_test(test_truncated_has_a_root_of_its_own),
        cmocka_unit_test(test_a_frame_in_c_stands_where_its_caller_is),
        cmocka_unit_test(test_one_reference_for_the_caller_and_one_for_the_memo),
        cmocka_unit_test(test_unknown_frame),
        cmocka_unit_test(test_a_defined_key_keeps_its_function),
        cmocka_unit_test(test_a_key_may_stand_for_another_function_later),
        cmocka_unit_test(test_forget_all),
        cmocka_unit_test(test_sweep_keeps_what_only_the_memo_saw),
        cmocka_unit_test(test_pruning_keeps_what_only_the_memo_saw),
        cmocka_unit_test(test_rekey),
        cmocka_unit_test(test_depths),
        cmocka_unit_test(test_any_order_of_backtraces_and_disturbances),
        cmocka_unit_test(test_every_allocation_failing),
    };
    return cmocka_run_group_tests_name("resolver", tests, NULL, NULL);
}
