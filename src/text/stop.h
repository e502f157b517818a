/* text/stop.h - finds stop strings in text as it streams, and withholds what may become one.
 *
 *     di_stop_set_open      the strings of a request, as one automaton; immutable, its streams may share it
 *     di_stop_feed          a piece of text in, what may be shown out
 *     di_stop_finish        the text is over: what was withheld comes out
 *     di_stop_set_close
 *
 * A stream ends with the string that completes first; of several that complete with the same byte the longest counts. The text
 * ends before that string, or behind it where the set says so. Strings may begin and end anywhere in a piece and span any number of
 * them. Withheld is the longest end of the text that is a beginning of a stop string, so what it consists of is known from the
 * set, and a stream is a number: copy it to fork or to step back. Where strings and text are valid UTF-8, text comes out in whole
 * characters. Time is linear in the text.
 */
#ifndef DI_TEXT_STOP_H
#define DI_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct di_stop_set;

/* Copies n zero-terminated strings, none of them empty; n may be 0: nothing is ever withheld. `include`: the text ends behind the
 * stop string. The caller closes *out. */
di_status di_stop_set_open(const char *const *strings, size_t n, bool include, struct di_stop_set **out,
                           struct di_error *err);
void di_stop_set_close(struct di_stop_set *set);

/* One stream of text. Zero-initialise. */
struct di_stop {
    int32_t node; /* stands for the text withheld */
    bool ended;
};

/* What may be shown now: held[n_held], which was withheld until now, then the first n_piece bytes of the piece. */
struct di_stop_text {
    const char *held; /* owned by the set */
    size_t n_held, n_piece;
    int32_t found; /* index of the stop string that completed (the first of equal ones): the text is over; -1: none */
};

/* Behind the end of a stream nothing comes out any more, and `found` is -1. */
struct di_stop_text di_stop_feed(const struct di_stop_set *set, struct di_stop *stream, const char *piece, size_t len);

/* The stream begins anew. */
struct di_stop_text di_stop_finish(const struct di_stop_set *set, struct di_stop *stream);

#endif
