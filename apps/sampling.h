/* apps/sampling.h - sampling parameters, from options and from JSON, by one table.
 *
 * An option has the parameter's name with dashes: --top-p is top_p. Which of them a command takes is said by its own options; those
 * that it does not list are never there.
 *
 *     app_sampling_read      the options of the command line
 *     app_sampling_set       one key of a JSON object
 *     app_sampling_check     all together, once the vocabulary is known; names the option
 */
#ifndef SAMPLING_H
#define SAMPLING_H

#include <jansson.h>

#include "app.h"

enum { APP_SAMPLING_LISTS = 5 };

/* Zero-initialise. A plain copy of it without `memory` shares its lists. */
struct app_sampling {
    struct di_sampling_params params;
    void *memory
        [APP_SAMPLING_LISTS]; /* lists of params that are this struct's own; strings belong to whoever gave them */
    uint64_t keys;            /* by rows of the table: those that JSON has set */
};

/* Defaults, then the options. Returns an exit code, with the error printed. */
int app_sampling_read(const struct app_args *args, struct app_sampling *sampling);

/* Everything that can be wrong. vocab_size as in di_sampling_validate(). Returns an exit code. */
int app_sampling_check(const struct app_args *args, const struct di_sampling_params *params, int32_t vocab_size);

/* Sets the parameter of a JSON key; null leaves it as it is. *known: false if there is no such parameter. `value` has to stay as long as
 * the parameters are used. */
di_status app_sampling_set(struct app_sampling *sampling, const char *key, json_t *value, bool *known,
                           struct di_error *err);

/* Offers every JSON key to the search for a similar one. */
void app_sampling_offer(struct args_nearest *nearest);

void app_sampling_free(struct app_sampling *sampling);

#endif
