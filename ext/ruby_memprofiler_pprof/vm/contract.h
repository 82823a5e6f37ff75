#ifndef MPP_VM_CONTRACT_H
#define MPP_VM_CONTRACT_H

/*
 * The contract of what runs in [newobj] and [gc] context, checked in instrumented builds and nothing in others: no
 * Ruby object is allocated, and nothing is called that may run Ruby code. Who breaks it ends the process with its name.
 *
 *   static void on_something(…) { MPP_IN_HOOK; … }
 */

#include "compat.h"

#ifndef MPP_CHECK_HOOKS /* not NDEBUG, which Ruby's headers define */
#define MPP_IN_HOOK ((void)0)
#else

#define MPP_IN_HOOK mpp_in_hook_t in_hook __attribute__((cleanup(mpp_leave_hook), unused)) = mpp_enter_hook(__func__)

typedef struct {
    const char *function;
    const char *outer;
    size_t allocated; /* by the VM so far */
} mpp_in_hook_t;

mpp_in_hook_t mpp_enter_hook(const char *function); /* [newobj] [gc] */
void mpp_leave_hook(mpp_in_hook_t *entered);        /* [newobj] [gc] */

/* Ends the process where a hook calls what is named. [any] */
void mpp_not_in_hook(const char *call);

#undef rb_funcall
#undef rb_funcallv
#undef rb_ensure
#undef rb_protect
#undef rb_yield_values
#define rb_funcall(...) (mpp_not_in_hook("rb_funcall"), rb_funcall(__VA_ARGS__))
#define rb_funcallv(...) (mpp_not_in_hook("rb_funcallv"), rb_funcallv(__VA_ARGS__))
#define rb_ensure(...) (mpp_not_in_hook("rb_ensure"), rb_ensure(__VA_ARGS__))
#define rb_protect(...) (mpp_not_in_hook("rb_protect"), rb_protect(__VA_ARGS__))
#define rb_yield_values(...) (mpp_not_in_hook("rb_yield_values"), rb_yield_values(__VA_ARGS__))
#define rb_thread_schedule() (mpp_not_in_hook("rb_thread_schedule"), rb_thread_schedule())

#endif
#endif
