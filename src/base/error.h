/* base/error.h - how a function of this library fails.
 *
 * A function that can fail returns a di_status and takes, as its last parameter, a `struct di_error *` (may be NULL) that
 * it fills with a sentence for the user: what was wrong, naming the file, tensor, field or token at fault and the value
 * seen. The first failure wins; callers add context with DI_PREFIX() while they unwind ("model.safetensors: ...").
 * Nothing below apps/ exits, aborts or prints.
 *
 *     if (n > limit)
 *         return DI_FAIL(err, DI_ERR_RANGE, "token id %d at index %zu is outside the vocabulary of %d", id, i, vocab);
 */
#ifndef DI_BASE_ERROR_H
#define DI_BASE_ERROR_H

#include <stddef.h>

#include "deepinfer/status.h"

#if defined(__GNUC__)
#define DI_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
#else
#define DI_PRINTF(fmt_arg, first_arg)
#endif

/* Fills *err (if not NULL) and returns `status`. `file` is a string literal (__FILE__). */
di_status di_error_set(struct di_error *err, di_status status, const char *file, int line, const char *fmt, ...)
    DI_PRINTF(5, 6);

/* Evaluates to `status`; written so that a reader of one file (static analysers too) sees that. */
#define DI_FAIL(err, status, ...) ((void)di_error_set((err), (status), __FILE__, __LINE__, __VA_ARGS__), (status))

/* The one message of a failed allocation of `bytes`. */
#define DI_FAIL_NOMEM(err, bytes) \
    DI_FAIL((err), DI_ERR_NOMEM, "out of memory: %llu bytes could not be allocated", (unsigned long long)(bytes))

/* Puts "prefix: " in front of the message; evaluates to `status`. */
void di_error_prepend(struct di_error *err, const char *fmt, ...) DI_PRINTF(2, 3);
#define DI_PREFIX(err, status, ...) (di_error_prepend((err), __VA_ARGS__), (status))

/* Returns from the calling function when `expr` is not DI_OK. */
#define DI_TRY(expr)                      \
    do {                                  \
        di_status di_try_status = (expr); \
        if (di_try_status != DI_OK)       \
            return di_try_status;         \
    } while (0)

#endif
