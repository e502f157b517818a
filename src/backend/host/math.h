/* backend/host/math.h - exp, log, sin and cos, computed in double by plain operations and rounded once.
 *
 * The platform's libm picks its version by processor, so the token path does not use it (docs/numerics.md). Errors are
 * below 0.51 ulp of float in the ranges the model uses.
 */
#ifndef DI_HOST_MATH_H
#define DI_HOST_MATH_H

#include <stdint.h>

/* For loops over independent elements: also compiled for AVX2 with FMA, taken where the processor has them. C's fmaf gives the
 * bits of the instruction, and nothing here is a sum that a compiler may reorder, so both give the same bits. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(DI_SANITIZED)
#define DI_VECTOR __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define DI_VECTOR
#endif

/* x := bf16(x), as di_bf16_round(). */
void di_host_round(float *x, int64_t n);

double di_host_exp_d(double x);
double di_host_log_d(double x); /* x > 0 */

float di_host_exp(float x);
/* x := exp(x), and out = sigmoid(x): the same bits for many. */
void di_host_exp_all(float *x, int64_t n);
void di_host_sigmoid_all(const float *x, int64_t n, float *out);
/* out = exp(x - max) * 2^40, rounded to a whole number: the weights of a softmax, whose sums are exact in any order. No x may be
 * greater than max; equal to it, also where both are infinite, it weighs 2^40. */
void di_host_weights(const float *x, int64_t n, float max, uint64_t *out);
float di_host_sigmoid(float x);
float di_host_softplus(float x); /* ln(1 + e^x); x itself above 20 */
/* |x| up to about 1e8 radians. */
void di_host_sincos(float x, float *sine, float *cosine);

#endif
