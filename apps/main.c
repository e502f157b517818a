/* The `deepinfer` command. docs/cli.md. */
#include <stdio.h>
#include <string.h>

#include "app.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "generate text from a prompt", cmd_run},
    {"inspect", "show what a checkpoint holds and how it would run", cmd_inspect},
    {"trace", "write the model's inner tensors for given token ids", cmd_trace},
    {"options", "list the options of the engine", cmd_options},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static int find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return i;
    return -1;
}

static void print_overview(FILE *to)
{
    fprintf(to, "usage: deepinfer COMMAND [options]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-8s  %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\nSee deepinfer help COMMAND. Version: deepinfer --version.\n");
}

static int help(int argc, char **argv)
{
    char option[] = "--help", *arguments[] = {option};
    if (argc == 0) {
        print_overview(stdout);
        return APP_OK;
    }
    int command = find_command(argv[0]);
    if (command < 0) {
        fprintf(stderr, "deepinfer: error: unknown command \"%s\"\n", argv[0]);
        return APP_USAGE;
    }
    return commands[command].run(1, arguments);
}

int cmd_options(int argc, char **argv)
{
    struct app_args args = {.command = "options"};
    struct di_option_info info;
    bool markdown = argc == 1 && strcmp(argv[0], "--markdown") == 0;
    if (argc == 1 && strcmp(argv[0], "--help") == 0) {
        printf("usage: deepinfer options [--markdown]\n");
        return APP_OK;
    }
    if (argc > 0 && !markdown) {
        fprintf(stderr, "deepinfer: error: unexpected argument \"%s\"\n", argv[0]);
        return APP_USAGE;
    }
    if (markdown)
        printf("| option | values | default | variable | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; di_option_at(i, &info); i++) {
        if (!markdown) {
            printf("--%-20s %-20s %s\n%23s%s%s%s\n", info.name, info.values, info.default_value, "", info.help,
                   info.env != NULL ? " Variable: " : "", info.env != NULL ? info.env : "");
            continue;
        }
        printf("| `--%s` | ", info.name);
        for (const char *at = info.values; *at != '\0'; at++) /* a bar would end the cell */
            printf(*at == '|' ? ", " : "%c", *at);
        printf(" | %s | %s%s%s | %s |\n", info.default_value, info.env != NULL ? "`" : "",
               info.env != NULL ? info.env : "", info.env != NULL ? "`" : "", info.help);
    }
    return app_finish_stdout(&args, APP_OK);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return APP_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("deepinfer %s\n", DI_VERSION);
        return APP_OK;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0)
        return help(argc - 2, argv + 2);
    int command = find_command(argv[1]);
    if (command < 0) {
        fprintf(stderr, "deepinfer: error: unknown command \"%s\"; see deepinfer help\n", argv[1]);
        return APP_USAGE;
    }
    return commands[command].run(argc - 2, argv + 2);
}
