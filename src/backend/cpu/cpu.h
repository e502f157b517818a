/* backend/cpu/cpu.h - the CPU backend: the operations of host/ over vector kernels chosen by what the processor has. Gives the
 * bits of reference/. */
#ifndef DI_CPU_CPU_H
#define DI_CPU_CPU_H

#include "ops/ops.h"

extern const struct di_ops di_cpu_ops;

/* False where the processor has none of the instruction sets with kernels here (x86-64: AVX2 and FMA). */
bool di_cpu_available(void);

#endif
