/*
 * Rows of any contents, encoded and read back. An input makes strings, a tree of frames, rows over it, and options. What
 * must come out is known by text: a key is all that a reader sees of a sample but its values (names, files, lines, labels,
 * mended where they are not UTF-8). Rows of one key may come as fewer samples, or as many; what they add up to must be
 * there, each sample rounded by less than 1, each column's total as well. Then the same with memory refused, and output.
 */

#include "support_world.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "sampler.h"

enum { MAX_STRINGS = 24, MAX_STACKS = 32, MAX_ROWS = 32, MAX_COMMENTS = 4, LONGEST = 70000, DEEPEST = 5000 };

/* In a profile, with those that the encoder adds. */
enum { MAX_TOLD_STRINGS = 2 * MAX_STRINGS + MAX_COMMENTS + 8 };

/* Sums of rows stay below 2^128. */
#define LARGEST_VALUE (~(mpp_sum_t)0 / MAX_ROWS)

/* As messages hold numbers. */
#define LARGEST_WHOLE ((mpp_sum_t)INT64_MAX)

typedef struct {
    fuzz_input_t input;
    mpp_view_t strings[MAX_STRINGS];
    uint32_t n_strings;
    support_world_t world;
    mpp_id_t stacks[MAX_STACKS]; /* the first is empty */
    uint32_t n_stacks;
    mpp_value_type_t value_types[MPP_PPROF_MAX_VALUE_TYPES];
    mpp_view_t comments[MAX_COMMENTS];
    mpp_pprof_options_t options;
} case_t;

/* -- from bytes -- */

/* Some of the input's own bytes, again and again up to a length that may be great. */
static mpp_view_t
make_string(fuzz_input_t *input)
{
    size_t length = fuzz_byte(input), own = 1 + fuzz_below(input, 16);
    if (length >= 250) length = LONGEST >> (length - 250);
    const uint8_t *pattern = input->at;
    if (own > fuzz_left(input)) own = fuzz_left(input);
    input->at += own;
    char *bytes = malloc(length + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < length; i++) bytes[i] = own ? (char)pattern[i % own] : 'x';
    return (mpp_view_t){bytes, length};
}

static mpp_view_t
any_string(case_t *c)
{
    return c->strings[fuzz_below(&c->input, c->n_strings)];
}

/* A sample type without a name is none. */
static mpp_view_t
any_name(case_t *c)
{
    mpp_view_t string = any_string(c);
    return string.length ? string : MPP_VIEW("type");
}

static int32_t
any_line(fuzz_input_t *input)
{
    static const int32_t lines[] = {0, 1, 2, 77, -1, INT32_MAX, INT32_MIN, 300};
    return lines[fuzz_below(input, SUPPORT_LENGTH(lines))];
}

/* One or more frames on a stack that is there. Among those without a file and lines are the classes when they are shown
 * as frames, so then there are none else. */
static void
grow_stack(case_t *c)
{
    mpp_id_t stack = c->stacks[fuzz_below(&c->input, c->n_stacks)];
    mpp_view_t name = any_string(c), file = any_string(c);
    int32_t start_line = any_line(&c->input), line = any_line(&c->input);
    uint32_t depth = fuzz_byte(&c->input);
    depth = depth >= 252 ? (uint32_t)DEEPEST >> (depth - 252) : 1 + depth / 64;
    if (file.length == 0 && c->options.class_mode == MPP_CLASS_FRAME) start_line = 5;

    mpp_frames_t *frames = &c->world.frames;
    mpp_id_t function; /* names may be long: once for all its frames */
    assert_int_equal(mpp_frames_function(frames, name, file, start_line, &function), MPP_OK);
    for (uint32_t i = 0; i < depth; i++) {
        int32_t here = line < INT32_MAX - DEEPEST ? line + (int32_t)(i % 50) : line;
        assert_int_equal(mpp_frames_push(frames, stack, function, here, &stack), MPP_OK);
    }
    mpp_frames_release_function(frames, function);
    c->stacks[c->n_stacks++] = stack;
}

/* With `huge` some are beyond what a message can hold. */
static mpp_sum_t
any_value(fuzz_input_t *input, bool huge)
{
    switch (fuzz_below(input, huge ? 8 : 4)) {
    case 0: return 0;
    case 1: return 1;
    case 2: return (mpp_sum_t)fuzz_byte(input) << MPP_WEIGHT_BITS;
    case 3: return fuzz_magnitude(input);
    case 4: return (mpp_sum_t)fuzz_magnitude(input) << fuzz_below(input, 56);
    case 5: return ((LARGEST_WHOLE + 1) << MPP_WEIGHT_BITS) - 1 - fuzz_byte(input);
    case 6: return ((LARGEST_WHOLE + 1) << MPP_WEIGHT_BITS) + fuzz_byte(input);
    default: return LARGEST_VALUE;
    }
}

static void
add_row(case_t *c, bool huge)
{
    mpp_id_t stack = c->stacks[fuzz_below(&c->input, c->n_stacks)], class_name = 0;
    if (fuzz_below(&c->input, 4) != 0) class_name = support_world_string(&c->world, any_string(c));
    mpp_sum_t values[MPP_N_VALUES];
    for (int i = 0; i < MPP_N_VALUES; i++) {
        values[i] = any_value(&c->input, huge);
        if (values[i] > LARGEST_VALUE) values[i] = LARGEST_VALUE;
    }
    mpp_snapshot_row_t *row = support_world_add_row(&c->world, stack, class_name, values);
    uint32_t group = fuzz_below(&c->input, 20);
    if (group < 16) row->labels = mpp_labels_with_group(0, (uint8_t)group);
}

static void
choose_options(case_t *c)
{
    fuzz_input_t *input = &c->input;
    c->options = (mpp_pprof_options_t){
        .value_types = c->value_types,
        .n_value_types = 1 + fuzz_below(input, MPP_PPROF_MAX_VALUE_TYPES),
        .class_mode = (mpp_class_mode_t)fuzz_below(input, MPP_CLASS_OFF + 1),
        .by_group = fuzz_below(input, 2) == 1,
        .default_sample_type = any_string(c),
        .period_type = any_string(c),
        .period_unit = any_string(c),
        .period = (int64_t)fuzz_magnitude(input),
        .time_ns = (int64_t)fuzz_magnitude(input),
        .duration_ns = (int64_t)fuzz_magnitude(input),
        .mapping_file = any_string(c),
        .comments = c->comments,
        .n_comments = fuzz_below(input, MAX_COMMENTS + 1),
        .compression_level = (int)fuzz_below(input, 10),
    };
    for (size_t i = 0; i < c->options.n_value_types; i++) {
        int value = (int)fuzz_below(input, MPP_N_VALUES);
        c->value_types[i] = (mpp_value_type_t){.type = any_name(c), .unit = any_name(c), .value = value};
    }
    for (size_t i = 0; i < c->options.n_comments; i++) c->comments[i] = any_string(c);
}

static void
make_case(case_t *c, const uint8_t *data, size_t size)
{
    *c = (case_t){.input = fuzz_input(data, size)};
    uint32_t n_strings = 1 + fuzz_below(&c->input, MAX_STRINGS);
    while (c->n_strings < n_strings) c->strings[c->n_strings++] = make_string(&c->input);
    choose_options(c);
    support_world_init(&c->world, MAX_ROWS, 1u << 18);
    c->n_stacks = 1;
    for (uint32_t n = fuzz_below(&c->input, MAX_STACKS); n > 0; n--) grow_stack(c);
    bool huge = fuzz_below(&c->input, 2) == 1;
    for (uint32_t n = fuzz_below(&c->input, MAX_ROWS + 1); n > 0; n--) add_row(c, huge);
}

static void
free_case(case_t *c)
{
    support_world_cleanup(&c->world);
    for (uint32_t i = 0; i < c->n_strings; i++) free((void *)(uintptr_t)c->strings[i].bytes);
}

/* -- keys -- */

/* Of the text as it must be written: each byte that belongs to no character is a question mark. */
static uint64_t
hash_text(mpp_view_t text)
{
    uint64_t hash = text.length;
    while (text.length > 0) {
        size_t length = support_utf8_length(text);
        mpp_view_t character = length ? (mpp_view_t){text.bytes, length} : MPP_VIEW("?");
        hash = mpp_hash_bytes(hash, character);
        length += length == 0;
        text = (mpp_view_t){text.bytes + length, text.length - length};
    }
    return hash;
}

/* Texts of a string table by their numbers: long ones are looked at once. */
typedef struct {
    uint64_t hashes[MAX_TOLD_STRINGS];
} texts_t;

static uint64_t
add_place(uint64_t hash, uint64_t name, uint64_t file, int64_t start_line, int64_t line)
{
    hash = mpp_hash_pair(mpp_hash_pair(hash, name), file);
    return mpp_hash_pair(mpp_hash_pair(hash, (uint64_t)start_line), (uint64_t)line);
}

static uint64_t
add_label(uint64_t hash, uint64_t key, uint64_t text, uint64_t number)
{
    return mpp_hash_pair(mpp_hash_pair(mpp_hash_pair(hash, key), text), number);
}

static int32_t
shown_line(int32_t line)
{
    return line < 0 ? 0 : line;
}

static uint64_t
row_key(const case_t *c, const texts_t *texts, const mpp_snapshot_row_t *row)
{
    const mpp_frames_t *frames = &c->world.frames;
    const uint64_t *text = texts->hashes;
    uint64_t hash = 0;
    if (row->class_name && c->options.class_mode == MPP_CLASS_FRAME) {
        hash = add_place(hash, text[row->class_name], text[0], 0, 0);
    }
    for (mpp_id_t id = row->stack; id != 0;) {
        const mpp_stack_t *stack = mpp_frames_get_stack(frames, id);
        const mpp_location_t *location = mpp_frames_get_location(frames, stack->location);
        const mpp_function_t *function = mpp_frames_get_function(frames, location->function);
        hash = add_place(hash, text[function->name], text[function->filename], shown_line(function->start_line),
                         shown_line(location->line));
        id = stack->parent;
    }
    if (row->class_name && c->options.class_mode == MPP_CLASS_LABEL) {
        hash = add_label(hash, hash_text(MPP_VIEW("class")), text[row->class_name], 0);
    }
    int group = c->options.by_group ? mpp_labels_group(row->labels) : -1;
    return group < 0 ? hash : add_label(hash, hash_text(MPP_VIEW("group")), text[0], (uint64_t)group);
}

static uint64_t
sample_key(const support_pprof_t *profile, const texts_t *texts, const support_sample_t *sample)
{
    const uint64_t *text = texts->hashes;
    uint64_t hash = 0;
    for (size_t i = 0; i < sample->n_locations; i++) {
        const support_location_t *location = &profile->locations[sample->locations[i] - 1];
        const support_function_t *function = &profile->functions[location->function - 1];
        hash = add_place(hash, text[function->name], text[function->filename], (int64_t)function->start_line,
                         (int64_t)location->line);
    }
    for (size_t i = 0; i < sample->n_labels; i++) {
        const support_label_t *label = &sample->labels[i];
        assert_int_equal(label->num_unit, 0);
        hash = add_label(hash, text[label->key], text[label->str], label->num);
    }
    return hash;
}

/* Of all rows as they are told, and of all samples. */
typedef struct {
    mpp_snapshot_row_t rows[MAX_ROWS];
    uint64_t row_keys[MAX_ROWS];
    uint32_t n_rows;
    uint64_t sample_keys[MAX_ROWS];
} told_t;

static void
find_keys(const case_t *c, const support_pprof_t *profile, told_t *told)
{
    texts_t texts;
    assert_true(profile->n_samples <= told->n_rows && profile->n_strings <= MAX_TOLD_STRINGS);
    for (mpp_id_t id = 0; id <= mpp_strtab_count(&c->world.strings); id++) {
        texts.hashes[id] = hash_text(mpp_strtab_view(&c->world.strings, id)); /* ids have no gaps: none was released */
    }
    for (uint32_t i = 0; i < told->n_rows; i++) told->row_keys[i] = row_key(c, &texts, &told->rows[i]);
    for (size_t i = 0; i < profile->n_strings; i++) texts.hashes[i] = hash_text(profile->strings[i]);
    for (size_t i = 0; i < profile->n_samples; i++) {
        told->sample_keys[i] = sample_key(profile, &texts, &profile->samples[i]);
    }
}

/* -- what must be there -- */

typedef struct {
    mpp_sum_t least, most; /* of whole numbers */
    mpp_sum_t exact;
    bool saturates;
} column_t;

/* What all rows of a key come to, or all rows. */
typedef struct {
    uint32_t n; /* samples at most */
    column_t columns[MPP_PPROF_MAX_VALUE_TYPES];
} expected_t;

/* Rows that are one sample. */
static bool
is_one_sample(const case_t *c, const mpp_snapshot_row_t *left, const mpp_snapshot_row_t *right)
{
    bool same_class = c->options.class_mode == MPP_CLASS_OFF || left->class_name == right->class_name;
    bool same_group = !c->options.by_group || left->labels == right->labels;
    return left->stack == right->stack && same_class && same_group;
}

static bool
merges(const case_t *c)
{
    bool any_group = false;
    for (uint32_t i = 0; i < c->world.n_rows; i++) any_group |= mpp_labels_group(c->world.rows[i].labels) >= 0;
    return c->options.class_mode == MPP_CLASS_OFF || (any_group && !c->options.by_group);
}

static void
expect(const case_t *c, expected_t *expected, const mpp_snapshot_row_t *row)
{
    expected->n++;
    for (size_t i = 0; i < c->options.n_value_types; i++) {
        column_t *column = &expected->columns[i];
        mpp_sum_t exact = row->values[c->value_types[i].value], whole = exact >> MPP_WEIGHT_BITS;
        column->exact += exact;
        column->least += whole < LARGEST_WHOLE ? whole : LARGEST_WHOLE;
        column->most += whole < LARGEST_WHOLE ? whole + 1 : LARGEST_WHOLE;
        column->saturates |= whole >= LARGEST_WHOLE - 1;
    }
}

/* Merged, in no order. */
static void
tell_rows(const case_t *c, told_t *told)
{
    bool merged = merges(c);
    told->n_rows = 0;
    for (uint32_t i = 0; i < c->world.n_rows; i++) {
        const mpp_snapshot_row_t *row = &c->world.rows[i];
        uint32_t at = merged ? 0 : told->n_rows;
        while (at < told->n_rows && !is_one_sample(c, &told->rows[at], row)) at++;
        if (at == told->n_rows) {
            told->rows[told->n_rows++] = *row;
            continue;
        }
        for (int k = 0; k < MPP_N_VALUES; k++) told->rows[at].values[k] += row->values[k];
    }
}

/* Samples of a key (NULL: all) beside what was expected of them. */
static void
check_samples(const case_t *c, const support_pprof_t *profile, const told_t *told, const uint64_t *key)
{
    expected_t expected = {0};
    mpp_sum_t found[MPP_PPROF_MAX_VALUE_TYPES] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < told->n_rows; i++) {
        if (!key || told->row_keys[i] == *key) expect(c, &expected, &told->rows[i]);
    }
    for (size_t i = 0; i < profile->n_samples; i++) {
        if (key && told->sample_keys[i] != *key) continue;
        n++;
        for (size_t k = 0; k < c->options.n_value_types; k++) found[k] += profile->samples[i].values[k];
    }
    assert_true(n <= expected.n);
    for (size_t k = 0; k < c->options.n_value_types; k++) {
        const column_t *column = &expected.columns[k];
        assert_true(found[k] >= column->least && found[k] <= column->most);
        if (key || column->saturates) continue;
        assert_true(found[k] == column->exact >> MPP_WEIGHT_BITS);
    }
}

static void
check_rows(const case_t *c, const support_pprof_t *profile)
{
    static told_t told;
    tell_rows(c, &told);
    find_keys(c, profile, &told);
    for (uint32_t i = 0; i < told.n_rows; i++) check_samples(c, profile, &told, &told.row_keys[i]);
    check_samples(c, profile, &told, NULL);
}

static void
check_string(const support_pprof_t *profile, uint64_t index, mpp_view_t expected)
{
    assert_true(index < profile->n_strings);
    assert_true(hash_text(profile->strings[index]) == hash_text(expected));
}

static void
check_head(const case_t *c, const support_pprof_t *profile)
{
    const mpp_pprof_options_t *options = &c->options;
    assert_int_equal(profile->n_sample_types, options->n_value_types);
    for (size_t i = 0; i < options->n_value_types; i++) {
        check_string(profile, profile->sample_types[i].type, c->value_types[i].type);
        check_string(profile, profile->sample_types[i].unit, c->value_types[i].unit);
    }
    assert_int_equal(profile->n_comments, options->n_comments);
    for (size_t i = 0; i < options->n_comments; i++) check_string(profile, profile->comments[i], c->comments[i]);
    check_string(profile, profile->default_sample_type, options->default_sample_type);
    check_string(profile, profile->period_type.type, options->period_type);
    check_string(profile, profile->period_type.unit, options->period_unit);
    check_string(profile, profile->mappings[0].filename, options->mapping_file);
    assert_true((int64_t)profile->period == options->period);
    assert_true((int64_t)profile->time_nanos == options->time_ns);
    assert_true((int64_t)profile->duration_nanos == options->duration_ns);
    assert_int_equal(profile->drop_frames + profile->keep_frames, 0);
}

/* -- the runs -- */

static void
encode_well(const case_t *c, support_sink_t *sink)
{
    mpp_budget_t budget;
    support_pprof_t profile;
    mpp_budget_init(&budget, SIZE_MAX);
    assert_int_equal(support_world_encode(&c->world, &c->options, &budget, sink), MPP_OK);
    support_pprof_read(&profile, sink);
    support_pprof_assert_valid(&profile);
    check_head(c, &profile);
    check_rows(c, &profile);
    support_pprof_free(&profile);
}

/* The same bytes, or a failure whose reason was given. */
static void
encode_badly(case_t *c, const support_sink_t *expected)
{
    mpp_budget_t budget;
    mpp_budget_init(&budget, SIZE_MAX);
    budget.fail_from = 1 + fuzz_below(&c->input, 40);
    budget.fail_count = fuzz_below(&c->input, 3);
    support_sink_t sink = {.refuse_call = fuzz_below(&c->input, 6)};
    mpp_status_t status = support_world_encode(&c->world, &c->options, &budget, &sink);
    bool refused_memory = budget.fail_count > 0 && budget.n_requests >= budget.fail_from;
    bool refused_output = sink.refuse_call > 0 && sink.n_calls == sink.refuse_call;
    assert_true(status == MPP_OK || (status == MPP_OUTPUT && refused_output) ||
                (support_refused(status) && refused_memory));
    if (status == MPP_OK) {
        assert_int_equal(sink.n_bytes, expected->n_bytes);
        assert_memory_equal(sink.bytes, expected->bytes, sink.n_bytes);
    }
    support_sink_free(&sink);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static case_t c;
    support_sink_t sink = {0};
    assert_int_equal(mpp_pprof_init(), MPP_OK);
    make_case(&c, data, size);
    encode_well(&c, &sink);
    encode_badly(&c, &sink);
    support_sink_free(&sink);
    free_case(&c);
    return 0;
}
