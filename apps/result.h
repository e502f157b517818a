/* apps/result.h - the events of one request, gathered, then as JSON. docs/cli.md lists the keys. */
#ifndef RESULT_H
#define RESULT_H

#include <jansson.h>

#include "app.h"

struct app_choice {
    char *text;
    size_t len, capacity;
    di_token_list ids;
    json_t *logprobs; /* list, or NULL if none were asked for */
    const char *finish_reason;
    char *stop_string;
    int32_t stop_token;
};

struct app_result {
    int32_t n, n_open; /* choices; those that have not ended */
    struct app_choice *choices;
    json_t *prompt_logprobs;
    size_t n_prompt, n_output, n_cached;
    uint64_t seed;
    double prefill_seconds, decode_seconds; /* to the first token of all; from there to the last */
    struct di_error error;                  /* of the first choice that failed */
};

/* Both false if memory ran out. */
bool app_result_open(struct app_result *result, int32_t n);
bool app_result_add(struct app_result *result, const di_tokenizer *tokenizer, const struct di_event *event);

/* text, token_ids, finish_reason, stop_reason, logprobs: in the object itself, or as "choices" if there are several; prompt_logprobs,
 * usage, seed, identity. A new object; NULL if memory ran out. id: put first unless NULL; borrowed. */
json_t *app_result_json(const struct app_result *result, json_t *id, const char *identity);
void app_result_free(struct app_result *result);

/* A new list; NULL if memory ran out. */
json_t *app_id_list(const int32_t *ids, size_t count);
/* One line of text with its newline, from malloc; NULL if memory ran out. Takes the object. */
char *app_json_line(json_t *object, size_t *len);

#endif
