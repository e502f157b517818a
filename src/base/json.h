/* base/json.h - JSON through jansson, with this library's errors.
 *
 * jansson keeps 64-bit integers exact and refuses duplicate keys (both matter: tensor offsets, Engram constants). Values
 * are json_t; free the root with json_decref(). Typed getters name the missing or mistyped field.
 */
#ifndef DI_BASE_JSON_H
#define DI_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Parses exactly one JSON value; duplicate keys, trailing bytes, invalid UTF-8 and nesting past jansson's limit are
 * errors. `what` (a file name) prefixes the message, which gives line and column. */
di_status di_json_parse(const char *text, size_t len, const char *what, json_t **out, struct di_error *err);

/* Field getters: `object` must be a JSON object, `path` names it in messages ("text_config"). The _opt forms return the
 * fallback where the key is absent or null, and still fail on a wrong type. */
di_status di_json_get_i64(const json_t *object, const char *path, const char *key, int64_t *out, struct di_error *err);
di_status di_json_get_i64_opt(const json_t *object, const char *path, const char *key, int64_t fallback, int64_t *out,
                              struct di_error *err);
di_status di_json_get_f64(const json_t *object, const char *path, const char *key, double *out, struct di_error *err);
di_status di_json_get_f64_opt(const json_t *object, const char *path, const char *key, double fallback, double *out,
                              struct di_error *err);
di_status di_json_get_string_opt(const json_t *object, const char *path, const char *key, const char *fallback,
                                 const char **out, struct di_error *err);
di_status di_json_get_bool_opt(const json_t *object, const char *path, const char *key, bool fallback, bool *out,
                               struct di_error *err);
/* A list of integers: at most `capacity`, *count of them. */
di_status di_json_get_i64_list(const json_t *object, const char *path, const char *key, int64_t *out, size_t capacity,
                               size_t *count, struct di_error *err);
/* An object-valued field. */
di_status di_json_get_object(const json_t *object, const char *path, const char *key, const json_t **out,
                             struct di_error *err);

#endif
