/* deepinfer inspect: what a checkpoint holds and how it would run. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"

static const struct app_option own_options[] = {
    {"json", NULL, "Print the JSON object that the tables are made from."},
    {NULL, NULL, NULL},
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "-";
}

static long long int_of(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

/* A layer id, or "-" where there is none. */
static const char *id_of(const json_t *object, const char *key, char buffer[24])
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return "-";
    snprintf(buffer, 24, "%lld", (long long)json_integer_value(value));
    return buffer;
}

static void print_config(json_t *config)
{
    const char *name;
    json_t *value;
    app_print("\nconfig\n");
    json_object_foreach (config, name, value) {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
        app_print("  %-30s %s\n", name, text != NULL ? text : "");
        free(text);
    }
}

static void print_layers(const json_t *layers)
{
    size_t index;
    json_t *l;
    app_print(
        "\nlayer  attention          ratio  kv from  index from  owns      candidates  engram  rope           bytes\n");
    json_array_foreach (layers, index, l) {
        char kv[24], source[24], engram[24];
        bool owns_kv = json_is_true(json_object_get(l, "owns_kv")),
             owns_index = json_is_true(json_object_get(l, "owns_index"));
        app_print("%5lld  %-17s  %5lld  %7s  %10s  %-8s  %-10s  %6s  %-8s %11lld\n", int_of(l, "layer"),
                  text_of(l, "attention"), int_of(l, "ratio"), id_of(l, "kv_source", kv),
                  id_of(l, "index_source", source),
                  owns_kv ? (owns_index ? "kv+index" : "kv") : (owns_index ? "index" : "-"), text_of(l, "candidates"),
                  id_of(l, "engram", engram), text_of(l, "rope"), int_of(l, "bytes"));
    }
}

static void print_rows(const char *title, const json_t *list, const char *first, const char *second)
{
    size_t index;
    json_t *o;
    if (json_array_size(list) == 0)
        return;
    app_print("\n%s\n", title);
    json_array_foreach (list, index, o) {
        if (second != NULL)
            app_print("  %-24s %-10s %8lld tensors %16lld bytes\n", text_of(o, first), text_of(o, second),
                      int_of(o, "count"), int_of(o, "bytes"));
        else
            app_print("  %8lld tensors %16lld bytes  %s (for example %s)\n", int_of(o, "count"), int_of(o, "bytes"),
                      text_of(o, first), text_of(o, "example"));
    }
}

static void print_memory(const json_t *memory)
{
    size_t index;
    json_t *o;
    app_print("\nmemory\n");
    json_array_foreach (memory, index, o)
        app_print("  %-12s %16lld bytes  %s\n", text_of(o, "term"), int_of(o, "bytes"), text_of(o, "note"));
}

static void print_tables(json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    app_print("model     %s\n", text_of(model, "folder"));
    app_print("identity  %s\n", text_of(root, "identity"));
    app_print("contents  %lld tensors in %lld files, %lld bytes\n", int_of(model, "tensors"), int_of(model, "shards"),
              int_of(model, "bytes"));
    print_config(json_object_get(root, "config"));
    print_layers(json_object_get(root, "layers"));
    print_rows("tensors by part and format", json_object_get(root, "tensors"), "part", "format");
    print_rows("ignored", json_object_get(root, "ignored"), "reason", NULL);
    print_memory(json_object_get(root, "memory"));
}

static int print_plan(const struct app_args *args, const char *json)
{
    if (args_has(args, "json")) {
        app_write(json, strlen(json));
        app_write("\n", 1);
        return APP_OK;
    }
    json_t *root = json_loads(json, 0, NULL);
    if (root == NULL)
        return app_fail(args, APP_FAILED, DI_ERR_NOMEM, "out of memory while reading the plan");
    print_tables(root);
    json_decref(root);
    return APP_OK;
}

int cmd_inspect(int argc, char **argv)
{
    struct app_args args = {.command = "inspect", .usage = "inspect [--model MODEL] [--json]", .own = own_options};
    struct di_error err = {0};
    char *json = NULL;
    int code;
    if (args_parse(&args, argc, argv, &code)) {
        if (di_inspect(NULL, args.engine, &json, &err) == DI_OK)
            code = app_finish_stdout(&args, print_plan(&args, json));
        else
            code = app_error(&args, app_open_code(&err), &err);
    }
    free(json);
    args_free(&args);
    return code;
}
