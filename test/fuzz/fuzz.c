#define _POSIX_C_SOURCE 200809L /* setenv */

#include "fuzz.h"

#include <stdlib.h>

/* Else cmocka keeps to itself what has failed outside of its tests. */
__attribute__((constructor)) static void
say_what_fails(void)
{
    (void)setenv("CMOCKA_TEST_ABORT", "1", 1);
}
