/* deepinfer/options.h - settings of an engine, by name. Part of deepinfer/deepinfer.h.
 *
 * Each option is one row of a registry: its name (the command line says --name), its environment variable, its values and
 * its default. An explicit di_options_set() wins over the environment, the environment over the default. A value outside
 * the permitted ones is an error that names the option or variable; nothing is clamped.
 */
#ifndef DEEPINFER_OPTIONS_H
#define DEEPINFER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "deepinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_options di_options;

/* One row of the registry. All strings are static; `env` is NULL where no variable exists. */
struct di_option_info {
    const char *name;          /* "kv-quant" */
    const char *env;           /* "DEEPINFER_HF_MODEL_DIR" or NULL */
    const char *values;        /* "oracle|native" for a choice, "1..1024" for a number, "TEXT" for free text */
    const char *default_value; /* as text */
    const char *help;          /* one sentence */
};

DI_API size_t di_option_count(void);
/* False past the end. */
DI_API bool di_option_at(size_t index, struct di_option_info *out);

/* Defaults, then the environment. A bad variable is an error that names it. The caller frees *out. */
DI_API di_status di_options_create(di_options **out, struct di_error *err);
DI_API void di_options_free(di_options *options);

/* Sets one option from text; unknown names and bad values are errors. The text is copied. */
DI_API di_status di_options_set(di_options *options, const char *name, const char *value, struct di_error *err);

/* The value in force, as text; NULL for an unknown name. Owned by the options. */
DI_API const char *di_options_get(const di_options *options, const char *name);

#ifdef __cplusplus
}
#endif
#endif
