#include "base/json.h"

#include <string.h>

di_status di_json_parse(const char *text, size_t len, const char *what, json_t **out, struct di_error *err)
{
    json_error_t where;
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (*out == NULL) {
        di_status status = json_error_code(&where) == json_error_out_of_memory ? DI_ERR_NOMEM : DI_ERR_FORMAT;
        return DI_FAIL(err, status, "%s: not valid JSON: line %d, column %d: %s", what, where.line, where.column,
                       where.text);
    }
    return DI_OK;
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "a list",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a number", [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",    [JSON_NULL] = "null",
    };
    return value == NULL ? "absent" : names[json_typeof(value)];
}

static const json_t *lookup(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static const char *dot(const char *path)
{
    return path[0] == '\0' ? "" : ".";
}

static di_status wrong_type(const json_t *value, const char *path, const char *key, const char *wanted,
                            struct di_error *err)
{
    if (value == NULL)
        return DI_FAIL(err, DI_ERR_FORMAT, "%s%s%s is missing", path, dot(path), key);
    return DI_FAIL(err, DI_ERR_FORMAT, "%s%s%s must be %s, not %s", path, dot(path), key, wanted, type_name(value));
}

di_status di_json_get_i64(const json_t *object, const char *path, const char *key, int64_t *out, struct di_error *err)
{
    const json_t *value = lookup(object, key);
    if (!json_is_integer(value))
        return wrong_type(value, path, key, "an integer", err);
    *out = json_integer_value(value);
    return DI_OK;
}

di_status di_json_get_i64_opt(const json_t *object, const char *path, const char *key, int64_t fallback, int64_t *out,
                              struct di_error *err)
{
    *out = fallback;
    return lookup(object, key) == NULL ? DI_OK : di_json_get_i64(object, path, key, out, err);
}

di_status di_json_get_f64(const json_t *object, const char *path, const char *key, double *out, struct di_error *err)
{
    const json_t *value = lookup(object, key);
    if (!json_is_number(value))
        return wrong_type(value, path, key, "a number", err);
    *out = json_number_value(value);
    return DI_OK;
}

di_status di_json_get_f64_opt(const json_t *object, const char *path, const char *key, double fallback, double *out,
                              struct di_error *err)
{
    *out = fallback;
    return lookup(object, key) == NULL ? DI_OK : di_json_get_f64(object, path, key, out, err);
}

di_status di_json_get_string_opt(const json_t *object, const char *path, const char *key, const char *fallback,
                                 const char **out, struct di_error *err)
{
    const json_t *value = lookup(object, key);
    *out = fallback;
    if (value == NULL)
        return DI_OK;
    if (!json_is_string(value))
        return wrong_type(value, path, key, "a string", err);
    *out = json_string_value(value);
    return DI_OK;
}

di_status di_json_get_bool_opt(const json_t *object, const char *path, const char *key, bool fallback, bool *out,
                               struct di_error *err)
{
    const json_t *value = lookup(object, key);
    *out = fallback;
    if (value == NULL)
        return DI_OK;
    if (!json_is_boolean(value))
        return wrong_type(value, path, key, "a boolean", err);
    *out = json_is_true(value);
    return DI_OK;
}

di_status di_json_get_i64_list(const json_t *object, const char *path, const char *key, int64_t *out, size_t capacity,
                               size_t *count, struct di_error *err)
{
    const json_t *value = lookup(object, key);
    if (!json_is_array(value))
        return wrong_type(value, path, key, "a list of integers", err);
    size_t n = json_array_size(value);
    if (n > capacity)
        return DI_FAIL(err, DI_ERR_LIMIT, "%s%s%s has %zu entries, more than the %zu supported", path, dot(path), key,
                       n, capacity);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_integer(item))
            return DI_FAIL(err, DI_ERR_FORMAT, "%s%s%s[%zu] must be an integer, not %s", path, dot(path), key, i,
                           type_name(item));
        out[i] = json_integer_value(item);
    }
    *count = n;
    return DI_OK;
}

di_status di_json_get_object(const json_t *object, const char *path, const char *key, const json_t **out,
                             struct di_error *err)
{
    const json_t *value = lookup(object, key);
    if (!json_is_object(value))
        return wrong_type(value, path, key, "an object", err);
    *out = value;
    return DI_OK;
}
