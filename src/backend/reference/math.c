#include "backend/reference/math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static double pow2(int64_t n) /* -1022 <= n <= 1023 */
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double di_ref_exp_d(double x)
{
    if (!(x > -700.0)) /* NaN falls through both tests */
        return x <= -700.0 ? 0.0 : x;
    if (x > 700.0)
        return (double)INFINITY;
    /* x = n ln2 + r, |r| <= ln2/2; ln2 in two parts so that n * high is exact. */
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    double n = nearbyint(x * 0x1.71547652b82fep0);
    double r = (x - n * ln2_high) - n * ln2_low;
    double sum = 1.0; /* Taylor to r^13 / 13!, below 1e-17 */
    for (int k = 13; k >= 1; k--)
        sum = 1.0 + sum * r / k;
    return sum * pow2((int64_t)n);
}

double di_ref_log_d(double x)
{
    if (!(x > 0.0) || isinf(x))
        return x == 0.0 ? -(double)INFINITY : x > 0.0 ? x : (double)NAN;
    int exponent;
    double m = frexp(x, &exponent); /* exact; [0.5, 1) */
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2.0;
        exponent--;
    }
    /* log m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.172 */
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, sum = 0.0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2.0 * s * sum + exponent * 0x1.62e42fefa39efp-1;
}

float di_ref_exp(float x)
{
    return (float)di_ref_exp_d((double)x);
}

float di_ref_sigmoid(float x)
{
    return (float)(1.0 / (1.0 + di_ref_exp_d(-(double)x)));
}

float di_ref_softplus(float x)
{
    if (x > 20.0F)
        return x;
    double e = di_ref_exp_d(-fabs((double)x));
    double log1p_e = e < 1e-5 ? e - e * e / 2.0 + e * e * e / 3.0 : di_ref_log_d(1.0 + e);
    return (float)((x > 0.0F ? (double)x : 0.0) + log1p_e);
}

void di_ref_sincos(float x, float *sine, float *cosine)
{
    /* x = n pi/2 + r; pi/2 in three parts, the first two short enough for n * part to be exact. */
    const double p1 = 0x1.921fb50000000p0, p2 = 0x1.110b460000000p-26, p3 = 0x1.1a62633145c07p-54;
    double n = nearbyint((double)x * 0x1.45f306dc9c883p-1);
    double r = (((double)x - n * p1) - n * p2) - n * p3, r2 = r * r;
    double s = 1.0, c = 1.0; /* Taylor to r^19 and r^18 */
    for (int k = 18; k >= 2; k -= 2) {
        s = 1.0 - s * r2 / (k * (k + 1));
        c = 1.0 - c * r2 / (k * (k - 1));
    }
    s *= r;
    int64_t quadrant = (int64_t)n & 3;
    *sine = (float)(quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c);
    *cosine = (float)(quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s);
}
