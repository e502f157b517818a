/* core/sampling.h - sampling parameters inside the library. What they are, and their checks: deepinfer/sampling.h. */
#ifndef DI_CORE_SAMPLING_H
#define DI_CORE_SAMPLING_H

#include "deepinfer/sampling.h"

#include "base/mem.h"

/* Copies parameters that have passed di_sampling_validate() with their lists and strings into the arena, so that *out outlives the
 * caller's. Empty lists become NULL. */
di_status di_sampling_copy(const struct di_sampling_params *params, struct di_arena *arena,
                           struct di_sampling_params *out, struct di_error *err);

#endif
