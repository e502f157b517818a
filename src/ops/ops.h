/* ops/ops.h - the backend contract: device memory, one in-order stream, and the operations of this model.
 *
 * A backend fills one `struct di_ops`. The forward pass (model/) sees nothing else of it.
 *
 *     ops->open(&options, &dev, err)         an instance: numeric mode, threads, device
 *     ops->alloc / upload / download         memory in the backend's address space ("device memory"; the host's on CPUs)
 *     ops->linear(dev, &(struct di_linear_args){...})
 *     ops->sync(dev, err)                    every call above has finished; reports the first failure since the last sync
 *     ops->record / passed / wait            events: how far the stream has come
 *
 * Calls of operations return at once and run in the order of the calls; pointers in argument structs are device
 * memory and must stay valid until the stream has passed them. No operation makes the host look at device data:
 * lengths, slots, selections and tables are read by the device, so that a step can be captured and replayed.
 *
 * ACTIVATIONS. "act" below is the backend's activation type, di_ops.act_bytes wide: 4 = float, 2 = bf16. In modes
 * native and fast every act value is a bf16 value, whatever the type that holds it; in mode oracle it is a float. Each
 * output element is rounded once, where its struct says so (spec/model.md section 3). Sums are fp32.
 *
 * ORDER. An output element is computed by one fixed sequence of operations that depends on the op's shape and on the row's
 * own position and selection, never on how many rows there are or which thread runs them (docs/numerics.md):
 *   F8  dot products of FP8, BF16 and F32 weights, and of attention and index scores: 8 chains, chain l takes in ascending
 *       k the elements with (k div 4) mod 8 = l by fused multiply-add; result ((c0+c4)+(c2+c6)) + ((c1+c5)+(c3+c7)).
 *   R1  FP4 weights in modes native and fast: per block of 32 the exact sum, rounded once, then
 *       acc = fma(p, s_a * s_w, acc).
 *
 * SHAPES. n: rows of the step; D hidden_size; hc hc_mult; H heads; hd head_dim; rd rope dims. Row-major, no padding.
 * Outputs must not overlap inputs unless a struct says "in place".
 */
#ifndef DI_OPS_OPS_H
#define DI_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "core/config.h"
#include "core/engram.h"
#include "numerics/formats.h"
#include "numerics/quant.h"

enum di_mode {
    DI_MODE_ORACLE, /* fp32 activations, weights exact, no activation quantisation */
    DI_MODE_NATIVE, /* the vendor's rounding */
    DI_MODE_FAST,   /* native, but FP4 weights see int8 activations per 32 and FP8 weights unquantised ones */
};

const char *di_mode_name(enum di_mode mode);

struct di_device_options {
    enum di_mode mode;
    int32_t threads;      /* 0: all cores */
    const char *cpu_list; /* NULL or "all": those that the process may use */
    const char *cpu_isa;  /* NULL or "auto": the best that the processor has; "avx2", "avx512" */
};

struct di_device; /* a backend's instance; each backend defines its own */

/* ---------------------------------------------------------------------------------------------------------------------
 * Views shared by several operations. */

/* The rows of a step. Rows of one sequence are consecutive, positions ascending by one. */
struct di_rows {
    int32_t n;
    const int32_t *position; /* [n] absolute position in its sequence */
    const int32_t *slot;     /* [n] which sequence state (rings, tails, page table) */
    const int32_t *first;    /* [n] index of the first row of the same sequence in this step */
    const int32_t *low;      /* [n] no window row of an earlier position is read; NULL: 0 */
    const int32_t *floor;    /* [n] rows of earlier positions leave the global caches alone; NULL: 0 */
};

/* Rows of one cache kind: all data, then all scales (numerics/quant.h). */
struct di_kv_rows {
    enum di_kv_format format;
    int32_t dim;
    uint8_t *data;  /* row i at data + i * di_kv_data_bytes */
    uint8_t *scale; /* row i at scale + i * di_kv_scale_bytes; NULL where the format has none */
};

/* Window rings of one layer: position p of sequence slot s lies in row p mod ring_slots of ring s. */
struct di_ring_view {
    enum di_kv_format format;
    int32_t dim, ring_slots;
    uint8_t *base; /* ring s at base + s * slot_stride: ring_slots data rows, then ring_slots scale rows */
    size_t slot_stride;
};

/* The global cache of one KV source. Entry j of sequence slot s lies in page table[s * max_pages + j / page_rows], row
 * j mod page_rows. In a page, at main_offset: page_rows data rows, then page_rows scale rows; likewise index rows. */
struct di_paged_view {
    int32_t ratio; /* tokens per entry */
    int32_t page_rows;
    uint8_t *pages;
    size_t page_bytes, main_offset, index_offset;
    enum di_kv_format main_format, index_format;
    int32_t main_dim, index_dim;
    const int32_t *table;
    int32_t max_pages;
};

/* Compressor tails of one ratio-2 source: value and gate rows of recent positions, position p in row p mod tail_slots. */
struct di_tail_view {
    int32_t dim, tail_slots;
    float *base; /* slot s, row r: value at base + ((s * tail_slots + r) * 2) * dim, gate right behind it */
};

/* ---------------------------------------------------------------------------------------------------------------------
 * Arguments, in the order of the forward pass. */

/* Tokens that the host did not know when it queued the step: token[i] of -2 - j becomes drawn[j], or 0 where that
 * draw failed (its request has ended; the row only has to be harmless). In place. */
struct di_resolve_args {
    int32_t n;
    int32_t *token;       /* in, out [n] */
    const int32_t *drawn; /* of an earlier `sample` */
};

/* X[i][k] = table[token of row i] for every stream k; pre[i] = (1, 0, ...). Section 4. */
struct di_embed_args {
    int32_t n, hc, dim;
    const int32_t *token; /* row i's id at token[i * token_stride] */
    int32_t token_stride;
    struct di_weight table; /* [vocab, D] bf16 */
    void *x;                /* out act [n, hc, D] */
    float *pre;             /* out [n, hc] */
};

/* Row ids of every hash column. Section 13.5. */
struct di_engram_hash_args {
    int32_t n, ngram, heads; /* ngram = engram_max_ngram_size */
    const int32_t
        *window;        /* [n, ngram] raw token ids, [i][0] the row's own, then looking back; -1 = before the start */
    const int32_t *map; /* [vocab] compressed ids */
    int32_t pad;        /* compressed pad id */
    const struct di_engram_consts *consts; /* one, in device memory */
    int32_t *ids;                          /* out [n, columns], columns = (ngram - 1) * heads */
};

/* e[i] = concatenation of the table rows ids[i]. Exact in bf16. */
struct di_engram_lookup_args {
    int32_t n, columns;
    const int32_t *ids;
    struct di_weight table; /* [rows, engram_head_dim] fp8-row */
    void *out;              /* act [n, columns * engram_head_dim] */
};

/* X[s] += gate[s] * value, gate from X[s] and key[s]. Section 12. In place. */
struct di_engram_mix_args {
    int32_t n, hc, dim;
    void *x;                             /* in, out act [n, hc, D] */
    const void *kv;                      /* act [n, (hc + 1) * D]: keys of the streams, then the value */
    struct di_weight q_weight, k_weight; /* [hc, D] bf16 */
    float eps;
    float *gate; /* out [n, hc] */
};

/* Hyper-connection coefficients of one site. Section 5. */
struct di_hc_mix_args {
    int32_t n, hc, dim, sinkhorn_iters;
    const void *x;             /* act [n, hc, D] */
    struct di_weight fn;       /* [(2 + hc) * hc, hc * D] f32 */
    const float *base, *scale; /* [(2 + hc) * hc], [3] */
    float eps, norm_eps;
    float *pre, *post, *comb; /* out [n, hc], [n, hc], [n, hc(j), hc(k)] */
};

/* out = sum over i of pre[i] * X[i]; act. */
struct di_hc_collapse_args {
    int32_t n, hc, dim;
    const void *x;
    const float *pre;
    void *out; /* act [n, D] */
};

/* X[k] := post[k] * o + sum over j of comb[j][k] * X[j]; act, in place. */
struct di_hc_expand_args {
    int32_t n, hc, dim;
    const void *o; /* act [n, D] */
    const float *post, *comb;
    void *x; /* in, out act [n, hc, D] */
};

/* RMSNorm: act(w * (x * 1/sqrt(mean(x^2) + eps))). May work in place. */
struct di_norm_args {
    int32_t n, dim;
    const void *x;           /* act [n, dim] */
    struct di_weight weight; /* [1, dim] bf16 */
    float eps;
    void *out; /* act [n, dim] */
};

/* out = W x. In mode native an FP8 or FP4 weight sees act_quant8(x); in mode fast an FP4 weight sees int8 codes of x. */
struct di_linear_args {
    int32_t n;
    const void *x; /* act [n, cols] */
    struct di_weight weight;
    bool f32_out; /* out is float and not rounded (compressor, gate-like projections, logits); else act */
    void *out;    /* [n, rows] */
};

/* Grouped output projection: group g's rows of W meet group g's slice of x only. No activation quantisation. Section 7. */
struct di_group_linear_args {
    int32_t n, groups;
    const void *x;           /* act [n, groups * cols] */
    struct di_weight weight; /* [groups * rank, cols] */
    void *out;               /* act [n, groups * rank] */
};

/* Rotates the last rope_dim elements of every head by the row's position. Section 6. In place, act. */
struct di_rope_args {
    struct di_rows rows;
    int32_t heads, dim, rope_dim;
    const float *inv_freq; /* [rope_dim / 2] */
    void *x;               /* act [n, heads, dim] */
};

/* Rotates and packs the step's window KV. Later operations read these rows, never the values before packing. */
struct di_window_pack_args {
    struct di_rows rows;
    int32_t rope_dim;
    const float *inv_freq;
    const void *kv;        /* act [n, hd], normed */
    struct di_kv_rows out; /* n rows */
};

/* Copies the step's rows into the rings, after attention has read what they replace. */
struct di_window_store_args {
    struct di_rows rows;
    struct di_kv_rows in;
    struct di_ring_view ring;
};

/* Ratio-2 pooling: for a row that completes a group (odd position), softmax of the two gates per channel over the two
 * values; other rows give zeros. Keeps the step's rows in the tail. Section 8. */
struct di_compress_args {
    struct di_rows rows;
    const float *value, *gate; /* [n, hd] */
    struct di_tail_view tail;
    void *out; /* act [n, hd] */
};

/* For every row that completes a group and lies at rows.floor or behind: rotates the latent at the group's first position, packs it as entry
 * position / ratio. Section 8. */
struct di_kv_append_args {
    struct di_rows rows;
    int32_t rope_dim;
    const float *inv_freq;
    const void *latent; /* act [n, main_dim], normed */
    struct di_paged_view cache;
};

/* The same for index keys (key = act [n, index_dim], normed). Section 9. */
struct di_index_append_args {
    struct di_rows rows;
    int32_t rope_dim;
    const float *inv_freq;
    const void *key;
    struct di_paged_view cache;
};

/* Rotates and fake-quantises index queries, in place. Section 9. */
struct di_index_query_args {
    struct di_rows rows;
    int32_t heads, dim, rope_dim;
    const float *inv_freq;
    enum di_kv_format format; /* DI_KV_FP4_E8M0, or DI_KV_F32 for none */
    void *q;                  /* act [n, heads, dim] */
};

/* Scores all visible entries and selects. Ties: lowest index; NaN loses; -inf is never selected. Section 9.
 * With block_size > 0 and make_blocks: also publishes the candidate blocks; with use_blocks: entries outside the row's
 * published blocks score -inf. */
struct di_index_select_args {
    struct di_rows rows;
    int32_t heads;
    const void *q;      /* act [n, heads, index_dim] */
    const void *weight; /* act [n, heads] */
    struct di_paged_view cache;
    int32_t topk;
    int32_t *selected, *n_selected; /* out [n, topk] ascending, padded with -1; [n] */
    bool make_blocks, use_blocks;
    int32_t block_size, topk_blocks;
    int32_t *blocks, *n_blocks; /* [n, topk_blocks] ascending, padded with -1; [n] */
    /* Observation only, NULL otherwise: */
    float *scores; /* [n, score_stride] before the candidate mask, -inf where not visible */
    int32_t score_stride;
    float *margin, *block_margin; /* [n] gap at the last kept one, +inf where no choice was made */
};

/* Attention over the row's window (own position included, none below rows.low) and its selected entries, sink in the denominator last, then
 * the inverse rotation. Keys in that order, chunks of 64, merged left to right. Section 7. */
struct di_attention_args {
    struct di_rows rows;
    int32_t heads, dim, rope_dim, window;
    const void *q;              /* act [n, H, hd], rotated */
    struct di_kv_rows step;     /* the step's window rows */
    struct di_ring_view ring;   /* earlier positions */
    struct di_paged_view cache; /* ratio 0: no compressed entries */
    const int32_t *selected, *n_selected;
    int32_t topk;      /* row stride of selected */
    const float *sink; /* [H] */
    const float *inv_freq;
    void *out; /* act [n, H * hd] */
};

/* Router. Section 11. */
struct di_gate_args {
    int32_t n, topk;
    const void *x;           /* act [n, D] */
    struct di_weight weight; /* [E, D] bf16 */
    const float *bias;       /* [E] */
    float temp, scaling;
    int32_t *ids;   /* out [n, topk], descending score + bias, ties to the lower id */
    float *weights; /* out [n, topk] */
    float *margin;  /* observation: [n] or NULL */
};

/* One feed-forward network. */
struct di_expert {
    struct di_weight w1, w3, w2; /* gate, up [I, D]; down [D, I] */
};

/* Routed experts, un-summed: out[i][k] = w2 act_quant8(act(weight * silu(clamp(w1 x)) * clamp(w3 x))). Section 11.
 * An id of -1 leaves its row zero. */
struct di_experts_args {
    int32_t n, topk, dim, inner;
    const void *x; /* act [n, D] */
    const int32_t *ids;
    const float *weights;
    const struct di_expert *experts; /* [E], host memory, constant for the life of the model */
    int32_t n_experts;
    float limit;
    void *out; /* act [n, topk, D] */
};

/* The shared expert (weight 1). */
struct di_shared_expert_args {
    int32_t n, dim, inner;
    const void *x;
    struct di_expert expert;
    float limit;
    void *out; /* act [n, D] */
};

/* out = act(slots in order, then shared), fp32. */
struct di_combine_args {
    int32_t n, topk, dim;
    const void *slots;  /* act [n, topk, D] */
    const void *shared; /* act [n, D] */
    void *out;          /* act [n, D] */
};

/* Picks rows: out[i] = x[index[i]]. */
struct di_gather_args {
    int32_t n;
    size_t row_bytes;
    const void *x;
    const int32_t *index;
    void *out;
};

/* What token[i] may be beside an id. */
enum {
    DI_SAMPLE_NAN = -1,  /* some logit of the row is NaN */
    DI_SAMPLE_NONE = -2, /* no token is left: every one is forbidden, or its logit is -inf */
};

/* What becomes of a row's logits before the draw, in the order of this list. Per-row arrays have n elements; one that is NULL
 * is off for every row. Values are fp32, each operation rounded. T' below is the value after division by the temperature; the
 * order of tokens is T' descending, then the lower id; `m` is the greatest T' of the row. */
struct di_sample_rules {
    /* Penalties: each token of the row's list once. x := x > 0 ? x / repetition : x * repetition; then, where count > 0,
     * x := (x - frequency * count) - presence. Row i's list: entries seen_offset[i] .. seen_offset[i + 1). */
    const float *repetition, *frequency, *presence;
    const int32_t *seen_offset; /* [n + 1] */
    const int32_t *seen_token;  /* tokens of prompt and output, each once */
    const int32_t *seen_count;  /* times in the output; 0: in the prompt only */
    /* x := x + bias; -INFINITY forbids the token. Entries bias_offset[i] .. bias_offset[i + 1) */
    const int32_t *bias_offset; /* [n + 1] */
    const int32_t *bias_token;
    const float *bias;
    /* Bit t mod 32 of word t / 32 is 0: token t is forbidden. Row i uses row mask_row[i] of [.., (vocab + 31) / 32]; a negative
     * one allows all; with mask_row NULL it is row i. */
    const uint32_t *mask;
    const int32_t *mask_row;
    /* Filters: each keeps a beginning of the order of tokens, of at least one. */
    const int32_t *top_k; /* so many; below 1: all */
    /* The shortest beginning whose weights sum to at least ceil(top_p * (sum over what top_k kept)), the product in double; 1 and
     * more: all. Weight: exp(T' - m) * 2^40, rounded to a whole number, so that sums do not depend on their order. */
    const float *top_p;
    const float *min_p;     /* T' - m >= ln(min_p), ln rounded once; 0: all */
    const uint32_t *choice; /* fourth counter word of the noise: which of a request's n choices; NULL: 0 */
};

/* Log-probabilities: log-softmax of the logits as they came, before all rules, with the weights above:
 * (x - max) - ln(sum of weights * 2^-40), in double, rounded once. A part whose pointer is NULL is not made. */
struct di_sample_report {
    int32_t top; /* columns of top_token and top_logprob */
    const int32_t
        *wanted; /* [n] how many of the top; -1: nothing of this row, its outputs stay; NULL: `top` of every row */
    const int32_t *scored; /* [n] the token that logprob and rank are of; negative, or NULL: the one drawn */
    float *logprob;        /* out [n]; NaN where there is no such token */
    int32_t
        *rank; /* out [n] from 1, in the order logit descending, then the lower id; 0 where there is no such token */
    int32_t *top_token; /* out [n, top] the first `wanted` of that order; -1 behind them and for logits of -inf */
    float *top_logprob; /* out [n, top] */
};

/* Draws one token a row: Gumbel noise keyed by (seed, position, token id, choice) added to logit / temperature, the greatest
 * wins, ties to the lowest id; temperature below 1e-5: the greatest logit. spec/runtime.md section 6.5. */
struct di_sample_args {
    int32_t n, vocab;
    const float *logits; /* [n, vocab] */
    const float *temperature;
    const uint64_t *seed;
    const int32_t *row;             /* [n] which row of the step each logits row belongs to */
    const int32_t *position;        /* of the step's rows; the token drawn stands one further */
    int32_t *token;                 /* out [n], or DI_SAMPLE_NAN, DI_SAMPLE_NONE */
    struct di_sample_rules rules;   /* all zero: none */
    struct di_sample_report report; /* all zero: none */
};

/* ---------------------------------------------------------------------------------------------------------------------
 * The table. Every slot is mandatory unless marked optional. */
struct di_ops {
    const char *name; /* as in the option "backend" */
    int32_t act_bytes;

    di_status (*open)(const struct di_device_options *options, struct di_device **out, struct di_error *err);
    void (*close)(struct di_device *dev);
    /* What decides this instance's bits, as text: "reference,native". */
    void (*identity)(const struct di_device *dev, char *text, size_t size);

    /* Most memory of its own that the instance will take for this model, beside what is asked of alloc(). */
    uint64_t (*scratch_bytes)(const struct di_device *dev, const struct di_config *config, int32_t max_rows,
                              int64_t max_length);

    /* Zeroed device memory, 64-byte aligned; large blocks cost nothing until touched where the system allows. */
    di_status (*alloc)(struct di_device *dev, size_t bytes, void **out, struct di_error *err);
    void (*release)(struct di_device *dev, void *memory);
    /* In stream order. The source of an upload may be reused when the call returns. download waits for the stream. */
    di_status (*upload)(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err);
    di_status (*download)(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err);
    /* Queued copies between device memory and memory of either kind; both ends stay valid until the stream has passed. Host
     * memory that copies reach comes from host_alloc (not zeroed) and may be released once the stream is past its last copy;
     * these two can be called from any thread. */
    void (*copy)(struct di_device *dev, void *to, const void *from, size_t bytes);
    void *(*host_alloc)(struct di_device *dev, size_t bytes); /* NULL: out of memory */
    void (*host_release)(struct di_device *dev, void *memory);
    /* Makes checkpoint bytes usable by kernels: *out replaces the host view. CPUs return the view unchanged. */
    di_status (*place)(struct di_device *dev, const struct di_weight *host, struct di_weight *out,
                       struct di_error *err);
    di_status (*sync)(struct di_device *dev, struct di_error *err);
    /* The first failure since the last sync, of what has run so far; does not wait. */
    di_status (*failed)(struct di_device *dev, struct di_error *err);
    /* Events: record() marks everything called so far; passed() says whether the stream is beyond that, wait() sleeps until it
     * is. They report no failures: the next sync does. */
    uint64_t (*record)(struct di_device *dev);
    bool (*passed)(struct di_device *dev, uint64_t event);
    void (*wait)(struct di_device *dev, uint64_t event);

    void (*resolve)(struct di_device *, const struct di_resolve_args *);
    void (*embed)(struct di_device *, const struct di_embed_args *);
    void (*engram_hash)(struct di_device *, const struct di_engram_hash_args *);
    void (*engram_lookup)(struct di_device *, const struct di_engram_lookup_args *);
    void (*engram_mix)(struct di_device *, const struct di_engram_mix_args *);
    void (*hc_mix)(struct di_device *, const struct di_hc_mix_args *);
    void (*hc_collapse)(struct di_device *, const struct di_hc_collapse_args *);
    void (*hc_expand)(struct di_device *, const struct di_hc_expand_args *);
    void (*norm)(struct di_device *, const struct di_norm_args *);
    void (*linear)(struct di_device *, const struct di_linear_args *);
    void (*group_linear)(struct di_device *, const struct di_group_linear_args *);
    void (*rope)(struct di_device *, const struct di_rope_args *);
    void (*window_pack)(struct di_device *, const struct di_window_pack_args *);
    void (*window_store)(struct di_device *, const struct di_window_store_args *);
    void (*compress)(struct di_device *, const struct di_compress_args *);
    void (*kv_append)(struct di_device *, const struct di_kv_append_args *);
    void (*index_append)(struct di_device *, const struct di_index_append_args *);
    void (*index_query)(struct di_device *, const struct di_index_query_args *);
    void (*index_select)(struct di_device *, const struct di_index_select_args *);
    void (*attention)(struct di_device *, const struct di_attention_args *);
    void (*gate)(struct di_device *, const struct di_gate_args *);
    void (*experts)(struct di_device *, const struct di_experts_args *);
    void (*shared_expert)(struct di_device *, const struct di_shared_expert_args *);
    void (*combine)(struct di_device *, const struct di_combine_args *);
    void (*gather)(struct di_device *, const struct di_gather_args *);
    void (*sample)(struct di_device *, const struct di_sample_args *);
};

/* ---------------------------------------------------------------------------------------------------------------------
 * Addresses, for backends whose memory the host can read, and for tests. */

static inline uint8_t *di_kv_row_data(const struct di_kv_rows *rows, int64_t row)
{
    return rows->data + row * di_kv_data_bytes(rows->format, rows->dim);
}

static inline uint8_t *di_kv_row_scale(const struct di_kv_rows *rows, int64_t row)
{
    return rows->scale + row * di_kv_scale_bytes(rows->format, rows->dim);
}

/* How many window rows row i sees, its own included. */
static inline int32_t di_window_keys(const struct di_rows *rows, int64_t i, int32_t window)
{
    int32_t seen = rows->position[i] + 1 - (rows->low != NULL ? rows->low[i] : 0);
    return seen < window ? seen : window;
}

/* The ring of sequence `slot` as rows. */
struct di_kv_rows di_ring_rows(const struct di_ring_view *ring, int32_t slot);

/* The page that holds entry `entry` of sequence `slot`, as rows; *row is its row there. */
struct di_kv_rows di_paged_main_rows(const struct di_paged_view *view, int32_t slot, int32_t entry, int32_t *row);
struct di_kv_rows di_paged_index_rows(const struct di_paged_view *view, int32_t slot, int32_t entry, int32_t *row);

#endif
