#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 18 };

double app_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Lines that are not blank; 0 for what is no file. */
static uint64_t count_lines(int fd)
{
    struct stat info;
    uint64_t count = 0;
    bool text = false;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || at < 0)
        return 0;
    char *piece = malloc(PIECE);
    ssize_t n;
    while (piece != NULL && (n = pread(fd, piece, PIECE, at)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            count += piece[i] == '\n' && text;
            text = piece[i] != '\n' && (text || (piece[i] != ' ' && piece[i] != '\t' && piece[i] != '\r'));
        }
        at += n;
    }
    free(piece);
    return count + text;
}

void app_progress_open(struct app_progress *progress, bool asked, int input)
{
    progress->terminal = isatty(STDERR_FILENO) != 0;
    progress->shown = asked || progress->terminal;
    progress->total = progress->shown ? count_lines(input) : 0;
    progress->started = app_seconds();
}

void app_progress_show(struct app_progress *p, di_engine *engine, bool last)
{
    double now = app_seconds();
    if (!p->shown || (!last && now < p->next))
        return;
    struct di_engine_stats stats;
    char total[32] = "", failed[48] = "";
    di_engine_get_stats(engine, &stats);
    p->next = now + (p->terminal ? 0.25 : 5.0);
    if (p->total > 0)
        snprintf(total, sizeof total, "/%" PRIu64, p->total);
    if (p->failed > 0)
        snprintf(failed, sizeof failed, " (%" PRIu64 " failed)", p->failed);
    fprintf(stderr, "%s%" PRIu64 "%s requests%s, %d running, %.1f tokens/s%s", p->terminal ? "\r" : "",
            p->done + p->failed + p->skipped, total, failed, p->running,
            (double)stats.output_tokens / (now - p->started + 1e-9), p->terminal ? "\033[K" : "\n");
    if (last && p->terminal)
        fputc('\n', stderr);
}

void app_progress_stats(const struct app_progress *p, di_engine *engine)
{
    struct di_engine_stats stats;
    double seconds = app_seconds() - p->started;
    di_engine_get_stats(engine, &stats);
    fprintf(stderr,
            "requests: %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " skipped; prompt: %" PRIu64 " tokens, %" PRIu64
            " cached; output: %" PRIu64 " tokens; %.3f s (%.1f tokens/s)\n",
            p->done, p->failed, p->skipped, stats.prompt_tokens, stats.cached_tokens, stats.output_tokens, seconds,
            (double)stats.output_tokens / seconds);
}
