/* The draw from a step's logits: parameters to the device, the operation, results to the host. */
#include "model/model.h"

static di_status grow(struct di_model *m, struct di_growing *g, size_t bytes, struct di_error *err)
{
    if (bytes <= g->bytes)
        return DI_OK;
    size_t wanted = bytes + bytes / 2;
    m->ops->release(m->dev, g->memory);
    *g = (struct di_growing){0};
    DI_TRY(m->ops->alloc(m->dev, wanted, &g->memory, err));
    g->bytes = wanted;
    return DI_OK;
}

void di_draw_close(struct di_model *m)
{
    struct di_growing *all[] = {&m->seen_token, &m->seen_count, &m->bias_token, &m->bias, &m->mask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        m->ops->release(m->dev, all[i]->memory);
        *all[i] = (struct di_growing){0};
    }
}

/* `values` of [n] to `to`; NULL stays NULL. */
static di_status send(struct di_model *m, void *to, const void *values, int32_t n, const void **out,
                      struct di_error *err)
{
    *out = values != NULL ? to : NULL;
    return values == NULL ? DI_OK : m->ops->upload(m->dev, to, values, (size_t)n * 4, err);
}

static di_status send_list(struct di_model *m, struct di_growing *to, const void *values, size_t bytes,
                           const void **out, struct di_error *err)
{
    DI_TRY(grow(m, to, bytes, err));
    *out = to->memory;
    return bytes == 0 ? DI_OK : m->ops->upload(m->dev, to->memory, values, bytes, err);
}

/* A field of the rules or the report `r`, of the same name in the buffers. */
#define SEND(field, values, count)                                  \
    do {                                                            \
        DI_TRY(send(m, m->b.field, (values), (count), &sent, err)); \
        r->field = sent;                                            \
    } while (0)

static di_status send_rules(struct di_model *m, const struct di_draw *d, struct di_sample_rules *r,
                            struct di_error *err)
{
    const struct di_sample_rules *h = &d->rules;
    const void *sent;
    SEND(repetition, h->repetition, d->n);
    SEND(frequency, h->frequency, d->n);
    SEND(presence, h->presence, d->n);
    SEND(top_k, h->top_k, d->n);
    SEND(top_p, h->top_p, d->n);
    SEND(min_p, h->min_p, d->n);
    SEND(choice, h->choice, d->n);
    SEND(mask_row, h->mask_row, d->n);
    SEND(seen_offset, h->seen_offset, d->n + 1);
    SEND(bias_offset, h->bias_offset, d->n + 1);
    if (h->seen_offset != NULL) {
        size_t bytes = (size_t)h->seen_offset[d->n] * sizeof(int32_t);
        DI_TRY(send_list(m, &m->seen_token, h->seen_token, bytes, &sent, err));
        r->seen_token = sent;
        DI_TRY(send_list(m, &m->seen_count, h->seen_count, bytes, &sent, err));
        r->seen_count = sent;
    }
    if (h->bias_offset != NULL) {
        size_t bytes = (size_t)h->bias_offset[d->n] * sizeof(int32_t);
        DI_TRY(send_list(m, &m->bias_token, h->bias_token, bytes, &sent, err));
        r->bias_token = sent;
        DI_TRY(send_list(m, &m->bias, h->bias, bytes, &sent, err));
        r->bias = sent;
    }
    if (h->mask != NULL) {
        size_t words = ((size_t)m->config->vocab_size + 31) / 32;
        DI_TRY(send_list(m, &m->mask, h->mask, (size_t)d->n_masks * words * sizeof(uint32_t), &sent, err));
        r->mask = sent;
    }
    return DI_OK;
}

static di_status send_report(struct di_model *m, const struct di_draw *d, struct di_sample_report *r,
                             struct di_error *err)
{
    const void *sent;
    SEND(wanted, d->wanted, d->n);
    SEND(scored, d->scored, d->n);
    r->top = d->top;
    r->logprob = m->b.logprob;
    r->rank = m->b.rank;
    r->top_token = m->b.top_token;
    r->top_logprob = m->b.top_logprob;
    return DI_OK;
}

di_status di_model_draw(struct di_model *m, const struct di_draw *d, struct di_error *err)
{
    const struct di_buffers *b = &m->b;
    int32_t identity[256];
    struct di_sample_args a = {
        .n = d->n,
        .vocab = m->config->vocab_size,
        .logits = b->logits,
        .temperature = b->temperature,
        .seed = b->seed,
        .row = b->draw_row,
        .position = b->draw_position,
        .token = b->token,
    };
    if (d->n > m->sizes.max_logit_rows)
        return DI_FAIL(err, DI_ERR_INTERNAL, "a draw of %d rows; the model was opened for %d", d->n,
                       m->sizes.max_logit_rows);
    for (int32_t at = 0; at < d->n; at += 256) {
        int32_t n = d->n - at < 256 ? d->n - at : 256;
        for (int32_t i = 0; i < n; i++)
            identity[i] = at + i;
        DI_TRY(m->ops->upload(m->dev, b->draw_row + at, identity, (size_t)n * sizeof *identity, err));
    }
    DI_TRY(m->ops->upload(m->dev, b->temperature, d->temperature, (size_t)d->n * sizeof *d->temperature, err));
    DI_TRY(m->ops->upload(m->dev, b->seed, d->seed, (size_t)d->n * sizeof *d->seed, err));
    DI_TRY(m->ops->upload(m->dev, b->draw_position, d->position, (size_t)d->n * sizeof *d->position, err));
    DI_TRY(send_rules(m, d, &a.rules, err));
    if (d->wanted != NULL)
        DI_TRY(send_report(m, d, &a.report, err));
    m->ops->sample(m->dev, &a);
    return DI_OK;
}

void di_model_fetch(struct di_model *m, const struct di_draw *d, const struct di_drawn *out)
{
    const struct di_buffers *b = &m->b;
    const size_t bytes = (size_t)d->n * sizeof(int32_t), top = bytes * (size_t)d->top;
    m->ops->copy(m->dev, out->token, b->token, bytes);
    if (d->wanted == NULL)
        return;
    m->ops->copy(m->dev, out->logprob, b->logprob, bytes);
    m->ops->copy(m->dev, out->rank, b->rank, bytes);
    if (top > 0) {
        m->ops->copy(m->dev, out->top_token, b->top_token, top);
        m->ops->copy(m->dev, out->top_logprob, b->top_logprob, top);
    }
}
