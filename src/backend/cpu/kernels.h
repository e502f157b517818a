/* backend/cpu/kernels.h - the kernel tables of this folder, one per instruction set. Private to cpu/. */
#ifndef DI_CPU_KERNELS_H
#define DI_CPU_KERNELS_H

#include "backend/host/host.h"

#if defined(__x86_64__)
extern const struct di_host_kernels di_cpu_avx2_kernels;   /* AVX2 and FMA */
extern const struct di_host_kernels di_cpu_avx512_kernels; /* also AVX-512 F, BW, VL and VNNI */
#endif

#endif
