/* Aho and Corasick, "Efficient string matching: an aid to bibliographic search" (1975). */
#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { ROOT = 0, NONE = -1 };

/* A beginning of one string or several: the first `depth` bytes of string `text`. */
struct node {
    int32_t child, sibling; /* longer by a byte; the next child of the parent */
    int32_t fail;           /* the longest proper end of this text that is a node */
    int32_t depth;
    int32_t text;
    int32_t found; /* the longest string that this text ends with */
    unsigned char byte;
};

struct string {
    const char *text;
    size_t len;
};

struct di_stop_set {
    bool include;
    struct string *strings;
    struct node *nodes;
    int32_t n_nodes;
    struct di_arena arena;
};

static int32_t find_child(const struct node *nodes, int32_t node, unsigned char byte)
{
    int32_t child = nodes[node].child;
    while (child != NONE && nodes[child].byte != byte)
        child = nodes[child].sibling;
    return child;
}

/* Where the text of `node`, and one byte more, leads. */
static int32_t step(const struct node *nodes, int32_t node, unsigned char byte)
{
    int32_t next = find_child(nodes, node, byte);
    while (next == NONE && node != ROOT) {
        node = nodes[node].fail;
        next = find_child(nodes, node, byte);
    }
    return next == NONE ? ROOT : next;
}

static void insert(struct di_stop_set *set, int32_t index)
{
    const struct string *string = &set->strings[index];
    int32_t at = ROOT;
    for (size_t i = 0; i < string->len; i++) {
        unsigned char byte = (unsigned char)string->text[i];
        int32_t next = find_child(set->nodes, at, byte);
        if (next == NONE) {
            next = set->n_nodes++;
            set->nodes[next] = (struct node){
                .child = NONE,
                .sibling = set->nodes[at].child,
                .depth = (int32_t)i + 1,
                .text = index,
                .found = NONE,
                .byte = byte,
            };
            set->nodes[at].child = next;
        }
        at = next;
    }
    if (set->nodes[at].found == NONE)
        set->nodes[at].found = index;
}

/* Fails and inherited finds, nodes by ascending depth. queue: [n_nodes] */
static void link_fails(struct node *nodes, int32_t *queue)
{
    int32_t head = 0, tail = 0;
    queue[tail++] = ROOT;
    while (head < tail) {
        int32_t parent = queue[head++];
        for (int32_t at = nodes[parent].child; at != NONE; at = nodes[at].sibling) {
            nodes[at].fail = parent == ROOT ? ROOT : step(nodes, nodes[parent].fail, nodes[at].byte);
            if (nodes[at].found == NONE)
                nodes[at].found = nodes[nodes[at].fail].found;
            queue[tail++] = at;
        }
    }
}

static di_status copy_strings(struct di_stop_set *set, const char *const *strings, size_t n, size_t *bytes,
                              struct di_error *err)
{
    *bytes = 0;
    set->strings = di_arena_alloc(&set->arena, n, sizeof *set->strings);
    if (set->strings == NULL)
        return DI_FAIL_NOMEM(err, n * sizeof *set->strings);
    for (size_t i = 0; i < n; i++) {
        struct string *string = &set->strings[i];
        string->len = strlen(strings[i]);
        if (string->len == 0)
            return DI_FAIL(err, DI_ERR_INVALID, "stop[%zu] is an empty string", i);
        if (!di_add_size(*bytes, string->len, bytes) || *bytes >= INT32_MAX)
            return DI_FAIL(err, DI_ERR_LIMIT, "stop strings of more than %d bytes", INT32_MAX);
        string->text = di_arena_strndup(&set->arena, strings[i], string->len);
        if (string->text == NULL)
            return DI_FAIL_NOMEM(err, string->len + 1);
    }
    return DI_OK;
}

static di_status build(struct di_stop_set *set, const char *const *strings, size_t n, struct di_error *err)
{
    size_t bytes;
    DI_TRY(copy_strings(set, strings, n, &bytes, err));
    set->nodes = di_arena_alloc(&set->arena, bytes + 1, sizeof *set->nodes);
    int32_t *queue = di_calloc(bytes + 1, sizeof *queue);
    if (set->nodes == NULL || queue == NULL) {
        free(queue);
        return DI_FAIL_NOMEM(err, (bytes + 1) * sizeof *set->nodes);
    }
    set->nodes[ROOT] = (struct node){.child = NONE, .sibling = NONE, .found = NONE};
    set->n_nodes = 1;
    for (size_t i = 0; i < n; i++)
        insert(set, (int32_t)i);
    link_fails(set->nodes, queue);
    free(queue);
    return DI_OK;
}

di_status di_stop_set_open(const char *const *strings, size_t n, bool include, struct di_stop_set **out,
                           struct di_error *err)
{
    *out = NULL;
    struct di_stop_set *set = di_calloc(1, sizeof *set);
    if (set == NULL)
        return DI_FAIL_NOMEM(err, sizeof *set);
    set->include = include;
    di_status status = build(set, strings, n, err);
    if (status != DI_OK) {
        di_stop_set_close(set);
        return status;
    }
    *out = set;
    return DI_OK;
}

void di_stop_set_close(struct di_stop_set *set)
{
    if (set == NULL)
        return;
    di_arena_free(&set->arena);
    free(set);
}

static const char *withheld(const struct di_stop_set *set, int32_t node)
{
    return node == ROOT ? "" : set->strings[set->nodes[node].text].text;
}

struct di_stop_text di_stop_feed(const struct di_stop_set *set, struct di_stop *stream, const char *piece, size_t len)
{
    struct di_stop_text out = {.held = withheld(set, stream->node), .found = NONE};
    if (stream->ended)
        return out;
    size_t held = (size_t)set->nodes[stream->node].depth, read = 0, kept;
    int32_t node = stream->node;
    while (read < len && out.found == NONE) {
        node = step(set->nodes, node, (unsigned char)piece[read++]);
        out.found = set->nodes[node].found;
    }
    if (out.found == NONE)
        kept = (size_t)set->nodes[node].depth;
    else
        kept = set->include ? 0 : set->strings[out.found].len;
    size_t shown = held + read - kept; /* of what was withheld and what was read */
    out.n_held = shown < held ? shown : held;
    out.n_piece = shown - out.n_held;
    stream->ended = out.found != NONE;
    stream->node = stream->ended ? ROOT : node;
    return out;
}

struct di_stop_text di_stop_finish(const struct di_stop_set *set, struct di_stop *stream)
{
    struct di_stop_text out = {
        .held = withheld(set, stream->node),
        .n_held = (size_t)set->nodes[stream->node].depth,
        .found = NONE,
    };
    *stream = (struct di_stop){.node = ROOT};
    return out;
}
