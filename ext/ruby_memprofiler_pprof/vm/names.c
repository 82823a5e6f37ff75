/*
 * Names for frames and classes, taken at the safe point: valid UTF-8, bounded in length, free of addresses, and without
 * running a line of the program (the VM's own functions are asked, never a method).
 * An address in a name ("#<Class:0x000…>#run") would make every run, and every reload, another function: it is cut out.
 */
#include "vm.h"

#include <string.h>

#define MAX_NAME_BYTES 4096

typedef struct {
    char bytes[MAX_NAME_BYTES];
    size_t length;
} name_t;

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

static void
append(name_t *name, const char *bytes, size_t length)
{
    size_t room = MAX_NAME_BYTES - name->length;
    if (length > room) {
        length = room;
        while (length > 0 && ((unsigned char)bytes[length] & 0xc0) == 0x80) length--; /* not within a character */
    }
    memcpy(name->bytes + name->length, bytes, length);
    name->length += length;
}

static void
append_without_addresses(name_t *name, const char *bytes, size_t length)
{
    for (size_t from = 0, at = 0;; at++) {
        size_t skip = at < length ? address_at(bytes + at, length - at) : 0;
        if (at < length && skip == 0) continue;
        append(name, bytes + from, at - from);
        if (at >= length) return;
        from = at + skip;
        at = from - 1;
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

static mpp_view_t
view_of(const name_t *name)
{
    return (mpp_view_t){name->bytes, name->length};
}

static void
append_string(name_t *name, VALUE string, void (*append_bytes)(name_t *name, const char *bytes, size_t length))
{
    if (!RB_TYPE_P(string, T_STRING)) return;
    if (RSTRING_LEN(string) > 4 * MAX_NAME_BYTES) string = rb_str_substr(string, 0, MAX_NAME_BYTES);
    string = utf8(string);
    append_bytes(name, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
    RB_GC_GUARD(string);
}

/* The absolute path where one exists, else what the program was told; empty for a function written in C. */
static void
append_path(name_t *name, VALUE frame)
{
    VALUE path = rb_profile_frame_absolute_path(frame);
    if (!RB_TYPE_P(path, T_STRING)) path = rb_profile_frame_path(frame);
    append_string(name, path, append);
    if (name->length == strlen("<cfunc>") && memcmp(name->bytes, "<cfunc>", name->length) == 0) name->length = 0;
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
    name_t name, filename;
    name.length = filename.length = 0;
    append_string(&name, rb_profile_frame_full_label(frame), append_without_addresses);
    if (name.length == 0) append(&name, "(unnamed)", strlen("(unnamed)"));
    append_path(&filename, frame);
    int32_t start_line = line_number(rb_profile_frame_first_lineno(frame));
    return mpp_profile_define_frame(profile, frame, view_of(&name), view_of(&filename), start_line);
}

/* A name that is a constant path stays; any other may still change. */
static bool
is_constant_path(const name_t *name)
{
    if (name->length == 0 || (name->bytes[0] >= 'a' && name->bytes[0] <= 'z')) return false;
    for (size_t i = 0; i < name->length; i++) {
        unsigned char byte = (unsigned char)name->bytes[i];
        bool is_word = byte >= 0x80 || byte == '_' || byte == ':' || (byte >= '0' && byte <= '9') ||
                       (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
        if (!is_word) return false;
    }
    return true;
}

static mpp_id_t
define_anonymous(mpp_profile_t *profile, VALUE klass)
{
    static const char prefix[] = "(anonymous ";
    name_t name;
    VALUE superclass = klass;
    VALUE superclass_name = Qnil;
    while (NIL_P(superclass_name) && RTEST(superclass = rb_class_superclass(superclass))) {
        superclass_name = rb_mod_name(superclass);
    }
    name.length = 0;
    append(&name, prefix, sizeof(prefix) - 1);
    if (NIL_P(superclass_name)) {
        append(&name, "class", strlen("class"));
    } else {
        append_string(&name, superclass_name, append_without_addresses);
    }
    append(&name, ")", 1);
    return mpp_profile_define_class(profile, 0, view_of(&name));
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
    VALUE class_name = rb_mod_name(klass);
    if (NIL_P(class_name)) return define_anonymous(profile, klass);
    name_t name;
    name.length = 0;
    append_string(&name, class_name, append_without_addresses);
    return mpp_profile_define_class(profile, is_constant_path(&name) ? klass : 0, view_of(&name));
}
