/* apps/bench.h - `deepinfer bench`: a trace of requests, what was measured, and the report. docs/cli.md.
 *
 * bench.c makes the trace and runs it; bench_report.c prints.
 */
#ifndef BENCH_H
#define BENCH_H

#include "sampling.h"

struct bench_range {
    int64_t low, high;
};

/* What is to be run. */
struct bench_trace {
    int64_t requests, warmup;
    int64_t concurrency; /* closed loop: so many at a time; 0 with a rate */
    double rate;         /* open loop: arrivals a second */
    struct bench_range input, output;
    int64_t shared_prefix, prefix_groups;
    uint64_t seed;
    struct di_sampling_params params;
};

/* Seconds of one request, from the moment it was submitted. */
struct bench_times {
    double queued, first, per_token, total; /* per_token: of those behind the first; negative if there is just one */
};

struct bench_result {
    struct bench_times *times; /* [done] */
    size_t done;
    double seconds, client_seconds; /* wall time; CPU time of the thread that submits and collects */
    struct di_engine_stats stats;   /* counters of the measured part alone */
};

/* False if memory ran out. */
bool bench_print(const struct app_args *args, di_engine *engine, const struct bench_trace *trace,
                 const struct bench_result *result);

#endif
