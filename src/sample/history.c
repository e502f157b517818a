#include "sample/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The entry of a token, made with count 0 where it is new. */
static int32_t entry_of(struct di_history *h, int32_t token)
{
    uint32_t mask = 2 * (uint32_t)h->capacity - 1, at = (uint32_t)token * 0x9E3779B9U;
    for (at = (at ^ at >> 15) & mask; h->table[at] >= 0; at = (at + 1) & mask)
        if (h->token[h->table[at]] == token)
            return h->table[at];
    h->table[at] = h->n;
    h->token[h->n] = token;
    h->count[h->n] = 0;
    return h->n++;
}

di_status di_history_open(const int32_t *prompt, int64_t n_prompt, int64_t room, struct di_history *out,
                          struct di_error *err)
{
    *out = (struct di_history){.capacity = 16};
    while (out->capacity < n_prompt + room)
        out->capacity *= 2;
    size_t n = (size_t)out->capacity;
    out->token = di_calloc(n, sizeof *out->token);
    out->count = di_calloc(n, sizeof *out->count);
    out->table = di_calloc(2 * n, sizeof *out->table);
    if (out->token == NULL || out->count == NULL || out->table == NULL) {
        di_history_close(out);
        return DI_FAIL_NOMEM(err, 4 * n * sizeof *out->token);
    }
    memset(out->table, 0xff, 2 * n * sizeof *out->table);
    for (int64_t i = 0; i < n_prompt; i++)
        (void)entry_of(out, prompt[i]);
    return DI_OK;
}

void di_history_add(struct di_history *h, int32_t token)
{
    h->count[entry_of(h, token)]++;
}

void di_history_close(struct di_history *h)
{
    free(h->token);
    free(h->count);
    free(h->table);
    *h = (struct di_history){0};
}
