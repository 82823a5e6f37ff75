/*
 * zlib's deflate with its memory taken through the seam. Output is handed over whenever the buffer is full, and at the
 * end.
 */

#include "gzip.h"

#include <limits.h>

#define BUFFER_BYTES ((uInt)16 << 10)
#define LARGEST_WINDOW 15
#define WITH_GZIP_HEADER 16
#define DEFAULT_MEMORY_LEVEL 8

static voidpf
take(voidpf scratch, uInt items, uInt item_bytes)
{
    return mpp_scratch_resize(scratch, NULL, (size_t)items * item_bytes);
}

static void
give(voidpf scratch, voidpf block)
{
    (void)mpp_scratch_resize(scratch, block, 0);
}

static void
reset_buffer(mpp_gzip_t *gzip)
{
    gzip->stream.next_out = gzip->buffer;
    gzip->stream.avail_out = BUFFER_BYTES;
}

mpp_status_t
mpp_gzip_init(mpp_gzip_t *gzip, mpp_scratch_t *scratch, int level, mpp_output_t output, void *output_context)
{
    *gzip = (mpp_gzip_t){
        .stream = {.zalloc = take, .zfree = give, .opaque = scratch},
        .scratch = scratch,
        .output = output,
        .output_context = output_context,
    };
    unsigned char *buffer = mpp_scratch_resize(scratch, NULL, BUFFER_BYTES);
    if (!buffer) return scratch->status;

    int result = deflateInit2(&gzip->stream, level, Z_DEFLATED, LARGEST_WINDOW + WITH_GZIP_HEADER, DEFAULT_MEMORY_LEVEL,
                              Z_DEFAULT_STRATEGY);
    if (result != Z_OK) {
        (void)mpp_scratch_resize(scratch, buffer, 0);
        return result == Z_MEM_ERROR ? scratch->status : MPP_ENCODING;
    }
    gzip->buffer = buffer;
    reset_buffer(gzip);
    return MPP_OK;
}

void
mpp_gzip_cleanup(mpp_gzip_t *gzip)
{
    if (!gzip->buffer) return;
    (void)deflateEnd(&gzip->stream);
    (void)mpp_scratch_resize(gzip->scratch, gzip->buffer, 0);
    *gzip = (mpp_gzip_t){0};
}

static mpp_status_t
hand_over(mpp_gzip_t *gzip)
{
    size_t n_bytes = BUFFER_BYTES - gzip->stream.avail_out;
    reset_buffer(gzip);
    return gzip->output(gzip->output_context, gzip->buffer, n_bytes);
}

/* Until all input is taken (Z_NO_FLUSH), or the stream is ended (Z_FINISH). */
static mpp_status_t
deflate_input(mpp_gzip_t *gzip, int flush)
{
    for (;;) {
        int result = deflate(&gzip->stream, flush);
        if (result == Z_STREAM_END) return hand_over(gzip);
        if (result != Z_OK && result != Z_BUF_ERROR) return MPP_ENCODING;
        if (gzip->stream.avail_out != 0) return flush == Z_FINISH ? MPP_ENCODING : MPP_OK;
        mpp_status_t status = hand_over(gzip);
        if (status != MPP_OK) return status;
    }
}

mpp_status_t
mpp_gzip_write(mpp_gzip_t *gzip, const void *bytes, size_t n_bytes)
{
    const unsigned char *next = bytes;
    while (n_bytes > 0) {
        uInt n = n_bytes > UINT_MAX ? UINT_MAX : (uInt)n_bytes;
        gzip->stream.next_in = next;
        gzip->stream.avail_in = n;
        mpp_status_t status = deflate_input(gzip, Z_NO_FLUSH);
        if (status != MPP_OK) return status;
        next += n;
        n_bytes -= n;
    }
    return MPP_OK;
}

mpp_status_t
mpp_gzip_finish(mpp_gzip_t *gzip)
{
    return deflate_input(gzip, Z_FINISH);
}
