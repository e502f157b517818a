/* Fuzzes the header of a safetensors file: what is accepted must cover its data section exactly. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct di_arena arena = {0};
    struct di_st_header header;
    struct di_error err = {0};
    di_status status = di_st_parse_header(data, size, size, "fuzz.safetensors", &arena, &header, &err);
    if (status == DI_OK) {
        uint64_t at = header.data_begin;
        volatile uint8_t sink = 0;
        for (size_t i = 0; i < header.count; i++) {
            const struct di_st_tensor *t = &header.tensors[i];
            if (header.data_begin + t->begin != at)
                abort();
            for (uint64_t b = 0; b < t->bytes; b++) /* every byte of it is there */
                sink = (uint8_t)(sink ^ data[at + b]);
            at += t->bytes;
        }
        if (at != size)
            abort();
    } else if (err.code != status || err.message[0] == '\0') {
        abort();
    }
    di_arena_free(&arena);
    return 0;
}
