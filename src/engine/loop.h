/* engine/loop.h - the engine thread and all that it owns. Private to engine/.
 *
 * One thread owns scheduler, caches and sequences; others reach it through the inbox (service.c) and mailboxes. Its work is a pipeline
 * two steps deep:
 *
 *     forward n+1     queued while step n runs: tokens that step n will draw stand as references (stage.c)
 *     wait            for the draw of step n
 *     tokens of n     appended; what ends by tokens ends                         (results.c)
 *     draw n+1        queued with everything that is known now: penalties, bans, min_tokens, masks
 *     words of n      text, stop strings, events: while the device runs step n+1
 *
 * The forward pass of a step thus starts without the host, and its draw waits for the host only if the host is slower than a whole
 * forward pass. A choice that turns out to have ended has one row too many in the running step (a zombie): its draw is dropped.
 * Everything on the device happens in stream order, so slots and pages of what ended are free at once. Without asynchronous scheduling
 * step n is finished before step n+1 is planned; nothing else differs.
 *
 *     loop.c       the thread and the pipeline
 *     room.c       slots, pages, prefix cache, snapshots, swapping: the scheduler's hooks
 *     stage.c      a plan as the arrays of a step, and of its draw
 *     results.c    what a draw means for its sequences
 *     service.c    the inbox, the registry of ids, statistics
 */
#ifndef DI_ENGINE_LOOP_H
#define DI_ENGINE_LOOP_H

#include <pthread.h>

#include "cache/prefix.h"
#include "cache/store.h"
#include "engine/call.h"
#include "engine/service.h"
#include "model/forward.h"
#include "sample/params.h"

/* One sequence's part of a step. */
struct di_share {
    struct di_seq *seq;
    int64_t first;       /* position of its first row */
    int32_t n, n_logits; /* rows; the last n_logits are drawn from */
    int32_t logit;       /* its first logits row */
    int32_t n_draft;     /* rows behind the first that hold drafts */
};

/* A step that is queued or running. */
struct di_flight {
    struct di_share *shares; /* [max_seqs] */
    int32_t n_shares, n_rows, n_logits;
    bool drawn;           /* its draw is queued */
    struct di_drawn host; /* the draw's results */
    int32_t top;          /* columns of its top lists */
    bool reported;
    uint64_t event;
};

/* What may be released once the stream is past an event. */
struct di_trash {
    void *memory; /* of ops->host_alloc, or NULL */
    struct di_snapshot *snapshot;
    uint64_t event;
    bool marked; /* the event was recorded */
};

struct di_loop {
    struct di_engine *engine;
    struct di_loop_options o;
    const struct di_ops *ops;
    struct di_device *dev;
    struct di_kv_store *store;
    struct di_prefix *prefix; /* NULL: off */
    struct di_model *model;
    struct di_sched *sched;
    struct di_draw_builder *builder;
    struct di_flight flights[2], *running;
    int32_t turn; /* which of them the next step takes */
    /* slots */
    int32_t *free_slots, n_free_slots;
    struct di_seq **slot_seq; /* [max_seqs] */
    int32_t *hit_pages;       /* [pages of the longest sequence] */
    struct di_trash *trash;
    int32_t n_trash, trash_capacity;
    struct di_error failure; /* the device has failed: nothing runs any more */
    /* staging, host arrays of a step (stage.c) */
    struct di_arena arena;
    int32_t ngram;
    int32_t *window, *position, *slot, *first, *low, *floor, *logit_row, *share_of;
    struct di_cut *cuts;
    int32_t *cut_arrays; /* [cuts, 6, rows] grown as needed */
    size_t cut_capacity;
    int64_t *bounds; /* [max_rows] scratch */
    /* inbox and what other threads see (service.c) */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t news, quiet;
    struct di_call *inbox, *inbox_last;
    struct di_call **registry; /* [DI_REGISTRY] unfinished calls by id */
    int32_t n_unfinished;
    bool abort_asked, stop, asleep, resting;
    struct di_mailbox *box; /* of di_next_event */
    uint64_t tickets;
    struct di_engine_stats stats, shown; /* the thread's own; the copy that others read */
    struct di_error shown_failure;
    double opened;
    /* Drafts for the next rows of a sequence whose tokens are all known: at most `most`, their number is returned. NULL: none. */
    int32_t (*draft)(void *user, const struct di_seq *seq, int32_t most, int32_t *out);
    void *draft_user;
};

enum { DI_REGISTRY = 4096 };

/* room.c */
di_status di_room_open(struct di_loop *loop, struct di_error *err);
void di_room_close(struct di_loop *loop);
bool di_room_admit(void *loop, struct di_task *task);
bool di_room_grow(void *loop, struct di_task *task, int64_t length);
bool di_room_swap_in(void *loop, struct di_task *task);
void di_room_swap_out(void *loop, struct di_task *task);
/* Full pages of known tokens become known to the prefix cache. */
void di_room_publish(struct di_loop *loop, struct di_seq *seq);
/* The state of `seq` as of `length` tokens goes to the prefix cache. */
void di_room_snapshot(struct di_loop *loop, struct di_seq *seq, int64_t length);
/* Slot, pages, saved state. */
void di_room_leave(struct di_loop *loop, struct di_seq *seq);
/* Releases what the stream is past; all of it if `all` (the stream has been waited for). mark: events for what was added since. */
void di_room_mark(struct di_loop *loop);
void di_room_sweep(struct di_loop *loop, bool all);
bool di_room_audit(struct di_loop *loop, char *why, size_t why_size);

/* stage.c */
di_status di_stage_open(struct di_loop *loop, struct di_error *err);
void di_stage_close(struct di_loop *loop);
/* Queues the forward pass of a plan and fills *flight. running: the step before, whose draw is queued but not read; or NULL. */
di_status di_stage_forward(struct di_loop *loop, const struct di_plan *plan, const struct di_flight *running,
                           struct di_flight *flight, struct di_error *err);
/* Queues the draw of a step and the copy of its results. */
di_status di_stage_draw(struct di_loop *loop, struct di_flight *flight, struct di_error *err);

/* results.c: the flight's event has passed. */
void di_results_tokens(struct di_loop *loop, struct di_flight *flight);
void di_results_words(struct di_loop *loop, struct di_flight *flight);
/* The other choices of a call run once the first has run the prompt (or has ended), so that they can begin where it stood. */
void di_results_release_choices(const struct di_call *call);
/* A choice has ended: it leaves scheduler and caches, its last event is posted. */
void di_results_end(struct di_loop *loop, struct di_seq *seq);

/* loop.c */
di_status di_loop_open(struct di_engine *engine, const struct di_loop_options *options, struct di_loop **out,
                       struct di_error *err);
void di_loop_close(struct di_loop *loop);
/* One turn of the pipeline; the thread does nothing else. wait: sleeps while there is nothing to do. False: asked to stop. */
bool di_loop_turn(struct di_loop *loop, bool wait);

/* service.c; its other half is service.h */
di_status di_service_open(struct di_loop *loop, struct di_error *err);
void di_service_close(struct di_loop *loop);
/* the engine thread's side */
bool di_service_collect(struct di_loop *loop, bool wait); /* takes the inbox; false: asked to stop */
void di_service_finished(struct di_loop *loop, struct di_call *call);
void di_service_show(struct di_loop *loop);

#endif
