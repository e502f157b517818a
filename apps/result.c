#include "result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool app_result_open(struct app_result *result, int32_t n)
{
    *result = (struct app_result){.n = n, .n_open = n, .choices = calloc((size_t)n, sizeof *result->choices)};
    for (int32_t i = 0; result->choices != NULL && i < n; i++)
        result->choices[i].stop_token = -1;
    return result->choices != NULL;
}

void app_result_free(struct app_result *result)
{
    for (int32_t i = 0; result->choices != NULL && i < result->n; i++) {
        struct app_choice *choice = &result->choices[i];
        free(choice->text);
        free(choice->stop_string);
        di_token_list_free(&choice->ids);
        json_decref(choice->logprobs);
    }
    free(result->choices);
    json_decref(result->prompt_logprobs);
    *result = (struct app_result){0};
}

/* ---- gathering ---- */

static bool append_text(struct app_choice *choice, const char *text, size_t len)
{
    if (choice->len + len + 1 > choice->capacity) {
        size_t capacity = 2 * (choice->len + len + 1);
        char *grown = realloc(choice->text, capacity);
        if (grown == NULL)
            return false;
        choice->text = grown;
        choice->capacity = capacity;
    }
    memcpy(choice->text + choice->len, text, len);
    choice->len += len;
    choice->text[choice->len] = '\0';
    return true;
}

/* A token's bytes; what is no UTF-8 in them comes out as U+FFFD. */
static json_t *token_text(const di_tokenizer *tokenizer, int32_t id)
{
    char text[1024]; /* tokens are shorter; a longer one is cut */
    size_t len, at = 0, out = 0;
    const char *bytes = di_tokenizer_token_bytes(tokenizer, id, &len);
    if (bytes == NULL)
        return json_null();
    json_t *whole = json_stringn(bytes, len);
    if (whole != NULL)
        return whole;
    while (at < len && out + 4 <= sizeof text) {
        size_t n = 0;
        for (size_t k = 1; k <= 4 && at + k <= len && n == 0; k++) {
            json_t *character = json_stringn(bytes + at, k); /* NULL unless it is UTF-8 */
            n = character != NULL ? k : 0;
            json_decref(character);
        }
        memcpy(text + out, n > 0 ? bytes + at : "\xef\xbf\xbd", n > 0 ? n : 3);
        out += n > 0 ? n : 3;
        at += n > 0 ? n : 1;
    }
    return json_stringn(text, out);
}

/* JSON has no infinity: null. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *logprob_json(const di_tokenizer *tokenizer, const struct di_token_logprob *entry)
{
    json_t *top = json_array();
    for (int32_t i = 0; i < entry->n_top; i++) {
        json_t *item = json_pack("{s:i, s:o, s:o}", "token_id", entry->top_ids[i], "token",
                                 token_text(tokenizer, entry->top_ids[i]), "logprob",
                                 real((double)entry->top_logprobs[i]));
        if (json_array_append_new(top, item) != 0) {
            json_decref(top);
            return NULL;
        }
    }
    return json_pack("{s:i, s:o, s:o, s:i, s:o}", "token_id", entry->id, "token", token_text(tokenizer, entry->id),
                     "logprob", real((double)entry->logprob), "rank", entry->rank, "top_logprobs", top);
}

/* Appends to *list, which is made if need be. */
static bool append_logprobs(json_t **list, const di_tokenizer *tokenizer, const struct di_token_logprob *entries,
                            size_t n)
{
    if (*list == NULL)
        *list = json_array();
    for (size_t i = 0; i < n; i++) {
        bool none = isnan(entries[i].logprob); /* of the first token of a prompt */
        if (json_array_append_new(*list, none ? json_null() : logprob_json(tokenizer, &entries[i])) != 0)
            return false;
    }
    return *list != NULL;
}

static void finish_choice(struct app_result *result, struct app_choice *choice, const struct di_event *event)
{
    double prefill = event->first_seconds - event->queued_seconds, decode = event->total_seconds - event->first_seconds;
    choice->finish_reason = event->finish_reason;
    choice->stop_token = event->stop_token;
    if (result->n_open == result->n || prefill < result->prefill_seconds)
        result->prefill_seconds = prefill;
    if (decode > result->decode_seconds)
        result->decode_seconds = decode;
    result->n_output += event->n_output;
    result->n_prompt = event->n_prompt;
    if (event->choice == 0)
        result->n_cached = event->n_cached;
    if (event->error.code != DI_OK && result->error.code == DI_OK)
        result->error = event->error;
    result->n_open--;
}

bool app_result_add(struct app_result *result, const di_tokenizer *tokenizer, const struct di_event *event)
{
    struct app_choice *choice = &result->choices[event->choice];
    bool whole = append_text(choice, event->text, event->text_len);
    for (size_t i = 0; i < event->n_tokens && whole; i++)
        whole = di_token_list_push(&choice->ids, event->token_ids[i], NULL) == DI_OK;
    if (event->logprobs != NULL)
        whole = append_logprobs(&choice->logprobs, tokenizer, event->logprobs, event->n_tokens) && whole;
    if (event->prompt_logprobs != NULL)
        whole = append_logprobs(&result->prompt_logprobs, tokenizer, event->prompt_logprobs,
                                event->n_prompt_logprobs) &&
                whole;
    result->seed = event->seed;
    if (event->kind != DI_EVENT_FINISHED)
        return whole;
    finish_choice(result, choice, event);
    if (event->stop_string != NULL) {
        choice->stop_string = strdup(event->stop_string);
        whole = whole && choice->stop_string != NULL;
    }
    return whole;
}

/* ---- JSON ---- */

json_t *app_id_list(const int32_t *ids, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        if (json_array_append_new(list, json_integer(ids[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *stop_reason(const struct app_choice *choice)
{
    if (choice->stop_string != NULL)
        return json_string(choice->stop_string);
    return choice->stop_token >= 0 ? json_integer(choice->stop_token) : json_null();
}

static bool add_choice(json_t *object, const struct app_choice *choice)
{
    json_t *text = json_stringn(choice->text != NULL ? choice->text : "", choice->len);
    bool whole = json_object_set_new(object, "text", text) == 0;
    whole = json_object_set_new(object, "token_ids", app_id_list(choice->ids.ids, choice->ids.count)) == 0 && whole;
    whole = json_object_set_new(object, "finish_reason", json_string(choice->finish_reason)) == 0 && whole;
    whole = json_object_set_new(object, "stop_reason", stop_reason(choice)) == 0 && whole;
    if (choice->logprobs != NULL)
        whole = json_object_set(object, "logprobs", choice->logprobs) == 0 && whole;
    return whole;
}

static json_t *choice_list(const struct app_result *result)
{
    json_t *list = json_array();
    bool whole = true;
    for (int32_t i = 0; i < result->n && whole; i++) {
        json_t *object = json_pack("{s:i}", "index", i);
        whole = object != NULL && add_choice(object, &result->choices[i]);
        whole = json_array_append_new(list, object) == 0 && whole;
    }
    if (whole)
        return list;
    json_decref(list);
    return NULL;
}

json_t *app_result_json(const struct app_result *result, json_t *id, const char *identity)
{
    char seed[24]; /* a JSON number cannot hold every 64-bit seed for every reader */
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)result->seed);
    json_t *object = json_object();
    json_t *usage = json_pack("{s:I, s:I}", "prompt_tokens", (json_int_t)result->n_prompt, "completion_tokens",
                              (json_int_t)result->n_output);
    bool whole = id == NULL || json_object_set(object, "id", id) == 0;
    if (result->n == 1)
        whole = add_choice(object, &result->choices[0]) && whole;
    else
        whole = json_object_set_new(object, "choices", choice_list(result)) == 0 && whole;
    if (result->prompt_logprobs != NULL)
        whole = json_object_set(object, "prompt_logprobs", result->prompt_logprobs) == 0 && whole;
    whole = json_object_set_new(object, "usage", usage) == 0 && whole;
    whole = json_object_set_new(object, "seed", json_string(seed)) == 0 && whole;
    whole = json_object_set_new(object, "identity", json_string(identity)) == 0 && whole;
    if (whole)
        return object;
    json_decref(object);
    return NULL;
}

char *app_json_line(json_t *object, size_t *len)
{
    /* 9 digits hold a 32-bit float */
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (text == NULL)
        return NULL;
    *len = strlen(text);
    text[(*len)++] = '\n'; /* over the zero: lines are written by length */
    return text;
}
