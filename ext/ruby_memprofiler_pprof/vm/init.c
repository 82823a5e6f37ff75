/*
 * The extension's entry: everything that allocates on first use is made to do so here, before any hook runs.
 */
#include "own_work.h"
#include "vm.h"

#include "../core/pprof.h"

void Init_ruby_memprofiler_pprof_native(void);

#ifdef MPP_FAIL_ALLOCATIONS
/* From now on the requests for memory that are numbered from … from + count - 1 fail; gives how many there were since the
 * last call. */
static VALUE
fail_allocations(VALUE self, VALUE from, VALUE count)
{
    (void)self;
    uint64_t n_requests = mpp_failures.n_requests;
    mpp_failures = (mpp_failures_t){.fail_from = NUM2ULL(from), .fail_count = NUM2ULL(count)};
    return ULL2NUM(n_requests);
}
#endif

RUBY_FUNC_EXPORTED void
Init_ruby_memprofiler_pprof_native(void)
{
    VALUE module = rb_define_module("MemprofilerPprof");
    if (rb_const_defined(module, rb_intern("NATIVE_VERSION"))) {
        rb_raise(rb_eLoadError, "ruby_memprofiler_pprof: another copy of the native extension is loaded already");
    }
    rb_define_const(module, "NATIVE_VERSION", rb_obj_freeze(rb_str_new_cstr(MPP_VERSION)));
    if (mpp_pprof_init() != MPP_OK) rb_memerror();
    mpp_compat_init(mpp_jobs_run);
    mpp_process_init();
    mpp_own_work_init();
    mpp_patches_define(module);
    mpp_weak_map_define(module);
    mpp_collector_define(module);
    mpp_estimate_define(module);
#ifdef MPP_FAIL_ALLOCATIONS
    rb_define_private_method(rb_singleton_class(module), "fail_allocations_native", fail_allocations, 2);
#endif
}
