/* apps/args.h - arguments of one command: its own options by a table, and every option of the engine.
 *
 * Options are --name VALUE or --name=VALUE; where one is given twice the last wins, unless the command asks for all; --help anywhere prints the help. A wrong
 * one is reported with its name, an unknown one with the nearest that exists.
 */
#ifndef ARGS_H
#define ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "deepinfer/deepinfer.h"

enum { ARGS_MAX_OWN = 48 };

/* An option that a command has besides the engine's. */
struct app_option {
    const char *name;  /* without the dashes */
    const char *value; /* name of its value in the help, NULL for a switch */
    const char *help;
};

struct args_given {
    int own; /* index of the option */
    const char *value;
};

struct app_args {
    const char *command;
    const char *usage;                /* "run [--model MODEL] ...", for the help */
    const struct app_option *own;     /* at most ARGS_MAX_OWN, ended by a NULL name */
    bool no_engine;                   /* the command opens no model and takes none of its options */
    const char *values[ARGS_MAX_OWN]; /* per own option: its value, "" for a switch given, NULL if absent */
    struct args_given *given;         /* every own option as it came */
    int n_given;
    bool json_errors;   /* errors are JSON objects */
    di_options *engine; /* NULL with no_engine */
};

/* Reads argv behind the command's name. False where the command is over: the help or an error has been printed and *code
 * is the exit code. Call args_free() in either case. */
bool args_parse(struct app_args *args, int argc, char **argv, int *code);
void args_free(struct app_args *args);

const char *args_value(const struct app_args *args, const char *name); /* NULL if absent */
/* The values of an option that may be given several times, in order; *at begins with 0; NULL behind the last. */
const char *args_next(const struct app_args *args, const char *name, int *at);
bool args_has(const struct app_args *args, const char *name);

/* Strict numbers: the whole text, finite, in range; otherwise an exit code, and a message that names the option. An absent
 * option leaves *out as it is. */
int args_int(const struct app_args *args, const char *name, int64_t low, int64_t high, int64_t *out);
int args_u64(const struct app_args *args, const char *name, uint64_t *out);
int args_real(const struct app_args *args, const char *name, double low, double *out);
/* on|off */
int args_on_off(const struct app_args *args, const char *name, bool *out);

/* The nearest of the names offered one by one to a name that does not exist; NULL while none is near enough. */
struct args_nearest {
    const char *wanted, *name;
    size_t distance;
};
void args_offer(struct args_nearest *nearest, const char *candidate);

#endif
