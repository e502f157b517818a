#include "text/token_map.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/engram_folding.h"
#include "text/tokenizer_json.h"

enum {
    MAX_PARTS = 18,           /* characters of the longest decomposition, U+FDFA's */
    PROTECTED_SPACE = 0xe000, /* what step 6 puts in place of a lone space, and step 8 makes a space again */
};

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

static bool in_ranges(const struct di_fold_range *ranges, size_t count, utf8proc_int32_t c)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= c;
}

#define IN_RANGES(ranges, c) in_ranges((ranges), sizeof(ranges) / sizeof((ranges)[0]), (c))

static bool is_mark(utf8proc_int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME)
        return !IN_RANGES(di_fold_kept, c);
    return IN_RANGES(di_fold_dropped, c);
}

/* One character to one: what the full mapping makes longer, U+0130, is decomposed before. */
static utf8proc_int32_t lower(utf8proc_int32_t c)
{
    size_t count = sizeof di_fold_lower / sizeof di_fold_lower[0];
    for (size_t i = 0; i < count && di_fold_lower[i].from <= c; i++)
        if (di_fold_lower[i].from == c)
            return di_fold_lower[i].to;
    return utf8proc_tolower(c);
}

/* Steps 1 to 5 of section 13.1 for one more character. NFKC and then NFD is the compatibility decomposition; the order of
 * marks, which it also settles, is of no account because they are dropped. */
static di_status fold_char(utf8proc_int32_t c, utf8proc_int32_t *text, size_t *count, struct di_error *err)
{
    utf8proc_int32_t parts[MAX_PARTS] = {c};
    int boundary = 0;
    utf8proc_ssize_t n = 1;
    if (!IN_RANGES(di_fold_whole, c))
        n = utf8proc_decompose_char(c, parts, MAX_PARTS, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &boundary);
    if (n < 0 || n > MAX_PARTS)
        return DI_FAIL(err, DI_ERR_INTERNAL, "U+%04X decomposes into %td characters", (unsigned)c, (ptrdiff_t)n);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        if (is_mark(parts[i]))
            continue;
        utf8proc_int32_t small = lower(parts[i]);
        if (is_blank(small)) {
            if (*count > 0 && text[*count - 1] == ' ')
                continue;
            small = ' ';
        }
        text[(*count)++] = small;
    }
    return DI_OK;
}

/* Steps 6 to 8 in place; returns the new count. */
static size_t trim(utf8proc_int32_t *text, size_t count)
{
    size_t begin = 0, end = count;
    if (count == 1 && text[0] == ' ')
        return 1; /* a lone space is kept */
    while (begin < end && is_white_space(text[begin]))
        begin++;
    while (end > begin && is_white_space(text[end - 1]))
        end--;
    memmove(text, text + begin, (end - begin) * sizeof *text);
    for (size_t i = 0; i < end - begin; i++)
        if (text[i] == PROTECTED_SPACE) /* from the token's own text */
            text[i] = ' ';
    return end - begin;
}

/* The key of a token whose bytes are valid UTF-8: normalised text, or the text itself where that is empty. */
static di_status normal_key(struct builder *b, const char *bytes, size_t len, int32_t *id)
{
    size_t count = 0, used = 0;
    di_status status = DI_OK;
    /* The longest decomposition is MAX_PARTS characters of a character of three bytes; then 4 bytes for each. */
    utf8proc_int32_t *chars = di_calloc(len + 1, MAX_PARTS * sizeof *chars);
    if (chars == NULL)
        return DI_FAIL_NOMEM(b->err, (len + 1) * MAX_PARTS * sizeof *chars);
    for (size_t at = 0, step; at < len && status == DI_OK; at += step) {
        uint32_t code;
        di_utf8_next((const uint8_t *)bytes + at, len - at, &step, &code);
        status = fold_char((utf8proc_int32_t)code, chars, &count, b->err);
    }
    if (status == DI_OK) {
        char *key = (char *)chars; /* at most as long as the characters it is made of */
        count = trim(chars, count);
        for (size_t i = 0; i < count; i++) {
            utf8proc_int32_t c = chars[i];
            used += di_utf8_put((uint32_t)c, key + used);
        }
        status = used != 0 ? id_of(b, key, used, id) : id_of(b, bytes, len, id);
    }
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

static di_status map_token(struct builder *b, const struct di_token *token, int32_t *id)
{
    const char *bytes = token->bytes;
    size_t len = token->len;
    if (!shows_replacement(bytes, len))
        return normal_key(b, bytes, len, id);
    if (token->literal)
        return id_of(b, bytes, len, id);
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
        if (id >= tok->vocab_size || tok->tokens[id].bytes == NULL)
            status = DI_FAIL(err, DI_ERR_FORMAT, "the tokenizer has no token of id %d, which Engram's token map needs",
                             id);
        else
            status = map_token(&b, &tok->tokens[id], &map[id]);
    }
    *n_compressed = b.next_id;
    free(b.table);
    di_arena_free(&b.arena);
    return status;
}
