#include "app.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int own_index(const struct app_args *args, const char *name, size_t len)
{
    for (int i = 0; args->own[i].name != NULL; i++)
        if (strlen(args->own[i].name) == len && strncmp(args->own[i].name, name, len) == 0)
            return i;
    return -1;
}

const char *app_value(const struct app_args *args, const char *name)
{
    return args->values[own_index(args, name, strlen(name))];
}

bool app_has(const struct app_args *args, const char *name)
{
    return app_value(args, name) != NULL;
}

/* Edits needed to turn a into b; small strings. */
static size_t distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= sizeof row / sizeof row[0])
        return 99;
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

static int unknown_option(const struct app_args *args, const char *name)
{
    const char *nearest = NULL;
    size_t best = 4; /* farther than this is no typing error */
    struct di_option_info info;
    for (size_t i = 0; di_option_at(i, &info); i++) {
        if (distance(name, info.name) < best) {
            best = distance(name, info.name);
            nearest = info.name;
        }
    }
    for (int i = 0; args->own[i].name != NULL; i++) {
        if (distance(name, args->own[i].name) < best) {
            best = distance(name, args->own[i].name);
            nearest = args->own[i].name;
        }
    }
    if (nearest != NULL)
        return app_usage(args, "unknown option --%s; did you mean --%s?", name, nearest);
    return app_usage(args, "unknown option --%s; see deepinfer help %s", name, args->command);
}

/* One "--name" at argv[*at]; moves *at over a separate value. */
static int parse_option(struct app_args *args, int argc, char **argv, int *at)
{
    struct di_error err = {0};
    char name[64];
    const char *text = argv[*at] + 2, *equals = strchr(text, '='), *value = equals != NULL ? equals + 1 : NULL;
    size_t len = equals != NULL ? (size_t)(equals - text) : strlen(text);
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), text);
    int own = own_index(args, text, len);
    if (own < 0 && di_options_get(args->engine, name) == NULL)
        return unknown_option(args, name);
    if (own >= 0 && args->own[own].value == NULL) {
        if (value != NULL)
            return app_usage(args, "option --%s takes no value", name);
        args->values[own] = "";
        return APP_OK;
    }
    if (value == NULL) {
        if (*at + 1 >= argc)
            return app_usage(args, "option --%s needs a value", name);
        value = argv[++*at];
    }
    if (own >= 0) {
        args->values[own] = value;
        return APP_OK;
    }
    if (di_options_set(args->engine, name, value, &err) != DI_OK)
        return app_error(args, APP_USAGE, &err);
    return APP_OK;
}

int app_parse(struct app_args *args, int argc, char **argv)
{
    struct di_error err = {0};
    for (int i = 0; i < argc; i++) /* errors of the options themselves come in the form asked for */
        if (strcmp(argv[i], "--json") == 0 && own_index(args, "json", 4) >= 0)
            args->values[own_index(args, "json", 4)] = "";
    if (di_options_create(&args->engine, &err) != DI_OK)
        return app_error(args, APP_USAGE, &err);
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == '\0')
            return app_usage(args, "unexpected argument \"%s\"", argv[i]);
        int code = parse_option(args, argc, argv, &i);
        if (code != APP_OK)
            return code;
    }
    return APP_OK;
}

void app_help(const char *usage, const struct app_option *own)
{
    struct di_option_info info;
    printf("usage: deepinfer %s\n\n", usage);
    for (int i = 0; own[i].name != NULL; i++)
        printf("  --%s%s%s\n      %s\n", own[i].name, own[i].value != NULL ? " " : "",
               own[i].value != NULL ? own[i].value : "", own[i].help);
    printf("\noptions of the engine:\n");
    for (size_t i = 0; di_option_at(i, &info); i++)
        printf("  --%s %s\n      %s Default: %s.%s%s%s\n", info.name, info.values, info.help, info.default_value,
               info.env != NULL ? " Variable: " : "", info.env != NULL ? info.env : "", info.env != NULL ? "." : "");
}

static bool wants_json(const struct app_args *args)
{
    return args->own != NULL && own_index(args, "json", 4) >= 0 && app_has(args, "json");
}

int app_error(const struct app_args *args, int code, const struct di_error *err)
{
    if (!wants_json(args)) {
        fprintf(stderr, "deepinfer: error: %s\n", err->message);
        return code;
    }
    json_t *root = json_pack("{s:{s:s,s:s}}", "error", "code", di_status_name(err->code), "message", err->message);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL; /* NULL: the message is not UTF-8 */
    fprintf(stderr, "%s\n", text != NULL ? text : "{\"error\":{\"code\":\"DI_ERR_INTERNAL\",\"message\":\"\"}}");
    free(text);
    json_decref(root);
    return code;
}

int app_usage(const struct app_args *args, const char *fmt, ...)
{
    struct di_error err = {.code = DI_ERR_INVALID};
    va_list list;
    va_start(list, fmt);
    vsnprintf(err.message, sizeof err.message, fmt, list);
    va_end(list);
    return app_error(args, APP_USAGE, &err);
}

int app_open_code(const struct di_error *err)
{
    switch (err->code) {
    case DI_ERR_NOT_FOUND:
    case DI_ERR_FORMAT:
    case DI_ERR_UNSUPPORTED:
    case DI_ERR_IO:
        return APP_NO_MODEL;
    case DI_ERR_RANGE:
    case DI_ERR_INVALID:
        /* An option that the model does not allow, or a value in its files: the message says which. */
        return strncmp(err->message, "option ", 7) == 0 ? APP_USAGE : APP_NO_MODEL;
    default:
        return APP_FAILED;
    }
}

int app_int(const struct app_args *args, const char *name, int64_t low, int64_t high, int64_t fallback, int64_t *out)
{
    const char *text = app_value(args, name);
    char *end;
    *out = fallback;
    if (text == NULL)
        return APP_OK;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (text[0] == '\0' || strchr(" \t+", text[0]) != NULL || *end != '\0' || errno != 0 || value < low || value > high)
        return app_usage(args, "option --%s: \"%s\" is not a whole number in %lld..%lld", name, text, (long long)low,
                         (long long)high);
    *out = value;
    return APP_OK;
}

int app_u64(const struct app_args *args, const char *name, uint64_t *out)
{
    const char *text = app_value(args, name);
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return app_usage(args, "option --%s: \"%s\" is not a whole number in 0..18446744073709551615", name, text);
    return APP_OK;
}

int app_real(const struct app_args *args, const char *name, double fallback, double *out)
{
    const char *text = app_value(args, name);
    char *end;
    *out = fallback;
    if (text == NULL)
        return APP_OK;
    *out = strtod(text, &end);
    if (text[0] == '\0' || strchr(" \t+", text[0]) != NULL || *end != '\0' || !isfinite(*out))
        return app_usage(args, "option --%s: \"%s\" is not a finite number", name, text);
    return APP_OK;
}

int app_read_file(const struct app_args *args, const char *path, char **data, size_t *size)
{
    struct di_error err = {.code = DI_ERR_IO};
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    size_t capacity = 0;
    *data = NULL;
    *size = 0;
    if (file == NULL) {
        snprintf(err.message, sizeof err.message, "%s: %s", path, strerror(errno));
        return app_error(args, APP_USAGE, &err);
    }
    bool failed = false;
    for (;;) {
        if (*size + 1 >= capacity) {
            capacity = capacity == 0 ? 65536 : 2 * capacity;
            char *grown = realloc(*data, capacity);
            if (grown == NULL) {
                failed = true;
                errno = ENOMEM;
                break;
            }
            *data = grown;
        }
        size_t got = fread(*data + *size, 1, capacity - *size - 1, file);
        *size += got;
        if (got == 0 || feof(file) != 0 || ferror(file) != 0)
            break;
    }
    failed = failed || ferror(file) != 0;
    int code = errno;
    if (!is_stdin)
        fclose(file);
    if (failed) {
        free(*data);
        *data = NULL;
        snprintf(err.message, sizeof err.message, "%s: %s", path, strerror(code));
        return app_error(args, APP_USAGE, &err);
    }
    (*data)[*size] = '\0';
    return APP_OK;
}

int app_read_ids(const struct app_args *args, const char *path, di_token_list *ids)
{
    char *text;
    size_t size, index;
    json_error_t where;
    struct di_error err = {0};
    json_t *item;
    int code = app_read_file(args, path, &text, &size);
    if (code != APP_OK)
        return code;
    json_t *list = json_loadb(text, size, 0, &where);
    free(text);
    if (list == NULL)
        return app_usage(args, "%s: not valid JSON: line %d, column %d: %s", path, where.line, where.column,
                         where.text);
    if (!json_is_array(list))
        code = app_usage(args, "%s: must be a JSON list of token ids", path);
    for (index = 0; code == APP_OK && index < json_array_size(list); index++) {
        item = json_array_get(list, index);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < INT32_MIN || id > INT32_MAX)
            code = app_usage(args, "%s: the item at index %zu is not a token id", path, index);
        else if (di_token_list_push(ids, (int32_t)id, &err) != DI_OK)
            code = app_error(args, APP_FAILED, &err);
    }
    json_decref(list);
    return code;
}

int app_finish_stdout(const struct app_args *args, int code)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return code;
    struct di_error err = {.code = DI_ERR_IO};
    snprintf(err.message, sizeof err.message, "standard output cannot be written: %s", strerror(errno));
    app_error(args, APP_FAILED, &err);
    return code == APP_OK ? APP_FAILED : code;
}
