/* deepinfer-bench-kernels: the speed of every operation, as a part of what the machine can do in the same moment. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/registry.h"
#include "base/clock.h"
#include "bench.h"
#include "limits.h"
#include "modes.h"
#include "report.h"

enum { MAX_ROUNDS = 1001 };

static const double slice_seconds = 0.05;

struct options {
    const char *backend, *filter;
    const char *cpu_isa;
    int mode; /* index into bench_modes */
    int32_t threads, rounds;
    double gigabytes;
    bool json, heavy_tails;
};

struct result {
    double bytes, macs;                     /* of one call */
    double seconds;                         /* of one call, median */
    double best_bytes, best_macs;           /* a second, of the best slice */
    double read_rate, fma_rate;             /* the limits, median */
    double ratio_read, ratio_fma;           /* median */
    double ratio_read_low, ratio_read_high; /* of all rounds */
};

static void usage(FILE *to)
{
    fprintf(to, "usage: deepinfer-bench-kernels [--backend NAME] [--mode");
    for (int i = 0; i < (int)BENCH_MODES; i++)
        fprintf(to, "%c%s", i == 0 ? ' ' : '|', bench_modes[i].name);
    fprintf(to, "] [--cpu-isa NAME] [--threads N] [--rounds N]\n"
                "       [--filter SUBSTRING] [--gigabytes G] [--heavy-tails] [--json]\n");
}

static _Noreturn void refuse(const char *option, const char *value)
{
    fprintf(stderr, "deepinfer-bench-kernels: --%s does not take \"%s\"\n", option, value);
    usage(stderr);
    exit(2);
}

static double number(const char *option, const char *text, double least, double most)
{
    double value = bench_number(text, least, most);
    if (value < 0.0)
        refuse(option, text);
    return value;
}

static struct options parse(int argc, char **argv)
{
    static const struct option known[] = {
        {"backend", required_argument, NULL, 'b'},
        {"mode", required_argument, NULL, 'm'},
        {"cpu-isa", required_argument, NULL, 'a'},
        {"threads", required_argument, NULL, 't'},
        {"rounds", required_argument, NULL, 'r'},
        {"filter", required_argument, NULL, 'f'},
        {"gigabytes", required_argument, NULL, 'g'},
        {"heavy-tails", no_argument, NULL, 'h' + 1},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.backend = "auto", .rounds = 11, .gigabytes = 2.5};
    int code;
    while ((code = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (code) {
        case 'b':
            o.backend = optarg;
            break;
        case 'm':
            o.mode = bench_mode_index(optarg);
            if (o.mode < 0)
                refuse("mode", optarg);
            break;
        case 'a':
            o.cpu_isa = optarg;
            break;
        case 't':
            o.threads = (int32_t)number("threads", optarg, 0, 1024);
            break;
        case 'r':
            o.rounds = (int32_t)number("rounds", optarg, 1, MAX_ROUNDS);
            break;
        case 'f':
            o.filter = optarg;
            break;
        case 'g':
            o.gigabytes = number("gigabytes", optarg, 0.001, 1e5);
            break;
        case 'h' + 1:
            o.heavy_tails = true;
            break;
        case 'j':
            o.json = true;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }
    if (optind != argc) {
        usage(stderr);
        exit(2);
    }
    return o;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Rounds. */

static void finish(const struct bench *b)
{
    struct di_error err = {0};
    if (b->ops->sync(b->dev, &err) != DI_OK)
        bench_fail(err.message);
}

/* Calls for about a slice; c->bytes and c->macs are then this slice's. */
static double kernel_slice(struct bench *b, struct bench_case *c, int64_t *calls)
{
    c->bytes = c->macs = 0.0;
    *calls = 0;
    double start = di_clock_seconds(), elapsed;
    do {
        c->call(b, c);
        finish(b);
        *calls += 1;
        elapsed = di_clock_seconds() - start;
    } while (elapsed < slice_seconds);
    return elapsed;
}

static void measure(struct bench *b, struct bench_case *c, struct bench_limits *limits, int32_t rounds,
                    struct result *out)
{
    static double seconds[MAX_ROUNDS], read[MAX_ROUNDS], fma_[MAX_ROUNDS], of_read[MAX_ROUNDS], of_fma[MAX_ROUNDS];
    double bytes = 0.0, macs = 0.0, calls = 0.0;
    *out = (struct result){.ratio_read_low = HUGE_VAL};
    c->call(b, c); /* memory that a first call reserves */
    finish(b);
    for (int32_t i = 0; i < rounds; i++) {
        int64_t count;
        double read_before = bench_read_rate(limits, slice_seconds);
        double fma_before = bench_fma_rate(limits, slice_seconds);
        double elapsed = kernel_slice(b, c, &count);
        double fma_after = bench_fma_rate(limits, slice_seconds);
        double read_after = bench_read_rate(limits, slice_seconds);
        double byte_rate = c->bytes / elapsed, mac_rate = c->macs / elapsed;
        read[i] = 0.5 * (read_before + read_after);
        fma_[i] = 0.5 * (fma_before + fma_after);
        of_read[i] = byte_rate / read[i];
        of_fma[i] = mac_rate / fma_[i];
        seconds[i] = elapsed / (double)count;
        out->best_bytes = fmax(out->best_bytes, byte_rate);
        out->best_macs = fmax(out->best_macs, mac_rate);
        out->ratio_read_low = fmin(out->ratio_read_low, of_read[i]);
        out->ratio_read_high = fmax(out->ratio_read_high, of_read[i]);
        bytes += c->bytes;
        macs += c->macs;
        calls += (double)count;
    }
    out->bytes = bytes / calls;
    out->macs = macs / calls;
    out->seconds = bench_median(seconds, rounds);
    out->read_rate = bench_median(read, rounds);
    out->fma_rate = bench_median(fma_, rounds);
    out->ratio_read = bench_median(of_read, rounds);
    out->ratio_fma = bench_median(of_fma, rounds);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Output. */

static void print_head(const struct options *o, const struct bench *b, const char *identity)
{
    printf("backend %s (%s), mode %s, %d threads, %d rounds, %.3g GB of weights a family, limits in %s%s\n",
           b->ops->name, identity, bench_modes[o->mode].name, di_team_size(b->team), o->rounds, o->gigabytes,
           bench_limits_kind(), o->heavy_tails ? ", heavy-tailed activations" : "");
    printf("%-22s %-18s %4s %10s %8s %8s %7s %7s  %8s %8s\n", "family", "shape", "M", "us/call", "GB/s", "GMAC/s",
           "% read", "% FMA", "read GB/s", "FMA GMAC/s");
}

static void print_row(const struct bench_case *c, const struct result *r)
{
    printf("%-22s %-18s %4d %10.1f %8.2f %8.2f %7.1f %7.1f  %8.1f %8.1f\n", c->family->name, c->family->shape, c->m,
           r->seconds * 1e6, r->best_bytes * 1e-9, r->best_macs * 1e-9, r->ratio_read * 100.0, r->ratio_fma * 100.0,
           r->read_rate * 1e-9, r->fma_rate * 1e-9);
    fflush(stdout);
}

static json_t *row_json(const struct bench_case *c, const struct result *r)
{
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "family",
                     c->family->name, "shape", c->family->shape, "m", (int)c->m, "bytes", r->bytes, "operations",
                     r->macs, "seconds", r->seconds, "gb_per_s", r->best_bytes * 1e-9, "gmac_per_s",
                     r->best_macs * 1e-9, "ratio_read", r->ratio_read, "ratio_fma", r->ratio_fma, "ratio_read_low",
                     r->ratio_read_low, "ratio_read_high", r->ratio_read_high, "read_gb_per_s", r->read_rate * 1e-9,
                     "fma_gmac_per_s", r->fma_rate * 1e-9);
}

static int print_json(const struct options *o, const struct bench *b, const char *identity, json_t *rows)
{
    json_t *all = json_pack("{s:o, s:s, s:s, s:s, s:i, s:i, s:f, s:b, s:s, s:o}", "machine", bench_machine(), "backend",
                            b->ops->name, "identity", identity, "mode", bench_modes[o->mode].name, "threads",
                            (int)di_team_size(b->team), "rounds", (int)o->rounds, "gigabytes", o->gigabytes,
                            "heavy_tails", (int)o->heavy_tails, "limits", bench_limits_kind(), "rows", rows);
    if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0)
        bench_fail("the results could not be written");
    json_decref(all);
    printf("\n");
    return 0;
}

static void run_families(const struct options *o, struct bench *b, struct bench_limits *limits,
                         const struct bench_family *families, int32_t count, json_t *rows)
{
    for (int32_t i = 0; i < count; i++) {
        const struct bench_family *f = &families[i];
        if (!bench_wanted(o->filter, f->name))
            continue;
        for (int32_t k = 0; f->m[k] != 0; k++) {
            struct bench_case c;
            struct result result;
            fprintf(stderr, "%s %s, M = %d\n", f->name, f->shape, f->m[k]);
            bench_case_open(b, f, f->m[k], &c);
            measure(b, &c, limits, o->rounds, &result);
            if (o->json)
                json_array_append_new(rows, row_json(&c, &result));
            else
                print_row(&c, &result);
            bench_case_close(b, &c);
        }
    }
}

int main(int argc, char **argv)
{
    const struct options o = parse(argc, argv);
    struct bench b = {
        .gigabytes = o.gigabytes, .heavy_tails = o.heavy_tails, .random = {1}, .pool = {.format = DI_FMT_COUNT}};
    struct di_device_options device = {.mode = bench_modes[o.mode].mode, .threads = o.threads, .cpu_isa = o.cpu_isa};
    struct bench_limits *limits = NULL;
    struct di_error err = {0};
    char identity[128];
    if (di_backend_find("cpu", o.backend, &b.ops, &err) != DI_OK || b.ops->open(&device, &b.dev, &err) != DI_OK ||
        bench_team_open(o.threads, &b.team, &err) != DI_OK ||
        bench_limits_open(b.team, (size_t)1 << 30, &limits, &err) != DI_OK)
        bench_fail(err.message);
    bench_warn_if_busy();
    b.ops->identity(b.dev, identity, sizeof identity);
    if (!o.json)
        print_head(&o, &b, identity);
    const struct bench_family *(*const parts[])(int32_t *) = {bench_matrix_families, bench_row_families,
                                                              bench_context_families};
    json_t *rows = json_array();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int32_t count;
        const struct bench_family *families = parts[i](&count);
        run_families(&o, &b, limits, families, count, rows);
    }
    int status = o.json ? print_json(&o, &b, identity, rows) : 0;
    if (!o.json)
        json_decref(rows);
    bench_limits_close(limits);
    bench_close(&b);
    di_team_close(b.team);
    return status;
}
