/* text/pattern.h - the regular expressions of tokenizer.json, written for PCRE2. Private to text/.
 *
 * The `tokenizers` package gives them to Oniguruma (its Ruby syntax). Read here is the part of that syntax that both
 * engines understand alike; everything else is refused, never passed on in the hope that it means the same:
 *
 *   characters, and backslash before punctuation or one of r n t
 *   \s \S                     the property White_Space (PCRE2's own \s adds U+180E)
 *   \p{X} \P{X}, X of LMNPS   with the characters that the installed PCRE2 is too old to know (new_characters.h)
 *   [...] [^...]              of those and of ranges; no nesting, no &&, no POSIX names
 *   a|b  (a)  (?:a)  (?>a)  (?=a)  (?!a)
 *   ? * + with ? or + behind, {n} {n,} {n,m} without; after a group only ?, so that no pattern takes exponential time
 */
#ifndef DI_TEXT_PATTERN_H
#define DI_TEXT_PATTERN_H

#include "base/error.h"

/* `pattern` is valid UTF-8; *out is for free(). A refusal is DI_ERR_UNSUPPORTED and names the pattern and the place. */
di_status di_pattern_translate(const char *pattern, char **out, struct di_error *err);

#endif
