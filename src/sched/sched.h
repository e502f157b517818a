/* sched/sched.h - which rows the next step carries.
 *
 * The scheduler knows sequences as tasks: how many tokens each has, how many rows of it were run, who came first. It owns the queues
 * and nothing else; room in the caches is asked for through hooks.
 *
 *     di_sched_add       a task joins the queue
 *     di_sched_plan      the rows of the next step, under one budget: decodes first, then prompts that have begun, then those
 *                        that had to make room, then those that wait
 *     di_sched_remove    a task has ended
 *
 * ORDER. Lower priority values first, then the order of coming. A running task that finds no page makes the last task in that order
 * give up its place (swap_out); what was swapped out comes back before anything new is admitted. Nobody is overtaken for ever: what
 * does not fit at the head of the queue keeps those behind it waiting.
 *
 * Deterministic: equal calls give equal plans. One thread.
 */
#ifndef DI_SCHED_SCHED_H
#define DI_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum di_task_state { DI_TASK_WAITING, DI_TASK_RUNNING, DI_TASK_SWAPPED, DI_TASK_GONE };

/* Embedded in the engine's sequence. */
struct di_task {
    /* set before di_sched_add, then left alone */
    int64_t prompt; /* tokens */
    int32_t priority;
    uint64_t arrival; /* ascending */
    bool all_logits;  /* every prompt row goes through the head */
    /* kept up to date by the owner between plans */
    int64_t known;    /* tokens that can be fed: the prompt, what was drawn, what the running step will draw, drafts */
    int64_t computed; /* of them rows that are in the caches or in queued steps */
    int64_t split;    /* a step ends here if it would run past; 0: nowhere */
    bool held;        /* not now: how long it is depends on the running step, or it waits for another task */
    /* the scheduler's */
    enum di_task_state state;
    struct di_task *next, *prev;
    uint64_t planned; /* number of the plan that it is in */
};

struct di_plan_item {
    struct di_task *task;
    int64_t first;       /* position of its first row */
    int32_t n, n_logits; /* the last n_logits rows go through the head */
};

struct di_plan {
    struct di_plan_item *items; /* [max_seqs] */
    int32_t n_items, n_rows, n_logits;
};

/* All return false where there is no room now. */
struct di_sched_hooks {
    void *user;
    bool (*admit)(void *user,
                  struct di_task *task); /* a slot and the room to begin; may set `computed` (a cached prefix) */
    bool (*grow)(void *user, struct di_task *task, int64_t length); /* room for so many rows */
    bool (*swap_in)(void *user, struct di_task *task);
    void (*swap_out)(void *user, struct di_task *task); /* cannot fail */
};

struct di_sched_options {
    int32_t max_rows, max_logits, max_seqs; /* of a step */
    struct di_sched_hooks hooks;
};

struct di_sched;

di_status di_sched_open(const struct di_sched_options *options, struct di_sched **out, struct di_error *err);
void di_sched_close(struct di_sched *sched);

void di_sched_add(struct di_sched *sched, struct di_task *task);
/* From whatever queue it is in; the task's state becomes DI_TASK_GONE. */
void di_sched_remove(struct di_sched *sched, struct di_task *task);

/* The next step; no items if nothing can run now. The owner raises `computed` of the items' tasks afterwards. Valid until the next
 * plan. */
const struct di_plan *di_sched_plan(struct di_sched *sched);

/* How many tasks are in each state. */
int32_t di_sched_count(const struct di_sched *sched, enum di_task_state state);
/* The tasks of a state in order: the first, then `next` of each. */
struct di_task *di_sched_first(const struct di_sched *sched, enum di_task_state state);

#endif
