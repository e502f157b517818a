/* The kernel table for AVX2 and FMA; the linears lie in avx2_f8.c and avx2_r1.c, their inputs in avx2_prepare.c. */
#include "backend/cpu/avx2.h"
#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
#include <math.h>

TARGET float di_avx2_dot(const float *a, const float *w, int32_t k)
{
    if (k % 32 != 0)
        return di_host_dot(a, w, k);
    __m256 acc = _mm256_setzero_ps();
    for (int32_t i = 0; i < k; i += 32) {
        __m256 x[4], y[4];
        di_load_chains(a + i, x);
        di_load_chains(w + i, y);
        UNROLL
        for (int32_t j = 0; j < 4; j++)
            acc = _mm256_fmadd_ps(x[j], y[j], acc);
    }
    return di_sum_chains(acc);
}

TARGET void di_avx2_axpy(float a, const float *x, float *y, int32_t n)
{
    __m256 scale = _mm256_set1_ps(a);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(scale, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

struct di_host_input di_avx2_prepare_any(enum di_host_rule rule, const float *x, int32_t cols, void *room)
{
    return cols % 32 == 0 ? di_avx2_prepare(rule, x, cols, room) : di_host_prepare(rule, x, cols, room);
}

static void products(enum di_host_rule rule, const struct di_weight *w, int64_t begin, int64_t end,
                     const struct di_host_pair *pairs, int32_t n, void *scratch)
{
    if (w->cols % 32 != 0)
        di_host_products(rule, w, begin, end, pairs, n, scratch);
    else if (rule == DI_RULE_R1 || rule == DI_RULE_R1_INT8)
        di_avx2_products_r1(rule == DI_RULE_R1_INT8, w, begin, end, pairs, n, scratch);
    else
        di_avx2_products_f8(w, begin, end, pairs, n, scratch);
}

size_t di_avx2_product_bytes(int32_t cols, int32_t n)
{
    size_t most = di_host_product_bytes(cols, n), f8 = di_avx2_bytes_f8(cols, n), r1 = di_avx2_bytes_r1(cols, n);
    most = f8 > most ? f8 : most;
    return r1 > most ? r1 : most;
}

const struct di_host_kernels di_cpu_avx2_kernels = {
    .name = "cpu-avx2",
    .dot = di_avx2_dot,
    .axpy = di_avx2_axpy,
    .prepare = di_avx2_prepare_any,
    .products = products,
    .product_bytes = di_avx2_product_bytes,
    .unpack_key = di_avx2_unpack_key,
    .scores = di_avx2_scores,
    .blend = di_avx2_blend,
    .restore = di_avx2_restore,
};
#endif
