/* sample/history.h - which tokens a sequence has had and how often: what penalties look at.
 *
 *     di_history_open    with the prompt's tokens, count 0 each
 *     di_history_add     one more output token
 *     di_history_close
 *
 * Costs O(1) a token; the lists hold each token once, in the order of its first appearance.
 */
#ifndef DI_SAMPLE_HISTORY_H
#define DI_SAMPLE_HISTORY_H

#include <stdint.h>

#include "base/error.h"

struct di_history {
    int32_t *token, *count; /* [n]; count: times in the output */
    int32_t n, capacity;
    int32_t *table; /* [2 * capacity] open addressing: index into the lists, or -1 */
};

/* room: tokens that will be added at most; nothing is allocated after this. */
di_status di_history_open(const int32_t *prompt, int64_t n_prompt, int64_t room, struct di_history *out,
                          struct di_error *err);
void di_history_add(struct di_history *history, int32_t token);
void di_history_close(struct di_history *history);

#endif
