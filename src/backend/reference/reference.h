/* backend/reference/reference.h - the scalar backend: slow, obvious, kept for ever. Device memory is host memory; every
 * operation is finished when its call returns. Activations are floats; in mode native they hold bf16 values. */
#ifndef DI_REFERENCE_REFERENCE_H
#define DI_REFERENCE_REFERENCE_H

#include "ops/ops.h"

extern const struct di_ops di_reference_ops;

#endif
