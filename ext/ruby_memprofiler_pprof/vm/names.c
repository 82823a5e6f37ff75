/*
 * Names for frames and classes, taken at the safe point: valid UTF-8, bounded in length, free of addresses, and without
 * running a line of the program (the VM's own functions are asked, never a method).
 * An address in a name ("#<Class:0x000…>#run") would make every run, and every reload, another function: it is cut out.
 * Names are made of Ruby strings, not in buffers here: the job may run on a C stack that has little left.
 */
#include "vm.h"

#include <string.h>

#define MAX_NAME_BYTES 4096

static bool
is_hex(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
}

/* The bytes of ":0x" and the digits behind it at this place, 0 if there are none. */
static size_t
address_at(const char *bytes, size_t left)
{
    if (left < 4 || memcmp(bytes, ":0x", 3) != 0 || !is_hex(bytes[3])) return 0;
    size_t n = 4;
    while (n < left && is_hex(bytes[n])) n++;
    return n;
}

static size_t
skip_to_address(VALUE string, size_t at)
{
    const char *bytes = RSTRING_PTR(string);
    size_t length = (size_t)RSTRING_LEN(string);
    while (at < length && address_at(bytes + at, length - at) == 0) at++;
    return at;
}

/* The string itself if there is none in it. */
static VALUE
without_addresses(VALUE string)
{
    size_t length = (size_t)RSTRING_LEN(string);
    size_t at = skip_to_address(string, 0);
    if (at == length) return string;
    VALUE rest = rb_str_new(NULL, 0);
    for (size_t from = 0;; at = skip_to_address(string, from)) {
        rb_str_cat(rest, RSTRING_PTR(string) + from, (long)(at - from));
        if (at == length) return rest;
        from = at + address_at(RSTRING_PTR(string) + at, length - at);
    }
}

/*
 * The string's bytes as valid UTF-8: what is not, in whatever encoding it was, becomes U+FFFD. To convert would be
 * kinder, but may load a transcoder, and with it run code of the program.
 */
static VALUE
utf8(VALUE string)
{
    if (rb_enc_str_coderange(string) == ENC_CODERANGE_7BIT) return string;
    if (rb_enc_get(string) != rb_utf8_encoding()) {
        string = rb_str_dup(string);
        rb_enc_associate(string, rb_utf8_encoding());
    }
    VALUE scrubbed = rb_str_scrub(string, Qnil);
    return NIL_P(scrubbed) ? string : scrubbed;
}

/* Nil if it is not a string. */
static VALUE
text(VALUE string)
{
    if (!RB_TYPE_P(string, T_STRING)) return Qnil;
    if (RSTRING_LEN(string) > 4 * MAX_NAME_BYTES) string = rb_str_substr(string, 0, MAX_NAME_BYTES);
    return utf8(string);
}

static VALUE
name_text(VALUE string)
{
    string = text(string);
    return NIL_P(string) ? string : without_addresses(string);
}

/* Its first MAX_NAME_BYTES, or less so as not to end within a character; empty if nil. */
static mpp_view_t
view_of(VALUE string)
{
    if (NIL_P(string)) return MPP_VIEW("");
    const char *bytes = RSTRING_PTR(string);
    size_t length = (size_t)RSTRING_LEN(string);
    if (length > MAX_NAME_BYTES) {
        length = MAX_NAME_BYTES;
        while (length > 0 && ((unsigned char)bytes[length] & 0xc0) == 0x80) length--;
    }
    return (mpp_view_t){bytes, length};
}

/* The absolute path where one exists, else what the program was told. */
static VALUE
path_of(VALUE frame)
{
    VALUE path = rb_profile_frame_absolute_path(frame);
    return text(RB_TYPE_P(path, T_STRING) ? path : rb_profile_frame_path(frame));
}

static bool
is_of_c_function(mpp_view_t path)
{
    static const char pseudo_path[] = "<cfunc>";
    return path.length == sizeof(pseudo_path) - 1 && memcmp(path.bytes, pseudo_path, path.length) == 0;
}

static int32_t
line_number(VALUE number)
{
    if (!FIXNUM_P(number)) return 0;
    long line = FIX2LONG(number);
    if (line > INT32_MAX) return INT32_MAX;
    if (line < INT32_MIN) return INT32_MIN;
    return (int32_t)line;
}

mpp_status_t
mpp_names_define_frame(mpp_profile_t *profile, VALUE frame)
{
    VALUE name = name_text(rb_profile_frame_full_label(frame));
    VALUE path = path_of(frame);
    int32_t start_line = line_number(rb_profile_frame_first_lineno(frame));
    mpp_view_t name_view = view_of(name);
    mpp_view_t path_view = view_of(path);
    if (name_view.length == 0) name_view = MPP_VIEW("(unnamed)");
    if (is_of_c_function(path_view)) path_view.length = 0;
    mpp_status_t status = mpp_profile_define_frame(profile, frame, name_view, path_view, start_line);
    RB_GC_GUARD(name);
    RB_GC_GUARD(path);
    return status;
}

/* A name that is a constant path stays; any other may still change. */
static bool
is_constant_path(mpp_view_t name)
{
    if (name.length == 0 || (name.bytes[0] >= 'a' && name.bytes[0] <= 'z')) return false;
    for (size_t i = 0; i < name.length; i++) {
        unsigned char byte = (unsigned char)name.bytes[i];
        bool is_word = byte >= 0x80 || byte == '_' || byte == ':' || (byte >= '0' && byte <= '9') ||
                       (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
        if (!is_word) return false;
    }
    return true;
}

static mpp_id_t
define_class(mpp_profile_t *profile, VALUE klass, VALUE name)
{
    mpp_view_t view = view_of(name);
    mpp_id_t id = mpp_profile_define_class(profile, is_constant_path(view) ? klass : 0, view);
    RB_GC_GUARD(name);
    return id;
}

static VALUE
anonymous_name(VALUE klass)
{
    VALUE superclass = klass;
    VALUE superclass_name = Qnil;
    while (NIL_P(superclass_name) && RTEST(superclass = rb_class_superclass(superclass))) {
        superclass_name = rb_mod_name(superclass);
    }
    VALUE name = rb_str_new_cstr("(anonymous ");
    if (NIL_P(superclass_name)) {
        rb_str_cat_cstr(name, "class");
    } else {
        mpp_view_t view = view_of(superclass_name = name_text(superclass_name));
        rb_str_cat(name, view.bytes, (long)view.length);
    }
    RB_GC_GUARD(superclass_name);
    return rb_str_cat_cstr(name, ")");
}

mpp_id_t
mpp_names_find_class(mpp_profile_t *profile, VALUE object)
{
    return RBASIC_CLASS(object) == 0 ? 0 : mpp_profile_find_class(profile, rb_obj_class(object));
}

mpp_id_t
mpp_names_define_class(mpp_profile_t *profile, VALUE object)
{
    /* Hidden from the program since its allocation. */
    if (RBASIC_CLASS(object) == 0) return mpp_profile_define_class(profile, 0, MPP_VIEW("(internal)"));

    VALUE klass = rb_obj_class(object);
    VALUE name = rb_mod_name(klass);
    return define_class(profile, klass, NIL_P(name) ? anonymous_name(klass) : name_text(name));
}
