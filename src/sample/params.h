/* sample/params.h - the parameter arrays of a draw, from the sampling parameters of its rows.
 *
 *     di_draw_builder_open     for draws of at most so many rows
 *     di_draw_builder_begin    a new draw
 *     di_draw_builder_add      one row after the other, in the order of the step's logits rows
 *     di_draw_builder_end      the draw, valid until the next begin
 *     di_draw_builder_close
 *
 * Arrays that no row needs stay NULL, so that a batch of plain requests costs no more than it must. The lists grow as requests need it.
 */
#ifndef DI_SAMPLE_PARAMS_H
#define DI_SAMPLE_PARAMS_H

#include "deepinfer/sampling.h"

#include "ops/draw.h"
#include "sample/history.h"

/* What one row is drawn by. Pointers must stay until di_draw_builder_end. */
struct di_draw_row {
    const struct di_sampling_params *params; /* NULL: a row of which only `scored` is wanted */
    uint64_t seed;
    int32_t choice;                   /* which of the request's n */
    int32_t position;                 /* of the row */
    const struct di_history *history; /* NULL: no penalties */
    const uint32_t *allowed;          /* [(vocab + 31) / 32] bits, NULL: every token */
    bool no_end;                      /* min_tokens is not reached: `ends` are forbidden */
    const int32_t *ends;              /* [n_ends] */
    int32_t n_ends;
    int32_t wanted; /* logprobs: how many of the top, -1: none at all */
    int32_t scored; /* the token whose logprob is wanted, -1: the one drawn */
};

struct di_draw_builder;

di_status di_draw_builder_open(int32_t max_rows, int32_t vocab, struct di_draw_builder **out, struct di_error *err);
void di_draw_builder_close(struct di_draw_builder *builder);

void di_draw_builder_begin(struct di_draw_builder *builder);
di_status di_draw_builder_add(struct di_draw_builder *builder, const struct di_draw_row *row, struct di_error *err);
const struct di_draw *di_draw_builder_end(struct di_draw_builder *builder);

#endif
