/* base/utf8.h - UTF-8 as the Unicode standard (and Rust's from_utf8_lossy) reads it. */
#ifndef DI_BASE_UTF8_H
#define DI_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum di_utf8_kind {
    DI_UTF8_CHAR,       /* a whole character */
    DI_UTF8_BROKEN,     /* bytes that no continuation can mend: one U+FFFD stands for them (maximal subpart) */
    DI_UTF8_INCOMPLETE, /* the beginning of a character, cut off by the end */
};

/* Looks at bytes[0 .. size), size >= 1. *len: bytes concerned; *code: the character, if whole. */
enum di_utf8_kind di_utf8_next(const uint8_t *bytes, size_t size, size_t *len, uint32_t *code);

/* Offset of the first byte that is not part of valid UTF-8, or size if all is. */
size_t di_utf8_valid_prefix(const char *text, size_t size);

/* Writes 1 to 4 bytes; returns how many. */
size_t di_utf8_put(uint32_t code, char *out);

#endif
