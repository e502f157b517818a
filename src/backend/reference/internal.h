/* backend/reference/internal.h - what the files of this backend share. */
#ifndef DI_REFERENCE_INTERNAL_H
#define DI_REFERENCE_INTERNAL_H

#include "backend/reference/reference.h"
#include "base/threads.h"
#include "numerics/codes.h"

struct di_device {
    enum di_mode mode;
    struct di_team *team;
    struct di_error failure; /* first failed operation since the last sync; code DI_OK for none */
    /* Grow-only scratch: one block for the operation, one per team member. */
    unsigned char *shared, **member;
    size_t shared_bytes, member_bytes;
    /* F8 dot product and y += a * x by fused multiply-add, in the fastest form this processor has; same bits. */
    float (*dot)(const float *a, const float *w, int32_t k);
    void (*axpy)(float a, const float *x, float *y, int32_t n);
};

/* Rounds to the activation type. */
static inline float di_ref_act(const struct di_device *dev, float value)
{
    return dev->mode == DI_MODE_NATIVE ? di_bf16_round(value) : value;
}

/* Makes dev->shared and every dev->member[i] at least so large. False when memory runs out: the device is then marked
 * failed and the operation must return. Contents are unspecified. */
bool di_ref_reserve(struct di_device *dev, size_t shared_bytes, size_t member_bytes);

void di_ref_choose_kernels(struct di_device *dev); /* sets dot and axpy */

/* Runs fn over [0, count) on the team. */
static inline void di_ref_parallel(struct di_device *dev, int64_t count, di_range_fn fn, void *arg)
{
    di_team_run(dev->team, count, fn, arg);
}

/* 1 / sqrt(mean(x^2) + eps), the statistic of every norm. */
float di_ref_rms_inverse(const struct di_device *dev, const float *x, int32_t n, float eps);

/* Rotates the last rope_dim elements of one vector to `position`; sign -1 undoes it. Rounded to the activation type. */
void di_ref_rope(const struct di_device *dev, float *x, int32_t dim, int32_t rope_dim, const float *inv_freq,
                 int32_t position, float sign);

/* ---- matrix rows (linear.c) ---- */

/* One input row, made ready for a weight format. */
struct di_ref_input {
    const float *f;   /* values, dequantised where quantised */
    const int32_t *q; /* FP4 in native: 512 * e4m3 value */
    const float *s;   /* FP4 in native: scale per block of 32 */
};
/* Bytes of scratch for one prepared input row, and for one decoded weight row; multiples of 64. */
size_t di_ref_input_bytes(int32_t cols);
size_t di_ref_row_bytes(int32_t cols);
/* Prepares x[cols] in `scratch`. Quantises if the mode is native and the format asks for it. */
struct di_ref_input di_ref_prepare(const struct di_device *dev, enum di_format format, const float *x, int32_t cols,
                                   void *scratch);
/* Decodes row `row` of w into `scratch`; then di_ref_row_dot() multiplies it with inputs prepared for w's format. */
struct di_ref_input di_ref_weight_row(const struct di_device *dev, const struct di_weight *w, int64_t row,
                                      void *scratch);
float di_ref_row_dot(const struct di_device *dev, enum di_format format, const struct di_ref_input *x,
                     const struct di_ref_input *w, int32_t cols);

/* ---- operations ---- */
void di_ref_embed(struct di_device *, const struct di_embed_args *);
void di_ref_engram_hash(struct di_device *, const struct di_engram_hash_args *);
void di_ref_engram_lookup(struct di_device *, const struct di_engram_lookup_args *);
void di_ref_engram_mix(struct di_device *, const struct di_engram_mix_args *);
void di_ref_hc_mix(struct di_device *, const struct di_hc_mix_args *);
void di_ref_hc_collapse(struct di_device *, const struct di_hc_collapse_args *);
void di_ref_hc_expand(struct di_device *, const struct di_hc_expand_args *);
void di_ref_norm(struct di_device *, const struct di_norm_args *);
void di_ref_linear(struct di_device *, const struct di_linear_args *);
void di_ref_group_linear(struct di_device *, const struct di_group_linear_args *);
void di_ref_rope_op(struct di_device *, const struct di_rope_args *);
void di_ref_window_pack(struct di_device *, const struct di_window_pack_args *);
void di_ref_window_store(struct di_device *, const struct di_window_store_args *);
void di_ref_compress(struct di_device *, const struct di_compress_args *);
void di_ref_kv_append(struct di_device *, const struct di_kv_append_args *);
void di_ref_index_append(struct di_device *, const struct di_index_append_args *);
void di_ref_index_query(struct di_device *, const struct di_index_query_args *);
void di_ref_index_select(struct di_device *, const struct di_index_select_args *);
void di_ref_attention(struct di_device *, const struct di_attention_args *);
void di_ref_gate(struct di_device *, const struct di_gate_args *);
void di_ref_experts(struct di_device *, const struct di_experts_args *);
void di_ref_shared_expert(struct di_device *, const struct di_shared_expert_args *);
void di_ref_combine(struct di_device *, const struct di_combine_args *);
void di_ref_gather(struct di_device *, const struct di_gather_args *);
void di_ref_sample(struct di_device *, const struct di_sample_args *);

#endif
