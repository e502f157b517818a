/* deepinfer trace: run token ids, write the model's inner tensors. docs/trace.md. */
#include "app.h"

static const struct app_option own_options[] = {
    {"ids", "FILE", "A JSON list of token ids; - is standard input."},
    {"out", "FILE", "The safetensors file to write."},
    {"chunk", "N", "Prefill in pieces of N tokens; 0 is whole. Default: 0."},
    {"greedy", "K", "Then generate K greedy tokens. Default: 0."},
    {"feed", "FILE", "Start layers from the streams_in and pre_in of this safetensors file."},
    {"like", "FILE",
     "Write the positions and entries that this safetensors file lists. Default: those of --feed, else all."},
    {"json", NULL, "Errors as JSON."},
    {NULL, NULL, NULL},
};

static int trace(const struct app_args *args, const di_token_list *ids, const struct di_trace_options *options)
{
    struct di_error err = {0};
    di_engine *engine = NULL;
    if (di_engine_open(NULL, args->engine, &engine, &err) != DI_OK)
        return app_error(args, app_open_code(&err), &err);
    int code = app_check_ids(args, args_value(args, "ids"), ids, di_engine_vocab_size(engine));
    if (code == APP_OK && di_trace(engine, options, args_value(args, "out"), &err) != DI_OK)
        code = app_error(args, app_input_code(&err), &err);
    di_engine_close(engine);
    return code;
}

int cmd_trace(int argc, char **argv)
{
    struct app_args args = {
        .command = "trace",
        .usage = "trace [--model MODEL] --ids FILE --out FILE [options]",
        .own = own_options,
    };
    di_token_list ids = {0};
    int64_t chunk = 0, greedy = 0;
    int code;
    if (!args_parse(&args, argc, argv, &code)) {
        args_free(&args);
        return code;
    }
    if (!args_has(&args, "ids") || !args_has(&args, "out"))
        code = app_usage(&args, "--ids and --out are needed");
    if (code == APP_OK)
        code = args_int(&args, "chunk", 0, INT32_MAX, &chunk);
    if (code == APP_OK)
        code = args_int(&args, "greedy", 0, INT32_MAX, &greedy);
    if (code == APP_OK)
        code = app_read_ids(&args, args_value(&args, "ids"), &ids);
    if (code == APP_OK) {
        struct di_trace_options options = {
            .ids = ids.ids,
            .n_ids = ids.count,
            .chunk = (int32_t)chunk,
            .greedy = (int32_t)greedy,
            .feed = args_value(&args, "feed"),
            .like = args_value(&args, "like"),
        };
        code = trace(&args, &ids, &options);
    }
    di_token_list_free(&ids);
    args_free(&args);
    return code;
}
