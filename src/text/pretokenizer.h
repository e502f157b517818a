/* text/pretokenizer.h - cuts text into the pieces within which BPE merges. Private to text/.
 *
 * A sequence of splits, each a regular expression: matches and the gaps between them both become pieces, and the next
 * split cuts each piece anew, seeing nothing of its neighbours. Patterns are those of tokenizer.json;
 * text/pattern.h says which of them are read, and how Oniguruma's classes are reproduced with PCRE2.
 */
#ifndef DI_TEXT_PRETOKENIZER_H
#define DI_TEXT_PRETOKENIZER_H

#include <stddef.h>

#include "base/error.h"

struct di_pretokenizer;
struct di_pretokenizer_run; /* match state of one encode call */

di_status di_pretokenizer_open(struct di_pretokenizer **out, struct di_error *err);
void di_pretokenizer_close(struct di_pretokenizer *pre);

/* Appends a split. The pattern is UTF-8; one that can match nothing is refused. */
di_status di_pretokenizer_add(struct di_pretokenizer *pre, const char *pattern, struct di_error *err);

di_status di_pretokenizer_begin(const struct di_pretokenizer *pre, struct di_pretokenizer_run **out,
                                struct di_error *err);
void di_pretokenizer_end(struct di_pretokenizer_run *run);

/* Calls emit(user, piece, len) for each piece of `text` (valid UTF-8) in order. Stops at the first failure. */
typedef di_status (*di_piece_fn)(void *user, const char *piece, size_t len, struct di_error *err);
di_status di_pretokenizer_split(struct di_pretokenizer_run *run, const char *text, size_t len, di_piece_fn emit,
                                void *user, struct di_error *err);

#endif
