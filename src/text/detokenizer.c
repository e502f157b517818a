/* Ids -> text, one at a time, valid UTF-8 at every moment. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_json.h"

enum { MAX_TAIL = 3 }; /* bytes of an incomplete character */

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

struct di_detokenizer {
    const di_tokenizer *tok;
    bool skip_special;
    uint8_t tail[MAX_TAIL];
    size_t tail_len;
    char *text; /* what the last call gave out */
    size_t capacity;
};

di_status di_detokenizer_open(const di_tokenizer *tok, bool skip_special, di_detokenizer **out, struct di_error *err)
{
    *out = di_calloc(1, sizeof **out);
    if (*out == NULL)
        return DI_FAIL_NOMEM(err, sizeof **out);
    (*out)->tok = tok;
    (*out)->skip_special = skip_special;
    return DI_OK;
}

void di_detokenizer_close(di_detokenizer *d)
{
    if (d == NULL)
        return;
    free(d->text);
    free(d);
}

static di_status reserve(di_detokenizer *d, size_t bytes, struct di_error *err)
{
    if (bytes <= d->capacity)
        return DI_OK;
    char *grown = di_realloc_array(d->text, 2 * bytes, 1);
    if (grown == NULL)
        return DI_FAIL_NOMEM(err, 2 * bytes);
    d->text = grown;
    d->capacity = 2 * bytes;
    return DI_OK;
}

/* Appends what bytes[0 .. size) show; an incomplete end stays in the tail, or becomes U+FFFD if `last`. */
static size_t show(di_detokenizer *d, const uint8_t *bytes, size_t size, bool last)
{
    size_t at = 0, used = 0;
    d->tail_len = 0;
    while (at < size) {
        size_t len;
        uint32_t code;
        enum di_utf8_kind kind = di_utf8_next(bytes + at, size - at, &len, &code);
        if (kind == DI_UTF8_INCOMPLETE && !last) {
            d->tail_len = size - at;
            memcpy(d->tail, bytes + at, d->tail_len);
            break;
        }
        if (kind == DI_UTF8_CHAR) {
            memcpy(d->text + used, bytes + at, len);
            used += len;
        } else {
            memcpy(d->text + used, replacement, sizeof replacement - 1);
            used += sizeof replacement - 1;
        }
        at += len;
    }
    d->text[used] = '\0';
    return used;
}

di_status di_detokenizer_feed(di_detokenizer *d, int32_t id, const char **text, size_t *len, struct di_error *err)
{
    size_t size;
    const char *bytes = di_tokenizer_token_bytes(d->tok, id, &size);
    if (bytes == NULL)
        return DI_FAIL(err, DI_ERR_RANGE, "token id %d does not exist", id);
    if (d->skip_special && di_tokenizer_is_special(d->tok, id))
        size = 0;
    size_t total = d->tail_len + size;
    /* Every byte may become a replacement character; the bytes themselves stand behind that room. */
    DI_TRY(reserve(d, 3 * total + 1 + total, err));
    uint8_t *joined = (uint8_t *)d->text + 3 * total + 1;
    memcpy(joined, d->tail, d->tail_len);
    if (size != 0)
        memcpy(joined + d->tail_len, bytes, size);
    *len = show(d, joined, total, false);
    *text = d->text;
    return DI_OK;
}

di_status di_detokenizer_finish(di_detokenizer *d, const char **text, size_t *len, struct di_error *err)
{
    uint8_t tail[MAX_TAIL];
    size_t size = d->tail_len;
    DI_TRY(reserve(d, 3 * size + 1, err));
    memcpy(tail, d->tail, sizeof tail);
    *len = show(d, tail, size, true);
    *text = d->text;
    return DI_OK;
}
