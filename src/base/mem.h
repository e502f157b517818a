/* base/mem.h - checked allocation and arithmetic, and the arena.
 *
 * Every allocation can fail and says so. Sizes that come from files or users go through di_mul_size/di_add_size, so that
 * no product wraps. An arena holds objects of one lifetime (a model, a request, a step) and is freed whole.
 */
#ifndef DI_BASE_MEM_H
#define DI_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* *out = a * b (or a + b); false on overflow, *out is then unspecified. */
bool di_mul_size(size_t a, size_t b, size_t *out);
bool di_add_size(size_t a, size_t b, size_t *out);
bool di_mul_u64(uint64_t a, uint64_t b, uint64_t *out);
bool di_add_u64(uint64_t a, uint64_t b, uint64_t *out);

/* Zeroed memory for `count` elements of `size` bytes, or NULL (also on overflow). count 0 gives a unique pointer.
 * Free with free(). */
void *di_calloc(size_t count, size_t size);
/* Like realloc for an array; NULL leaves the old block valid. New bytes are not zeroed. */
void *di_realloc_array(void *old, size_t count, size_t size);
/* Copies `len` bytes and adds a terminating zero. */
char *di_strndup(const char *text, size_t len);

/* Bump allocator. Zero-initialise, use, di_arena_free(). Memory is zeroed and aligned to 64 bytes for blocks of 64 bytes
 * or more, to 16 otherwise. Not thread-safe. */
struct di_arena {
    struct di_arena_block *head;
    size_t bytes; /* handed out so far, for statistics */
};

void *di_arena_alloc(struct di_arena *arena, size_t count, size_t size);
char *di_arena_strndup(struct di_arena *arena, const char *text, size_t len);
void di_arena_free(struct di_arena *arena);

/* Memory aligned to 64 bytes, zeroed; free with free(). */
void *di_aligned_calloc(size_t count, size_t size);

/* Test hook: the n-th allocation from now through the functions above fails (1 = the next); 0 switches it off.
 * Returns how many allocations were made since the hook was last set. Not thread-safe; tests only. */
uint64_t di_mem_fail_after(uint64_t n);

#endif
