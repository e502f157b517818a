/* tokenizer.json, from any bytes; a tokenizer that opens must encode and stream back a text, and take a token map. */
#include <stdlib.h>
#include <string.h>

#include "text/token_map.h"
#include "text/tokenizer_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello  w\xC3\xB6rld 123\n<think>\xE4\xB8\xAD!";
    struct di_error err = {0};
    di_tokenizer *tok;
    di_detokenizer *detok;
    di_token_list ids = {0};
    if (di_tokenizer_open_memory((const char *)data, size, "fuzz", &tok, &err) != DI_OK)
        return 0;
    if (di_tokenizer_encode(tok, text, sizeof text - 1, true, &ids, &err) == DI_OK &&
        di_detokenizer_open(tok, false, &detok, &err) == DI_OK) {
        const char *shown;
        size_t len;
        for (size_t i = 0; i < ids.count; i++)
            if (di_detokenizer_feed(detok, ids.ids[i], &shown, &len, &err) != DI_OK)
                abort();
        di_detokenizer_close(detok);
    }
    di_token_list_free(&ids);
    int32_t count, vocab = di_tokenizer_vocab_size(tok), *map = malloc(((size_t)vocab + 1) * sizeof *map);
    if (map != NULL)
        di_token_map_build(tok, vocab, map, &count, &err);
    free(map);
    di_tokenizer_close(tok);
    return 0;
}
