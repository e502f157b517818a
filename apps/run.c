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
    {"ids", "FILE", "The prompt as a JSON list of token ids, taken as they are; - is standard input."},
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
    bool stream, nomem; /* nomem: the text or the ids could not be kept */
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
    if (out->stream)
        return (event->text_len == 0 || app_write(event->text, event->text_len)) && !interrupted;
    out->nomem = !append_text(out, event->text, event->text_len) ||
                 (event->id >= 0 && di_token_list_push(&out->ids, event->id, NULL) != DI_OK);
    return !out->nomem && !interrupted;
}

/* The prompt as given, then as ids. */
struct prompt {
    const char *source; /* how messages name it: an option, or a file */
    const char *text;   /* NULL where ids were given */
    size_t len;
    char *file; /* what was read from one */
    bool bos;
    di_token_list ids;
};

/* Everything that can be checked before a model is opened. */
static int read_prompt(const struct app_args *args, struct prompt *prompt)
{
    const char *text = args_value(args, "prompt"), *file = args_value(args, "prompt-file"),
               *ids = args_value(args, "ids");
    prompt->bos = true;
    int code = args_on_off(args, "bos", &prompt->bos);
    if (code != APP_OK)
        return code;
    if ((text != NULL) + (file != NULL) + (ids != NULL) != 1)
        return app_usage(args, "one of --prompt, --prompt-file and --ids is needed");
    if (ids != NULL) {
        prompt->source = strcmp(ids, "-") == 0 ? "standard input" : ids;
        return app_read_ids(args, ids, &prompt->ids);
    }
    if (file != NULL) {
        prompt->source = strcmp(file, "-") == 0 ? "standard input" : file;
        code = app_read_file(args, file, &prompt->file, &prompt->len);
        prompt->text = prompt->file;
        if (code == APP_OK && prompt->len == 0)
            code = app_usage(args, "option --prompt-file: %s is empty", prompt->source);
        return code;
    }
    prompt->source = "option --prompt";
    if (text[0] == '\0')
        return app_usage(args, "option --prompt: the prompt is empty");
    prompt->text = text;
    prompt->len = strlen(text);
    return APP_OK;
}

/* Text -> ids, with BOS in front unless it is there or not wanted. Given ids are only checked. */
static int encode_prompt(const struct app_args *args, di_engine *engine, struct prompt *prompt)
{
    struct di_error err = {0};
    di_token_list *ids = &prompt->ids;
    if (prompt->text == NULL)
        return app_check_ids(args, prompt->source, ids, di_engine_vocab_size(engine));
    if (di_tokenizer_encode(di_engine_tokenizer(engine), prompt->text, prompt->len, true, ids, &err) != DI_OK)
        return app_fail(args, app_input_code(&err), err.code, "%s: %s", prompt->source, err.message);
    int32_t id = di_engine_bos_token_id(engine);
    if (id < 0 || !prompt->bos || (ids->count > 0 && ids->ids[0] == id))
        return APP_OK;
    if (di_token_list_push(ids, id, &err) != DI_OK)
        return app_error(args, APP_FAILED, &err);
    memmove(ids->ids + 1, ids->ids, (ids->count - 1) * sizeof *ids->ids);
    ids->ids[0] = id;
    return APP_OK;
}

static int read_params(const struct app_args *args, struct di_sampling_params *params)
{
    struct di_error err = {0};
    *params = di_sampling_defaults();
    int64_t max_tokens = params->max_tokens;
    int code = args_real(args, "temperature", 0.0, &params->temperature);
    if (code == APP_OK)
        code = args_int(args, "max-tokens", 1, INT32_MAX, &max_tokens);
    if (code == APP_OK)
        code = args_u64(args, "seed", &params->seed);
    params->max_tokens = (int32_t)max_tokens;
    params->ignore_eos = args_has(args, "ignore-eos");
    params->has_seed = args_has(args, "seed");
    if (code == APP_OK && di_sampling_validate(params, 0, &err) != DI_OK)
        code = app_error(args, APP_USAGE, &err);
    return code;
}

/* NULL when memory runs out. */
static json_t *id_list(const di_token_list *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->count; i++) {
        if (json_array_append_new(list, json_integer(ids->ids[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* False when memory runs out. */
static bool print_json(const struct output *out, const struct prompt *prompt, const struct di_generation *result,
                       const di_engine *engine)
{
    char seed[24]; /* a JSON number cannot hold every 64-bit seed for every reader */
    json_int_t prompt_tokens = (json_int_t)prompt->ids.count, completion_tokens = (json_int_t)result->n_tokens;
    const char *text = out->text != NULL ? out->text : "";
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)result->seed);
    json_t *usage = json_pack("{s:I, s:I}", "prompt_tokens", prompt_tokens, "completion_tokens", completion_tokens);
    json_t *timings = json_pack("{s:f, s:f}", "prefill_seconds", result->prefill_seconds, "decode_seconds",
                                result->decode_seconds);
    json_t *root = json_pack("{s:s%, s:o, s:o, s:s}", "text", text, out->len, "token_ids", id_list(&out->ids),
                             "prompt_token_ids", id_list(&prompt->ids), "finish_reason", result->finish_reason);
    bool whole = json_object_set_new(root, "usage", usage) == 0;
    whole = json_object_set_new(root, "seed", json_string(seed)) == 0 && whole;
    whole = json_object_set_new(root, "identity", json_string(di_engine_identity(engine))) == 0 && whole;
    whole = json_object_set_new(root, "timings", timings) == 0 && whole;
    char *line = whole ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    if (line == NULL)
        return false;
    app_write(line, strlen(line));
    app_write("\n", 1);
    free(line);
    return true;
}

/* The first token falls out of prefill: decode made the others. */
static void print_stats(const di_token_list *prompt, const struct di_generation *result)
{
    fflush(stdout); /* the text first, also where both streams are one terminal */
    fprintf(stderr, "prompt: %zu tokens, %.3f s (%.1f tokens/s); output: %zu tokens, %.3f s", prompt->count,
            result->prefill_seconds, (double)prompt->count / result->prefill_seconds, result->n_tokens,
            result->decode_seconds);
    if (result->n_tokens > 1)
        fprintf(stderr, " (%.1f tokens/s)", (double)(result->n_tokens - 1) / result->decode_seconds);
    fprintf(stderr, "; seed %llu; %s\n", (unsigned long long)result->seed, result->finish_reason);
}

/* The first SIGINT ends the request after the token in work; a second one ends the process. A write that waits for its
 * reader goes on waiting (SA_RESTART), so that no text is lost. */
static void catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
}

static int generate(const struct app_args *args, di_engine *engine, const struct di_sampling_params *params,
                    const struct prompt *prompt)
{
    struct di_error err = {0};
    struct di_generation result;
    struct output out = {.stream = !args_has(args, "json")};
    int code = APP_OK;
    catch_interrupt();
    if (di_generate(engine, prompt->ids.ids, prompt->ids.count, params, on_token, &out, &result, &err) != DI_OK) {
        code = app_error(args, app_input_code(&err), &err);
    } else {
        if (out.stream)
            app_write("\n", 1);
        else if (out.nomem || !print_json(&out, prompt, &result, engine))
            code = app_fail(args, APP_FAILED, DI_ERR_NOMEM, "out of memory while the result was put together");
        if (args_has(args, "stats"))
            print_stats(&prompt->ids, &result);
        if (code == APP_OK && interrupted)
            code = APP_INTERRUPTED;
    }
    free(out.text);
    di_token_list_free(&out.ids);
    return app_finish_stdout(args, code);
}

int cmd_run(int argc, char **argv)
{
    struct app_args args = {
        .command = "run",
        .usage = "run [--model MODEL] (--prompt TEXT | --prompt-file FILE | --ids FILE) [options]",
        .own = own_options,
    };
    struct di_sampling_params params;
    struct di_error err = {0};
    struct prompt prompt = {0};
    di_engine *engine = NULL;
    int code;
    if (args_parse(&args, argc, argv, &code)) {
        code = read_params(&args, &params);
        if (code == APP_OK)
            code = read_prompt(&args, &prompt);
        if (code == APP_OK && di_engine_open(NULL, args.engine, &engine, &err) != DI_OK)
            code = app_error(&args, app_open_code(&err), &err);
        if (code == APP_OK)
            code = encode_prompt(&args, engine, &prompt);
        if (code == APP_OK)
            code = generate(&args, engine, &params, &prompt);
    }
    free(prompt.file);
    di_token_list_free(&prompt.ids);
    di_engine_close(engine);
    args_free(&args);
    return code;
}
