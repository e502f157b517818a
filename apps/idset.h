/* apps/idset.h - a set of names, as 128-bit hashes: 16 bytes each, however long they are, and a state. */
#ifndef IDSET_H
#define IDSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idset_entry {
    uint64_t a; /* 0: free */
    uint64_t b; /* the lowest bit is the state */
};

/* Zero-initialise. */
struct idset {
    struct idset_entry *entries;
    size_t count, capacity;
};

/* The entry of a name, added with state 0 if it was not there (*added). NULL if memory ran out. Valid until the next call. */
struct idset_entry *idset_add(struct idset *set, const char *name, size_t len, bool *added);
/* NULL if it is not there. */
struct idset_entry *idset_find(const struct idset *set, const char *name, size_t len);
static inline bool idset_state(const struct idset_entry *entry)
{
    return (entry->b & 1) != 0;
}
static inline void idset_mark(struct idset_entry *entry)
{
    entry->b |= 1;
}
void idset_free(struct idset *set);

#endif
