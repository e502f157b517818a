/* A checkpoint: one file, or an index and its shards, all mapped. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_index.h"

enum { MAX_INDEX_BYTES = 100 * 1000 * 1000 }; /* as for one header; the released index has about 8 MB */

struct di_st_set {
    struct di_arena arena;
    struct di_map *maps; /* [n_shards] */
    int32_t n_shards;
    struct di_st_tensor *tensors; /* sorted by name */
    size_t count;
    uint64_t bytes;
};

static int by_name(const void *left, const void *right)
{
    const struct di_st_tensor *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Maps shard `number` and points its tensors at their bytes. */
static di_status open_shard(struct di_st_set *set, int32_t number, const char *path, struct di_st_header *header,
                            struct di_error *err)
{
    const char *name = di_arena_strndup(&set->arena, path, strlen(path));
    if (name == NULL)
        return DI_FAIL_NOMEM(err, strlen(path));
    struct di_map *map = &set->maps[number];
    DI_TRY(di_map_open(path, map, err));
    DI_TRY(di_st_parse_header(map->data, map->size, map->size, name, &set->arena, header, err));
    for (size_t i = 0; i < header->count; i++) {
        header->tensors[i].data = map->data + header->data_begin + header->tensors[i].begin;
        set->bytes += header->tensors[i].bytes;
    }
    return DI_OK;
}

static di_status open_single(struct di_st_set *set, const char *path, struct di_error *err)
{
    struct di_st_header header;
    set->maps = di_arena_alloc(&set->arena, 1, sizeof *set->maps);
    if (set->maps == NULL)
        return DI_FAIL_NOMEM(err, sizeof *set->maps);
    set->n_shards = 1;
    DI_TRY(open_shard(set, 0, path, &header, err));
    set->tensors = header.tensors;
    set->count = header.count;
    return DI_OK;
}

/* Index and shard must agree on every tensor, both ways. */
static di_status check_shard(const struct di_st_index *index, int32_t number, const struct di_st_header *header,
                             bool *seen, const char *index_path, struct di_error *err)
{
    for (size_t i = 0; i < header->count; i++) {
        const struct di_st_tensor *t = &header->tensors[i];
        const struct di_st_index_entry *entry = di_st_index_find(index, t->name);
        if (entry == NULL)
            return DI_FAIL(err, DI_ERR_FORMAT, "%s: holds tensor %s, which %s does not list", t->file, t->name,
                           index_path);
        if (entry->shard != number)
            return DI_FAIL(err, DI_ERR_FORMAT, "%s: holds tensor %s, which %s places in %s", t->file, t->name,
                           index_path, index->shards[entry->shard]);
        seen[entry - index->entries] = true;
    }
    return DI_OK;
}

static di_status open_shards(struct di_st_set *set, const char *folder, const char *index_path,
                             const struct di_st_index *index, struct di_error *err)
{
    bool *seen = di_arena_alloc(&set->arena, index->count, sizeof *seen);
    set->maps = di_arena_alloc(&set->arena, (size_t)index->n_shards, sizeof *set->maps);
    set->tensors = di_arena_alloc(&set->arena, index->count, sizeof *set->tensors);
    if (seen == NULL || set->maps == NULL || set->tensors == NULL)
        return DI_FAIL_NOMEM(err, index->count * sizeof *set->tensors);
    set->n_shards = index->n_shards;
    for (int32_t i = 0; i < index->n_shards; i++) {
        struct di_st_header header;
        char *path = di_path_join(folder, index->shards[i]);
        if (path == NULL)
            return DI_FAIL_NOMEM(err, strlen(folder));
        di_status status = open_shard(set, i, path, &header, err);
        if (status == DI_ERR_NOT_FOUND)
            status = DI_PREFIX(err, status, "shard %d of %d that %s lists is missing", i + 1, index->n_shards,
                               index_path);
        free(path);
        DI_TRY(status);
        DI_TRY(check_shard(index, i, &header, seen, index_path, err));
        memcpy(set->tensors + set->count, header.tensors, header.count * sizeof *header.tensors);
        set->count += header.count;
    }
    for (size_t i = 0; i < index->count; i++)
        if (!seen[i])
            return DI_FAIL(err, DI_ERR_FORMAT, "%s: lists tensor %s, which its shard %s lacks", index_path,
                           index->entries[i].tensor, index->shards[index->entries[i].shard]);
    return DI_OK;
}

static di_status open_indexed(struct di_st_set *set, const char *folder, const char *index_path, struct di_error *err)
{
    char *json;
    size_t size;
    struct di_st_index index;
    DI_TRY(di_file_read(index_path, MAX_INDEX_BYTES, &json, &size, err));
    di_status status = di_st_index_parse(json, size, index_path, &set->arena, &index, err);
    free(json);
    return status == DI_OK ? open_shards(set, folder, index_path, &index, err) : status;
}

static di_status open_folder(struct di_st_set *set, const char *folder, struct di_error *err)
{
    char *index = di_path_join(folder, "model.safetensors.index.json"),
         *single = di_path_join(folder, "model.safetensors");
    di_status status;
    if (index == NULL || single == NULL)
        status = DI_FAIL_NOMEM(err, strlen(folder));
    else if (di_file_exists(index))
        status = open_indexed(set, folder, index, err);
    else if (di_file_exists(single))
        status = open_single(set, single, err);
    else
        status = DI_FAIL(err, DI_ERR_NOT_FOUND, "%s: holds neither model.safetensors.index.json nor model.safetensors",
                         folder);
    free(index);
    free(single);
    return status;
}

di_status di_st_open(const char *path, struct di_st_set **out, struct di_error *err)
{
    *out = NULL;
    struct di_st_set *set = di_calloc(1, sizeof *set);
    if (set == NULL)
        return DI_FAIL_NOMEM(err, sizeof *set);
    di_status status = di_dir_exists(path) ? open_folder(set, path, err) : open_single(set, path, err);
    if (status != DI_OK) {
        di_st_close(set);
        return status;
    }
    qsort(set->tensors, set->count, sizeof *set->tensors, by_name);
    *out = set;
    return DI_OK;
}

void di_st_close(struct di_st_set *set)
{
    if (set == NULL)
        return;
    for (int32_t i = 0; i < set->n_shards; i++)
        di_map_close(&set->maps[i]);
    di_arena_free(&set->arena);
    free(set);
}

const struct di_st_tensor *di_st_find(const struct di_st_set *set, const char *name)
{
    struct di_st_tensor key = {.name = name};
    if (set->count == 0)
        return NULL;
    return bsearch(&key, set->tensors, set->count, sizeof key, by_name);
}

size_t di_st_count(const struct di_st_set *set)
{
    return set->count;
}

const struct di_st_tensor *di_st_at(const struct di_st_set *set, size_t index)
{
    return &set->tensors[index];
}

uint64_t di_st_total_bytes(const struct di_st_set *set)
{
    return set->bytes;
}

size_t di_st_shard_count(const struct di_st_set *set)
{
    return (size_t)set->n_shards;
}
