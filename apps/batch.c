#include "batch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lines.h"
#include "output.h"
#include "progress.h"
#include "request.h"
#include "result.h"

enum { LONGEST_LINE = 64 << 20 };

/* A request that was submitted. */
struct job {
    bool used;
    uint64_t ticket, line;
    json_t *id;
    struct app_result result;
};

struct batch {
    const struct app_args *args;
    const struct di_sampling_params *base;
    bool bos;
    di_engine *engine;
    struct app_lines input;
    const char *input_name;
    struct app_output output;
    struct job *jobs; /* [look_ahead] */
    int look_ahead;
    /* Error lines that may turn out to be the engine's end, and no answer. */
    char **held; /* [look_ahead] */
    size_t *held_len;
    int n_held;
    struct app_progress progress;
    bool at_end; /* of the input */
    int code;    /* other than APP_OK: the run is over */
};

/* ---- writing ---- */

static void fail(struct batch *b, const struct di_error *err)
{
    if (b->code == APP_OK)
        b->code = app_error(b->args, APP_FAILED, err);
}

static void out_of_memory(struct batch *b)
{
    if (b->code == APP_OK)
        b->code = app_fail(b->args, APP_FAILED, DI_ERR_NOMEM, "out of memory");
}

static void write_line(struct batch *b, const char *line, size_t len)
{
    if (line == NULL)
        out_of_memory(b);
    else if (b->code == APP_OK)
        b->code = app_output_line(b->args, &b->output, line, len);
}

static char *error_line(json_t *id, uint64_t number, const struct di_error *err, size_t *len)
{
    char message[DI_ERROR_MESSAGE_SIZE];
    snprintf(message, sizeof message, "%s", err->message);
    app_make_utf8(message);
    json_t *object = json_pack("{s:O?, s:I, s:{s:s, s:s}}", "id", id, "line", (json_int_t)number, "error", "code",
                               di_status_name(err->code), "message", message);
    return app_json_line(object, len);
}

/* Whether an error lies in the request, and is therefore its answer; any other ends the run, and resuming does the request again. */
static bool is_answer(di_status code)
{
    return code == DI_ERR_INVALID || code == DI_ERR_RANGE || code == DI_ERR_LIMIT || code == DI_ERR_NOT_FOUND ||
           code == DI_ERR_FORMAT || code == DI_ERR_UNSUPPORTED;
}

static void answer_error(struct batch *b, json_t *id, uint64_t number, const struct di_error *err)
{
    size_t len = 0;
    if (!is_answer(err->code)) {
        fail(b, err);
        return;
    }
    char *line = error_line(id, number, err, &len);
    write_line(b, line, len);
    free(line);
    b->progress.failed++;
}

/* ---- submitting ---- */

/* What a request without an id is called. */
static json_t *line_id(uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "line-%" PRIu64, number);
    return json_string(text);
}

/* Marks the id as used by this input; false if the output holds the result of its line. A name that was used before is an error. */
static bool claim(struct batch *b, const char *id, struct di_error *err)
{
    char *name = app_output_name(id, 0);
    bool added = false;
    struct idset_entry *entry = name != NULL ? idset_add(&b->output.done, name, strlen(name), &added) : NULL;
    free(name);
    if (entry == NULL) {
        *err = (struct di_error){.code = DI_ERR_NOMEM, .message = "out of memory"};
        return true;
    }
    bool used = idset_state(entry);
    if (used) {
        err->code = DI_ERR_INVALID;
        snprintf(err->message, sizeof err->message, "the id %.100s has been used by an earlier line", id);
    }
    idset_mark(entry);
    return added || used;
}

/* Whether the line still has to be answered. */
static bool is_new(struct batch *b, const json_t *id, uint64_t number, struct di_error *err)
{
    char *text = id != NULL ? json_dumps(id, JSON_ENCODE_ANY) : NULL, *error = app_output_name(text, number);
    bool failed = error != NULL && idset_find(&b->output.done, error, strlen(error)) != NULL, wanted = true;
    if (error == NULL || (id != NULL && text == NULL))
        *err = (struct di_error){.code = DI_ERR_NOMEM, .message = "out of memory"};
    else if (id != NULL)
        wanted = claim(b, text, err);
    free(text);
    free(error);
    return wanted && !failed;
}

static void submit(struct batch *b, struct app_request *r, json_t *id, uint64_t number, struct di_error *err)
{
    struct job *job = b->jobs;
    while (job->used)
        job++;
    if (r->text != NULL && app_encode(b->engine, r->text, r->len, b->bos, &r->ids, err) != DI_OK)
        return;
    if (!app_result_open(&job->result, r->sampling.params.n)) {
        err->code = DI_ERR_NOMEM;
        return;
    }
    struct di_request request = {
        .prompt = r->ids.ids, .n_prompt = r->ids.count, .params = r->sampling.params, .priority = r->priority};
    if (di_submit(b->engine, &request, &job->ticket, err) != DI_OK) {
        app_result_free(&job->result);
        return;
    }
    job->used = true;
    job->line = number;
    job->id = json_incref(id);
    b->progress.running++;
}

static bool is_blank(const struct app_line *line)
{
    for (size_t i = 0; line->text != NULL && i < line->len; i++)
        if (strchr(" \t\r", line->text[i]) == NULL || line->text[i] == '\0')
            return false;
    return line->text != NULL;
}

static void handle_line(struct batch *b, const struct app_line *line)
{
    struct di_error err = {0};
    struct app_request request = {0};
    if (is_blank(line))
        return;
    if (line->text == NULL) {
        err.code = DI_ERR_LIMIT;
        snprintf(err.message, sizeof err.message, "the line is longer than %d bytes", LONGEST_LINE);
    } else {
        (void)app_request_parse(line->text, line->len, b->base, &request, &err);
    }
    json_t *id = request.id != NULL || err.code != DI_OK ? json_incref(request.id) : line_id(line->number);
    bool wanted = is_new(b, id, line->number, &err);
    if (wanted && err.code == DI_OK)
        submit(b, &request, id, line->number, &err);
    if (wanted && err.code != DI_OK)
        answer_error(b, id, line->number, &err);
    b->progress.skipped += !wanted;
    json_decref(id);
    app_request_free(&request);
}

/* ---- results ---- */

static void finish(struct batch *b, struct job *job)
{
    struct app_result *result = &job->result;
    size_t len = 0;
    char *line = NULL;
    if (result->error.code == DI_ERR_BACKEND) { /* numbers that are none, or the end of the device? is_healthy() */
        line = error_line(job->id, job->line, &result->error, &len);
        b->held_len[b->n_held] = len;
        b->held[b->n_held++] = line;
        if (line == NULL)
            out_of_memory(b);
    } else if (result->error.code != DI_OK) {
        answer_error(b, job->id, job->line, &result->error);
    } else if (strcmp(result->choices[0].finish_reason, "abort") != 0) {
        line = app_json_line(app_result_json(result, job->id, di_engine_identity(b->engine)), &len);
        write_line(b, line, len);
        free(line);
        b->progress.done++;
    }
    app_result_free(result);
    json_decref(job->id);
    *job = (struct job){0};
    b->progress.running--;
}

/* Takes an event, after so many seconds at most; false if none came. */
static bool take_event(struct batch *b, double seconds)
{
    struct di_error err = {0};
    struct di_event *event;
    if (di_next_event(b->engine, seconds, &event, &err) != DI_OK) {
        fail(b, &err);
        return false;
    }
    if (event == NULL)
        return false;
    struct job *job = b->jobs;
    while (!job->used || job->ticket != event->ticket)
        job++;
    if (!app_result_add(&job->result, di_engine_tokenizer(b->engine), event))
        out_of_memory(b);
    di_event_free(b->engine, event);
    if (job->result.n_open == 0)
        finish(b, job);
    return b->code == APP_OK;
}

/* With nothing running, an engine that has failed says so; otherwise what was held are answers. */
static void release_held(struct batch *b)
{
    (void)take_event(b, 0.2);
    for (int i = 0; i < b->n_held; i++) {
        write_line(b, b->held[i], b->held_len[i]);
        free(b->held[i]);
        b->progress.failed += b->code == APP_OK;
    }
    b->n_held = 0;
}

/* ---- the run ---- */

/* True if a line was taken, or bytes of one. */
static bool take_input(struct batch *b)
{
    struct app_line line;
    bool taken = app_lines_take(&b->input, &line);
    if (taken) {
        handle_line(b, &line);
        return true;
    }
    if (b->input.ended) {
        b->at_end = true;
        return false;
    }
    if (!app_lines_ready(&b->input, b->progress.running > 0 ? 0 : 200))
        return false;
    if (!app_lines_fill(&b->input))
        b->code = app_fail(b->args, APP_FAILED, errno == ENOMEM ? DI_ERR_NOMEM : DI_ERR_IO, "%s cannot be read: %s",
                           b->input_name, strerror(errno));
    return b->code == APP_OK;
}

static void run(struct batch *b)
{
    while (b->code == APP_OK && !app_interrupted() && (!b->at_end || b->progress.running > 0 || b->n_held > 0)) {
        bool room = !b->at_end && b->progress.running < b->look_ahead && b->n_held == 0;
        bool went_on = room && take_input(b);
        if (b->code == APP_OK && b->progress.running > 0) {
            bool came = take_event(b, went_on ? 0.0 : room ? 0.02 : 0.1); /* room: there may soon be more to read */
            while (came)
                came = take_event(b, 0.0);
        }
        if (b->code == APP_OK && b->progress.running == 0 && b->n_held > 0)
            release_held(b);
        app_progress_show(&b->progress, b->engine, false);
    }
    /* What has ended at this moment is no loss. What has not is aborted by closing the engine, and answered when resumed. */
    while (b->code == APP_OK && b->progress.running > 0 && take_event(b, 0.0)) {
    }
}

static int open_input(const struct app_args *args, const char *path, struct batch *b)
{
    struct stat info;
    bool is_stdin = strcmp(path, "-") == 0;
    b->input_name = is_stdin ? "standard input" : path;
    b->input.limit = LONGEST_LINE;
    b->input.fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    bool folder = b->input.fd >= 0 && fstat(b->input.fd, &info) == 0 && S_ISDIR(info.st_mode);
    if (b->input.fd >= 0 && !folder)
        return APP_OK;
    int reason = folder ? EISDIR : errno;
    return app_fail(args, APP_USAGE, reason == ENOENT ? DI_ERR_NOT_FOUND : DI_ERR_IO, "%s: %s", b->input_name,
                    strerror(reason));
}

static int finish_run(struct batch *b)
{
    app_progress_show(&b->progress, b->engine, true);
    if (args_has(b->args, "stats"))
        app_progress_stats(&b->progress, b->engine);
    if (b->code != APP_OK)
        return b->code;
    if (app_interrupted())
        return APP_INTERRUPTED;
    uint64_t failed = b->progress.failed + b->output.errors, all = b->progress.done + b->output.results + failed;
    if (failed == 0)
        return APP_OK;
    return app_fail(b->args, APP_SOME_FAILED, DI_ERR_INVALID,
                    "%" PRIu64 " of %" PRIu64 " requests failed; their lines in %s hold the errors", failed, all,
                    strcmp(b->output.path, "-") == 0 ? "the output" : b->output.path);
}

static int start(struct batch *b, const char *out)
{
    const struct app_args *args = b->args;
    struct di_error err = {0};
    if (di_engine_open(NULL, args->engine, &b->engine, &err) != DI_OK)
        return app_error(args, app_open_code(&err), &err);
    int code = app_sampling_check(args, b->base, di_engine_vocab_size(b->engine));
    if (code != APP_OK)
        return code;
    app_catch_interrupt(); /* before the file of results is begun */
    code = app_output_open(args, out, args_has(args, "resume"), di_engine_identity(b->engine), &b->output);
    if (code != APP_OK)
        return code;
    /* Twice as many as run at once, so that there is always a next one. */
    b->look_ahead = 2 * (int)strtol(di_options_get(args->engine, "max-num-seqs"), NULL, 10);
    b->jobs = calloc((size_t)b->look_ahead, sizeof *b->jobs);
    b->held = calloc((size_t)b->look_ahead, sizeof *b->held);
    b->held_len = calloc((size_t)b->look_ahead, sizeof *b->held_len);
    if (b->jobs == NULL || b->held == NULL || b->held_len == NULL)
        return app_fail(args, APP_FAILED, DI_ERR_NOMEM, "out of memory");
    app_progress_open(&b->progress, args_has(args, "progress"), b->input.fd);
    run(b);
    return finish_run(b);
}

int app_batch(const struct app_args *args, const struct di_sampling_params *base, bool bos)
{
    const char *in = args_value(args, "input"), *out = args_has(args, "output") ? args_value(args, "output") : "-";
    struct batch b = {.args = args, .base = base, .bos = bos, .input.fd = -1};
    int code = app_output_check(args, out, args_has(args, "resume"));
    if (code == APP_OK)
        code = open_input(args, in, &b);
    if (code == APP_OK)
        code = start(&b, out);
    di_engine_close(b.engine);
    code = app_output_close(args, &b.output, code);
    for (int i = 0; b.jobs != NULL && i < b.look_ahead; i++) {
        app_result_free(&b.jobs[i].result);
        json_decref(b.jobs[i].id);
    }
    for (int i = 0; i < b.n_held; i++)
        free(b.held[i]);
    free(b.jobs);
    free(b.held);
    free(b.held_len);
    app_lines_free(&b.input);
    if (b.input.fd > STDIN_FILENO)
        close(b.input.fd);
    return code;
}
