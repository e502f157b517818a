#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_THREADS = 1024 };

struct member {
    struct di_team *team;
    pthread_t thread;
    int32_t index;
    int32_t spins; /* of this member, see next_spins() */
};

/* A loop is announced by moving `generation`; members look at it for some microseconds and then sleep on `work`. The caller
 * likewise looks at `running` and then sleeps on `done`. count, fn and arg are written before the announcement and stay until
 * `running` is 0. */
struct di_team {
    int32_t size;
    bool pinned;
    int32_t *processors;    /* [size] where pinned */
    struct member *members; /* [size]; member 0 is the caller and has no thread */
    pthread_mutex_t lock;   /* for sleeping only */
    pthread_cond_t work, done;
    _Atomic uint64_t generation;
    _Atomic int32_t running;  /* members still busy with this loop */
    _Atomic int32_t sleeping; /* members that need waking */
    _Atomic bool caller_sleeps, stop;
    int64_t count;
    di_range_fn fn;
    void *arg;
};

/* How long to look before sleeping. On cores of one's own the other side answers within microseconds and looking is far
 * cheaper than a wake-up; where something else runs on a core, the other side may be off it, and looking takes the time that
 * it needs. So a look in vain halves the next one, an answer lets it grow again. */
enum { MIN_SPINS = 20, MAX_SPINS = 4000, SPIN_GROWTH = 1000 };

static int32_t next_spins(int32_t spins, bool answered)
{
    int32_t next = answered ? spins + SPIN_GROWTH : spins / 2;
    return next < MIN_SPINS ? MIN_SPINS : next > MAX_SPINS ? MAX_SPINS : next;
}

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void run_share(struct di_team *team, int32_t index)
{
    int64_t begin = team->count * index / team->size, end = team->count * (index + 1) / team->size;
    if (begin < end)
        team->fn(team->arg, begin, end, index);
}

/* Waits until the generation is no longer `seen`, or the team stops. */
static void wait_for_work(struct member *self, uint64_t seen)
{
    struct di_team *team = self->team;
    for (int32_t i = 0; i < self->spins; i++) {
        if (atomic_load(&team->generation) != seen || atomic_load(&team->stop)) {
            self->spins = next_spins(self->spins, true);
            return;
        }
        pause_cpu();
    }
    self->spins = next_spins(self->spins, false);
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->sleeping, 1);
    while (atomic_load(&team->generation) == seen && !atomic_load(&team->stop))
        pthread_cond_wait(&team->work, &team->lock);
    atomic_fetch_sub(&team->sleeping, 1);
    pthread_mutex_unlock(&team->lock);
}

static void *member_main(void *pointer)
{
    struct member *self = pointer;
    struct di_team *team = self->team;
    uint64_t seen = 0;
    for (;;) {
        wait_for_work(self, seen);
        if (atomic_load(&team->stop))
            return NULL;
        seen = atomic_load(&team->generation);
        run_share(team, self->index);
        if (atomic_fetch_sub(&team->running, 1) == 1 && atomic_load(&team->caller_sleeps)) {
            pthread_mutex_lock(&team->lock);
            pthread_cond_signal(&team->done);
            pthread_mutex_unlock(&team->lock);
        }
    }
}

/* "0-3,8" -> set; false where it is no such list. */
static bool parse_list(const char *list, cpu_set_t *set)
{
    CPU_ZERO(set);
    for (const char *at = list;; at++) {
        unsigned long range[2];
        for (int i = 0; i < 2; i++) {
            char *rest;
            if (*at < '0' || *at > '9')
                return false;
            range[i] = strtoul(at, &rest, 10);
            at = rest;
            if (i == 0 && *at != '-')
                range[++i] = range[0];
            else if (i == 0)
                at++;
        }
        if (range[0] > range[1] || range[1] >= CPU_SETSIZE)
            return false;
        for (unsigned long cpu = range[0]; cpu <= range[1]; cpu++)
            CPU_SET(cpu, set);
        if (*at == '\0')
            return true;
        if (*at != ',')
            return false;
    }
}

/* The processors to use, and whether they were asked for. */
static di_status processors_of(const char *list, cpu_set_t *set, bool *listed, struct di_error *err)
{
    cpu_set_t usable, both;
    *listed = list != NULL && strcmp(list, "all") != 0;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) == 0) {
        CPU_ZERO(&usable);
        CPU_SET(0, &usable);
    }
    *set = usable;
    if (!*listed)
        return DI_OK;
    if (!parse_list(list, set))
        return DI_FAIL(err, DI_ERR_INVALID, "option cpu-list: \"%s\" is no list of processors such as 0-3,8", list);
    CPU_AND(&both, set, &usable);
    if (!CPU_EQUAL(&both, set))
        return DI_FAIL(err, DI_ERR_RANGE, "option cpu-list: \"%s\" names processors that this process may not use",
                       list);
    return DI_OK;
}

static void pin(pthread_t thread, int32_t processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    (void)pthread_setaffinity_np(thread, sizeof set, &set); /* a refusal costs speed only */
}

void di_team_pin_caller(const struct di_team *team)
{
    if (team->pinned)
        pin(pthread_self(), team->processors[0]);
}

static void free_team(struct di_team *team)
{
    if (team == NULL)
        return;
    free(team->members);
    free(team->processors);
    free(team);
}

static struct di_team *make_team(int32_t size, const cpu_set_t *set, bool pinned)
{
    struct di_team *team = di_calloc(1, sizeof *team);
    if (team == NULL)
        return NULL;
    team->members = di_calloc((size_t)size, sizeof *team->members);
    team->processors = di_calloc((size_t)size, sizeof *team->processors);
    if (team->members == NULL || team->processors == NULL) {
        free_team(team);
        return NULL;
    }
    team->pinned = pinned;
    int32_t n = 0;
    for (int32_t cpu = 0; cpu < CPU_SETSIZE && n < size; cpu++)
        if (CPU_ISSET((size_t)cpu, set))
            team->processors[n++] = cpu;
    return team;
}

di_status di_team_open(int32_t n_threads, const char *cpu_list, struct di_team **out, struct di_error *err)
{
    cpu_set_t set;
    bool listed;
    *out = NULL;
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return DI_FAIL(err, DI_ERR_RANGE, "threads %d is outside 0..%d", n_threads, MAX_THREADS);
    DI_TRY(processors_of(cpu_list, &set, &listed, err));
    int32_t processors = CPU_COUNT(&set) > MAX_THREADS ? MAX_THREADS : CPU_COUNT(&set);
    int32_t size = n_threads == 0 ? processors : n_threads;
    if (listed && size > processors)
        return DI_FAIL(err, DI_ERR_RANGE, "option cpu-list: \"%s\" has %d processors for %d threads", cpu_list,
                       processors, size);
    struct di_team *team = make_team(size, &set, listed || size == processors);
    if (team == NULL)
        return DI_FAIL_NOMEM(err, (size_t)size * sizeof *team->members);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->done, NULL);
    team->size = 1;
    team->members[0].spins = MAX_SPINS;
    for (int32_t i = 1; i < size; i++) {
        struct member *member = &team->members[i];
        member->team = team;
        member->index = i;
        member->spins = MAX_SPINS;
        int code = pthread_create(&member->thread, NULL, member_main, member);
        if (code != 0) {
            di_team_close(team);
            return DI_FAIL(err, DI_ERR_NOMEM, "thread %d of %d could not be started: %s", i, size, strerror(code));
        }
        team->size = i + 1;
        if (team->pinned)
            pin(member->thread, team->processors[i]);
    }
    *out = team;
    return DI_OK;
}

void di_team_close(struct di_team *team)
{
    if (team == NULL)
        return;
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->stop, true);
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
    for (int32_t i = 1; i < team->size; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->work);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->lock);
    free_team(team);
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
    team->count = count;
    team->fn = fn;
    team->arg = arg;
    atomic_store(&team->running, team->size - 1);
    atomic_fetch_add(&team->generation, 1);
    if (atomic_load(&team->sleeping) != 0) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_broadcast(&team->work);
        pthread_mutex_unlock(&team->lock);
    }
    run_share(team, 0);
    struct member *caller = &team->members[0];
    for (int32_t i = 0; i < caller->spins && atomic_load(&team->running) != 0; i++)
        pause_cpu();
    bool answered = atomic_load(&team->running) == 0;
    caller->spins = next_spins(caller->spins, answered);
    if (answered)
        return;
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->caller_sleeps, true);
    while (atomic_load(&team->running) != 0)
        pthread_cond_wait(&team->done, &team->lock);
    atomic_store(&team->caller_sleeps, false);
    pthread_mutex_unlock(&team->lock);
}
