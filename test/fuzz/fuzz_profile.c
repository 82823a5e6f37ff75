/* The profile beside its model: every byte is a decision of stateful.c. */

#include <stdlib.h>

#include "fuzz.h"
#include "stateful.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (mpp_stateful_run(data, size) != 0) abort();
    return 0;
}
