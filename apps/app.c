#include "app.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int stdout_errno; /* of the first app_write() or app_print() that failed */

/* ---- errors ---- */

void app_make_utf8(char *text)
{
    while (*text != '\0') {
        size_t len = 0, left = strlen(text);
        for (size_t n = 1; n <= 4 && n <= left && len == 0; n++) {
            json_t *character = json_stringn(text, n); /* NULL unless it is UTF-8 */
            len = character != NULL ? n : 0;
            json_decref(character);
        }
        if (len == 0) {
            *text = '?';
            len = 1;
        }
        text += len;
    }
}

int app_error(const struct app_args *args, int code, const struct di_error *err)
{
    char message[DI_ERROR_MESSAGE_SIZE];
    if (args == NULL || !args->json_errors) {
        fprintf(stderr, "deepinfer: error: %s\n", err->message);
        return code;
    }
    snprintf(message, sizeof message, "%s", err->message);
    app_make_utf8(message);
    json_t *root = json_pack("{s:{s:s,s:s}}", "error", "code", di_status_name(err->code), "message", message);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    fprintf(stderr, "%s\n", text != NULL ? text : "{\"error\":{\"code\":\"DI_ERR_NOMEM\",\"message\":\"\"}}");
    free(text);
    json_decref(root);
    return code;
}

int app_fail(const struct app_args *args, int code, di_status status, const char *fmt, ...)
{
    struct di_error err = {.code = status};
    va_list list;
    va_start(list, fmt);
    vsnprintf(err.message, sizeof err.message, fmt, list);
    va_end(list);
    return app_error(args, code, &err);
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

int app_input_code(const struct di_error *err)
{
    switch (err->code) {
    case DI_ERR_INVALID:
    case DI_ERR_RANGE:
    case DI_ERR_LIMIT:
    case DI_ERR_NOT_FOUND:
    case DI_ERR_FORMAT:
        return APP_USAGE;
    default:
        return APP_FAILED;
    }
}

/* ---- files ---- */

/* Reads to the end. NULL on failure, with errno. */
static char *read_all(FILE *file, size_t *size)
{
    char *data = NULL;
    size_t capacity = 0;
    *size = 0;
    errno = 0;
    do {
        if (*size + 1 >= capacity) {
            capacity = capacity == 0 ? 65536 : 2 * capacity;
            char *grown = realloc(data, capacity);
            if (grown == NULL) {
                free(data);
                errno = ENOMEM;
                return NULL;
            }
            data = grown;
        }
        *size += fread(data + *size, 1, capacity - *size - 1, file);
    } while (feof(file) == 0 && ferror(file) == 0);
    if (ferror(file) != 0) {
        int code = errno;
        free(data);
        errno = code;
        return NULL;
    }
    data[*size] = '\0';
    return data;
}

int app_read_file(const struct app_args *args, const char *path, char **data, size_t *size)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    *data = file != NULL ? read_all(file, size) : NULL;
    int code = errno;
    if (file != NULL && !is_stdin)
        fclose(file);
    if (*data != NULL)
        return APP_OK;
    di_status status = code == ENOENT ? DI_ERR_NOT_FOUND : code == ENOMEM ? DI_ERR_NOMEM : DI_ERR_IO;
    return app_fail(args, code == ENOMEM ? APP_FAILED : APP_USAGE, status, "%s: %s", is_stdin ? "standard input" : path,
                    strerror(code));
}

int app_read_ids(const struct app_args *args, const char *path, di_token_list *ids)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t where;
    struct di_error err = {0};
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
    else if (json_array_size(list) == 0)
        code = app_usage(args, "%s: the list of token ids is empty", path);
    for (size_t index = 0; code == APP_OK && index < json_array_size(list); index++) {
        const json_t *item = json_array_get(list, index);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item))
            code = app_usage(args, "%s: the item at index %zu is not a token id", path, index);
        else if (id < 0 || id > INT32_MAX)
            code = app_fail(args, APP_USAGE, DI_ERR_RANGE, "%s: %lld at index %zu is not a token id", path,
                            (long long)id, index);
        else if (di_token_list_push(ids, (int32_t)id, &err) != DI_OK)
            code = app_error(args, APP_FAILED, &err);
    }
    json_decref(list);
    return code;
}

int app_check_ids(const struct app_args *args, const char *path, const di_token_list *ids, int32_t vocab_size)
{
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] < 0 || ids->ids[i] >= vocab_size)
            return app_fail(args, APP_USAGE, DI_ERR_RANGE,
                            "%s: token id %d at index %zu is outside the vocabulary of %d", path, ids->ids[i], i,
                            vocab_size);
    return APP_OK;
}

di_status app_encode(const di_engine *engine, const char *text, size_t len, bool bos, di_token_list *ids,
                     struct di_error *err)
{
    size_t before = ids->count;
    int32_t id = di_engine_bos_token_id(engine);
    di_status status = di_tokenizer_encode(di_engine_tokenizer(engine), text, len, true, ids, err);
    if (status != DI_OK || id < 0 || !bos || (ids->count > before && ids->ids[before] == id))
        return status;
    status = di_token_list_push(ids, id, err);
    if (status != DI_OK)
        return status;
    memmove(ids->ids + before + 1, ids->ids + before, (ids->count - before - 1) * sizeof *ids->ids);
    ids->ids[before] = id;
    return DI_OK;
}

/* ---- interrupts ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void app_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
}

bool app_interrupted(void)
{
    return interrupted != 0;
}

/* ---- standard output ---- */

bool app_write(const char *text, size_t len)
{
    errno = 0;
    if (fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0)
        return true;
    if (stdout_errno == 0)
        stdout_errno = errno;
    return false;
}

void app_print(const char *fmt, ...)
{
    va_list list;
    errno = 0;
    va_start(list, fmt);
    if (vprintf(fmt, list) < 0 && stdout_errno == 0)
        stdout_errno = errno;
    va_end(list);
}

int app_finish_stdout(const struct app_args *args, int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return code;
    int reason = stdout_errno != 0 ? stdout_errno : errno; /* 0: an earlier printf failed and this flush did not */
    app_fail(args, APP_FAILED, DI_ERR_IO, "standard output cannot be written%s%s", reason != 0 ? ": " : "",
             reason != 0 ? strerror(reason) : "");
    return code == APP_OK ? APP_FAILED : code;
}
