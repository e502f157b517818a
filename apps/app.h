/* apps/app.h - what the commands of `deepinfer` share: arguments, errors, exit codes. docs/cli.md is the manual. */
#ifndef APP_H
#define APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deepinfer/deepinfer.h"

enum app_exit {
    APP_OK = 0,
    APP_FAILED = 1,       /* it failed while running */
    APP_USAGE = 2,        /* an option or argument is wrong */
    APP_NO_MODEL = 3,     /* the model is not there, or its files are malformed */
    APP_INTERRUPTED = 130 /* SIGINT */
};

/* An option that a command has besides the engine's. */
struct app_option {
    const char *name;  /* without the dashes */
    const char *value; /* name of its value in the help, NULL for a switch */
    const char *help;
};

struct app_args {
    const char *command;
    const struct app_option *own; /* ended by a NULL name */
    const char *values[32];       /* per own option: its value, "" for a switch given, NULL if absent */
    di_options *engine;
};

/* Reads argv behind the command's name: own options, and every option of the engine as --name VALUE or --name=VALUE.
 * On failure the message is printed and an exit code returned; APP_OK otherwise. Free args->engine afterwards. */
int app_parse(struct app_args *args, int argc, char **argv);
const char *app_value(const struct app_args *args, const char *name); /* NULL if absent */
bool app_has(const struct app_args *args, const char *name);

/* Prints the help of a command: its usage line, own options, and the engine's. */
void app_help(const char *usage, const struct app_option *own);

/* "deepinfer: error: ..." on stderr, or with --json one JSON object. Returns `code`. */
int app_error(const struct app_args *args, int code, const struct di_error *err);
int app_usage(const struct app_args *args, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The exit code of a failure while a model was being opened. */
int app_open_code(const struct di_error *err);

/* Strict numbers: the whole text, finite, in range; the message names the option. */
int app_int(const struct app_args *args, const char *name, int64_t low, int64_t high, int64_t fallback, int64_t *out);
int app_u64(const struct app_args *args, const char *name, uint64_t *out);
int app_real(const struct app_args *args, const char *name, double fallback, double *out);

/* A file's bytes, "-" for standard input; zero-terminated, from malloc. */
int app_read_file(const struct app_args *args, const char *path, char **data, size_t *size);
/* A JSON list of token ids. */
int app_read_ids(const struct app_args *args, const char *path, di_token_list *ids);

/* Flushes stdout; a full disk or a closed pipe is APP_FAILED, with a message. */
int app_finish_stdout(const struct app_args *args, int code);

int cmd_run(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_options(int argc, char **argv);

#endif
