#include "deepinfer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_json.h"
#include "text/trie.h"

enum { MAX_FILE_BYTES = 256 * 1024 * 1024 };

void di_token_list_free(di_token_list *list)
{
    free(list->ids);
    *list = (di_token_list){0};
}

di_status di_token_list_push(di_token_list *list, int32_t id, struct di_error *err)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        int32_t *grown = di_realloc_array(list->ids, capacity, sizeof *grown);
        if (grown == NULL)
            return DI_FAIL_NOMEM(err, capacity * sizeof *grown);
        list->ids = grown;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return DI_OK;
}

di_status di_tokenizer_open_memory(const char *json, size_t len, const char *file, di_tokenizer **out,
                                   struct di_error *err)
{
    *out = NULL;
    di_tokenizer *tok = di_calloc(1, sizeof *tok);
    if (tok == NULL)
        return DI_FAIL_NOMEM(err, sizeof *tok);
    di_status status = di_tokenizer_parse(json, len, tok, err);
    if (status != DI_OK) {
        di_tokenizer_close(tok);
        return DI_PREFIX(err, status, "%s", file);
    }
    *out = tok;
    return DI_OK;
}

di_status di_tokenizer_open(const char *path, di_tokenizer **out, struct di_error *err)
{
    char *json;
    size_t size;
    *out = NULL;
    DI_TRY(di_file_read(path, MAX_FILE_BYTES, &json, &size, err));
    di_status status = di_tokenizer_open_memory(json, size, path, out, err);
    free(json);
    return status;
}

void di_tokenizer_close(di_tokenizer *tok)
{
    if (tok == NULL)
        return;
    di_pretokenizer_close(tok->pre);
    di_bpe_close(tok->bpe);
    di_arena_free(&tok->arena);
    free(tok);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Encoding: added tokens are cut out, what lies between is split into pieces, each piece merges. */

struct encoder {
    const di_tokenizer *tok;
    struct di_pretokenizer_run *pre;
    struct di_bpe_run *bpe;
    di_token_list *out;
};

static di_status encode_piece(void *user, const char *piece, size_t len, struct di_error *err)
{
    struct encoder *e = user;
    if (e->tok->ignore_merges) {
        int32_t id = di_tokenizer_lookup(e->tok, piece, len);
        if (id >= 0)
            return di_token_list_push(e->out, id, err);
    }
    return di_bpe_encode(e->bpe, piece, len, e->out, err);
}

/* Text without added tokens of the tries before `level`: those of trie `level` are cut out, the rest goes on. */
static di_status encode_text(struct encoder *e, int32_t level, const char *text, size_t len, struct di_error *err)
{
    if (len == 0)
        return DI_OK;
    if (level == 2)
        return di_pretokenizer_split(e->pre, text, len, encode_piece, e, err);
    const struct di_trie *trie = e->tok->added[level];
    size_t done = 0;
    for (size_t at = 0; trie != NULL && at < len;) {
        int32_t id;
        size_t found = di_trie_longest(trie, text + at, len - at, &id);
        if (found == 0) {
            at++;
            continue;
        }
        DI_TRY(encode_text(e, level + 1, text + done, at - done, err));
        DI_TRY(di_token_list_push(e->out, id, err));
        at += found;
        done = at;
    }
    return encode_text(e, level + 1, text + done, len - done, err);
}

di_status di_tokenizer_encode(const di_tokenizer *tok, const char *text, size_t len, bool parse_special,
                              di_token_list *out, struct di_error *err)
{
    struct encoder e = {.tok = tok, .out = out};
    size_t before = out->count, valid = di_utf8_valid_prefix(text, len);
    if (valid != len)
        return DI_FAIL(err, DI_ERR_INVALID, "the text is not valid UTF-8 at byte %zu (0x%02x)", valid,
                       (unsigned)(unsigned char)text[valid]);
    di_status status = di_pretokenizer_begin(tok->pre, &e.pre, err);
    if (status == DI_OK)
        status = di_bpe_begin(tok->bpe, &e.bpe, err);
    if (status == DI_OK)
        status = encode_text(&e, parse_special ? 0 : 2, text, len, err);
    di_pretokenizer_end(e.pre);
    di_bpe_end(e.bpe);
    if (status != DI_OK)
        out->count = before;
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Single tokens. */

int32_t di_tokenizer_vocab_size(const di_tokenizer *tok)
{
    return tok->vocab_size;
}

const char *di_tokenizer_token_bytes(const di_tokenizer *tok, int32_t id, size_t *len)
{
    *len = 0;
    if (id < 0 || id >= tok->vocab_size || tok->tokens[id].bytes == NULL)
        return NULL;
    *len = tok->tokens[id].len;
    return tok->tokens[id].bytes;
}

bool di_tokenizer_is_special(const di_tokenizer *tok, int32_t id)
{
    return id >= 0 && id < tok->vocab_size && tok->tokens[id].special;
}

int32_t di_tokenizer_find_added(const di_tokenizer *tok, const char *text)
{
    size_t len = strlen(text);
    for (int32_t level = 0; level < 2; level++) {
        int32_t id;
        if (tok->added[level] != NULL && len != 0 && di_trie_longest(tok->added[level], text, len, &id) == len)
            return id;
    }
    return -1;
}

int32_t di_tokenizer_find(const di_tokenizer *tok, const char *text)
{
    size_t len = strlen(text);
    int32_t found = di_tokenizer_find_added(tok, text);
    if (found < 0)
        found = di_tokenizer_lookup(tok, text, len);
    for (int32_t id = 0; id < tok->vocab_size && found < 0; id++)
        if (tok->tokens[id].literal && tok->tokens[id].len == len && memcmp(tok->tokens[id].bytes, text, len) == 0)
            found = id;
    return found;
}
