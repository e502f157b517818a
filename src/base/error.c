#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *di_status_name(di_status status)
{
    static const char *const names[] = {
        [DI_OK] = "DI_OK",
        [DI_ERR_INVALID] = "DI_ERR_INVALID",
        [DI_ERR_RANGE] = "DI_ERR_RANGE",
        [DI_ERR_NOT_FOUND] = "DI_ERR_NOT_FOUND",
        [DI_ERR_IO] = "DI_ERR_IO",
        [DI_ERR_FORMAT] = "DI_ERR_FORMAT",
        [DI_ERR_UNSUPPORTED] = "DI_ERR_UNSUPPORTED",
        [DI_ERR_NOMEM] = "DI_ERR_NOMEM",
        [DI_ERR_LIMIT] = "DI_ERR_LIMIT",
        [DI_ERR_BACKEND] = "DI_ERR_BACKEND",
        [DI_ERR_INTERNAL] = "DI_ERR_INTERNAL",
        [DI_ERR_ABORTED] = "DI_ERR_ABORTED",
    };
    size_t index = (size_t)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "DI_ERR_UNKNOWN";
}

di_status di_error_set(struct di_error *err, di_status status, const char *file, int line, const char *fmt, ...)
{
    if (err == NULL)
        return status;
    err->code = status;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    return status;
}

void di_error_prepend(struct di_error *err, const char *fmt, ...)
{
    if (err == NULL)
        return;
    char joined[2 * DI_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, fmt);
    int used = vsnprintf(joined, sizeof joined / 2, fmt, args);
    va_end(args);
    if (used < 0)
        return;
    size_t at = (size_t)used < sizeof joined / 2 ? (size_t)used : sizeof joined / 2 - 1;
    snprintf(joined + at, sizeof joined - at, ": %s", err->message);
    memcpy(err->message, joined, sizeof err->message - 1);
    err->message[sizeof err->message - 1] = '\0';
}
