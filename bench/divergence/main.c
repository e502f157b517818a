/* deepinfer-bench-divergence: how far the next-token distributions of the numeric modes lie apart on a text.
 *
 *     deepinfer-bench-divergence MODEL TEXT [name=value ...]       options of the engine, such as threads=2
 *
 * The text is cut into windows of WINDOW tokens, a beginning-of-sequence token in front of each; every mode predicts every token.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/options.h"
#include "deepinfer/tokenizer.h"
#include "engine/engine.h"
#include "engine/session.h"

enum { MODES = 3, WINDOW = 512 };
static const char *const modes[MODES] = {"oracle", "native", "fast"};

struct tally {
    double nats, same_top;          /* of the text; predictions whose most likely token is that of modes[0] */
    double sum[MODES], most[MODES]; /* KL from modes[i] */
};

struct bench {
    struct di_engine *engine[MODES];
    struct di_session *session[MODES];
    double *logp[MODES]; /* [WINDOW][vocab] of the present window */
    struct tally tally[MODES];
    int64_t predictions;
};

static di_status open_mode(struct bench *b, int m, const char *path, int argc, char **argv, struct di_error *err)
{
    di_options *options = NULL;
    DI_TRY(di_options_create(&options, err));
    di_status status = di_options_set(options, "mode", modes[m], err);
    for (int i = 0; i < argc && status == DI_OK; i++) {
        char name[64];
        const char *equals = strchr(argv[i], '=');
        snprintf(name, sizeof name, "%.*s", equals != NULL ? (int)(equals - argv[i]) : 0, argv[i]);
        status = di_options_set(options, name, equals != NULL ? equals + 1 : "", err);
    }
    if (status == DI_OK)
        status = di_engine_load(path, options, &b->engine[m], err);
    di_options_free(options);
    DI_TRY(status);
    struct di_session_options size = {.max_rows = WINDOW, .max_logit_rows = WINDOW, .max_length = WINDOW};
    DI_TRY(di_session_open(b->engine[m], &size, &b->session[m], err));
    b->logp[m] = malloc(sizeof(double) * WINDOW * (size_t)b->engine[m]->config->vocab_size);
    return b->logp[m] != NULL ? DI_OK : DI_FAIL_NOMEM(err, 0);
}

static void log_softmax(double *out, const float *logits, int32_t vocab)
{
    double most = -INFINITY, sum = 0.0;
    for (int32_t v = 0; v < vocab; v++)
        most = fmax(most, (double)logits[v]);
    for (int32_t v = 0; v < vocab; v++)
        sum += exp((double)logits[v] - most);
    for (int32_t v = 0; v < vocab; v++)
        out[v] = (double)logits[v] - most - log(sum);
}

static int32_t top(const double *logp, int32_t vocab)
{
    int32_t best = 0;
    for (int32_t v = 1; v < vocab; v++)
        if (logp[v] > logp[best])
            best = v;
    return best;
}

static double divergence(const double *from, const double *to, int32_t vocab)
{
    double sum = 0.0;
    for (int32_t v = 0; v < vocab; v++)
        sum += exp(from[v]) * (from[v] - to[v]);
    return sum;
}

/* ids[0 .. n-1] are fed, ids[1 .. n] predicted. */
static di_status run_window(struct bench *b, const int32_t *ids, int32_t n, struct di_error *err)
{
    int32_t vocab = b->engine[0]->config->vocab_size;
    float *row = malloc(sizeof(float) * (size_t)vocab);
    di_status status = row != NULL ? DI_OK : DI_FAIL_NOMEM(err, 0);
    for (int m = 0; m < MODES && status == DI_OK; m++) {
        struct di_feed feed = {.ids = ids, .n = n, .logits = DI_LOGITS_ALL};
        di_session_reset(b->session[m]);
        status = di_session_feed(b->session[m], &feed, err);
        for (int32_t i = 0; i < n && status == DI_OK; i++) {
            status = di_session_logits(b->session[m], i, row, err);
            log_softmax(b->logp[m] + (int64_t)i * vocab, row, vocab);
        }
    }
    free(row);
    DI_TRY(status);
    for (int m = 0; m < MODES; m++)
        for (int32_t i = 0; i < n; i++) {
            struct tally *t = &b->tally[m];
            const double *p = b->logp[m] + (int64_t)i * vocab, *oracle = b->logp[0] + (int64_t)i * vocab;
            t->nats -= p[ids[i + 1]];
            t->same_top += top(p, vocab) == top(oracle, vocab);
            for (int from = 0; from < MODES; from++) {
                double kl = divergence(b->logp[from] + (int64_t)i * vocab, p, vocab);
                t->sum[from] += kl;
                t->most[from] = fmax(t->most[from], kl);
            }
        }
    b->predictions += n;
    return DI_OK;
}

static di_status run_text(struct bench *b, const char *path, size_t *bytes, struct di_error *err)
{
    char *text = NULL;
    di_token_list ids = {0};
    DI_TRY(di_file_read(path, (size_t)1 << 26, &text, bytes, err));
    di_status status = di_tokenizer_encode(b->engine[0]->tokenizer, text, *bytes, false, &ids, err);
    free(text);
    int32_t window[WINDOW + 1] = {b->engine[0]->config->bos_token_id};
    for (size_t at = 0; at < ids.count && status == DI_OK;) {
        int32_t n = ids.count - at < WINDOW ? (int32_t)(ids.count - at) : WINDOW;
        memcpy(window + 1, ids.ids + at, (size_t)n * sizeof *window);
        status = run_window(b, window, n, err);
        at += (size_t)n;
    }
    di_token_list_free(&ids);
    return status;
}

static void print(const struct bench *b, const char *model, const char *text, size_t bytes)
{
    double n = (double)b->predictions;
    printf("%s on %s: %lld tokens, %zu bytes\n", model, text, (long long)b->predictions, bytes);
    printf("%-44s bits/byte  same top   KL from oracle: mean, most   from native: mean, most\n", "identity");
    for (int m = 0; m < MODES; m++) {
        const struct tally *t = &b->tally[m];
        printf("%-44s %9.4f %8.2f%% %19.6f %9.4f %16.6f %9.4f\n", b->engine[m]->identity,
               t->nats / log(2.0) / (double)bytes, 100.0 * t->same_top / n, t->sum[0] / n, t->most[0], t->sum[1] / n,
               t->most[1]);
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct di_error err = {0};
    size_t bytes = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: deepinfer-bench-divergence MODEL TEXT [option=value ...]\n");
        return 2;
    }
    di_status status = DI_OK;
    for (int m = 0; m < MODES && status == DI_OK; m++)
        status = open_mode(&b, m, argv[1], argc - 3, argv + 3, &err);
    if (status == DI_OK)
        status = run_text(&b, argv[2], &bytes, &err);
    if (status == DI_OK)
        print(&b, argv[1], argv[2], bytes);
    else
        fprintf(stderr, "deepinfer-bench-divergence: %s\n", err.message);
    for (int m = 0; m < MODES; m++) {
        di_session_close(b.session[m]);
        di_engine_close(b.engine[m]);
        free(b.logp[m]);
    }
    return status == DI_OK ? 0 : 1;
}
