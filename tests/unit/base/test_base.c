/* Errors, checked memory, the arena, files, JSON, the random generator, the thread team. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/threads.h"

static void errors_keep_code_and_prefix(void **state)
{
    (void)state;
    struct di_error err = {0};
    assert_int_equal(DI_FAIL(&err, DI_ERR_RANGE, "id %d", 7), DI_ERR_RANGE);
    assert_string_equal(err.message, "id 7");
    assert_int_equal(DI_PREFIX(&err, DI_ERR_RANGE, "file %s", "x"), DI_ERR_RANGE);
    assert_string_equal(err.message, "file x: id 7");
    assert_int_equal(DI_FAIL(NULL, DI_ERR_IO, "nobody listens"), DI_ERR_IO);
    assert_string_equal(di_status_name(DI_ERR_LIMIT), "DI_ERR_LIMIT");
    assert_string_equal(di_status_name((di_status)999), "DI_ERR_UNKNOWN");
}

static void long_messages_are_cut_not_overrun(void **state)
{
    (void)state;
    struct di_error err = {0};
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)DI_FAIL(&err, DI_ERR_IO, "%s", text);
    assert_int_equal(strlen(err.message), DI_ERROR_MESSAGE_SIZE - 1);
    (void)DI_PREFIX(&err, DI_ERR_IO, "%s", text);
    assert_int_equal(strlen(err.message), DI_ERROR_MESSAGE_SIZE - 1);
}

static void sizes_do_not_wrap(void **state)
{
    (void)state;
    size_t out;
    uint64_t wide;
    assert_false(di_mul_size(SIZE_MAX, 2, &out));
    assert_true(di_mul_size(6, 7, &out));
    assert_int_equal(out, 42);
    assert_false(di_add_u64(UINT64_MAX, 1, &wide));
    assert_null(di_calloc(SIZE_MAX, 2));
    assert_null(di_aligned_calloc(SIZE_MAX, 2));
}

static void arena_blocks_are_aligned_and_zero(void **state)
{
    (void)state;
    struct di_arena arena = {0};
    for (size_t size = 1; size < 200000; size = size * 3 + 1) {
        unsigned char *p = di_arena_alloc(&arena, size, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (size >= 64 ? 64 : 16), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, size);
    }
    assert_string_equal(di_arena_strndup(&arena, "hello", 3), "hel");
    assert_null(di_arena_alloc(&arena, SIZE_MAX, 16));
    di_arena_free(&arena);
    assert_null(arena.head);
}

static void injected_failures_are_counted(void **state)
{
    (void)state;
    di_mem_fail_after(2);
    void *first = di_calloc(1, 1), *second = di_calloc(1, 1), *third = di_calloc(1, 1);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    assert_int_equal(di_mem_fail_after(0), 3);
    free(first);
    free(third);
}

static void files_are_read_whole_or_refused(void **state)
{
    (void)state;
    struct di_error err = {0};
    char path[] = "/tmp/di_test_XXXXXX", *data;
    size_t size;
    struct di_map map;
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "wb");
    fputs("content", file);
    fclose(file);
    assert_int_equal(di_file_read(path, 100, &data, &size, &err), DI_OK);
    assert_int_equal(size, 7);
    assert_string_equal(data, "content");
    free(data);
    assert_int_equal(di_file_read(path, 3, &data, &size, &err), DI_ERR_LIMIT);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(di_map_open(path, &map, &err), DI_OK);
    assert_memory_equal(map.data, "content", 7);
    di_map_close(&map);
    remove(path);
    assert_int_equal(di_map_open(path, &map, &err), DI_ERR_NOT_FOUND);
    assert_int_equal(di_file_read("/tmp", 100, &data, &size, &err), DI_ERR_IO);
    assert_non_null(strstr(err.message, "regular file"));
}

static void json_refuses_what_would_be_silent(void **state)
{
    (void)state;
    struct di_error err = {0};
    json_t *root;
    int64_t number;
    assert_int_equal(di_json_parse("{\"a\":1,\"a\":2}", 13, "f.json", &root, &err), DI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "f.json"));
    assert_non_null(strstr(err.message, "duplicate"));
    assert_int_equal(di_json_parse("{} x", 4, "f", &root, &err), DI_ERR_FORMAT);
    assert_int_equal(di_json_parse("{\"n\":9007199254740993,\"s\":\"t\",\"z\":null}", 39, "f", &root, &err), DI_OK);
    assert_int_equal(di_json_get_i64(root, "", "n", &number, &err), DI_OK);
    assert_int_equal(number, 9007199254740993); /* no double holds it */
    assert_int_equal(di_json_get_i64(root, "here", "s", &number, &err), DI_ERR_FORMAT);
    assert_string_equal(err.message, "here.s must be an integer, not a string");
    assert_int_equal(di_json_get_i64(root, "here", "q", &number, &err), DI_ERR_FORMAT);
    assert_string_equal(err.message, "here.q is missing");
    assert_int_equal(di_json_get_i64_opt(root, "", "z", 5, &number, &err), DI_OK);
    assert_int_equal(number, 5);
    json_decref(root);
}

/* Random123's known answers. */
static void philox_known_answers(void **state)
{
    (void)state;
    uint32_t out[4];
    di_philox4x32(0, (uint32_t[4]){0, 0, 0, 0}, out);
    assert_memory_equal(out, ((uint32_t[4]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}), sizeof out);
    di_philox4x32(UINT64_MAX, (uint32_t[4]){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}, out);
    assert_memory_equal(out, ((uint32_t[4]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}), sizeof out);
}

static void mark(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    for (int64_t i = begin; i < end; i++)
        ((int32_t *)arg)[i]++;
}

static void team_covers_every_index_once(void **state)
{
    (void)state;
    struct di_error err = {0};
    struct di_team *team;
    for (int32_t threads = 0; threads <= 5; threads++) {
        assert_int_equal(di_team_open(threads, NULL, &team, &err), DI_OK);
        for (int64_t count = 0; count < 40; count++) {
            int32_t seen[40] = {0};
            di_team_run(team, count, mark, seen);
            for (int64_t i = 0; i < 40; i++)
                assert_int_equal(seen[i], i < count);
        }
        di_team_close(team);
    }
    assert_int_equal(di_team_open(-1, NULL, &team, &err), DI_ERR_RANGE);
    assert_int_equal(di_team_open(100000, NULL, &team, &err), DI_ERR_RANGE);
}

static void where(void *arg, int64_t begin, int64_t end, int32_t member)
{
    for (int64_t i = begin; i < end; i++)
        ((int32_t *)arg)[member] = sched_getcpu();
}

static void listed_processors_are_used_and_checked(void **state)
{
    (void)state;
    struct di_error err = {0};
    struct di_team *team;
    cpu_set_t before;
    char list[32];
    int32_t last = -1, seen[2] = {-1, -1};
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        last = CPU_ISSET((size_t)cpu, &before) ? cpu : last;
    snprintf(list, sizeof list, "%d-%d", last, last);
    assert_int_equal(di_team_open(0, list, &team, &err), DI_OK);
    assert_int_equal(di_team_size(team), 1);
    di_team_pin_caller(team);
    di_team_run(team, 1, where, seen);
    assert_int_equal(seen[0], last);
    di_team_close(team);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(di_team_open(2, list, &team, &err), DI_ERR_RANGE);
    assert_non_null(strstr(err.message, "1 processors for 2 threads"));
    assert_int_equal(di_team_open(0, "1023", &team, &err), DI_ERR_RANGE);
    static const char *const bad[] = {"", "x", "0-", "-1", "0,", "0,,1", "3-1", "0 1", "0-1-2", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(di_team_open(1, bad[i], &team, &err), DI_ERR_INVALID);
        assert_non_null(strstr(err.message, "cpu-list"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_keep_code_and_prefix),
        cmocka_unit_test(long_messages_are_cut_not_overrun),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(arena_blocks_are_aligned_and_zero),
        cmocka_unit_test(injected_failures_are_counted),
        cmocka_unit_test(files_are_read_whole_or_refused),
        cmocka_unit_test(json_refuses_what_would_be_silent),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(team_covers_every_index_once),
        cmocka_unit_test(listed_processors_are_used_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
