/* deepinfer run: a prompt in, text out as it comes; or requests from a file (batch.c). */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "result.h"
#include "sampling.h"

static const struct app_option own_options[] = {
    {"prompt", "TEXT", "The prompt."},
    {"prompt-file", "FILE", "Read the prompt from a file; - is standard input."},
    {"ids", "FILE", "The prompt as a JSON list of token ids, taken as they are; - is standard input."},
    {"input", "FILE", "Requests, one JSON object a line; - is standard input. See docs/cli.md for their keys."},
    {"output", "FILE",
     "Where the results of --input go, one JSON object a line, in the order of their ends. Default: standard output."},
    {"resume", NULL, "Go on with the file of --output: skip what it holds, cut off a torn last line."},
    {"progress", NULL, "Say on standard error how far --input is, also where that is no terminal."},
    {"bos", "on|off",
     "Put the beginning-of-sequence token in front of a text prompt that does not begin with it. Default: on."},
    {"temperature", "T", "Sampling temperature; 0 takes the most likely token. Default: 1."},
    {"top-p", "P", "Only the fewest most likely tokens that have probability P together. Default: 1."},
    {"top-k", "K", "Only the K most likely tokens; 0 or -1: all. Default: 0."},
    {"min-p", "P", "Only tokens at least P times as likely as the likeliest. Default: 0."},
    {"repetition-penalty", "R", "Divides positive logits of tokens seen, multiplies others. Default: 1."},
    {"frequency-penalty", "F", "Subtracted for every time that a token is in the output; -2..2. Default: 0."},
    {"presence-penalty", "F", "Subtracted once if a token is in the output; -2..2. Default: 0."},
    {"logit-bias", "ID:VALUE", "Add VALUE, -100..100, to a token's logit. May be given several times."},
    {"allowed-token-ids", "ID,ID,...", "Only these tokens. May be given several times."},
    {"bad-token-ids", "ID,ID,...", "Never these tokens. May be given several times."},
    {"seed", "S", "Seed of the sampling noise. Default: drawn, and reported with --stats and --json."},
    {"max-tokens", "N", "Most tokens to generate. Default: 256."},
    {"min-tokens", "N", "Before so many tokens nothing but max-tokens ends the output. Default: 0."},
    {"stop", "TEXT", "End the output where TEXT appears in it. May be given several times."},
    {"stop-token-ids", "ID,ID,...", "Tokens that end the output. May be given several times."},
    {"include-stop-str-in-output", NULL, "The output ends behind the stop text, not before it."},
    {"ignore-eos", NULL, "Do not stop at the end-of-sequence token."},
    {"skip-special-tokens", "on|off", "Leave special tokens out of the text. Default: on."},
    {"logprobs", "N", "Log-probabilities of each token and of the N likeliest, 0..20. With --json or --input."},
    {"prompt-logprobs", "N", "The same for the tokens of the prompt. With --json or --input."},
    {"n", "N", "So many outputs, drawn independently. With --json or --input."},
    {"stats", NULL, "Print tokens and speed on standard error."},
    {"json", NULL, "Print one JSON object at the end instead of streaming; errors are JSON too."},
    {NULL, NULL, NULL},
};

/* The prompt as given, then as ids. */
struct prompt {
    const char *source; /* how messages name it: an option, or a file */
    const char *text;   /* NULL where ids were given */
    size_t len;
    char *file; /* what was read from one */
    di_token_list ids;
};

/* Options that need others. */
static int check_together(const struct app_args *args)
{
    static const char *const sources[] = {"prompt", "prompt-file", "ids", "input"};
    static const char *const of_batch[] = {"output", "resume", "progress"};
    static const char *const of_json[] = {"logprobs", "prompt-logprobs", "n"};
    int given = 0;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        given += args_has(args, sources[i]);
    if (given != 1)
        return app_usage(args, "one of --prompt, --prompt-file, --ids and --input is needed");
    for (size_t i = 0; i < sizeof of_batch / sizeof of_batch[0]; i++)
        if (args_has(args, of_batch[i]) && !args_has(args, "input"))
            return app_usage(args, "option --%s goes with --input only", of_batch[i]);
    for (size_t i = 0; i < sizeof of_json / sizeof of_json[0]; i++)
        if (args_has(args, of_json[i]) && !args_has(args, "json") && !args_has(args, "input"))
            return app_usage(args, "option --%s needs --json: its results have no place in a stream of text",
                             of_json[i]);
    return APP_OK;
}

/* Everything that can be checked before a model is opened. */
static int read_prompt(const struct app_args *args, struct prompt *prompt)
{
    const char *text = args_value(args, "prompt"), *file = args_value(args, "prompt-file"),
               *ids = args_value(args, "ids");
    if (ids != NULL) {
        prompt->source = strcmp(ids, "-") == 0 ? "standard input" : ids;
        return app_read_ids(args, ids, &prompt->ids);
    }
    if (file != NULL) {
        prompt->source = strcmp(file, "-") == 0 ? "standard input" : file;
        int code = app_read_file(args, file, &prompt->file, &prompt->len);
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

/* Text -> ids. Given ids are only checked. */
static int encode_prompt(const struct app_args *args, const di_engine *engine, bool bos, struct prompt *prompt)
{
    struct di_error err = {0};
    if (prompt->text == NULL)
        return app_check_ids(args, prompt->source, &prompt->ids, di_engine_vocab_size(engine));
    if (app_encode(engine, prompt->text, prompt->len, bos, &prompt->ids, &err) != DI_OK)
        return app_fail(args, app_input_code(&err), err.code, "%s: %s", prompt->source, err.message);
    return APP_OK;
}

/* False when memory runs out. */
static bool print_json(const struct app_result *result, const struct prompt *prompt, const di_engine *engine)
{
    size_t len;
    json_t *object = app_result_json(result, NULL, di_engine_identity(engine));
    json_t *timings = json_pack("{s:f, s:f}", "prefill_seconds", result->prefill_seconds, "decode_seconds",
                                result->decode_seconds);
    bool whole = json_object_set_new(object, "prompt_token_ids", app_id_list(prompt->ids.ids, prompt->ids.count)) == 0;
    whole = json_object_set_new(object, "timings", timings) == 0 && whole;
    if (!whole) {
        json_decref(object);
        return false;
    }
    char *line = app_json_line(object, &len);
    if (line != NULL)
        app_write(line, len);
    free(line);
    return line != NULL;
}

/* The first token falls out of prefill: decode made the others. */
static void print_stats(const struct app_result *result)
{
    fflush(stdout); /* the text first, also where both streams are one terminal */
    fprintf(stderr, "prompt: %zu tokens, %.3f s (%.1f tokens/s); output: %zu tokens, %.3f s", result->n_prompt,
            result->prefill_seconds, (double)result->n_prompt / result->prefill_seconds, result->n_output,
            result->decode_seconds);
    if (result->n_output > (size_t)result->n)
        fprintf(stderr, " (%.1f tokens/s)", (double)(result->n_output - (size_t)result->n) / result->decode_seconds);
    fprintf(stderr, "; seed %llu; %s\n", (unsigned long long)result->seed, result->choices[0].finish_reason);
}

/* Takes events to the last one; text goes out as it comes if `stream`. A reader that has gone or an interrupt ends the request. */
static int follow(const struct app_args *args, di_engine *engine, uint64_t ticket, bool stream,
                  struct app_result *result)
{
    struct di_error err = {0};
    bool whole = true, wanted = true;
    while (result->n_open > 0) {
        struct di_event *event;
        if (di_next_event(engine, 0.05, &event, &err) != DI_OK)
            return app_error(args, APP_FAILED, &err);
        if (event != NULL) {
            whole = app_result_add(result, di_engine_tokenizer(engine), event) && whole;
            bool shown = !stream || !wanted || event->text_len == 0 || app_write(event->text, event->text_len);
            di_event_free(engine, event);
            if (wanted && shown && whole && !app_interrupted())
                continue;
        } else if (!wanted || !app_interrupted()) {
            continue;
        }
        if (wanted && result->n_open > 0)
            (void)di_abort_ticket(engine, ticket, NULL); /* or it has ended at this moment */
        wanted = false;
    }
    if (result->error.code != DI_OK)
        return app_error(args, app_input_code(&result->error), &result->error);
    return whole ? APP_OK : app_fail(args, APP_FAILED, DI_ERR_NOMEM, "out of memory while the result was put together");
}

static int generate(const struct app_args *args, di_engine *engine, const struct di_sampling_params *params,
                    const struct prompt *prompt)
{
    struct di_error err = {0};
    struct app_result result;
    uint64_t ticket;
    bool stream = !args_has(args, "json");
    struct di_request request = {
        .prompt = prompt->ids.ids, .n_prompt = prompt->ids.count, .params = *params, .stream = true};
    if (!app_result_open(&result, params->n))
        return app_fail(args, APP_FAILED, DI_ERR_NOMEM, "out of memory");
    app_catch_interrupt();
    int code = APP_OK;
    if (di_submit(engine, &request, &ticket, &err) != DI_OK)
        code = app_error(args, app_input_code(&err), &err);
    if (code == APP_OK)
        code = follow(args, engine, ticket, stream, &result);
    if (code == APP_OK) {
        if (stream)
            app_write("\n", 1);
        else if (!print_json(&result, prompt, engine))
            code = app_fail(args, APP_FAILED, DI_ERR_NOMEM, "out of memory while the result was put together");
        if (args_has(args, "stats"))
            print_stats(&result);
        if (code == APP_OK && app_interrupted())
            code = APP_INTERRUPTED;
    }
    app_result_free(&result);
    return app_finish_stdout(args, code);
}

static int run_prompt(const struct app_args *args, const struct di_sampling_params *params, bool bos)
{
    struct di_error err = {0};
    struct prompt prompt = {0};
    di_engine *engine = NULL;
    int code = read_prompt(args, &prompt);
    if (code == APP_OK && di_engine_open(NULL, args->engine, &engine, &err) != DI_OK)
        code = app_error(args, app_open_code(&err), &err);
    if (code == APP_OK)
        code = app_sampling_check(args, params, di_engine_vocab_size(engine));
    if (code == APP_OK)
        code = encode_prompt(args, engine, bos, &prompt);
    if (code == APP_OK)
        code = generate(args, engine, params, &prompt);
    free(prompt.file);
    di_token_list_free(&prompt.ids);
    di_engine_close(engine);
    return code;
}

int cmd_run(int argc, char **argv)
{
    struct app_args args = {
        .command = "run",
        .usage = "run [--model MODEL] (--prompt TEXT | --prompt-file FILE | --ids FILE | --input FILE) [options]",
        .own = own_options,
    };
    struct app_sampling sampling = {0};
    bool bos = true;
    int code;
    if (args_parse(&args, argc, argv, &code)) {
        code = app_sampling_read(&args, &sampling);
        if (code == APP_OK)
            code = args_on_off(&args, "bos", &bos);
        if (code == APP_OK)
            code = check_together(&args);
        if (code == APP_OK)
            code = args_has(&args, "input") ? app_batch(&args, &sampling.params, bos)
                                            : run_prompt(&args, &sampling.params, bos);
    }
    app_sampling_free(&sampling);
    args_free(&args);
    return code;
}
