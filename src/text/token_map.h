/* text/token_map.h - the compressed token map of Engram (spec/model.md section 13.1).
 *
 * Every token's text is normalised (NFKC, NFD, marks dropped, lowercase, white space folded); tokens with equal keys share
 * one compressed id, numbered by first appearance. The released tokenizer gives 99,092. Built once when a model is opened.
 */
#ifndef DI_TEXT_TOKEN_MAP_H
#define DI_TEXT_TOKEN_MAP_H

#include "deepinfer/tokenizer.h"

#include "base/error.h"

/* Fills map[0 .. vocab_size) (caller's memory; vocab_size >= the tokenizer's; ids that the tokenizer lacks are an error
 * naming the id) and *n_compressed with the number of distinct keys. */
di_status di_token_map_build(const di_tokenizer *tok, int32_t vocab_size, int32_t *map, int32_t *n_compressed,
                             struct di_error *err);

#endif
