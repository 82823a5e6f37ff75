#ifndef MPP_GZIP_H
#define MPP_GZIP_H

/*
 * Bytes → gzip → an output callback. The same bytes in give the same bytes out: no time and no name is in the header.
 */

#define ZLIB_CONST /* input is const */
#include <zlib.h>

#include "pprof.h"
#include "scratch.h"

typedef struct {
    z_stream stream;
    mpp_scratch_t *scratch;
    mpp_output_t output;
    void *output_context;
    unsigned char *buffer; /* NULL: not initialised */
} mpp_gzip_t;

/* level: zlib's. On failure nothing is owned. [no-gvl] */
MPP_CHECK mpp_status_t mpp_gzip_init(mpp_gzip_t *gzip, mpp_scratch_t *scratch, int level, mpp_output_t output,
                                     void *output_context);
/* A zeroed one is fine. [no-gvl] */
void mpp_gzip_cleanup(mpp_gzip_t *gzip);

/* After a failure of either there is nothing to do but cleanup. [no-gvl] */
MPP_CHECK mpp_status_t mpp_gzip_write(mpp_gzip_t *gzip, const void *bytes, size_t n_bytes);
/* Hands over the rest. [no-gvl] */
MPP_CHECK mpp_status_t mpp_gzip_finish(mpp_gzip_t *gzip);

#endif
