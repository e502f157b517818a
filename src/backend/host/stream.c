#include "backend/host/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { RING = DI_STREAM_BYTES, HEADER = 64, MIN_SPINS = 20, MAX_SPINS = 2000 };

struct record {
    void (*fn)(void *user, const void *args); /* NULL: the rest of the ring is left out */
    size_t bytes;                             /* of the whole record */
};

/* A ring of records. `head` and `tail` count bytes for ever; head is the pusher's, tail the thread's. Each side looks at the
 * other's count without a lock and sleeps under it. */
struct di_stream {
    unsigned char *ring;
    void (*enter)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock; /* for sleeping only */
    pthread_cond_t more, less;
    _Atomic uint64_t head, tail;
    _Atomic uint64_t wanted; /* what a sleeping caller waits for tail to reach; UINT64_MAX for none */
    _Atomic bool idle, stop;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool has_work(const struct di_stream *s)
{
    return atomic_load(&s->head) != atomic_load(&s->tail) || atomic_load(&s->stop);
}

/* A look in vain halves the next one: whoever has nothing to do for long shall not take a core (base/threads.c). */
static void wait_for_work(struct di_stream *s, int32_t *spins)
{
    for (int32_t i = 0; i < *spins; i++) {
        if (has_work(s)) {
            *spins = *spins < MAX_SPINS / 2 ? 2 * *spins : MAX_SPINS;
            return;
        }
        pause_cpu();
    }
    *spins = *spins / 2 > MIN_SPINS ? *spins / 2 : MIN_SPINS;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->idle, true);
    while (!has_work(s))
        pthread_cond_wait(&s->more, &s->lock);
    atomic_store(&s->idle, false);
    pthread_mutex_unlock(&s->lock);
}

static void *stream_main(void *pointer)
{
    struct di_stream *s = pointer;
    int32_t spins = MAX_SPINS;
    if (s->enter != NULL)
        s->enter(s->user);
    for (;;) {
        wait_for_work(s, &spins);
        uint64_t tail = atomic_load(&s->tail);
        if (atomic_load(&s->head) == tail)
            return NULL; /* stopped, and nothing left */
        const unsigned char *at = s->ring + tail % RING;
        struct record record;
        memcpy(&record, at, sizeof record);
        if (record.fn != NULL)
            record.fn(s->user, at + HEADER);
        atomic_store(&s->tail, tail + record.bytes);
        if (tail + record.bytes >= atomic_load(&s->wanted)) {
            pthread_mutex_lock(&s->lock);
            pthread_cond_signal(&s->less);
            pthread_mutex_unlock(&s->lock);
        }
    }
}

static void free_stream(struct di_stream *s)
{
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->less);
    pthread_mutex_destroy(&s->lock);
    free(s->ring);
    free(s);
}

di_status di_stream_open(void (*enter)(void *user), void *user, struct di_stream **out, struct di_error *err)
{
    *out = NULL;
    struct di_stream *s = di_calloc(1, sizeof *s);
    if (s == NULL)
        return DI_FAIL_NOMEM(err, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->less, NULL);
    s->ring = di_aligned_calloc(RING, 1);
    s->enter = enter;
    s->user = user;
    atomic_store(&s->wanted, UINT64_MAX);
    if (s->ring == NULL) {
        free_stream(s);
        return DI_FAIL_NOMEM(err, (size_t)RING);
    }
    int code = pthread_create(&s->thread, NULL, stream_main, s);
    if (code != 0) {
        free_stream(s);
        return DI_FAIL(err, DI_ERR_NOMEM, "the stream's thread could not be started: %s", strerror(code));
    }
    *out = s;
    return DI_OK;
}

static void wake(struct di_stream *s)
{
    if (!atomic_load(&s->idle))
        return;
    pthread_mutex_lock(&s->lock);
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

void di_stream_close(struct di_stream *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->stop, true);
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free_stream(s);
}

void di_stream_wait(struct di_stream *s, uint64_t mark)
{
    if (di_stream_passed(s, mark))
        return;
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->wanted, mark);
    while (!di_stream_passed(s, mark))
        pthread_cond_wait(&s->less, &s->lock);
    atomic_store(&s->wanted, UINT64_MAX);
    pthread_mutex_unlock(&s->lock);
}

/* Room for `bytes` in one piece at `head`, once the thread has left it. */
static void wait_for_room(struct di_stream *s, uint64_t head, size_t bytes)
{
    if (head + bytes > RING)
        di_stream_wait(s, head + bytes - RING);
}

void di_stream_push(struct di_stream *s, void (*fn)(void *user, const void *args), const void *args, size_t bytes)
{
    struct record record = {fn, HEADER + ((bytes + 63) & ~(size_t)63)};
    uint64_t head = atomic_load(&s->head), left = RING - head % RING;
    if (record.bytes > left) {
        struct record skip = {NULL, left};
        wait_for_room(s, head, left);
        memcpy(s->ring + head % RING, &skip, sizeof skip);
        head += left;
        atomic_store(&s->head, head);
        wake(s);
    }
    wait_for_room(s, head, record.bytes);
    unsigned char *at = s->ring + head % RING;
    memcpy(at, &record, sizeof record);
    if (bytes != 0)
        memcpy(at + HEADER, args, bytes);
    atomic_store(&s->head, head + record.bytes);
    wake(s);
}

uint64_t di_stream_mark(const struct di_stream *s)
{
    return atomic_load(&s->head);
}

bool di_stream_passed(const struct di_stream *s, uint64_t mark)
{
    return atomic_load(&s->tail) >= mark;
}
