#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "text/pattern.h"

enum { MAX_SPLITS = 8 };

struct di_pretokenizer {
    pcre2_general_context *memory;
    pcre2_compile_context *compile;
    pcre2_code *split[MAX_SPLITS];
    int32_t n_splits;
};

struct di_pretokenizer_run {
    const struct di_pretokenizer *pre;
    pcre2_match_data *match;
    pcre2_match_context *context;
};

/* PCRE2 allocates as the library does, so that injected failures reach it. */
static void *allocate(size_t size, void *user)
{
    (void)user;
    return di_calloc(size, 1);
}

static void release(void *memory, void *user)
{
    (void)user;
    free(memory);
}

di_status di_pretokenizer_open(struct di_pretokenizer **out, struct di_error *err)
{
    struct di_pretokenizer *pre = di_calloc(1, sizeof *pre);
    *out = NULL;
    if (pre == NULL)
        return DI_FAIL_NOMEM(err, sizeof *pre);
    pre->memory = pcre2_general_context_create(allocate, release, NULL);
    if (pre->memory != NULL)
        pre->compile = pcre2_compile_context_create(pre->memory);
    if (pre->compile == NULL) {
        di_pretokenizer_close(pre);
        return DI_FAIL_NOMEM(err, sizeof *pre);
    }
    *out = pre;
    return DI_OK;
}

void di_pretokenizer_close(struct di_pretokenizer *pre)
{
    if (pre == NULL)
        return;
    for (int32_t i = 0; i < pre->n_splits; i++)
        pcre2_code_free(pre->split[i]);
    pcre2_compile_context_free(pre->compile);
    pcre2_general_context_free(pre->memory);
    free(pre);
}

di_status di_pretokenizer_add(struct di_pretokenizer *pre, const char *pattern, struct di_error *err)
{
    char *text;
    int code;
    PCRE2_SIZE offset;
    uint32_t empty = 1;
    if (pre->n_splits == MAX_SPLITS)
        return DI_FAIL(err, DI_ERR_LIMIT, "more than %d splits", MAX_SPLITS);
    DI_TRY(di_pattern_translate(pattern, &text, err));
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &offset,
                                         pre->compile);
    free(text);
    if (compiled == NULL) {
        char message[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        di_status status = code == PCRE2_ERROR_HEAP_FAILED ? DI_ERR_NOMEM : DI_ERR_UNSUPPORTED;
        return DI_FAIL(err, status, "%s in the pattern %s", message, pattern);
    }
    pre->split[pre->n_splits++] = compiled;
    pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty != 0)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "a match of no characters is possible in the pattern %s", pattern);
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* where there is no JIT the interpreter gives the same matches */
    return DI_OK;
}

di_status di_pretokenizer_begin(const struct di_pretokenizer *pre, struct di_pretokenizer_run **out,
                                struct di_error *err)
{
    struct di_pretokenizer_run *run = di_calloc(1, sizeof *run);
    if (run == NULL)
        return DI_FAIL_NOMEM(err, sizeof *run);
    run->pre = pre;
    run->match = pcre2_match_data_create(1, pre->memory);
    run->context = pcre2_match_context_create(pre->memory);
    if (run->match == NULL || run->context == NULL) {
        di_pretokenizer_end(run);
        return DI_FAIL_NOMEM(err, sizeof *run);
    }
    /* Work is bounded by the patterns, not by counters: a long run of one kind of character is legal text. */
    pcre2_set_match_limit(run->context, UINT32_MAX);
    pcre2_set_depth_limit(run->context, UINT32_MAX);
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

static int match(struct di_pretokenizer_run *run, int32_t level, const char *text, size_t len, size_t at)
{
    const pcre2_code *split = run->pre->split[level];
    int found = pcre2_match(split, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK, run->match, run->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter's stack is the heap */
        found = pcre2_match(split, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->match,
                            run->context);
    return found;
}

static di_status cut(struct di_pretokenizer_run *run, int32_t level, const char *text, size_t len, di_piece_fn emit,
                     void *user, struct di_error *err)
{
    size_t done = 0; /* text before it is emitted */
    if (level == run->pre->n_splits)
        return len != 0 ? emit(user, text, len, err) : DI_OK;
    while (done < len) {
        int found = match(run, level, text, len, done);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found < 0)
            return DI_FAIL(err, found == PCRE2_ERROR_NOMEMORY ? DI_ERR_NOMEM : DI_ERR_INTERNAL,
                           "split %d failed with code %d", level, found);
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(run->match);
        size_t begin = span[0], end = span[1]; /* begin < end: patterns that match nothing are refused */
        DI_TRY(cut(run, level + 1, text + done, begin - done, emit, user, err));
        DI_TRY(cut(run, level + 1, text + begin, end - begin, emit, user, err));
        done = end;
    }
    return cut(run, level + 1, text + done, len - done, emit, user, err);
}

di_status di_pretokenizer_split(struct di_pretokenizer_run *run, const char *text, size_t len, di_piece_fn emit,
                                void *user, struct di_error *err)
{
    return cut(run, 0, text, len, emit, user, err);
}
