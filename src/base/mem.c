#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BLOCK = 64 * 1024, ARENA_ALIGN = 64 };

struct di_arena_block {
    struct di_arena_block *next;
    size_t used, size; /* of data[] */
    size_t pad;
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

/* Fault injection, set by tests only; counted with atomics because any thread allocates. */
static _Atomic uint64_t fail_countdown;
static _Atomic uint64_t allocations;

static bool injected_failure(void)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
        return false;
    return atomic_fetch_sub_explicit(&fail_countdown, 1, memory_order_relaxed) == 1;
}

uint64_t di_mem_fail_after(uint64_t n)
{
    uint64_t made = allocations;
    allocations = 0;
    fail_countdown = n;
    return made;
}

bool di_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool di_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool di_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool di_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

void *di_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (injected_failure() || !di_mul_size(count, size, &bytes))
        return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *di_realloc_array(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (injected_failure() || !di_mul_size(count, size, &bytes))
        return NULL;
    return realloc(old, bytes ? bytes : 1);
}

char *di_strndup(const char *text, size_t len)
{
    size_t bytes;
    if (!di_add_size(len, 1, &bytes))
        return NULL;
    char *copy = di_calloc(bytes, 1);
    if (copy != NULL && len != 0)
        memcpy(copy, text, len);
    return copy;
}

void *di_aligned_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (injected_failure() || !di_mul_size(count, size, &bytes) || bytes > SIZE_MAX - ARENA_ALIGN)
        return NULL;
    bytes = (bytes + ARENA_ALIGN) & ~(size_t)(ARENA_ALIGN - 1);
    void *memory = aligned_alloc(ARENA_ALIGN, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

void *di_arena_alloc(struct di_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!di_mul_size(count, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    size_t align = bytes >= ARENA_ALIGN ? ARENA_ALIGN : 16;
    struct di_arena_block *block = arena->head;
    size_t at = block != NULL ? (block->used + align - 1) & ~(align - 1) : 0;
    if (block == NULL || at > block->size || bytes > block->size - at) {
        size_t room = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;
        block = di_aligned_calloc(1, sizeof *block + room);
        if (block == NULL)
            return NULL;
        block->size = room;
        block->next = arena->head;
        arena->head = block;
        at = 0;
    }
    block->used = at + bytes;
    arena->bytes += bytes;
    return block->data + at;
}

char *di_arena_strndup(struct di_arena *arena, const char *text, size_t len)
{
    char *copy = di_arena_alloc(arena, len + 1, 1);
    if (copy != NULL && len != 0)
        memcpy(copy, text, len);
    return copy;
}

void di_arena_free(struct di_arena *arena)
{
    struct di_arena_block *block = arena->head;
    while (block != NULL) {
        struct di_arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena->head = NULL;
    arena->bytes = 0;
}
