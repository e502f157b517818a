/* base/options.h - the library's view of options, and the only place that reads the environment. */
#ifndef DI_BASE_OPTIONS_H
#define DI_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "deepinfer/options.h"

/* Values in force. Names must exist: an unknown one gives NULL, 0 or false. */
const char *di_options_text(const di_options *options, const char *name);
int64_t di_options_int(const di_options *options, const char *name);
bool di_options_is(const di_options *options, const char *name, const char *value);

/* A variable of the environment; NULL where unset or empty. */
const char *di_env(const char *name);

#endif
