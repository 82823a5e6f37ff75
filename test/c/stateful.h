#ifndef STATEFUL_H
#define STATEFUL_H

/*
 * A profile under random operations beside a simple model of what it must say. Every decision (the limits, which
 * operation, on what, which allocation fails) is a byte of the input, so a fuzzer can drive it, and a list of seeds can.
 */

#include <stddef.h>
#include <stdint.h>

/* 0 if all held; else the line of stateful.c whose check did not, which is also printed. */
int mpp_stateful_run(const uint8_t *data, size_t size);

#endif
