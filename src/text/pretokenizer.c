#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/new_characters.h"

enum { MAX_SPLITS = 8 };

struct di_pretokenizer {
    pcre2_code *split[MAX_SPLITS];
    int32_t n_splits;
};

struct di_pretokenizer_run {
    const struct di_pretokenizer *pre;
    pcre2_match_data *match;
    pcre2_match_context *context;
};

di_status di_pretokenizer_open(struct di_pretokenizer **out, struct di_error *err)
{
    *out = di_calloc(1, sizeof **out);
    return *out != NULL ? DI_OK : DI_FAIL_NOMEM(err, sizeof **out);
}

void di_pretokenizer_close(struct di_pretokenizer *pre)
{
    if (pre == NULL)
        return;
    for (int32_t i = 0; i < pre->n_splits; i++)
        pcre2_code_free(pre->split[i]);
    free(pre);
}

/* How Onigmo's classes are written for PCRE2, which has older Unicode tables:
 *   \s, \S       the property White_Space (PCRE2's \s adds U+180E)
 *   \p{L} ...    the same, and the characters assigned since, which PCRE2 holds for unassigned */
static const char white_space[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
                                  "\\x{202f}\\x{205f}\\x{3000}";

/* A growing pattern; a failed allocation sticks. */
struct pattern {
    char *text;
    size_t used, capacity;
    bool failed;
};

static void put(struct pattern *p, const char *text, size_t len)
{
    if (p->used + len + 1 > p->capacity) {
        size_t capacity = 2 * (p->used + len + 1);
        char *grown = di_realloc_array(p->text, capacity, 1);
        if (grown == NULL) {
            p->failed = true;
            return;
        }
        p->text = grown;
        p->capacity = capacity;
    }
    memcpy(p->text + p->used, text, len);
    p->used += len;
    p->text[p->used] = '\0';
}

static void put_category(struct pattern *p, char category)
{
    char text[48];
    put(p, text, (size_t)snprintf(text, sizeof text, "\\p{%c}", category));
    for (size_t i = 0; i < sizeof di_new_characters / sizeof di_new_characters[0]; i++) {
        const struct di_new_characters *n = &di_new_characters[i];
        if (n->category == category)
            put(p, text, (size_t)snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", (unsigned)n->first, (unsigned)n->last));
    }
}

/* One escape at pattern[*at], which is a backslash: copied, or written out. Moves *at to its last character. */
static di_status translate_escape(const char *pattern, size_t *at, bool in_class, struct pattern *out,
                                  struct di_error *err)
{
    const char *from = pattern + *at;
    bool space = from[1] == 's' || from[1] == 'S';
    bool category = from[1] == 'p' && from[2] == '{' && from[3] != '\0' && from[4] == '}';
    if (from[1] == 'S' && in_class)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "pattern %s: \\S inside a class", pattern);
    if (!space && !category) {
        size_t len = from[1] != '\0' ? 2 : 1;
        put(out, from, len);
        *at += len - 1;
        return DI_OK;
    }
    if (!in_class)
        put(out, "[^", from[1] == 'S' ? 2 : 1);
    if (space)
        put(out, white_space, sizeof white_space - 1);
    else
        put_category(out, from[3]);
    if (!in_class)
        put(out, "]", 1);
    *at += space ? 1 : 4;
    return DI_OK;
}

/* *out from malloc. */
static di_status translate(const char *pattern, char **out, struct di_error *err)
{
    struct pattern p = {0};
    bool in_class = false;
    di_status status = DI_OK;
    put(&p, "", 0);
    for (size_t i = 0; pattern[i] != '\0' && status == DI_OK; i++) {
        if (pattern[i] == '\\') {
            status = translate_escape(pattern, &i, in_class, &p, err);
            continue;
        }
        in_class = pattern[i] == '[' || (in_class && pattern[i] != ']');
        put(&p, pattern + i, 1);
    }
    if (status == DI_OK && p.failed)
        status = DI_FAIL_NOMEM(err, strlen(pattern));
    if (status != DI_OK) {
        free(p.text);
        return status;
    }
    *out = p.text;
    return DI_OK;
}

di_status di_pretokenizer_add(struct di_pretokenizer *pre, const char *pattern, struct di_error *err)
{
    char *text;
    int code;
    PCRE2_SIZE offset;
    if (pre->n_splits == MAX_SPLITS)
        return DI_FAIL(err, DI_ERR_LIMIT, "more than %d splits", MAX_SPLITS);
    DI_TRY(translate(pattern, &text, err));
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &offset,
                                         NULL);
    free(text);
    if (compiled == NULL) {
        char message[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "pattern %s: %s at offset %zu", pattern, message, (size_t)offset);
    }
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* where there is no JIT the interpreter gives the same matches */
    pre->split[pre->n_splits++] = compiled;
    return DI_OK;
}

di_status di_pretokenizer_begin(const struct di_pretokenizer *pre, struct di_pretokenizer_run **out,
                                struct di_error *err)
{
    struct di_pretokenizer_run *run = di_calloc(1, sizeof *run);
    if (run == NULL)
        return DI_FAIL_NOMEM(err, sizeof *run);
    run->pre = pre;
    run->match = pcre2_match_data_create(1, NULL);
    run->context = pcre2_match_context_create(NULL);
    if (run->match == NULL || run->context == NULL) {
        di_pretokenizer_end(run);
        return DI_FAIL_NOMEM(err, sizeof *run);
    }
    /* Work is bounded by the patterns, not by counters: a long run of one kind of character is legal text. */
    pcre2_set_match_limit(run->context, UINT32_MAX);
    *out = run;
    return DI_OK;
}

void di_pretokenizer_end(struct di_pretokenizer_run *run)
{
    if (run == NULL)
        return;
    pcre2_match_data_free(run->match);
    pcre2_match_context_free(run->context);
    free(run);
}

static di_status cut(struct di_pretokenizer_run *run, int32_t level, const char *text, size_t len, di_piece_fn emit,
                     void *user, struct di_error *err)
{
    size_t at = 0, done = 0; /* search from `at`; text before `done` is emitted */
    if (level == run->pre->n_splits)
        return len != 0 ? emit(user, text, len, err) : DI_OK;
    while (at < len) {
        int found = pcre2_match(run->pre->split[level], (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, run->match,
                                run->context);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0)
            return DI_FAIL(err, found == PCRE2_ERROR_NOMEMORY ? DI_ERR_NOMEM : DI_ERR_INTERNAL,
                           "split %d failed with code %d", level, found);
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(run->match);
        size_t begin = span[0], end = span[1];
        if (end == begin) { /* an empty match cuts nothing: go one character on */
            at = end + 1;
            while (at < len && ((unsigned char)text[at] & 0xc0U) == 0x80)
                at++;
            continue;
        }
        DI_TRY(cut(run, level + 1, text + done, begin - done, emit, user, err));
        DI_TRY(cut(run, level + 1, text + begin, end - begin, emit, user, err));
        at = done = end;
    }
    return cut(run, level + 1, text + done, len - done, emit, user, err);
}

di_status di_pretokenizer_split(struct di_pretokenizer_run *run, const char *text, size_t len, di_piece_fn emit,
                                void *user, struct di_error *err)
{
    return cut(run, 0, text, len, emit, user, err);
}
