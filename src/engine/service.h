/* engine/service.h - the engine as other threads see it: submit, abort, statistics. Private to engine/ and api/. Any thread. */
#ifndef DI_ENGINE_SERVICE_H
#define DI_ENGINE_SERVICE_H

#include "engine/call.h"
#include "engine/mailbox.h"

struct di_loop;

/* Takes the call over; on failure it stays the caller's (di_call_free). */
di_status di_service_submit(struct di_loop *loop, struct di_call *call, uint64_t *ticket, struct di_error *err);
/* By id, or with id NULL by ticket. */
di_status di_service_abort(struct di_loop *loop, const char *id, uint64_t ticket, struct di_error *err);
struct di_mailbox *di_service_mailbox(struct di_loop *loop);
/* DI_OK, or why nothing can come any more. */
di_status di_service_health(struct di_loop *loop, struct di_error *err);
void di_service_stats(struct di_loop *loop, struct di_engine_stats *stats);

/* For whoever wants the device for himself: waits until the engine thread has nothing queued, and lets nothing in until
 * di_service_wake. DI_ERR_INVALID if requests are unfinished. */
di_status di_service_rest(struct di_loop *loop, struct di_error *err);
void di_service_wake(struct di_loop *loop);

#endif
