#include "backend/host/math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "numerics/codes.h"

DI_VECTOR void di_host_round(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = di_f32_bits(x[i]);
        uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U), nan = bits | 0x400000U;
        x[i] = di_f32_from_bits(((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded) & 0xffff0000U);
    }
}

/* 1 / k!, the nearest doubles. */
static const double inverse_factorial[20] = {
    1.0,
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5040.0,
    1.0 / 40320.0,
    1.0 / 362880.0,
    1.0 / 3628800.0,
    1.0 / 39916800.0,
    1.0 / 479001600.0,
    1.0 / 6227020800.0,
    1.0 / 87178291200.0,
    1.0 / 1307674368000.0,
    1.0 / 20922789888000.0,
    1.0 / 355687428096000.0,
    1.0 / 6402373705728000.0,
    1.0 / 121645100408832000.0,
};

/* exp(x) for |x| <= 700. Without branches, so that loops over it become vectors. */
static inline double exp_inside(double x)
{
    /* x = n ln2 + r, |r| <= ln2/2; ln2 in two parts so that n * high is exact. The sum with 1.5 * 2^52 rounds to a whole number,
     * ties to even, and holds it in its low bits. */
    const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33, shift = 0x1.8p52;
    double shifted = x * 0x1.71547652b82fep0 + shift, n = shifted - shift, power;
    double r = (x - n * ln2_high) - n * ln2_low;
    double sum = inverse_factorial[13]; /* Taylor to r^13, below 1e-17 */
    for (int k = 12; k >= 0; k--)
        sum = sum * r + inverse_factorial[k];
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* 2^n, for -1022 <= n <= 1023 */
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

static inline double exp_core(double x)
{
    double inside = exp_inside(x), outside = x > 700.0 ? (double)INFINITY : x <= -700.0 ? 0.0 : x; /* NaN stays */
    return x > -700.0 && x <= 700.0 ? inside : outside;
}

double di_host_exp_d(double x)
{
    return exp_core(x);
}

DI_VECTOR void di_host_exp_all(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)exp_core((double)x[i]);
}

DI_VECTOR void di_host_sigmoid_all(const float *x, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(1.0 / (1.0 + exp_core(-(double)x[i])));
}

DI_VECTOR void di_host_weights(const float *x, int64_t n, float max, uint64_t *out)
{
    const double one = 0x1p52,
                 top = (double)max; /* the sum with one rounds to a whole number and holds it in its low bits */
    uint64_t one_bits;
    memcpy(&one_bits, &one, sizeof one_bits);
    if (isinf(max)) {
        for (int64_t i = 0; i < n; i++)
            out[i] = x[i] == max ? (uint64_t)1 << 40 : 0;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double below = (double)x[i] - top, sum;
        below = below > -700.0 ? below : -700.0; /* where the weight is 0 */
        sum = exp_inside(below) * 0x1p40 + one;
        uint64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        out[i] = bits - one_bits;
    }
}

double di_host_log_d(double x)
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
    static const double inverse_odd[12] = {1.0,        1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,  1.0 / 9.0,  1.0 / 11.0,
                                           1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0, 1.0 / 23.0};
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, sum = inverse_odd[11];
    for (int k = 10; k >= 0; k--)
        sum = sum * s2 + inverse_odd[k];
    return 2.0 * s * sum + exponent * 0x1.62e42fefa39efp-1;
}

float di_host_exp(float x)
{
    return (float)di_host_exp_d((double)x);
}

float di_host_sigmoid(float x)
{
    return (float)(1.0 / (1.0 + di_host_exp_d(-(double)x)));
}

float di_host_softplus(float x)
{
    if (x > 20.0F)
        return x;
    double e = di_host_exp_d(-fabs((double)x));
    double log1p_e = e < 1e-5 ? e - e * e / 2.0 + e * e * e / 3.0 : di_host_log_d(1.0 + e);
    return (float)((x > 0.0F ? (double)x : 0.0) + log1p_e);
}

void di_host_sincos(float x, float *sine, float *cosine)
{
    /* x = n pi/2 + r; pi/2 in three parts, the first two short enough for n * part to be exact. */
    const double p1 = 0x1.921fb50000000p0, p2 = 0x1.110b460000000p-26, p3 = 0x1.1a62633145c07p-54;
    double n = nearbyint((double)x * 0x1.45f306dc9c883p-1);
    double r = (((double)x - n * p1) - n * p2) - n * p3, r2 = r * r;
    double s = -inverse_factorial[19], c = -inverse_factorial[18]; /* Taylor to r^19 and r^18, signs alternating */
    for (int k = 16; k >= 0; k -= 2) {
        double sign = k % 4 == 0 ? 1.0 : -1.0;
        s = s * r2 + sign * inverse_factorial[k + 1];
        c = c * r2 + sign * inverse_factorial[k];
    }
    s *= r;
    int64_t quadrant = (int64_t)n & 3;
    *sine = (float)(quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c);
    *cosine = (float)(quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s);
}
