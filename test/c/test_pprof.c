#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "support_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* -- what is encoded -- */

/* As MPP_VIEW, for static initialisers. */
#define TEXT(literal)                                                                                                  \
    {                                                                                                                  \
        (literal), sizeof(literal) - 1                                                                                 \
    }

#define WHOLE(number) ((mpp_sum_t)(number) << 32)
#define HUNDREDTHS(number) (WHOLE(number) / 100)

static mpp_view_t
view_of(const char *text)
{
    return (mpp_view_t){text, strlen(text)};
}

static mpp_id_t
string(support_world_t *world, const char *text)
{
    return support_world_string(world, view_of(text));
}

static mpp_id_t
push_view(support_world_t *world, mpp_id_t parent, mpp_view_t name, const char *file, int32_t start_line, int32_t line)
{
    return support_world_push(world, parent, name, view_of(file), start_line, line);
}

static mpp_id_t
push(support_world_t *world, mpp_id_t parent, const char *name, const char *file, int32_t start_line, int32_t line)
{
    return push_view(world, parent, view_of(name), file, start_line, line);
}

static mpp_snapshot_row_t *
add_whole_row(support_world_t *world, mpp_id_t stack, mpp_id_t class_name, uint64_t a, uint64_t b, uint64_t c,
              uint64_t d)
{
    return support_world_add_row(world, stack, class_name, (mpp_sum_t[]){WHOLE(a), WHOLE(b), WHOLE(c), WHOLE(d)});
}

/* -- encoding -- */

static const mpp_value_type_t four_types[] = {
    {TEXT("allocations"), TEXT("count"), MPP_ALLOCATED_COUNT},
    {TEXT("allocation_size"), TEXT("bytes"), MPP_ALLOCATED_BYTES},
    {TEXT("retained_objects"), TEXT("count"), MPP_RETAINED_COUNT},
    {TEXT("retained_size"), TEXT("bytes"), MPP_RETAINED_BYTES},
};

static const mpp_view_t two_comments[] = {TEXT("first comment"), TEXT("second: café")};

static mpp_pprof_options_t
options_with(mpp_class_mode_t class_mode)
{
    return (mpp_pprof_options_t){
        .value_types = four_types,
        .n_value_types = 4,
        .class_mode = class_mode,
        .default_sample_type = TEXT("retained_size"),
        .period_type = TEXT("allocations"),
        .period_unit = TEXT("count"),
        .period = 100,
        .time_ns = INT64_C(1700000000123456789),
        .duration_ns = 1500000000,
        .mapping_file = TEXT("/app/program.rb"),
        .comments = two_comments,
        .n_comments = 2,
        .compression_level = 6,
    };
}

static void
encode(const support_world_t *world, const mpp_pprof_options_t *options, support_pprof_t *profile)
{
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    support_sink_t sink = {0};
    assert_int_equal(support_world_encode(world, options, &budget, &sink), MPP_OK);
    support_pprof_read(profile, &sink);
    support_pprof_assert_valid(profile);
    support_sink_free(&sink);
}

static void
encode_mode(const support_world_t *world, mpp_class_mode_t class_mode, support_pprof_t *profile)
{
    mpp_pprof_options_t options = options_with(class_mode);
    encode(world, &options, profile);
}

static void
assert_string(const support_pprof_t *profile, uint64_t index, mpp_view_t expected)
{
    assert_true(index < profile->n_strings);
    assert_int_equal(profile->strings[index].length, expected.length);
    if (expected.length) assert_memory_equal(profile->strings[index].bytes, expected.bytes, expected.length);
}

/* What is said twice, in the options or the tables, is written once. */
static void
assert_strings_unique(const support_pprof_t *profile)
{
    for (size_t i = 0; i < profile->n_strings; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(support_pprof_string(profile, i), support_pprof_string(profile, k));
        }
    }
}

/* A sample must be just what the row says, with the class as a label. */
static void
assert_labelled_sample(const support_world_t *world, const mpp_snapshot_row_t *row, const support_pprof_t *profile,
                       size_t index)
{
    assert_true(index < profile->n_samples);
    const support_sample_t *sample = &profile->samples[index];
    size_t n = 0;
    for (mpp_id_t stack = row->stack; stack != 0; n++) {
        const mpp_stack_t *node = mpp_frames_get_stack(&world->frames, stack);
        const mpp_location_t *expected = mpp_frames_get_location(&world->frames, node->location);
        const mpp_function_t *expected_function = mpp_frames_get_function(&world->frames, expected->function);
        assert_true(n < sample->n_locations);
        const support_location_t *location = &profile->locations[sample->locations[n] - 1];
        const support_function_t *function = &profile->functions[location->function - 1];
        assert_int_equal((int64_t)location->line, expected->line);
        assert_int_equal((int64_t)function->start_line, expected_function->start_line);
        assert_string(profile, function->name, mpp_strtab_view(&world->strings, expected_function->name));
        assert_string(profile, function->filename, mpp_strtab_view(&world->strings, expected_function->filename));
        stack = node->parent;
    }
    assert_int_equal(sample->n_locations, n);
    for (size_t i = 0; i < MPP_N_VALUES; i++) assert_int_equal(sample->values[i], (uint64_t)(row->values[i] >> 32));
    assert_int_equal(sample->n_labels, row->class_name ? 1 : 0);
    if (!row->class_name) return;
    assert_string(profile, sample->labels[0].key, MPP_VIEW("class"));
    assert_string(profile, sample->labels[0].str, mpp_strtab_view(&world->strings, row->class_name));
}

static void
assert_labelled_samples(const support_world_t *world, const support_pprof_t *profile)
{
    assert_int_equal(profile->n_samples, world->n_rows);
    for (uint32_t i = 0; i < world->n_rows; i++) assert_labelled_sample(world, &world->rows[i], profile, i);
}

/* Three frames, two classes, a C function without a file. */
static void
small_world(support_world_t *world)
{
    support_world_init(world, 8, 1024);
    mpp_id_t main_stack = push(world, 0, "<main>", "/app/program.rb", 0, 12);
    mpp_id_t call = push(world, main_stack, "Foo::Bar#<=>", "/app/foo.rb", 3, 7);
    mpp_id_t leaf = push(world, call, "Array#each", "", 0, 0);
    mpp_id_t string_class = string(world, "String"), hash_class = string(world, "Hash");
    add_whole_row(world, leaf, string_class, 10, 400, 2, 80);
    add_whole_row(world, leaf, hash_class, 1, 168, 1, 168);
    add_whole_row(world, call, string_class, 300, 12000, 0, 0);
    add_whole_row(world, main_stack, 0, 5, 200, 0, 0);
}

/* -- tests -- */

static void
test_no_rows(void **state)
{
    (void)state;
    for (int mode = MPP_CLASS_LABEL; mode <= MPP_CLASS_OFF; mode++) {
        support_world_t world;
        support_pprof_t profile;
        support_world_init(&world, 0, 1024);
        encode_mode(&world, (mpp_class_mode_t)mode, &profile);
        assert_int_equal(profile.n_samples, 0);
        assert_int_equal(profile.n_locations, 0);
        assert_int_equal(profile.n_functions, 0);
        support_pprof_free(&profile);
        support_world_cleanup(&world);
    }
}

static void
test_head(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    support_world_init(&world, 0, 1024);
    encode_mode(&world, MPP_CLASS_LABEL, &profile);

    assert_int_equal(profile.n_sample_types, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string(&profile, profile.sample_types[i].type, four_types[i].type);
        assert_string(&profile, profile.sample_types[i].unit, four_types[i].unit);
    }
    assert_string(&profile, profile.period_type.type, MPP_VIEW("allocations"));
    assert_string(&profile, profile.period_type.unit, MPP_VIEW("count"));
    assert_string(&profile, profile.default_sample_type, MPP_VIEW("retained_size"));
    assert_int_equal(profile.period, 100);
    assert_int_equal(profile.time_nanos, INT64_C(1700000000123456789));
    assert_int_equal(profile.duration_nanos, 1500000000);
    assert_int_equal(profile.n_comments, 2);
    for (size_t i = 0; i < 2; i++) assert_string(&profile, profile.comments[i], two_comments[i]);
    assert_string(&profile, profile.mappings[0].filename, MPP_VIEW("/app/program.rb"));
    assert_int_equal(profile.mappings[0].has_functions, 1);
    assert_int_equal(profile.mappings[0].has_filenames, 1);
    assert_int_equal(profile.mappings[0].has_line_numbers, 1);
    assert_int_equal(profile.mappings[0].has_inline_frames, 0);
    assert_strings_unique(&profile);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

/* Eight value types, each string different, and everything that may be left out left out. */
static void
test_most_and_least_options(void **state)
{
    (void)state;
    static const mpp_value_type_t eight_types[] = {
        {TEXT("t0"), TEXT("u0"), 0}, {TEXT("t1"), TEXT("u1"), 1}, {TEXT("t2"), TEXT("u2"), 2},
        {TEXT("t3"), TEXT("u3"), 3}, {TEXT("t4"), TEXT("u4"), 3}, {TEXT("t5"), TEXT("u5"), 2},
        {TEXT("t6"), TEXT("u6"), 1}, {TEXT("t7"), TEXT("u7"), 0},
    };
    support_world_t world;
    support_pprof_t profile;
    small_world(&world);
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    options.value_types = eight_types;
    options.n_value_types = 8;
    options.default_sample_type = MPP_VIEW("another");
    options.period_type = MPP_VIEW("pt");
    options.period_unit = MPP_VIEW("pu");
    encode(&world, &options, &profile);
    assert_string_equal(support_pprof_sample_text(&profile, 1),
                        "Array#each < Foo::Bar#<=> < <main> [class=Hash]: 1 168 1 168 168 1 168 1");
    assert_string(&profile, profile.sample_types[7].unit, MPP_VIEW("u7"));
    support_pprof_free(&profile);

    options = (mpp_pprof_options_t){
        .value_types = eight_types, .n_value_types = 1, .class_mode = MPP_CLASS_OFF, .compression_level = 1};
    encode(&world, &options, &profile);
    assert_int_equal(profile.default_sample_type, 0);
    assert_int_equal(profile.n_comments, 0);
    assert_int_equal(profile.n_samples, 3);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

static void
test_class_label(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    small_world(&world);
    encode_mode(&world, MPP_CLASS_LABEL, &profile);
    assert_labelled_samples(&world, &profile);
    assert_strings_unique(&profile);
    assert_string_equal(support_pprof_sample_text(&profile, 0),
                        "Array#each < Foo::Bar#<=> < <main> [class=String]: 10 400 2 80");
    assert_string_equal(support_pprof_sample_text(&profile, 3), "<main>: 5 200 0 0");
    assert_int_equal(profile.n_locations, 3);
    assert_int_equal(profile.n_functions, 3);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

static void
test_class_frame(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    small_world(&world);
    encode_mode(&world, MPP_CLASS_FRAME, &profile);
    assert_int_equal(profile.n_samples, 4);
    assert_string_equal(support_pprof_sample_text(&profile, 0),
                        "String < Array#each < Foo::Bar#<=> < <main>: 10 400 2 80");
    assert_string_equal(support_pprof_sample_text(&profile, 1),
                        "Hash < Array#each < Foo::Bar#<=> < <main>: 1 168 1 168");
    assert_string_equal(support_pprof_sample_text(&profile, 2), "String < Foo::Bar#<=> < <main>: 300 12000 0 0");
    assert_string_equal(support_pprof_sample_text(&profile, 3), "<main>: 5 200 0 0");
    assert_int_equal(profile.n_locations, 5);
    assert_int_equal(profile.n_functions, 5);
    assert_int_equal(profile.samples[0].locations[0], profile.samples[2].locations[0]);
    const support_location_t *location = &profile.locations[profile.samples[0].locations[0] - 1];
    assert_int_equal(location->line, 0);
    assert_int_equal(profile.functions[location->function - 1].filename, 0);
    assert_int_equal(profile.functions[location->function - 1].start_line, 0);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

static void
test_class_off_merges(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    small_world(&world);
    encode_mode(&world, MPP_CLASS_OFF, &profile);
    assert_int_equal(profile.n_samples, 3);
    assert_string_equal(support_pprof_sample_text(&profile, 0), "<main>: 5 200 0 0");
    assert_string_equal(support_pprof_sample_text(&profile, 1), "Foo::Bar#<=> < <main>: 300 12000 0 0");
    assert_string_equal(support_pprof_sample_text(&profile, 2), "Array#each < Foo::Bar#<=> < <main>: 11 568 3 248");
    support_pprof_free(&profile);

    /* Other labels, another sample. */
    world.rows[1].labels = 1;
    encode_mode(&world, MPP_CLASS_OFF, &profile);
    assert_int_equal(profile.n_samples, 4);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

/* Rows in any order, stacks and labels mixed: each sum appears once. */
static void
test_class_off_merges_many(void **state)
{
    (void)state;
    enum { N_STACKS = 37, N_LABELS = 3, N_ROWS = 2000 };
    support_random_t random = {7};
    for (uint32_t n_rows = 0; n_rows < N_ROWS; n_rows = 2 * n_rows + 1) {
        support_world_t world;
        mpp_id_t stacks[N_STACKS];
        uint64_t sums[N_STACKS][N_LABELS] = {0};
        support_world_init(&world, n_rows, 8192);
        for (int i = 0; i < N_STACKS; i++) stacks[i] = push(&world, 0, "m", "f", 0, i);
        for (uint32_t i = 0; i < n_rows; i++) {
            uint32_t stack = support_below(&random, N_STACKS), labels = support_below(&random, N_LABELS);
            uint64_t value = 1 + support_below(&random, 1000);
            add_whole_row(&world, stacks[stack], 0, value, 0, 0, 0)->labels = labels;
            sums[stack][labels] += value;
        }
        support_pprof_t profile;
        encode_mode(&world, MPP_CLASS_OFF, &profile);

        size_t n_sums = 0, n_found = 0;
        for (int i = 0; i < N_STACKS; i++) {
            for (int k = 0; k < N_LABELS; k++) {
                if (sums[i][k] == 0) continue;
                n_sums++;
                for (size_t s = 0; s < profile.n_samples; s++) {
                    const support_sample_t *sample = &profile.samples[s];
                    uint64_t line = profile.locations[sample->locations[0] - 1].line;
                    if (line == (uint64_t)i && sample->values[0] == sums[i][k]) n_found++;
                }
            }
        }
        assert_int_equal(profile.n_samples, n_sums);
        assert_true(n_found >= n_sums);
        support_pprof_free(&profile);
        support_world_cleanup(&world);
    }
}

static void
test_zero_rows_are_left_out(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    support_world_init(&world, 8, 1024);
    mpp_id_t one = push(&world, 0, "one", "f", 1, 1), two = push(&world, 0, "two", "f", 1, 1);
    mpp_id_t three = push(&world, 0, "three", "f", 1, 1);
    add_whole_row(&world, one, 0, 0, 0, 0, 0);
    add_whole_row(&world, two, 0, 0, 0, 0, 1);
    add_whole_row(&world, three, 0, 1, 1, 0, 0);
    encode_mode(&world, MPP_CLASS_LABEL, &profile);
    assert_int_equal(profile.n_samples, 2);
    assert_int_equal(profile.n_functions, 2);
    support_pprof_free(&profile);

    /* Zero in all that is asked for. */
    mpp_pprof_options_t options = options_with(MPP_CLASS_OFF);
    options.n_value_types = 1;
    encode(&world, &options, &profile);
    assert_int_equal(profile.n_samples, 1);
    assert_string_equal(support_pprof_sample_text(&profile, 0), "three: 1");
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

/* Each row's own rounding would be off by 400, 400, 400 (down) or 600, 300 (nearest). */
static void
test_rounding_carries_remainders(void **state)
{
    (void)state;
    for (int mode = MPP_CLASS_LABEL; mode <= MPP_CLASS_OFF; mode++) {
        support_world_t world;
        support_pprof_t profile;
        support_world_init(&world, 1000, 8192);
        mpp_sum_t exact[MPP_N_VALUES] = {0};
        for (int32_t i = 0; i < 1000; i++) {
            mpp_sum_t values[] = {HUNDREDTHS(40), HUNDREDTHS(160), HUNDREDTHS(70), HUNDREDTHS(i % 100)};
            support_world_add_row(&world, push(&world, 0, "m", "f", 0, i), 0, values);
            for (int k = 0; k < MPP_N_VALUES; k++) exact[k] += values[k];
        }
        encode_mode(&world, (mpp_class_mode_t)mode, &profile);

        uint64_t totals[MPP_N_VALUES] = {0};
        for (size_t i = 0; i < profile.n_samples; i++) {
            for (int k = 0; k < MPP_N_VALUES; k++) totals[k] += profile.samples[i].values[k];
        }
        for (int k = 0; k < MPP_N_VALUES; k++) {
            assert_true(WHOLE(totals[k]) <= exact[k]);
            assert_true(exact[k] - WHOLE(totals[k]) < WHOLE(1));
        }
        support_pprof_free(&profile);
        support_world_cleanup(&world);
    }
}

/* Two halves on one stack are one, before anything is rounded. */
static void
test_merging_comes_before_rounding(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    support_world_init(&world, 4, 1024);
    mpp_id_t one = push(&world, 0, "one", "f", 1, 1), two = push(&world, 0, "two", "f", 1, 1);
    mpp_sum_t half[] = {HUNDREDTHS(50), HUNDREDTHS(50), 0, 0};
    support_world_add_row(&world, one, string(&world, "A"), half);
    support_world_add_row(&world, two, 0, half);
    support_world_add_row(&world, one, string(&world, "B"), half);
    encode_mode(&world, MPP_CLASS_OFF, &profile);
    assert_int_equal(profile.n_samples, 1);
    assert_string_equal(support_pprof_sample_text(&profile, 0), "one: 1 1 0 0");
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

static void
test_extremes(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    support_world_init(&world, 4, 1024);
    mpp_id_t low = push(&world, 0, "low", "f", INT32_MIN, INT32_MIN);
    mpp_id_t high = push(&world, low, "high", "f", INT32_MAX, INT32_MAX);
    mpp_id_t minus = push(&world, high, "minus", "f", -1, -1);
    support_world_add_row(&world, low, 0, (mpp_sum_t[]){WHOLE(INT64_MAX), WHOLE(INT64_MAX - 1), WHOLE(1), 1});
    support_world_add_row(&world, minus, 0,
            (mpp_sum_t[]){WHOLE(INT64_MAX) + WHOLE(1), ~(mpp_sum_t)0, WHOLE(UINT64_MAX), WHOLE(1) - 1});
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    options.period = INT64_MAX;
    options.time_ns = INT64_MAX;
    options.duration_ns = -1;
    encode(&world, &options, &profile);

    assert_int_equal(profile.n_samples, 2);
    assert_string_equal(support_pprof_sample_text(&profile, 0), "low: 9223372036854775807 9223372036854775806 1 0");
    assert_string_equal(support_pprof_sample_text(&profile, 1),
                        "minus < high < low: 9223372036854775807 9223372036854775807 9223372036854775807 1");
    const uint64_t *ids = profile.samples[1].locations;
    static const int64_t lines[] = {0, INT32_MAX, 0}; /* no line is below 1 */
    for (size_t i = 0; i < 3; i++) {
        const support_location_t *location = &profile.locations[ids[i] - 1];
        assert_int_equal((int64_t)location->line, lines[i]);
        assert_int_equal((int64_t)profile.functions[location->function - 1].start_line, lines[i]);
    }
    assert_int_equal(profile.period, INT64_MAX);
    assert_int_equal(profile.time_nanos, INT64_MAX);
    assert_int_equal((int64_t)profile.duration_nanos, -1);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

/* Every number of rows around the ends of the first chunks. */
static void
test_row_counts(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 300; n += n < 90 || n > 130 ? 13 : 1) {
        support_world_t world;
        support_pprof_t profile;
        support_world_init(&world, n, 8192);
        mpp_id_t class_name = string(&world, "String"), trunk = 0;
        for (int32_t i = 0; i < 30; i++) trunk = push(&world, trunk, "trunk", "file", 1, i);
        for (uint32_t i = 0; i < n; i++) {
            add_whole_row(&world, push(&world, trunk, "leaf", "file", 1, (int32_t)i), class_name, i + 1, 0, 1, i);
        }
        encode_mode(&world, MPP_CLASS_LABEL, &profile);
        assert_labelled_samples(&world, &profile);
        support_pprof_free(&profile);
        support_world_cleanup(&world);
    }
}

static mpp_id_t
random_stack(support_world_t *world, support_random_t *random, uint32_t depth)
{
    mpp_id_t stack = 0;
    char name[64], file[64];
    for (uint32_t i = 0; i < depth; i++) {
        uint32_t n = support_below(random, 3000);
        snprintf(name, sizeof(name), "Class%u#method_%u", n % 50, n);
        snprintf(file, sizeof(file), "/app/lib/%u.rb", n % 70);
        stack = push(world, stack, name, n % 9 ? file : "", (int32_t)(n % 100), (int32_t)support_below(random, 5));
    }
    return stack;
}

static void
random_world(support_world_t *world, uint32_t n_rows, uint32_t max_depth, uint64_t seed)
{
    support_random_t random = {seed};
    support_world_init(world, n_rows, 1u << 20);
    for (uint32_t i = 0; i < n_rows; i++) {
        char name[32];
        snprintf(name, sizeof(name), "Class%u", support_below(&random, 40));
        mpp_id_t class_name = support_chance(&random, 9, 10) ? string(world, name) : 0;
        mpp_id_t stack = random_stack(world, &random, 1 + support_below(&random, max_depth));
        add_whole_row(world, stack, class_name, 1 + support_below(&random, 100), support_next(&random) >> 20,
                      support_below(&random, 2), support_next(&random) >> 40);
    }
}

static void
test_random_worlds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        support_world_t world;
        support_pprof_t profile;
        random_world(&world, 300, 50u * (uint32_t)seed, seed);
        encode_mode(&world, MPP_CLASS_LABEL, &profile);
        assert_labelled_samples(&world, &profile);
        support_pprof_free(&profile);
        support_world_cleanup(&world);
    }
}

/* A stack far larger than a chunk, of new functions all the way, then again. */
static void
test_deep_stacks(void **state)
{
    (void)state;
    static const uint32_t depths[] = {1, 8191, 8192, 10000, 100000};
    for (size_t i = 0; i < SUPPORT_LENGTH(depths); i++) {
        support_world_t world;
        support_pprof_t profile;
        support_world_init(&world, 4, 1u << 18);
        mpp_id_t stack = 0;
        for (uint32_t depth = 0; depth < depths[i]; depth++) {
            char name[32];
            snprintf(name, sizeof(name), "method_%u", depth);
            stack = push(&world, stack, name, "/app/deep.rb", 1, (int32_t)depth);
        }
        for (uint64_t row = 1; row <= 2; row++) add_whole_row(&world, stack, 0, row, 0, 0, 0);
        encode_mode(&world, MPP_CLASS_LABEL, &profile);
        assert_labelled_samples(&world, &profile);
        support_pprof_free(&profile);
        support_world_cleanup(&world);
    }
}

static void
test_giant_strings(void **state)
{
    (void)state;
    static const size_t lengths[] = {1000, 65535, 65536, 200000, 3000000};
    for (size_t i = 0; i < SUPPORT_LENGTH(lengths); i++) {
        char *bytes = malloc(lengths[i]);
        assert_non_null(bytes);
        for (int mended = 0; mended < 2; mended++) {
            memset(bytes, 'x', lengths[i]);
            if (mended) bytes[lengths[i] / 2] = '\xff';
            support_world_t world;
            support_pprof_t profile;
            support_world_init(&world, 3, 1024);
            mpp_id_t stack = push(&world, 0, "small", "f", 1, 1);
            stack = push_view(&world, stack, (mpp_view_t){bytes, lengths[i]}, "f", 1, 1);
            add_whole_row(&world, stack, 0, 1, 2, 3, 4);
            encode_mode(&world, MPP_CLASS_LABEL, &profile);
            if (mended) bytes[lengths[i] / 2] = '?';
            assert_string(&profile, profile.functions[0].name, (mpp_view_t){bytes, lengths[i]});
            support_pprof_free(&profile);
            support_world_cleanup(&world);
        }
        free(bytes);
    }
}

static void
test_invalid_utf8_is_mended(void **state)
{
    (void)state;
    static const struct {
        mpp_view_t given, written;
    } cases[] = {
        {TEXT("\xff"), TEXT("?")},
        {TEXT("a\x80z"), TEXT("a?z")},
        {TEXT("caf\xc3"), TEXT("caf?")},
        {TEXT("caf\xc3\xa9"), TEXT("caf\xc3\xa9")},
        {TEXT("\xe2\x82 euro \xe2\x82\xac"), TEXT("?? euro \xe2\x82\xac")},
        {TEXT("\xc0\x80"), TEXT("??")},
        {TEXT("\xed\xa0\x80"), TEXT("???")},
        {TEXT("\xf4\x90\x80\x80"), TEXT("????")},
        {TEXT("a\0b"), TEXT("a\0b")},
        {TEXT("sixteen bytes are read at a time \xfe and so on, for a good while"),
         TEXT("sixteen bytes are read at a time ? and so on, for a good while")},
    };
    support_world_t world;
    support_pprof_t profile;
    support_world_init(&world, SUPPORT_LENGTH(cases), 1024);
    for (size_t i = 0; i < SUPPORT_LENGTH(cases); i++) {
        add_whole_row(&world, push_view(&world, 0, cases[i].given, "", 1, 1), 0, 1, 1, 1, 1);
    }
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    mpp_view_t comment = MPP_VIEW("\xff comment");
    options.comments = &comment;
    options.n_comments = 1;
    encode(&world, &options, &profile);
    for (size_t i = 0; i < SUPPORT_LENGTH(cases); i++) {
        assert_string(&profile, profile.functions[i].name, cases[i].written);
    }
    assert_string(&profile, profile.comments[0], MPP_VIEW("? comment"));
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

static uint64_t
address_of(const support_pprof_t *profile, const char *name, uint64_t line)
{
    for (size_t i = 0; i < profile->n_locations; i++) {
        const support_location_t *location = &profile->locations[i];
        const char *found = support_pprof_string(profile, profile->functions[location->function - 1].name);
        if (location->line == line && strcmp(found, name) == 0) return location->address;
    }
    fail_msg("no location %s", name);
    return 0;
}

/* The same place has the same address whatever its ids are, and in every release. */
static void
test_addresses_are_stable(void **state)
{
    (void)state;
    support_world_t world, other;
    support_pprof_t profile, other_profile;
    small_world(&world);
    support_world_init(&other, 8, 1024);
    for (int32_t i = 0; i < 50; i++) (void)push(&other, 0, "x", "y", 1, i);
    mpp_id_t stack = push(&other, 0, "Array#each", "", 0, 0);
    stack = push(&other, stack, "Foo::Bar#<=>", "/app/foo.rb", 3, 7);
    add_whole_row(&other, stack, string(&other, "String"), 1, 1, 1, 1);
    encode_mode(&world, MPP_CLASS_FRAME, &profile);
    encode_mode(&other, MPP_CLASS_FRAME, &other_profile);

    static const struct {
        const char *name;
        uint64_t line, address;
    } known[] = {
        {"Array#each", 0, UINT64_C(390401098585525258)},
        {"Foo::Bar#<=>", 7, UINT64_C(5512228863317026535)},
        {"String", 0, UINT64_C(1881826474296820854)},
    };
    for (size_t i = 0; i < SUPPORT_LENGTH(known); i++) {
        uint64_t address = address_of(&profile, known[i].name, known[i].line);
        assert_int_equal(address, address_of(&other_profile, known[i].name, known[i].line));
        assert_int_equal(address, known[i].address);
    }
    support_pprof_free(&profile);
    support_pprof_free(&other_profile);
    support_world_cleanup(&world);
    support_world_cleanup(&other);
}

/* Each of what makes up a location changes its address (checked by the reader: all are different). */
static void
test_addresses_differ(void **state)
{
    (void)state;
    support_world_t world;
    support_pprof_t profile;
    support_world_init(&world, 64, 1024);
    static const char *const names[] = {"", "a", "ab", "b"};
    for (uint32_t i = 0; i < 64; i++) {
        mpp_id_t stack = push(&world, 0, names[i & 3], names[i >> 2 & 3], (int32_t)(i >> 4 & 1), (int32_t)(i >> 5 & 1));
        add_whole_row(&world, stack, 0, 1, 1, 1, 1);
    }
    encode_mode(&world, MPP_CLASS_LABEL, &profile);
    assert_int_equal(profile.n_locations, 64);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

/* -- golden bytes: the whole message, byte for byte, the same with every version of upb -- */

static const unsigned char golden_label[] = {
#include "golden/label.inc"
};
static const unsigned char golden_frame[] = {
#include "golden/frame.inc"
};
static const unsigned char golden_off[] = {
#include "golden/off.inc"
};

static void
assert_golden(mpp_class_mode_t class_mode, const unsigned char *golden, size_t n_bytes)
{
    support_world_t world;
    support_pprof_t profile;
    small_world(&world);
    encode_mode(&world, class_mode, &profile);
    bool equal = profile.message_bytes == n_bytes && memcmp(profile.message, golden, n_bytes) == 0;
    for (size_t i = 0; !equal && i < profile.message_bytes; i++) {
        fprintf(stderr, "0x%02x,%c", profile.message[i], i % 16 == 15 || i + 1 == profile.message_bytes ? '\n' : ' ');
    }
    assert_true(equal);
    support_pprof_free(&profile);
    support_world_cleanup(&world);
}

static void
test_golden_label(void **state)
{
    (void)state;
    assert_golden(MPP_CLASS_LABEL, golden_label, sizeof(golden_label));
}

static void
test_golden_frame(void **state)
{
    (void)state;
    assert_golden(MPP_CLASS_FRAME, golden_frame, sizeof(golden_frame));
}

static void
test_golden_off(void **state)
{
    (void)state;
    assert_golden(MPP_CLASS_OFF, golden_off, sizeof(golden_off));
}

static void
test_same_bytes_again(void **state)
{
    (void)state;
    support_world_t world;
    random_world(&world, 1000, 40, 5);
    for (int mode = MPP_CLASS_LABEL; mode <= MPP_CLASS_OFF; mode++) {
        mpp_pprof_options_t options = options_with((mpp_class_mode_t)mode);
        support_sink_t sinks[2] = {0};
        for (int i = 0; i < 2; i++) {
            mpp_budget_t budget;
            mpp_budget_init(&budget, SIZE_MAX);
            assert_int_equal(support_world_encode(&world, &options, &budget, &sinks[i]), MPP_OK);
        }
        assert_int_equal(sinks[0].n_bytes, sinks[1].n_bytes);
        assert_memory_equal(sinks[0].bytes, sinks[1].bytes, sinks[0].n_bytes);
        /* gzip's time of modification */
        assert_memory_equal(sinks[0].bytes + 4, "\0\0\0\0", 4);
        for (int i = 0; i < 2; i++) support_sink_free(&sinks[i]);
    }
    support_world_cleanup(&world);
}

/* -- failures -- */

static support_world_t failing_world;
static mpp_class_mode_t failing_mode;

/* Chunks of every kind: ordinary ones, and a stack and a string that need more than the arena's first block. */
static void
failing_scenario(mpp_budget_t *budget)
{
    support_sink_t sink = {0};
    mpp_pprof_options_t options = options_with(failing_mode);
    if (!support_refused(support_world_encode(&failing_world, &options, budget, &sink))) {
        support_pprof_t profile;
        support_pprof_read(&profile, &sink);
        support_pprof_assert_valid(&profile);
        support_pprof_free(&profile);
    }
    support_sink_free(&sink);
}

static void
test_every_request_refused(void **state)
{
    (void)state;
    char name[150001];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    random_world(&failing_world, 40, 30, 3);
    failing_world.n_rows -= 2;
    mpp_id_t deep = 0;
    for (int32_t i = 0; i < 20000; i++) deep = push(&failing_world, deep, "deep", "f", 1, i & 15);
    add_whole_row(&failing_world, deep, 0, 1, 1, 1, 1);
    add_whole_row(&failing_world, push(&failing_world, 0, name, "f", 1, 1), 0, 1, 1, 1, 1);
    for (int mode = MPP_CLASS_LABEL; mode <= MPP_CLASS_OFF; mode++) {
        failing_mode = (mpp_class_mode_t)mode;
        support_sweep_failures(failing_scenario);
    }
    support_world_cleanup(&failing_world);
}

static void
test_memory_limit(void **state)
{
    (void)state;
    support_world_t world;
    random_world(&world, 1000, 40, 11);
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    bool encoded = false;
    for (size_t limit = 0; !encoded; limit += 16384) {
        mpp_budget_t budget;
        mpp_budget_init(&budget, limit);
        support_sink_t sink = {0};
        mpp_status_t status = support_world_encode(&world, &options, &budget, &sink);
        encoded = status == MPP_OK;
        assert_true(encoded || status == MPP_MEMORY_LIMIT);
        assert_true(budget.peak_bytes <= limit);
        support_sink_free(&sink);
    }
    support_world_cleanup(&world);
}

static void
test_every_output_refused(void **state)
{
    (void)state;
    support_world_t world;
    random_world(&world, 1000, 60, 9);
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    uint32_t n_calls = 0;
    for (uint32_t refuse = 0; refuse <= n_calls; refuse++) {
        mpp_budget_t budget;
        mpp_budget_init(&budget, SIZE_MAX);
        support_sink_t sink = {.refuse_call = refuse};
        assert_int_equal(support_world_encode(&world, &options, &budget, &sink), refuse ? MPP_OUTPUT : MPP_OK);
        if (refuse == 0) n_calls = sink.n_calls;
        assert_int_equal(sink.n_calls, refuse ? refuse : n_calls);
        support_sink_free(&sink);
    }
    assert_true(n_calls >= 3);
    support_world_cleanup(&world);
}

static void
test_bad_compression_level(void **state)
{
    (void)state;
    support_world_t world;
    small_world(&world);
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    support_sink_t sink = {0};
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    options.compression_level = 77;
    assert_int_equal(support_world_encode(&world, &options, &budget, &sink), MPP_ENCODING);
    assert_int_equal(sink.n_calls, 0);
    support_world_cleanup(&world);
}

/* -- while the tables change under it -- */

typedef struct {
    const support_world_t *world;
    support_sink_t expected;
    uint32_t n_different;
    _Atomic bool done;
} reader_t;

static void *
encode_repeatedly(void *argument)
{
    reader_t *reader = argument;
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    for (int i = 0; i < 20; i++) {
        mpp_budget_t budget;
        mpp_budget_init(&budget, SIZE_MAX);
        support_sink_t sink = {0};
        mpp_status_t status = support_world_encode(reader->world, &options, &budget, &sink);
        if (status != MPP_OK || sink.n_bytes != reader->expected.n_bytes ||
            memcmp(sink.bytes, reader->expected.bytes, sink.n_bytes) != 0) {
            reader->n_different++;
        }
        support_sink_free(&sink);
    }
    reader->done = true;
    return NULL;
}

static void
test_tables_change_meanwhile(void **state)
{
    (void)state;
    support_world_t world;
    random_world(&world, 500, 30, 21);
    reader_t reader = {.world = &world};
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    mpp_pprof_options_t options = options_with(MPP_CLASS_LABEL);
    assert_int_equal(support_world_encode(&world, &options, &budget, &reader.expected), MPP_OK);

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, encode_repeatedly, &reader), 0);
    support_random_t random = {22};
    while (!reader.done) {
        mpp_id_t stacks[200];
        for (size_t i = 0; i < SUPPORT_LENGTH(stacks); i++) {
            char name[32];
            snprintf(name, sizeof(name), "%u", support_below(&random, 1u << 20));
            stacks[i] = push(&world, world.rows[support_below(&random, world.n_rows)].stack, name, name, 1, 1);
        }
        for (size_t i = 0; i < SUPPORT_LENGTH(stacks); i++) mpp_frames_release_stack(&world.frames, stacks[i]);
        mpp_frames_trim(&world.frames);
        mpp_strtab_trim(&world.strings);
    }
    pthread_join(thread, NULL);
    assert_int_equal(reader.n_different, 0);
    support_sink_free(&reader.expected);
    support_world_cleanup(&world);
}

/* -- size -- */

static mpp_id_t
push_random_frames(support_world_t *world, support_random_t *random, mpp_id_t stack, uint32_t n)
{
    char name[64], file[64];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t function = support_below(random, 10000);
        snprintf(name, sizeof(name), "Namespace%u::Class%u#method_%u", function % 30, function % 700, function);
        snprintf(file, sizeof(file), "/app/lib/namespace%u/class%u.rb", function % 30, function % 700);
        int32_t start_line = (int32_t)(function % 300);
        stack = push(world, stack, name, file, start_line, start_line + (int32_t)support_below(random, 3));
    }
    return stack;
}

/* 60 frames each: one of 500 trunks of 45 frames, on it one of 40 boughs of 12, and 3 twigs. */
static void
large_world(support_world_t *world, uint32_t n_rows)
{
    enum { N_TRUNKS = 500, N_BOUGHS = 40, N_CLASSES = 50 };
    char name[64];
    support_random_t random = {31};
    support_world_init(world, n_rows, 1u << 24);
    mpp_id_t class_names[N_CLASSES], boughs[N_TRUNKS][N_BOUGHS];
    for (uint32_t i = 0; i < N_CLASSES; i++) {
        snprintf(name, sizeof(name), "Namespace::Class%u", i);
        class_names[i] = string(world, name);
    }
    for (uint32_t i = 0; i < N_TRUNKS; i++) {
        mpp_id_t trunk = push_random_frames(world, &random, 0, 45);
        for (uint32_t k = 0; k < N_BOUGHS; k++) boughs[i][k] = push_random_frames(world, &random, trunk, 12);
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        mpp_id_t bough = boughs[i / N_BOUGHS % N_TRUNKS][i % N_BOUGHS];
        mpp_id_t stack = push_random_frames(world, &random, bough, 3);
        add_whole_row(world, stack, class_names[i % N_CLASSES], 100, 4000 + i % 1000, i % 3, i % 4000);
    }
}

static double
milliseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void
test_large_profile_in_little_memory(void **state)
{
    (void)state;
#if defined(SUPPORT_ADDRESS_SANITIZER) || defined(SUPPORT_THREAD_SANITIZER)
    uint32_t n_rows = 5000;
#else
    uint32_t n_rows = 100000;
#endif
    static const char *const names[] = {"label", "frame", "off"};
    support_world_t world;
    large_world(&world, n_rows);
    for (int mode = MPP_CLASS_LABEL; mode <= MPP_CLASS_OFF; mode++) {
        mpp_pprof_options_t options = options_with((mpp_class_mode_t)mode);
        mpp_budget_t budget;
        mpp_budget_init(&budget, SIZE_MAX);
        support_sink_t sink = {0};
        double begin = milliseconds(CLOCK_THREAD_CPUTIME_ID);
        assert_int_equal(support_world_encode(&world, &options, &budget, &sink), MPP_OK);
        double end = milliseconds(CLOCK_THREAD_CPUTIME_ID);

        support_pprof_t profile;
        support_pprof_read(&profile, &sink);
        support_pprof_assert_valid(&profile);
        assert_int_equal(profile.n_samples, n_rows);
        for (uint32_t i = 0; mode == MPP_CLASS_LABEL && i < n_rows; i += 101) {
            assert_labelled_sample(&world, &world.rows[i], &profile, i);
        }
        print_message("%u rows of 60 frames, %zu locations, %s: %.0f ms, %zu KiB of scratch, %llu requests, "
                      "%.1f MB, %.2f MB compressed\n",
                      n_rows, profile.n_locations, names[mode], end - begin, budget.peak_bytes >> 10,
                      (unsigned long long)budget.n_requests, (double)profile.message_bytes / 1e6,
                      (double)sink.n_bytes / 1e6);
        assert_true(budget.peak_bytes <= (size_t)4 << 20);
        support_pprof_free(&profile);
        support_sink_free(&sink);
    }
    support_world_cleanup(&world);
}

static int
set_up(void **state)
{
    (void)state;
    /* Once more is fine. */
    return mpp_pprof_init() == MPP_OK && mpp_pprof_init() == MPP_OK ? 0 : -1;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_most_and_least_options),
        cmocka_unit_test(test_class_label),
        cmocka_unit_test(test_class_frame),
        cmocka_unit_test(test_class_off_merges),
        cmocka_unit_test(test_class_off_merges_many),
        cmocka_unit_test(test_zero_rows_are_left_out),
        cmocka_unit_test(test_rounding_carries_remainders),
        cmocka_unit_test(test_merging_comes_before_rounding),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_row_counts),
        cmocka_unit_test(test_random_worlds),
        cmocka_unit_test(test_deep_stacks),
        cmocka_unit_test(test_giant_strings),
        cmocka_unit_test(test_invalid_utf8_is_mended),
        cmocka_unit_test(test_addresses_are_stable),
        cmocka_unit_test(test_addresses_differ),
        cmocka_unit_test(test_golden_label),
        cmocka_unit_test(test_golden_frame),
        cmocka_unit_test(test_golden_off),
        cmocka_unit_test(test_same_bytes_again),
        cmocka_unit_test(test_every_request_refused),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_every_output_refused),
        cmocka_unit_test(test_bad_compression_level),
        cmocka_unit_test(test_tables_change_meanwhile),
        cmocka_unit_test(test_large_profile_in_little_memory),
    };
    return cmocka_run_group_tests_name("pprof", tests, set_up, NULL);
}
