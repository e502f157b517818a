#include "base/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

enum kind { TEXT, CHOICE, INT };

struct row {
    struct di_option_info info;
    enum kind kind;
};

static const struct row registry[] = {
#define OPTION(name, env, kind, values, default_value, help) {{name, env, values, default_value, help}, kind},
#include "base/options.def"
#undef OPTION
};

enum { OPTION_COUNT = sizeof registry / sizeof registry[0] };

struct di_options {
    char *value[OPTION_COUNT]; /* NULL: the default */
};

const char *di_env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

size_t di_option_count(void)
{
    return OPTION_COUNT;
}

bool di_option_at(size_t index, struct di_option_info *out)
{
    if (index >= OPTION_COUNT)
        return false;
    *out = registry[index].info;
    return true;
}

static int32_t find_row(const char *name)
{
    for (int32_t i = 0; i < OPTION_COUNT; i++)
        if (strcmp(registry[i].info.name, name) == 0)
            return i;
    return -1;
}

/* Edits (one character inserted, dropped or changed) that turn a into b. */
static size_t edits(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= sizeof row / sizeof row[0])
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[n];
}

/* The option that was probably meant, or NULL. */
static const char *nearest_name(const char *name)
{
    const char *nearest = NULL;
    size_t best = strlen(name) / 3 < 3 ? strlen(name) / 3 : 3; /* more is no typing error */
    for (int32_t i = 0; i < OPTION_COUNT; i++) {
        size_t distance = edits(name, registry[i].info.name);
        if (distance < best || (distance == best && nearest == NULL)) {
            best = distance;
            nearest = registry[i].info.name;
        }
    }
    return nearest;
}

/* True if `value` is one of the words of "a|b|c". */
static bool is_choice(const char *choices, const char *value)
{
    size_t len = strcspn(value, "|"); /* a list is no word of it */
    if (value[len] != '\0')
        return false;
    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, value, len) == 0 && (at[len] == '|' || at[len] == '\0'))
            return len != 0;
    }
    return false;
}

static bool is_int_in(const char *range, const char *value)
{
    long long low, high;
    char *end;
    char first = value[value[0] == '-'];
    if (sscanf(range, "%lld..%lld", &low, &high) != 2 || first < '0' || first > '9') /* strtoll would skip spaces */
        return false;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    return errno == 0 && *end == '\0' && number >= low && number <= high;
}

/* `where` is "option" or "variable", `name` how the user knows it. */
static di_status check_value(const struct row *row, const char *where, const char *name, const char *value,
                             struct di_error *err)
{
    if (row->kind == CHOICE && !is_choice(row->info.values, value))
        return DI_FAIL(err, DI_ERR_INVALID, "%s %s: \"%s\" is not one of %s", where, name, value, row->info.values);
    if (row->kind == INT && !is_int_in(row->info.values, value))
        return DI_FAIL(err, DI_ERR_RANGE, "%s %s: \"%s\" is not a whole number in %s", where, name, value,
                       row->info.values);
    if (row->kind == TEXT && value[0] == '\0')
        return DI_FAIL(err, DI_ERR_INVALID, "%s %s: is empty", where, name);
    return DI_OK;
}

static di_status store(di_options *options, int32_t index, const char *value, struct di_error *err)
{
    char *copy = di_strndup(value, strlen(value));
    if (copy == NULL)
        return DI_FAIL_NOMEM(err, strlen(value));
    free(options->value[index]);
    options->value[index] = copy;
    return DI_OK;
}

di_status di_options_create(di_options **out, struct di_error *err)
{
    *out = NULL;
    di_options *options = di_calloc(1, sizeof *options);
    if (options == NULL)
        return DI_FAIL_NOMEM(err, sizeof *options);
    for (int32_t i = 0; i < OPTION_COUNT; i++) {
        const char *variable = registry[i].info.env, *value = variable != NULL ? di_env(variable) : NULL;
        if (value == NULL)
            continue;
        di_status status = check_value(&registry[i], "variable", variable, value, err);
        if (status == DI_OK)
            status = store(options, i, value, err);
        if (status != DI_OK) {
            di_options_free(options);
            return status;
        }
    }
    *out = options;
    return DI_OK;
}

void di_options_free(di_options *options)
{
    if (options == NULL)
        return;
    for (int32_t i = 0; i < OPTION_COUNT; i++)
        free(options->value[i]);
    free(options);
}

di_status di_options_set(di_options *options, const char *name, const char *value, struct di_error *err)
{
    int32_t index = find_row(name);
    if (index < 0) {
        const char *nearest = nearest_name(name);
        return DI_FAIL(err, DI_ERR_NOT_FOUND, "unknown option \"%s\"%s%s%s", name,
                       nearest != NULL ? "; did you mean \"" : "", nearest != NULL ? nearest : "",
                       nearest != NULL ? "\"?" : "");
    }
    DI_TRY(check_value(&registry[index], "option", name, value, err));
    return store(options, index, value, err);
}

const char *di_options_get(const di_options *options, const char *name)
{
    int32_t index = find_row(name);
    if (index < 0)
        return NULL;
    return options->value[index] != NULL ? options->value[index] : registry[index].info.default_value;
}

const char *di_options_text(const di_options *options, const char *name)
{
    return di_options_get(options, name);
}

int64_t di_options_int(const di_options *options, const char *name)
{
    const char *value = di_options_get(options, name);
    return value != NULL ? strtoll(value, NULL, 10) : 0;
}

bool di_options_is(const di_options *options, const char *name, const char *value)
{
    const char *now = di_options_get(options, name);
    return now != NULL && strcmp(now, value) == 0;
}
