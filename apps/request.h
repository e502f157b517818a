/* apps/request.h - one line of `run --input`: a JSON object that is a request. docs/cli.md lists its keys. */
#ifndef REQUEST_H
#define REQUEST_H

#include "sampling.h"

/* Zero-initialise. */
struct app_request {
    json_t *root;
    json_t *id; /* of the object: a string or an integer; NULL if there is none */
    struct app_sampling sampling;
    int32_t priority;
    const char *text; /* the prompt, or NULL: `ids` then */
    size_t len;
    di_token_list ids;
};

/* Starts from `base`, whose lists are shared. On failure `id` is set all the same if it could be read. What is wrong with the parameters
 * together and with their values is left to di_submit(). */
di_status app_request_parse(const char *line, size_t len, const struct di_sampling_params *base,
                            struct app_request *request, struct di_error *err);
void app_request_free(struct app_request *request);

#endif
