/* di_hub_resolve: folders, the Hugging Face cache, and what is said when a model is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "folder.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "89abcdef0123456789abcdef0123456789abcdef"

static void make_dirs(const char *path)
{
    char part[512];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0777);
        *slash = '/';
    }
    assert_true(mkdir(part, 0777) == 0 || access(part, F_OK) == 0);
}

/* <cache>/models--own--name with two snapshots; main is COMMIT. */
static void make_cache(struct folder *f, const char *cache)
{
    char path[256];
    snprintf(path, sizeof path, "%s/models--own--name/snapshots/" COMMIT, cache);
    make_dirs(in_folder(f, path));
    snprintf(path, sizeof path, "%s/models--own--name/snapshots/" OTHER, cache);
    make_dirs(in_folder(f, path));
    snprintf(path, sizeof path, "%s/models--own--name/refs/pr", cache);
    make_dirs(in_folder(f, path));
    snprintf(path, sizeof path, "%s/models--own--name/refs/main", cache);
    write_text(f, path, COMMIT);
    snprintf(path, sizeof path, "%s/models--own--name/refs/pr/1", cache);
    write_text(f, path, OTHER "\n");
}

static void expect_snapshot(const char *model, const struct di_hub_env *env, const char *cache, const char *commit)
{
    char *folder, wanted[512];
    struct di_error err = {0};
    if (di_hub_resolve(model, env, &folder, &err) != DI_OK)
        fail_msg("%s", err.message);
    snprintf(wanted, sizeof wanted, "%s/models--own--name/snapshots/%s", cache, commit);
    assert_string_equal(folder, wanted);
    free(folder);
}

static void revisions(void **state)
{
    struct folder *f = *state;
    make_cache(f, "hub");
    const struct di_hub_env env = {.hf_hub_cache = in_folder(f, "hub")};
    expect_snapshot("own/name", &env, env.hf_hub_cache, COMMIT);
    expect_snapshot("own/name@main", &env, env.hf_hub_cache, COMMIT);
    expect_snapshot("own/name@pr/1", &env, env.hf_hub_cache, OTHER);
    expect_snapshot("own/name@" OTHER, &env, env.hf_hub_cache, OTHER);
}

static void environment_order(void **state)
{
    struct folder *f = *state;
    static const char *const folders[] = {"a", "b/hub", "c/huggingface/hub", "d/.cache/huggingface/hub"};
    char cache[4][256];
    for (int i = 0; i < 4; i++) {
        make_cache(f, folders[i]);
        snprintf(cache[i], sizeof cache[i], "%s/%s", f->path, folders[i]);
    }
    struct di_hub_env env = {.hf_hub_cache = in_folder(f, "a"),
                             .hf_home = in_folder(f, "b"),
                             .xdg_cache_home = in_folder(f, "c"),
                             .home = in_folder(f, "d")};
    expect_snapshot("own/name", &env, cache[0], COMMIT);
    env.hf_hub_cache = NULL;
    expect_snapshot("own/name", &env, cache[1], COMMIT);
    env.hf_home = NULL;
    expect_snapshot("own/name", &env, cache[2], COMMIT);
    env.xdg_cache_home = NULL;
    expect_snapshot("own/name", &env, cache[3], COMMIT);
}

static void expect_missing(const char *model, const struct di_hub_env *env, const char *looked, const char *command)
{
    char *folder = (char *)(uintptr_t)model;
    struct di_error err = {0};
    assert_int_equal(di_hub_resolve(model, env, &folder, &err), DI_ERR_NOT_FOUND);
    assert_null(folder);
    assert_message(&err, looked);
    assert_message(&err, command);
}

static void not_in_the_cache(void **state)
{
    struct folder *f = *state;
    make_cache(f, "hub");
    struct di_hub_env env = {.hf_hub_cache = in_folder(f, "hub")};
    expect_missing("own/other", &env, "hub/models--own--other/refs/main", "hf download own/other");
    expect_missing("own/name@v2", &env, "models--own--name/refs/v2", "hf download own/name --revision v2");
    expect_missing("own/name@" COMMIT "0", &env, "refs/" COMMIT "0", "--revision " COMMIT "0");
    assert_int_equal(rmdir(in_folder(f, "hub/models--own--name/snapshots/" COMMIT)), 0);
    expect_missing("own/name", &env, "snapshots/" COMMIT, "hf download own/name");
    /* one snapshot is left, but nothing says that it is main */
    assert_int_equal(unlink(in_folder(f, "hub/models--own--name/refs/main")), 0);
    expect_missing("own/name", &env, "refs/main", "hf download own/name");
    env = (struct di_hub_env){0};
    expect_missing("own/name", &env, "HF_HOME", "hf download own/name");
}

static void a_broken_ref(void **state)
{
    struct folder *f = *state;
    make_cache(f, "hub");
    const struct di_hub_env env = {.hf_hub_cache = in_folder(f, "hub")};
    static const char *const texts[] = {"", "\n", "../../../etc", "a/b", "..", "a b"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *folder;
        struct di_error err = {0};
        write_text(f, "hub/models--own--name/refs/main", texts[i]);
        assert_int_equal(di_hub_resolve("own/name", &env, &folder, &err), DI_ERR_FORMAT);
        assert_message(&err, "refs/main");
    }
}

static void neither_folder_nor_id(void **state)
{
    (void)state;
    static const char *const models[] = {"",           "name",      "/",         "/no/such/folder", "./own/name",
                                         "own/",       "own/a/b",   "own/.a",    "own/a..b",        "own/a--b",
                                         "-own/a",     "own/a-",    "own/na me", "own/name@",       "own/name@../x",
                                         "own/name@/", "own@x/name"};
    const struct di_hub_env env = {.home = "/nonexistent"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (models[i][0] != '/' || models[i][1] != '\0')
            expect_missing(models[i], &env, models[i], "neither a folder nor a hub id");
}

static void a_folder_wins(void **state)
{
    struct folder *f = *state;
    char before[512], *folder;
    struct di_error err = {0};
    make_cache(f, "hub");
    make_dirs(in_folder(f, "own/name"));
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->path), 0);
    const struct di_hub_env env = {.hf_hub_cache = "hub"};
    assert_int_equal(di_hub_resolve("own/name", &env, &folder, &err), DI_OK);
    assert_string_equal(folder, "own/name");
    free(folder);
    assert_int_equal(chdir(before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(revisions, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(environment_order, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(not_in_the_cache, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(a_broken_ref, folder_setup, folder_teardown),
        cmocka_unit_test(neither_folder_nor_id),
        cmocka_unit_test_setup_teardown(a_folder_wins, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
