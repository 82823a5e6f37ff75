/*
 * One pass over the rows. What a sample names is written when it is first named, before the sample: its locations, a
 * location's function, a function's strings. Each gets the next number of its kind, which is remembered under its id in
 * the snapshot's tables. So what has to be kept is 4 bytes for each element, and the locations of the sample in hand.
 *
 * Strings that are in no table (types, units, keys) are written at the start.
 */

#include "pprof.h"

#include <string.h>

#include "writer.h"

#define MAPPING_NUMBER 1

/* A row's values have this many bits behind the point. */
#define FRACTION_BITS 32
#define FRACTION_MASK (((uint64_t)1 << FRACTION_BITS) - 1)

/* Strings that are in no table: those of the options, comments apart, and three of our own. */
#define MAX_NAMES (2 * MPP_PPROF_MAX_VALUE_TYPES + 7)

#define LEAST_ELEMENTS 256

/* By id in the snapshot's tables: the number in the profile, 0 if it has none yet. */
typedef struct {
    uint32_t *numbers;
    size_t capacity;
} numbering_t;

typedef struct {
    const mpp_snapshot_view_t *snapshot;
    const mpp_pprof_options_t *options;
    mpp_allocator_t *allocator;
    mpp_writer_t *writer;

    uint32_t n_strings, n_functions, n_locations; /* written */
    numbering_t strings;
    numbering_t functions;
    numbering_t locations;
    numbering_t classes; /* by the string of its name: a class's pseudo-location */

    struct {
        mpp_view_t view;
        uint32_t number;
    } names[MAX_NAMES];
    size_t n_names;
    uint32_t class_key;
    uint32_t group_key;

    uint64_t *stack; /* locations of the sample in hand, leaf first */
    size_t stack_capacity;
    uint64_t remainders[MPP_PPROF_MAX_VALUE_TYPES]; /* what rounding has held back of each column, below 1 */
} encoder_t;

/* -- memory -- */

/* Makes room for n elements; those gained are zero. */
static bool
reserve(encoder_t *encoder, void **array, size_t *capacity, size_t element_bytes, size_t n)
{
    if (n <= *capacity) return true;
    size_t new_capacity = *capacity + *capacity / 4 + LEAST_ELEMENTS;
    if (new_capacity < n) new_capacity = n;
    mpp_status_t status =
        mpp_resize(encoder->allocator, array, *capacity * element_bytes, new_capacity * element_bytes);
    if (status != MPP_OK) {
        mpp_writer_fail(encoder->writer, status);
        return false;
    }
    *capacity = new_capacity;
    return true;
}

static uint32_t
number_of(const numbering_t *numbering, mpp_id_t id)
{
    return id < numbering->capacity ? numbering->numbers[id] : 0;
}

static void
remember(encoder_t *encoder, numbering_t *numbering, mpp_id_t id, uint32_t number)
{
    void *array = numbering->numbers;
    if (!reserve(encoder, &array, &numbering->capacity, sizeof(uint32_t), (size_t)id + 1)) return;
    numbering->numbers = array;
    numbering->numbers[id] = number;
}

static void
forget(encoder_t *encoder, numbering_t *numbering)
{
    mpp_release(encoder->allocator, numbering->numbers, numbering->capacity * sizeof(uint32_t));
}

/* -- strings, functions, locations -- */

static uint32_t
write_string(encoder_t *encoder, mpp_view_t string)
{
    mpp_writer_add_string(encoder->writer, string);
    return encoder->n_strings++;
}

/* Its index among the names, or how many there are. */
static size_t
find_name(const encoder_t *encoder, mpp_view_t name)
{
    size_t i = 0;
    for (; i < encoder->n_names; i++) {
        mpp_view_t known = encoder->names[i].view;
        if (known.length != name.length) continue;
        if (name.length == 0 || memcmp(known.bytes, name.bytes, name.length) == 0) break;
    }
    return i;
}

/* Of a string that need not be in the snapshot's table. */
static uint32_t
name_number(encoder_t *encoder, mpp_view_t name)
{
    size_t i = find_name(encoder, name);
    if (i == encoder->n_names) {
        encoder->names[i].view = name;
        encoder->names[i].number = write_string(encoder, name);
        encoder->n_names++;
    }
    return encoder->names[i].number;
}

static uint32_t
string_number(encoder_t *encoder, mpp_id_t string)
{
    uint32_t number = number_of(&encoder->strings, string);
    if (number) return number;
    mpp_view_t view = mpp_strtab_view(encoder->snapshot->strings, string);
    size_t name = find_name(encoder, view);
    number = name < encoder->n_names ? encoder->names[name].number : write_string(encoder, view);
    remember(encoder, &encoder->strings, string, number);
    return number;
}

/* Code that was evaluated may claim to be in any line; readers take 0 for none. */
static int32_t
valid_line(int32_t line)
{
    return line > 0 ? line : 0;
}

static uint32_t
write_function(encoder_t *encoder, uint32_t name, uint32_t filename, int32_t start_line)
{
    mpp_writer_t *writer = encoder->writer;
    mpp_message_t *function = mpp_writer_add(writer, NULL, MPP_PROFILE_FUNCTION);
    mpp_writer_set(writer, function, MPP_FUNCTION_ID, ++encoder->n_functions);
    mpp_writer_set(writer, function, MPP_FUNCTION_NAME, name);
    mpp_writer_set(writer, function, MPP_FUNCTION_FILENAME, filename);
    mpp_writer_set(writer, function, MPP_FUNCTION_START_LINE, valid_line(start_line));
    return encoder->n_functions;
}

static uint32_t
function_number(encoder_t *encoder, mpp_id_t id)
{
    uint32_t number = number_of(&encoder->functions, id);
    if (number) return number;
    const mpp_function_t *function = mpp_frames_get_function(encoder->snapshot->frames, id);
    uint32_t name = string_number(encoder, function->name);
    uint32_t filename = string_number(encoder, function->filename);
    number = write_function(encoder, name, filename, function->start_line);
    remember(encoder, &encoder->functions, id, number);
    return number;
}

/* Not the id: that changes from run to run, and some readers know a location by nothing but its address. */
static int64_t
stable_address(mpp_view_t filename, mpp_view_t name, int32_t start_line, int32_t line)
{
    uint64_t lines = (uint64_t)(uint32_t)start_line << 32 | (uint32_t)line;
    uint64_t hash = mpp_hash_pair(mpp_hash_bytes(mpp_hash_bytes(0, filename), name), lines);
    int64_t address = (int64_t)(hash >> 1);
    return address ? address : 1;
}

static uint32_t
write_location(encoder_t *encoder, uint32_t function, int32_t line, int64_t address)
{
    mpp_writer_t *writer = encoder->writer;
    mpp_message_t *location = mpp_writer_add(writer, NULL, MPP_PROFILE_LOCATION);
    mpp_writer_set(writer, location, MPP_LOCATION_ID, ++encoder->n_locations);
    mpp_writer_set(writer, location, MPP_LOCATION_MAPPING_ID, MAPPING_NUMBER);
    mpp_writer_set(writer, location, MPP_LOCATION_ADDRESS, address);
    mpp_message_t *place = mpp_writer_add(writer, location, MPP_LOCATION_LINE);
    mpp_writer_set(writer, place, MPP_LINE_FUNCTION_ID, function);
    mpp_writer_set(writer, place, MPP_LINE_LINE, valid_line(line));
    return encoder->n_locations;
}

static uint32_t
location_number(encoder_t *encoder, mpp_id_t id)
{
    uint32_t number = number_of(&encoder->locations, id);
    if (number) return number;
    const mpp_snapshot_view_t *snapshot = encoder->snapshot;
    const mpp_location_t *location = mpp_frames_get_location(snapshot->frames, id);
    const mpp_function_t *function = mpp_frames_get_function(snapshot->frames, location->function);
    mpp_view_t filename = mpp_strtab_view(snapshot->strings, function->filename);
    mpp_view_t name = mpp_strtab_view(snapshot->strings, function->name);
    int64_t address = stable_address(filename, name, function->start_line, location->line);
    number = write_location(encoder, function_number(encoder, location->function), location->line, address);
    remember(encoder, &encoder->locations, id, number);
    return number;
}

static uint32_t
class_location_number(encoder_t *encoder, mpp_id_t class_name)
{
    uint32_t number = number_of(&encoder->classes, class_name);
    if (number) return number;
    mpp_view_t name = mpp_strtab_view(encoder->snapshot->strings, class_name);
    uint32_t function = write_function(encoder, string_number(encoder, class_name), 0, 0);
    number = write_location(encoder, function, 0, stable_address(MPP_VIEW(""), name, 0, 0));
    remember(encoder, &encoder->classes, class_name, number);
    return number;
}

/* -- samples -- */

/* Whole numbers, with what they leave of a column handed on to the next row. False if all are zero. */
static bool
round_values(encoder_t *encoder, const mpp_snapshot_row_t *row, uint64_t *values)
{
    bool any = false;
    for (size_t i = 0; i < encoder->options->n_value_types; i++) {
        mpp_sum_t exact = row->values[encoder->options->value_types[i].value];
        uint64_t fraction = ((uint64_t)exact & FRACTION_MASK) + encoder->remainders[i];
        mpp_sum_t whole = (exact >> FRACTION_BITS) + (fraction >> FRACTION_BITS);
        encoder->remainders[i] = fraction & FRACTION_MASK;
        values[i] = whole < INT64_MAX ? (uint64_t)whole : INT64_MAX;
        any = any || values[i] != 0;
    }
    return any;
}

/* Puts the row's locations into encoder->stack and gives their number. */
static size_t
gather_stack(encoder_t *encoder, const mpp_snapshot_row_t *row)
{
    const mpp_frames_t *frames = encoder->snapshot->frames;
    bool with_class = encoder->options->class_mode == MPP_CLASS_FRAME && row->class_name != 0;
    size_t most = (row->stack ? mpp_frames_get_stack(frames, row->stack)->depth : 0) + (size_t)with_class;
    void *array = encoder->stack;
    if (!reserve(encoder, &array, &encoder->stack_capacity, sizeof(uint64_t), most)) return 0;
    encoder->stack = array;

    size_t n = 0;
    if (with_class) encoder->stack[n++] = class_location_number(encoder, row->class_name);
    for (mpp_id_t id = row->stack; id != 0;) {
        const mpp_stack_t *node = mpp_frames_get_stack(frames, id);
        encoder->stack[n++] = location_number(encoder, node->location);
        id = node->parent;
    }
    return n;
}

/* As far as they are told. */
static mpp_id_t
row_labels(const encoder_t *encoder, const mpp_snapshot_row_t *row)
{
    return encoder->options->by_group ? row->labels : mpp_labels_without_group(row->labels);
}

static void
write_row(encoder_t *encoder, const mpp_snapshot_row_t *row)
{
    uint64_t values[MPP_PPROF_MAX_VALUE_TYPES];
    if (!round_values(encoder, row, values)) return;

    bool with_label = encoder->options->class_mode == MPP_CLASS_LABEL && row->class_name != 0;
    uint32_t class_name = with_label ? string_number(encoder, row->class_name) : 0;
    size_t depth = gather_stack(encoder, row);

    mpp_writer_t *writer = encoder->writer;
    mpp_message_t *sample = mpp_writer_add(writer, NULL, MPP_PROFILE_SAMPLE);
    mpp_writer_set_numbers(writer, sample, MPP_SAMPLE_LOCATION_ID, encoder->stack, depth);
    mpp_writer_set_numbers(writer, sample, MPP_SAMPLE_VALUE, values, encoder->options->n_value_types);
    if (with_label) {
        mpp_message_t *label = mpp_writer_add(writer, sample, MPP_SAMPLE_LABEL);
        mpp_writer_set(writer, label, MPP_LABEL_KEY, encoder->class_key);
        mpp_writer_set(writer, label, MPP_LABEL_STR, class_name);
    }
    int group = mpp_labels_group(row_labels(encoder, row));
    if (group >= 0) {
        mpp_message_t *label = mpp_writer_add(writer, sample, MPP_SAMPLE_LABEL);
        mpp_writer_set(writer, label, MPP_LABEL_KEY, encoder->group_key);
        mpp_writer_set(writer, label, MPP_LABEL_NUM, group);
    }
}

static void
write_rows(encoder_t *encoder)
{
    const mpp_snapshot_view_t *snapshot = encoder->snapshot;
    for (uint32_t i = 0; i < snapshot->n_rows && mpp_writer_status(encoder->writer) == MPP_OK; i++) {
        write_row(encoder, &snapshot->rows[i]);
    }
}

/* -- samples, merged over classes or groups -- */

static bool
merges(const encoder_t *encoder)
{
    if (encoder->options->class_mode == MPP_CLASS_OFF) return true;
    if (encoder->options->by_group) return false;
    const mpp_snapshot_view_t *snapshot = encoder->snapshot;
    uint32_t i = 0;
    while (i < snapshot->n_rows && mpp_labels_group(snapshot->rows[i].labels) < 0) i++;
    return i < snapshot->n_rows;
}

/* Rows that are one sample compare as equal. */
static int
compare_rows(const encoder_t *encoder, const mpp_snapshot_row_t *left, const mpp_snapshot_row_t *right)
{
    bool with_class = encoder->options->class_mode != MPP_CLASS_OFF;
    mpp_id_t keys[3][2] = {
        {left->stack, right->stack},
        {row_labels(encoder, left), row_labels(encoder, right)},
        {with_class ? left->class_name : 0, with_class ? right->class_name : 0},
    };
    for (int i = 0; i < 3; i++) {
        if (keys[i][0] != keys[i][1]) return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    return 0;
}

static void
sift_down(const encoder_t *encoder, uint32_t *order, uint32_t parent, uint32_t n)
{
    const mpp_snapshot_row_t *rows = encoder->snapshot->rows;
    uint32_t sinking = order[parent];
    for (uint32_t child; (child = 2 * parent + 1) < n; parent = child) {
        if (child + 1 < n && compare_rows(encoder, &rows[order[child + 1]], &rows[order[child]]) > 0) child++;
        if (compare_rows(encoder, &rows[order[child]], &rows[sinking]) <= 0) break;
        order[parent] = order[child];
    }
    order[parent] = sinking;
}

/* Heapsort: in place, and libc's may allocate. */
static void
sort_rows(const encoder_t *encoder, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n / 2; i-- > 0;) sift_down(encoder, order, i, n);
    for (uint32_t end = n; end-- > 1;) {
        uint32_t last = order[end];
        order[end] = order[0];
        order[0] = last;
        sift_down(encoder, order, 0, end);
    }
}

static void
write_merged_rows(encoder_t *encoder)
{
    const mpp_snapshot_view_t *snapshot = encoder->snapshot;
    uint32_t n = snapshot->n_rows;
    void *array = NULL;
    size_t capacity = 0;
    if (!reserve(encoder, &array, &capacity, sizeof(uint32_t), n)) return;

    uint32_t *order = array;
    sort_rows(encoder, order, n);
    for (uint32_t i = 0; i < n && mpp_writer_status(encoder->writer) == MPP_OK;) {
        mpp_snapshot_row_t sum = snapshot->rows[order[i++]];
        for (; i < n && compare_rows(encoder, &snapshot->rows[order[i]], &sum) == 0; i++) {
            for (int k = 0; k < MPP_N_VALUES; k++) sum.values[k] += snapshot->rows[order[i]].values[k];
        }
        write_row(encoder, &sum);
    }
    mpp_release(encoder->allocator, array, capacity * sizeof(uint32_t));
}

/* -- the rest -- */

static void
write_value_type(encoder_t *encoder, mpp_field_t field, mpp_view_t type, mpp_view_t unit)
{
    mpp_writer_t *writer = encoder->writer;
    uint32_t type_number = name_number(encoder, type);
    uint32_t unit_number = name_number(encoder, unit);
    mpp_message_t *value_type = mpp_writer_add(writer, NULL, field);
    mpp_writer_set(writer, value_type, MPP_VALUE_TYPE_TYPE, type_number);
    mpp_writer_set(writer, value_type, MPP_VALUE_TYPE_UNIT, unit_number);
}

static void
write_comments(encoder_t *encoder)
{
    for (size_t i = 0; i < encoder->options->n_comments; i++) {
        uint32_t number = write_string(encoder, encoder->options->comments[i]);
        mpp_writer_set_top(encoder->writer, MPP_PROFILE_COMMENT, number);
    }
}

static void
write_mapping(encoder_t *encoder)
{
    mpp_writer_t *writer = encoder->writer;
    uint32_t filename = name_number(encoder, encoder->options->mapping_file);
    mpp_message_t *mapping = mpp_writer_add(writer, NULL, MPP_PROFILE_MAPPING);
    mpp_writer_set(writer, mapping, MPP_MAPPING_ID, MAPPING_NUMBER);
    mpp_writer_set(writer, mapping, MPP_MAPPING_FILENAME, filename);
    mpp_writer_set(writer, mapping, MPP_MAPPING_HAS_FUNCTIONS, true);
    mpp_writer_set(writer, mapping, MPP_MAPPING_HAS_FILENAMES, true);
    mpp_writer_set(writer, mapping, MPP_MAPPING_HAS_LINE_NUMBERS, true);
}

static void
write_head(encoder_t *encoder)
{
    const mpp_pprof_options_t *options = encoder->options;
    mpp_writer_t *writer = encoder->writer;
    (void)name_number(encoder, MPP_VIEW("")); /* number 0 */
    for (size_t i = 0; i < options->n_value_types; i++) {
        write_value_type(encoder, MPP_PROFILE_SAMPLE_TYPE, options->value_types[i].type, options->value_types[i].unit);
    }
    write_value_type(encoder, MPP_PROFILE_PERIOD_TYPE, options->period_type, options->period_unit);
    mpp_writer_set_top(writer, MPP_PROFILE_PERIOD, options->period);
    mpp_writer_set_top(writer, MPP_PROFILE_TIME_NANOS, options->time_ns);
    mpp_writer_set_top(writer, MPP_PROFILE_DURATION_NANOS, options->duration_ns);
    mpp_writer_set_top(writer, MPP_PROFILE_DEFAULT_SAMPLE_TYPE, name_number(encoder, options->default_sample_type));
    write_mapping(encoder);
    write_comments(encoder);
    if (options->by_group) encoder->group_key = name_number(encoder, MPP_VIEW("group"));
    if (options->class_mode == MPP_CLASS_LABEL) encoder->class_key = name_number(encoder, MPP_VIEW("class"));
}

mpp_view_t
mpp_pprof_schema(void)
{
    return mpp_writer_schema();
}

mpp_status_t
mpp_pprof_init(void)
{
    return mpp_writer_load_schema();
}

mpp_status_t
mpp_pprof_encode(const mpp_snapshot_view_t *snapshot, const mpp_pprof_options_t *options, mpp_allocator_t *scratch,
                 mpp_output_t output, void *output_context)
{
    encoder_t encoder = {.snapshot = snapshot, .options = options, .allocator = scratch};
    mpp_status_t status = mpp_writer_new(scratch, options->compression_level, output, output_context, &encoder.writer);
    if (status != MPP_OK) return status;

    write_head(&encoder);
    if (merges(&encoder)) {
        write_merged_rows(&encoder);
    } else {
        write_rows(&encoder);
    }
    mpp_writer_finish(encoder.writer);
    status = mpp_writer_status(encoder.writer);

    mpp_release(scratch, encoder.stack, encoder.stack_capacity * sizeof(uint64_t));
    forget(&encoder, &encoder.classes);
    forget(&encoder, &encoder.locations);
    forget(&encoder, &encoder.functions);
    forget(&encoder, &encoder.strings);
    mpp_writer_free(encoder.writer);
    return status;
}
