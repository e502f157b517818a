#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_THREADS = 1024 };

struct member {
    struct di_team *team;
    pthread_t thread;
    int32_t index;
};

struct di_team {
    int32_t size;
    struct member *members; /* [size]; member 0 is the caller and has no thread */
    pthread_mutex_t lock;   /* guards everything below */
    pthread_cond_t work, done;
    uint64_t generation; /* counts loops; a member waits for it to move */
    int32_t running;     /* members still busy with this loop */
    bool stop;
    int64_t count;
    di_range_fn fn;
    void *arg;
};

static void run_share(struct di_team *team, int32_t index)
{
    int64_t begin = team->count * index / team->size, end = team->count * (index + 1) / team->size;
    if (begin < end)
        team->fn(team->arg, begin, end, index);
}

static void *member_main(void *pointer)
{
    struct member *self = pointer;
    struct di_team *team = self->team;
    uint64_t seen = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (!team->stop && team->generation == seen)
            pthread_cond_wait(&team->work, &team->lock);
        if (team->stop)
            break;
        seen = team->generation;
        pthread_mutex_unlock(&team->lock);
        run_share(team, self->index);
        pthread_mutex_lock(&team->lock);
        if (--team->running == 0)
            pthread_cond_signal(&team->done);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

static int32_t usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int32_t n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

di_status di_team_open(int32_t n_threads, struct di_team **out, struct di_error *err)
{
    *out = NULL;
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return DI_FAIL(err, DI_ERR_RANGE, "threads %d is outside 0..%d", n_threads, MAX_THREADS);
    int32_t size = n_threads == 0 ? usable_cores() : n_threads;
    struct di_team *team = di_calloc(1, sizeof *team);
    if (team == NULL)
        return DI_FAIL_NOMEM(err, sizeof *team);
    team->members = di_calloc((size_t)size, sizeof *team->members);
    if (team->members == NULL) {
        free(team);
        return DI_FAIL_NOMEM(err, (size_t)size * sizeof *team->members);
    }
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->done, NULL);
    team->size = 1;
    for (int32_t i = 1; i < size; i++) {
        struct member *member = &team->members[i];
        member->team = team;
        member->index = i;
        int code = pthread_create(&member->thread, NULL, member_main, member);
        if (code != 0) {
            di_team_close(team);
            return DI_FAIL(err, DI_ERR_NOMEM, "thread %d of %d could not be started: %s", i, size, strerror(code));
        }
        team->size = i + 1;
    }
    *out = team;
    return DI_OK;
}

void di_team_close(struct di_team *team)
{
    if (team == NULL)
        return;
    pthread_mutex_lock(&team->lock);
    team->stop = true;
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
    for (int32_t i = 1; i < team->size; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->work);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->lock);
    free(team->members);
    free(team);
}

int32_t di_team_size(const struct di_team *team)
{
    return team->size;
}

void di_team_run(struct di_team *team, int64_t count, di_range_fn fn, void *arg)
{
    if (team->size == 1 || count == 1) {
        if (count > 0)
            fn(arg, 0, count, 0);
        return;
    }
    pthread_mutex_lock(&team->lock);
    team->count = count;
    team->fn = fn;
    team->arg = arg;
    team->running = team->size - 1;
    team->generation++;
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
    run_share(team, 0);
    pthread_mutex_lock(&team->lock);
    while (team->running != 0)
        pthread_cond_wait(&team->done, &team->lock);
    pthread_mutex_unlock(&team->lock);
}
