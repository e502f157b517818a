/* deepinfer options: the registry as a table. */
#include <string.h>

#include "app.h"

static const struct app_option own_options[] = {
    {"markdown", NULL, "Print the table of docs/options.md."},
    {NULL, NULL, NULL},
};

/* Cells of a Markdown table end at a bar: choices are listed with commas, and other bars escaped. */
static void print_cell(const char *text, const char *bar)
{
    while (*text != '\0') {
        size_t len = strcspn(text, "|");
        app_print("%.*s%s", (int)len, text, text[len] != '\0' ? bar : "");
        text += len + (text[len] != '\0');
    }
}

static void print_markdown(void)
{
    struct di_option_info info;
    app_print("| option | values | default | variable | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; di_option_at(i, &info); i++) {
        const char *quote = info.env != NULL ? "`" : "";
        app_print("| `--%s` | ", info.name);
        print_cell(info.values, ", ");
        app_print(" | %s | %s%s%s | ", info.default_value, quote, info.env != NULL ? info.env : "", quote);
        print_cell(info.help, "\\|");
        app_print(" |\n");
    }
}

static void print_table(void)
{
    struct di_option_info info;
    for (size_t i = 0; di_option_at(i, &info); i++)
        app_print("--%-20s %-20s %s\n%23s%s%s%s\n", info.name, info.values, info.default_value, "", info.help,
                  info.env != NULL ? " Variable: " : "", info.env != NULL ? info.env : "");
}

int cmd_options(int argc, char **argv)
{
    struct app_args args = {
        .command = "options",
        .usage = "options [--markdown]",
        .own = own_options,
        .no_engine = true,
    };
    int code;
    if (args_parse(&args, argc, argv, &code)) {
        if (args_has(&args, "markdown"))
            print_markdown();
        else
            print_table();
        code = app_finish_stdout(&args, code);
    }
    args_free(&args);
    return code;
}
