/* di_st_parse_header: what the container format allows, and every breach refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "checkpoint/safetensors.h"
#include "folder.h"

static di_status parse(const char *header, uint64_t claimed, size_t payload, struct di_arena *arena,
                       struct di_st_header *out, struct di_error *err)
{
    uint8_t *bytes;
    size_t size = make_safetensors(header, claimed, payload, &bytes);
    di_status status = di_st_parse_header(bytes, size, size, "x.safetensors", arena, out, err);
    free(bytes);
    return status;
}

static const struct {
    const char *header;
    uint64_t claimed; /* header length, 0: the true one */
    size_t payload;
    const char *culprit, *reason;
} refusals[] = {
    {"{}", (uint64_t)1 << 63, 0, "x.safetensors", "9223372036854775808"},
    {"{}", UINT64_MAX, 0, "x.safetensors", "18446744073709551615"},
    {"{}", 100000001, 0, "x.safetensors", "100000001"},
    {"{}", 3, 0, "x.safetensors", "truncated"},
    {"", 0, 0, "x.safetensors", "must begin with '{'"},
    {" {}", 0, 0, "x.safetensors", "must begin with '{'"},
    {"[]", 0, 0, "x.safetensors", "must begin with '{'"},
    {"{\"a\":", 0, 0, "x.safetensors", "not valid JSON"},
    {"{} {}", 0, 0, "x.safetensors", "not valid JSON"},
    {"{\"a\":1,\"a\":2}", 0, 0, "x.safetensors", "duplicate"},
    {"{\"a\":1,\"\\u0061\":2}", 0, 0, "x.safetensors", "duplicate"},
    {"{\"a\\u0000b\":1}", 0, 0, "x.safetensors", "\\u0000"},
    {"{\"\xff\":1}", 0, 0, "x.safetensors", "byte 0xff"},
    {"{\"a\":1}", 0, 0, "tensor a", "not an object"},
    {"{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "dtype"},
    {"{\"a\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "dtype"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "F4"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "shape[0]"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1.0],\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "shape[1]"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "dimensions"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, 0, "tensor a",
     "overflows"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, 0, "tensor a",
     "overflows"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]}}", 0, 0, "x.safetensors",
     "not valid JSON"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0, 1, "tensor a", "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 0, 1, "tensor a", "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 0, 1, "tensor a", "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 0, 1, "tensor a", "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 0, 1, "tensor a", "data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}", 0, 1, "tensor a", "span 1 bytes"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,2]}}", 0, 2, "tensor a", "span 2 bytes"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 0, 1, "tensor a", "keys besides"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 0, 1, "tensor a", "truncated"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 0, 2, "x.safetensors", "1 bytes behind"},
    {"{}", 0, 1, "x.safetensors", "1 bytes behind"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 0, 2, "tensor a", "a hole"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     0, 3, "tensor b", "overlaps"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
     0, 2, "tensor ", "overlaps"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
     0, 3, "tensor b", "a hole"},
    {"{\"__metadata__\":1}", 0, 0, "__metadata__", "not an object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, 0, "__metadata__.k", "not a string"},
};

static void every_breach_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct di_arena arena = {0};
        struct di_st_header header;
        struct di_error err = {0};
        di_status status = parse(refusals[i].header, refusals[i].claimed, refusals[i].payload, &arena, &header, &err);
        if (status == DI_OK)
            fail_msg("accepted: %s", refusals[i].header);
        assert_int_equal(status, err.code);
        assert_message(&err, "x.safetensors");
        assert_message(&err, refusals[i].culprit);
        assert_message(&err, refusals[i].reason);
        di_arena_free(&arena);
        assert_int_not_equal(parse(refusals[i].header, refusals[i].claimed, refusals[i].payload, &arena, &header, NULL),
                             DI_OK);
        di_arena_free(&arena);
    }
}

static void too_short_for_a_length(void **state)
{
    (void)state;
    static const uint8_t bytes[7] = {2};
    for (size_t size = 0; size <= sizeof bytes; size++) {
        struct di_arena arena = {0};
        struct di_st_header header;
        struct di_error err = {0};
        assert_int_equal(di_st_parse_header(bytes, size, size, "x.safetensors", &arena, &header, &err), DI_ERR_FORMAT);
        assert_message(&err, "too short");
        di_arena_free(&arena);
    }
}

static void a_good_header(void **state)
{
    (void)state;
    struct di_arena arena = {0};
    struct di_st_header h;
    struct di_error err = {0};
    /* out of order, an empty tensor in the middle, a scalar, metadata, padding behind */
    const char *text = "{\"__metadata__\":{\"format\":\"pt\"},"
                       "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
                       "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
                       "\"e\":{\"dtype\":\"F64\",\"shape\":[3,0],\"data_offsets\":[8,8]},"
                       "\"z\":{\"dtype\":\"F8_E8M0\",\"shape\":[1],\"data_offsets\":[12,13]}}     ";
    if (parse(text, 0, 13, &arena, &h, &err) != DI_OK)
        fail_msg("%s", err.message);
    assert_int_equal(h.count, 4);
    assert_int_equal(h.data_begin, 8 + strlen(text));
    const char *names[] = {"a", "e", "b", "z"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(h.tensors[i].name, names[i]);
    assert_int_equal(h.tensors[0].dtype, DI_ST_BF16);
    assert_int_equal(h.tensors[0].n_dims, 2);
    assert_int_equal(h.tensors[0].bytes, 8);
    assert_int_equal(h.tensors[1].bytes, 0);
    assert_int_equal(h.tensors[2].n_dims, 0);
    assert_null(h.tensors[0].data);
    di_arena_free(&arena);
}

static void misaligned_data_is_refused(void **state)
{
    (void)state;
    struct di_arena arena = {0};
    struct di_st_header h;
    struct di_error err = {0};
    /* 8 + 59 header bytes: the data begin at an odd byte */
    const char *odd = "{\"w.a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} ";
    assert_int_equal((8 + strlen(odd)) % 2, 1);
    assert_int_equal(parse(odd, 0, 4, &arena, &h, &err), DI_ERR_UNSUPPORTED);
    assert_message(&err, "tensor w.a");
    assert_message(&err, "in place");
    const char *bytes_only = "{\"w.a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}} ";
    assert_int_equal(parse(bytes_only, 0, 4, &arena, &h, &err), DI_OK);
    const char *empty = "{\"w.a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}} "; /* nothing to read */
    assert_int_equal(parse(empty, 0, 0, &arena, &h, &err), DI_OK);
    di_arena_free(&arena);
}

static void every_dtype_has_name_and_size(void **state)
{
    (void)state;
    static const char *const names[DI_ST_DTYPE_COUNT] = {"BOOL", "U8",  "I8",  "F8_E4M3", "F8_E5M2", "F8_E8M0",
                                                         "I16",  "U16", "F16", "BF16",    "I32",     "U32",
                                                         "F32",  "I64", "U64", "F64"};
    static const size_t sizes[DI_ST_DTYPE_COUNT] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8};
    for (int i = 0; i < DI_ST_DTYPE_COUNT; i++) {
        assert_string_equal(di_st_dtype_name((enum di_st_dtype)i), names[i]);
        assert_int_equal(di_st_dtype_size((enum di_st_dtype)i), sizes[i]);
    }
}

/* jansson's allocations, counted, to see that refusals come before anything large. */
static size_t largest_request;

static void *counting_malloc(size_t size)
{
    largest_request = size > largest_request ? size : largest_request;
    return malloc(size);
}

static void nothing_large_is_allocated_for_a_bad_header(void **state)
{
    (void)state;
    json_set_alloc_funcs(counting_malloc, free);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct di_arena arena = {0};
        struct di_st_header header;
        largest_request = 0;
        assert_int_not_equal(parse(refusals[i].header, refusals[i].claimed, refusals[i].payload, &arena, &header, NULL),
                             DI_OK);
        assert_true(largest_request < 4096);
        assert_true(arena.bytes < 4096);
        di_arena_free(&arena);
    }
    json_set_alloc_funcs(malloc, free);
    /* a hundred thousand entries of which the last is bad: not even the table of tensors */
    size_t size = 0, room = 100000 * 16 + 16;
    char *text = malloc(room);
    text[size++] = '{';
    for (int i = 0; i < 100000; i++)
        size += (size_t)snprintf(text + size, room - size, "\"%d\":0,", i);
    snprintf(text + size - 1, room - size + 1, "}");
    struct di_arena arena = {0};
    struct di_st_header header;
    struct di_error err = {0};
    assert_int_equal(parse(text, 0, 0, &arena, &header, &err), DI_ERR_FORMAT);
    assert_int_equal(arena.bytes, 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_breach_is_refused),
        cmocka_unit_test(too_short_for_a_length),
        cmocka_unit_test(a_good_header),
        cmocka_unit_test(misaligned_data_is_refused),
        cmocka_unit_test(every_dtype_has_name_and_size),
        cmocka_unit_test(nothing_large_is_allocated_for_a_bad_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
