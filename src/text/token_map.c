#include "text/token_map.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

/* First appearances: open addressing over keys, which live in an arena. */
struct key {
    const char *text; /* NULL: free */
    size_t len;
    int32_t id;
};

struct builder {
    struct di_arena arena;
    struct key *table;
    size_t mask;
    int32_t next_id;
    struct di_error *err;
};

static size_t hash_of(const char *text, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3U;
    return (size_t)(hash ^ hash >> 29);
}

static di_status id_of(struct builder *b, const char *text, size_t len, int32_t *id)
{
    size_t at = hash_of(text, len) & b->mask;
    for (; b->table[at].text != NULL; at = (at + 1) & b->mask) {
        if (b->table[at].len == len && memcmp(b->table[at].text, text, len) == 0) {
            *id = b->table[at].id;
            return DI_OK;
        }
    }
    const char *copy = di_arena_strndup(&b->arena, text, len);
    if (copy == NULL)
        return DI_FAIL_NOMEM(b->err, len);
    *id = b->next_id++;
    b->table[at] = (struct key){copy, len, *id};
    return DI_OK;
}

static bool is_white_space(utf8proc_int32_t c) /* Unicode White_Space */
{
    return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_blank(utf8proc_int32_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Steps 3 to 8 of section 13.1 in place on decomposed characters; returns the new count. */
static size_t fold(utf8proc_int32_t *text, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        utf8proc_category_t category = utf8proc_category(text[i]);
        if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME)
            continue;
        utf8proc_int32_t c = utf8proc_tolower(text[i]); /* decomposed text: one character becomes one */
        if (is_blank(c)) {
            if (kept > 0 && text[kept - 1] == ' ')
                continue;
            c = ' ';
        }
        text[kept++] = c;
    }
    if (kept == 1 && text[0] == ' ')
        return 1; /* a lone space is kept */
    size_t begin = 0, end = kept;
    while (begin < end && is_white_space(text[begin]))
        begin++;
    while (end > begin && is_white_space(text[end - 1]))
        end--;
    memmove(text, text + begin, (end - begin) * sizeof *text);
    return end - begin;
}

/* The key of a token whose bytes are valid UTF-8: normalised text, or the text itself where that is empty. */
static di_status normal_key(struct builder *b, const char *bytes, size_t len, int32_t *id)
{
    size_t capacity = 64;
    utf8proc_int32_t *chars = NULL;
    for (;;) {
        utf8proc_int32_t *grown = di_realloc_array(chars, capacity, sizeof *chars);
        if (grown == NULL) {
            free(chars);
            return DI_FAIL_NOMEM(b->err, capacity * sizeof *chars);
        }
        chars = grown;
        /* NFKC followed by NFD is the compatibility decomposition. */
        utf8proc_ssize_t count = utf8proc_decompose((const utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)len, chars,
                                                    (utf8proc_ssize_t)capacity, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
        if (count < 0) {
            free(chars);
            return DI_FAIL(b->err, DI_ERR_INTERNAL, "normalisation failed: %s", utf8proc_errmsg(count));
        }
        if ((size_t)count <= capacity) {
            capacity = (size_t)count;
            break;
        }
        capacity = (size_t)count;
    }
    size_t kept = fold(chars, capacity), used = 0;
    char *key = di_calloc(4 * kept + 1, 1);
    if (key == NULL) {
        free(chars);
        return DI_FAIL_NOMEM(b->err, 4 * kept);
    }
    for (size_t i = 0; i < kept; i++)
        used += di_utf8_put((uint32_t)chars[i], key + used);
    di_status status = used != 0 ? id_of(b, key, used, id) : id_of(b, bytes, len, id);
    free(key);
    free(chars);
    return status;
}

/* True if decoding shows U+FFFD: broken bytes, or the character itself. */
static bool shows_replacement(const char *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t step;
        uint32_t code;
        if (di_utf8_next((const uint8_t *)bytes + at, len - at, &step, &code) != DI_UTF8_CHAR || code == 0xfffd)
            return true;
        at += step;
    }
    return false;
}

static di_status map_token(struct builder *b, const char *bytes, size_t len, int32_t *id)
{
    if (!shows_replacement(bytes, len))
        return normal_key(b, bytes, len, id);
    char *raw = di_calloc(2 * len + 1, 1); /* the vocabulary's own spelling */
    if (raw == NULL)
        return DI_FAIL_NOMEM(b->err, 2 * len);
    di_status status = id_of(b, raw, di_bytes_to_alphabet(bytes, len, raw), id);
    free(raw);
    return status;
}

di_status di_token_map_build(const di_tokenizer *tok, int32_t vocab_size, int32_t *map, int32_t *n_compressed,
                             struct di_error *err)
{
    struct builder b = {.err = err};
    size_t capacity = 16;
    while (capacity < 2 * (size_t)vocab_size)
        capacity *= 2;
    b.mask = capacity - 1;
    b.table = di_calloc(capacity, sizeof *b.table);
    di_status status = b.table != NULL ? DI_OK : DI_FAIL_NOMEM(err, capacity * sizeof *b.table);
    for (int32_t id = 0; id < vocab_size && status == DI_OK; id++) {
        size_t len;
        const char *bytes = di_tokenizer_token_bytes(tok, id, &len);
        if (bytes == NULL)
            status = DI_FAIL(err, DI_ERR_FORMAT, "the tokenizer has no token of id %d, which Engram's token map needs",
                             id);
        else
            status = map_token(&b, bytes, len, &map[id]);
    }
    *n_compressed = b.next_id;
    free(b.table);
    di_arena_free(&b.arena);
    return status;
}
