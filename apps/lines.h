/* apps/lines.h - lines of a file or pipe, one by one, in bounded memory. */
#ifndef LINES_H
#define LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise but for fd and limit. */
struct app_lines {
    int fd;
    size_t limit; /* longest line; 0: none */
    char *data;
    size_t begin, scanned, end, capacity; /* data[begin, end) is there; no newline in [begin, scanned) */
    uint64_t offset;                      /* in the stream, of data[begin] */
    uint64_t number;                      /* of the line that was taken last, from 1 */
    bool ended;                           /* the stream */
    bool skipping;                        /* the rest of a line that is too long */
};

struct app_line {
    const char *text; /* without its newline, until the next call; NULL: the line was too long */
    size_t len;
    uint64_t number, offset; /* offset: of its first byte in the stream */
    bool whole;              /* a newline ended it, not the end of the stream */
};

/* A line, if there is one in memory or the stream has ended with one. */
bool app_lines_take(struct app_lines *lines, struct app_line *line);
/* Reads once; may wait for data. False on failure, with errno. */
bool app_lines_fill(struct app_lines *lines);
/* True if app_lines_fill() would not wait; waits for that so many milliseconds, -1 for ever or until a signal. */
bool app_lines_ready(struct app_lines *lines, int milliseconds);
void app_lines_free(struct app_lines *lines);

#endif
