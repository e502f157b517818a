#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lines.h"

static bool is_stdout(const char *path)
{
    return strcmp(path, "-") == 0;
}

static int cannot(const struct app_args *args, int code, const char *path, const char *what)
{
    int reason = errno;
    return app_fail(args, code, reason == ENOENT ? DI_ERR_NOT_FOUND : DI_ERR_IO, "%s cannot be %s: %s",
                    is_stdout(path) ? "standard output" : path, what, strerror(reason));
}

int app_output_check(const struct app_args *args, const char *path, bool resume)
{
    struct stat info;
    if (is_stdout(path))
        return resume ? app_usage(args, "option --resume needs a file as --output, not standard output") : APP_OK;
    if (stat(path, &info) != 0)
        return errno == ENOENT ? APP_OK : cannot(args, APP_USAGE, path, "written");
    if (S_ISDIR(info.st_mode))
        return app_usage(args, "option --output: %s is a directory", path);
    if (S_ISREG(info.st_mode) && !resume)
        return app_usage(args, "option --output: %s exists; --resume goes on with it", path);
    if (!S_ISREG(info.st_mode) && resume)
        return app_usage(args, "option --resume: %s is not a file that could be read", path);
    return APP_OK;
}

char *app_output_name(const char *id, uint64_t error_line)
{
    const char *text = id != NULL ? id : "null";
    size_t size = strlen(text) + 24;
    char *name = malloc(size);
    if (name != NULL)
        snprintf(name, size, "%" PRIu64 " %s", error_line, text);
    return name;
}

/* ---- what is there already ---- */

static bool add_name(struct app_output *output, const json_t *id, uint64_t error_line)
{
    char *text = id != NULL ? json_dumps(id, JSON_ENCODE_ANY) : NULL, *name = app_output_name(text, error_line);
    bool added, whole = name != NULL && idset_add(&output->done, name, strlen(name), &added) != NULL;
    free(text);
    free(name);
    return whole;
}

static int read_line(const struct app_args *args, struct app_output *output, const struct app_line *line,
                     const char *identity)
{
    json_t *root = json_loadb(line->text, line->len, JSON_ALLOW_NUL, NULL);
    const json_t *id = json_object_get(root, "id"), *error = json_object_get(root, "error"),
                 *number = json_object_get(root, "line");
    const char *made_by = json_string_value(json_object_get(root, "identity"));
    int code = APP_OK;
    bool good = error != NULL ? json_is_integer(number) : id != NULL && !json_is_null(id) && made_by != NULL;
    if (!good)
        code = app_usage(args, "%s: line %" PRIu64 " is not a result of deepinfer run; not resumed", output->path,
                         line->number);
    else if (error == NULL && strcmp(made_by, identity) != 0)
        code = app_usage(args, "%s: line %" PRIu64 " was made with the numeric identity %s; now it is %s; not resumed",
                         output->path, line->number, made_by, identity);
    else if (!add_name(output, json_is_null(id) ? NULL : id, error != NULL ? (uint64_t)json_integer_value(number) : 0))
        code = app_fail(args, APP_FAILED, DI_ERR_NOMEM, "%s: out of memory", output->path);
    output->results += error == NULL;
    output->errors += error != NULL;
    json_decref(root);
    return code;
}

/* Reads all lines, cuts off a torn one, and stands at the end. */
static int read_results(const struct app_args *args, struct app_output *output, const char *identity)
{
    struct app_lines lines = {.fd = output->fd};
    struct app_line line;
    uint64_t end = 0;
    int code = APP_OK;
    bool more = true;
    while (more && code == APP_OK) {
        while (code == APP_OK && app_lines_take(&lines, &line)) {
            if (!line.whole)
                break;
            code = read_line(args, output, &line, identity);
            end = line.offset + line.len + 1;
        }
        more = !lines.ended;
        if (code == APP_OK && more && !app_lines_fill(&lines))
            code = cannot(args, APP_FAILED, output->path, "read");
    }
    app_lines_free(&lines);
    if (code == APP_OK && (ftruncate(output->fd, (off_t)end) != 0 || lseek(output->fd, (off_t)end, SEEK_SET) < 0))
        code = cannot(args, APP_FAILED, output->path, "resumed");
    return code;
}

int app_output_open(const struct app_args *args, const char *path, bool resume, const char *identity,
                    struct app_output *output)
{
    struct stat info;
    *output = (struct app_output){.path = path, .resume = resume, .fd = STDOUT_FILENO};
    if (!is_stdout(path)) {
        bool device = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
        int flags = device ? O_WRONLY : resume ? O_RDWR | O_CREAT : O_WRONLY | O_CREAT | O_EXCL;
        output->fd = open(path, flags | O_CLOEXEC, 0666);
        if (output->fd < 0)
            return cannot(args, APP_USAGE, path, "written");
    }
    output->regular = fstat(output->fd, &info) == 0 && S_ISREG(info.st_mode);
    if (output->regular && !is_stdout(path) && flock(output->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return app_usage(args, "option --output: %s is being written by another process", path);
    return resume ? read_results(args, output, identity) : APP_OK;
}

/* ---- writing ---- */

/* A line that was not written whole is taken back where that is possible. */
static void take_back(const struct app_output *output, size_t written)
{
    struct stat info;
    int reason = errno;
    off_t at = lseek(output->fd, 0, SEEK_CUR);
    if (written > 0 && output->regular && at >= (off_t)written && fstat(output->fd, &info) == 0 && info.st_size == at &&
        ftruncate(output->fd, at - (off_t)written) == 0)
        (void)lseek(output->fd, at - (off_t)written, SEEK_SET);
    errno = reason;
}

int app_output_line(const struct app_args *args, struct app_output *output, const char *line, size_t len)
{
    size_t written = 0;
    while (written < len) {
        ssize_t n = write(output->fd, line + written, len - written);
        if (n < 0 && errno == EAGAIN) { /* a pipe that does not wait by itself */
            struct pollfd wanted = {.fd = output->fd, .events = POLLOUT};
            (void)poll(&wanted, 1, -1);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            take_back(output, written);
            return cannot(args, APP_FAILED, output->path, "written");
        }
        written += (size_t)n;
    }
    return APP_OK;
}

int app_output_close(const struct app_args *args, struct app_output *output, int code)
{
    idset_free(&output->done);
    if (output->path == NULL || output->fd < 0)
        return code;
    bool written = !output->regular || fsync(output->fd) == 0; /* some file systems notice a full disk as late as now */
    if (!is_stdout(output->path) && close(output->fd) != 0)
        written = false;
    return written || code != APP_OK ? code : cannot(args, APP_FAILED, output->path, "written");
}
