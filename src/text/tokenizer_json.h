/* text/tokenizer_json.h - tokenizer.json -> tokenizer. Private to text/ (and its fuzz target). */
#ifndef DI_TEXT_TOKENIZER_JSON_H
#define DI_TEXT_TOKENIZER_JSON_H

#include "deepinfer/tokenizer.h"

#include "base/error.h"
#include "base/mem.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"

struct di_token {
    const char *bytes; /* NULL: no such id */
    uint32_t len;
    bool literal; /* its text is not of the byte alphabet and stands for itself: no merge and no piece gives it */
    bool added, special, normalized; /* flags of added_tokens; normalized ones are looked for after the others */
};

struct di_tokenizer {
    struct di_arena arena;
    struct di_token *tokens; /* [vocab_size] */
    int32_t vocab_size;
    int32_t *by_bytes; /* hash of base tokens, but for literal ones, by their bytes, -1 free; [by_bytes_mask + 1] */
    size_t by_bytes_mask;
    struct di_trie *added[2]; /* literals with normalized false, true; NULL if there are none */
    struct di_pretokenizer *pre;
    struct di_bpe *bpe;
    bool ignore_merges; /* a piece that is a token stays whole */
};

/* Parses the bytes of a tokenizer.json into *tok (zeroed before; on failure the caller still closes it). Whatever the
 * file asks for and this library does not do exactly is an error that names the field. */
di_status di_tokenizer_parse(const char *json, size_t len, struct di_tokenizer *tok, struct di_error *err);

/* The same, allocated; `file` prefixes messages. */
di_status di_tokenizer_open_memory(const char *json, size_t len, const char *file, di_tokenizer **out,
                                   struct di_error *err);

/* Base token, but no literal one, with exactly these bytes, or -1. */
int32_t di_tokenizer_lookup(const struct di_tokenizer *tok, const char *bytes, size_t len);

/* Added token with exactly this content, or -1. */
int32_t di_tokenizer_find_added(const struct di_tokenizer *tok, const char *text);

#endif
