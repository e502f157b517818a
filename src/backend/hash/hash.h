/* backend/hash/hash.h - a backend that computes no model: every row's value is a hash of exactly what the operation reads.
 *
 * It runs the real forward pass, caches and scheduling without arithmetic, so that a test can ask of a row "did it read what it
 * should?" and get a yes or no instead of a tolerance. A value is 64 bits of: which operation, the weight's identity, the row's
 * position or token where the operation uses it, and the values it reads: its input rows; for attention the window rows (of this
 * step or of the ring) and the selected entries, each with the position under which it is read; for pooling the tail. A stale
 * ring slot, a page of another sequence, a row that speculation should have taken back, an unfilled tail: each changes the value
 * of every row that reads it, and of every row after that.
 *
 * HOW BUFFERS HOLD VALUES
 *   act rows     the value in the first 8 bytes (4 where a row is one float wide); what lies behind is neither written nor read.
 *                Residual streams are rows of their own.
 *   float rows   (f32_out of linear, mixes, gates, router weights) finite floats within -8 .. 8 spread from the value; readers
 *                hash all of them, so whatever edits one of them on its way (a penalty, a bias, a mask) counts.
 *   packed rows  (window, compressed entries, index keys) every byte of data and scale is spread from the value, and readers hash
 *                every byte: a copy that forgets the scales is seen. Tails hold float rows.
 *   integers     real ones: Engram ids, selections, blocks, expert ids and tokens are valid, so that whatever follows them works.
 *
 * SELECTION. Scores are 24-bit hashes of the query, the entry's index and the keys of ALL entries that may be chosen: one wrong
 * key reorders everything. Otherwise the contract's rules: visible entries, candidate blocks, the latest block always published,
 * greatest first, ties to the lowest index, ascending lists. Where every entry is chosen anyway no score can show a wrong key,
 * therefore attention hashes the index key of a selected entry along with its main row.
 *
 * THE DRAW. Penalties, biases and masks act as on any backend (host/'s own code). The draw hashes the whole row that they leave;
 * above temperature 1e-5 also temperature, filters (top_k, top_p, min_p: hashed, not applied), seed, choice and position. In one of
 * two draws (decided by that hash) the token follows from the position, and above 1e-5 seed and choice, alone: drafts of another
 * model must sometimes agree with the target, or speculation would never accept anything. In the others it follows from the hash.
 * Tokens are uniform over the vocabulary, passing over those whose logit is -inf; the end of sequence is as rare as any other. A
 * test that compares tokens only therefore misses a wrong row in about half of the single draws; logits miss none.
 * Log-probabilities are host/'s, of the logits as they came.
 *
 * Operations run in order on a stream, as on the CPU backend, by one thread whatever the option says. The numeric mode changes
 * nothing but the identity. Values do not depend on addresses or on the process: the weight's identity is its shape and some of its
 * bytes. Words are read in the machine's byte order. */
#ifndef DI_HASH_HASH_H
#define DI_HASH_HASH_H

#include "ops/ops.h"

extern const struct di_ops di_hash_ops;

#endif
