#include "core/sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

struct di_sampling_params di_sampling_defaults(void)
{
    return (struct di_sampling_params){
        .temperature = 1.0,
        .top_p = 1.0,
        .repetition_penalty = 1.0,
        .max_tokens = 256,
        .n = 1,
        .logprobs = -1,
        .prompt_logprobs = -1,
        .skip_special_tokens = true,
    };
}

/* ---- numbers ---- */

static di_status check_reals(const struct di_sampling_params *p, struct di_error *err)
{
    const struct {
        const char *name;
        double value, low, high;
        const char *wanted;
    } checks[] = {
        {"temperature", p->temperature, 0.0, (double)FLT_MAX, "a number of at least 0 that fits a 32-bit float"},
        {"top_p", p->top_p, DBL_TRUE_MIN, 1.0, "a number above 0 and at most 1"},
        {"min_p", p->min_p, 0.0, 1.0, "a number in 0..1"},
        {"repetition_penalty", p->repetition_penalty, (double)FLT_MIN, (double)FLT_MAX,
         "a number above 0 that fits a 32-bit float"},
        {"frequency_penalty", p->frequency_penalty, -2.0, 2.0, "a number in -2..2"},
        {"presence_penalty", p->presence_penalty, -2.0, 2.0, "a number in -2..2"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (!(checks[i].value >= checks[i].low && checks[i].value <= checks[i].high)) /* NaN too */
            return DI_FAIL(err, DI_ERR_RANGE, "%s must be %s, not %g", checks[i].name, checks[i].wanted,
                           checks[i].value);
    return DI_OK;
}

static di_status check_integers(const struct di_sampling_params *p, struct di_error *err)
{
    const struct {
        const char *name;
        int32_t value, low, high;
    } checks[] = {
        {"n", p->n, 1, DI_MAX_CHOICES},
        {"logprobs", p->logprobs, -1, DI_MAX_LOGPROBS},
        {"prompt_logprobs", p->prompt_logprobs, -1, DI_MAX_LOGPROBS},
    };
    if (p->top_k < -1)
        return DI_FAIL(err, DI_ERR_RANGE, "top_k must be at least 1, or 0 or -1 for all tokens, not %d", p->top_k);
    if (p->max_tokens < 1)
        return DI_FAIL(err, DI_ERR_RANGE, "max_tokens must be at least 1, not %d", p->max_tokens);
    if (p->min_tokens < 0 || p->min_tokens > p->max_tokens)
        return DI_FAIL(err, DI_ERR_RANGE, "min_tokens must lie in 0..max_tokens, which is %d, not %d", p->max_tokens,
                       p->min_tokens);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (checks[i].value < checks[i].low || checks[i].value > checks[i].high)
            return DI_FAIL(err, DI_ERR_RANGE, "%s must lie in %d..%d, not %d", checks[i].name, checks[i].low,
                           checks[i].high, checks[i].value);
    return DI_OK;
}

/* ---- stop strings ---- */

static di_status check_stop(const struct di_sampling_params *p, struct di_error *err)
{
    if (p->n_stop > DI_MAX_STOP)
        return DI_FAIL(err, DI_ERR_LIMIT, "stop holds %zu strings; at most %d are allowed", p->n_stop, DI_MAX_STOP);
    if (p->n_stop > 0 && p->stop == NULL)
        return DI_FAIL(err, DI_ERR_INVALID, "stop is NULL, but n_stop is %zu", p->n_stop);
    for (size_t i = 0; i < p->n_stop; i++) {
        const char *text = p->stop[i];
        if (text == NULL)
            return DI_FAIL(err, DI_ERR_INVALID, "stop[%zu] is NULL", i);
        size_t len = strnlen(text, (size_t)DI_MAX_STOP_BYTES + 1), valid;
        if (len == 0)
            return DI_FAIL(err, DI_ERR_INVALID, "stop[%zu] is an empty string", i);
        if (len > DI_MAX_STOP_BYTES)
            return DI_FAIL(err, DI_ERR_LIMIT, "stop[%zu] is longer than %d bytes", i, DI_MAX_STOP_BYTES);
        valid = di_utf8_valid_prefix(text, len);
        if (valid < len)
            return DI_FAIL(err, DI_ERR_INVALID, "stop[%zu] is not valid UTF-8 at byte %zu (0x%02x)", i, valid,
                           (unsigned char)text[valid]);
    }
    return DI_OK;
}

/* ---- token ids ---- */

static di_status check_id(const char *list, size_t index, int32_t id, int32_t vocab_size, struct di_error *err)
{
    if (id < 0 || (vocab_size > 0 && id >= vocab_size)) {
        if (vocab_size > 0)
            return DI_FAIL(err, DI_ERR_RANGE, "%s[%zu] is %d, outside the vocabulary of %d", list, index, id,
                           vocab_size);
        return DI_FAIL(err, DI_ERR_RANGE, "%s[%zu] is %d; a token id is at least 0", list, index, id);
    }
    return DI_OK;
}

static di_status check_ids(const char *name, const int32_t *ids, size_t n, int32_t vocab_size, struct di_error *err)
{
    if (n > 0 && ids == NULL)
        return DI_FAIL(err, DI_ERR_INVALID, "%s is NULL, but n_%s is %zu", name, name, n);
    for (size_t i = 0; i < n; i++)
        DI_TRY(check_id(name, i, ids[i], vocab_size, err));
    return DI_OK;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static di_status check_each_once(const struct di_logit_bias *bias, size_t n, struct di_error *err)
{
    di_status status = DI_OK;
    int32_t *ids = di_calloc(n, sizeof *ids);
    if (ids == NULL)
        return DI_FAIL_NOMEM(err, n * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = bias[i].token;
    qsort(ids, n, sizeof *ids, compare_ids);
    for (size_t i = 1; i < n && status == DI_OK; i++)
        if (ids[i] == ids[i - 1])
            status = DI_FAIL(err, DI_ERR_INVALID, "logit_bias names token %d more than once", ids[i]);
    free(ids);
    return status;
}

static di_status check_bias(const struct di_sampling_params *p, int32_t vocab_size, struct di_error *err)
{
    if (p->n_logit_bias == 0)
        return DI_OK;
    if (p->logit_bias == NULL)
        return DI_FAIL(err, DI_ERR_INVALID, "logit_bias is NULL, but n_logit_bias is %zu", p->n_logit_bias);
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        double bias = (double)p->logit_bias[i].bias;
        DI_TRY(check_id("logit_bias", i, p->logit_bias[i].token, vocab_size, err));
        if (!(bias >= -100.0 && bias <= 100.0) && bias != -(double)INFINITY)
            return DI_FAIL(err, DI_ERR_RANGE, "logit_bias of token %d must lie in -100..100 or be -inf, not %g",
                           p->logit_bias[i].token, bias);
    }
    return check_each_once(p->logit_bias, p->n_logit_bias, err);
}

static void forbid(uint64_t *allowed, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        allowed[ids[i] / 64] &= ~((uint64_t)1 << (ids[i] % 64));
}

static bool any(const uint64_t *words, size_t n)
{
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++)
        all |= words[i];
    return all != 0;
}

/* Whether the parameters leave a token, and one that is no stop token while min_tokens forbids these. */
static di_status check_choice(const struct di_sampling_params *p, int32_t vocab_size, struct di_error *err)
{
    bool listed = p->n_allowed_token_ids > 0;
    size_t words = ((size_t)vocab_size + 63) / 64;
    if (!listed && p->n_bad_token_ids == 0 && p->n_logit_bias == 0 && p->n_stop_token_ids == 0)
        return DI_OK;
    uint64_t *allowed = di_calloc(words, sizeof *allowed);
    if (allowed == NULL)
        return DI_FAIL_NOMEM(err, words * sizeof *allowed);
    for (int32_t id = 0; id < vocab_size && !listed; id++)
        allowed[id / 64] |= (uint64_t)1 << (id % 64);
    for (size_t i = 0; i < p->n_allowed_token_ids; i++)
        allowed[p->allowed_token_ids[i] / 64] |= (uint64_t)1 << (p->allowed_token_ids[i] % 64);
    forbid(allowed, p->bad_token_ids, p->n_bad_token_ids);
    for (size_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].bias == -INFINITY)
            forbid(allowed, &p->logit_bias[i].token, 1);
    bool some = any(allowed, words), early = some;
    if (p->min_tokens > 0) {
        forbid(allowed, p->stop_token_ids, p->n_stop_token_ids);
        early = any(allowed, words);
    }
    free(allowed);
    const char *among = listed ? "allowed_token_ids" : "the vocabulary";
    if (!some)
        return DI_FAIL(err, DI_ERR_INVALID, "bad_token_ids (%zu) and logit_bias forbid every token of %s (%zu)",
                       p->n_bad_token_ids, among, listed ? p->n_allowed_token_ids : (size_t)vocab_size);
    if (!early)
        return DI_FAIL(err, DI_ERR_INVALID,
                       "min_tokens is %d, but every token of %s that may be drawn is one of stop_token_ids (%zu)",
                       p->min_tokens, among, p->n_stop_token_ids);
    return DI_OK;
}

di_status di_sampling_validate(const struct di_sampling_params *p, int32_t vocab_size, struct di_error *err)
{
    DI_TRY(check_reals(p, err));
    DI_TRY(check_integers(p, err));
    DI_TRY(check_stop(p, err));
    DI_TRY(check_bias(p, vocab_size, err));
    DI_TRY(check_ids("allowed_token_ids", p->allowed_token_ids, p->n_allowed_token_ids, vocab_size, err));
    DI_TRY(check_ids("bad_token_ids", p->bad_token_ids, p->n_bad_token_ids, vocab_size, err));
    DI_TRY(check_ids("stop_token_ids", p->stop_token_ids, p->n_stop_token_ids, vocab_size, err));
    return vocab_size > 0 ? check_choice(p, vocab_size, err) : DI_OK;
}

/* ---- copies ---- */

/* *list := its copy, NULL if empty. */
static di_status copy_ids(struct di_arena *arena, const int32_t **list, size_t n, struct di_error *err)
{
    const int32_t *from = *list;
    *list = NULL;
    if (n == 0)
        return DI_OK;
    int32_t *to = di_arena_alloc(arena, n, sizeof *to);
    if (to == NULL)
        return DI_FAIL_NOMEM(err, n * sizeof *to);
    memcpy(to, from, n * sizeof *to);
    *list = to;
    return DI_OK;
}

static di_status copy_bias(struct di_arena *arena, const struct di_logit_bias **list, size_t n, struct di_error *err)
{
    const struct di_logit_bias *from = *list;
    *list = NULL;
    if (n == 0)
        return DI_OK;
    struct di_logit_bias *to = di_arena_alloc(arena, n, sizeof *to);
    if (to == NULL)
        return DI_FAIL_NOMEM(err, n * sizeof *to);
    memcpy(to, from, n * sizeof *to);
    *list = to;
    return DI_OK;
}

static di_status copy_strings(struct di_arena *arena, const char *const **list, size_t n, struct di_error *err)
{
    const char *const *from = *list;
    *list = NULL;
    if (n == 0)
        return DI_OK;
    const char **to = di_arena_alloc(arena, n, sizeof *to);
    if (to == NULL)
        return DI_FAIL_NOMEM(err, n * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        to[i] = di_arena_strndup(arena, from[i], strlen(from[i]));
        if (to[i] == NULL)
            return DI_FAIL_NOMEM(err, strlen(from[i]) + 1);
    }
    *list = to;
    return DI_OK;
}

di_status di_sampling_copy(const struct di_sampling_params *params, struct di_arena *arena,
                           struct di_sampling_params *out, struct di_error *err)
{
    *out = *params;
    DI_TRY(copy_bias(arena, &out->logit_bias, out->n_logit_bias, err));
    DI_TRY(copy_ids(arena, &out->allowed_token_ids, out->n_allowed_token_ids, err));
    DI_TRY(copy_ids(arena, &out->bad_token_ids, out->n_bad_token_ids, err));
    DI_TRY(copy_ids(arena, &out->stop_token_ids, out->n_stop_token_ids, err));
    return copy_strings(arena, &out->stop, out->n_stop, err);
}
