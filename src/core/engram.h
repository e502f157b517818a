/* core/engram.h - the constants of Engram's hash, derived from the config (spec/model.md sections 13.2 to 13.4).
 *
 * Per table: one prime per hash column (ascending from engram_vocab_size, never reused across tables), the first row of
 * each column's range, and one odd multiplier per look-back shift (numpy's default_rng(10007 * layer)).
 */
#ifndef DI_CORE_ENGRAM_H
#define DI_CORE_ENGRAM_H

#include "core/config.h"

enum { DI_MAX_ENGRAM_COLUMNS = 128 };

struct di_engram_consts {
    int32_t columns;
    int64_t multipliers[DI_MAX_NGRAM];
    int64_t primes[DI_MAX_ENGRAM_COLUMNS];
    int64_t offsets[DI_MAX_ENGRAM_COLUMNS];
    int64_t rows; /* sum of the primes: rows of the table */
};

/* Constants of the table of Engram layer number `table` (ordinal, not layer id). Fails if the config's row count is not
 * the sum of the primes. */
di_status di_engram_consts_derive(const struct di_config *config, int32_t table, struct di_engram_consts *out,
                                  struct di_error *err);

/* Table rows of one position (section 13.5). window[max_ngram]: compressed ids, the position's own first, then looking
 * back; negative where there is no token (before the start, an image span, padding): that and every longer look-back hash
 * `pad`, the compressed pad id, instead. ids[columns], column (n - 2) * n_heads + head for n-grams of length n.
 * Ids must be below the engram_compressed_vocab_size that the constants were derived for: products then stay in 63 bits. */
void di_engram_hash(const struct di_engram_consts *consts, int32_t max_ngram, int32_t n_heads, const int32_t *window,
                    int32_t pad, int64_t *ids);

#endif
