/* engine/session.h - one sequence on one engine: feed ids, get logits or drawn tokens. Private to engine/ and api/.
 *
 * A session owns its caches and its step buffers. Rows of one feed are one step: the caller cuts prompts into pieces.
 */
#ifndef DI_ENGINE_SESSION_H
#define DI_ENGINE_SESSION_H

#include "engine/engine.h"
#include "model/forward.h"

struct di_session;

struct di_session_options {
    int32_t max_rows, max_logit_rows;
    int64_t max_length;
    bool observe; /* also make what only observers read */
};

di_status di_session_open(struct di_engine *engine, const struct di_session_options *options, struct di_session **out,
                          struct di_error *err);
void di_session_close(struct di_session *session);

/* Forgets the sequence; its pages return to the pool. */
void di_session_reset(struct di_session *session);

/* Tokens fed so far. */
int64_t di_session_length(const struct di_session *session);

enum di_logits { DI_LOGITS_NONE, DI_LOGITS_LAST, DI_LOGITS_ALL };

struct di_feed {
    const int32_t *ids; /* checked by the caller to lie in the vocabulary */
    int32_t n;          /* 1 .. max_rows */
    enum di_logits logits;
    float temperature; /* of the draw from each logits row */
    uint64_t seed;
    const struct di_forward_hooks *hooks; /* or NULL */
};

/* Runs one step behind the tokens fed so far. */
di_status di_session_feed(struct di_session *session, const struct di_feed *feed, struct di_error *err);

/* After a feed with DI_LOGITS_LAST: the drawn token. Logits that are NaN are an error. */
di_status di_session_token(struct di_session *session, int32_t *token, struct di_error *err);
/* Copies row `row` of the last feed's logits: [vocab]. */
di_status di_session_logits(struct di_session *session, int32_t row, float *out, struct di_error *err);

const struct di_model *di_session_model(const struct di_session *session);
const struct di_kv_store *di_session_store(const struct di_session *session);

#endif
