#include "sched/sched.h"

#include <stdlib.h>

#include "base/mem.h"

struct queue {
    struct di_task *first, *last;
    int32_t count;
};

struct di_sched {
    struct di_sched_options o;
    struct queue queues[DI_TASK_GONE]; /* by state, each in order */
    struct di_plan plan;
    uint64_t plans; /* made so far */
};

di_status di_sched_open(const struct di_sched_options *options, struct di_sched **out, struct di_error *err)
{
    *out = NULL;
    struct di_sched *s = di_calloc(1, sizeof *s);
    if (s == NULL)
        return DI_FAIL_NOMEM(err, sizeof *s);
    s->o = *options;
    s->plan.items = di_calloc((size_t)options->max_seqs, sizeof *s->plan.items);
    if (s->plan.items == NULL) {
        free(s);
        return DI_FAIL_NOMEM(err, (size_t)options->max_seqs * sizeof *s->plan.items);
    }
    *out = s;
    return DI_OK;
}

void di_sched_close(struct di_sched *s)
{
    if (s == NULL)
        return;
    free(s->plan.items);
    free(s);
}

/* ---- queues ---- */

static bool before(const struct di_task *a, const struct di_task *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* Looks from the end: most tasks belong there. */
static void insert(struct di_sched *s, struct di_task *task, enum di_task_state state)
{
    struct queue *q = &s->queues[state];
    struct di_task *after = q->last;
    while (after != NULL && before(task, after))
        after = after->prev;
    task->state = state;
    task->prev = after;
    task->next = after != NULL ? after->next : q->first;
    if (task->next != NULL)
        task->next->prev = task;
    else
        q->last = task;
    if (after != NULL)
        after->next = task;
    else
        q->first = task;
    q->count++;
}

static void take_out(struct di_sched *s, struct di_task *task)
{
    struct queue *q = &s->queues[task->state];
    if (task->prev != NULL)
        task->prev->next = task->next;
    else
        q->first = task->next;
    if (task->next != NULL)
        task->next->prev = task->prev;
    else
        q->last = task->prev;
    task->next = task->prev = NULL;
    task->state = DI_TASK_GONE;
    q->count--;
}

static void move(struct di_sched *s, struct di_task *task, enum di_task_state state)
{
    take_out(s, task);
    insert(s, task, state);
}

void di_sched_add(struct di_sched *s, struct di_task *task)
{
    insert(s, task, DI_TASK_WAITING);
}

void di_sched_remove(struct di_sched *s, struct di_task *task)
{
    if (task->state != DI_TASK_GONE)
        take_out(s, task);
}

int32_t di_sched_count(const struct di_sched *s, enum di_task_state state)
{
    return s->queues[state].count;
}

struct di_task *di_sched_first(const struct di_sched *s, enum di_task_state state)
{
    return s->queues[state].first;
}

/* ---- the plan ---- */

static bool decodes(const struct di_task *t)
{
    return t->computed >= t->prompt;
}

/* Rows of `t` that the budget leaves room for; 0 for none. A decode's rows (a token and its drafts) go together. */
static int32_t fitting(const struct di_sched *s, const struct di_task *t, int32_t *n_logits)
{
    int64_t rows = t->known - t->computed;
    int32_t left = s->o.max_rows - s->plan.n_rows, logits = s->o.max_logits - s->plan.n_logits;
    *n_logits = 0;
    if (t->held || rows <= 0 || s->plan.n_items == s->o.max_seqs)
        return 0;
    if (decodes(t)) {
        *n_logits = (int32_t)rows;
        return rows <= left && rows <= logits ? (int32_t)rows : 0;
    }
    rows = t->prompt - t->computed < left ? t->prompt - t->computed : left;
    if (t->split > t->computed && t->computed + rows > t->split)
        rows = t->split - t->computed;
    if (t->all_logits) {
        rows = rows < logits ? rows : logits;
        *n_logits = (int32_t)rows;
    } else if (t->computed + rows == t->prompt) {
        *n_logits = 1;
        if (logits < 1)
            rows--; /* the last row waits for a place in the head */
        *n_logits = logits < 1 ? 0 : 1;
    }
    return (int32_t)rows;
}

/* The last running task in order that this plan has not taken yet; `t` itself at worst. */
static struct di_task *victim(const struct di_sched *s, struct di_task *t)
{
    struct di_task *last = s->queues[DI_TASK_RUNNING].last;
    while (last != t && last->planned == s->plans)
        last = last->prev;
    return last;
}

/* Makes room for `length` rows, at the cost of tasks behind `t` in order; false if `t` had to go itself. */
static bool make_room(struct di_sched *s, struct di_task *t, int64_t length)
{
    while (!s->o.hooks.grow(s->o.hooks.user, t, length)) {
        struct di_task *out = victim(s, t);
        s->o.hooks.swap_out(s->o.hooks.user, out);
        move(s, out, DI_TASK_SWAPPED);
        if (out == t)
            return false;
    }
    return true;
}

static void take(struct di_sched *s, struct di_task *t, int32_t n, int32_t n_logits)
{
    s->plan.items[s->plan.n_items++] = (struct di_plan_item){t, t->computed, n, n_logits};
    s->plan.n_rows += n;
    s->plan.n_logits += n_logits;
    t->planned = s->plans;
}

/* Running tasks, those that decode or those that do not. */
static void plan_running(struct di_sched *s, bool decoding)
{
    struct di_task *next;
    for (struct di_task *t = s->queues[DI_TASK_RUNNING].first; t != NULL; t = next) {
        int32_t n_logits, n = decodes(t) == decoding ? fitting(s, t, &n_logits) : 0;
        bool fits = n > 0 && make_room(s, t, t->computed + n);
        /* tasks behind t may have left; t itself may have become the last of another queue */
        next = t->state == DI_TASK_RUNNING ? t->next : NULL;
        if (fits)
            take(s, t, n, n_logits);
    }
}

/* Tasks that are not running, in order, as long as there is room for them. */
static void plan_others(struct di_sched *s, enum di_task_state state, bool (*enter)(void *, struct di_task *))
{
    struct di_task *next;
    for (struct di_task *t = s->queues[state].first; t != NULL; t = next) {
        next = t->next;
        int32_t n_logits, n;
        if (t->held && state == DI_TASK_WAITING)
            continue; /* its turn comes when another task is further */
        if (s->queues[DI_TASK_RUNNING].count >= s->o.max_seqs || s->plan.n_rows >= s->o.max_rows)
            return;
        if (!enter(s->o.hooks.user, t))
            return;
        move(s, t, DI_TASK_RUNNING);
        n = fitting(s, t, &n_logits);
        if (n == 0)
            continue; /* it runs with a later step */
        if (!s->o.hooks.grow(s->o.hooks.user, t, t->computed + n))
            return; /* the next plan makes room */
        take(s, t, n, n_logits);
    }
}

const struct di_plan *di_sched_plan(struct di_sched *s)
{
    s->plans++;
    s->plan.n_items = s->plan.n_rows = s->plan.n_logits = 0;
    plan_running(s, true);
    plan_running(s, false);
    plan_others(s, DI_TASK_SWAPPED, s->o.hooks.swap_in);
    if (s->queues[DI_TASK_SWAPPED].count == 0)
        plan_others(s, DI_TASK_WAITING, s->o.hooks.admit);
    return &s->plan;
}
