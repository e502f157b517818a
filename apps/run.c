/* deepinfer run: a prompt in, text out as it comes. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

static const struct app_option own_options[] = {
    {"prompt", "TEXT", "The prompt."},
    {"prompt-file", "FILE", "Read the prompt from a file; - is standard input."},
    {"ids", "FILE", "The prompt as a JSON list of token ids, taken as they are."},
    {"bos", "on|off",
     "Put the beginning-of-sequence token in front of a text prompt that does not begin with it. Default: on."},
    {"temperature", "T", "Sampling temperature; 0 takes the most likely token. Default: 1."},
    {"seed", "S", "Seed of the sampling noise. Default: drawn, and reported with --stats and --json."},
    {"max-tokens", "N", "Most tokens to generate. Default: 256."},
    {"ignore-eos", NULL, "Do not stop at the end-of-sequence token."},
    {"stats", NULL, "Print tokens and speed on standard error."},
    {"json", NULL, "Print one JSON object at the end instead of streaming; errors are JSON too."},
    {NULL, NULL, NULL},
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* What the callback gathers. */
struct output {
    bool stream, failed;
    di_token_list ids;
    char *text;
    size_t len, capacity;
};

static bool append_text(struct output *out, const char *text, size_t len)
{
    if (out->len + len + 1 > out->capacity) {
        size_t capacity = 2 * (out->len + len + 1);
        char *grown = realloc(out->text, capacity);
        if (grown == NULL)
            return false;
        out->text = grown;
        out->capacity = capacity;
    }
    memcpy(out->text + out->len, text, len);
    out->len += len;
    out->text[out->len] = '\0';
    return true;
}

static bool on_token(void *user, const struct di_token_event *event)
{
    struct output *out = user;
    if (out->stream) {
        if (event->text_len != 0)
            out->failed = fwrite(event->text, 1, event->text_len, stdout) != event->text_len || fflush(stdout) != 0;
    } else {
        out->failed = !append_text(out, event->text, event->text_len) ||
                      di_token_list_push(&out->ids, event->id, NULL) != DI_OK;
    }
    return !out->failed && !interrupted;
}

/* Text -> ids, with BOS in front unless it is there or not wanted. */
static int encode_prompt(const struct app_args *args, di_engine *engine, const char *text, size_t len,
                         di_token_list *ids)
{
    struct di_error err = {0};
    const char *bos = app_value(args, "bos");
    if (bos != NULL && strcmp(bos, "on") != 0 && strcmp(bos, "off") != 0)
        return app_usage(args, "option --bos: \"%s\" is not one of on|off", bos);
    if (len == 0)
        return app_usage(args, "the prompt is empty");
    if (di_tokenizer_encode(di_engine_tokenizer(engine), text, len, true, ids, &err) != DI_OK)
        return app_error(args, APP_USAGE, &err);
    int32_t id = di_engine_bos_token_id(engine);
    if (id < 0 || (bos != NULL && strcmp(bos, "off") == 0) || (ids->count > 0 && ids->ids[0] == id))
        return APP_OK;
    if (di_token_list_push(ids, id, &err) != DI_OK)
        return app_error(args, APP_FAILED, &err);
    memmove(ids->ids + 1, ids->ids, (ids->count - 1) * sizeof *ids->ids);
    ids->ids[0] = id;
    return APP_OK;
}

static int read_prompt(const struct app_args *args, di_engine *engine, di_token_list *ids)
{
    const char *text = app_value(args, "prompt"), *file = app_value(args, "prompt-file");
    char *data;
    size_t size;
    if (app_has(args, "ids"))
        return app_read_ids(args, app_value(args, "ids"), ids);
    if (text != NULL)
        return encode_prompt(args, engine, text, strlen(text), ids);
    int code = app_read_file(args, file, &data, &size);
    if (code == APP_OK)
        code = encode_prompt(args, engine, data, size, ids);
    if (code == APP_OK || size != 0)
        free(data);
    return code;
}

static int read_params(const struct app_args *args, struct di_sampling_params *params)
{
    struct di_error err = {0};
    int64_t max_tokens;
    *params = di_sampling_defaults();
    int code = app_real(args, "temperature", params->temperature, &params->temperature);
    if (code == APP_OK)
        code = app_int(args, "max-tokens", INT32_MIN, INT32_MAX, params->max_tokens, &max_tokens);
    if (code != APP_OK)
        return code;
    params->max_tokens = (int32_t)max_tokens;
    params->ignore_eos = app_has(args, "ignore-eos");
    params->has_seed = app_has(args, "seed");
    if (params->has_seed)
        code = app_u64(args, "seed", &params->seed);
    if (code == APP_OK && di_sampling_validate(params, &err) != DI_OK)
        code = app_error(args, APP_USAGE, &err);
    return code;
}

static json_t *id_list(const int32_t *ids, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static void print_json(const struct output *out, const di_token_list *prompt, const struct di_generation *result,
                       const di_engine *engine)
{
    char seed[24]; /* a JSON number cannot hold every 64-bit seed for every reader */
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)result->seed);
    json_t *root = json_object(), *usage = json_object(), *timings = json_object();
    json_object_set_new(root, "text", json_string(out->text != NULL ? out->text : ""));
    json_object_set_new(root, "token_ids", id_list(out->ids.ids, out->ids.count));
    json_object_set_new(root, "prompt_token_ids", id_list(prompt->ids, prompt->count));
    json_object_set_new(root, "finish_reason", json_string(result->finish_reason));
    json_object_set_new(usage, "prompt_tokens", json_integer((json_int_t)prompt->count));
    json_object_set_new(usage, "completion_tokens", json_integer((json_int_t)result->n_tokens));
    json_object_set_new(root, "usage", usage);
    json_object_set_new(root, "seed", json_string(seed));
    json_object_set_new(root, "identity", json_string(di_engine_identity(engine)));
    json_object_set_new(timings, "prefill_seconds", json_real(result->prefill_seconds));
    json_object_set_new(timings, "decode_seconds", json_real(result->decode_seconds));
    json_object_set_new(root, "timings", timings);
    json_dumpf(root, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(root);
}

static void print_stats(const di_token_list *prompt, const struct di_generation *result)
{
    fflush(stdout); /* the text first, also where both streams are one terminal */
    fprintf(stderr,
            "prompt: %zu tokens, %.3f s (%.1f tokens/s); output: %zu tokens, %.3f s (%.1f tokens/s); seed %llu; %s\n",
            prompt->count, result->prefill_seconds, (double)prompt->count / result->prefill_seconds, result->n_tokens,
            result->decode_seconds, (double)result->n_tokens / result->decode_seconds, (unsigned long long)result->seed,
            result->finish_reason);
}

static int generate(const struct app_args *args, di_engine *engine, const struct di_sampling_params *params,
                    const di_token_list *prompt)
{
    struct di_error err = {0};
    struct di_generation result;
    struct output out = {.stream = !app_has(args, "json")};
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the write, not the end of the process */
    di_status status = di_generate(engine, prompt->ids, prompt->count, params, on_token, &out, &result, &err);
    int code = APP_OK;
    if (status != DI_OK) {
        code = app_error(
            args, status == DI_ERR_RANGE || status == DI_ERR_LIMIT || status == DI_ERR_INVALID ? APP_USAGE : APP_FAILED,
            &err);
    } else if (out.stream) {
        printf("%s\n", result.tail);
    } else {
        append_text(&out, result.tail, strlen(result.tail));
        print_json(&out, prompt, &result, engine);
    }
    if (status == DI_OK && app_has(args, "stats"))
        print_stats(prompt, &result);
    if (status == DI_OK && interrupted)
        code = APP_INTERRUPTED;
    free(out.text);
    di_token_list_free(&out.ids);
    return app_finish_stdout(args, code);
}

int cmd_run(int argc, char **argv)
{
    struct app_args args = {.command = "run", .own = own_options};
    struct di_sampling_params params;
    struct di_error err = {0};
    di_engine *engine = NULL;
    di_token_list prompt = {0};
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        app_help("run [--model MODEL] (--prompt TEXT | --prompt-file FILE | --ids FILE) [options]", own_options);
        return APP_OK;
    }
    int code = app_parse(&args, argc, argv);
    if (code == APP_OK && app_has(&args, "prompt") + app_has(&args, "prompt-file") + app_has(&args, "ids") != 1)
        code = app_usage(&args, "one of --prompt, --prompt-file and --ids is needed");
    if (code == APP_OK)
        code = read_params(&args, &params);
    if (code == APP_OK && di_engine_open(NULL, args.engine, &engine, &err) != DI_OK)
        code = app_error(&args, app_open_code(&err), &err);
    if (code == APP_OK)
        code = read_prompt(&args, engine, &prompt);
    if (code == APP_OK)
        code = generate(&args, engine, &params, &prompt);
    di_token_list_free(&prompt);
    di_engine_close(engine);
    di_options_free(args.engine);
    return code;
}
