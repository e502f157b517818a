/* apps/progress.h - how far a batch is, on standard error: a line that renews itself on a terminal, lines elsewhere. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include "app.h"

struct app_progress {
    uint64_t done, failed; /* answered in this run */
    uint64_t skipped;      /* answered in an earlier one */
    uint64_t total;        /* lines of the input; 0: not known */
    int running;           /* submitted, not answered */
    bool shown, terminal;
    double started, next; /* seconds */
};

/* Shown on a terminal, or if asked for; a file's lines are counted then. */
void app_progress_open(struct app_progress *progress, bool asked, int input);
/* Now and then; last: now, and the line is finished. */
void app_progress_show(struct app_progress *progress, di_engine *engine, bool last);
/* The line of --stats. */
void app_progress_stats(const struct app_progress *progress, di_engine *engine);

double app_seconds(void); /* monotonic */

#endif
