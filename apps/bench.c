/* deepinfer bench: the engine's throughput and latencies on a trace of random prompts. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "progress.h"

static const struct app_option own_options[] = {
    {"requests", "N", "Requests that are measured. Default: 64."},
    {"warmup", "N", "Requests that run before, with prompts of their own. Default: 1."},
    {"concurrency", "C", "So many requests at a time; the next one comes when one ends. Default: 16."},
    {"rate", "R", "Instead: R requests a second on average, at random moments (Poisson), whatever the engine manages."},
    {"input-len", "N|LOW:HIGH", "Tokens of a prompt. Default: 128."},
    {"output-len", "N|LOW:HIGH", "Tokens of an output. Default: 32."},
    {"shared-prefix", "N", "So many tokens in front of the prompt are those of its group. Default: 0."},
    {"prefix-groups", "N", "Groups, of which each request belongs to one by chance. Default: 1."},
    {"seed", "S", "Seed of the trace and of the sampling. Default: 0."},
    {"temperature", "T", "Sampling temperature. Default: 1."},
    {"top-k", "K", "As for run. Default: 0."},
    {"top-p", "P", "As for run. Default: 1."},
    {"min-p", "P", "As for run. Default: 0."},
    {"repetition-penalty", "R", "As for run. Default: 1."},
    {"logprobs", "N", "As for run. Default: none."},
    {"json", NULL, "Print one JSON object; errors are JSON too."},
    {NULL, NULL, NULL},
};

/* ---- random numbers: splitmix64 ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

static uint64_t next_random(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15U);
}

/* In 0 .. n - 1; n < 2^32. */
static uint64_t below(uint64_t *state, uint64_t n)
{
    return (next_random(state) >> 32) * n >> 32;
}

/* A stream of its own for every request, group and purpose. */
enum purpose { LENGTHS, IDS, PREFIX, ARRIVALS, WARMUP };

static uint64_t stream(uint64_t seed, enum purpose purpose, uint64_t index)
{
    return mix(mix(seed + (uint64_t)purpose * 0xc2b2ae3d27d4eb4fU) ^ index);
}

/* ---- the trace ---- */

struct bench {
    const struct app_args *args;
    struct bench_trace trace;
    struct bench_result result;
    di_engine *engine;
    int32_t *ids, *kinds; /* a prompt; the ids that prompts are made of */
    size_t n_kinds;
};

/* Every id of the vocabulary that has text of its own. */
static bool list_kinds(struct bench *b)
{
    const di_tokenizer *tokenizer = di_engine_tokenizer(b->engine);
    int32_t vocab = di_engine_vocab_size(b->engine), known = di_tokenizer_vocab_size(tokenizer);
    size_t len;
    b->kinds = calloc((size_t)vocab, sizeof *b->kinds);
    for (int32_t id = 1; b->kinds != NULL && id < vocab && id < known; id++)
        if (!di_tokenizer_is_special(tokenizer, id) && di_tokenizer_token_bytes(tokenizer, id, &len) != NULL)
            b->kinds[b->n_kinds++] = id;
    return b->kinds != NULL;
}

static void add_ids(const struct bench *b, size_t *n, int64_t count, uint64_t state)
{
    for (int64_t i = 0; i < count; i++)
        b->ids[(*n)++] = b->kinds[below(&state, b->n_kinds)];
}

static int64_t within(struct bench_range range, uint64_t *state)
{
    return range.low + (int64_t)below(state, (uint64_t)(range.high - range.low) + 1);
}

static di_status submit(struct bench *b, uint64_t index, bool warm, struct di_error *err)
{
    const struct bench_trace *t = &b->trace;
    uint64_t seed = warm ? stream(t->seed, WARMUP, 0) : t->seed, lengths = stream(seed, LENGTHS, index);
    struct di_request request = {.prompt = b->ids, .params = t->params};
    int64_t input = within(t->input, &lengths);
    request.params.max_tokens = (int32_t)within(t->output, &lengths);
    request.params.ignore_eos = true;
    request.params.has_seed = true;
    request.params.seed = lengths;
    add_ids(b, &request.n_prompt, t->shared_prefix, stream(seed, PREFIX, below(&lengths, (uint64_t)t->prefix_groups)));
    add_ids(b, &request.n_prompt, input, stream(seed, IDS, index));
    return di_submit(b->engine, &request, NULL, err);
}

/* ---- running it ---- */

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void note(struct bench *b, const struct di_event *event)
{
    b->result.times[b->result.done++] = (struct bench_times){
        .queued = event->queued_seconds,
        .first = event->first_seconds,
        .total = event->total_seconds,
        .per_token = event->n_output > 1 ? (event->total_seconds - event->first_seconds) / (double)(event->n_output - 1)
                                         : -1.0,
    };
}

/* Waits until then at most for the end of a request; *came says whether there was one. */
static di_status collect(struct bench *b, double until, bool measured, bool *came, struct di_error *err)
{
    struct di_event *event;
    double left = until - app_seconds();
    di_status status = di_next_event(b->engine, left > 0.0 ? left : 0.0, &event, err);
    *came = event != NULL;
    if (status != DI_OK || event == NULL)
        return status;
    if (event->error.code != DI_OK)
        *err = event->error;
    status = event->error.code;
    if (measured && status == DI_OK)
        note(b, event);
    di_event_free(b->engine, event);
    return status;
}

/* Submits `count` requests as the trace says and waits for all of them. */
static di_status drive(struct bench *b, int64_t count, bool warm, struct di_error *err)
{
    const struct bench_trace *t = &b->trace;
    uint64_t arrivals = stream(t->seed, ARRIVALS, 0);
    int64_t sent = 0, ended = 0;
    double due = app_seconds();
    while (ended < count) {
        bool open = t->rate > 0.0 && !warm, came = true;
        double now = app_seconds(), until = now + 1.0;
        if (sent < count && (open ? now >= due : sent - ended < (warm ? 1 : t->concurrency))) {
            di_status status = submit(b, (uint64_t)sent, warm, err);
            if (status != DI_OK)
                return status;
            sent++;
            double u = (double)(next_random(&arrivals) >> 11) * 0x1p-53;
            due += open ? -log1p(-u) / t->rate : 0.0;
            until = now; /* there may be more to submit */
        } else if (open && sent < count) {
            until = due;
        }
        while (came) {
            di_status status = collect(b, until, !warm, &came, err);
            if (status != DI_OK)
                return status;
            ended += came;
            until = now;
        }
    }
    return DI_OK;
}

/* Counters, once the engine has nothing left to do: they follow the last event. */
static struct di_engine_stats settled_stats(const struct bench *b, uint64_t finished)
{
    struct di_engine_stats stats;
    for (int i = 0; i < 1000; i++) {
        di_engine_get_stats(b->engine, &stats);
        if (stats.finished >= finished && stats.running + stats.waiting + stats.swapped == 0)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return stats;
}

static void subtract(struct di_engine_stats *after, const struct di_engine_stats *before)
{
    after->steps -= before->steps;
    after->rows -= before->rows;
    after->draws -= before->draws;
    after->row_layers -= before->row_layers;
    after->row_layers_saved -= before->row_layers_saved;
    after->requests -= before->requests;
    after->finished -= before->finished;
    after->preemptions -= before->preemptions;
    after->prompt_tokens -= before->prompt_tokens;
    after->output_tokens -= before->output_tokens;
    after->cached_tokens -= before->cached_tokens;
    after->zombie_rows -= before->zombie_rows;
    after->engine_seconds -= before->engine_seconds;
    after->step_seconds -= before->step_seconds;
}

static int measure(struct bench *b)
{
    const struct bench_trace *t = &b->trace;
    struct di_error err = {0};
    if (t->warmup > 0 && drive(b, t->warmup, true, &err) != DI_OK)
        return app_error(b->args, app_input_code(&err), &err);
    struct di_engine_stats before = settled_stats(b, (uint64_t)t->warmup);
    double started = app_seconds(), busy = thread_seconds();
    if (drive(b, t->requests, false, &err) != DI_OK)
        return app_error(b->args, app_input_code(&err), &err);
    b->result.seconds = app_seconds() - started;
    b->result.client_seconds = thread_seconds() - busy;
    b->result.stats = settled_stats(b, (uint64_t)(t->warmup + t->requests));
    subtract(&b->result.stats, &before);
    if (bench_print(b->args, b->engine, t, &b->result))
        return APP_OK;
    return app_fail(b->args, APP_FAILED, DI_ERR_NOMEM, "out of memory while the report was put together");
}

/* ---- options ---- */

/* N or LOW:HIGH. */
static int read_range(const struct app_args *args, const char *name, struct bench_range *range)
{
    const char *text = args_value(args, name);
    long long low, high;
    int used = 0;
    if (text == NULL)
        return APP_OK;
    if (strspn(text, "0123456789:") == strlen(text) && strlen(text) < 20) {
        if (sscanf(text, "%lld:%lld%n", &low, &high, &used) == 2 && text[used] == '\0' && low >= 1 && low <= high &&
            high <= INT32_MAX) {
            *range = (struct bench_range){low, high};
            return APP_OK;
        }
        if (sscanf(text, "%lld%n", &low, &used) == 1 && text[used] == '\0' && low >= 1 && low <= INT32_MAX) {
            *range = (struct bench_range){low, low};
            return APP_OK;
        }
    }
    return app_usage(args, "option --%s: \"%s\" is neither a number from 1 on nor LOW:HIGH", name, text);
}

static int read_trace(const struct app_args *args, struct app_sampling *sampling, struct bench_trace *trace)
{
    *trace = (struct bench_trace){
        .requests = 64, .warmup = 1, .concurrency = 16, .input = {128, 128}, .output = {32, 32}, .prefix_groups = 1};
    int code = app_sampling_read(args, sampling);
    if (code == APP_OK)
        code = args_int(args, "requests", 1, 100000000, &trace->requests);
    if (code == APP_OK)
        code = args_int(args, "warmup", 0, 1000000, &trace->warmup);
    if (code == APP_OK)
        code = args_int(args, "concurrency", 1, 1000000, &trace->concurrency);
    if (code == APP_OK)
        code = args_real(args, "rate", 1e-6, &trace->rate);
    if (code == APP_OK && trace->rate > 0.0 && args_has(args, "concurrency"))
        code = app_usage(args, "options --concurrency and --rate exclude each other");
    if (code == APP_OK)
        code = read_range(args, "input-len", &trace->input);
    if (code == APP_OK)
        code = read_range(args, "output-len", &trace->output);
    if (code == APP_OK)
        code = args_int(args, "shared-prefix", 0, INT32_MAX, &trace->shared_prefix);
    if (code == APP_OK)
        code = args_int(args, "prefix-groups", 1, INT32_MAX, &trace->prefix_groups);
    trace->concurrency = trace->rate > 0.0 ? 0 : trace->concurrency;
    trace->seed = sampling->params.seed;
    trace->params = sampling->params;
    return code;
}

static int run(struct bench *b)
{
    const struct bench_trace *t = &b->trace;
    struct di_error err = {0};
    if (di_engine_open(NULL, b->args->engine, &b->engine, &err) != DI_OK)
        return app_error(b->args, app_open_code(&err), &err);
    int64_t most = t->shared_prefix + t->input.high, longest = di_engine_max_model_len(b->engine);
    if (most + t->output.high > longest)
        return app_usage(
            b->args,
            "options --shared-prefix, --input-len and --output-len: %lld tokens together; max-model-len is %lld",
            (long long)(most + t->output.high), (long long)longest);
    b->ids = calloc((size_t)most, sizeof *b->ids);
    b->result.times = calloc((size_t)t->requests, sizeof *b->result.times);
    if (!list_kinds(b) || b->ids == NULL || b->result.times == NULL)
        return app_fail(b->args, APP_FAILED, DI_ERR_NOMEM, "out of memory");
    if (b->n_kinds == 0)
        return app_fail(b->args, APP_NO_MODEL, DI_ERR_UNSUPPORTED, "the tokenizer has no ordinary tokens");
    return measure(b);
}

int cmd_bench(int argc, char **argv)
{
    struct app_args args = {
        .command = "bench",
        .usage = "bench [--model MODEL] [--requests N] [--concurrency C | --rate R] [--input-len N] [options]",
        .own = own_options,
    };
    struct app_sampling sampling = {0};
    struct bench b = {.args = &args};
    int code;
    if (args_parse(&args, argc, argv, &code)) {
        code = read_trace(&args, &sampling, &b.trace);
        if (code == APP_OK)
            code = run(&b);
        code = app_finish_stdout(&args, code);
    }
    di_engine_close(b.engine);
    free(b.ids);
    free(b.kinds);
    free(b.result.times);
    app_sampling_free(&sampling);
    args_free(&args);
    return code;
}
