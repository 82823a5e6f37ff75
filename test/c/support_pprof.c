#define _POSIX_C_SOURCE 200809L /* fmemopen */

#include "support.h"

#include "support_pprof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Makes room for one more element of a test's array, at capacities that are powers of two. */
static void *
grow(void *array, size_t n, size_t element_bytes)
{
    if (n & (n - 1)) return array;
    array = realloc(array, (n ? 2 * n : 1) * element_bytes);
    assert_non_null(array);
    return array;
}

#define APPEND(array, n, ...)                                                                                          \
    do {                                                                                                               \
        (array) = grow((array), (n), sizeof(*(array)));                                                                \
        (array)[(n)++] = __VA_ARGS__;                                                                                  \
    } while (0)

/* -- the sink -- */

mpp_status_t
support_sink_write(void *context, const void *bytes, size_t n_bytes)
{
    support_sink_t *sink = context;
    assert_true(n_bytes > 0);
    sink->n_calls++;
    /* After a refusal the encoder has no business here. */
    assert_true(sink->refuse_call == 0 || sink->n_calls <= sink->refuse_call);
    if (sink->n_calls == sink->refuse_call) return MPP_OUTPUT;
    sink->bytes = realloc(sink->bytes, sink->n_bytes + n_bytes);
    assert_non_null(sink->bytes);
    memcpy(sink->bytes + sink->n_bytes, bytes, n_bytes);
    sink->n_bytes += n_bytes;
    return MPP_OK;
}

void
support_sink_free(support_sink_t *sink)
{
    free(sink->bytes);
    *sink = (support_sink_t){0};
}

/* -- the wire format -- */

typedef struct {
    const unsigned char *at, *end;
    /* the field just read */
    uint64_t number;
    bool is_varint;
    uint64_t varint;
    mpp_view_t bytes; /* without is_varint */
} wire_t;

static wire_t
wire_of(mpp_view_t view)
{
    const unsigned char *at = (const unsigned char *)view.bytes;
    return (wire_t){.at = at, .end = at + view.length};
}

static uint64_t
read_varint(wire_t *wire)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(wire->at < wire->end);
        unsigned char byte = *wire->at++;
        /* At most 64 bits, and no byte more than needed. */
        assert_true(shift < 63 || (shift == 63 && byte == 1));
        assert_true(byte != 0 || shift == 0);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

static bool
next_field(wire_t *wire)
{
    if (wire->at == wire->end) return false;
    uint64_t tag = read_varint(wire);
    wire->number = tag >> 3;
    wire->is_varint = (tag & 7) == 0;
    if (wire->is_varint) {
        wire->varint = read_varint(wire);
    } else {
        assert_int_equal(tag & 7, 2);
        uint64_t length = read_varint(wire);
        assert_true(length <= (uint64_t)(wire->end - wire->at));
        wire->bytes = (mpp_view_t){(const char *)wire->at, length};
        wire->at += length;
    }
    return true;
}

static uint64_t
number_in(const wire_t *wire)
{
    assert_true(wire->is_varint);
    return wire->varint;
}

static mpp_view_t
bytes_in(const wire_t *wire)
{
    assert_false(wire->is_varint);
    return wire->bytes;
}

/* A message of numbers alone, where field n goes to numbers[n - 1]; none may come twice. */
static void
read_numbers(mpp_view_t view, uint64_t *numbers, size_t n)
{
    uint32_t seen = 0;
    for (wire_t wire = wire_of(view); next_field(&wire);) {
        assert_true(wire.number >= 1 && wire.number <= n);
        assert_false(seen & (1u << wire.number));
        seen |= 1u << wire.number;
        numbers[wire.number - 1] = number_in(&wire);
    }
}

static void
read_packed(const wire_t *wire, uint64_t **numbers, size_t *n)
{
    if (wire->is_varint) {
        APPEND(*numbers, *n, wire->varint);
        return;
    }
    for (wire_t packed = wire_of(wire->bytes); packed.at != packed.end;) APPEND(*numbers, *n, read_varint(&packed));
}

/* -- messages -- */

static support_value_type_t
read_value_type(mpp_view_t view)
{
    uint64_t numbers[2] = {0};
    read_numbers(view, numbers, 2);
    return (support_value_type_t){numbers[0], numbers[1]};
}

static support_label_t
read_label(mpp_view_t view)
{
    uint64_t numbers[4] = {0};
    read_numbers(view, numbers, 4);
    return (support_label_t){numbers[0], numbers[1], numbers[2], numbers[3]};
}

static support_sample_t
read_sample(mpp_view_t view)
{
    support_sample_t sample = {0};
    for (wire_t wire = wire_of(view); next_field(&wire);) {
        switch (wire.number) {
        case 1: read_packed(&wire, &sample.locations, &sample.n_locations); break;
        case 2: read_packed(&wire, &sample.values, &sample.n_values); break;
        case 3: APPEND(sample.labels, sample.n_labels, read_label(bytes_in(&wire))); break;
        default: fail_msg("field %" PRIu64 " in a Sample", wire.number);
        }
    }
    return sample;
}

static support_mapping_t
read_mapping(mpp_view_t view)
{
    uint64_t n[10] = {0};
    read_numbers(view, n, 10);
    return (support_mapping_t){n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9]};
}

static support_location_t
read_location(mpp_view_t view)
{
    support_location_t location = {0};
    for (wire_t wire = wire_of(view); next_field(&wire);) {
        switch (wire.number) {
        case 1: location.id = number_in(&wire); break;
        case 2: location.mapping = number_in(&wire); break;
        case 3: location.address = number_in(&wire); break;
        case 4: {
            uint64_t numbers[2] = {0};
            read_numbers(bytes_in(&wire), numbers, 2);
            location.function = numbers[0];
            location.line = numbers[1];
            location.n_lines++;
            break;
        }
        case 5: location.folded = number_in(&wire); break;
        default: fail_msg("field %" PRIu64 " in a Location", wire.number);
        }
    }
    return location;
}

static support_function_t
read_function(mpp_view_t view)
{
    uint64_t n[5] = {0};
    read_numbers(view, n, 5);
    return (support_function_t){n[0], n[1], n[2], n[3], n[4]};
}

static void
read_profile(support_pprof_t *p)
{
    wire_t wire = wire_of((mpp_view_t){(const char *)p->message, p->message_bytes});
    while (next_field(&wire)) {
        assert_true(wire.number < SUPPORT_LENGTH(p->n_singular));
        p->n_singular[wire.number]++;
        switch (wire.number) {
        case 1: APPEND(p->sample_types, p->n_sample_types, read_value_type(bytes_in(&wire))); break;
        case 2: APPEND(p->samples, p->n_samples, read_sample(bytes_in(&wire))); break;
        case 3: APPEND(p->mappings, p->n_mappings, read_mapping(bytes_in(&wire))); break;
        case 4: APPEND(p->locations, p->n_locations, read_location(bytes_in(&wire))); break;
        case 5: APPEND(p->functions, p->n_functions, read_function(bytes_in(&wire))); break;
        case 6: APPEND(p->strings, p->n_strings, bytes_in(&wire)); break;
        case 7: p->drop_frames = number_in(&wire); break;
        case 8: p->keep_frames = number_in(&wire); break;
        case 9: p->time_nanos = number_in(&wire); break;
        case 10: p->duration_nanos = number_in(&wire); break;
        case 11: p->period_type = read_value_type(bytes_in(&wire)); break;
        case 12: p->period = number_in(&wire); break;
        case 13: read_packed(&wire, &p->comments, &p->n_comments); break;
        case 14: p->default_sample_type = number_in(&wire); break;
        default: fail_msg("field %" PRIu64 " in the Profile", wire.number);
        }
    }
}

static void
inflate_all(support_pprof_t *profile, const support_sink_t *sink)
{
    z_stream stream = {.next_in = sink->bytes, .avail_in = (uInt)sink->n_bytes};
    assert_int_equal(inflateInit2(&stream, 15 + 16), Z_OK);
    size_t capacity = 0;
    int result = Z_OK;
    while (result == Z_OK) {
        if (profile->message_bytes == capacity) {
            capacity = capacity ? 2 * capacity : 4096;
            profile->message = realloc(profile->message, capacity);
            assert_non_null(profile->message);
        }
        stream.next_out = profile->message + profile->message_bytes;
        stream.avail_out = (uInt)(capacity - profile->message_bytes);
        result = inflate(&stream, Z_NO_FLUSH);
        profile->message_bytes = capacity - stream.avail_out;
    }
    assert_int_equal(result, Z_STREAM_END);
    assert_int_equal(stream.avail_in, 0);
    inflateEnd(&stream);
}

void
support_pprof_read(support_pprof_t *profile, const support_sink_t *sink)
{
    *profile = (support_pprof_t){0};
    inflate_all(profile, sink);
    read_profile(profile);
}

void
support_pprof_free(support_pprof_t *profile)
{
    for (size_t i = 0; i < profile->n_samples; i++) {
        free(profile->samples[i].locations);
        free(profile->samples[i].values);
        free(profile->samples[i].labels);
    }
    free(profile->message);
    free(profile->sample_types);
    free(profile->samples);
    free(profile->mappings);
    free(profile->locations);
    free(profile->functions);
    free(profile->strings);
    free(profile->comments);
    *profile = (support_pprof_t){0};
}

/* -- rules -- */

/* Bytes that follow a lead byte; -1 if it is none. */
static int
n_continuation(unsigned lead)
{
    if (lead < 0x80) return 0;
    if (lead < 0xc2 || lead > 0xf4) return -1;
    return lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
}

size_t
support_utf8_length(mpp_view_t view)
{
    const unsigned char *at = (const unsigned char *)view.bytes;
    int n = n_continuation(*at);
    if (n < 0 || (size_t)n >= view.length) return 0;
    uint32_t code = n == 0 ? *at : *at & (0x3fu >> n);
    for (int i = 1; i <= n; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    if (n == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) return 0;
    if (n == 3 && (code < 0x10000 || code > 0x10ffff)) return 0;
    return (size_t)n + 1;
}

static bool
is_utf8(mpp_view_t view)
{
    while (view.length > 0) {
        size_t length = support_utf8_length(view);
        if (length == 0) return false;
        view = (mpp_view_t){view.bytes + length, view.length - length};
    }
    return true;
}

static int
compare_numbers(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void
assert_addresses_unique(const support_pprof_t *profile)
{
    uint64_t *addresses = NULL;
    size_t n = 0;
    for (size_t i = 0; i < profile->n_locations; i++) {
        uint64_t address = profile->locations[i].address;
        assert_true(address != 0 && address <= INT64_MAX);
        APPEND(addresses, n, address);
    }
    if (n > 0) qsort(addresses, n, sizeof(*addresses), compare_numbers);
    for (size_t i = 1; i < n; i++) assert_true(addresses[i - 1] != addresses[i]);
    free(addresses);
}

static void
assert_samples_valid(const support_pprof_t *profile)
{
    for (size_t i = 0; i < profile->n_samples; i++) {
        const support_sample_t *sample = &profile->samples[i];
        assert_int_equal(sample->n_values, profile->n_sample_types);
        uint64_t any = 0;
        for (size_t k = 0; k < sample->n_values; k++) {
            assert_true(sample->values[k] <= INT64_MAX);
            any |= sample->values[k];
        }
        assert_true(any != 0);
        for (size_t k = 0; k < sample->n_locations; k++) {
            assert_true(sample->locations[k] >= 1 && sample->locations[k] <= profile->n_locations);
        }
        for (size_t k = 0; k < sample->n_labels; k++) {
            assert_true(sample->labels[k].key >= 1 && sample->labels[k].key < profile->n_strings);
            assert_true(sample->labels[k].str < profile->n_strings);
            for (size_t j = 0; j < k; j++) assert_true(sample->labels[j].key != sample->labels[k].key);
        }
    }
}

void
support_pprof_assert_valid(const support_pprof_t *p)
{
    assert_true(p->n_strings > 0);
    assert_int_equal(p->strings[0].length, 0);
    for (size_t i = 0; i < p->n_strings; i++) assert_true(is_utf8(p->strings[i]));
    for (size_t i = 7; i <= 14; i++) assert_true(i == 13 || p->n_singular[i] <= 1);

    assert_true(p->n_sample_types > 0);
    for (size_t i = 0; i < p->n_sample_types; i++) {
        assert_true(p->sample_types[i].type >= 1 && p->sample_types[i].type < p->n_strings);
        assert_true(p->sample_types[i].unit >= 1 && p->sample_types[i].unit < p->n_strings);
    }
    assert_true(p->period_type.type < p->n_strings && p->period_type.unit < p->n_strings);
    assert_true(p->default_sample_type < p->n_strings);
    for (size_t i = 0; i < p->n_comments; i++) assert_true(p->comments[i] < p->n_strings);

    assert_int_equal(p->n_mappings, 1);
    assert_int_equal(p->mappings[0].id, 1);
    assert_true(p->mappings[0].filename < p->n_strings);
    for (size_t i = 0; i < p->n_locations; i++) {
        assert_int_equal(p->locations[i].id, i + 1);
        assert_int_equal(p->locations[i].mapping, 1);
        assert_int_equal(p->locations[i].n_lines, 1);
        assert_true(p->locations[i].function >= 1 && p->locations[i].function <= p->n_functions);
    }
    for (size_t i = 0; i < p->n_functions; i++) {
        assert_int_equal(p->functions[i].id, i + 1);
        assert_int_equal(p->functions[i].system_name, 0);
        assert_true(p->functions[i].name < p->n_strings && p->functions[i].filename < p->n_strings);
    }
    assert_addresses_unique(p);
    assert_samples_valid(p);
}

/* -- texts -- */

static char *
next_buffer(size_t *n_bytes)
{
    static char buffers[8][512];
    static unsigned turn;
    *n_bytes = sizeof(buffers[0]);
    return buffers[turn++ % SUPPORT_LENGTH(buffers)];
}

const char *
support_pprof_string(const support_pprof_t *profile, uint64_t index)
{
    size_t n_bytes;
    char *buffer = next_buffer(&n_bytes);
    assert_true(index < profile->n_strings);
    snprintf(buffer, n_bytes, "%.*s", (int)profile->strings[index].length, profile->strings[index].bytes);
    return buffer;
}

const char *
support_pprof_sample_text(const support_pprof_t *profile, size_t index)
{
    size_t n_bytes;
    char *buffer = next_buffer(&n_bytes);
    assert_true(index < profile->n_samples);
    const support_sample_t *sample = &profile->samples[index];
    FILE *text = fmemopen(buffer, n_bytes, "w");
    assert_non_null(text);
    for (size_t i = 0; i < sample->n_locations; i++) {
        const support_location_t *location = &profile->locations[sample->locations[i] - 1];
        const support_function_t *function = &profile->functions[location->function - 1];
        fprintf(text, "%s%s", i ? " < " : "", support_pprof_string(profile, function->name));
    }
    for (size_t i = 0; i < sample->n_labels; i++) {
        fprintf(text, " [%s=%s]", support_pprof_string(profile, sample->labels[i].key),
                support_pprof_string(profile, sample->labels[i].str));
    }
    fprintf(text, ":");
    for (size_t i = 0; i < sample->n_values; i++) fprintf(text, " %" PRIu64, sample->values[i]);
    fclose(text);
    return buffer;
}
