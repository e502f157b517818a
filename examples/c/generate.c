/* Three prompts at once through the C API, their text as it comes. docs/c-api.md walks through it.
 *
 *     generate MODEL [PROMPT...]
 */
#include <deepinfer/deepinfer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const struct di_error *err)
{
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, di_status_name(err->code));
    return 1;
}

/* Hands over one prompt. The engine copies everything: nothing has to stay. */
static di_status submit(di_engine *engine, const char *prompt, const char *id, struct di_error *err)
{
    di_token_list tokens = {0};
    int32_t bos = di_engine_bos_token_id(engine);
    di_status status = bos >= 0 ? di_token_list_push(&tokens, bos, err) : DI_OK;
    if (status == DI_OK)
        status = di_tokenizer_encode(di_engine_tokenizer(engine), prompt, strlen(prompt), true, &tokens, err);

    const char *const stop[] = {"\n\n"};
    struct di_request request = {
        .id = id,
        .prompt = tokens.ids,
        .n_prompt = tokens.count,
        .params = di_sampling_defaults(),
        .stream = true, /* events with what is new; otherwise one at the end with everything */
    };
    request.params.temperature = 0.7;
    request.params.top_p = 0.95;
    request.params.max_tokens = 24;
    request.params.stop = stop;
    request.params.n_stop = 1;
    request.params.has_seed = true;
    request.params.seed = 4;
    if (status == DI_OK)
        status = di_submit(engine, &request, NULL, err);
    di_token_list_free(&tokens);
    return status;
}

/* Takes events until `open` requests have ended. */
static di_status follow(di_engine *engine, int open, struct di_error *err)
{
    while (open > 0) {
        struct di_event *event;
        di_status status = di_next_event(engine, -1.0, &event, err); /* waits; with a timeout event may be NULL */
        if (status != DI_OK)
            return status;
        if (event->text_len > 0)
            printf("%s: %s\n", event->id, event->text);
        if (event->kind == DI_EVENT_FINISHED) {
            if (event->error.code != DI_OK) /* this request failed, the others go on */
                printf("%s: failed: %s\n", event->id, event->error.message);
            else
                printf("%s: ended (%s) with %zu tokens\n", event->id, event->finish_reason, event->n_output);
            open--;
        }
        di_event_free(engine, event);
    }
    return DI_OK;
}

int main(int argc, char **argv)
{
    static const char *const prompts[] = {"She was", "It is a truth", "The letter said"};
    int n = argc > 2 ? argc - 2 : (int)(sizeof prompts / sizeof prompts[0]), open = 0;
    struct di_error err = {0};
    di_options *options = NULL;
    di_engine *engine = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: generate MODEL [PROMPT...]\n");
        return 2;
    }
    if (di_options_create(&options, &err) != DI_OK || di_options_set(options, "max-num-seqs", "8", &err) != DI_OK)
        return fail("options", &err);
    di_status status = di_engine_open(argv[1], options, &engine, &err);
    di_options_free(options);
    if (status != DI_OK)
        return fail(argv[1], &err);

    for (int i = 0; i < n; i++) {
        char id[16];
        const char *prompt = argc > 2 ? argv[i + 2] : prompts[i];
        snprintf(id, sizeof id, "%d", i + 1);
        if (submit(engine, prompt, id, &err) == DI_OK)
            open++;
        else
            fail(prompt, &err); /* a bad request; nothing was submitted */
    }
    status = follow(engine, open, &err);
    di_engine_close(engine);
    return status == DI_OK ? 0 : fail("engine", &err);
}
