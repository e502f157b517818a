#include "text/trie.h"

/* First child, next sibling: literals are few and short. */
struct node {
    struct node *child, *sibling;
    int32_t value; /* -1: no literal ends here */
    uint8_t byte;
};

struct di_trie {
    struct di_arena *arena;
    struct node *root[256]; /* by first byte, so that text without literals is passed quickly */
};

di_status di_trie_make(struct di_arena *arena, struct di_trie **out, struct di_error *err)
{
    *out = di_arena_alloc(arena, 1, sizeof **out);
    if (*out == NULL)
        return DI_FAIL_NOMEM(err, sizeof **out);
    (*out)->arena = arena;
    return DI_OK;
}

static struct node *find(struct node *list, uint8_t byte)
{
    while (list != NULL && list->byte != byte)
        list = list->sibling;
    return list;
}

di_status di_trie_add(struct di_trie *trie, const char *literal, size_t len, int32_t value, struct di_error *err)
{
    struct node **list = &trie->root[(uint8_t)literal[0]], *node = NULL;
    for (size_t i = 0; i < len; i++) {
        node = find(*list, (uint8_t)literal[i]);
        if (node == NULL) {
            node = di_arena_alloc(trie->arena, 1, sizeof *node);
            if (node == NULL)
                return DI_FAIL_NOMEM(err, sizeof *node);
            *node = (struct node){.sibling = *list, .value = -1, .byte = (uint8_t)literal[i]};
            *list = node;
        }
        list = &node->child;
    }
    if (node != NULL)
        node->value = value;
    return DI_OK;
}

size_t di_trie_longest(const struct di_trie *trie, const char *text, size_t size, int32_t *value)
{
    size_t longest = 0;
    struct node *list = size != 0 ? trie->root[(uint8_t)text[0]] : NULL;
    for (size_t i = 0; i < size && list != NULL; i++) {
        const struct node *node = find(list, (uint8_t)text[i]);
        if (node == NULL)
            break;
        if (node->value >= 0) {
            longest = i + 1;
            *value = node->value;
        }
        list = node->child;
    }
    return longest;
}
