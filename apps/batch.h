/* apps/batch.h - `deepinfer run --input`: requests from a file of JSON lines, results to another as they finish. docs/cli.md. */
#ifndef BATCH_H
#define BATCH_H

#include "sampling.h"

/* base: the parameters of requests that do not say otherwise. Returns an exit code. */
int app_batch(const struct app_args *args, const struct di_sampling_params *base, bool bos);

#endif
