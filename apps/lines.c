#include "lines.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 65536 };

static void take(struct app_lines *l, struct app_line *line, size_t len, bool whole)
{
    *line = (struct app_line){
        .text = l->skipping ? NULL : l->data + l->begin,
        .len = len,
        .number = ++l->number,
        .offset = l->offset,
        .whole = whole,
    };
    l->begin += len + whole;
    l->offset += len + whole;
    l->scanned = l->begin;
    l->skipping = false;
}

bool app_lines_take(struct app_lines *l, struct app_line *line)
{
    size_t left = l->end - l->scanned;
    const char *newline = left > 0 ? memchr(l->data + l->scanned, '\n', left) : NULL;
    if (newline != NULL) {
        size_t len = (size_t)(newline - l->data) - l->begin;
        l->skipping = l->skipping || (l->limit > 0 && len > l->limit);
        take(l, line, len, true);
        return true;
    }
    l->scanned = l->end;
    if (l->skipping || (l->limit > 0 && l->end - l->begin > l->limit)) { /* forget what there is of it */
        l->skipping = true;
        l->offset += l->end - l->begin;
        l->begin = l->scanned = l->end = 0;
    }
    if (!l->ended || (l->begin == l->end && !l->skipping))
        return false;
    take(l, line, l->end - l->begin, false);
    return true;
}

bool app_lines_fill(struct app_lines *l)
{
    if (l->ended)
        return true;
    if (l->begin > 0 && l->begin >= l->capacity / 2) {
        memmove(l->data, l->data + l->begin, l->end - l->begin);
        l->end -= l->begin;
        l->scanned -= l->begin;
        l->begin = 0;
    }
    if (l->capacity - l->end < PIECE) {
        size_t capacity = 2 * l->capacity + 2 * (size_t)PIECE;
        char *grown = realloc(l->data, capacity);
        if (grown == NULL) {
            errno = ENOMEM;
            return false;
        }
        l->data = grown;
        l->capacity = capacity;
    }
    ssize_t n = read(l->fd, l->data + l->end, l->capacity - l->end);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    l->ended = n == 0;
    l->end += (size_t)n;
    return true;
}

bool app_lines_ready(struct app_lines *l, int milliseconds)
{
    struct pollfd wanted = {.fd = l->fd, .events = POLLIN};
    return l->ended || poll(&wanted, 1, milliseconds) > 0;
}

void app_lines_free(struct app_lines *l)
{
    free(l->data);
    l->data = NULL;
}
