/* The header of a safetensors file, from any bytes. */
#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct di_arena arena = {0};
    struct di_st_header header;
    struct di_error err = {0};
    if (di_st_parse_header(data, size, size, "fuzz", &arena, &header, &err) == DI_OK) {
        volatile uint8_t sink = 0; /* every byte that a tensor claims must be there */
        for (size_t i = 0; i < header.count; i++) {
            const struct di_st_tensor *t = &header.tensors[i];
            for (uint64_t k = 0; k < t->bytes; k++)
                sink = (uint8_t)(sink ^ data[header.data_begin + t->begin + k]);
        }
    }
    di_arena_free(&arena);
    return 0;
}
