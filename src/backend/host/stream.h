/* backend/host/stream.h - an in-order stream of calls on a thread of its own.
 *
 *     di_stream_open     starts the thread
 *     di_stream_push     copies a call and its arguments into a ring and returns; waits only where the ring is full
 *     di_stream_mark     a number for everything pushed so far
 *     di_stream_wait     sleeps until the stream has passed a mark
 *     di_stream_close    finishes what was pushed, then ends the thread
 *
 * One thread pushes. Nothing is allocated after opening.
 */
#ifndef DI_HOST_STREAM_H
#define DI_HOST_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { DI_STREAM_BYTES = 256 * 1024 }; /* of the ring */

struct di_stream;

/* `enter` runs first on the new thread; NULL for none. */
di_status di_stream_open(void (*enter)(void *user), void *user, struct di_stream **out, struct di_error *err);
void di_stream_close(struct di_stream *stream);

/* fn(user, a copy of args) on the stream's thread; the copy is aligned to 64 bytes. At most 64 KB. */
void di_stream_push(struct di_stream *stream, void (*fn)(void *user, const void *args), const void *args, size_t bytes);
uint64_t di_stream_mark(const struct di_stream *stream);
bool di_stream_passed(const struct di_stream *stream, uint64_t mark);
void di_stream_wait(struct di_stream *stream, uint64_t mark);

#endif
