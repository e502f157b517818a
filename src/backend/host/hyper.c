/* Embedding, hyper-connections and norms. spec/model.md sections 4 and 5. */
#include <math.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/math.h"

float di_host_rms_inverse(const struct di_device *dev, const float *x, int32_t n, float eps)
{
    return 1.0F / sqrtf(dev->k->dot(x, x, n) / (float)n + eps);
}

void di_host_embed(struct di_device *dev, const struct di_embed_args *a)
{
    (void)dev; /* table values are bf16 in both modes */
    for (int32_t i = 0; i < a->n; i++) {
        float *x = (float *)a->x + (int64_t)i * a->hc * a->dim;
        di_weight_decode(&a->table, a->token[(int64_t)i * a->token_stride], 0, a->dim, x);
        for (int32_t k = 0; k < a->hc; k++) {
            if (k > 0)
                memcpy(x + (int64_t)k * a->dim, x, (size_t)a->dim * sizeof *x);
            a->pre[i * a->hc + k] = k == 0 ? 1.0F : 0.0F;
        }
    }
}

/* Rows, then columns; the first pass over rows is a softmax. hc_eps keeps every entry positive. */
static void sinkhorn(float *c, int32_t hc, int32_t iters, float eps)
{
    for (int32_t j = 0; j < hc; j++) {
        float *row = c + j * hc, max = row[0], sum = 0.0F;
        for (int32_t k = 1; k < hc; k++)
            max = row[k] > max ? row[k] : max;
        for (int32_t k = 0; k < hc; k++) {
            row[k] -= max;
        }
        di_host_exp_all(row, hc);
        for (int32_t k = 0; k < hc; k++)
            sum += row[k];
        for (int32_t k = 0; k < hc; k++)
            row[k] = row[k] / sum + eps;
    }
    for (int32_t pass = 0; pass < iters; pass++) {
        for (int32_t j = 0; pass > 0 && j < hc; j++) {
            float sum = 0.0F;
            for (int32_t k = 0; k < hc; k++)
                sum += c[j * hc + k];
            for (int32_t k = 0; k < hc; k++)
                c[j * hc + k] /= sum + eps;
        }
        for (int32_t k = 0; k < hc; k++) {
            float sum = 0.0F;
            for (int32_t j = 0; j < hc; j++)
                sum += c[j * hc + k];
            for (int32_t j = 0; j < hc; j++)
                c[j * hc + k] /= sum + eps;
        }
    }
}

struct hc_mix_job {
    struct di_device *dev;
    const struct di_hc_mix_args *a;
    const float *mixes; /* [n, (2 + hc) * hc] */
};

static void hc_mix_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct hc_mix_job *job = arg;
    const struct di_hc_mix_args *a = job->a;
    int32_t hc = a->hc, width = hc * a->dim;
    for (int64_t i = begin; i < end; i++) {
        float inverse = di_host_rms_inverse(job->dev, (const float *)a->x + i * width, width, a->norm_eps);
        float *pre = a->pre + i * hc, *post = a->post + i * hc, *comb = a->comb + i * hc * hc;
        for (int32_t m = 0; m < hc * (2 + hc); m++) {
            float mix = job->mixes[i * hc * (2 + hc) + m] * inverse;
            if (m < hc)
                pre[m] = di_host_sigmoid(mix * a->scale[0] + a->base[m]) + a->eps;
            else if (m < 2 * hc)
                post[m - hc] = 2.0F * di_host_sigmoid(mix * a->scale[1] + a->base[m]);
            else
                comb[m - 2 * hc] = mix * a->scale[2] + a->base[m];
        }
        sinkhorn(comb, hc, a->sinkhorn_iters, a->eps);
    }
}

void di_host_hc_mix(struct di_device *dev, const struct di_hc_mix_args *a)
{
    struct hc_mix_job job = {dev, a, di_host_multiply(dev, &a->fn, a->x, a->n)};
    if (job.mixes != NULL)
        di_host_elements(dev, a->n, (int64_t)a->hc * a->dim, hc_mix_rows, &job);
}

/* Channels of a row are taken in blocks, so that one row can be shared among members. */
enum { BLOCK = 64 };

static int64_t blocks_of(int32_t dim)
{
    return (dim + BLOCK - 1) / BLOCK;
}

/* Channels from `from` on that block holds. */
static int32_t block_width(int32_t dim, int32_t from)
{
    return dim - from < BLOCK ? dim - from : BLOCK;
}

/* sum[c] = fma(w, x[c], sum[c]) */
DI_VECTOR static void add_scaled(float w, const float *x, int32_t n, float *sum)
{
    for (int32_t c = 0; c < n; c++)
        sum[c] = fmaf(w, x[c], sum[c]);
}

struct collapse_job {
    struct di_device *dev;
    const struct di_hc_collapse_args *a;
};

static void collapse_blocks(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct collapse_job *job = arg;
    const struct di_hc_collapse_args *a = job->a;
    for (int64_t at = begin; at < end; at++) {
        int64_t i = at / blocks_of(a->dim);
        int32_t from = (int32_t)(at % blocks_of(a->dim)) * BLOCK, n = block_width(a->dim, from);
        float *out = (float *)a->out + i * a->dim + from;
        memset(out, 0, (size_t)n * sizeof *out);
        for (int32_t k = 0; k < a->hc; k++)
            add_scaled(a->pre[i * a->hc + k], (const float *)a->x + (i * a->hc + k) * a->dim + from, n, out);
        di_host_acts(job->dev, out, n);
    }
}

void di_host_hc_collapse(struct di_device *dev, const struct di_hc_collapse_args *a)
{
    struct collapse_job job = {dev, a};
    di_host_elements(dev, a->n * blocks_of(a->dim), (int64_t)a->hc * BLOCK, collapse_blocks, &job);
}

struct expand_job {
    struct di_device *dev;
    const struct di_hc_expand_args *a;
};

static void expand_blocks(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct expand_job *job = arg;
    const struct di_hc_expand_args *a = job->a;
    int32_t hc = a->hc;
    for (int64_t at = begin; at < end; at++) {
        int64_t i = at / blocks_of(a->dim);
        int32_t from = (int32_t)(at % blocks_of(a->dim)) * BLOCK, n = block_width(a->dim, from);
        float *x = (float *)a->x + i * hc * a->dim + from, old[16][BLOCK]; /* DI_MAX_HC streams at most */
        for (int32_t j = 0; j < hc; j++)
            memcpy(old[j], x + (int64_t)j * a->dim, (size_t)n * sizeof *x);
        for (int32_t k = 0; k < hc; k++) {
            float *out = x + (int64_t)k * a->dim;
            memset(out, 0, (size_t)n * sizeof *out);
            for (int32_t j = 0; j < hc; j++)
                add_scaled(a->comb[(i * hc + j) * hc + k], old[j], n, out);
            add_scaled(a->post[i * hc + k], (const float *)a->o + i * a->dim + from, n, out);
            di_host_acts(job->dev, out, n);
        }
    }
}

void di_host_hc_expand(struct di_device *dev, const struct di_hc_expand_args *a)
{
    struct expand_job job = {dev, a};
    di_host_elements(dev, a->n * blocks_of(a->dim), (int64_t)a->hc * a->hc * BLOCK, expand_blocks, &job);
}

/* out = w * (x * inverse), w in bf16 */
DI_VECTOR static void scale_row(const float *x, float inverse, const uint16_t *w, int32_t n, float *out)
{
    for (int32_t c = 0; c < n; c++)
        out[c] = di_bf16_to_f32(w[c]) * (x[c] * inverse);
}

struct norm_job {
    struct di_device *dev;
    const struct di_norm_args *a;
};

static void norm_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct norm_job *job = arg;
    const struct di_norm_args *a = job->a;
    for (int64_t i = begin; i < end; i++) {
        const float *x = (const float *)a->x + i * a->dim;
        float *out = (float *)a->out + i * a->dim;
        scale_row(x, di_host_rms_inverse(job->dev, x, a->dim, a->eps), a->weight.data, a->dim, out);
        di_host_acts(job->dev, out, a->dim);
    }
}

void di_host_norm(struct di_device *dev, const struct di_norm_args *a)
{
    struct norm_job job = {dev, a};
    di_host_elements(dev, a->n, a->dim, norm_rows, &job);
}
