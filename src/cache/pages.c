#include "cache/pages.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

struct di_pages {
    int32_t total, n_free;
    int32_t *refs; /* [total] */
    int32_t *free; /* stack, n_free of them */
};

di_status di_pages_open(int32_t n, struct di_pages **out, struct di_error *err)
{
    *out = NULL;
    struct di_pages *p = di_calloc(1, sizeof *p);
    if (p == NULL)
        return DI_FAIL_NOMEM(err, sizeof *p);
    p->refs = di_calloc((size_t)n, sizeof *p->refs);
    p->free = di_calloc((size_t)n, sizeof *p->free);
    if (p->refs == NULL || p->free == NULL) {
        di_pages_close(p);
        return DI_FAIL_NOMEM(err, (size_t)n * sizeof *p->free);
    }
    p->total = n;
    while (p->n_free < n) { /* popped from the end: page 0 first */
        p->free[p->n_free] = n - 1 - p->n_free;
        p->n_free++;
    }
    *out = p;
    return DI_OK;
}

void di_pages_close(struct di_pages *p)
{
    if (p == NULL)
        return;
    free(p->refs);
    free(p->free);
    free(p);
}

int32_t di_pages_take(struct di_pages *p)
{
    if (p->n_free == 0)
        return -1;
    int32_t id = p->free[--p->n_free];
    p->refs[id] = 1;
    return id;
}

void di_pages_hold(struct di_pages *p, int32_t id)
{
    p->refs[id]++;
}

void di_pages_drop(struct di_pages *p, int32_t id)
{
    if (--p->refs[id] == 0)
        p->free[p->n_free++] = id;
}

int32_t di_pages_refs(const struct di_pages *p, int32_t id)
{
    return p->refs[id];
}

int32_t di_pages_free_count(const struct di_pages *p)
{
    return p->n_free;
}

int32_t di_pages_total(const struct di_pages *p)
{
    return p->total;
}

bool di_pages_audit(const struct di_pages *p, char *why, size_t why_size)
{
    int32_t unused = 0;
    for (int32_t id = 0; id < p->total; id++) {
        if (p->refs[id] < 0) {
            snprintf(why, why_size, "page %d has %d references", id, p->refs[id]);
            return false;
        }
        unused += p->refs[id] == 0;
    }
    if (unused != p->n_free) {
        snprintf(why, why_size, "%d pages have no reference, but the free list has %d", unused, p->n_free);
        return false;
    }
    bool *seen = di_calloc((size_t)p->total, sizeof *seen);
    bool sound = seen != NULL;
    if (!sound)
        snprintf(why, why_size, "no memory for the audit");
    for (int32_t i = 0; sound && i < p->n_free; i++) {
        int32_t id = p->free[i];
        sound = id >= 0 && id < p->total && p->refs[id] == 0 && !seen[id];
        if (sound)
            seen[id] = true;
        else
            snprintf(why, why_size, "place %d of the free list has page %d, which is in use or there twice", i, id);
    }
    free(seen);
    return sound;
}
