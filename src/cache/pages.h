/* cache/pages.h - who still needs a page: a pool of page ids with reference counts. Numbers only; the bytes lie elsewhere.
 *
 *     di_pages_open     n pages, all of them free
 *     di_pages_take     a free page, with one reference
 *     di_pages_hold     one more holder: another sequence, the prefix tree
 *     di_pages_drop     a holder less; without any the page is free again
 *     di_pages_close
 *
 * Every call but open, close and audit takes constant time. Which page is taken follows from the calls alone: the one that became
 * free last, and of a new pool page 0 first. One thread.
 */
#ifndef DI_CACHE_PAGES_H
#define DI_CACHE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct di_pages;

/* *out is the caller's to close; NULL on failure. */
di_status di_pages_open(int32_t n, struct di_pages **out, struct di_error *err);
void di_pages_close(struct di_pages *pages); /* NULL is allowed */

/* -1 where none is free. */
int32_t di_pages_take(struct di_pages *pages);
/* Both are for a page that has a reference: a free one may already be somebody else's. */
void di_pages_hold(struct di_pages *pages, int32_t id);
void di_pages_drop(struct di_pages *pages, int32_t id);

int32_t di_pages_refs(const struct di_pages *pages, int32_t id); /* 0: free */
int32_t di_pages_free_count(const struct di_pages *pages);
int32_t di_pages_total(const struct di_pages *pages);

/* Recounts the free list; false with a sentence in `why` if something is wrong. For tests. */
bool di_pages_audit(const struct di_pages *pages, char *why, size_t why_size);

#endif
