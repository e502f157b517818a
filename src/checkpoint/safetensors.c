/* The header of one safetensors file. Format: 8 bytes little-endian length N, N bytes of JSON, then the data section. */
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { MAX_HEADER = 100 * 1000 * 1000 }; /* the limit of the format's own library */

#define METADATA_KEY "__metadata__" /* the one key of a header that is no tensor */

static const struct {
    const char *name;
    size_t size;
} dtypes[DI_ST_DTYPE_COUNT] = {
    [DI_ST_BOOL] = {"BOOL", 1},       [DI_ST_U8] = {"U8", 1},           [DI_ST_I8] = {"I8", 1},
    [DI_ST_F8_E4M3] = {"F8_E4M3", 1}, [DI_ST_F8_E5M2] = {"F8_E5M2", 1}, [DI_ST_F8_E8M0] = {"F8_E8M0", 1},
    [DI_ST_I16] = {"I16", 2},         [DI_ST_U16] = {"U16", 2},         [DI_ST_F16] = {"F16", 2},
    [DI_ST_BF16] = {"BF16", 2},       [DI_ST_I32] = {"I32", 4},         [DI_ST_U32] = {"U32", 4},
    [DI_ST_F32] = {"F32", 4},         [DI_ST_I64] = {"I64", 8},         [DI_ST_U64] = {"U64", 8},
    [DI_ST_F64] = {"F64", 8},
};

const char *di_st_dtype_name(enum di_st_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t di_st_dtype_size(enum di_st_dtype dtype)
{
    return dtypes[dtype].size;
}

static di_status parse_dtype(const json_t *value, enum di_st_dtype *out, struct di_error *err)
{
    const char *text = json_string_value(value);
    if (text == NULL)
        return DI_FAIL(err, DI_ERR_FORMAT, "dtype is missing or not a string");
    for (int32_t i = 0; i < DI_ST_DTYPE_COUNT; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            *out = (enum di_st_dtype)i;
            return DI_OK;
        }
    }
    return DI_FAIL(err, DI_ERR_UNSUPPORTED, "unknown dtype \"%s\"", text);
}

/* shape x dtype, overflow-checked. */
static di_status parse_shape(const json_t *value, struct di_st_tensor *t, uint64_t *bytes, struct di_error *err)
{
    if (!json_is_array(value))
        return DI_FAIL(err, DI_ERR_FORMAT, "shape is missing or not a list");
    if (json_array_size(value) > DI_ST_MAX_DIMS)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "shape has %zu dimensions, %d at most", json_array_size(value),
                       DI_ST_MAX_DIMS);
    t->n_dims = (int32_t)json_array_size(value);
    *bytes = di_st_dtype_size(t->dtype);
    for (int32_t i = 0; i < t->n_dims; i++) {
        const json_t *dim = json_array_get(value, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return DI_FAIL(err, DI_ERR_FORMAT, "shape[%d] is not a whole number of at least 0", i);
        t->shape[i] = json_integer_value(dim);
        if (!di_mul_u64(*bytes, (uint64_t)t->shape[i], bytes))
            return DI_FAIL(err, DI_ERR_FORMAT, "shape x dtype overflows");
    }
    return DI_OK;
}

static di_status parse_tensor(const json_t *entry, struct di_st_tensor *t, struct di_error *err)
{
    uint64_t bytes;
    if (!json_is_object(entry))
        return DI_FAIL(err, DI_ERR_FORMAT, "is not an object");
    DI_TRY(parse_dtype(json_object_get(entry, "dtype"), &t->dtype, err));
    DI_TRY(parse_shape(json_object_get(entry, "shape"), t, &bytes, err));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return DI_FAIL(err, DI_ERR_FORMAT, "data_offsets must be two ascending whole numbers");
    t->begin = (uint64_t)json_integer_value(begin);
    t->bytes = (uint64_t)json_integer_value(end) - t->begin;
    if (t->bytes != bytes)
        return DI_FAIL(err, DI_ERR_FORMAT, "data_offsets span %llu bytes, shape x dtype is %llu",
                       (unsigned long long)t->bytes, (unsigned long long)bytes);
    if (json_object_size(entry) != 3)
        return DI_FAIL(err, DI_ERR_FORMAT, "has keys besides dtype, shape and data_offsets");
    return DI_OK;
}

static int by_offset(const void *left, const void *right)
{
    const struct di_st_tensor *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes; /* empty tensors before the one that starts there */
}

/* Tensors must cover the data section exactly: no hole, no overlap, nothing behind the last. */
static di_status check_cover(const struct di_st_header *h, uint64_t data_bytes, struct di_error *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct di_st_tensor *t = &h->tensors[i];
        if (t->begin != at)
            return DI_FAIL(
                err, DI_ERR_FORMAT, "tensor %s begins at byte %llu of the data section: %s; byte %llu expected",
                t->name, (unsigned long long)t->begin,
                t->begin > at ? "a hole before it" : "it overlaps the tensor before it", (unsigned long long)at);
        if (!di_add_u64(at, t->bytes, &at) || at > data_bytes)
            return DI_FAIL(err, DI_ERR_FORMAT, "tensor %s ends past the end of the file: the file is truncated",
                           t->name);
        /* The format does not promise alignment; kernels read whole elements in place, so they need it. */
        if (t->bytes != 0 && (h->data_begin + t->begin) % di_st_dtype_size(t->dtype) != 0)
            return DI_FAIL(
                err, DI_ERR_UNSUPPORTED,
                "tensor %s lies at byte %llu of the file, not a multiple of its %zu-byte elements, and cannot "
                "be used in place",
                t->name, (unsigned long long)(h->data_begin + t->begin), di_st_dtype_size(t->dtype));
    }
    if (at != data_bytes)
        return DI_FAIL(err, DI_ERR_FORMAT, "%llu bytes behind the last tensor", (unsigned long long)(data_bytes - at));
    return DI_OK;
}

static di_status check_metadata(const json_t *metadata, struct di_error *err)
{
    const char *key;
    const json_t *value;
    if (!json_is_object(metadata))
        return DI_FAIL(err, DI_ERR_FORMAT, "__metadata__ is not an object");
    void *iter = json_object_iter((json_t *)(uintptr_t)metadata); /* jansson's iterators want a non-const object */
    for (; iter != NULL; iter = json_object_iter_next((json_t *)(uintptr_t)metadata, iter)) {
        key = json_object_iter_key(iter);
        value = json_object_iter_value(iter);
        if (!json_is_string(value))
            return DI_FAIL(err, DI_ERR_FORMAT, "__metadata__.%s is not a string", key);
    }
    return DI_OK;
}

static di_status check_entries(json_t *root, struct di_error *err)
{
    const char *name;
    json_t *entry;
    json_object_foreach (root, name, entry) {
        struct di_st_tensor scratch = {0};
        if (strcmp(name, METADATA_KEY) == 0) {
            DI_TRY(check_metadata(entry, err));
            continue;
        }
        di_status status = parse_tensor(entry, &scratch, err);
        if (status != DI_OK)
            return DI_PREFIX(err, status, "tensor %s", name);
    }
    return DI_OK;
}

static di_status collect(json_t *root, const char *file, struct di_arena *arena, struct di_st_header *out,
                         struct di_error *err)
{
    const char *name;
    json_t *entry;
    DI_TRY(check_entries(root, err)); /* so that nothing below is allocated for a header that is refused anyway */
    out->tensors = di_arena_alloc(arena, json_object_size(root), sizeof *out->tensors);
    if (out->tensors == NULL)
        return DI_FAIL_NOMEM(err, json_object_size(root) * sizeof *out->tensors);
    json_object_foreach (root, name, entry) {
        if (strcmp(name, METADATA_KEY) == 0)
            continue;
        struct di_st_tensor *t = &out->tensors[out->count++];
        t->name = di_arena_strndup(arena, name, strlen(name));
        t->file = file;
        if (t->name == NULL)
            return DI_FAIL_NOMEM(err, strlen(name));
        DI_TRY(parse_tensor(entry, t, err));
    }
    qsort(out->tensors, out->count, sizeof *out->tensors, by_offset);
    return DI_OK;
}

static di_status parse(const uint8_t *bytes, size_t available, uint64_t file_size, const char *file,
                       struct di_arena *arena, struct di_st_header *out, struct di_error *err)
{
    uint64_t length = 0;
    if (file_size < 8 || available < 8)
        return DI_FAIL(err, DI_ERR_FORMAT, "%llu bytes are too short for a header", (unsigned long long)file_size);
    for (int32_t i = 0; i < 8; i++)
        length |= (uint64_t)bytes[i] << (8 * i);
    if (length > MAX_HEADER)
        return DI_FAIL(err, DI_ERR_FORMAT, "the header length %llu is more than the %d bytes allowed",
                       (unsigned long long)length, MAX_HEADER);
    if (length > file_size - 8 || length > available - 8)
        return DI_FAIL(err, DI_ERR_FORMAT, "the header of %llu bytes ends past the end of the file: it is truncated",
                       (unsigned long long)length);
    if (length == 0 || bytes[8] != '{')
        return DI_FAIL(err, DI_ERR_FORMAT, "the header is not a JSON object: it must begin with '{'");
    json_t *root;
    DI_TRY(di_json_parse((const char *)bytes + 8, (size_t)length, "header", &root, err));
    out->data_begin = 8 + length;
    di_status status = collect(root, file, arena, out, err);
    json_decref(root);
    if (status == DI_OK)
        status = check_cover(out, file_size - out->data_begin, err);
    return status;
}

di_status di_st_parse_header(const uint8_t *bytes, size_t available, uint64_t file_size, const char *file,
                             struct di_arena *arena, struct di_st_header *out, struct di_error *err)
{
    *out = (struct di_st_header){0};
    di_status status = parse(bytes, available, file_size, file, arena, out, err);
    return status == DI_OK ? DI_OK : DI_PREFIX(err, status, "%s", file);
}
