/* What of Oniguruma's syntax is read, and that the rest is refused by name. That the results match as Oniguruma does is
 * tested in tests/python/test_tokenizer.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/pattern.h"
#include "text/pretokenizer.h"

static void expect(const char *pattern, const char *wanted)
{
    struct di_error err = {0};
    char *out;
    if (di_pattern_translate(pattern, &out, &err) != DI_OK)
        fail_msg("%s", err.message);
    assert_string_equal(out, wanted);
    free(out);
}

static void plain_patterns_stay_as_they_are(void **state)
{
    (void)state;
    static const char *const same[] = {
        "a|b",
        "(?:ab)?c",
        "(?>a+)b",
        "a+(?!b)",
        "a(?=b)",
        "a?b*c+d??e*?f+?g?+h*+i++",
        "a{2}b{1,3}c{2,}",
        "[a-z]+",
        "[^a-z\\r\\n]",
        "\\.\\[\\\\\\-\\/",
        "[\\]\\\\\\^]",
        "[!-\\-&,]",
        "\xC3\xA9[\xE4\xB8\x80-\xE9\xBE\xA5]",
        " \n#",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        expect(same[i], same[i]);
}

static void groups_and_hyphens_are_made_plain(void **state)
{
    (void)state;
    expect("(a|b)", "(?:a|b)");
    expect("[-a]", "[\\-a]");
    expect("[^-a]", "[^\\-a]");
    expect("[a-]", "[a\\-]");
    expect("[-]", "[\\-]");
}

static void classes_are_written_out(void **state)
{
    (void)state;
    struct di_error err = {0};
    char *out;
    expect("[\\s]", "[\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{"
                    "205f}\\x{3000}]");
    assert_int_equal(di_pattern_translate("[^\\p{L}]", &out, &err), DI_OK);
    assert_memory_equal(out, "[^\\p{L}\\x{1c89}-\\x{1c8a}", 23);
    free(out);
    assert_int_equal(di_pattern_translate("\\P{N}\\S", &out, &err), DI_OK);
    assert_memory_equal(out, "[^\\p{N}\\x{10d40}", 16);
    assert_non_null(strstr(out, "][^\\x{9}-\\x{d}"));
    free(out);
}

static void refused(const char *pattern, const char *culprit, size_t at)
{
    struct di_error err = {0};
    char *out, place[32];
    assert_int_equal(di_pattern_translate(pattern, &out, &err), DI_ERR_UNSUPPORTED);
    snprintf(place, sizeof place, "at byte %zu of", at);
    if (strstr(err.message, culprit) == NULL || strstr(err.message, place) == NULL ||
        strstr(err.message, pattern) == NULL)
        fail_msg("\"%s\" does not name \"%s\" %s \"%s\"", err.message, culprit, place, pattern);
}

static void what_the_engines_read_differently_is_refused(void **state)
{
    (void)state;
    static const char *const escapes[] = {
        "\\w", "\\d", "\\h",  "\\v",     "\\R",      "\\X",     "\\K",    "\\G",   "\\A", "\\b",        "\\x41",
        "\\1", "\\Q", "\\pL", "\\p{Lu}", "\\p{Han}", "\\p{^L}", "\\p{l}", "\\p{L", "\\p", "\\\xC3\xA9", "\\"};
    char pattern[32];
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        snprintf(pattern, sizeof pattern, "ab%s", escapes[i]);
        refused(pattern, "escape", 2);
    }
    refused("[\\w]", "escape", 1);
    refused("[^\\S\\n]", "inside a class", 2);
    refused("[a[bc]]", "class inside a class", 2);
    refused("[[:alpha:]]", "class inside a class", 1);
    refused("[a&&b]", "class inside a class", 2);
    refused("[]a]", "unescaped ]", 1);
    refused("[a-b-c]", "unescaped ] or -", 4);
    refused("[\\p{L}-z]", "unescaped ] or -", 6);
    refused("[a-\\s]", "range", 5);
    refused("[ab", "class without end", 3);
    refused("[a-", "class without end", 3);
    refused("[", "class without end", 1);
    refused("[^", "class without end", 2);
    refused("^a", "unescaped ^", 0);
    refused("a$", "unescaped ^ $", 1);
    refused("a.b", "unescaped ^ $ .", 1);
    refused("a]", "unescaped", 1);
    refused("a}", "unescaped", 1);
    refused("(?i:a)", "group", 0);
    refused("(?i)a", "group", 0);
    refused("(?<=a)b", "group", 0);
    refused("(?#c)a", "group", 0);
    refused("(?", "group", 0);
    refused("(a", "group without end", 2);
    refused("a)", "unmatched )", 1);
    refused("(a|b)+", "quantifier", 5);
    refused("(?:a){2}", "quantifier", 5);
    refused("(?!a)?", "quantifier", 5);
    refused("*a", "quantifier", 0);
    refused("(*ACCEPT)", "quantifier", 1);
    refused("a|+", "quantifier", 2);
    refused("a**", "quantifier", 2);
    refused("a{2}+", "quantifier", 4);
    refused("a{2}?", "quantifier", 4);
    refused("a{,2}", "quantifier", 1);
    refused("a{3,2}", "quantifier", 1);
    refused("a{x}", "quantifier", 1);
    refused("a{", "quantifier", 1);
    refused("a{1", "quantifier", 1);
    refused("a{1,", "quantifier", 1);
    refused("a{99999}", "quantifier", 1);
}

static void groups_are_nested_to_a_limit(void **state)
{
    (void)state;
    char pattern[67] = {0};
    memset(pattern, '(', 33);
    memset(pattern + 33, ')', 33);
    refused(pattern, "too deep", 32);
}

static void a_pattern_that_matches_nothing_is_refused(void **state)
{
    (void)state;
    static const char *const empty[] = {"", "a*", "a|", "(?=a)", "a{0}", "(?:a)?"};
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        struct di_error err = {0};
        struct di_pretokenizer *pre;
        assert_int_equal(di_pretokenizer_open(&pre, &err), DI_OK);
        assert_int_equal(di_pretokenizer_add(pre, empty[i], &err), DI_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "no characters"));
        di_pretokenizer_close(pre);
    }
}

static di_status add_up(void *user, const char *piece, size_t len, struct di_error *err)
{
    (void)piece, (void)err;
    size_t *sums = user;
    sums[0]++;
    sums[1] += len;
    return DI_OK;
}

/* Backtracking over a long text needs neither the machine's stack nor more than the heap gives. */
static void long_texts_need_no_deep_stack(void **state)
{
    (void)state;
    static const char *const patterns[] = {"[\\p{L}\\p{M}]+?(?!\\p{L})", "(?:\\p{L}*)?\\p{L}x?",
                                           "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "(a*?b|\\p{L}+)"};
    const size_t size = 1 << 20;
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct di_error err = {0};
        struct di_pretokenizer *pre;
        struct di_pretokenizer_run *run;
        size_t sums[2] = {0};
        memset(text, i == 2 ? ' ' : 'a', size);
        assert_int_equal(di_pretokenizer_open(&pre, &err), DI_OK);
        assert_int_equal(di_pretokenizer_add(pre, patterns[i], &err), DI_OK);
        assert_int_equal(di_pretokenizer_begin(pre, &run, &err), DI_OK);
        if (di_pretokenizer_split(run, text, size, add_up, sums, &err) != DI_OK)
            fail_msg("%s: %s", patterns[i], err.message);
        assert_int_equal(sums[0], 1);
        assert_int_equal(sums[1], size);
        di_pretokenizer_end(run);
        di_pretokenizer_close(pre);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_patterns_stay_as_they_are),
        cmocka_unit_test(groups_and_hyphens_are_made_plain),
        cmocka_unit_test(classes_are_written_out),
        cmocka_unit_test(what_the_engines_read_differently_is_refused),
        cmocka_unit_test(groups_are_nested_to_a_limit),
        cmocka_unit_test(a_pattern_that_matches_nothing_is_refused),
        cmocka_unit_test(long_texts_need_no_deep_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
