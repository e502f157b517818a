/* di_st_open: single files, indexed folders, and an index that disagrees with its shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_index.h"
#include "folder.h"

#define TENSOR(name, from, to) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[" #from "," #to "]}"

/* Shard 1: a, b. Shard 2: c. */
static void write_shards(struct folder *f)
{
    write_safetensors(f, "m-1.safetensors", "{" TENSOR("b", 0, 2) "," TENSOR("a", 2, 4) "}", 4);
    write_safetensors(f, "m-2.safetensors", "{" TENSOR("c", 0, 2) "}", 2);
}

static void write_index(struct folder *f, const char *map)
{
    char text[2048];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":6},\"weight_map\":{%s}}", map);
    write_text(f, "model.safetensors.index.json", text);
}

#define GOOD_MAP "\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\""

static void shards_open_as_one(void **state)
{
    struct folder *f = *state;
    struct di_st_set *set;
    struct di_error err = {0};
    write_shards(f);
    write_index(f, GOOD_MAP);
    write_text(f, "model.safetensors", "not looked at beside an index");
    if (di_st_open(f->path, &set, &err) != DI_OK)
        fail_msg("%s", err.message);
    assert_int_equal(di_st_count(set), 3);
    assert_int_equal(di_st_shard_count(set), 2);
    assert_int_equal(di_st_total_bytes(set), 6);
    const char *names[] = {"a", "b", "c"}, *shards[] = {"m-1.safetensors", "m-1.safetensors", "m-2.safetensors"};
    const uint8_t first[] = {3, 1, 1};
    for (size_t i = 0; i < 3; i++) {
        const struct di_st_tensor *t = di_st_at(set, i);
        assert_string_equal(t->name, names[i]);
        assert_ptr_equal(t, di_st_find(set, names[i]));
        assert_non_null(strstr(t->file, shards[i]));
        assert_int_equal(*(const uint8_t *)t->data, first[i]);
    }
    assert_null(di_st_find(set, ""));
    assert_null(di_st_find(set, "aa"));
    assert_null(di_st_find(set, "d"));
    di_st_close(set);
    di_st_close(NULL);
}

static void expect_refusal(struct folder *f, di_status status, const char *culprit, const char *other)
{
    struct di_st_set *set = (struct di_st_set *)f;
    struct di_error err = {0};
    assert_int_equal(di_st_open(f->path, &set, &err), status);
    assert_null(set);
    assert_message(&err, culprit);
    assert_message(&err, other);
}

static void index_and_shards_must_agree(void **state)
{
    struct folder *f = *state;
    write_shards(f);
    write_index(f, GOOD_MAP ",\"d\":\"m-2.safetensors\"");
    expect_refusal(f, DI_ERR_FORMAT, "tensor d", "m-2.safetensors lacks");
    write_index(f, "\"a\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"");
    expect_refusal(f, DI_ERR_FORMAT, "tensor b", "m-1.safetensors");
    write_index(f, "\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\",\"c\":\"m-2.safetensors\"");
    expect_refusal(f, DI_ERR_FORMAT, "tensor b", "places in m-2.safetensors");
    write_index(f, GOOD_MAP ",\"d\":\"m-3.safetensors\"");
    expect_refusal(f, DI_ERR_NOT_FOUND, "m-3.safetensors", "shard 3 of 3");
    /* one tensor in two shards */
    write_index(f, GOOD_MAP);
    write_safetensors(f, "m-2.safetensors", "{" TENSOR("c", 0, 2) "," TENSOR("a", 2, 4) "}", 4);
    expect_refusal(f, DI_ERR_FORMAT, "m-2.safetensors: holds tensor a", "m-1.safetensors");
}

static void bad_shards_are_named(void **state)
{
    struct folder *f = *state;
    write_shards(f);
    write_index(f, GOOD_MAP);
    write_safetensors(f, "m-2.safetensors", "{" TENSOR("c", 0, 2) "}", 1); /* truncated */
    expect_refusal(f, DI_ERR_FORMAT, "m-2.safetensors", "tensor c");
    write_text(f, "m-2.safetensors", "");
    expect_refusal(f, DI_ERR_FORMAT, "m-2.safetensors", "too short");
    assert_int_equal(unlink(in_folder(f, "m-2.safetensors")), 0);
    assert_int_equal(symlink("../blobs/gone", in_folder(f, "m-2.safetensors")), 0); /* an interrupted download */
    expect_refusal(f, DI_ERR_NOT_FOUND, "m-2.safetensors", "shard 2 of 2");
    assert_int_equal(unlink(in_folder(f, "m-2.safetensors")), 0);
    assert_int_equal(mkdir(in_folder(f, "m-2.safetensors"), 0777), 0);
    expect_refusal(f, DI_ERR_IO, "m-2.safetensors", "not a regular file");
}

static void shard_names_stay_in_the_folder(void **state)
{
    struct folder *f = *state;
    static const char *const names[] = {
        "../m-1.safetensors", "/etc/passwd", "x/m-1.safetensors", "..", ".", "", "x\\\\y"};
    write_shards(f);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char map[128];
        snprintf(map, sizeof map, "\"some.tensor\":\"%s\"", names[i]);
        write_index(f, map);
        expect_refusal(f, DI_ERR_FORMAT, "tensor some.tensor", i == 6 ? "x\\y" : names[i]);
    }
}

static void bad_indices_are_refused(void **state)
{
    struct folder *f = *state;
    static const struct {
        const char *text, *culprit;
    } cases[] = {
        {"", "not valid JSON"},
        {"[]", "weight_map"},
        {"{}", "weight_map"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "tensor a"},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\\u0000\":\"x\"}}", "\\u0000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(f, "model.safetensors.index.json", cases[i].text);
        expect_refusal(f, DI_ERR_FORMAT, cases[i].culprit, "model.safetensors.index.json");
    }
}

static void limits_of_an_index(void **state)
{
    (void)state;
    struct di_arena arena = {0};
    struct di_st_index index;
    struct di_error err = {0};
    const char *none = "{\"weight_map\":{}}";
    assert_int_equal(di_st_index_parse(none, strlen(none), "i.json", &arena, &index, &err), DI_OK);
    assert_null(di_st_index_find(&index, "a"));
    enum { MANY = 10001 };
    char *text = malloc(MANY * 32);
    size_t used = (size_t)sprintf(text, "{\"weight_map\":{");
    for (int i = 0; i < MANY; i++)
        used += (size_t)sprintf(text + used, "\"t%d\":\"s%d\"%s", i, i, i + 1 < MANY ? "," : "}}");
    assert_int_equal(di_st_index_parse(text, used, "i.json", &arena, &index, &err), DI_ERR_LIMIT);
    assert_message(&err, "i.json: weight_map names more than 10000 shards; s10000");
    di_arena_free(&arena);
    free(text);
}

static void folders_without_weights(void **state)
{
    struct folder *f = *state;
    struct di_st_set *set;
    struct di_error err = {0};
    expect_refusal(f, DI_ERR_NOT_FOUND, f->path, "model.safetensors");
    assert_int_equal(di_st_open(in_folder(f, "absent.safetensors"), &set, &err), DI_ERR_NOT_FOUND);
    assert_message(&err, "absent.safetensors");
    write_safetensors(f, "model.safetensors", "{}", 0); /* no tensors is odd, but legal */
    assert_int_equal(di_st_open(f->path, &set, &err), DI_OK);
    assert_int_equal(di_st_count(set), 0);
    assert_null(di_st_find(set, "a"));
    di_st_close(set);
}

/* The size of the released checkpoint: 96,085 tensors in 48 shards. */
static void a_large_checkpoint_opens_fast(void **state)
{
    struct folder *f = *state;
    enum { SHARDS = 48, EACH = 2002 };
    char *index = malloc(SHARDS * EACH * 96), *header = malloc(EACH * 128), name[64];
    size_t used = (size_t)sprintf(index, "{\"weight_map\":{");
    for (int s = 0; s < SHARDS; s++) {
        size_t at = (size_t)sprintf(header, "{");
        for (int i = 0; i < EACH; i++) {
            const char *comma = i + 1 < EACH ? "," : "}";
            at += (size_t)sprintf(header + at,
                                  "\"layers.%d.ffn.experts.%d.w1\":{\"dtype\":\"U8\",\"shape\":[1],"
                                  "\"data_offsets\":[%d,%d]}%s",
                                  s, i, i, i + 1, comma);
            used += (size_t)sprintf(index + used, "\"layers.%d.ffn.experts.%d.w1\":\"m-%d.safetensors\",", s, i, s);
        }
        snprintf(name, sizeof name, "m-%d.safetensors", s);
        write_safetensors(f, name, header, EACH);
    }
    memcpy(index + used - 1, "}}", 3);
    write_text(f, "model.safetensors.index.json", index);
    free(index);
    free(header);
    struct di_st_set *set;
    struct di_error err = {0};
    double start = di_clock_seconds();
    if (di_st_open(f->path, &set, &err) != DI_OK)
        fail_msg("%s", err.message);
    double seconds = di_clock_seconds() - start;
    assert_int_equal(di_st_count(set), SHARDS * EACH);
    assert_non_null(di_st_find(set, "layers.47.ffn.experts.2001.w1"));
    di_st_close(set);
    print_message("%d tensors in %d shards: %.3f s\n", SHARDS * EACH, SHARDS, seconds);
    assert_true(seconds < 20.0); /* only against something quadratic: sanitizers and busy machines are slow */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shards_open_as_one, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(index_and_shards_must_agree, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(bad_shards_are_named, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(shard_names_stay_in_the_folder, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(bad_indices_are_refused, folder_setup, folder_teardown),
        cmocka_unit_test(limits_of_an_index),
        cmocka_unit_test_setup_teardown(folders_without_weights, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_large_checkpoint_opens_fast, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
