/* text/trie.h - the longest literal at a place. Private to text/. */
#ifndef DI_TEXT_TRIE_H
#define DI_TEXT_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

struct di_trie; /* lives in the arena it was made with */

di_status di_trie_make(struct di_arena *arena, struct di_trie **out, struct di_error *err);
/* Adds a literal of at least one byte; the last value given for it stays. */
di_status di_trie_add(struct di_trie *trie, const char *literal, size_t len, int32_t value, struct di_error *err);

/* Length of the longest literal that `text` begins with (0 for none); its value in *value. */
size_t di_trie_longest(const struct di_trie *trie, const char *text, size_t size, int32_t *value);

#endif
