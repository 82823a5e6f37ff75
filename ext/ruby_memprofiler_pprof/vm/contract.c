/*
 * See contract.h. An allocation shows in the VM's counter, at the end of the hook that made it. With a second Ractor
 * others go on allocating meanwhile, so from then on it is not looked at, nor where the VM does not tell.
 */
#include "contract.h"

#ifdef MPP_CHECK_HOOKS

#include <stdio.h>
#include <stdlib.h>

extern const void *ruby_single_main_ractor __attribute__((weak)); /* not exported from 3.3 on */

static __thread const char *function_in_hook;

static _Noreturn void
end_process(const char *function, const char *does, const char *what)
{
    fprintf(stderr, "ruby_memprofiler_pprof: the hook %s %s %s\n", function, does, what);
    abort();
}

mpp_in_hook_t
mpp_enter_hook(const char *function)
{
    mpp_in_hook_t entered = {function, function_in_hook, mpp_compat_allocated_objects()};
    function_in_hook = function;
    return entered;
}

void
mpp_leave_hook(mpp_in_hook_t *entered)
{
    bool has_allocated = mpp_compat_allocated_objects() != entered->allocated;
    bool is_alone = &ruby_single_main_ractor != NULL && ruby_single_main_ractor != NULL;
    if (has_allocated && is_alone) end_process(entered->function, "allocates", "a Ruby object");
    function_in_hook = entered->outer;
}

void
mpp_not_in_hook(const char *call)
{
    if (function_in_hook) end_process(function_in_hook, "calls", call);
}

#endif
