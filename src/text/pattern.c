#include "text/pattern.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/new_characters.h"

enum { MAX_DEPTH = 32, MAX_DIGITS = 4 };

/* What stands before the place, and so what a quantifier would apply to. */
enum before { NOTHING, ATOM, GROUP, LOOKAHEAD, QUANTIFIED };

struct parser {
    const char *pattern;
    size_t at, size;
    char *out;
    size_t used, capacity;
    bool failed; /* an allocation; sticks */
    bool lookahead[MAX_DEPTH];
    int32_t depth;
    enum before before;
    struct di_error *err;
};

static const char white_space[] = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
                                  "\\x{202f}\\x{205f}\\x{3000}";

static di_status refuse(struct parser *p, const char *what)
{
    return DI_FAIL(p->err, DI_ERR_UNSUPPORTED, "%s at byte %zu of the pattern %s", what, p->at, p->pattern);
}

static void put(struct parser *p, const char *text, size_t len)
{
    if (p->failed)
        return;
    if (p->used + len + 1 > p->capacity) {
        size_t capacity = 2 * (p->used + len + 1);
        char *grown = di_realloc_array(p->out, capacity, 1);
        if (grown == NULL) {
            p->failed = true;
            return;
        }
        p->out = grown;
        p->capacity = capacity;
    }
    memcpy(p->out + p->used, text, len);
    p->used += len;
    p->out[p->used] = '\0';
}

static void put_text(struct parser *p, const char *text)
{
    put(p, text, strlen(text));
}

/* The next `len` bytes of the pattern as they are. */
static void copy(struct parser *p, size_t len)
{
    put(p, p->pattern + p->at, len);
    p->at += len;
}

static void put_category(struct parser *p, char category)
{
    char text[48];
    snprintf(text, sizeof text, "\\p{%c}", category);
    put_text(p, text);
    for (size_t i = 0; i < sizeof di_new_characters / sizeof di_new_characters[0]; i++) {
        const struct di_new_characters *n = &di_new_characters[i];
        if (n->category != category)
            continue;
        snprintf(text, sizeof text, "\\x{%x}-\\x{%x}", (unsigned)n->first, (unsigned)n->last);
        put_text(p, text);
    }
}

static bool is_punctuation(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/* The backslash at the place: a character, or a set of them (*is_set). */
static di_status escape(struct parser *p, bool in_class, bool *is_set)
{
    const char *from = p->pattern + p->at;
    char kind = from[1];
    *is_set = false;
    if (is_punctuation(kind) || kind == 'r' || kind == 'n' || kind == 't') {
        copy(p, 2);
        return DI_OK;
    }
    bool space = kind == 's' || kind == 'S', negated = kind == 'S' || kind == 'P';
    bool category = (kind == 'p' || kind == 'P') && from[2] == '{' && from[3] != '\0' && from[4] == '}' &&
                    strchr("LMNPS", from[3]) != NULL;
    if (!space && !category)
        return refuse(p, "an escape that this library does not know");
    if (negated && in_class)
        return refuse(p, "\\S or \\P inside a class");
    if (!in_class)
        put_text(p, negated ? "[^" : "[");
    if (space)
        put_text(p, white_space);
    else
        put_category(p, from[3]);
    if (!in_class)
        put_text(p, "]");
    p->at += space ? 2 : 5;
    *is_set = true;
    return DI_OK;
}

/* One character of a class, or a set; a plain hyphen is the caller's. */
static di_status class_item(struct parser *p, bool *is_set)
{
    char c = p->pattern[p->at];
    *is_set = false;
    if (c == '\0')
        return refuse(p, "a class without end");
    if (c == '\\')
        return escape(p, true, is_set);
    if (c == '[' || (c == '&' && p->pattern[p->at + 1] == '&'))
        return refuse(p, "a class inside a class");
    if (c == ']' || c == '-')
        return refuse(p, "an unescaped ] or - inside a class");
    size_t len;
    uint32_t code;
    di_utf8_next((const uint8_t *)p->pattern + p->at, p->size - p->at, &len, &code);
    copy(p, len);
    return DI_OK;
}

/* At the place: a hyphen that stands for itself, because the class begins or ends there. */
static bool plain_hyphen(const struct parser *p, bool first)
{
    return p->pattern[p->at] == '-' && (first || p->pattern[p->at + 1] == ']');
}

static di_status class(struct parser *p)
{
    bool first = true, is_set;
    copy(p, p->pattern[p->at + 1] == '^' ? 2 : 1);
    while (first || p->pattern[p->at] != ']') {
        if (plain_hyphen(p, first)) {
            put_text(p, "\\-");
            p->at++;
            is_set = true; /* begins no range */
        } else {
            DI_TRY(class_item(p, &is_set));
        }
        first = false;
        if (is_set || p->pattern[p->at] != '-' || p->pattern[p->at + 1] == ']')
            continue;
        copy(p, 1);
        DI_TRY(class_item(p, &is_set));
        if (is_set)
            return refuse(p, "a range that ends in a set");
    }
    copy(p, 1);
    p->before = ATOM;
    return DI_OK;
}

static di_status open_group(struct parser *p)
{
    const char *from = p->pattern + p->at;
    if (p->depth == MAX_DEPTH)
        return refuse(p, "groups too deep");
    if (from[1] != '?') {
        put_text(p, "(?:"); /* nothing here refers back to a group */
        p->at++;
    } else if (from[2] != '\0' && strchr(":>=!", from[2]) != NULL) {
        copy(p, 3);
    } else {
        return refuse(p, "a group that this library does not know");
    }
    p->lookahead[p->depth++] = from[1] == '?' && (from[2] == '=' || from[2] == '!');
    p->before = NOTHING;
    return DI_OK;
}

static di_status close_group(struct parser *p)
{
    if (p->depth == 0)
        return refuse(p, "an unmatched )");
    p->before = p->lookahead[--p->depth] ? LOOKAHEAD : GROUP;
    copy(p, 1);
    return DI_OK;
}

/* Digits at the place; -1 if there are none, or too many. */
static int32_t number(const struct parser *p, size_t *at)
{
    int32_t value = 0;
    size_t from = *at;
    for (; p->pattern[*at] >= '0' && p->pattern[*at] <= '9'; ++*at) {
        if (*at - from == MAX_DIGITS)
            return -1;
        value = 10 * value + (p->pattern[*at] - '0');
    }
    return *at > from ? value : -1;
}

static di_status quantifier(struct parser *p)
{
    char c = p->pattern[p->at], behind = p->pattern[p->at + 1];
    if (p->before != ATOM && !(p->before == GROUP && c == '?'))
        return refuse(p, "a quantifier that this library does not apply");
    p->before = QUANTIFIED;
    if (c != '{') {
        copy(p, behind == '?' || behind == '+' ? 2 : 1);
        return DI_OK;
    }
    size_t end = p->at + 1;
    int32_t low = number(p, &end), high = low;
    if (p->pattern[end] == ',') {
        end++;
        if (p->pattern[end] != '}')
            high = number(p, &end);
    }
    if (low < 0 || high < low || p->pattern[end] != '}')
        return refuse(p, "a quantifier other than {n} {n,} {n,m}");
    copy(p, end + 1 - p->at);
    return DI_OK;
}

static di_status item(struct parser *p)
{
    bool is_set;
    size_t len;
    uint32_t code;
    switch (p->pattern[p->at]) {
    case '\\':
        p->before = ATOM;
        return escape(p, false, &is_set);
    case '[':
        return class(p);
    case '(':
        return open_group(p);
    case ')':
        return close_group(p);
    case '?':
    case '*':
    case '+':
    case '{':
        return quantifier(p);
    case '|':
        p->before = NOTHING;
        copy(p, 1);
        return DI_OK;
    case '^':
    case '$':
    case '.':
    case ']':
    case '}':
        return refuse(p, "an unescaped ^ $ . ] or }");
    default:
        di_utf8_next((const uint8_t *)p->pattern + p->at, p->size - p->at, &len, &code);
        copy(p, len);
        p->before = ATOM;
        return DI_OK;
    }
}

di_status di_pattern_translate(const char *pattern, char **out, struct di_error *err)
{
    struct parser p = {.pattern = pattern, .size = strlen(pattern), .err = err};
    di_status status = DI_OK;
    put(&p, "", 0);
    while (p.at < p.size && status == DI_OK)
        status = item(&p);
    if (status == DI_OK && p.depth != 0)
        status = refuse(&p, "a group without end");
    if (status == DI_OK && p.failed)
        status = DI_FAIL_NOMEM(err, p.capacity);
    if (status != DI_OK) {
        free(p.out);
        return status;
    }
    *out = p.out;
    return DI_OK;
}
