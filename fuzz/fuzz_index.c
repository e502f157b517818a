/* Fuzzes model.safetensors.index.json: what is accepted names plain files only and finds every tensor it lists. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct di_arena arena = {0};
    struct di_st_index index;
    struct di_error err = {0};
    di_status status = di_st_index_parse((const char *)data, size, "fuzz.index.json", &arena, &index, &err);
    if (status == DI_OK) {
        for (int32_t i = 0; i < index.n_shards; i++)
            if (strchr(index.shards[i], '/') != NULL || index.shards[i][0] == '\0' || index.shards[i][0] == '.')
                abort();
        for (size_t i = 0; i < index.count; i++) {
            const struct di_st_index_entry *entry = &index.entries[i];
            if (di_st_index_find(&index, entry->tensor) != entry || entry->shard < 0 || entry->shard >= index.n_shards)
                abort();
        }
    } else if (err.code != status || err.message[0] == '\0') {
        abort();
    }
    di_arena_free(&arena);
    return 0;
}
