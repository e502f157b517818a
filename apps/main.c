/* The `deepinfer` command. docs/cli.md. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "generate text from a prompt", cmd_run},
    {"bench", "measure throughput and latencies on random prompts", cmd_bench},
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

static int unknown_command(const char *name)
{
    struct args_nearest nearest = {.wanted = name};
    for (int i = 0; i < COMMAND_COUNT; i++)
        args_offer(&nearest, commands[i].name);
    if (nearest.name != NULL)
        return app_usage(NULL, "unknown command \"%s\"; did you mean %s?", name, nearest.name);
    return app_usage(NULL, "unknown command \"%s\"; see deepinfer help", name);
}

static int help(int argc, char **argv)
{
    char option[] = "--help", *arguments[] = {option};
    if (argc == 0) {
        print_overview(stdout);
        return app_finish_stdout(NULL, APP_OK);
    }
    int command = find_command(argv[0]);
    return command >= 0 ? commands[command].run(1, arguments) : unknown_command(argv[0]);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the write, not the end of the process */
    static char out[1 << 16];
    setvbuf(stdout, out, _IOFBF, sizeof out); /* a long help text is one write, whose failure has a reason */
    signal(SIGXFSZ, SIG_IGN);                 /* likewise a file that must not grow further */
    if (argc < 2) {
        print_overview(stderr);
        return APP_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        app_print("deepinfer %s\n", DI_VERSION);
        return app_finish_stdout(NULL, APP_OK);
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(argc - 2, argv + 2);
    int command = find_command(argv[1]);
    return command >= 0 ? commands[command].run(argc - 2, argv + 2) : unknown_command(argv[1]);
}
