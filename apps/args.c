#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

static int own_index(const struct app_args *args, const char *name, size_t len)
{
    for (int i = 0; args->own[i].name != NULL && i < ARGS_MAX_OWN; i++)
        if (strlen(args->own[i].name) == len && strncmp(args->own[i].name, name, len) == 0)
            return i;
    return -1;
}

const char *args_value(const struct app_args *args, const char *name)
{
    int own = own_index(args, name, strlen(name));
    return own >= 0 ? args->values[own] : NULL;
}

const char *args_next(const struct app_args *args, const char *name, int *at)
{
    int own = own_index(args, name, strlen(name));
    while (*at < args->n_given) {
        const struct args_given *given = &args->given[(*at)++];
        if (given->own == own)
            return given->value;
    }
    return NULL;
}

bool args_has(const struct app_args *args, const char *name)
{
    return args_value(args, name) != NULL;
}

/* ---- names that do not exist ---- */

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

void args_offer(struct args_nearest *nearest, const char *candidate)
{
    size_t len = strlen(nearest->wanted), limit = len / 3 < 3 ? len / 3 : 3; /* more is no typing error */
    bool begins = len >= 3 && strncmp(candidate, nearest->wanted, len) == 0; /* --temp for --temperature */
    size_t distance = begins ? 1 : edits(nearest->wanted, candidate);
    if (distance <= limit && (nearest->name == NULL || distance < nearest->distance)) {
        nearest->name = candidate;
        nearest->distance = distance;
    }
}

static int unknown_option(const struct app_args *args, const char *name)
{
    struct args_nearest nearest = {.wanted = name};
    struct di_option_info info;
    for (int i = 0; args->own[i].name != NULL; i++)
        args_offer(&nearest, args->own[i].name);
    for (size_t i = 0; !args->no_engine && di_option_at(i, &info); i++)
        args_offer(&nearest, info.name);
    if (nearest.name != NULL)
        return app_usage(args, "unknown option --%s; did you mean --%s?", name, nearest.name);
    return app_usage(args, "unknown option --%s; see deepinfer help %s", name, args->command);
}

/* ---- parsing ---- */

static void keep_own(struct app_args *args, int own, const char *value)
{
    args->values[own] = value;
    args->given[args->n_given++] = (struct args_given){own, value};
}

/* One "--name" at argv[*at]; moves *at over a separate value. */
static int parse_option(struct app_args *args, int argc, char **argv, int *at)
{
    struct di_error err = {0};
    char name[64];
    const char *text = argv[*at] + 2, *equals = strchr(text, '='), *value = equals != NULL ? equals + 1 : NULL;
    size_t len = equals != NULL ? (size_t)(equals - text) : strlen(text);
    int own = own_index(args, text, len);
    snprintf(name, sizeof name, "%.*s", (int)(len < sizeof name ? len : sizeof name - 1), text);
    if (own < 0 && (args->no_engine || di_options_get(args->engine, name) == NULL))
        return unknown_option(args, name);
    if (own >= 0 && args->own[own].value == NULL) {
        if (value != NULL)
            return app_usage(args, "option --%s takes no value", name);
        keep_own(args, own, "");
        return APP_OK;
    }
    if (value == NULL) {
        if (*at + 1 >= argc)
            return app_usage(args, "option --%s needs a value", name);
        value = argv[++*at];
    }
    if (own >= 0)
        keep_own(args, own, value);
    else if (di_options_set(args->engine, name, value, &err) != DI_OK)
        return app_error(args, APP_USAGE, &err);
    return APP_OK;
}

static void print_help(const struct app_args *args)
{
    struct di_option_info info;
    app_print("usage: deepinfer %s\n", args->usage);
    for (int i = 0; args->own[i].name != NULL; i++)
        app_print("%s  --%s%s%s\n      %s\n", i == 0 ? "\n" : "", args->own[i].name,
                  args->own[i].value != NULL ? " " : "", args->own[i].value != NULL ? args->own[i].value : "",
                  args->own[i].help);
    if (args->no_engine)
        return;
    app_print("\noptions of the engine:\n");
    for (size_t i = 0; di_option_at(i, &info); i++)
        app_print("  --%s %s\n      %s Default: %s.%s%s%s\n", info.name, info.values, info.help, info.default_value,
                  info.env != NULL ? " Variable: " : "", info.env != NULL ? info.env : "", info.env != NULL ? "." : "");
}

/* False where parsing stops, with *code. */
static bool parse_all(struct app_args *args, int argc, char **argv, int *code)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(args);
            *code = app_finish_stdout(args, APP_OK);
            return false;
        }
        if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == '\0')
            *code = app_usage(args, "unexpected argument \"%s\"", argv[i]);
        else
            *code = parse_option(args, argc, argv, &i);
        if (*code != APP_OK)
            return false;
    }
    return true;
}

bool args_parse(struct app_args *args, int argc, char **argv, int *code)
{
    struct di_error err = {0};
    *code = APP_OK;
    /* An error in front of --json is to come as JSON too. Where "--json" proves to be some option's value, that is
     * taken back below. */
    for (int i = 0; i < argc && own_index(args, "json", 4) >= 0; i++)
        args->json_errors = args->json_errors || strcmp(argv[i], "--json") == 0;
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))
        return parse_all(args, 1, argv, code); /* before a bad variable can get in the way */
    if (!args->no_engine && di_options_create(&args->engine, &err) != DI_OK) {
        *code = app_error(args, APP_USAGE, &err);
        return false;
    }
    args->given = calloc((size_t)argc + 1, sizeof *args->given);
    if (args->given == NULL) {
        *code = app_fail(args, APP_FAILED, DI_ERR_NOMEM, "out of memory while reading the arguments");
        return false;
    }
    if (!parse_all(args, argc, argv, code))
        return false;
    args->json_errors = args_has(args, "json");
    return true;
}

void args_free(struct app_args *args)
{
    di_options_free(args->engine);
    free(args->given);
    args->engine = NULL;
    args->given = NULL;
}

/* ---- values ---- */

static bool begins_as_number(const char *text)
{
    text += *text == '-';
    return *text >= '0' && *text <= '9'; /* no space, sign, nan, inf: what strtol and strtod would also take */
}

int args_int(const struct app_args *args, const char *name, int64_t low, int64_t high, int64_t *out)
{
    const char *text = args_value(args, name);
    char *end;
    if (text == NULL)
        return APP_OK;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!begins_as_number(text) || *end != '\0' || errno != 0 || value < low || value > high)
        return app_usage(args, "option --%s: \"%s\" is not a whole number in %lld..%lld", name, text, (long long)low,
                         (long long)high);
    *out = value;
    return APP_OK;
}

int args_u64(const struct app_args *args, const char *name, uint64_t *out)
{
    const char *text = args_value(args, name);
    char *end;
    if (text == NULL)
        return APP_OK;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] == '-' || !begins_as_number(text) || *end != '\0' || errno != 0)
        return app_usage(args, "option --%s: \"%s\" is not a whole number in 0..18446744073709551615", name, text);
    *out = value;
    return APP_OK;
}

int args_real(const struct app_args *args, const char *name, double low, double *out)
{
    const char *text = args_value(args, name);
    char *end;
    if (text == NULL)
        return APP_OK;
    double value = strtod(text, &end);
    bool plain = strspn(text, "0123456789.eE+-") == strlen(text); /* nor hexadecimal */
    if ((!begins_as_number(text) && text[0] != '.') || !plain || end == text || *end != '\0' || !isfinite(value) ||
        value < low)
        return app_usage(args, "option --%s: \"%s\" is not a finite number of at least %g", name, text, low);
    *out = value;
    return APP_OK;
}

int args_on_off(const struct app_args *args, const char *name, bool *out)
{
    const char *text = args_value(args, name);
    if (text == NULL)
        return APP_OK;
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        return app_usage(args, "option --%s: \"%s\" is not one of on|off", name, text);
    *out = strcmp(text, "on") == 0;
    return APP_OK;
}
