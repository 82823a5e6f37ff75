#ifndef SUPPORT_PPROF_H
#define SUPPORT_PPROF_H

/*
 * Reads profiles back, sharing nothing with the encoder: gzip by zlib's inflate, the message by a wire-format reader of
 * its own. Whatever is malformed fails the test. Include after support.h.
 */

#include "pprof.h"

/* An output callback's context: all that came, and when to refuse. */
typedef struct {
    unsigned char *bytes;
    size_t n_bytes;
    uint32_t n_calls;
    uint32_t refuse_call; /* from 1; 0 = none. That call gives MPP_OUTPUT */
} support_sink_t;

mpp_status_t support_sink_write(void *sink, const void *bytes, size_t n_bytes);
void support_sink_free(support_sink_t *sink);

typedef struct {
    uint64_t type, unit; /* strings */
} support_value_type_t;

typedef struct {
    uint64_t key, str, num, num_unit;
} support_label_t;

typedef struct {
    uint64_t *locations; /* ids, leaf first */
    size_t n_locations;
    uint64_t *values;
    size_t n_values;
    support_label_t *labels;
    size_t n_labels;
} support_sample_t;

typedef struct {
    uint64_t id, memory_start, memory_limit, file_offset, filename, build_id;
    uint64_t has_functions, has_filenames, has_line_numbers, has_inline_frames;
} support_mapping_t;

typedef struct {
    uint64_t id, mapping, address, folded;
    uint64_t function, line; /* of its one line */
    size_t n_lines;
} support_location_t;

typedef struct {
    uint64_t id, name, system_name, filename, start_line;
} support_function_t;

typedef struct {
    unsigned char *message; /* inflated; strings point into it */
    size_t message_bytes;
    support_value_type_t *sample_types;
    size_t n_sample_types;
    support_sample_t *samples;
    size_t n_samples;
    support_mapping_t *mappings;
    size_t n_mappings;
    support_location_t *locations;
    size_t n_locations;
    support_function_t *functions;
    size_t n_functions;
    mpp_view_t *strings;
    size_t n_strings;
    uint64_t *comments;
    size_t n_comments;
    support_value_type_t period_type;
    uint64_t drop_frames, keep_frames, time_nanos, duration_nanos, period, default_sample_type;
    uint32_t n_singular[16]; /* how often the Profile's field of that number was written */
} support_pprof_t;

void support_pprof_read(support_pprof_t *profile, const support_sink_t *sink);
void support_pprof_free(support_pprof_t *profile);

/* Every rule that makes other people's tools read it. */
void support_pprof_assert_valid(const support_pprof_t *profile);

/* Bytes of the character that the text, which is not empty, begins with; 0 if that is not UTF-8. */
size_t support_utf8_length(mpp_view_t text);

/* A string as a C string, in one of a few static buffers used in turn. */
const char *support_pprof_string(const support_pprof_t *profile, uint64_t index);

/* "leaf < … < root [class=X]: 1 2 3 4", the same way. */
const char *support_pprof_sample_text(const support_pprof_t *profile, size_t sample);

#endif
