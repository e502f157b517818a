/* bench.h - operations to be timed: each family of the op table at the released model's shapes.
 *
 * A family is a row of a table: a name, a shape, the row counts at which it is timed, and a function that makes a case
 * ready. A case launches one operation per call, on other weights (or rows, entries, experts) than the calls before, so
 * that what a model of this size would fetch from memory comes from memory here.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "data.h"
#include "ops/ops.h"

/* The released model (config.json). */
enum {
    HIDDEN = 5120,
    STREAMS_HC = 4,
    HEADS = 64,
    HEAD_DIM = 512,
    ROPE_DIM = 64,
    INNER = 2304,
    EXPERTS = 384,
    EXPERT_TOPK = 6,
    VOCAB = 129280,
    WINDOW = 128,
    RING_SLOTS = 140,
    TAIL_SLOTS = 14,
    ENTRIES = 65536, /* compressed entries of the context that index and attention meet */
    PAGE_ROWS = 128,
    INDEX_HEADS = 32,
    INDEX_DIM = 128,
    INDEX_TOPK = 512,
    ENGRAM_NGRAM = 4,
    ENGRAM_HEADS = 8,
    ENGRAM_COLUMNS = (ENGRAM_NGRAM - 1) * ENGRAM_HEADS,
    ENGRAM_DIM = 256,
    SINKHORN_ITERS = 20,
};

enum { MAX_BLOCKS = 64, MAX_ROWS_LISTED = 5 };

/* The rings, pages and tails of `copies` sequences: one layer each. */
struct bench_context {
    int32_t copies;
    struct di_paged_view pages;
    struct di_ring_view ring;
    struct di_tail_view tail;
};

struct bench {
    const struct di_ops *ops;
    struct di_device *dev;
    struct di_team *team; /* fills memory; the limits run on it too */
    double gigabytes;     /* of weights that a family goes round in */
    bool heavy_tails;
    struct bench_random random;
    struct bench_pool pool; /* of the family at hand; kept as long as the next one fits it */
    struct bench_context context;
    void *block[MAX_BLOCKS]; /* memory of the case at hand */
    int32_t n_blocks;
};

struct bench_family;

struct bench_case {
    const struct bench_family *family;
    int32_t m; /* rows */
    void (*call)(struct bench *, struct bench_case *);
    double bytes, macs; /* of the calls so far */
    int64_t *order;     /* what the pool holds, in units of family->together weights, in random order */
    int64_t n_order, at;
    int32_t *slots; /* [m] of rows.slot, to move from sequence to sequence */
    struct di_expert *experts;
    union {
        struct di_embed_args embed;
        struct di_engram_hash_args engram_hash;
        struct di_engram_lookup_args engram_lookup;
        struct di_engram_mix_args engram_mix;
        struct di_hc_mix_args hc_mix;
        struct di_hc_collapse_args hc_collapse;
        struct di_hc_expand_args hc_expand;
        struct di_norm_args norm;
        struct di_linear_args linear;
        struct di_group_linear_args group_linear;
        struct di_rope_args rope;
        struct di_window_pack_args window_pack;
        struct di_window_store_args window_store;
        struct di_compress_args compress;
        struct di_kv_append_args kv_append;
        struct di_index_append_args index_append;
        struct di_index_query_args index_query;
        struct di_index_select_args index_select;
        struct di_attention_args attention;
        struct di_gate_args gate;
        struct di_experts_args experts;
        struct di_shared_expert_args shared_expert;
        struct di_combine_args combine;
        struct di_gather_args gather;
        struct di_sample_args sample;
    } a;
};

struct bench_family {
    const char *name, *shape;
    void (*ready)(struct bench *, struct bench_case *); /* sets call and a */
    enum di_format format;                              /* of the pool; DI_FMT_COUNT: takes none */
    int64_t rows;                                       /* of one weight */
    int32_t cols;
    int32_t together;           /* weights that belong together; 0 stands for 1 */
    int32_t m[MAX_ROWS_LISTED]; /* ends with 0 */
};

/* All families; *count of them. matrix.c, rows.c and context.c. */
const struct bench_family *bench_matrix_families(int32_t *count);
const struct bench_family *bench_row_families(int32_t *count);
const struct bench_family *bench_context_families(int32_t *count);

/* Makes `out` ready: its pool, its memory, its arguments; undone by bench_case_close. */
void bench_case_open(struct bench *b, const struct bench_family *family, int32_t m, struct bench_case *out);
void bench_case_close(struct bench *b, struct bench_case *c);
void bench_close(struct bench *b);

/* The next weight of the pool, in an order that comes round only after all others. */
struct di_weight bench_next_weight(const struct bench *b, struct bench_case *c);

/* Memory of the backend until the case closes; the host writes it directly (CPU backends). Ends the program on failure. */
void *bench_alloc(struct bench *b, size_t bytes);
/* Random activations: of deviation 1, heavy-tailed where asked for; bf16 values, in the backend's activation type. */
void *bench_act(struct bench *b, int64_t count);
void *bench_zero_act(struct bench *b, int64_t count);
float *bench_floats(struct bench *b, int64_t count, float deviation);
float *bench_constant(struct bench *b, int64_t count, float value);
/* A small bf16 weight of values around 1. */
struct di_weight bench_norm_weight(struct bench *b, int64_t rows, int32_t cols);
float *bench_inv_freq(struct bench *b);
/* c->m consecutive rows of one sequence, the last at position ENTRIES - 1; c->slots points at their slots. */
struct di_rows bench_rows(struct bench *b, struct bench_case *c);
void bench_next_slot(struct bench *b, struct bench_case *c);
void bench_context_open(struct bench *b);

/* Adds one call's work. */
static inline void bench_account(struct bench_case *c, int64_t bytes, int64_t macs)
{
    c->bytes += (double)bytes;
    c->macs += (double)macs;
}

_Noreturn void bench_fail(const char *message);

#endif
