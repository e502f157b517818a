/* The inbox, the registry of unfinished calls by id, and what other threads see of the engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/loop.h"

di_status di_service_open(struct di_loop *l, struct di_error *err)
{
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->news, NULL);
    pthread_cond_init(&l->quiet, NULL);
    l->registry = di_calloc(DI_REGISTRY, sizeof *l->registry);
    if (l->registry == NULL)
        return DI_FAIL_NOMEM(err, DI_REGISTRY * sizeof *l->registry);
    return di_mailbox_open(&l->box, err);
}

void di_service_close(struct di_loop *l)
{
    if (l->registry != NULL) {
        pthread_cond_destroy(&l->quiet);
        pthread_cond_destroy(&l->news);
        pthread_mutex_destroy(&l->lock);
    }
    di_mailbox_close(l->box);
    free(l->registry);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The registry; under the lock. */

static struct di_call **bucket(struct di_loop *l, const char *id)
{
    uint64_t hash = 14695981039346656037U; /* FNV-1a */
    for (; *id != '\0'; id++)
        hash = (hash ^ (unsigned char)*id) * 1099511628211U;
    return &l->registry[hash % DI_REGISTRY];
}

static struct di_call *find(struct di_loop *l, const char *id)
{
    struct di_call *call = *bucket(l, id);
    while (call != NULL && strcmp(call->id, id) != 0)
        call = call->next_of_id;
    return call;
}

static struct di_call *find_ticket(struct di_loop *l, uint64_t ticket)
{
    for (size_t i = 0; i < DI_REGISTRY; i++)
        for (struct di_call *call = l->registry[i]; call != NULL; call = call->next_of_id)
            if (call->ticket == ticket)
                return call;
    return NULL;
}

static void forget(struct di_loop *l, struct di_call *call)
{
    struct di_call **at = bucket(l, call->id);
    while (*at != call)
        at = &(*at)->next_of_id;
    *at = call->next_of_id;
    l->n_unfinished--;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Other threads. */

static di_status name_call(struct di_loop *l, struct di_call *call, struct di_error *err)
{
    char name[32];
    if (call->id == NULL) {
        snprintf(name, sizeof name, "req-%llu", (unsigned long long)call->ticket);
        call->id = di_strndup(name, strlen(name));
        if (call->id == NULL)
            return DI_FAIL_NOMEM(err, sizeof name);
    }
    if (find(l, call->id) != NULL)
        return DI_FAIL(err, DI_ERR_INVALID, "request id \"%s\" is in use by a request that has not finished", call->id);
    return DI_OK;
}

di_status di_service_submit(struct di_loop *l, struct di_call *call, uint64_t *ticket, struct di_error *err)
{
    pthread_mutex_lock(&l->lock);
    call->ticket = ++l->tickets;
    di_status status = l->stop      ? DI_FAIL(err, DI_ERR_ABORTED, "the engine is closing")
                       : l->resting ? DI_FAIL(err, DI_ERR_INVALID, "the engine is busy with a trace")
                                    : name_call(l, call, err);
    if (status == DI_OK) {
        struct di_call **place = bucket(l, call->id);
        call->next_of_id = *place;
        *place = call;
        l->n_unfinished++;
        call->next = NULL;
        if (l->inbox_last != NULL)
            l->inbox_last->next = call;
        else
            l->inbox = call;
        l->inbox_last = call;
        if (ticket != NULL)
            *ticket = call->ticket;
        pthread_cond_signal(&l->news);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

di_status di_service_abort(struct di_loop *l, const char *id, uint64_t ticket, struct di_error *err)
{
    di_status status = DI_OK;
    pthread_mutex_lock(&l->lock);
    struct di_call *call = id != NULL ? find(l, id) : find_ticket(l, ticket);
    if (call == NULL) {
        status = id != NULL ? DI_FAIL(err, DI_ERR_NOT_FOUND, "no unfinished request has the id \"%s\"", id)
                            : DI_FAIL(err, DI_ERR_NOT_FOUND, "no unfinished request has the ticket %llu",
                                      (unsigned long long)ticket);
    } else {
        call->abort_asked = true;
        l->abort_asked = true;
        pthread_cond_signal(&l->news);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

struct di_mailbox *di_service_mailbox(struct di_loop *l)
{
    return l->box;
}

di_status di_service_health(struct di_loop *l, struct di_error *err)
{
    pthread_mutex_lock(&l->lock);
    di_status status = l->n_unfinished == 0 ? l->shown_failure.code : DI_OK;
    if (status != DI_OK && err != NULL)
        *err = l->shown_failure;
    if (status == DI_OK && l->stop)
        status = DI_FAIL(err, DI_ERR_ABORTED, "the engine is closing");
    pthread_mutex_unlock(&l->lock);
    return status;
}

void di_service_stats(struct di_loop *l, struct di_engine_stats *stats)
{
    pthread_mutex_lock(&l->lock);
    *stats = l->shown;
    pthread_mutex_unlock(&l->lock);
    stats->seconds = di_clock_seconds() - l->opened;
}

di_status di_service_rest(struct di_loop *l, struct di_error *err)
{
    di_status status = DI_OK;
    pthread_mutex_lock(&l->lock);
    if (l->n_unfinished > 0 || l->resting)
        status = DI_FAIL(err, DI_ERR_INVALID, "a trace needs the engine for itself; %d requests are unfinished",
                         l->n_unfinished);
    else
        l->resting = true;
    while (status == DI_OK && !l->asleep)
        pthread_cond_wait(&l->quiet, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return status;
}

void di_service_wake(struct di_loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->resting = false;
    pthread_mutex_unlock(&l->lock);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The engine thread. */

static void enqueue(struct di_loop *l, struct di_call *call)
{
    l->stats.requests++;
    l->stats.prompt_tokens += (uint64_t)call->n_prompt;
    for (int32_t i = 0; i < call->params.n; i++) {
        call->seqs[i].task.arrival = call->ticket * DI_MAX_CHOICES + (uint64_t)i;
        di_sched_add(l->sched, &call->seqs[i].task);
    }
}

bool di_service_collect(struct di_loop *l, bool wait)
{
    pthread_mutex_lock(&l->lock);
    while (wait && l->inbox == NULL && !l->stop && !l->abort_asked) {
        l->asleep = true;
        pthread_cond_broadcast(&l->quiet);
        pthread_cond_wait(&l->news, &l->lock);
    }
    l->asleep = false;
    struct di_call *calls = l->inbox;
    l->inbox = l->inbox_last = NULL;
    if (l->abort_asked)
        for (size_t i = 0; i < DI_REGISTRY; i++)
            for (struct di_call *call = l->registry[i]; call != NULL; call = call->next_of_id)
                call->aborted |= call->abort_asked;
    l->abort_asked = false;
    bool go_on = !l->stop;
    pthread_mutex_unlock(&l->lock);
    while (calls != NULL) {
        struct di_call *next = calls->next;
        enqueue(l, calls);
        calls = next;
    }
    return go_on;
}

void di_service_finished(struct di_loop *l, struct di_call *call)
{
    pthread_mutex_lock(&l->lock);
    forget(l, call);
    l->shown = l->stats; /* whoever sees the last event sees it counted */
    pthread_mutex_unlock(&l->lock);
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void di_service_show(struct di_loop *l)
{
    struct di_engine_stats *s = &l->stats;
    const struct di_pages *pool = di_kv_store_pool(l->store);
    s->waiting = di_sched_count(l->sched, DI_TASK_WAITING);
    s->running = di_sched_count(l->sched, DI_TASK_RUNNING);
    s->swapped = di_sched_count(l->sched, DI_TASK_SWAPPED);
    s->pages_total = di_pages_total(pool);
    s->pages_free = di_pages_free_count(pool);
    if (l->prefix != NULL) {
        struct di_prefix_stats prefix;
        di_prefix_stats(l->prefix, &prefix);
        s->pages_cached = prefix.nodes;
        s->snapshots = (uint64_t)prefix.snapshots;
        s->snapshot_bytes = prefix.snapshot_bytes;
    }
    s->engine_seconds = thread_seconds();
    pthread_mutex_lock(&l->lock);
    l->shown = *s;
    l->shown_failure = l->failure;
    pthread_mutex_unlock(&l->lock);
}
