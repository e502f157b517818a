/* text/bpe.h - byte-pair merging of one piece. Private to text/. */
#ifndef DI_TEXT_BPE_H
#define DI_TEXT_BPE_H

#include "deepinfer/tokenizer.h"

#include "base/error.h"

struct di_bpe;
struct di_bpe_run; /* scratch of one encode call */

/* `merges` to come, at most. */
di_status di_bpe_open(size_t merges, struct di_bpe **out, struct di_error *err);
void di_bpe_close(struct di_bpe *bpe);

/* Byte `byte` alone is token `id`. */
void di_bpe_set_byte(struct di_bpe *bpe, uint8_t byte, int32_t id);
/* Tokens left and right beside each other become `merged`. Ranks ascend with each call; a pair given twice has the
 * later rank, as in the `tokenizers` package. */
void di_bpe_add_merge(struct di_bpe *bpe, int32_t left, int32_t right, int32_t merged);

di_status di_bpe_begin(const struct di_bpe *bpe, struct di_bpe_run **out, struct di_error *err);
void di_bpe_end(struct di_bpe_run *run);

/* Appends the tokens of a piece: the pair of lowest rank merges first, the leftmost of equals. O(len log len). */
di_status di_bpe_encode(struct di_bpe_run *run, const char *piece, size_t len, di_token_list *out,
                        struct di_error *err);

#endif
