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

#endif
