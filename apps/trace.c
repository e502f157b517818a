/* deepinfer trace: run token ids, write the model's inner tensors. docs/trace.md. */
#include <string.h>

#include "app.h"

static const struct app_option own_options[] = {
    {"ids", "FILE", "A JSON list of token ids."},
    {"out", "FILE", "The safetensors file to write."},
    {"chunk", "N", "Prefill in pieces of N tokens; 0 is whole. Default: 0."},
    {"greedy", "K", "Then generate K greedy tokens. Default: 0."},
    {"feed", "FILE", "Start layers from the streams_in and pre_in of this safetensors file."},
    {"like", "FILE",
     "Write the positions and entries that this safetensors file lists. Default: those of --feed, else all."},
    {"json", NULL, "Errors as JSON."},
    {NULL, NULL, NULL},
};

static int trace(const struct app_args *args, const struct di_trace_options *options)
{
    struct di_error err = {0};
    di_engine *engine = NULL;
    int code = APP_OK;
    if (di_engine_open(NULL, args->engine, &engine, &err) != DI_OK)
        return app_error(args, app_open_code(&err), &err);
    di_status status = di_trace(engine, options, app_value(args, "out"), &err);
    if (status != DI_OK)
        code = app_error(
            args, status == DI_ERR_RANGE || status == DI_ERR_LIMIT || status == DI_ERR_INVALID ? APP_USAGE : APP_FAILED,
            &err);
    di_engine_close(engine);
    return code;
}

int cmd_trace(int argc, char **argv)
{
    struct app_args args = {.command = "trace", .own = own_options};
    di_token_list ids = {0};
    int64_t chunk = 0, greedy = 0;
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        app_help("trace [--model MODEL] --ids FILE --out FILE [options]", own_options);
        return APP_OK;
    }
    int code = app_parse(&args, argc, argv);
    if (code == APP_OK && (!app_has(&args, "ids") || !app_has(&args, "out")))
        code = app_usage(&args, "--ids and --out are needed");
    if (code == APP_OK)
        code = app_int(&args, "chunk", 0, INT32_MAX, 0, &chunk);
    if (code == APP_OK)
        code = app_int(&args, "greedy", 0, INT32_MAX, 0, &greedy);
    if (code == APP_OK)
        code = app_read_ids(&args, app_value(&args, "ids"), &ids);
    if (code == APP_OK) {
        struct di_trace_options options = {
            .ids = ids.ids,
            .n_ids = ids.count,
            .chunk = (int32_t)chunk,
            .greedy = (int32_t)greedy,
            .feed = app_value(&args, "feed"),
            .like = app_value(&args, "like"),
        };
        code = trace(&args, &options);
    }
    di_token_list_free(&ids);
    di_options_free(args.engine);
    return code;
}
