/* apps/app.h - what the commands of `deepinfer` share: exit codes, errors, files. docs/cli.md is the manual. */
#ifndef APP_H
#define APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "args.h"
#include "deepinfer/deepinfer.h"

enum app_exit {
    APP_OK = 0,
    APP_FAILED = 1,       /* it failed while running */
    APP_USAGE = 2,        /* an option or argument is wrong */
    APP_NO_MODEL = 3,     /* the model is not there, or its files are malformed */
    APP_SOME_FAILED = 4,  /* everything was answered, some of it with errors */
    APP_INTERRUPTED = 130 /* SIGINT */
};

/* "deepinfer: error: ..." on stderr, or one JSON object where args asks for it. Returns `code`. args may be NULL. */
int app_error(const struct app_args *args, int code, const struct di_error *err);
int app_fail(const struct app_args *args, int code, di_status status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Messages hold what the user typed, and may be cut within a character: bytes that are not UTF-8 become "?". */
void app_make_utf8(char *text);
/* An option or argument that makes no sense. */
int app_usage(const struct app_args *args, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The exit code of a failure while a model was being opened, and of one that its input may have caused. */
int app_open_code(const struct di_error *err);
int app_input_code(const struct di_error *err);

/* A file's bytes, "-" for standard input; zero-terminated, from malloc; NULL on failure. */
int app_read_file(const struct app_args *args, const char *path, char **data, size_t *size);
/* A JSON list of token ids: at least one. */
int app_read_ids(const struct app_args *args, const char *path, di_token_list *ids);
/* That they are tokens of the model; names the file and the index. */
int app_check_ids(const struct app_args *args, const char *path, const di_token_list *ids, int32_t vocab_size);

/* Text as ids; with bos, the beginning-of-sequence token comes first unless it is there. */
di_status app_encode(const di_engine *engine, const char *text, size_t len, bool bos, di_token_list *ids,
                     struct di_error *err);

/* From here on the first SIGINT is only noted, a second one ends the process. A write that waits for its reader goes on waiting
 * (SA_RESTART), so that nothing is lost. */
void app_catch_interrupt(void);
bool app_interrupted(void);

/* Writes to standard output at once. False if that failed; app_finish_stdout() then says why. */
bool app_write(const char *text, size_t len);
/* printf whose failure app_finish_stdout() can explain, however much was printed before. */
void app_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Flushes standard output; a full disk or a closed pipe is APP_FAILED, with a message. Else `code`. */
int app_finish_stdout(const struct app_args *args, int code);

int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_options(int argc, char **argv);

#endif
