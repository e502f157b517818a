#include "idset.h"

#include <stdlib.h>

/* The mixer of splitmix64. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/* Two chains of mixers that differ in everything: no defence against names that were made to collide. */
static struct idset_entry hash(const char *name, size_t len)
{
    uint64_t a = 0x9e3779b97f4a7c15U ^ len, b = 0xc2b2ae3d27d4eb4fU + len;
    for (size_t i = 0; i < len; i++) {
        a = mix(a ^ (unsigned char)name[i]);
        b = mix(b * 3 + (unsigned char)name[i] + 1);
    }
    return (struct idset_entry){a | 1, b & ~(uint64_t)1};
}

static struct idset_entry *place(const struct idset *set, struct idset_entry key)
{
    size_t at = (size_t)(key.a >> 1) & (set->capacity - 1);
    while (set->entries[at].a != 0 && (set->entries[at].a != key.a || (set->entries[at].b & ~(uint64_t)1) != key.b))
        at = (at + 1) & (set->capacity - 1);
    return &set->entries[at];
}

static bool grow(struct idset *set)
{
    struct idset bigger = {.capacity = set->capacity == 0 ? 1024 : 2 * set->capacity, .count = set->count};
    bigger.entries = calloc(bigger.capacity, sizeof *bigger.entries);
    if (bigger.entries == NULL)
        return false;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->entries[i].a != 0)
            *place(&bigger,
                   (struct idset_entry){set->entries[i].a, set->entries[i].b & ~(uint64_t)1}) = set->entries[i];
    free(set->entries);
    *set = bigger;
    return true;
}

struct idset_entry *idset_add(struct idset *set, const char *name, size_t len, bool *added)
{
    if (set->count >= set->capacity / 4 * 3 && !grow(set))
        return NULL;
    struct idset_entry key = hash(name, len), *entry = place(set, key);
    *added = entry->a == 0;
    if (*added) {
        *entry = key;
        set->count++;
    }
    return entry;
}

struct idset_entry *idset_find(const struct idset *set, const char *name, size_t len)
{
    struct idset_entry *entry = set->count > 0 ? place(set, hash(name, len)) : NULL;
    return entry != NULL && entry->a != 0 ? entry : NULL;
}

void idset_free(struct idset *set)
{
    free(set->entries);
    *set = (struct idset){0};
}
