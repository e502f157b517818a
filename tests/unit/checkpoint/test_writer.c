/* What the writer saves, the reader gives back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"
#include "folder.h"

static void round_trip(void **state)
{
    struct folder *f = *state;
    struct di_st_writer *w;
    struct di_st_set *set;
    struct di_error err = {0};
    uint8_t data[DI_ST_DTYPE_COUNT][48];
    char name[32];
    for (size_t i = 0; i < sizeof data; i++)
        ((uint8_t *)data)[i] = (uint8_t)(i * 7);
    assert_int_equal(di_st_writer_open(&w, &err), DI_OK);
    for (int i = 0; i < DI_ST_DTYPE_COUNT; i++) { /* odd counts: only the order of the sizes keeps them aligned */
        snprintf(name, sizeof name, "t.\"%s\"\xc3\xa9", di_st_dtype_name((enum di_st_dtype)i));
        assert_int_equal(di_st_writer_add(w, name, (enum di_st_dtype)i, 2, (int64_t[]){1, 3}, data[i], &err), DI_OK);
        memset(data[i] + 40, 0xEE, 8); /* copied when added */
    }
    assert_int_equal(di_st_writer_add(w, "empty", DI_ST_F32, 2, (int64_t[]){0, 7}, NULL, &err), DI_OK);
    assert_int_equal(di_st_writer_add(w, "scalar", DI_ST_U8, 0, NULL, data[0], &err), DI_OK);
    for (int again = 0; again < 2; again++) { /* saving does not use the writer up */
        const char *path = in_folder(f, "out.safetensors");
        if (di_st_writer_save(w, path, &err) != DI_OK)
            fail_msg("%s", err.message);
        assert_int_not_equal(access(in_folder(f, "out.safetensors.tmp"), F_OK), 0);
    }
    di_st_writer_close(w);
    if (di_st_open(in_folder(f, "out.safetensors"), &set, &err) != DI_OK)
        fail_msg("%s", err.message);
    assert_int_equal(di_st_count(set), DI_ST_DTYPE_COUNT + 2);
    for (int i = 0; i < DI_ST_DTYPE_COUNT; i++) {
        snprintf(name, sizeof name, "t.\"%s\"\xc3\xa9", di_st_dtype_name((enum di_st_dtype)i));
        const struct di_st_tensor *t = di_st_find(set, name);
        assert_non_null(t);
        assert_int_equal(t->dtype, i);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->shape[1], 3);
        assert_memory_equal(t->data, data[i], 3 * di_st_dtype_size((enum di_st_dtype)i));
    }
    assert_int_equal(di_st_find(set, "empty")->bytes, 0);
    assert_int_equal(di_st_find(set, "scalar")->bytes, 1);
    di_st_close(set);
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    struct di_st_writer *w;
    struct di_error err = {0};
    const uint8_t byte = 1;
    const int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, negative = -1, huge[2] = {INT64_MAX, 4};
    assert_int_equal(di_st_writer_open(&w, &err), DI_OK);
    assert_int_equal(di_st_writer_add(w, "a", DI_ST_U8, 1, shape, &byte, &err), DI_OK);
    assert_int_equal(di_st_writer_add(w, "a", DI_ST_U8, 1, shape, &byte, &err), DI_ERR_INVALID);
    assert_message(&err, "tensor a");
    assert_int_equal(di_st_writer_add(w, "__metadata__", DI_ST_U8, 1, shape, &byte, &err), DI_ERR_INVALID);
    assert_message(&err, "__metadata__");
    assert_int_equal(di_st_writer_add(w, "b\xff", DI_ST_U8, 1, shape, &byte, &err), DI_ERR_INVALID);
    assert_message(&err, "UTF-8");
    assert_int_equal(di_st_writer_add(w, "c", DI_ST_U8, 9, shape, &byte, &err), DI_ERR_INVALID);
    assert_message(&err, "tensor c");
    assert_int_equal(di_st_writer_add(w, "d", DI_ST_U8, 1, &negative, &byte, &err), DI_ERR_INVALID);
    assert_message(&err, "tensor d");
    assert_int_equal(di_st_writer_add(w, "e", DI_ST_F64, 2, huge, &byte, &err), DI_ERR_INVALID);
    assert_message(&err, "tensor e");
    assert_int_equal(di_st_writer_save(w, "/nonexistent/out.safetensors", &err), DI_ERR_IO);
    assert_message(&err, "/nonexistent/out.safetensors");
    di_st_writer_close(w);
    di_st_writer_close(NULL);
}

static void what_cannot_be_written(void **state)
{
    struct folder *f = *state;
    struct di_st_writer *w;
    struct di_error err = {0};
    const uint8_t byte = 1;
    assert_int_equal(di_st_writer_open(&w, &err), DI_OK);
    assert_int_equal(di_st_writer_add(w, "a", DI_ST_U8, 0, NULL, &byte, &err), DI_OK);
    assert_int_equal(symlink("/dev/full", in_folder(f, "full.tmp")), 0);
    assert_int_equal(di_st_writer_save(w, in_folder(f, "full"), &err), DI_ERR_IO);
    assert_message(&err, "full: cannot be written: No space left");
    assert_int_not_equal(access(in_folder(f, "full"), F_OK), 0);
    assert_int_equal(mkdir(in_folder(f, "taken"), 0777), 0);
    assert_int_equal(di_st_writer_save(w, in_folder(f, "taken"), &err), DI_ERR_IO);
    assert_message(&err, "taken: cannot be written");
    assert_int_not_equal(access(in_folder(f, "taken.tmp"), F_OK), 0); /* cleaned up */
    di_st_writer_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(round_trip, folder_setup, folder_teardown),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test_setup_teardown(what_cannot_be_written, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
