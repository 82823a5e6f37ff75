/*
 * The schema is built once from the descriptor of profile.proto: for each field upb's handle and its type, so that a
 * number is always set through the setter of its type.
 * The arena of a chunk begins in a block that all chunks share and that is large enough for an ordinary one; what does
 * not fit there (a stack of thousands of frames, a giant string) comes from the seam too, and goes back with the chunk.
 * Strings are not copied; numbers are.
 */

#include "writer.h"

#include <string.h>

#include "../proto/profile_descriptor.h"
#include "../proto/upb.h"
#include "gzip.h"

/* A chunk ends when about this much of messages was put into it; the encoded bytes come to about a quarter more. */
#define CHUNK_BYTES ((size_t)64 << 10)
#define BLOCK_BYTES ((size_t)192 << 10)
#define MESSAGE_BYTES 64

typedef struct {
    const upb_MiniTableField *handle;
    const upb_MiniTable *message; /* of the message that it holds, if it holds one */
    upb_CType type;
    bool repeated;
} field_t;

/* Written once by mpp_writer_load_schema, only read afterwards. */
static struct {
    upb_DefPool *pool; /* NULL: not built */
    const upb_MiniTable *profile;
    field_t fields[MPP_N_FIELDS];
} schema;

/* -- schema -- */

mpp_view_t
mpp_writer_schema(void)
{
    return (mpp_view_t){(const char *)mpp_profile_descriptor, sizeof(mpp_profile_descriptor)};
}

static bool
find_field(const upb_DefPool *pool, const char *message, const char *name, field_t *field)
{
    const upb_MessageDef *message_def = upb_DefPool_FindMessageByName(pool, message);
    if (!message_def) return false;
    const upb_FieldDef *field_def = upb_MessageDef_FindFieldByName(message_def, name);
    if (!field_def) return false;
    *field = (field_t){
        .handle = upb_FieldDef_MiniTable(field_def),
        .type = upb_FieldDef_CType(field_def),
        .repeated = upb_FieldDef_IsRepeated(field_def),
    };
    if (field->type != kUpb_CType_Message) return true;
    field->message = upb_MessageDef_MiniTable(upb_FieldDef_MessageSubDef(field_def));
    return true;
}

static bool
find_fields(const upb_DefPool *pool)
{
    static const struct {
        const char *message, *field;
    } names[MPP_N_FIELDS] = {
#define FIELD_NAME(id, message, field) {"perftools.profiles." message, field},
        MPP_FIELD_LIST(FIELD_NAME)
#undef FIELD_NAME
    };
    for (size_t i = 0; i < MPP_N_FIELDS; i++) {
        if (!find_field(pool, names[i].message, names[i].field, &schema.fields[i])) return false;
    }
    schema.profile = upb_MessageDef_MiniTable(upb_DefPool_FindMessageByName(pool, "perftools.profiles.Profile"));
    return true;
}

static bool
fill_pool(upb_DefPool *pool)
{
    upb_Arena *arena = upb_Arena_New();
    if (!arena) return false;
    const google_protobuf_FileDescriptorProto *file = google_protobuf_FileDescriptorProto_parse(
        (const char *)mpp_profile_descriptor, sizeof(mpp_profile_descriptor), arena);
    upb_Status status;
    upb_Status_Clear(&status);
    bool added = file && upb_DefPool_AddFile(pool, file, &status);
    upb_Arena_Free(arena);
    return added && find_fields(pool);
}

mpp_status_t
mpp_writer_load_schema(void)
{
    if (schema.pool) return MPP_OK;
    upb_DefPool *pool = upb_DefPool_New();
    if (!pool) return MPP_NO_MEMORY;
    if (!fill_pool(pool)) {
        upb_DefPool_Free(pool);
        return MPP_ENCODING;
    }
    schema.pool = pool;
    return MPP_OK;
}

/* -- a writer's life -- */

typedef struct {
    upb_alloc vtable; /* first: upb knows it by this */
    mpp_scratch_t scratch;
} memory_t;

struct mpp_writer {
    memory_t memory;
    mpp_gzip_t gzip;
    void *block;
    upb_Arena *arena;
    upb_Message *profile; /* the chunk */
    size_t chunk_bytes;   /* about what is in it */
    mpp_status_t status;
};

static void *
upb_resize(upb_alloc *vtable, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)old_bytes; /* older versions do not say it when they free */
    return mpp_scratch_resize(&((memory_t *)vtable)->scratch, block, new_bytes);
}

static void *
upb_resize_telling(upb_alloc *vtable, void *block, size_t old_bytes, size_t new_bytes, size_t *actual_bytes)
{
    if (actual_bytes) *actual_bytes = new_bytes;
    return upb_resize(vtable, block, old_bytes, new_bytes);
}

typedef void *resize_t(upb_alloc *, void *, size_t, size_t);
typedef void *telling_resize_t(upb_alloc *, void *, size_t, size_t, size_t *);

/* The one that this version of upb wants. */
#define UPB_RESIZE _Generic((upb_alloc_func *)NULL, resize_t * : upb_resize, telling_resize_t * : upb_resize_telling)

/* The first failure counts. One that upb met was for want of memory, or there is something wrong with it. */
static void
fail_encoding(mpp_writer_t *writer)
{
    mpp_status_t refused = writer->memory.scratch.status;
    mpp_writer_fail(writer, refused != MPP_OK ? refused : MPP_ENCODING);
}

static void
begin_chunk(mpp_writer_t *writer)
{
    writer->chunk_bytes = 0;
    writer->arena = upb_Arena_Init(writer->block, BLOCK_BYTES, &writer->memory.vtable);
    writer->profile = upb_Message_New(schema.profile, writer->arena);
    if (!writer->profile) fail_encoding(writer);
}

mpp_status_t
mpp_writer_new(mpp_allocator_t *allocator, int compression_level, mpp_output_t output, void *output_context,
               mpp_writer_t **result)
{
    void *memory = NULL;
    *result = NULL;
    mpp_status_t status = mpp_resize(allocator, &memory, 0, sizeof(mpp_writer_t));
    if (status != MPP_OK) return status;
    mpp_writer_t *writer = memory;
    writer->memory = (memory_t){.vtable = {UPB_RESIZE}, .scratch = {.allocator = allocator}};

    status = mpp_resize(allocator, &writer->block, 0, BLOCK_BYTES);
    if (status == MPP_OK) {
        begin_chunk(writer);
        status = mpp_gzip_init(&writer->gzip, &writer->memory.scratch, compression_level, output, output_context);
    }
    if (status != MPP_OK) {
        mpp_writer_free(writer);
        return status;
    }
    *result = writer;
    return MPP_OK;
}

void
mpp_writer_free(mpp_writer_t *writer)
{
    if (!writer) return;
    if (writer->arena) upb_Arena_Free(writer->arena);
    mpp_gzip_cleanup(&writer->gzip);
    mpp_allocator_t *allocator = writer->memory.scratch.allocator;
    mpp_release(allocator, writer->block, BLOCK_BYTES);
    mpp_release(allocator, writer, sizeof(mpp_writer_t));
}

mpp_status_t
mpp_writer_status(const mpp_writer_t *writer)
{
    return writer->status;
}

void
mpp_writer_fail(mpp_writer_t *writer, mpp_status_t status)
{
    if (writer->status == MPP_OK) writer->status = status;
}

/* -- writing -- */

static void
end_chunk(mpp_writer_t *writer)
{
    char *bytes;
    size_t n_bytes;
    if (upb_Encode(writer->profile, schema.profile, 0, writer->arena, &bytes, &n_bytes) != kUpb_EncodeStatus_Ok) {
        fail_encoding(writer);
        return;
    }
    mpp_status_t status = mpp_gzip_write(&writer->gzip, bytes, n_bytes);
    if (status != MPP_OK) mpp_writer_fail(writer, status);
    upb_Arena_Free(writer->arena);
    begin_chunk(writer);
}

/* The Profile, ready for one more thing; NULL after a failure. */
static upb_Message *
top(mpp_writer_t *writer)
{
    if (writer->status == MPP_OK && writer->chunk_bytes >= CHUNK_BYTES) end_chunk(writer);
    return writer->status == MPP_OK ? writer->profile : NULL;
}

static bool
append(mpp_writer_t *writer, upb_Message *message, const field_t *field, upb_MessageValue value)
{
    upb_Array *array = upb_Message_GetOrCreateMutableArray(message, field->handle, writer->arena);
    if (array && upb_Array_Append(array, value, writer->arena)) return true;
    fail_encoding(writer);
    return false;
}

mpp_message_t *
mpp_writer_add(mpp_writer_t *writer, mpp_message_t *parent, mpp_field_t id)
{
    if (!parent) parent = top(writer);
    if (writer->status != MPP_OK) return NULL;

    const field_t *field = &schema.fields[id];
    upb_Message *message = upb_Message_New(field->message, writer->arena);
    if (!message) {
        fail_encoding(writer);
        return NULL;
    }
    writer->chunk_bytes += MESSAGE_BYTES;
    if (field->repeated) return append(writer, parent, field, (upb_MessageValue){.msg_val = message}) ? message : NULL;
    upb_Message_SetMessage(parent, field->handle, message);
    return message;
}

/* A copy in the arena, of the same length; NULL for want of memory. */
static const char *
mend(mpp_writer_t *writer, mpp_view_t string)
{
    char *copy = upb_Arena_Malloc(writer->arena, string.length);
    if (!copy) return NULL;
    memcpy(copy, string.bytes, string.length);
    for (size_t i = 0;; i++) {
        i += utf8_range_ValidPrefix(copy + i, string.length - i);
        if (i == string.length) return copy;
        copy[i] = '?';
    }
}

void
mpp_writer_add_string(mpp_writer_t *writer, mpp_view_t string)
{
    upb_Message *profile = top(writer);
    if (!profile) return;

    const char *bytes = string.bytes;
    if (string.length != 0 && !utf8_range_IsValid(bytes, string.length)) bytes = mend(writer, string);
    if (!bytes) {
        fail_encoding(writer);
        return;
    }
    writer->chunk_bytes += string.length + sizeof(upb_StringView);
    upb_StringView view = upb_StringView_FromDataAndSize(bytes, string.length);
    (void)append(writer, profile, &schema.fields[MPP_PROFILE_STRING_TABLE], (upb_MessageValue){.str_val = view});
}

void
mpp_writer_set(mpp_writer_t *writer, mpp_message_t *message, mpp_field_t id, int64_t number)
{
    if (writer->status != MPP_OK) return;
    const upb_MiniTableField *handle = schema.fields[id].handle;
    bool done = false;
    switch (schema.fields[id].type) {
    case kUpb_CType_Int64: done = upb_Message_SetInt64(message, handle, number, writer->arena); break;
    case kUpb_CType_UInt64: done = upb_Message_SetUInt64(message, handle, (uint64_t)number, writer->arena); break;
    case kUpb_CType_Bool: done = upb_Message_SetBool(message, handle, number != 0, writer->arena); break;
    default: break;
    }
    if (!done) fail_encoding(writer);
}

void
mpp_writer_set_top(mpp_writer_t *writer, mpp_field_t id, int64_t number)
{
    upb_Message *profile = top(writer);
    if (!profile) return;
    const field_t *field = &schema.fields[id];
    if (!field->repeated) {
        mpp_writer_set(writer, profile, id, number);
        return;
    }
    (void)append(writer, profile, field, (upb_MessageValue){.int64_val = number});
    writer->chunk_bytes += sizeof(number);
}

void
mpp_writer_set_numbers(mpp_writer_t *writer, mpp_message_t *message, mpp_field_t id, const uint64_t *numbers,
                       size_t n_numbers)
{
    if (writer->status != MPP_OK || n_numbers == 0) return;
    upb_Array *array = upb_Message_GetOrCreateMutableArray(message, schema.fields[id].handle, writer->arena);
    if (!array || !upb_Array_Resize(array, n_numbers, writer->arena)) {
        fail_encoding(writer);
        return;
    }
    memcpy(upb_Array_MutableDataPtr(array), numbers, n_numbers * sizeof(uint64_t));
    writer->chunk_bytes += n_numbers * sizeof(uint64_t);
}

void
mpp_writer_finish(mpp_writer_t *writer)
{
    if (writer->status == MPP_OK) end_chunk(writer);
    if (writer->status != MPP_OK) return;
    mpp_status_t status = mpp_gzip_finish(&writer->gzip);
    if (status != MPP_OK) mpp_writer_fail(writer, status);
}
