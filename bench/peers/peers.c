/* deepinfer-bench-peers: an FP4 matrix product here against ggml's MXFP4 one, on the same weights.
 *
 * One [N, K] weight of the model's experts meets M rows. Both sides go round through the same random matrices, far more than
 * the caches hold, in one process, on as many threads, in slices that take turns within every round: what the machine does
 * meanwhile hits both. ggml's weights lie in its default buffer as they would be read from a file, and, where its processor
 * code offers it, a second time rearranged by its "repack" buffer.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include "backend/registry.h"
#include "base/clock.h"
#include "base/mem.h"
#include "data.h"
#include "modes.h"
#include "numerics/codes.h"
#include "report.h"

enum {
    K = 5120,
    N = 2304,
    BLOCK = 32,
    PEER_BLOCK_BYTES = 17, /* ggml's block_mxfp4: the scale, then 16 bytes of codes */
    MAX_M = 128,
    MAX_ROUNDS = 1001,
    MAX_SIDES = 2 + (int)BENCH_MODES,
};

static const int32_t row_counts[] = {1, 8, 32, 128};
static const double slice_seconds = 0.05;
static const double tolerance = 0.06; /* e4m3 activations alone stand 3 to 4 % away from unquantised ones */

struct options {
    const char *backend;
    bool mode[BENCH_MODES];
    int32_t threads, rounds;
    double gigabytes;
    bool json, heavy_tails;
};

/* One of the programs that are compared. */
struct side {
    char name[32];
    int32_t mode;                 /* index into bench_modes; -1: ggml */
    struct di_device *dev;        /* ours */
    void *x;                      /* ours: [MAX_M, K] act */
    float *out;                   /* ours: [MAX_M, N] */
    struct ggml_context *ctx;     /* ggml's: of its weights */
    struct ggml_tensor **weights; /* ggml's: [n_weights] */
    ggml_backend_buffer_t memory; /* ggml's */
    int64_t at;                   /* next weight */
    double rates[MAX_ROUNDS];     /* multiply-adds a second, of each round */
};

struct peers {
    const struct di_ops *ops;
    struct di_team *team;
    struct bench_pool pool;
    int64_t n_weights;
    int64_t *order;
    struct bench_random random;
    float *x; /* [MAX_M, K], bf16 values */
    struct side side[MAX_SIDES];
    int32_t n_sides, n_peers; /* ggml's come first */
    ggml_backend_t ggml;
    ggml_threadpool_t threadpool;
    /* The graph of the row count at hand: one product, whose weight is exchanged from call to call. */
    struct ggml_context *graph_ctx;
    ggml_backend_buffer_t graph_memory;
    struct ggml_cgraph *graph;
    struct ggml_tensor *product;
};

static _Noreturn void fail(const char *message)
{
    fprintf(stderr, "deepinfer-bench-peers: %s\n", message);
    exit(1);
}

/* ggml speaks of every tensor that it rearranges. */
static void only_warnings(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static void *need(void *memory)
{
    if (memory == NULL)
        fail("out of memory");
    return memory;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * ggml's side. */

struct convert_job {
    struct di_weight from;
    uint8_t *to;
};

/* The codes and scales are the same; ggml interleaves them, and pairs element i with i + 16 where we pair neighbours. */
static void convert_rows(void *arg, int64_t begin, int64_t end, int32_t member)
{
    (void)member;
    const struct convert_job *job = arg;
    const uint8_t *codes = job->from.data;
    for (int64_t block = begin * (K / BLOCK); block < end * (K / BLOCK); block++) {
        uint8_t value[BLOCK], *to = job->to + block * PEER_BLOCK_BYTES;
        for (int32_t i = 0; i < BLOCK; i++)
            value[i] = (uint8_t)(codes[block * BLOCK / 2 + i / 2] >> (i % 2 * 4)) & 15U;
        to[0] = job->from.scale[block];
        for (int32_t i = 0; i < BLOCK / 2; i++)
            to[1 + i] = (uint8_t)(value[i] | value[i + BLOCK / 2] << 4);
    }
}

static struct ggml_context *new_context(size_t tensors)
{
    struct ggml_init_params params = {
        .mem_size = tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false) + 4096,
        .no_alloc = true,
    };
    return need(ggml_init(params));
}

/* False where this kind of buffer holds no MXFP4 in a form of its own. */
static bool fill_peer(struct peers *p, struct side *side, ggml_backend_buffer_type_t type, bool special)
{
    side->mode = -1;
    side->ctx = new_context((size_t)p->n_weights);
    side->weights = need(di_calloc((size_t)p->n_weights, sizeof(struct ggml_tensor *)));
    for (int64_t i = 0; i < p->n_weights; i++)
        side->weights[i] = ggml_new_tensor_2d(side->ctx, GGML_TYPE_MXFP4, K, N);
    if (ggml_nbytes(side->weights[0]) != (size_t)N * (K / BLOCK) * PEER_BLOCK_BYTES)
        fail("ggml's MXFP4 blocks are not those this program knows");
    side->memory = need(ggml_backend_alloc_ctx_tensors_from_buft(side->ctx, type));
    if (special && side->weights[0]->extra == NULL) {
        ggml_backend_buffer_free(side->memory);
        ggml_free(side->ctx);
        free(side->weights);
        return false;
    }
    snprintf(side->name, sizeof side->name, "ggml%s%s", special ? " " : "",
             special ? ggml_backend_buft_name(type) : "");
    fprintf(stderr, "filling %s\n", side->name);
    uint8_t *blocks = need(di_aligned_calloc(ggml_nbytes(side->weights[0]), 1));
    for (int64_t i = 0; i < p->n_weights; i++) {
        struct convert_job job = {bench_pool_weight(&p->pool, N, K, i), blocks};
        di_team_run(p->team, N, convert_rows, &job);
        ggml_backend_tensor_set(side->weights[i], blocks, 0, ggml_nbytes(side->weights[i]));
    }
    free(blocks);
    return true;
}

/* Threads that stay: none is started while time is taken. */
static void open_peers(struct peers *p)
{
    int32_t threads = di_team_size(p->team);
    struct ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    p->ggml = need(ggml_backend_cpu_init());
    p->threadpool = need(ggml_threadpool_new(&params));
    ggml_backend_cpu_set_n_threads(p->ggml, threads);
    ggml_backend_cpu_set_threadpool(p->ggml, p->threadpool);
    (void)fill_peer(p, &p->side[p->n_sides++], ggml_backend_cpu_buffer_type(), false);

    ggml_backend_dev_get_extra_bufts_t extra = NULL;
    void *address = ggml_backend_reg_get_proc_address(ggml_backend_cpu_reg(), "ggml_backend_dev_get_extra_bufts");
    memcpy(&extra, &address, sizeof extra); /* ISO C has no cast from object to function */
    ggml_backend_buffer_type_t *types = extra == NULL ? NULL : extra(ggml_backend_get_device(p->ggml));
    for (; types != NULL && *types != NULL && p->n_sides < 2; types++)
        if (strstr(ggml_backend_buft_name(*types), "REPACK") != NULL &&
            fill_peer(p, &p->side[p->n_sides], *types, true))
            p->n_sides++;
    p->n_peers = p->n_sides;
}

static void open_graph(struct peers *p, int32_t m)
{
    p->graph_ctx = new_context(2);
    struct ggml_tensor *x = ggml_new_tensor_2d(p->graph_ctx, GGML_TYPE_F32, K, m);
    p->product = ggml_mul_mat(p->graph_ctx, p->side[0].weights[0], x);
    p->graph = ggml_new_graph_custom(p->graph_ctx, 8, false);
    ggml_build_forward_expand(p->graph, p->product);
    p->graph_memory = need(ggml_backend_alloc_ctx_tensors_from_buft(p->graph_ctx, ggml_backend_cpu_buffer_type()));
    ggml_backend_tensor_set(x, p->x, 0, ggml_nbytes(x));
}

static void close_graph(struct peers *p)
{
    ggml_backend_buffer_free(p->graph_memory);
    ggml_free(p->graph_ctx);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Both. */

static void multiply(struct peers *p, struct side *side, int64_t weight, int32_t m)
{
    if (side->mode < 0) {
        p->product->src[0] = side->weights[weight];
        if (ggml_backend_graph_compute(p->ggml, p->graph) != GGML_STATUS_SUCCESS)
            fail("ggml reports a failure");
        return;
    }
    struct di_error err = {0};
    p->ops->linear(side->dev, &(struct di_linear_args){
                                  .n = m,
                                  .x = side->x,
                                  .weight = bench_pool_weight(&p->pool, N, K, weight),
                                  .f32_out = true,
                                  .out = side->out,
                              });
    if (p->ops->sync(side->dev, &err) != DI_OK)
        fail(err.message);
}

static double slice(struct peers *p, struct side *side, int32_t m)
{
    int64_t calls = 0;
    double start = 0.0, elapsed = 0.0;
    for (int64_t i = 0; elapsed < slice_seconds; i++) {
        multiply(p, side, p->order[side->at], m);
        side->at = (side->at + 1) % p->n_weights;
        double now = di_clock_seconds();
        if (i == 0) /* the first call wakes the threads and does not count */
            start = now;
        else
            calls++;
        elapsed = now - start;
    }
    if (side->mode < 0)
        ggml_threadpool_pause(p->threadpool); /* or its threads would wait busily into the next slice */
    return (double)(calls * m * N * K) / elapsed;
}

/* Relative distance (rms) of what two sides make of the first weight and eight rows. */
static double distance(struct peers *p, struct side *ours, struct side *peer)
{
    const int32_t m = 8;
    static float theirs[8 * N];
    double sum = 0.0, square = 0.0;
    open_graph(p, m);
    multiply(p, peer, 0, m);
    ggml_backend_tensor_get(p->product, theirs, 0, sizeof theirs);
    ggml_threadpool_pause(p->threadpool);
    close_graph(p);
    multiply(p, ours, 0, m);
    for (int32_t i = 0; i < m * N; i++) {
        double difference = (double)ours->out[i] - (double)theirs[i];
        sum += difference * difference;
        square += (double)theirs[i] * (double)theirs[i];
    }
    return sqrt(sum / square);
}

static json_t *check(struct peers *p)
{
    json_t *all = json_array();
    for (int32_t i = p->n_peers; i < p->n_sides; i++)
        for (int32_t j = 0; j < p->n_peers; j++) {
            double apart = distance(p, &p->side[i], &p->side[j]);
            fprintf(stderr, "%s and %s differ by %.2f %% (rms)\n", p->side[i].name, p->side[j].name, 100.0 * apart);
            if (!(apart < tolerance))
                fail("the results do not agree: there is nothing to compare");
            json_array_append_new(all, json_pack("{s:s, s:s, s:f}", "ours", p->side[i].name, "peer", p->side[j].name,
                                                 "relative_rms", apart));
        }
    return all;
}

static void print_row(const struct peers *p, const struct side *ours, const struct side *peer, int32_t m,
                      int32_t rounds, json_t *rows)
{
    static double ratio[MAX_ROUNDS], mine[MAX_ROUNDS], theirs[MAX_ROUNDS];
    const double bytes = (double)bench_weight_bytes(DI_FMT_FP4, N, K), macs = (double)((int64_t)m * N * K);
    for (int32_t i = 0; i < rounds; i++) {
        mine[i] = ours->rates[i];
        theirs[i] = peer->rates[i];
        ratio[i] = mine[i] / theirs[i];
    }
    double our_rate = bench_median(mine, rounds), peer_rate = bench_median(theirs, rounds);
    double middle = bench_median(ratio, rounds); /* sorted from here on */
    if (rows == NULL) {
        printf("%4d %-10s %9.2f %8.2f  %-18s %9.2f %8.2f  %6.2f  %.2f-%.2f\n", m, ours->name, our_rate * 1e-9,
               our_rate / macs * bytes * 1e-9, peer->name, peer_rate * 1e-9, peer_rate / macs * bytes * 1e-9, middle,
               ratio[0], ratio[rounds - 1]);
        fflush(stdout);
        return;
    }
    json_array_append_new(
        rows, json_pack("{s:i, s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "m", (int)m, "ours", ours->name,
                        "peer", peer->name, "repacked", (int)(peer != &p->side[0]), "seconds", macs / our_rate,
                        "gmac_per_s", our_rate * 1e-9, "peer_seconds", macs / peer_rate, "peer_gmac_per_s",
                        peer_rate * 1e-9, "ratio", middle, "ratio_low", ratio[0], "ratio_high", ratio[rounds - 1]));
}

static void compare(struct peers *p, int32_t m, int32_t rounds, json_t *rows)
{
    fprintf(stderr, "M = %d\n", m);
    open_graph(p, m);
    for (int32_t i = 0; i < rounds; i++)
        for (int32_t k = 0; k < p->n_sides; k++) { /* who comes first changes */
            struct side *side = &p->side[(i + k) % p->n_sides];
            side->rates[i] = slice(p, side, m);
        }
    close_graph(p);
    for (int32_t i = p->n_peers; i < p->n_sides; i++)
        for (int32_t j = 0; j < p->n_peers; j++)
            print_row(p, &p->side[i], &p->side[j], m, rounds, rows);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Setting up. */

static void *device_memory(const struct peers *p, struct di_device *dev, size_t bytes)
{
    struct di_error err = {0};
    void *memory;
    if (p->ops->alloc(dev, bytes, &memory, &err) != DI_OK)
        fail(err.message);
    return memory;
}

static void open_ours(struct peers *p, const struct options *o, int32_t mode)
{
    struct side *side = &p->side[p->n_sides++];
    struct di_error err = {0};
    struct di_device_options device = {.mode = bench_modes[mode].mode, .threads = o->threads};
    if (p->ops->open(&device, &side->dev, &err) != DI_OK)
        fail(err.message);
    snprintf(side->name, sizeof side->name, "%s", bench_modes[mode].name);
    side->mode = mode;
    side->x = device_memory(p, side->dev, (size_t)MAX_M * K * (size_t)p->ops->act_bytes);
    side->out = device_memory(p, side->dev, sizeof(float) * MAX_M * N);
    for (int32_t i = 0; i < MAX_M * K; i++) {
        if (p->ops->act_bytes == 2)
            ((uint16_t *)side->x)[i] = di_bf16_from_f32(p->x[i]);
        else
            ((float *)side->x)[i] = p->x[i];
    }
}

static void fill(struct peers *p, const struct options *o)
{
    size_t each = di_format_data_bytes(DI_FMT_FP4, N, K);
    double wanted = o->gigabytes * 1e9 / (double)each;
    size_t bytes = each * (wanted < 2.0 ? 2 : (size_t)wanted);
    p->pool = (struct bench_pool){.format = DI_FMT_FP4, .data_bytes = bytes};
    p->pool.scale_bytes = bench_scale_bytes(DI_FMT_FP4, bytes);
    p->pool.data = need(di_aligned_calloc(p->pool.data_bytes, 1));
    p->pool.scale = need(di_aligned_calloc(p->pool.scale_bytes, 1));
    fprintf(stderr, "filling %.2f GB of FP4\n", (double)bytes * 1e-9);
    bench_pool_fill(&p->pool, 1, p->team);
    p->n_weights = bench_pool_count(&p->pool, N, K);
    p->order = need(di_calloc((size_t)p->n_weights, sizeof *p->order));
    bench_shuffle(&p->random, p->order, p->n_weights);
    p->x = need(di_calloc((size_t)MAX_M * K, sizeof *p->x));
    for (int32_t i = 0; i < MAX_M * K; i++)
        p->x[i] = di_bf16_round(o->heavy_tails ? bench_random_heavy(&p->random) : bench_random_normal(&p->random));
}

static void close_all(struct peers *p)
{
    for (int32_t i = 0; i < p->n_sides; i++) {
        struct side *side = &p->side[i];
        if (side->mode >= 0) {
            p->ops->release(side->dev, side->x);
            p->ops->release(side->dev, side->out);
            p->ops->close(side->dev);
        } else {
            ggml_backend_buffer_free(side->memory);
            ggml_free(side->ctx);
            free(side->weights);
        }
    }
    ggml_backend_free(p->ggml);
    ggml_threadpool_free(p->threadpool);
    free(p->pool.data);
    free(p->pool.scale);
    free(p->order);
    free(p->x);
    di_team_close(p->team);
}

static const char *peer_instructions(void)
{
    return ggml_cpu_has_avx512()     ? "AVX-512"
           : ggml_cpu_has_avx_vnni() ? "AVX2, AVX-VNNI"
           : ggml_cpu_has_avx2()     ? "AVX2"
                                     : "other";
}

static _Noreturn void usage(int status)
{
    fprintf(
        status == 0 ? stdout : stderr,
        "usage: deepinfer-bench-peers [--backend NAME] [--mode NAME]... [--threads N] [--rounds N] [--gigabytes G]\n"
        "       [--heavy-tails] [--json]\n");
    exit(status);
}

static double number(const char *text, double least, double most)
{
    double value = bench_number(text, least, most);
    if (value < 0.0)
        usage(2);
    return value;
}

static struct options parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"backend", required_argument, NULL, 'b'},
        {"mode", required_argument, NULL, 'm'},
        {"threads", required_argument, NULL, 't'},
        {"rounds", required_argument, NULL, 'r'},
        {"gigabytes", required_argument, NULL, 'g'},
        {"heavy-tails", no_argument, NULL, 'v'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.backend = "auto", .rounds = 11, .gigabytes = 2.5};
    int code, mode, modes = 0;
    while ((code = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (code) {
        case 'b':
            o.backend = optarg;
            break;
        case 'm':
            mode = bench_mode_index(optarg);
            if (mode < 0)
                usage(2);
            o.mode[mode] = true;
            modes++;
            break;
        case 't':
            o.threads = (int32_t)number(optarg, 0, 512);
            break;
        case 'r':
            o.rounds = (int32_t)number(optarg, 1, MAX_ROUNDS);
            break;
        case 'g':
            o.gigabytes = number(optarg, 0.001, 1e5);
            break;
        case 'v':
            o.heavy_tails = true;
            break;
        case 'j':
            o.json = true;
            break;
        default:
            usage(code == 'h' ? 0 : 2);
        }
    }
    if (optind != argc)
        usage(2);
    if (modes == 0)
        o.mode[0] = true;
    return o;
}

int main(int argc, char **argv)
{
    const struct options o = parse(argc, argv);
    static struct peers p = {.random = {2}};
    struct di_error err = {0};
    if (di_backend_find("cpu", o.backend, &p.ops, &err) != DI_OK || bench_team_open(o.threads, &p.team, &err) != DI_OK)
        fail(err.message);
    bench_warn_if_busy();
    ggml_log_set(only_warnings, NULL);
    fill(&p, &o);
    open_peers(&p);
    for (int32_t i = 0; i < (int32_t)BENCH_MODES; i++)
        if (o.mode[i])
            open_ours(&p, &o, i);
    json_t *agreement = check(&p), *rows = o.json ? json_array() : NULL;
    if (!o.json) {
        printf("backend %s against ggml %s (%s; %s), %d threads, %d rounds, %lld weights [%d,%d]%s%s\n", p.ops->name,
               ggml_version(), BENCH_GGML_NAME, peer_instructions(), di_team_size(p.team), o.rounds,
               (long long)p.n_weights, N, K, o.heavy_tails ? ", heavy-tailed activations" : "",
               p.n_peers == 1 ? ", no repacked form" : "");
        printf("%4s %-10s %9s %8s  %-18s %9s %8s  %6s  %s\n", "M", "ours", "GMAC/s", "GB/s", "peer", "GMAC/s", "GB/s",
               "ratio", "range");
    }
    for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++)
        compare(&p, row_counts[i], o.rounds, rows);
    if (o.json) {
        json_t *all = json_pack("{s:o, s:s, s:{s:s, s:s, s:s}, s:i, s:i, s:f, s:b, s:[i, i], s:o, s:o}", "machine",
                                bench_machine(), "backend", p.ops->name, "peer", "ggml", ggml_version(), "source",
                                BENCH_GGML_NAME, "instructions", peer_instructions(), "threads",
                                (int)di_team_size(p.team), "rounds", (int)o.rounds, "gigabytes", o.gigabytes,
                                "heavy_tails", (int)o.heavy_tails, "shape", N, K, "agreement", agreement, "rows", rows);
        if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0)
            fail("the results could not be written");
        printf("\n");
        json_decref(all);
    } else {
        json_decref(agreement);
    }
    close_all(&p);
    return 0;
}
