/* backend/host/host.h - the operations of backends whose device memory is the host's, over a handful of kernels.
 *
 * reference/ gives scalar kernels, cpu/ vector kernels; both compute the same bits. Device memory is host memory. A
 * backend takes the operations as they are (finished when the call returns) or behind a stream. Activations are floats; in mode native they hold bf16 values. This folder is
 * no backend: it is the part that such backends share. A backend may replace any slot of the table it is given.
 */
#ifndef DI_HOST_HOST_H
#define DI_HOST_HOST_H

#include "backend/host/math.h"
#include "base/threads.h"
#include "core/config.h"
#include "numerics/codes.h"
#include "ops/ops.h"

/* How a weight meets its inputs: format and mode decide (docs/numerics.md). */
enum di_host_rule {
    DI_RULE_F8,       /* order F8, inputs as they are */
    DI_RULE_F8_QUANT, /* order F8, inputs by act_quant8 */
    DI_RULE_R1,       /* order R1, inputs by act_quant8 */
    DI_RULE_R1_INT8,  /* order R1, inputs as int8 per block of 32 */
};

/* One input row of a matrix product, made ready for a rule. Which fields are filled is the kernels' affair. */
struct di_host_input {
    const float *f;   /* F8: values, dequantised where quantised, in the order that the kernels like */
    float largest;    /* F8, vector kernels: magnitude of the largest; NaN or infinity if there is one */
    const float *s;   /* R1: scale per block of 32 */
    const int32_t *q; /* R1, scalar kernels: 512 * e4m3 value, or the int8 */
    const int8_t
        *limbs; /* R1, vector kernels: q in bytes, the sums of these bytes, and which blocks need three limbs */
    const int32_t *corrections;
    const uint8_t *wide;
};

/* One product of a weight's rows: out[row] for the rows asked for. */
struct di_host_pair {
    const struct di_host_input *in;
    float *out;
};

/* What differs between such backends: speed, not bits. */
struct di_host_kernels {
    const char *name;
    /* Dot product in order F8, and y[i] = fma(a, x[i], y[i]). */
    float (*dot)(const float *a, const float *w, int32_t k);
    void (*axpy)(float a, const float *x, float *y, int32_t n);
    /* Makes x[cols] ready in `room` (di_host_input_bytes), 64-byte aligned. */
    struct di_host_input (*prepare)(enum di_host_rule rule, const float *x, int32_t cols, void *room);
    /* Rows [begin, end) of W times n inputs. Not rounded. scratch: product_bytes(cols, n). */
    void (*products)(enum di_host_rule rule, const struct di_weight *w, int64_t begin, int64_t end,
                     const struct di_host_pair *pairs, int32_t n, void *scratch);
    size_t (*product_bytes)(int32_t cols, int32_t n);
    /* Attention and index scores. A query prepared by DI_RULE_F8 and unpacked keys lie in the order that the kernels like. */
    void (*unpack_key)(const struct di_kv_rows *rows, int32_t row, float *key);
    /* out[h * out_stride + k] = the dot product, in order F8, of query h at queries + h * dim and key k at keys + k * dim. */
    void (*scores)(const float *queries, int32_t heads, const float *keys, int32_t count, int32_t dim, float *out,
                   int32_t out_stride);
    /* sums[h] += weights[h * stride + k] * key k, for ascending k, one fused multiply-add each. */
    void (*blend)(const float *weights, int32_t stride, int32_t heads, const float *keys, int32_t count, int32_t dim,
                  float *sums);
    /* From the kernels' order to the model's. */
    void (*restore)(const float *x, int32_t dim, float *out);
};

struct di_device {
    enum di_mode mode;
    const struct di_host_kernels *k;
    struct di_team *team;
    struct di_stream *stream; /* NULL: operations are finished when their call returns */
    struct di_error failure;  /* first failed operation since the last sync; code DI_OK for none */
    _Atomic bool broken;      /* there is one: set behind it, for other threads */
    /* Grow-only scratch: one block for the operation, one per team member. */
    unsigned char *shared, **member;
    size_t shared_bytes, member_bytes;
    float *products; /* of di_host_multiply, for operations that work on them further */
    size_t product_floats;
};

/* Rounds to the activation type. */
static inline float di_host_act(const struct di_device *dev, float value)
{
    return dev->mode == DI_MODE_ORACLE ? value : di_bf16_round(value);
}

/* Rounds all of them, unless the mode is oracle. */
static inline void di_host_acts(const struct di_device *dev, float *x, int64_t n)
{
    if (dev->mode != DI_MODE_ORACLE)
        di_host_round(x, n);
}

/* Makes dev->shared and every dev->member[i] at least so large. False when memory runs out: the device is then marked
 * failed and the operation must return. Contents are unspecified. */
bool di_host_reserve(struct di_device *dev, size_t shared_bytes, size_t member_bytes);

/* Runs fn over [0, count) on the team. */
static inline void di_host_parallel(struct di_device *dev, int64_t count, di_range_fn fn, void *arg)
{
    di_team_run(dev->team, count, fn, arg);
}

/* The same for `count` items of `each` elements: by the caller alone where a barrier would cost more. */
static inline void di_host_elements(struct di_device *dev, int64_t count, int64_t each, di_range_fn fn, void *arg)
{
    if (count * each < 16384)
        fn(arg, 0, count, 0);
    else
        di_host_parallel(dev, count, fn, arg);
}

/* 1 / sqrt(mean(x^2) + eps), the statistic of every norm. */
float di_host_rms_inverse(const struct di_device *dev, const float *x, int32_t n, float eps);

/* Rotates the last rope_dim elements of each head of x[heads, dim] to `position`; sign -1 undoes it. Rounded to the activation
 * type. */
void di_host_rope(const struct di_device *dev, float *x, int32_t heads, int32_t dim, int32_t rope_dim,
                  const float *inv_freq, int32_t position, float sign);

/* ---- matrix rows (linear.c) ---- */

/* W x[n, cols] as [n, rows], not rounded, by the team; valid until the next call. Takes the shared and the members' scratch. NULL
 * when memory runs out: the device is then marked failed. */
float *di_host_multiply(struct di_device *dev, const struct di_weight *w, const float *x, int32_t n);

enum di_host_rule di_host_rule(const struct di_device *dev, enum di_format format);

/* Bytes of one prepared input row; room for many lies at multiples of it. A multiple of 64, and odd in units of a kilobyte, so
 * that equal places of many rows do not meet in one set of a cache. */
size_t di_host_input_bytes(int32_t cols);

/* Rows of W that one member should take at a time, of `rows` in all: 32, less where there are few. */
int64_t di_host_row_unit(const struct di_device *dev, int64_t rows);

/* The scalar kernels: obvious, and what the others are tested against. */
float di_host_dot(const float *a, const float *w, int32_t k);
void di_host_axpy(float a, const float *x, float *y, int32_t n);
void di_host_unpack_key(const struct di_kv_rows *rows, int32_t row, float *key);
void di_host_scores(const float *queries, int32_t heads, const float *keys, int32_t count, int32_t dim, float *out,
                    int32_t out_stride);
void di_host_blend(const float *weights, int32_t stride, int32_t heads, const float *keys, int32_t count, int32_t dim,
                   float *sums);
void di_host_restore(const float *x, int32_t dim, float *out);
struct di_host_input di_host_prepare(enum di_host_rule rule, const float *x, int32_t cols, void *room);
void di_host_products(enum di_host_rule rule, const struct di_weight *w, int64_t begin, int64_t end,
                      const struct di_host_pair *pairs, int32_t n, void *scratch);
size_t di_host_product_bytes(int32_t cols, int32_t n);

/* Scratch of the operations that take much: shared, and of each member. */
size_t di_host_linear_bytes(int64_t inputs, int32_t cols);
size_t di_host_experts_bytes(int64_t slots, int32_t dim, int32_t inner, int32_t n_experts);
size_t di_host_attention_bytes(int32_t heads, int32_t dim);
size_t di_host_sample_bytes(int32_t vocab);
void di_host_index_bytes(const struct di_device *dev, int32_t n, int64_t entries, int32_t heads, int32_t dim,
                         int32_t kept, size_t *shared, size_t *member);

/* Opens an instance with the given kernels; the slots that are not operations. */
di_status di_host_open(const struct di_host_kernels *kernels, const struct di_device_options *options,
                       struct di_device **out, struct di_error *err);
void di_host_close(struct di_device *dev);
void di_host_identity(const struct di_device *dev, char *text, size_t size);
uint64_t di_host_scratch_bytes(const struct di_device *dev, const struct di_config *config, int32_t max_rows,
                               int64_t max_length);

di_status di_host_alloc(struct di_device *dev, size_t bytes, void **out, struct di_error *err);
void di_host_release(struct di_device *dev, void *memory);
di_status di_host_copy(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err);
void di_host_move(struct di_device *dev, void *to, const void *from, size_t bytes);
void *di_host_host_alloc(struct di_device *dev, size_t bytes);
void di_host_host_release(struct di_device *dev, void *memory);
di_status di_host_place(struct di_device *dev, const struct di_weight *host, struct di_weight *out,
                        struct di_error *err);
di_status di_host_failed(struct di_device *dev, struct di_error *err);
di_status di_host_sync(struct di_device *dev, struct di_error *err);
uint64_t di_host_record(struct di_device *dev);
bool di_host_passed(struct di_device *dev, uint64_t event);
void di_host_wait(struct di_device *dev, uint64_t event);

/* ---- operations ---- */
void di_host_resolve(struct di_device *, const struct di_resolve_args *);
void di_host_embed(struct di_device *, const struct di_embed_args *);
void di_host_engram_hash(struct di_device *, const struct di_engram_hash_args *);
void di_host_engram_lookup(struct di_device *, const struct di_engram_lookup_args *);
void di_host_engram_mix(struct di_device *, const struct di_engram_mix_args *);
void di_host_hc_mix(struct di_device *, const struct di_hc_mix_args *);
void di_host_hc_collapse(struct di_device *, const struct di_hc_collapse_args *);
void di_host_hc_expand(struct di_device *, const struct di_hc_expand_args *);
void di_host_norm(struct di_device *, const struct di_norm_args *);
void di_host_linear(struct di_device *, const struct di_linear_args *);
void di_host_group_linear(struct di_device *, const struct di_group_linear_args *);
void di_host_rope_op(struct di_device *, const struct di_rope_args *);
void di_host_window_pack(struct di_device *, const struct di_window_pack_args *);
void di_host_window_store(struct di_device *, const struct di_window_store_args *);
void di_host_compress(struct di_device *, const struct di_compress_args *);
void di_host_kv_append(struct di_device *, const struct di_kv_append_args *);
void di_host_index_append(struct di_device *, const struct di_index_append_args *);
void di_host_index_query(struct di_device *, const struct di_index_query_args *);
void di_host_index_select(struct di_device *, const struct di_index_select_args *);
void di_host_attention(struct di_device *, const struct di_attention_args *);
void di_host_gate(struct di_device *, const struct di_gate_args *);
void di_host_experts(struct di_device *, const struct di_experts_args *);
void di_host_shared_expert(struct di_device *, const struct di_shared_expert_args *);
void di_host_combine(struct di_device *, const struct di_combine_args *);
void di_host_gather(struct di_device *, const struct di_gather_args *);
void di_host_sample(struct di_device *, const struct di_sample_args *);

/* ---- the same behind a stream (queue.c): calls return at once and run in order on a thread of their own ---- */
di_status di_queued_open(const struct di_host_kernels *kernels, const struct di_device_options *options,
                         struct di_device **out, struct di_error *err);
void di_queued_close(struct di_device *dev);
void di_queued_release(struct di_device *dev, void *memory);
di_status di_queued_upload(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err);
di_status di_queued_download(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err);
di_status di_queued_sync(struct di_device *dev, struct di_error *err);
uint64_t di_queued_record(struct di_device *dev);
bool di_queued_passed(struct di_device *dev, uint64_t event);
void di_queued_wait(struct di_device *dev, uint64_t event);
void di_queued_move(struct di_device *dev, void *to, const void *from, size_t bytes);
void di_queued_resolve(struct di_device *, const struct di_resolve_args *);
void di_queued_embed(struct di_device *, const struct di_embed_args *);
void di_queued_engram_hash(struct di_device *, const struct di_engram_hash_args *);
void di_queued_engram_lookup(struct di_device *, const struct di_engram_lookup_args *);
void di_queued_engram_mix(struct di_device *, const struct di_engram_mix_args *);
void di_queued_hc_mix(struct di_device *, const struct di_hc_mix_args *);
void di_queued_hc_collapse(struct di_device *, const struct di_hc_collapse_args *);
void di_queued_hc_expand(struct di_device *, const struct di_hc_expand_args *);
void di_queued_norm(struct di_device *, const struct di_norm_args *);
void di_queued_linear(struct di_device *, const struct di_linear_args *);
void di_queued_group_linear(struct di_device *, const struct di_group_linear_args *);
void di_queued_rope(struct di_device *, const struct di_rope_args *);
void di_queued_window_pack(struct di_device *, const struct di_window_pack_args *);
void di_queued_window_store(struct di_device *, const struct di_window_store_args *);
void di_queued_compress(struct di_device *, const struct di_compress_args *);
void di_queued_kv_append(struct di_device *, const struct di_kv_append_args *);
void di_queued_index_append(struct di_device *, const struct di_index_append_args *);
void di_queued_index_query(struct di_device *, const struct di_index_query_args *);
void di_queued_index_select(struct di_device *, const struct di_index_select_args *);
void di_queued_attention(struct di_device *, const struct di_attention_args *);
void di_queued_gate(struct di_device *, const struct di_gate_args *);
void di_queued_experts(struct di_device *, const struct di_experts_args *);
void di_queued_shared_expert(struct di_device *, const struct di_shared_expert_args *);
void di_queued_combine(struct di_device *, const struct di_combine_args *);
void di_queued_gather(struct di_device *, const struct di_gather_args *);
void di_queued_sample(struct di_device *, const struct di_sample_args *);

/* Every slot of a table but `name` and `open`; prefix: di_host or di_queued, rope: the one slot that is named otherwise. */
#define DI_HOST_OPERATIONS(prefix, rope_slot)                                                                        \
    .failed = di_host_failed, .copy = prefix##_move, .host_alloc = di_host_host_alloc,                               \
    .host_release = di_host_host_release, .resolve = prefix##_resolve, .embed = prefix##_embed,                      \
    .engram_hash = prefix##_engram_hash, .engram_lookup = prefix##_engram_lookup, .engram_mix = prefix##_engram_mix, \
    .hc_mix = prefix##_hc_mix, .hc_collapse = prefix##_hc_collapse, .hc_expand = prefix##_hc_expand,                 \
    .norm = prefix##_norm, .linear = prefix##_linear, .group_linear = prefix##_group_linear, .rope = rope_slot,      \
    .window_pack = prefix##_window_pack, .window_store = prefix##_window_store, .compress = prefix##_compress,       \
    .kv_append = prefix##_kv_append, .index_append = prefix##_index_append, .index_query = prefix##_index_query,     \
    .index_select = prefix##_index_select, .attention = prefix##_attention, .gate = prefix##_gate,                   \
    .experts = prefix##_experts, .shared_expert = prefix##_shared_expert, .combine = prefix##_combine,               \
    .gather = prefix##_gather, .sample = prefix##_sample
#define DI_HOST_SLOTS                                                                               \
    .act_bytes = sizeof(float), .close = di_host_close, .identity = di_host_identity,               \
    .scratch_bytes = di_host_scratch_bytes, .alloc = di_host_alloc, .release = di_host_release,     \
    .upload = di_host_copy, .download = di_host_copy, .place = di_host_place, .sync = di_host_sync, \
    .record = di_host_record, .passed = di_host_passed, .wait = di_host_wait,                       \
    DI_HOST_OPERATIONS(di_host, di_host_rope_op)
#define DI_QUEUED_SLOTS                                                                                         \
    .act_bytes = sizeof(float), .close = di_queued_close, .identity = di_host_identity,                         \
    .scratch_bytes = di_host_scratch_bytes, .alloc = di_host_alloc, .release = di_queued_release,               \
    .upload = di_queued_upload, .download = di_queued_download, .place = di_host_place, .sync = di_queued_sync, \
    .record = di_queued_record, .passed = di_queued_passed, .wait = di_queued_wait,                             \
    DI_HOST_OPERATIONS(di_queued, di_queued_rope)

#endif
