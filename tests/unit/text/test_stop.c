/* Stop strings against the obvious search, whatever the pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/stop.h"

enum { MAX_STRINGS = 6, MAX_LEN = 64, MAX_TEXT = 400 };

static uint64_t random_state = 11;

static size_t below(size_t n)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (size_t)(random_state >> 33) % n;
}

static struct di_stop_set *open_set(const char *const *strings, size_t n, bool include)
{
    struct di_error err = {0};
    struct di_stop_set *set;
    if (di_stop_set_open(strings, n, include, &set, &err) != DI_OK)
        fail_msg("%s", err.message);
    return set;
}

/* Output as a user would put it together. */
struct shown {
    char text[MAX_TEXT + 1];
    size_t len;
    int32_t found;
};

static void show(struct shown *shown, const struct di_stop_text *out, const char *piece)
{
    memcpy(shown->text + shown->len, out->held, out->n_held);
    shown->len += out->n_held;
    memcpy(shown->text + shown->len, piece, out->n_piece);
    shown->len += out->n_piece;
    shown->text[shown->len] = '\0';
    shown->found = out->found >= 0 ? out->found : shown->found;
}

/* ---- the obvious version ---- */

/* Which string the first `len` bytes of the text end with: the longest, of equal ones the first; -1: none. */
static int32_t ends_with(const char *text, size_t len, const char *const *strings, size_t n)
{
    int32_t best = -1;
    for (size_t i = 0; i < n; i++) {
        size_t size = strlen(strings[i]);
        if (size <= len && memcmp(text + len - size, strings[i], size) == 0 &&
            (best < 0 || size > strlen(strings[best])))
            best = (int32_t)i;
    }
    return best;
}

/* How much of the text's end might become a string. */
static size_t pending(const char *text, size_t len, const char *const *strings, size_t n)
{
    for (size_t size = len; size > 0; size--)
        for (size_t i = 0; i < n; i++)
            if (size < strlen(strings[i]) && memcmp(text + len - size, strings[i], size) == 0)
                return size;
    return 0;
}

/* ---- random texts ---- */

static size_t random_text(char *out, size_t characters)
{
    static const char *const alphabet[] = {"a", "b", "a", "\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x99\x82"};
    size_t kinds = 1 + below(6), len = 0;
    for (size_t i = 0; i < characters; i++) {
        const char *character = alphabet[below(kinds)];
        memcpy(out + len, character, strlen(character));
        len += strlen(character);
    }
    out[len] = '\0';
    return len;
}

static size_t piece_size(const char *text, size_t left, bool bytes)
{
    size_t size = 0, want = below(3) == 0 ? below(20) : below(4);
    while (size < left && size < want) {
        size_t len;
        uint32_t code;
        di_utf8_next((const uint8_t *)text + size, left - size, &len, &code);
        size += bytes ? 1 : len;
    }
    return size;
}

static void stream_text(const char *text, size_t len, const char *const *strings, size_t n, bool include, bool bytes)
{
    struct di_stop_set *set = open_set(strings, n, include);
    struct di_stop stream = {0};
    struct shown shown = {.found = -1};
    int32_t found = -1;
    size_t fed = 0;
    while (fed < len) {
        size_t size = piece_size(text + fed, len - fed, bytes), end = fed;
        for (; end < fed + size && found < 0; end++)
            found = ends_with(text, end + 1, strings, n);
        struct di_stop copy = stream;
        struct di_stop_text out = di_stop_feed(set, &stream, text + fed, size), again;
        again = di_stop_feed(set, &copy, text + fed, size);
        assert_true(again.n_held == out.n_held && again.n_piece == out.n_piece && again.held == out.held);
        show(&shown, &out, text + fed);
        size_t wanted = end - (found < 0 ? pending(text, end, strings, n) : include ? 0 : strlen(strings[found]));
        assert_int_equal(shown.len, wanted);
        assert_int_equal(out.found, found);
        assert_memory_equal(shown.text, text, shown.len);
        if (!bytes)
            assert_int_equal(di_utf8_valid_prefix(shown.text, shown.len), shown.len);
        fed += size;
        if (found >= 0)
            break;
    }
    size_t before = shown.len;
    struct di_stop_text out;
    if (found >= 0) { /* all over */
        out = di_stop_feed(set, &stream, "aab", 3);
        assert_true(out.n_held == 0 && out.n_piece == 0 && out.found == -1);
    }
    out = di_stop_finish(set, &stream);
    show(&shown, &out, "");
    assert_int_equal(shown.len, found >= 0 ? before : len);
    assert_memory_equal(shown.text, text, shown.len);
    assert_true(stream.node == 0 && !stream.ended);
    di_stop_set_close(set);
}

static void equals_the_obvious_version(void **state)
{
    (void)state;
    static char storage[MAX_STRINGS][MAX_LEN], text[MAX_TEXT];
    for (int turn = 0; turn < 20000; turn++) {
        const char *strings[MAX_STRINGS];
        size_t n = below(MAX_STRINGS + 1), len = random_text(text, below(turn % 10 == 0 ? 80 : 20));
        for (size_t i = 0; i < n; i++) {
            random_text(storage[i], 1 + below(turn % 3 == 0 ? 3 : 10));
            strings[i] = storage[i];
        }
        stream_text(text, len, strings, n, turn % 2 == 0, turn % 5 == 0);
    }
}

/* Pieces are given as strings; what was shown up to and with each of them, and at the end. */
static void examples(void **state)
{
    (void)state;
    static const struct {
        const char *stop[3], *pieces[5], *shown[5], *whole;
        bool include;
    } cases[] = {
        {{"\n\n"}, {"one\n", "two\n", "\nthree"}, {"one", "one\ntwo", "one\ntwo"}, "one\ntwo", false},
        {{"\n\n"}, {"one\n", "two\n", "\nthree"}, {"one", "one\ntwo", "one\ntwo\n\n"}, "one\ntwo\n\n", true},
        {{"</s>"}, {"a <", "/", "s", "x </"}, {"a ", "a ", "a ", "a </sx "}, "a </sx </", false}, /* never there */
        {{"abcd", "bc"}, {"xab", "cd"}, {"x", "xa"}, "xa", false},            /* what completes first counts */
        {{"c", "bc", "abc"}, {"xab", "cd"}, {"x", "x"}, "x", false},          /* the longest of one end */
        {{"aab"}, {"aa", "a", "a", "b"}, {"", "a", "aa", "aa"}, "aa", false}, /* falls back within itself */
        {{"\xE4\xB8\xAD!"},
         {"\xE4\xB8\xAD", "\xE4\xB8\xAD", "!"},
         {"", "\xE4\xB8\xAD", "\xE4\xB8\xAD"},
         "\xE4\xB8\xAD",
         false},
        {{"stop"}, {"unstoppable"}, {"un"}, "un", false}, /* in the middle of a piece */
        {{"ab", "ab"}, {"a", "", "b"}, {"", "", ""}, "", false},
        {{NULL}, {"a", "b"}, {"a", "ab"}, "ab", false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t n = 0;
        while (n < 3 && cases[c].stop[n] != NULL)
            n++;
        struct di_stop_set *set = open_set(cases[c].stop, n, cases[c].include);
        struct di_stop stream = {0};
        struct shown shown = {.found = -1};
        struct di_stop_text out;
        for (size_t i = 0; i < 5 && cases[c].pieces[i] != NULL; i++) {
            out = di_stop_feed(set, &stream, cases[c].pieces[i], strlen(cases[c].pieces[i]));
            show(&shown, &out, cases[c].pieces[i]);
            assert_string_equal(shown.text, cases[c].shown[i]);
        }
        out = di_stop_finish(set, &stream);
        show(&shown, &out, "");
        assert_string_equal(shown.text, cases[c].whole);
        di_stop_set_close(set);
    }
}

/* The greatest set that a request may have, all of its strings alike but for their ends. */
static void many_long_strings(void **state)
{
    (void)state;
    enum { N = 64, LEN = 1024 };
    static char storage[N][LEN + 1], text[LEN];
    const char *strings[N];
    for (size_t i = 0; i < N; i++) {
        memset(storage[i], 'a', LEN);
        storage[i][LEN - 1] = (char)('!' + i);
        strings[i] = storage[i];
    }
    memset(text, 'a', LEN);
    struct di_stop_set *set = open_set(strings, N, false);
    struct di_stop stream = {0};
    for (int i = 0; i < 100; i++) {
        struct di_stop_text out = di_stop_feed(set, &stream, text, LEN);
        assert_int_equal(out.n_held + out.n_piece, i == 0 ? 1 : LEN);
        assert_int_equal(out.found, -1);
    }
    struct di_stop_text out = di_stop_feed(set, &stream, "(", 1);
    assert_int_equal(out.found, 7);
    assert_int_equal(out.n_held + out.n_piece, 0);
    di_stop_set_close(set);
}

static void what_cannot_be_opened_is_an_error(void **state)
{
    (void)state;
    const char *strings[] = {"one", ""};
    struct di_error err = {0};
    struct di_stop_set *set;
    assert_int_equal(di_stop_set_open(strings, 2, false, &set, &err), DI_ERR_INVALID);
    assert_non_null(strstr(err.message, "stop[1]"));
    assert_null(set);
    uint64_t failures = 0;
    for (bool done = false; !done;) {
        di_mem_fail_after(failures + 1);
        di_status status = di_stop_set_open(strings, 1, false, &set, &err);
        di_mem_fail_after(0);
        done = status == DI_OK;
        failures += !done;
        assert_true(done || status == DI_ERR_NOMEM);
    }
    assert_in_range(failures, 2, 5);
    di_stop_set_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_obvious_version),
        cmocka_unit_test(examples),
        cmocka_unit_test(many_long_strings),
        cmocka_unit_test(what_cannot_be_opened_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
