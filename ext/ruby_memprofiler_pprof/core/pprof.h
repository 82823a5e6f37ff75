#ifndef MPP_PPROF_H
#define MPP_PPROF_H

/*
 * Snapshot → pprof's Profile message, gzip'd, written to an output callback as it grows. The message is built with upb
 * in an arena that is reset for every chunk; concatenated chunks are one valid message, for repeated fields append.
 * Scratch memory: about half a MiB for the arena and deflate; 4 bytes for each location, function and string (up to the
 * highest id in use, and up to a quarter more); with MPP_CLASS_FRAME 4 bytes more for each string, where rows are
 * merged 4 for each row.
 */

#include "snapshot.h"

#define MPP_PPROF_MAX_VALUE_TYPES 8

typedef struct {
    mpp_view_t type;
    mpp_view_t unit;
    int value; /* which of the row's values: MPP_ALLOCATED_COUNT … */
} mpp_value_type_t;

typedef enum { MPP_CLASS_LABEL, MPP_CLASS_FRAME, MPP_CLASS_OFF } mpp_class_mode_t;

/* Views are borrowed for the call. Bytes that are not valid UTF-8 are replaced, as in the snapshot's own strings. */
typedef struct {
    const mpp_value_type_t *value_types; /* 1 … MPP_PPROF_MAX_VALUE_TYPES */
    size_t n_value_types;
    mpp_class_mode_t class_mode;
    bool by_group; /* groups of windows apart, each sample with a number label `group` (0 …); else merged */
    mpp_view_t default_sample_type; /* empty: left unset */
    mpp_view_t period_type;
    mpp_view_t period_unit;
    int64_t period;
    int64_t time_ns; /* wall clock at the start of the interval */
    int64_t duration_ns;
    mpp_view_t mapping_file;
    const mpp_view_t *comments;
    size_t n_comments;
    int compression_level; /* zlib's, 1 … 9 */
} mpp_pprof_options_t;

/* Takes some bytes of the output; a status other than MPP_OK ends the encoding with it. [no-gvl] */
typedef mpp_status_t (*mpp_output_t)(void *context, const void *bytes, size_t n_bytes);

/* Builds the schema that all encodings share; call once before the first, and check. [gvl] */
MPP_CHECK mpp_status_t mpp_pprof_init(void);

/* profile.proto's FileDescriptorProto, for readers. Static. [any] */
mpp_view_t mpp_pprof_schema(void);

/*
 * Encodes. Values are rounded to whole numbers, remainders carried from row to row, so that each column's total is off by
 * less than 1. Rows whose values are all zero are left out; rows of the same stack and labels that differ in class alone
 * are merged with MPP_CLASS_OFF, rows that differ in the group alone unless by_group. Ids run 1 … N in order of first use, locations' addresses are 63-bit hashes of
 * (filename, name, start line, line). `scratch` is used by this call alone. [no-gvl]
 */
MPP_CHECK mpp_status_t mpp_pprof_encode(const mpp_snapshot_view_t *snapshot, const mpp_pprof_options_t *options,
                                        mpp_allocator_t *scratch, mpp_output_t output, void *output_context);

#endif
