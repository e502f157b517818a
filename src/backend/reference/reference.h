/* backend/reference/reference.h - the scalar backend: the operations of host/ over scalar kernels. The executable
 * specification, kept for ever; every other backend is tested against it. */
#ifndef DI_REFERENCE_REFERENCE_H
#define DI_REFERENCE_REFERENCE_H

#include "ops/ops.h"

extern const struct di_ops di_reference_ops;

#endif
