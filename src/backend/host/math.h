/* backend/host/math.h - exp, log, sin and cos, computed in double by plain operations and rounded once.
 *
 * The platform's libm picks its version by processor, so the token path does not use it (docs/numerics.md). Errors are
 * below 0.51 ulp of float in the ranges the model uses.
 */
#ifndef DI_HOST_MATH_H
#define DI_HOST_MATH_H

double di_host_exp_d(double x);
double di_host_log_d(double x); /* x > 0 */

float di_host_exp(float x);
float di_host_sigmoid(float x);
float di_host_softplus(float x); /* ln(1 + e^x); x itself above 20 */
/* |x| up to about 1e8 radians. */
void di_host_sincos(float x, float *sine, float *cosine);

#endif
