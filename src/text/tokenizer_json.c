#include "text/tokenizer_json.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "text/byte_alphabet.h"
#include "text/trie.h"

enum { MAX_IDS = 1 << 22 };

/* A field that means more than this library does, unless it has the one value that means nothing. */
static di_status expect_null(const json_t *object, const char *path, const char *key, struct di_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value))
        return DI_OK;
    return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s%s is set; this library does without it", path, key);
}

static di_status expect_false(const json_t *object, const char *path, const char *key, struct di_error *err)
{
    bool value;
    DI_TRY(di_json_get_bool_opt(object, path, key, false, &value, err));
    if (value)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s.%s is true; this library does without it", path, key);
    return DI_OK;
}

static di_status expect_text(const json_t *object, const char *path, const char *key, const char *wanted,
                             struct di_error *err)
{
    const char *value;
    DI_TRY(di_json_get_string_opt(object, path, key, "(absent)", &value, err));
    if (strcmp(value, wanted) != 0)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s.%s is \"%s\"; this library reads \"%s\" only", path, key, value,
                       wanted);
    return DI_OK;
}

/* No field but those of `known` (ends with NULL): what an unknown one would mean cannot be honoured. */
static di_status expect_known(const json_t *object, const char *path, const char *const known[], struct di_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] == NULL)
            return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s%s%s is a field that this library does not know", path,
                           path[0] != '\0' ? "." : "", key);
    }
    return DI_OK;
}

static const char *const byte_level_fields[] = {"type", "add_prefix_space", "trim_offsets", "use_regex", NULL};

/* ---------------------------------------------------------------------------------------------------------------------
 * Tokens. */

static di_status set_token(struct di_tokenizer *tok, int32_t id, const char *text, struct di_error *err)
{
    size_t size = strlen(text);
    char *bytes = di_arena_alloc(&tok->arena, size + 1, 1);
    if (bytes == NULL)
        return DI_FAIL_NOMEM(err, size);
    tok->tokens[id].literal = !di_alphabet_to_bytes(text, size, bytes, &size);
    tok->tokens[id].len = (uint32_t)size;
    tok->tokens[id].bytes = bytes;
    return DI_OK;
}

/* vocab_size = greatest id of vocabulary and added tokens + 1. */
static di_status count_ids(struct di_tokenizer *tok, json_t *vocab, const json_t *added, struct di_error *err)
{
    const char *text;
    json_t *value;
    int64_t greatest = -1;
    json_object_foreach (vocab, text, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= MAX_IDS)
            return DI_FAIL(err, DI_ERR_FORMAT, "model.vocab: token \"%s\" has no id in 0..%d", text, MAX_IDS - 1);
        greatest = json_integer_value(value) > greatest ? json_integer_value(value) : greatest;
    }
    size_t index;
    json_array_foreach (added, index, value) {
        int64_t id;
        DI_TRY(di_json_get_i64(value, "added_tokens", "id", &id, err));
        if (id < 0 || id >= MAX_IDS)
            return DI_FAIL(err, DI_ERR_FORMAT, "added_tokens[%zu].id is %lld; it must lie in 0..%d", index,
                           (long long)id, MAX_IDS - 1);
        greatest = id > greatest ? id : greatest;
    }
    tok->vocab_size = (int32_t)(greatest + 1);
    tok->tokens = di_arena_alloc(&tok->arena, (size_t)tok->vocab_size, sizeof *tok->tokens);
    return tok->tokens != NULL ? DI_OK : DI_FAIL_NOMEM(err, (size_t)tok->vocab_size * sizeof *tok->tokens);
}

static size_t hash_bytes(const char *bytes, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325U; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3U;
    return (size_t)(hash ^ hash >> 32);
}

static int32_t *lookup_slot(const struct di_tokenizer *tok, const char *bytes, size_t len)
{
    size_t at = hash_bytes(bytes, len) & tok->by_bytes_mask;
    for (;; at = (at + 1) & tok->by_bytes_mask) {
        int32_t id = tok->by_bytes[at];
        if (id < 0 || (tok->tokens[id].len == len && memcmp(tok->tokens[id].bytes, bytes, len) == 0))
            return &tok->by_bytes[at];
    }
}

int32_t di_tokenizer_lookup(const struct di_tokenizer *tok, const char *bytes, size_t len)
{
    return *lookup_slot(tok, bytes, len);
}

static di_status load_vocab(struct di_tokenizer *tok, json_t *vocab, struct di_error *err)
{
    const char *text;
    json_t *value;
    size_t capacity = 16;
    while (capacity < 2 * json_object_size(vocab))
        capacity *= 2;
    tok->by_bytes = di_arena_alloc(&tok->arena, capacity, sizeof *tok->by_bytes);
    if (tok->by_bytes == NULL)
        return DI_FAIL_NOMEM(err, capacity * sizeof *tok->by_bytes);
    tok->by_bytes_mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++)
        tok->by_bytes[i] = -1;
    json_object_foreach (vocab, text, value) {
        int32_t id = (int32_t)json_integer_value(value);
        if (tok->tokens[id].bytes != NULL)
            return DI_FAIL(err, DI_ERR_FORMAT, "model.vocab: token \"%s\" has the id %d of another token", text, id);
        DI_TRY(set_token(tok, id, text, err));
        if (!tok->tokens[id].literal)
            *lookup_slot(tok, tok->tokens[id].bytes, tok->tokens[id].len) = id;
    }
    return DI_OK;
}

/* The `tokenizers` package numbers added tokens itself: content that the vocabulary has keeps its id there, other content
 * gets the next one free. A file that says otherwise means something that the package does not do. */
static di_status check_added(const struct di_tokenizer *tok, const json_t *vocab, const char *path, const char *content,
                             int64_t id, int64_t next, struct di_error *err)
{
    const json_t *base = json_object_get(vocab, content);
    int64_t expected = base != NULL ? json_integer_value(base) : next;
    if (content[0] == '\0')
        return DI_FAIL(err, DI_ERR_FORMAT, "%s.content is missing or empty", path);
    if (tok->tokens[id].added)
        return DI_FAIL(err, DI_ERR_FORMAT, "%s.id %lld is given twice", path, (long long)id);
    if (di_tokenizer_find_added(tok, content) >= 0)
        return DI_FAIL(err, DI_ERR_FORMAT, "%s.content \"%s\" is given twice", path, content);
    if (id != expected)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s.id is %lld; the vocabulary and the order of the list make it %lld",
                       path, (long long)id, (long long)expected);
    if (base == NULL && tok->tokens[id].bytes != NULL)
        return DI_FAIL(err, DI_ERR_FORMAT, "%s.id %lld is that of another token of model.vocab", path, (long long)id);
    return DI_OK;
}

static di_status load_added(struct di_tokenizer *tok, const json_t *vocab, const json_t *added, struct di_error *err)
{
    size_t index;
    json_t *entry;
    int64_t next = (int64_t)json_object_size(vocab);
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    json_array_foreach (added, index, entry) {
        char path[48];
        const char *content;
        int64_t id;
        bool special, normalized;
        snprintf(path, sizeof path, "added_tokens[%zu]", index);
        DI_TRY(expect_known(entry, path, known, err));
        DI_TRY(di_json_get_i64(entry, path, "id", &id, err));
        DI_TRY(di_json_get_string_opt(entry, path, "content", "", &content, err));
        DI_TRY(di_json_get_bool_opt(entry, path, "special", false, &special, err));
        DI_TRY(di_json_get_bool_opt(entry, path, "normalized", true, &normalized, err));
        DI_TRY(expect_false(entry, path, "single_word", err));
        DI_TRY(expect_false(entry, path, "lstrip", err));
        DI_TRY(expect_false(entry, path, "rstrip", err));
        DI_TRY(check_added(tok, vocab, path, content, id, next, err));
        next = id >= next ? id + 1 : next;
        struct di_token *token = &tok->tokens[id];
        DI_TRY(set_token(tok, (int32_t)id, content, err));
        token->added = true;
        token->special = special;
        token->normalized = normalized;
        if (tok->added[normalized] == NULL)
            DI_TRY(di_trie_make(&tok->arena, &tok->added[normalized], err));
        DI_TRY(di_trie_add(tok->added[normalized], content, strlen(content), (int32_t)id, err));
    }
    return DI_OK;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Merges. */

static di_status vocab_id(json_t *vocab, const char *text, size_t len, size_t rank, int32_t *id, struct di_error *err)
{
    const json_t *value = json_object_getn(vocab, text, len);
    if (value == NULL)
        return DI_FAIL(err, DI_ERR_FORMAT, "model.merges[%zu]: \"%.*s\" is not in model.vocab", rank, (int)len, text);
    *id = (int32_t)json_integer_value(value);
    return DI_OK;
}

/* "left right", or ["left", "right"]. */
static di_status split_merge(const json_t *entry, size_t rank, const char *part[2], size_t len[2], struct di_error *err)
{
    if (json_is_array(entry) && json_array_size(entry) == 2 && json_is_string(json_array_get(entry, 0)) &&
        json_is_string(json_array_get(entry, 1))) {
        for (size_t i = 0; i < 2; i++) {
            part[i] = json_string_value(json_array_get(entry, i));
            len[i] = json_string_length(json_array_get(entry, i));
        }
        return DI_OK;
    }
    const char *text = json_string_value(entry), *space = text != NULL ? strchr(text, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL)
        return DI_FAIL(err, DI_ERR_FORMAT, "model.merges[%zu] is not a pair of tokens", rank);
    part[0] = text;
    len[0] = (size_t)(space - text);
    part[1] = space + 1;
    len[1] = strlen(space + 1);
    return DI_OK;
}

static di_status load_merges(struct di_tokenizer *tok, json_t *vocab, const json_t *merges, struct di_error *err)
{
    size_t rank;
    json_t *entry;
    DI_TRY(di_bpe_open(json_array_size(merges), &tok->bpe, err));
    for (int32_t byte = 0; byte < 256; byte++) {
        char one = (char)byte;
        int32_t id = di_tokenizer_lookup(tok, &one, 1);
        if (id < 0)
            return DI_FAIL(err, DI_ERR_UNSUPPORTED, "model.vocab has no token for byte 0x%02x", (unsigned)byte);
        di_bpe_set_byte(tok->bpe, (uint8_t)byte, id);
    }
    json_array_foreach (merges, rank, entry) {
        const char *part[2];
        size_t len[2];
        int32_t id[3] = {0};
        DI_TRY(split_merge(entry, rank, part, len, err));
        DI_TRY(vocab_id(vocab, part[0], len[0], rank, &id[0], err));
        DI_TRY(vocab_id(vocab, part[1], len[1], rank, &id[1], err));
        char joined[512];
        if (len[0] + len[1] > sizeof joined)
            return DI_FAIL(err, DI_ERR_LIMIT, "model.merges[%zu] makes a token of %zu bytes; %zu at most", rank,
                           len[0] + len[1], sizeof joined);
        memcpy(joined, part[0], len[0]);
        memcpy(joined + len[0], part[1], len[1]);
        DI_TRY(vocab_id(vocab, joined, len[0] + len[1], rank, &id[2], err));
        di_bpe_add_merge(tok->bpe, id[0], id[1], id[2]);
    }
    return DI_OK;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The other sections. */

static di_status load_split(struct di_tokenizer *tok, const json_t *step, const char *path, struct di_error *err)
{
    const json_t *pattern;
    const char *regex;
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const known_patterns[] = {"Regex", NULL};
    DI_TRY(expect_known(step, path, known, err));
    DI_TRY(expect_text(step, path, "behavior", "Isolated", err));
    DI_TRY(expect_false(step, path, "invert", err));
    DI_TRY(di_json_get_object(step, path, "pattern", &pattern, err));
    DI_TRY(di_json_get_string_opt(pattern, path, "Regex", NULL, &regex, err));
    if (regex == NULL)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s.pattern has no Regex", path);
    DI_TRY(expect_known(pattern, path, known_patterns, err));
    di_status status = di_pretokenizer_add(tok->pre, regex, err);
    return status == DI_OK ? DI_OK : DI_PREFIX(err, status, "%s", path);
}

static di_status load_byte_level(const json_t *step, const char *path, struct di_error *err)
{
    bool use_regex;
    DI_TRY(expect_known(step, path, byte_level_fields, err));
    DI_TRY(expect_false(step, path, "add_prefix_space", err));
    DI_TRY(di_json_get_bool_opt(step, path, "use_regex", true, &use_regex, err));
    if (use_regex)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED,
                       "%s.use_regex is true; this library splits by the file's own patterns only", path);
    return DI_OK;
}

static di_status load_pre_tokenizer(struct di_tokenizer *tok, const json_t *root, struct di_error *err)
{
    const json_t *pre, *steps;
    size_t index, count;
    static const char *const known[] = {"type", "pretokenizers", NULL};
    DI_TRY(di_json_get_object(root, "", "pre_tokenizer", &pre, err));
    DI_TRY(expect_known(pre, "pre_tokenizer", known, err));
    DI_TRY(expect_text(pre, "pre_tokenizer", "type", "Sequence", err));
    steps = json_object_get(pre, "pretokenizers");
    count = json_array_size(steps);
    if (count == 0)
        return DI_FAIL(err, DI_ERR_FORMAT, "pre_tokenizer.pretokenizers is missing or empty");
    DI_TRY(di_pretokenizer_open(&tok->pre, err));
    for (index = 0; index < count; index++) {
        const json_t *step = json_array_get(steps, index);
        char path[64];
        const char *type;
        snprintf(path, sizeof path, "pre_tokenizer.pretokenizers[%zu]", index);
        DI_TRY(di_json_get_string_opt(step, path, "type", "(absent)", &type, err));
        if (strcmp(type, "Split") == 0 && index + 1 < count)
            DI_TRY(load_split(tok, step, path, err));
        else if (strcmp(type, "ByteLevel") == 0 && index + 1 == count)
            DI_TRY(load_byte_level(step, path, err));
        else
            return DI_FAIL(err, DI_ERR_UNSUPPORTED, "%s.type is \"%s\"; Split steps and a last ByteLevel are supported",
                           path, type);
    }
    return DI_OK;
}

static di_status load_model(struct di_tokenizer *tok, const json_t *root, struct di_error *err)
{
    const json_t *model;
    static const char *const known[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL};
    DI_TRY(di_json_get_object(root, "", "model", &model, err));
    DI_TRY(expect_known(model, "model", known, err));
    DI_TRY(expect_text(model, "model", "type", "BPE", err));
    DI_TRY(expect_null(model, "model.", "dropout", err));
    DI_TRY(expect_null(model, "model.", "unk_token", err));
    DI_TRY(expect_false(model, "model", "byte_fallback", err));
    DI_TRY(di_json_get_bool_opt(model, "model", "ignore_merges", false, &tok->ignore_merges, err));
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *affix;
        DI_TRY(di_json_get_string_opt(model, "model", affixes[i], "", &affix, err));
        if (affix[0] != '\0')
            return DI_FAIL(err, DI_ERR_UNSUPPORTED, "model.%s is set; this library does without it", affixes[i]);
    }
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    const json_t *added = json_object_get(root, "added_tokens");
    if (!json_is_object(vocab))
        return DI_FAIL(err, DI_ERR_FORMAT, "model.vocab is missing or not an object");
    if (!json_is_array(merges))
        return DI_FAIL(err, DI_ERR_FORMAT, "model.merges is missing or not a list");
    if (added != NULL && !json_is_array(added))
        return DI_FAIL(err, DI_ERR_FORMAT, "added_tokens is not a list");
    DI_TRY(count_ids(tok, vocab, added, err));
    DI_TRY(load_vocab(tok, vocab, err));
    DI_TRY(load_merges(tok, vocab, merges, err));
    return load_added(tok, vocab, added, err);
}

/* null, or as in the released file a Sequence of none. */
static di_status expect_no_normalizer(const json_t *root, struct di_error *err)
{
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *steps = json_object_get(normalizer, "normalizers");
    static const char *const known[] = {"type", "normalizers", NULL};
    DI_TRY(expect_known(normalizer, "normalizer", known, err));
    if (json_is_array(steps) && json_array_size(steps) == 0)
        return expect_text(normalizer, "normalizer", "type", "Sequence", err);
    return expect_null(root, "", "normalizer", err);
}

static di_status parse_root(struct di_tokenizer *tok, const json_t *root, struct di_error *err)
{
    const json_t *decoder, *post = json_object_get(root, "post_processor");
    const char *version;
    static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    if (!json_is_object(root))
        return DI_FAIL(err, DI_ERR_FORMAT, "not a JSON object");
    DI_TRY(expect_known(root, "", known, err));
    DI_TRY(di_json_get_string_opt(root, "", "version", "1.0", &version, err));
    if (strcmp(version, "1.0") != 0)
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "version is \"%s\"; this library reads \"1.0\"", version);
    DI_TRY(expect_null(root, "", "truncation", err));
    DI_TRY(expect_null(root, "", "padding", err));
    if (post != NULL && !json_is_null(post)) { /* that of byte-level BPE moves offsets, which nobody here looks at */
        DI_TRY(expect_text(post, "post_processor", "type", "ByteLevel", err));
        DI_TRY(expect_known(post, "post_processor", byte_level_fields, err));
    }
    DI_TRY(expect_no_normalizer(root, err));
    DI_TRY(di_json_get_object(root, "", "decoder", &decoder, err));
    DI_TRY(expect_text(decoder, "decoder", "type", "ByteLevel", err));
    DI_TRY(expect_known(decoder, "decoder", byte_level_fields, err));
    DI_TRY(load_pre_tokenizer(tok, root, err));
    return load_model(tok, root, err);
}

di_status di_tokenizer_parse(const char *json, size_t len, struct di_tokenizer *tok, struct di_error *err)
{
    json_t *root;
    DI_TRY(di_json_parse(json, len, "tokenizer", &root, err));
    di_status status = parse_root(tok, root, err);
    json_decref(root);
    return status;
}
