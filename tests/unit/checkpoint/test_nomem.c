/* Each allocation of every open path fails once, the library's own and jansson's: a clean error, and (under a sanitizer)
 * no leak. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "checkpoint/checkpoint.h"
#include "folder.h"

static uint64_t json_countdown; /* 0: off */

static void *failing_malloc(size_t size)
{
    return json_countdown != 0 && --json_countdown == 0 ? NULL : malloc(size);
}

/* Opens or does one thing and closes it again. */
typedef di_status (*attempt_fn)(struct folder *f, struct di_error *err);

/* Fails the n-th allocation of the library (or of jansson), n = 1, 2, ... until none is left to fail. */
static void exhaust(struct folder *f, attempt_fn attempt, bool json)
{
    uint64_t n = 1;
    for (;; n++) {
        struct di_error err = {0};
        if (json)
            json_countdown = n;
        else
            di_mem_fail_after(n);
        di_status status = attempt(f, &err);
        bool spent = json ? json_countdown == 0 : di_mem_fail_after(0) >= n;
        json_countdown = 0;
        if (!spent) { /* fewer allocations than that: nothing failed */
            if (status != DI_OK)
                fail_msg("%s", err.message);
            break;
        }
        if (status == DI_OK) {
            assert_true(json); /* jansson alone may do without one */
            continue;
        }
        assert_int_equal(status, err.code);
        assert_true(err.message[0] != '\0');
        if (!json) {
            assert_int_equal(status, DI_ERR_NOMEM);
            assert_message(&err, "out of memory");
        }
    }
    assert_true(n > 1);
}

static di_status open_checkpoint(struct folder *f, struct di_error *err)
{
    struct di_checkpoint *ckpt;
    di_status status = di_checkpoint_open(f->path, &ckpt, err);
    di_checkpoint_close(ckpt);
    return status;
}

static di_status open_set(struct folder *f, struct di_error *err)
{
    struct di_st_set *set;
    di_status status = di_st_open(f->path, &set, err);
    di_st_close(set);
    return status;
}

static di_status resolve(struct folder *f, struct di_error *err)
{
    char *folder;
    const struct di_hub_env env = {.hf_home = f->path};
    di_status status = di_hub_resolve("own/name", &env, &folder, err);
    free(folder);
    return status;
}

static di_status resolve_folder(struct folder *f, struct di_error *err)
{
    char *folder;
    const struct di_hub_env env = {0};
    di_status status = di_hub_resolve(f->path, &env, &folder, err);
    free(folder);
    return status;
}

static di_status add_and_save(struct folder *f, struct di_error *err)
{
    static const uint8_t data[64] = {1};
    struct di_st_writer *w;
    di_status status = di_st_writer_open(&w, err);
    for (int i = 0; i < 3 && status == DI_OK; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        status = di_st_writer_add(w, name, DI_ST_F32, 2, (int64_t[]){2, 8}, data, err);
    }
    if (status == DI_OK)
        status = di_st_writer_save(w, in_folder(f, "out.safetensors"), err);
    di_st_writer_close(w);
    return status;
}

static void write_model(struct folder *f)
{
    assert_int_equal(symlink(DI_TEST_DATA "/goldens/micro/config.json", in_folder(f, "config.json")), 0);
    write_safetensors(
        f, "m-1.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
    write_safetensors(f, "m-2.safetensors", "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
    write_text(f, "model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}");
}

static void opening(void **state)
{
    struct folder *f = *state;
    write_model(f);
    for (int json = 0; json < 2; json++) {
        exhaust(f, open_set, json != 0);
        exhaust(f, open_checkpoint, json != 0);
    }
    assert_int_equal(unlink(in_folder(f, "model.safetensors.index.json")), 0);
    assert_int_equal(rename(in_folder(f, "m-1.safetensors"), in_folder(f, "model.safetensors")), 0);
    for (int json = 0; json < 2; json++) {
        exhaust(f, open_set, json != 0);
        exhaust(f, open_checkpoint, json != 0);
    }
}

static void writing(void **state)
{
    exhaust(*state, add_and_save, false);
    exhaust(*state, add_and_save, true);
}

/* Enough tensors and long enough names for many blocks of the arena. */
static void opening_many(void **state)
{
    struct folder *f = *state;
    enum { EACH = 1500, NAME = 120 };
    char *header = malloc(EACH * (NAME + 80)), *index = malloc(2 * EACH * (NAME + 40)), name[NAME + 1];
    size_t used = (size_t)sprintf(index, "{\"weight_map\":{");
    for (int s = 0; s < 2; s++) {
        size_t at = (size_t)sprintf(header, "{");
        for (int i = 0; i < EACH; i++) {
            snprintf(name, sizeof name, "%d.%0*d", s, NAME - 2, i);
            at += (size_t)sprintf(header + at, "\"%s\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}%s", name,
                                  i + 1 < EACH ? "," : "}");
            used += (size_t)sprintf(index + used, "\"%s\":\"m-%d\"%s", name, s, s + i < EACH ? "," : "}}");
        }
        snprintf(name, sizeof name, "m-%d", s);
        write_safetensors(f, name, header, 0);
    }
    write_text(f, "model.safetensors.index.json", index);
    free(header);
    free(index);
    exhaust(f, open_set, false);
}

static void resolving(void **state)
{
    struct folder *f = *state;
    static const char *const parts[] = {"hub", "hub/models--own--name", "hub/models--own--name/refs",
                                        "hub/models--own--name/snapshots", "hub/models--own--name/snapshots/abc"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_int_equal(mkdir(in_folder(f, parts[i]), 0777), 0);
    write_text(f, "hub/models--own--name/refs/main", "abc");
    exhaust(f, resolve, false);
    exhaust(f, resolve_folder, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opening, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(opening_many, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(writing, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(resolving, folder_setup, folder_teardown),
    };
    json_set_alloc_funcs(failing_malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
