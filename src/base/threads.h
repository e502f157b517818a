/* base/threads.h - a team of worker threads for loops whose iterations are independent.
 *
 * The caller is member 0. di_team_run() returns when every index is done. Which member runs which index is fixed by the
 * index alone only up to a contiguous split, so results must not depend on it. One loop at a time per team.
 */
#ifndef DI_BASE_THREADS_H
#define DI_BASE_THREADS_H

#include <stdint.h>

#include "base/error.h"

struct di_team;

/* n_threads members including the caller; 0 means one per processor of cpu_list. cpu_list: "0-3,8", or NULL or "all" for the
 * processors that this process may use. A list pins member i to its i-th processor, and must have one for each; "all" pins only
 * where members are as many as processors, because two such teams would otherwise share some and leave others idle. */
di_status di_team_open(int32_t n_threads, const char *cpu_list, struct di_team **out, struct di_error *err);
void di_team_close(struct di_team *team);
/* Pins the calling thread as member 0, by the same rule. The caller is otherwise left where it is. */
void di_team_pin_caller(const struct di_team *team);
int32_t di_team_size(const struct di_team *team);

/* Calls fn(arg, begin, end, member) on disjoint ranges that cover [0, count). */
typedef void (*di_range_fn)(void *arg, int64_t begin, int64_t end, int32_t member);
void di_team_run(struct di_team *team, int64_t count, di_range_fn fn, void *arg);

#endif
