/* checkpoint/safetensors_index.h - model.safetensors.index.json: which tensor lies in which shard. Private to checkpoint/. */
#ifndef DI_CHECKPOINT_SAFETENSORS_INDEX_H
#define DI_CHECKPOINT_SAFETENSORS_INDEX_H

#include "base/error.h"
#include "base/mem.h"

struct di_st_index_entry {
    const char *tensor; /* in the arena */
    int32_t shard;      /* into shards */
};

struct di_st_index {
    struct di_st_index_entry *entries; /* sorted by tensor name */
    size_t count;
    const char **shards; /* plain file names, each once */
    int32_t n_shards;
};

/* Parses index bytes. A shard name that is not a plain file name (separators, "..", empty) is refused. `file` is used in
 * messages. */
di_status di_st_index_parse(const char *json, size_t len, const char *file, struct di_arena *arena,
                            struct di_st_index *out, struct di_error *err);

/* NULL if the index does not list the tensor. */
const struct di_st_index_entry *di_st_index_find(const struct di_st_index *index, const char *tensor);

#endif
