/* model.safetensors.index.json, from any bytes. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct di_arena arena = {0};
    struct di_st_index index;
    struct di_error err = {0};
    if (di_st_index_parse((const char *)data, size, "fuzz", &arena, &index, &err) == DI_OK)
        for (size_t i = 0; i < index.count; i++)
            if (strchr(index.shards[index.entries[i].shard], '/') != NULL ||
                di_st_index_find(&index, index.entries[i].tensor) == NULL)
                abort(); /* a path that leaves the folder, or an entry that cannot be found */
    di_arena_free(&arena);
    return 0;
}
