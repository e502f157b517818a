/* backend/host/sample.h - the parts of sampling that do not draw, for tables with a draw of their own (backend/hash).
 *
 *     di_host_sample_room    lays a row's scratch into memory of di_host_sample_bytes(vocab) (host.h)
 *     di_host_adjust         the logits after penalties, biases and mask
 *     di_host_report         the log-probabilities, once token[i] is known
 */
#ifndef DI_HOST_SAMPLE_H
#define DI_HOST_SAMPLE_H

#include "backend/host/select.h"
#include "ops/ops.h"

struct di_host_room {
    struct di_row row;
    float *values; /* [whole chunks] */
};

/* memory: aligned to 64 bytes. */
struct di_host_room *di_host_sample_room(void *memory, int32_t vocab);

/* Row i's logits after penalties, biases and masks: in room->values, or where they are if the row has none of these. */
const float *di_host_adjust(const struct di_sample_args *a, int64_t i, struct di_host_room *room);

/* Fills the parts of a->report that are asked for of row i. Overwrites room->row. */
void di_host_report(const struct di_sample_args *a, int64_t i, struct di_host_room *room);

#endif
