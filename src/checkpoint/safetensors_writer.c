/* Writing a safetensors file. Tensors are laid out with the widest elements first, so that every one of them is aligned. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "checkpoint/safetensors.h"

struct di_st_writer {
    struct di_arena arena;
    struct di_st_tensor *tensors;
    size_t count, capacity;
    json_t *names; /* those added so far */
};

di_status di_st_writer_open(struct di_st_writer **out, struct di_error *err)
{
    *out = NULL;
    struct di_st_writer *w = di_calloc(1, sizeof *w);
    if (w == NULL)
        return DI_FAIL_NOMEM(err, sizeof *w);
    w->names = json_object();
    if (w->names == NULL) {
        free(w);
        return DI_FAIL_NOMEM(err, sizeof *w);
    }
    *out = w;
    return DI_OK;
}

void di_st_writer_close(struct di_st_writer *w)
{
    if (w == NULL)
        return;
    json_decref(w->names);
    free(w->tensors);
    di_arena_free(&w->arena);
    free(w);
}

static di_status grow(struct di_st_writer *w, struct di_error *err)
{
    if (w->count < w->capacity)
        return DI_OK;
    size_t capacity = w->capacity == 0 ? 64 : 2 * w->capacity;
    struct di_st_tensor *grown = di_realloc_array(w->tensors, capacity, sizeof *grown);
    if (grown == NULL)
        return DI_FAIL_NOMEM(err, capacity * sizeof *grown);
    w->tensors = grown;
    w->capacity = capacity;
    return DI_OK;
}

static di_status check_name(const struct di_st_writer *w, const char *name, struct di_error *err)
{
    if (json_object_get(w->names, name) != NULL)
        return DI_FAIL(err, DI_ERR_INVALID, "tensor %s is added twice", name);
    if (strcmp(name, "__metadata__") == 0)
        return DI_FAIL(err, DI_ERR_INVALID, "tensor %s: the format keeps this name for itself", name);
    json_t *text = json_string(name);
    if (text == NULL)
        return DI_FAIL(err, DI_ERR_INVALID, "tensor name %s is not UTF-8, or memory ran out", name);
    json_decref(text);
    return DI_OK;
}

di_status di_st_writer_add(struct di_st_writer *w, const char *name, enum di_st_dtype dtype, int32_t n_dims,
                           const int64_t *shape, const void *data, struct di_error *err)
{
    struct di_st_tensor t = {.dtype = dtype, .n_dims = n_dims, .bytes = di_st_dtype_size(dtype)};
    DI_TRY(check_name(w, name, err));
    if (n_dims < 0 || n_dims > DI_ST_MAX_DIMS)
        return DI_FAIL(err, DI_ERR_INVALID, "tensor %s has %d dimensions; %d at most", name, n_dims, DI_ST_MAX_DIMS);
    for (int32_t i = 0; i < n_dims; i++) {
        t.shape[i] = shape[i];
        if (shape[i] < 0 || !di_mul_u64(t.bytes, (uint64_t)shape[i], &t.bytes))
            return DI_FAIL(err, DI_ERR_INVALID, "tensor %s: shape[%d] is %lld", name, i, (long long)shape[i]);
    }
    DI_TRY(grow(w, err));
    void *copy = di_arena_alloc(&w->arena, (size_t)t.bytes, 1);
    t.name = di_arena_strndup(&w->arena, name, strlen(name));
    if (copy == NULL || t.name == NULL)
        return DI_FAIL_NOMEM(err, t.bytes);
    if (t.bytes != 0)
        memcpy(copy, data, (size_t)t.bytes);
    if (json_object_set_new(w->names, name, json_true()) != 0)
        return DI_FAIL_NOMEM(err, strlen(name));
    t.data = copy;
    w->tensors[w->count++] = t;
    return DI_OK;
}

static int widest_first(const void *left, const void *right)
{
    const struct di_st_tensor *a = left, *b = right;
    size_t x = di_st_dtype_size(a->dtype), y = di_st_dtype_size(b->dtype);
    return x != y ? (x > y ? -1 : 1) : strcmp(a->name, b->name);
}

/* Adds the entry of one tensor; false when memory runs out (jansson's setters take NULL, free what they were given and say
 * so). */
static bool describe(json_t *root, const struct di_st_tensor *t, uint64_t begin)
{
    json_t *entry = json_object(), *shape = json_array(), *offsets = json_array();
    bool ok = true;
    for (int32_t d = 0; d < t->n_dims; d++)
        ok = json_array_append_new(shape, json_integer(t->shape[d])) == 0 && ok;
    ok = json_array_append_new(offsets, json_integer((json_int_t)begin)) == 0 && ok;
    ok = json_array_append_new(offsets, json_integer((json_int_t)(begin + t->bytes))) == 0 && ok;
    ok = json_object_set_new(entry, "dtype", json_string(di_st_dtype_name(t->dtype))) == 0 && ok;
    ok = json_object_set_new(entry, "shape", shape) == 0 && ok;
    ok = json_object_set_new(entry, "data_offsets", offsets) == 0 && ok;
    return json_object_set_new(root, t->name, entry) == 0 && ok;
}

/* The header, padded with spaces to a multiple of 8; from malloc, NULL when memory runs out. */
static char *make_header(struct di_st_writer *w, size_t *length)
{
    json_t *root = json_object();
    bool ok = root != NULL;
    uint64_t at = 0;
    for (size_t i = 0; i < w->count && ok; i++) {
        ok = describe(root, &w->tensors[i], at);
        at += w->tensors[i].bytes;
    }
    char *text = ok ? json_dumps(root, JSON_COMPACT) : NULL, *padded = NULL;
    json_decref(root);
    if (text != NULL) {
        size_t used = strlen(text);
        *length = (used + 7) & ~(size_t)7;
        padded = di_calloc(*length + 1, 1);
        if (padded != NULL) {
            memset(padded, ' ', *length);
            memcpy(padded, text, used);
        }
        free(text);
    }
    return padded;
}

static bool write_all(int fd, const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write(fd, (const char *)data + done, size - done);
        if (wrote < 0 && errno != EINTR)
            return false;
        if (wrote == 0) {
            errno = ENOSPC;
            return false;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

static bool write_file(int fd, const struct di_st_writer *w, const char *header, size_t length)
{
    uint8_t prefix[8];
    for (int32_t i = 0; i < 8; i++)
        prefix[i] = (uint8_t)(length >> (8 * i));
    if (!write_all(fd, prefix, sizeof prefix) || !write_all(fd, header, length))
        return false;
    for (size_t i = 0; i < w->count; i++)
        if (!write_all(fd, w->tensors[i].data, (size_t)w->tensors[i].bytes))
            return false;
    return fsync(fd) == 0 || errno == EINVAL || errno == EROFS; /* pipes and devices cannot be synced */
}

di_status di_st_writer_save(struct di_st_writer *w, const char *path, struct di_error *err)
{
    size_t length = 0, path_len = strlen(path);
    qsort(w->tensors, w->count, sizeof *w->tensors, widest_first);
    char *header = make_header(w, &length), *temporary = di_calloc(path_len + 5, 1);
    if (header == NULL || temporary == NULL) {
        free(header);
        free(temporary);
        return DI_FAIL_NOMEM(err, length + path_len);
    }
    memcpy(temporary, path, path_len);
    memcpy(temporary + path_len, ".tmp", 5);
    di_status status = DI_OK;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = DI_FAIL(err, DI_ERR_IO, "%s: cannot be created: %s", temporary, strerror(errno));
    } else {
        bool ok = write_file(fd, w, header, length);
        int code = errno;
        if (close(fd) != 0 && ok) {
            ok = false;
            code = errno;
        }
        if (!ok || rename(temporary, path) != 0) {
            status = DI_FAIL(err, DI_ERR_IO, "%s: cannot be written: %s", path, strerror(ok ? errno : code));
            unlink(temporary);
        }
    }
    free(header);
    free(temporary);
    return status;
}
