/* engine/mailbox.h - where the events of requests wait for whoever takes them. Private to engine/ and api/.
 *
 * One side posts, any number of threads take. Event blocks are recycled, so that a running engine does not allocate for each.
 */
#ifndef DI_ENGINE_MAILBOX_H
#define DI_ENGINE_MAILBOX_H

#include "deepinfer/request.h"

#include "base/error.h"

/* A block: the public event and the memory behind its pointers. */
struct di_letter {
    struct di_event event; /* first: di_event_free() gets its address */
    struct di_letter *next;
    char *text; /* grow-only memory of what the event points to */
    size_t text_capacity;
    int32_t *ids;
    size_t ids_capacity;
    struct di_token_logprob *logprobs; /* of the tokens, then of the prompt */
    size_t logprobs_capacity;
    int32_t *top_ids;
    float *top_logprobs;
    size_t top_capacity;
    char *id, *stop_string;
    size_t id_capacity, stop_capacity;
};

struct di_mailbox;

di_status di_mailbox_open(struct di_mailbox **out, struct di_error *err);
void di_mailbox_close(struct di_mailbox *box); /* with all letters */

/* A block to fill, from those that came back if there are any; NULL if memory ran out. */
struct di_letter *di_mailbox_blank(struct di_mailbox *box);
void di_mailbox_post(struct di_mailbox *box, struct di_letter *letter);
/* timeout as in di_next_event; NULL where none came, or the box is closed for good. */
struct di_letter *di_mailbox_take(struct di_mailbox *box, double timeout);
void di_mailbox_return(struct di_mailbox *box, struct di_letter *letter);
/* Nothing more will be posted: takers that find nothing return at once. */
void di_mailbox_end(struct di_mailbox *box);

/* Makes *array hold `count` elements of `size` bytes; false if memory ran out. Contents stay. */
bool di_letter_reserve(void **array, size_t *capacity, size_t count, size_t size);

#endif
