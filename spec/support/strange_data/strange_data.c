/*
 * Objects of an extension (T_DATA) whose size is anything but a plain number:
 *   StrangeData.new { … }  it is what the block gives, and whatever else the block does
 *   StrangeData.new        more than there is
 *   SilentData.new         there is no size function
 *   UntypedData.new        nor a type
 */
#include <ruby.h>

static size_t
size(const void *data)
{
    VALUE block = (VALUE)data;
    return NIL_P(block) ? SIZE_MAX : NUM2SIZET(rb_funcall(block, rb_intern("call"), 0));
}

static void
mark(void *data)
{
    rb_gc_mark((VALUE)data);
}

static const rb_data_type_t strange_type = {
    .wrap_struct_name = "strange_data", .function = {.dmark = mark, .dsize = size},
};
static const rb_data_type_t silent_type = {.wrap_struct_name = "silent_data"};

static VALUE
strange_allocate(VALUE class)
{
    return TypedData_Wrap_Struct(class, &strange_type, (void *)Qnil);
}

static VALUE
strange_initialize(VALUE self)
{
    DATA_PTR(self) = (void *)(rb_block_given_p() ? rb_block_proc() : Qnil);
    return self;
}

static VALUE
silent_allocate(VALUE class)
{
    return TypedData_Wrap_Struct(class, &silent_type, (void *)Qnil);
}

static VALUE
untyped_allocate(VALUE class)
{
    return Data_Wrap_Struct(class, NULL, NULL, (void *)Qnil);
}

void
Init_strange_data(void)
{
    VALUE strange = rb_define_class("StrangeData", rb_cObject);
    rb_define_alloc_func(strange, strange_allocate);
    rb_define_method(strange, "initialize", strange_initialize, 0);
    rb_define_alloc_func(rb_define_class("SilentData", rb_cObject), silent_allocate);
    rb_define_alloc_func(rb_define_class("UntypedData", rb_cObject), untyped_allocate);
}
