/*
 * The core's error estimates, and the schema that profiles are read with, as private methods of the module.
 */
#include "vm.h"

#include "../core/estimate.h"
#include "../core/pprof.h"

static void
read_groups(VALUE array, double *groups)
{
    Check_Type(array, T_ARRAY);
    for (long i = 0; i < (long)MPP_N_GROUPS; i++) groups[i] = NUM2DBL(rb_ary_entry(array, i));
}

static VALUE
to_array(mpp_estimate_t estimate)
{
    return rb_ary_new_from_args(4, DBL2NUM(estimate.share), DBL2NUM(estimate.standard_error), DBL2NUM(estimate.low),
                                DBL2NUM(estimate.high));
}

/* Of what was sampled in windows: sums by group. is_share: the part is of the whole's kind. */
static VALUE
estimate_part(VALUE module, VALUE part, VALUE whole, VALUE n_windows, VALUE unobserved, VALUE is_share)
{
    double parts[MPP_N_GROUPS], wholes[MPP_N_GROUPS];
    (void)module;
    read_groups(part, parts);
    read_groups(whole, wholes);
    mpp_estimate_t (*estimate)(const double *, const double *, uint64_t, double) =
        RTEST(is_share) ? mpp_estimate_share : mpp_estimate_ratio;
    return to_array(estimate(parts, wholes, NUM2ULL(n_windows), NUM2DBL(unobserved)));
}

/* Of what was sampled one by one: a sum and its variance. */
static VALUE
estimate_sum(VALUE module, VALUE sum, VALUE variance, VALUE least)
{
    (void)module;
    return to_array(mpp_estimate_sum(NUM2DBL(sum), NUM2DBL(variance), NUM2DBL(least)));
}

static mpp_estimate_t
from_array(VALUE array)
{
    double numbers[4];
    Check_Type(array, T_ARRAY);
    for (long i = 0; i < 4; i++) numbers[i] = NUM2DBL(rb_ary_entry(array, i));
    return (mpp_estimate_t){numbers[0], numbers[1], numbers[2], numbers[3]};
}

static VALUE
add_estimates(VALUE module, VALUE left, VALUE right)
{
    (void)module;
    return to_array(mpp_estimate_add(from_array(left), from_array(right)));
}

static VALUE
schema(VALUE module)
{
    mpp_view_t view = mpp_pprof_schema();
    (void)module;
    return rb_str_new(view.bytes, (long)view.length);
}

void
mpp_estimate_define(VALUE module)
{
    VALUE singleton = rb_singleton_class(module);
    rb_define_private_method(singleton, "estimate_part_native", estimate_part, 5);
    rb_define_private_method(singleton, "estimate_sum_native", estimate_sum, 3);
    rb_define_private_method(singleton, "add_estimates_native", add_estimates, 2);
    rb_define_private_method(singleton, "schema_native", schema, 0);
}
