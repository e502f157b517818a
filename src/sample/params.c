#include "sample/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* A list that grows. */
struct list {
    void *items;
    int32_t n, capacity;
};

struct di_draw_builder {
    int32_t max_rows, vocab;
    struct di_draw draw;
    struct di_arena arena;
    /* [max_rows] each */
    float *temperature, *repetition, *frequency, *presence, *top_p, *min_p;
    uint64_t *seed;
    int32_t *position, *top_k, *mask_row, *seen_offset, *bias_offset, *wanted, *scored;
    uint32_t *choice;
    struct list seen_token, seen_count, bias_token, bias, mask;
    bool penalties, filters, masks, reports;
};

static bool reserve(struct list *list, int32_t more, size_t size)
{
    if (list->n + more <= list->capacity)
        return true;
    int32_t capacity = 2 * (list->n + more) + 64;
    void *items = di_realloc_array(list->items, (size_t)capacity, size);
    if (items == NULL)
        return false;
    list->items = items;
    list->capacity = capacity;
    return true;
}

/* Appends n items of 4 bytes; room was reserved. */
static void append(struct list *list, const void *items, int32_t n)
{
    memcpy((char *)list->items + (size_t)list->n * 4, items, (size_t)n * 4);
    list->n += n;
}

di_status di_draw_builder_open(int32_t max_rows, int32_t vocab, struct di_draw_builder **out, struct di_error *err)
{
    *out = NULL;
    struct di_draw_builder *b = di_calloc(1, sizeof *b);
    if (b == NULL)
        return DI_FAIL_NOMEM(err, sizeof *b);
    b->max_rows = max_rows;
    b->vocab = vocab;
    float **floats[] = {&b->temperature, &b->repetition, &b->frequency, &b->presence, &b->top_p, &b->min_p};
    int32_t **ints[] = {&b->position,    &b->top_k,  &b->mask_row, &b->seen_offset,
                        &b->bias_offset, &b->wanted, &b->scored};
    const size_t n = (size_t)max_rows + 1;
    bool ok = true;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        ok = (*floats[i] = di_arena_alloc(&b->arena, n, sizeof(float))) != NULL && ok;
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        ok = (*ints[i] = di_arena_alloc(&b->arena, n, sizeof(int32_t))) != NULL && ok;
    b->choice = di_arena_alloc(&b->arena, n, sizeof *b->choice);
    b->seed = di_arena_alloc(&b->arena, n, sizeof *b->seed);
    if (!ok || b->choice == NULL || b->seed == NULL) {
        di_draw_builder_close(b);
        return DI_FAIL_NOMEM(err, n * 16 * sizeof(float));
    }
    *out = b;
    return DI_OK;
}

void di_draw_builder_close(struct di_draw_builder *b)
{
    if (b == NULL)
        return;
    struct list *lists[] = {&b->seen_token, &b->seen_count, &b->bias_token, &b->bias, &b->mask};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free(lists[i]->items);
    di_arena_free(&b->arena);
    free(b);
}

void di_draw_builder_begin(struct di_draw_builder *b)
{
    b->draw = (struct di_draw){0};
    b->seen_token.n = b->seen_count.n = b->bias_token.n = b->bias.n = b->mask.n = 0;
    b->seen_offset[0] = b->bias_offset[0] = 0;
    b->penalties = b->filters = b->masks = b->reports = false;
}

static bool penalised(const struct di_sampling_params *p)
{
    return p->repetition_penalty != 1.0 || p->frequency_penalty != 0.0 || p->presence_penalty != 0.0;
}

static bool add_history(struct di_draw_builder *b, const struct di_history *h)
{
    if (!reserve(&b->seen_token, h->n, 4) || !reserve(&b->seen_count, h->n, 4))
        return false;
    append(&b->seen_token, h->token, h->n);
    append(&b->seen_count, h->count, h->n);
    return true;
}

static bool forbid(struct di_draw_builder *b, const int32_t *tokens, size_t n)
{
    const float never = -INFINITY;
    if (!reserve(&b->bias_token, (int32_t)n, 4) || !reserve(&b->bias, (int32_t)n, 4))
        return false;
    for (size_t i = 0; i < n; i++) {
        append(&b->bias_token, &tokens[i], 1);
        append(&b->bias, &never, 1);
    }
    return true;
}

static bool add_biases(struct di_draw_builder *b, const struct di_draw_row *row)
{
    const struct di_sampling_params *p = row->params;
    if (!reserve(&b->bias_token, (int32_t)p->n_logit_bias, 4) || !reserve(&b->bias, (int32_t)p->n_logit_bias, 4))
        return false;
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        append(&b->bias_token, &p->logit_bias[i].token, 1);
        append(&b->bias, &p->logit_bias[i].bias, 1);
    }
    return forbid(b, p->bad_token_ids, p->n_bad_token_ids) &&
           (!row->no_end || forbid(b, row->ends, (size_t)row->n_ends));
}

static bool add_mask(struct di_draw_builder *b, const uint32_t *allowed, int32_t i)
{
    int32_t words = (b->vocab + 31) / 32;
    b->mask_row[i] = -1;
    if (allowed == NULL)
        return true;
    if (!reserve(&b->mask, words, 4))
        return false;
    b->mask_row[i] = b->draw.n_masks++;
    append(&b->mask, allowed, words);
    b->masks = true;
    return true;
}

di_status di_draw_builder_add(struct di_draw_builder *b, const struct di_draw_row *row, struct di_error *err)
{
    static const struct di_sampling_params plain = {.temperature = 0.0, .top_p = 1.0, .repetition_penalty = 1.0};
    const struct di_sampling_params *p = row->params != NULL ? row->params : &plain;
    int32_t i = b->draw.n;
    if (i == b->max_rows)
        return DI_FAIL(err, DI_ERR_INTERNAL, "a draw of more than %d rows", b->max_rows);
    b->temperature[i] = (float)p->temperature;
    b->seed[i] = row->seed;
    b->position[i] = row->position;
    b->choice[i] = (uint32_t)row->choice;
    b->repetition[i] = (float)p->repetition_penalty;
    b->frequency[i] = (float)p->frequency_penalty;
    b->presence[i] = (float)p->presence_penalty;
    b->top_k[i] = p->top_k;
    b->top_p[i] = (float)p->top_p;
    b->min_p[i] = (float)p->min_p;
    b->wanted[i] = row->wanted;
    b->scored[i] = row->scored;
    bool history = row->history != NULL && penalised(p);
    b->penalties |= history;
    b->filters |= p->top_k > 0 || p->top_p < 1.0 || p->min_p > 0.0;
    b->reports |= row->wanted >= 0;
    if ((history && !add_history(b, row->history)) || (row->params != NULL && !add_biases(b, row)) ||
        !add_mask(b, row->params != NULL ? row->allowed : NULL, i))
        return DI_FAIL_NOMEM(err, (size_t)b->vocab * sizeof(int32_t));
    if (row->wanted > b->draw.top)
        b->draw.top = row->wanted;
    b->seen_offset[i + 1] = b->seen_token.n;
    b->bias_offset[i + 1] = b->bias_token.n;
    b->draw.n++;
    return DI_OK;
}

const struct di_draw *di_draw_builder_end(struct di_draw_builder *b)
{
    struct di_draw *d = &b->draw;
    d->temperature = b->temperature;
    d->seed = b->seed;
    d->position = b->position;
    d->rules.choice = b->choice;
    if (b->penalties) {
        d->rules.repetition = b->repetition;
        d->rules.frequency = b->frequency;
        d->rules.presence = b->presence;
        d->rules.seen_offset = b->seen_offset;
        d->rules.seen_token = b->seen_token.items;
        d->rules.seen_count = b->seen_count.items;
    }
    if (b->bias_token.n > 0) {
        d->rules.bias_offset = b->bias_offset;
        d->rules.bias_token = b->bias_token.items;
        d->rules.bias = b->bias.items;
    }
    if (b->masks) {
        d->rules.mask = b->mask.items;
        d->rules.mask_row = b->mask_row;
    }
    if (b->filters) {
        d->rules.top_k = b->top_k;
        d->rules.top_p = b->top_p;
        d->rules.min_p = b->min_p;
    }
    if (b->reports) {
        d->wanted = b->wanted;
        d->scored = b->scored;
    }
    return d;
}
