/* deepinfer/tokenizer.h - text to token ids and back. Part of deepinfer/deepinfer.h.
 *
 * A di_tokenizer is immutable after opening and may be shared by threads. A di_detokenizer is one output stream.
 *
 *     di_tokenizer *tok;
 *     di_tokenizer_open("models/tiny/tokenizer.json", &tok, &err);
 *     di_token_list ids = {0};
 *     di_tokenizer_encode(tok, text, strlen(text), true, &ids, &err);
 *     ...
 *     di_token_list_free(&ids);
 *     di_tokenizer_close(tok);
 */
#ifndef DEEPINFER_TOKENIZER_H
#define DEEPINFER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deepinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_tokenizer di_tokenizer;
typedef struct di_detokenizer di_detokenizer;

/* A growing list of token ids; zero-initialise, free with di_token_list_free. */
typedef struct di_token_list {
    int32_t *ids;
    size_t count, capacity;
} di_token_list;

DI_API void di_token_list_free(di_token_list *list);
DI_API di_status di_token_list_push(di_token_list *list, int32_t id, struct di_error *err);

/* Reads a Hugging Face tokenizer.json: byte-level BPE with the pre-tokenizer written in the file. Errors name the file and
 * the field. The caller closes *out. */
DI_API di_status di_tokenizer_open(const char *path, di_tokenizer **out, struct di_error *err);
DI_API void di_tokenizer_close(di_tokenizer *tok);

/* Appends the ids of `len` bytes of UTF-8 to *out. No BOS is added. With parse_special, literals of added tokens in the
 * text become their ids (leftmost, longest); without, they are ordinary text. Invalid UTF-8 is DI_ERR_INVALID and names
 * the byte offset; *out is then unchanged. Time is O(len log len) for any input. */
DI_API di_status di_tokenizer_encode(const di_tokenizer *tok, const char *text, size_t len, bool parse_special,
                                     di_token_list *out, struct di_error *err);

/* Number of ids (greatest id + 1). */
DI_API int32_t di_tokenizer_vocab_size(const di_tokenizer *tok);

/* The bytes of one token (not always whole UTF-8 characters), *len of them, owned by the tokenizer; NULL for an id that
 * does not exist. Special tokens give their literal. */
DI_API const char *di_tokenizer_token_bytes(const di_tokenizer *tok, int32_t id, size_t *len);

/* True for ids that the file marks "special": true. */
DI_API bool di_tokenizer_is_special(const di_tokenizer *tok, int32_t id);

/* The id whose literal is exactly `text`, added tokens first, or -1. */
DI_API int32_t di_tokenizer_find(const di_tokenizer *tok, const char *text);

/* Streaming detokeniser: turns ids into text that is valid UTF-8 at every moment. It withholds at most the bytes of one
 * incomplete character; bytes that can never become a character come out as U+FFFD, as the `tokenizers` package decodes
 * them. skip_special leaves out special tokens. The tokenizer must outlive it. */
DI_API di_status di_detokenizer_open(const di_tokenizer *tok, bool skip_special, di_detokenizer **out,
                                     struct di_error *err);
DI_API void di_detokenizer_close(di_detokenizer *detok);

/* Feeds one id; *text (owned by the detokenizer, zero-terminated, valid until the next call) is what can be shown now,
 * *len its length, perhaps 0. An unknown id is DI_ERR_RANGE. */
DI_API di_status di_detokenizer_feed(di_detokenizer *detok, int32_t id, const char **text, size_t *len,
                                     struct di_error *err);
/* Ends the stream: what is still withheld comes out (as U+FFFD where incomplete). The detokenizer can then start anew. */
DI_API di_status di_detokenizer_finish(di_detokenizer *detok, const char **text, size_t *len, struct di_error *err);

#ifdef __cplusplus
}
#endif
#endif
