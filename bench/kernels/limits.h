/* limits.h - what this machine can do at this moment: the rate of reading memory and of fp32 multiply-adds.
 *
 * Neighbours and clock changes move both by factors, so they are measured right before and right after what they are
 * compared with, on as many threads. x86-64 with AVX2 and FMA takes vector code, anything else plain C.
 */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include "base/threads.h"

struct bench_limits;

/* `bytes` of memory are read in turn; far more than the caches hold. `team` stays the caller's. */
di_status bench_limits_open(struct di_team *team, size_t bytes, struct bench_limits **out, struct di_error *err);
void bench_limits_close(struct bench_limits *limits);

/* Each runs for about `seconds` on the whole team. */
double bench_read_rate(struct bench_limits *limits, double seconds); /* bytes a second */
double bench_fma_rate(struct bench_limits *limits, double seconds);  /* multiply-adds a second */

/* "AVX2" or "plain C". */
const char *bench_limits_kind(void);

#endif
