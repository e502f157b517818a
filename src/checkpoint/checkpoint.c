#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 16 * 1024 * 1024, SHAPE_TEXT = DI_ST_MAX_DIMS * 22 + 3 };

struct di_checkpoint {
    char *folder;
    struct di_config config;
    struct di_st_set *tensors;
    bool *taken;          /* [tensors] */
    const char **ignored; /* [tensors] reason or NULL */
};

static di_status load_config(struct di_checkpoint *ckpt, struct di_error *err)
{
    char *path = di_path_join(ckpt->folder, "config.json"), *json;
    size_t size;
    if (path == NULL)
        return DI_FAIL_NOMEM(err, strlen(ckpt->folder));
    di_status status = di_file_read(path, MAX_CONFIG_BYTES, &json, &size, err);
    if (status == DI_OK) {
        status = di_config_parse(json, size, path, &ckpt->config, err);
        free(json);
    }
    free(path);
    return status;
}

di_status di_checkpoint_open(const char *folder, struct di_checkpoint **out, struct di_error *err)
{
    *out = NULL;
    struct di_checkpoint *ckpt = di_calloc(1, sizeof *ckpt);
    if (ckpt == NULL)
        return DI_FAIL_NOMEM(err, sizeof *ckpt);
    ckpt->folder = di_strndup(folder, strlen(folder));
    di_status status = ckpt->folder != NULL ? load_config(ckpt, err) : DI_FAIL_NOMEM(err, strlen(folder));
    if (status == DI_OK)
        status = di_st_open(folder, &ckpt->tensors, err);
    if (status == DI_OK) {
        size_t n = di_st_count(ckpt->tensors);
        ckpt->taken = di_calloc(n, sizeof *ckpt->taken);
        ckpt->ignored = di_calloc(n, sizeof *ckpt->ignored);
        if (ckpt->taken == NULL || ckpt->ignored == NULL)
            status = DI_FAIL_NOMEM(err, n * sizeof *ckpt->ignored);
    }
    if (status != DI_OK) {
        di_checkpoint_close(ckpt);
        return status;
    }
    *out = ckpt;
    return DI_OK;
}

void di_checkpoint_close(struct di_checkpoint *ckpt)
{
    if (ckpt == NULL)
        return;
    di_st_close(ckpt->tensors);
    free(ckpt->taken);
    free(ckpt->ignored);
    free(ckpt->folder);
    free(ckpt);
}

const struct di_config *di_checkpoint_config(const struct di_checkpoint *ckpt)
{
    return &ckpt->config;
}

const struct di_st_set *di_checkpoint_tensors(const struct di_checkpoint *ckpt)
{
    return ckpt->tensors;
}

const char *di_checkpoint_folder(const struct di_checkpoint *ckpt)
{
    return ckpt->folder;
}

static void shape_text(int32_t n_dims, const int64_t *shape, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i == 0 ? "[" : ", ", (long long)shape[i]);
    if (used < size)
        snprintf(out + used, size - used, "%s]", n_dims == 0 ? "[" : "");
}

di_status di_checkpoint_take(struct di_checkpoint *ckpt, const char *name, enum di_st_dtype dtype, int32_t n_dims,
                             const int64_t *shape, const struct di_st_tensor **out, struct di_error *err)
{
    char wanted[SHAPE_TEXT], found[SHAPE_TEXT];
    const struct di_st_tensor *t = di_st_find(ckpt->tensors, name);
    shape_text(n_dims, shape, wanted, sizeof wanted);
    if (t == NULL)
        return DI_FAIL(err, DI_ERR_NOT_FOUND, "%s: tensor %s is missing; %s %s expected", ckpt->folder, name,
                       di_st_dtype_name(dtype), wanted);
    if (t->dtype != dtype)
        return DI_FAIL(err, DI_ERR_FORMAT, "%s: tensor %s has dtype %s; %s expected", t->file, name,
                       di_st_dtype_name(t->dtype), di_st_dtype_name(dtype));
    if (t->n_dims != n_dims || memcmp(t->shape, shape, (size_t)n_dims * sizeof *shape) != 0) {
        shape_text(t->n_dims, t->shape, found, sizeof found);
        return DI_FAIL(err, DI_ERR_FORMAT, "%s: tensor %s has shape %s; %s expected", t->file, name, found, wanted);
    }
    ckpt->taken[t - di_st_at(ckpt->tensors, 0)] = true;
    *out = t;
    return DI_OK;
}

/* See di_checkpoint_ignore(). */
static bool matches(const char *pattern, const char *name)
{
    const char *star = strchr(pattern, '*');
    if (star == NULL)
        return strncmp(name, pattern, strlen(pattern)) == 0;
    size_t head = (size_t)(star - pattern), tail = strlen(star + 1), len = strlen(name);
    return len >= head + tail && strncmp(name, pattern, head) == 0 && strcmp(name + len - tail, star + 1) == 0;
}

void di_checkpoint_ignore(struct di_checkpoint *ckpt, const char *pattern, const char *reason)
{
    for (size_t i = 0; i < di_st_count(ckpt->tensors); i++)
        if (!ckpt->taken[i] && ckpt->ignored[i] == NULL && matches(pattern, di_st_at(ckpt->tensors, i)->name))
            ckpt->ignored[i] = reason;
}

di_status di_checkpoint_finish(struct di_checkpoint *ckpt, struct di_error *err)
{
    const struct di_st_tensor *first = NULL;
    size_t left = 0;
    for (size_t i = 0; i < di_st_count(ckpt->tensors); i++) {
        if (ckpt->taken[i] || ckpt->ignored[i] != NULL)
            continue;
        if (left++ == 0)
            first = di_st_at(ckpt->tensors, i);
    }
    if (left == 0)
        return DI_OK;
    return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s: tensor %s has no part in this model (%zu more like it)", first->file,
                   first->name, left - 1);
}

const char *di_checkpoint_ignored_reason(const struct di_checkpoint *ckpt, size_t index)
{
    return ckpt->ignored[index];
}
