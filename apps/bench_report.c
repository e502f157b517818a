#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "result.h"

/* ---- percentiles ---- */

struct spread {
    double mean, p50, p90, p99;
    size_t n;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank. */
static double percentile(const double *sorted, size_t n, size_t percent)
{
    size_t rank = (n * percent + 99) / 100;
    return sorted[rank > 0 ? rank - 1 : 0];
}

/* Of one field of all requests, negative ones left out. False if memory ran out. */
static bool find_spread(const struct bench_result *result, size_t field, struct spread *out)
{
    double *values = calloc(result->done + 1, sizeof *values), sum = 0.0;
    *out = (struct spread){0};
    if (values == NULL)
        return false;
    for (size_t i = 0; i < result->done; i++) {
        double value;
        memcpy(&value, (const char *)&result->times[i] + field, sizeof value);
        if (value < 0.0)
            continue;
        values[out->n++] = value;
        sum += value;
    }
    qsort(values, out->n, sizeof *values, compare);
    if (out->n > 0)
        *out = (struct spread){sum / (double)out->n, percentile(values, out->n, 50), percentile(values, out->n, 90),
                               percentile(values, out->n, 99), out->n};
    free(values);
    return true;
}

static const struct {
    const char *key, *label;
    size_t field;
} latencies[] = {
    {"ttft_seconds", "time to first token", offsetof(struct bench_times, first)},
    {"tpot_seconds", "time per output token", offsetof(struct bench_times, per_token)},
    {"e2e_seconds", "end to end", offsetof(struct bench_times, total)},
    {"queue_seconds", "waited to run", offsetof(struct bench_times, queued)},
};

enum { LATENCIES = sizeof latencies / sizeof latencies[0] };

/* ---- the report as data ---- */

/* Cores that the engine computes with. */
static int cores(const struct app_args *args)
{
    cpu_set_t set;
    int threads = (int)strtol(di_options_get(args->engine, "threads"), NULL, 10);
    if (threads > 0)
        return threads;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static json_t *trace_json(const struct bench_trace *t)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:[I,I], s:[I,I], s:I, s:I, s:I, s:f}", "count", (json_int_t)t->requests,
                     "warmup", (json_int_t)t->warmup, "concurrency",
                     t->rate > 0.0 ? json_null() : json_integer(t->concurrency), "rate",
                     t->rate > 0.0 ? json_real(t->rate) : json_null(), "input_len", (json_int_t)t->input.low,
                     (json_int_t)t->input.high, "output_len", (json_int_t)t->output.low, (json_int_t)t->output.high,
                     "shared_prefix", (json_int_t)t->shared_prefix, "prefix_groups", (json_int_t)t->prefix_groups,
                     "seed", (json_int_t)t->seed, "temperature", t->params.temperature);
}

static json_t *options_json(const struct app_args *args)
{
    struct di_option_info info;
    json_t *object = json_object();
    for (size_t i = 0; di_option_at(i, &info); i++)
        if (json_object_set_new(object, info.name, json_string(di_options_get(args->engine, info.name))) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *engine_json(const struct bench_result *r, int n_cores)
{
    const struct di_engine_stats *s = &r->stats;
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"steps", s->steps},
        {"rows", s->rows},
        {"draws", s->draws},
        {"row_layers", s->row_layers},
        {"row_layers_saved", s->row_layers_saved},
        {"preemptions", s->preemptions},
        {"zombie_rows", s->zombie_rows},
    };
    json_t *object = json_pack("{s:i, s:f, s:f, s:f, s:f}", "cores", n_cores, "cpu_seconds", s->engine_seconds,
                               "cpu_share", s->engine_seconds / (r->seconds * n_cores), "client_cpu_seconds",
                               r->client_seconds, "step_seconds", s->step_seconds);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (json_object_set_new(object, counts[i].key, json_integer((json_int_t)counts[i].value)) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *report_json(const struct app_args *args, di_engine *engine, const struct bench_trace *trace,
                           const struct bench_result *r)
{
    const struct di_engine_stats *s = &r->stats;
    double in = (double)s->prompt_tokens, out = (double)s->output_tokens;
    json_t *root = json_pack("{s:o?, s:f, s:f, s:{s:I, s:I, s:I}, s:{s:f, s:f, s:f}}", "requests", trace_json(trace),
                             "seconds", r->seconds, "requests_per_second", (double)r->done / r->seconds, "tokens",
                             "prompt", (json_int_t)s->prompt_tokens, "output", (json_int_t)s->output_tokens, "cached",
                             (json_int_t)s->cached_tokens, "tokens_per_second", "total", (in + out) / r->seconds,
                             "prefill", in / r->seconds, "decode", out / r->seconds);
    bool whole = root != NULL;
    for (int i = 0; i < LATENCIES && whole; i++) {
        struct spread spread;
        whole = find_spread(r, latencies[i].field, &spread);
        json_t *object = json_pack("{s:f, s:f, s:f, s:f}", "mean", spread.mean, "p50", spread.p50, "p90", spread.p90,
                                   "p99", spread.p99);
        whole = json_object_set_new(root, latencies[i].key, spread.n > 0 ? object : json_null()) == 0 && whole;
        if (spread.n == 0)
            json_decref(object);
    }
    whole = whole && json_object_set_new(root, "engine", engine_json(r, cores(args))) == 0;
    whole = whole && json_object_set_new(root, "identity", json_string(di_engine_identity(engine))) == 0;
    whole = whole && json_object_set_new(root, "options", options_json(args)) == 0;
    if (whole)
        return root;
    json_decref(root);
    return NULL;
}

/* ---- for people ---- */

static double number(const json_t *root, const char *group, const char *key)
{
    return json_number_value(json_object_get(group != NULL ? json_object_get(root, group) : root, key));
}

static void print_range(const char *label, struct bench_range range)
{
    if (range.low == range.high)
        app_print("%s %lld", label, (long long)range.low);
    else
        app_print("%s %lld to %lld", label, (long long)range.low, (long long)range.high);
}

static void print_trace(const struct bench_trace *t)
{
    app_print("trace     %lld requests, ", (long long)t->requests);
    if (t->rate > 0.0)
        app_print("%g a second", t->rate);
    else
        app_print("%lld at a time", (long long)t->concurrency);
    print_range(";", t->input);
    print_range(" tokens in,", t->output);
    app_print(" out");
    if (t->shared_prefix > 0)
        app_print("; %lld shared in front, %lld groups", (long long)t->shared_prefix, (long long)t->prefix_groups);
    app_print("; seed %llu\n", (unsigned long long)t->seed);
}

/* Those that differ from their defaults. */
static void print_settings(const struct app_args *args)
{
    struct di_option_info info;
    app_print("settings ");
    for (size_t i = 0; di_option_at(i, &info); i++) {
        const char *value = di_options_get(args->engine, info.name);
        if (strcmp(value, info.default_value) != 0)
            app_print(" %s=%s", info.name, value);
    }
    app_print("\n");
}

static void print_report(const struct app_args *args, const struct bench_trace *trace, const json_t *root)
{
    double layers = number(root, "engine", "row_layers"), saved = number(root, "engine", "row_layers_saved");
    app_print("identity  %s\n", json_string_value(json_object_get(root, "identity")));
    print_settings(args);
    print_trace(trace);
    app_print("time      %.3f s, %.2f requests/s\n", number(root, NULL, "seconds"),
              number(root, NULL, "requests_per_second"));
    app_print("tokens    %.0f in (%.0f cached), %.0f out\n", number(root, "tokens", "prompt"),
              number(root, "tokens", "cached"), number(root, "tokens", "output"));
    app_print("tokens/s  %.1f: %.1f prefill, %.1f decode\n\n", number(root, "tokens_per_second", "total"),
              number(root, "tokens_per_second", "prefill"), number(root, "tokens_per_second", "decode"));
    app_print("%-24s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50", "p90", "p99");
    for (int i = 0; i < LATENCIES; i++) {
        const json_t *spread = json_object_get(root, latencies[i].key);
        if (json_is_object(spread))
            app_print("%-24s %10.2f %10.2f %10.2f %10.2f\n", latencies[i].label, 1e3 * number(spread, NULL, "mean"),
                      1e3 * number(spread, NULL, "p50"), 1e3 * number(spread, NULL, "p90"),
                      1e3 * number(spread, NULL, "p99"));
        else
            app_print("%-24s %10s\n", latencies[i].label, "-");
    }
    app_print("\nengine    %.2f %% of %.0f cores (thread %.3f s, this one %.3f s)\n",
              100.0 * number(root, "engine", "cpu_share"), number(root, "engine", "cores"),
              number(root, "engine", "cpu_seconds"), number(root, "engine", "client_cpu_seconds"));
    app_print("steps     %.0f, of %.1f rows each; %.0f draws; %.0f zombie rows; %.0f preemptions\n",
              number(root, "engine", "steps"), number(root, "engine", "rows") / number(root, "engine", "steps"),
              number(root, "engine", "draws"), number(root, "engine", "zombie_rows"),
              number(root, "engine", "preemptions"));
    app_print("rows      %.0f; in layers %.0f, and %.0f (%.1f %%) saved by truncation\n",
              number(root, "engine", "rows"), layers, saved,
              layers + saved > 0.0 ? 100.0 * saved / (layers + saved) : 0.0);
}

bool bench_print(const struct app_args *args, di_engine *engine, const struct bench_trace *trace,
                 const struct bench_result *result)
{
    size_t len;
    json_t *root = report_json(args, engine, trace, result);
    if (root == NULL)
        return false;
    if (!args_has(args, "json")) {
        print_report(args, trace, root);
        json_decref(root);
        return true;
    }
    char *line = app_json_line(root, &len);
    if (line != NULL)
        app_write(line, len);
    free(line);
    return line != NULL;
}
