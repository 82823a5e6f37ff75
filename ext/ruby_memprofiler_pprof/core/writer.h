#ifndef MPP_WRITER_H
#define MPP_WRITER_H

/*
 * Writes one Profile message of any size in bounded memory. What is added gathers in a chunk; a full chunk is encoded,
 * compressed, handed over and forgotten. Chunks that follow each other are one valid message: repeated fields append.
 *
 * Failure is sticky: after the first one nothing is written, adding gives NULL, setting does nothing, and
 * mpp_writer_status tells why. So a caller may check now and then instead of at every step.
 */

#include "pprof.h"

/* id, message, field. The fields that are written, by their names in profile.proto. */
#define MPP_FIELD_LIST(X)                                                                                              \
    X(PROFILE_SAMPLE_TYPE, "Profile", "sample_type")                                                                   \
    X(PROFILE_SAMPLE, "Profile", "sample")                                                                             \
    X(PROFILE_MAPPING, "Profile", "mapping")                                                                           \
    X(PROFILE_LOCATION, "Profile", "location")                                                                         \
    X(PROFILE_FUNCTION, "Profile", "function")                                                                         \
    X(PROFILE_STRING_TABLE, "Profile", "string_table")                                                                 \
    X(PROFILE_TIME_NANOS, "Profile", "time_nanos")                                                                     \
    X(PROFILE_DURATION_NANOS, "Profile", "duration_nanos")                                                             \
    X(PROFILE_PERIOD_TYPE, "Profile", "period_type")                                                                   \
    X(PROFILE_PERIOD, "Profile", "period")                                                                             \
    X(PROFILE_COMMENT, "Profile", "comment")                                                                           \
    X(PROFILE_DEFAULT_SAMPLE_TYPE, "Profile", "default_sample_type")                                                   \
    X(VALUE_TYPE_TYPE, "ValueType", "type")                                                                            \
    X(VALUE_TYPE_UNIT, "ValueType", "unit")                                                                            \
    X(SAMPLE_LOCATION_ID, "Sample", "location_id")                                                                     \
    X(SAMPLE_VALUE, "Sample", "value")                                                                                 \
    X(SAMPLE_LABEL, "Sample", "label")                                                                                 \
    X(LABEL_KEY, "Label", "key")                                                                                       \
    X(LABEL_NUM, "Label", "num")                                                                                       \
    X(LABEL_STR, "Label", "str")                                                                                       \
    X(MAPPING_ID, "Mapping", "id")                                                                                     \
    X(MAPPING_FILENAME, "Mapping", "filename")                                                                         \
    X(MAPPING_HAS_FUNCTIONS, "Mapping", "has_functions")                                                               \
    X(MAPPING_HAS_FILENAMES, "Mapping", "has_filenames")                                                               \
    X(MAPPING_HAS_LINE_NUMBERS, "Mapping", "has_line_numbers")                                                         \
    X(LOCATION_ID, "Location", "id")                                                                                   \
    X(LOCATION_MAPPING_ID, "Location", "mapping_id")                                                                   \
    X(LOCATION_ADDRESS, "Location", "address")                                                                         \
    X(LOCATION_LINE, "Location", "line")                                                                               \
    X(LINE_FUNCTION_ID, "Line", "function_id")                                                                         \
    X(LINE_LINE, "Line", "line")                                                                                       \
    X(FUNCTION_ID, "Function", "id")                                                                                   \
    X(FUNCTION_NAME, "Function", "name")                                                                               \
    X(FUNCTION_FILENAME, "Function", "filename")                                                                       \
    X(FUNCTION_START_LINE, "Function", "start_line")

typedef enum {
#define MPP_FIELD_ID(id, message, field) MPP_##id,
    MPP_FIELD_LIST(MPP_FIELD_ID)
#undef MPP_FIELD_ID
        MPP_N_FIELDS
} mpp_field_t;

typedef struct mpp_writer mpp_writer_t;

/* A message under construction, upb's own. */
typedef struct upb_Message mpp_message_t;

/* Builds the schema that all writers share, once. [gvl] */
MPP_CHECK mpp_status_t mpp_writer_load_schema(void);

/* profile.proto's FileDescriptorProto, static. [any] */
mpp_view_t mpp_writer_schema(void);

/* On failure *writer is NULL and nothing is owned. [no-gvl] */
MPP_CHECK mpp_status_t mpp_writer_new(mpp_allocator_t *allocator, int compression_level, mpp_output_t output,
                                      void *output_context, mpp_writer_t **writer);
/* NULL is fine. [no-gvl] */
void mpp_writer_free(mpp_writer_t *writer);

/*
 * Adds a message in a field of `parent`; NULL stands for the Profile. What is added to the Profile is complete when the
 * next is: its messages may no longer be touched then. [no-gvl]
 */
mpp_message_t *mpp_writer_add(mpp_writer_t *writer, mpp_message_t *parent, mpp_field_t field);

/* Appends to Profile.string_table. The bytes must stay until the writer is freed; what is not UTF-8 in them is written as
 * question marks. [no-gvl] */
void mpp_writer_add_string(mpp_writer_t *writer, mpp_view_t string);

/* Sets a field of `message` that holds a number. [no-gvl] */
void mpp_writer_set(mpp_writer_t *writer, mpp_message_t *message, mpp_field_t field, int64_t number);

/* The same in the Profile: sets a field, once, or appends to one that repeats. [no-gvl] */
void mpp_writer_set_top(mpp_writer_t *writer, mpp_field_t field, int64_t number);

/* Fills a field of `message` that repeats a 64-bit number. [no-gvl] */
void mpp_writer_set_numbers(mpp_writer_t *writer, mpp_message_t *message, mpp_field_t field, const uint64_t *numbers,
                            size_t n_numbers);

/* Writes what is left. [no-gvl] */
void mpp_writer_finish(mpp_writer_t *writer);

/* The first failure. [no-gvl] */
mpp_status_t mpp_writer_status(const mpp_writer_t *writer);

/* The caller's own failure: makes it the writer's, unless that has one. [no-gvl] */
void mpp_writer_fail(mpp_writer_t *writer, mpp_status_t status);

#endif
