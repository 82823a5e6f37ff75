#ifndef FUZZ_H
#define FUZZ_H

/*
 * A fuzzing target: what libFuzzer calls with an input, and replay.c with those of the corpus. A check that fails ends the
 * process: abort, or an assertion of cmocka's, which aborts outside its tests.
 *
 * Inputs are decisions, a byte or more each; after the end of an input every decision is 0.
 */

#include <stddef.h>
#include <stdint.h>

__attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *at, *end;
} fuzz_input_t;

static inline fuzz_input_t
fuzz_input(const uint8_t *data, size_t size)
{
    return (fuzz_input_t){data, data + size};
}

static inline size_t
fuzz_left(const fuzz_input_t *input)
{
    return (size_t)(input->end - input->at);
}

static inline uint8_t
fuzz_byte(fuzz_input_t *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

/* 0 … bound - 1, for bounds up to 256. */
static inline uint32_t
fuzz_below(fuzz_input_t *input, uint32_t bound)
{
    return fuzz_byte(input) % bound;
}

static inline uint64_t
fuzz_number(fuzz_input_t *input, unsigned n_bytes)
{
    uint64_t number = 0;
    while (n_bytes-- > 0) number = number << 8 | fuzz_byte(input);
    return number;
}

/* Any number below 2^64, each order of magnitude as likely. */
static inline uint64_t
fuzz_magnitude(fuzz_input_t *input)
{
    uint32_t bits = fuzz_below(input, 65);
    if (bits == 0) return 0;
    uint64_t top = UINT64_C(1) << (bits - 1);
    return top | (fuzz_number(input, (bits + 7) / 8) & (top - 1));
}

#endif
