#include "request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static di_status fail(struct di_error *err, di_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static di_status fail(struct di_error *err, di_status code, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, list);
    va_end(list);
    err->code = code;
    return code;
}

static const char *const id_keys[] = {"id", "custom_id", "request_id"};
static const char *const own_keys[] = {"id",       "custom_id", "request_id", "prompt", "prompt_token_ids",
                                       "priority", "seq_seed"};

static bool is_id(const char *key)
{
    for (size_t i = 0; i < sizeof id_keys / sizeof id_keys[0]; i++)
        if (strcmp(id_keys[i], key) == 0)
            return true;
    return false;
}

static di_status read_id(struct app_request *r, struct di_error *err)
{
    const char *found = NULL;
    for (size_t i = 0; i < sizeof id_keys / sizeof id_keys[0]; i++) {
        json_t *id = json_object_get(r->root, id_keys[i]);
        if (id == NULL || json_is_null(id))
            continue;
        if (!json_is_string(id) && !json_is_integer(id))
            return fail(err, DI_ERR_INVALID, "%s must be a string or a whole number", id_keys[i]);
        if (found != NULL) {
            r->id = NULL;
            return fail(err, DI_ERR_INVALID, "%s and %s are two names of one thing", found, id_keys[i]);
        }
        found = id_keys[i];
        r->id = id;
    }
    return DI_OK;
}

static di_status unknown_key(const char *key, struct di_error *err)
{
    struct args_nearest nearest = {.wanted = key};
    for (size_t i = 0; i < sizeof own_keys / sizeof own_keys[0]; i++)
        args_offer(&nearest, own_keys[i]);
    app_sampling_offer(&nearest);
    if (nearest.name != NULL)
        return fail(err, DI_ERR_INVALID, "unknown key \"%.100s\"; did you mean \"%s\"?", key, nearest.name);
    return fail(err, DI_ERR_INVALID, "unknown key \"%.100s\"", key);
}

static di_status read_prompt_ids(struct app_request *r, const json_t *value, struct di_error *err)
{
    if (!json_is_array(value))
        return fail(err, DI_ERR_INVALID, "prompt_token_ids must be a list of token ids");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
            return fail(err, json_is_integer(item) ? DI_ERR_RANGE : DI_ERR_INVALID,
                        "prompt_token_ids[%zu] is not a token id", i);
        if (di_token_list_push(&r->ids, (int32_t)id, err) != DI_OK)
            return err->code;
    }
    return DI_OK;
}

static di_status read_key(struct app_request *r, const char *key, json_t *value, struct di_error *err)
{
    bool known;
    if (is_id(key))
        return DI_OK;
    if (strcmp(key, "priority") == 0) {
        json_int_t priority = json_integer_value(value);
        if ((!json_is_integer(value) && !json_is_null(value)) || priority < INT32_MIN || priority > INT32_MAX)
            return fail(err, DI_ERR_INVALID, "priority must be a whole number in %d..%d", INT32_MIN, INT32_MAX);
        r->priority = (int32_t)priority;
        return DI_OK;
    }
    if (strcmp(key, "prompt") == 0) {
        if (!json_is_string(value) && !json_is_null(value))
            return fail(err, DI_ERR_INVALID, "prompt must be a string; token ids are \"prompt_token_ids\"");
        r->text = json_string_value(value);
        r->len = json_string_length(value);
        return DI_OK;
    }
    if (strcmp(key, "prompt_token_ids") == 0)
        return json_is_null(value) ? DI_OK : read_prompt_ids(r, value, err);
    di_status status = app_sampling_set(&r->sampling, key, value, &known, err);
    return status == DI_OK && !known ? unknown_key(key, err) : status;
}

di_status app_request_parse(const char *line, size_t len, const struct di_sampling_params *base,
                            struct app_request *request, struct di_error *err)
{
    json_error_t where;
    const char *key;
    json_t *value;
    *request = (struct app_request){.sampling.params = *base};
    request->root = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (request->root == NULL) {
        bool memory = json_error_code(&where) == json_error_out_of_memory;
        return fail(err, memory ? DI_ERR_NOMEM : DI_ERR_FORMAT, "not valid JSON: column %d: %s", where.column,
                    where.text);
    }
    if (!json_is_object(request->root))
        return fail(err, DI_ERR_FORMAT, "a request must be a JSON object");
    di_status status = read_id(request, err);
    if (status != DI_OK)
        return status;
    json_object_foreach (request->root, key, value) {
        status = read_key(request, key, value, err);
        if (status != DI_OK)
            return status;
    }
    bool text = request->text != NULL, ids = json_is_array(json_object_get(request->root, "prompt_token_ids"));
    if (text == ids)
        return fail(err, DI_ERR_INVALID, "one of prompt and prompt_token_ids is needed%s", text ? ", not both" : "");
    if (text ? request->len == 0 : request->ids.count == 0)
        return fail(err, DI_ERR_INVALID, "%s is empty", text ? "prompt" : "prompt_token_ids");
    return DI_OK;
}

void app_request_free(struct app_request *request)
{
    json_decref(request->root);
    app_sampling_free(&request->sampling);
    di_token_list_free(&request->ids);
    *request = (struct app_request){0};
}
