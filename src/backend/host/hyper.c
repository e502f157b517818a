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
            row[k] = di_host_exp(row[k] - max);
            sum += row[k];
        }
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
};

static void hc_mix_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct hc_mix_job *job = arg;
    const struct di_hc_mix_args *a = job->a;
    int32_t hc = a->hc, width = hc * a->dim;
    const float *fn = a->fn.data;
    for (int64_t i = begin; i < end; i++) {
        const float *x = (const float *)a->x + i * width;
        float inverse = di_host_rms_inverse(job->dev, x, width, a->norm_eps);
        float *pre = a->pre + i * hc, *post = a->post + i * hc, *comb = a->comb + i * hc * hc;
        for (int32_t m = 0; m < hc * (2 + hc); m++) {
            float mix = job->dev->k->dot(x, fn + (int64_t)m * width, width) * inverse;
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
    struct hc_mix_job job = {dev, a};
    di_host_parallel(dev, a->n, hc_mix_rows, &job);
}

void di_host_hc_collapse(struct di_device *dev, const struct di_hc_collapse_args *a)
{
    for (int64_t i = 0; i < a->n; i++) {
        const float *x = (const float *)a->x + i * a->hc * a->dim, *pre = a->pre + i * a->hc;
        float *out = (float *)a->out + i * a->dim;
        for (int32_t c = 0; c < a->dim; c++) {
            float sum = 0.0F;
            for (int32_t k = 0; k < a->hc; k++)
                sum = fmaf(pre[k], x[(int64_t)k * a->dim + c], sum);
            out[c] = di_host_act(dev, sum);
        }
    }
}

void di_host_hc_expand(struct di_device *dev, const struct di_hc_expand_args *a)
{
    int32_t hc = a->hc;
    for (int64_t i = 0; i < a->n; i++) {
        float *x = (float *)a->x + i * hc * a->dim;
        const float *o = (const float *)a->o + i * a->dim;
        const float *post = a->post + i * hc, *comb = a->comb + i * hc * hc;
        for (int32_t c = 0; c < a->dim; c++) {
            float old[16]; /* DI_MAX_HC streams at most */
            for (int32_t j = 0; j < hc; j++)
                old[j] = x[(int64_t)j * a->dim + c];
            for (int32_t k = 0; k < hc; k++) {
                float sum = 0.0F;
                for (int32_t j = 0; j < hc; j++)
                    sum = fmaf(comb[j * hc + k], old[j], sum);
                x[(int64_t)k * a->dim + c] = di_host_act(dev, fmaf(post[k], o[c], sum));
            }
        }
    }
}

void di_host_norm(struct di_device *dev, const struct di_norm_args *a)
{
    const uint16_t *w = a->weight.data;
    for (int64_t i = 0; i < a->n; i++) {
        const float *x = (const float *)a->x + i * a->dim;
        float *out = (float *)a->out + i * a->dim;
        float inverse = di_host_rms_inverse(dev, x, a->dim, a->eps);
        for (int32_t c = 0; c < a->dim; c++)
            out[c] = di_host_act(dev, di_bf16_to_f32(w[c]) * (x[c] * inverse));
    }
}
