#include "sampling.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    REAL,    /* low */
    INTEGER, /* low..high */
    SEED,
    SWITCH, /* as an option without a value, or on|off */
    IDS,
    TEXTS,
    BIASES,
};

#define FIELD(name) #name, offsetof(struct di_sampling_params, name)
#define LIST(name, slot) FIELD(name), .count = offsetof(struct di_sampling_params, n_##name), .memory = (slot)

/* Finer limits are those of di_sampling_validate(). */
static const struct row {
    const char *name;
    size_t at;
    double low, high;
    size_t count; /* of a list: where its length stands */
    enum kind kind;
    int memory;
} table[] = {
    {FIELD(temperature), .kind = REAL},
    {FIELD(top_k), .kind = INTEGER, .low = -1, .high = INT32_MAX},
    {FIELD(top_p), .kind = REAL},
    {FIELD(min_p), .kind = REAL},
    {FIELD(repetition_penalty), .kind = REAL},
    {FIELD(frequency_penalty), .kind = REAL, .low = -2},
    {FIELD(presence_penalty), .kind = REAL, .low = -2},
    {FIELD(max_tokens), .kind = INTEGER, .low = 1, .high = INT32_MAX},
    {FIELD(min_tokens), .kind = INTEGER, .high = INT32_MAX},
    {FIELD(n), .kind = INTEGER, .low = 1, .high = DI_MAX_CHOICES},
    {FIELD(logprobs), .kind = INTEGER, .high = DI_MAX_LOGPROBS},
    {FIELD(prompt_logprobs), .kind = INTEGER, .high = DI_MAX_LOGPROBS},
    {FIELD(ignore_eos), .kind = SWITCH},
    {FIELD(include_stop_str_in_output), .kind = SWITCH},
    {FIELD(skip_special_tokens), .kind = SWITCH},
    {FIELD(seed), .kind = SEED},
    {LIST(stop, 0), .kind = TEXTS},
    {LIST(stop_token_ids, 1), .kind = IDS},
    {LIST(logit_bias, 2), .kind = BIASES},
    {LIST(allowed_token_ids, 3), .kind = IDS},
    {LIST(bad_token_ids, 4), .kind = IDS},
};

enum { ROWS = sizeof table / sizeof table[0], NAME_SIZE = 64 };

static void *field(struct app_sampling *s, const struct row *row)
{
    return (char *)&s->params + row->at;
}

/* `list` becomes the parameter's, and its memory ours. */
static void set_list(struct app_sampling *s, const struct row *row, void *list, size_t count)
{
    free(s->memory[row->memory]);
    s->memory[row->memory] = list;
    memcpy(field(s, row), &list, sizeof list);
    memcpy((char *)&s->params + row->count, &count, sizeof count);
}

static size_t element_size(const struct row *row)
{
    return row->kind == TEXTS ? sizeof(const char *)
           : row->kind == IDS ? sizeof(int32_t)
                              : sizeof(struct di_logit_bias);
}

/* ---- numbers in text ---- */

/* Digits alone. */
static bool read_id(const char *text, size_t len, int32_t *id)
{
    int64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = 10 * value + (text[i] - '0');
        if (value > INT32_MAX)
            return false;
    }
    *id = (int32_t)value;
    return len > 0;
}

/* ID:VALUE, a finite decimal number. */
static bool read_bias(const char *text, struct di_logit_bias *bias)
{
    size_t len = strcspn(text, ":");
    const char *number = text[len] == ':' ? text + len + 1 : "";
    char *end;
    double value = strtod(number, &end);
    if (!read_id(text, len, &bias->token) || number[0] == '\0' || *end != '\0' ||
        strspn(number, "0123456789.eE+-") != strlen(number) || !isfinite(value))
        return false;
    bias->bias = (float)value;
    return true;
}

/* ---- options ---- */

static const char *option_name(const struct row *row, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "%s", row->name);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '_' ? '-' : *c;
    return name;
}

/* Elements in all values of a list's option. */
static size_t count_elements(const struct app_args *args, const struct row *row, const char *name)
{
    size_t count = 0;
    const char *text;
    for (int at = 0; (text = args_next(args, name, &at)) != NULL;) {
        count++;
        for (; row->kind == IDS && *text != '\0'; text++)
            count += *text == ',';
    }
    return count;
}

/* One value of a list's option; false if it makes no sense. */
static bool read_elements(const struct row *row, const char *text, void *list, size_t *count)
{
    if (row->kind == TEXTS) {
        ((const char **)list)[(*count)++] = text;
        return true;
    }
    if (row->kind == BIASES)
        return read_bias(text, &((struct di_logit_bias *)list)[(*count)++]);
    for (size_t len;; text += len + 1) {
        len = strcspn(text, ",");
        if (!read_id(text, len, &((int32_t *)list)[(*count)++]))
            return false;
        if (text[len] == '\0')
            return true;
    }
}

static int list_option(const struct app_args *args, const struct row *row, const char *name, struct app_sampling *s)
{
    size_t count = count_elements(args, row, name), n = 0;
    void *list = calloc(count + 1, element_size(row));
    const char *text;
    if (list == NULL)
        return app_fail(args, APP_FAILED, DI_ERR_NOMEM, "option --%s: out of memory", name);
    for (int at = 0; (text = args_next(args, name, &at)) != NULL;) {
        if (!read_elements(row, text, list, &n)) {
            free(list);
            return app_usage(args, "option --%s: \"%s\" is not %s", name, text,
                             row->kind == IDS ? "a list of token ids, as 5 or 1,2,3" : "ID:VALUE, as 17:-2.5");
        }
    }
    set_list(s, row, list, count);
    return APP_OK;
}

static int read_option(const struct app_args *args, const struct row *row, struct app_sampling *s)
{
    char name[NAME_SIZE];
    int64_t integer;
    bool *on = field(s, row);
    int code = APP_OK;
    if (!args_has(args, option_name(row, name)))
        return APP_OK;
    switch (row->kind) {
    case REAL:
        return args_real(args, name, row->low, field(s, row));
    case INTEGER:
        code = args_int(args, name, (int64_t)row->low, (int64_t)row->high, &integer);
        if (code == APP_OK)
            *(int32_t *)field(s, row) = (int32_t)integer;
        return code;
    case SEED:
        s->params.has_seed = true;
        return args_u64(args, name, &s->params.seed);
    case SWITCH:
        *on = true;
        return args_value(args, name)[0] == '\0' ? APP_OK : args_on_off(args, name, on);
    default:
        return list_option(args, row, name, s);
    }
}

int app_sampling_read(const struct app_args *args, struct app_sampling *sampling)
{
    int code = APP_OK;
    sampling->params = di_sampling_defaults();
    for (int i = 0; i < ROWS && code == APP_OK; i++)
        code = read_option(args, &table[i], sampling);
    return code == APP_OK ? app_sampling_check(args, &sampling->params, 0) : code;
}

int app_sampling_check(const struct app_args *args, const struct di_sampling_params *params, int32_t vocab_size)
{
    struct di_error err = {0};
    char name[NAME_SIZE];
    if (di_sampling_validate(params, vocab_size, &err) == DI_OK)
        return APP_OK;
    size_t len = strspn(err.message, "abcdefghijklmnopqrstuvwxyz_"); /* messages begin with the parameter */
    for (int i = 0; i < ROWS; i++)
        if (strlen(table[i].name) == len && strncmp(table[i].name, err.message, len) == 0)
            return app_fail(args, APP_USAGE, err.code, "option --%s: %s", option_name(&table[i], name), err.message);
    return app_error(args, app_input_code(&err), &err);
}

/* ---- JSON ---- */

static di_status fail(struct di_error *err, di_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static di_status fail(struct di_error *err, di_status code, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, list);
    va_end(list);
    err->code = code;
    return code;
}

static di_status set_integer(const struct row *row, const json_t *value, int32_t *out, struct di_error *err)
{
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || (double)number < row->low || (double)number > row->high)
        return fail(err, json_is_integer(value) ? DI_ERR_RANGE : DI_ERR_INVALID,
                    "%s must be a whole number in %.0f..%.0f", row->name, row->low, row->high);
    *out = (int32_t)number;
    return DI_OK;
}

/* A number, or its digits in a string: JSON numbers do not hold 64 bits for everybody. */
static di_status set_seed(struct app_sampling *s, bool again, const char *key, const json_t *value,
                          struct di_error *err)
{
    const char *text = json_string_value(value);
    uint64_t seed = (uint64_t)json_integer_value(value);
    char *end;
    errno = 0;
    if (text != NULL)
        seed = strtoull(text, &end, 10);
    bool good = text != NULL ? text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 &&
                                   strlen(text) == json_string_length(value)
                             : json_is_integer(value) && json_integer_value(value) >= 0;
    if (!good)
        return fail(err, DI_ERR_INVALID,
                    "%s must be a whole number in 0..18446744073709551615, or such a number in a string", key);
    if (again && seed != s->params.seed)
        return fail(err, DI_ERR_INVALID, "seed and seq_seed are one parameter, but differ");
    s->params.seed = seed;
    s->params.has_seed = true;
    return DI_OK;
}

static di_status read_text(const struct row *row, const json_t *value, size_t index, const char **text,
                           struct di_error *err)
{
    *text = json_string_value(value);
    if (*text == NULL)
        return fail(err, DI_ERR_INVALID, "%s must be a string or a list of strings", row->name);
    if (strlen(*text) != json_string_length(value))
        return fail(err, DI_ERR_INVALID, "%s[%zu] holds a zero byte", row->name, index);
    return DI_OK;
}

/* The elements of a list of ids or strings. */
static di_status read_array(const struct row *row, const json_t *value, void *list, struct di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; i < json_array_size(value) && status == DI_OK; i++) {
        const json_t *item = json_array_get(value, i);
        json_int_t id = json_integer_value(item);
        if (row->kind == TEXTS)
            status = read_text(row, item, i, &((const char **)list)[i], err);
        else if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
            status = fail(err, json_is_integer(item) ? DI_ERR_RANGE : DI_ERR_INVALID, "%s[%zu] is not a token id",
                          row->name, i);
        else
            ((int32_t *)list)[i] = (int32_t)id;
    }
    return status;
}

static di_status read_biases(const struct row *row, json_t *value, struct di_logit_bias *list, struct di_error *err)
{
    const char *key;
    json_t *bias;
    json_object_foreach (value, key, bias) {
        if (!read_id(key, strlen(key), &list->token))
            return fail(err, DI_ERR_INVALID, "%s: the key \"%.40s\" is not a token id", row->name, key);
        if (!json_is_number(bias))
            return fail(err, DI_ERR_INVALID, "%s of token %d must be a number", row->name, list->token);
        list->bias = (float)json_number_value(bias);
        list++;
    }
    return DI_OK;
}

static di_status set_json_list(struct app_sampling *s, const struct row *row, json_t *value, struct di_error *err)
{
    bool single = row->kind == TEXTS && json_is_string(value);
    if (!single && row->kind == BIASES ? !json_is_object(value) : !single && !json_is_array(value))
        return fail(err, DI_ERR_INVALID, "%s must be %s", row->name,
                    row->kind == BIASES  ? "an object of token ids and numbers"
                    : row->kind == TEXTS ? "a string or a list of strings"
                                         : "a list of token ids");
    size_t count = single ? 1 : json_is_object(value) ? json_object_size(value) : json_array_size(value);
    void *list = calloc(count + 1, element_size(row));
    if (list == NULL)
        return fail(err, DI_ERR_NOMEM, "%s: out of memory", row->name);
    di_status status;
    if (single)
        status = read_text(row, value, 0, list, err);
    else if (row->kind == BIASES)
        status = read_biases(row, value, list, err);
    else
        status = read_array(row, value, list, err);
    if (status == DI_OK)
        set_list(s, row, list, count);
    else
        free(list);
    return status;
}

di_status app_sampling_set(struct app_sampling *s, const char *key, json_t *value, bool *known, struct di_error *err)
{
    int i = 0;
    const char *name = strcmp(key, "seq_seed") == 0 ? "seed" : key;
    while (i < ROWS && strcmp(table[i].name, name) != 0)
        i++;
    *known = i < ROWS;
    if (i == ROWS || json_is_null(value))
        return DI_OK;
    const struct row *row = &table[i];
    bool again = (s->keys >> i & 1) != 0;
    s->keys |= (uint64_t)1 << i;
    switch (row->kind) {
    case REAL:
        if (!json_is_number(value))
            return fail(err, DI_ERR_INVALID, "%s must be a number", row->name);
        *(double *)field(s, row) = json_number_value(value);
        return DI_OK;
    case INTEGER:
        return set_integer(row, value, field(s, row), err);
    case SEED:
        return set_seed(s, again, key, value, err);
    case SWITCH:
        if (!json_is_boolean(value))
            return fail(err, DI_ERR_INVALID, "%s must be true or false", row->name);
        *(bool *)field(s, row) = json_is_true(value);
        return DI_OK;
    default:
        return set_json_list(s, row, value, err);
    }
}

void app_sampling_offer(struct args_nearest *nearest)
{
    for (int i = 0; i < ROWS; i++)
        args_offer(nearest, table[i].name);
}

void app_sampling_free(struct app_sampling *sampling)
{
    for (int i = 0; i < APP_SAMPLING_LISTS; i++)
        free(sampling->memory[i]);
    *sampling = (struct app_sampling){0};
}
