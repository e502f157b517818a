/* backend/registry.h - which backends this build has. One row each; nothing outside backend/ names one. */
#ifndef DI_BACKEND_REGISTRY_H
#define DI_BACKEND_REGISTRY_H

#include "ops/ops.h"

/* Finds a backend for an accelerator ("cpu", "nvidia", "ascend") by name; "auto" takes the accelerator's first
 * that this machine can run and that computes the model. The message of a failure lists what this build has. */
di_status di_backend_find(const char *accelerator, const char *name, const struct di_ops **out, struct di_error *err);

#endif
