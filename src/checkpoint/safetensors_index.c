#include "checkpoint/safetensors_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { MAX_SHARDS = 10000 };

static int by_tensor(const void *left, const void *right)
{
    const struct di_st_index_entry *a = left, *b = right;
    return strcmp(a->tensor, b->tensor);
}

/* A shard must lie in the checkpoint's own folder. */
static bool is_plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL;
}

/* The number of the shard called `name`; `numbers` maps the names seen so far. */
static di_status shard_number(struct di_st_index *index, json_t *numbers, struct di_arena *arena, const char *name,
                              int32_t *out, struct di_error *err)
{
    const json_t *known = json_object_get(numbers, name);
    if (known != NULL) {
        *out = (int32_t)json_integer_value(known);
        return DI_OK;
    }
    if (index->n_shards == MAX_SHARDS)
        return DI_FAIL(err, DI_ERR_LIMIT, "weight_map names more than %d shards; %s is one too many", MAX_SHARDS, name);
    const char *copy = di_arena_strndup(arena, name, strlen(name));
    if (copy == NULL || json_object_set_new(numbers, name, json_integer(index->n_shards)) != 0)
        return DI_FAIL_NOMEM(err, strlen(name));
    *out = index->n_shards;
    index->shards[index->n_shards++] = copy;
    return DI_OK;
}

static di_status check_files(json_t *map, struct di_error *err)
{
    const char *tensor;
    json_t *shard;
    json_object_foreach (map, tensor, shard) {
        const char *name = json_string_value(shard);
        if (name == NULL || !is_plain_name(name))
            return DI_FAIL(err, DI_ERR_FORMAT,
                           "weight_map gives tensor %s the file \"%s\"; a plain file name is needed", tensor,
                           name != NULL ? name : "(not a string)");
    }
    return DI_OK;
}

static di_status collect(json_t *root, json_t *numbers, struct di_arena *arena, struct di_st_index *out,
                         struct di_error *err)
{
    const char *tensor;
    json_t *shard, *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return DI_FAIL(err, DI_ERR_FORMAT, "weight_map is missing or not an object");
    DI_TRY(check_files(map, err)); /* so that nothing below is allocated for an index that is refused anyway */
    size_t n = json_object_size(map);
    out->entries = di_arena_alloc(arena, n, sizeof *out->entries);
    out->shards = di_arena_alloc(arena, n < MAX_SHARDS ? n : MAX_SHARDS, sizeof *out->shards);
    if (out->entries == NULL || out->shards == NULL)
        return DI_FAIL_NOMEM(err, n * sizeof *out->entries);
    json_object_foreach (map, tensor, shard) {
        struct di_st_index_entry *entry = &out->entries[out->count];
        DI_TRY(shard_number(out, numbers, arena, json_string_value(shard), &entry->shard, err));
        entry->tensor = di_arena_strndup(arena, tensor, strlen(tensor));
        if (entry->tensor == NULL)
            return DI_FAIL_NOMEM(err, strlen(tensor));
        out->count++;
    }
    qsort(out->entries, out->count, sizeof *out->entries, by_tensor);
    return DI_OK;
}

di_status di_st_index_parse(const char *json, size_t len, const char *file, struct di_arena *arena,
                            struct di_st_index *out, struct di_error *err)
{
    json_t *root;
    *out = (struct di_st_index){0};
    DI_TRY(di_json_parse(json, len, file, &root, err));
    json_t *numbers = json_object();
    di_status status = numbers != NULL ? collect(root, numbers, arena, out, err) : DI_FAIL_NOMEM(err, len);
    json_decref(numbers);
    json_decref(root);
    return status == DI_OK ? DI_OK : DI_PREFIX(err, status, "%s", file);
}

const struct di_st_index_entry *di_st_index_find(const struct di_st_index *index, const char *tensor)
{
    struct di_st_index_entry key = {.tensor = tensor};
    if (index->count == 0)
        return NULL;
    return bsearch(&key, index->entries, index->count, sizeof key, by_tensor);
}
