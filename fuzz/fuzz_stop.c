/* Stop strings and a text in pieces, against the obvious search. Input: a byte that holds how many strings and whether the text
 * ends behind them, the zero-terminated strings, a byte that cuts the pieces, the text. */
#include <stdlib.h>
#include <string.h>

#include "text/stop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_STRINGS = 7, MAX_STRING = 100, MAX_TEXT = 512 };

struct input {
    char storage[MAX_STRINGS][MAX_STRING + 1];
    const char *strings[MAX_STRINGS];
    size_t n;
    bool include, empty_string;
    uint32_t cut;
    char text[MAX_TEXT];
    size_t len;
};

static void read_input(const uint8_t *data, size_t size, struct input *in)
{
    size_t at = 0;
    uint8_t head = at < size ? data[at++] : 0;
    in->include = (head & 1) != 0;
    in->n = head >> 1 & 7;
    in->empty_string = false;
    for (size_t i = 0; i < in->n; i++) {
        size_t len = 0;
        for (; at < size && data[at] != 0; at++)
            if (len < MAX_STRING)
                in->storage[i][len++] = (char)data[at];
        at += at < size;
        in->storage[i][len] = '\0';
        in->strings[i] = in->storage[i];
        in->empty_string = in->empty_string || len == 0;
    }
    in->cut = at < size ? data[at++] : 0;
    in->len = size - at < MAX_TEXT ? size - at : MAX_TEXT;
    if (in->len > 0)
        memcpy(in->text, data + at, in->len);
}

/* The longest string that the first `len` bytes end with, of equal ones the first; -1: none. */
static int32_t ends_with(const struct input *in, size_t len)
{
    int32_t best = -1;
    for (size_t i = 0; i < in->n; i++) {
        size_t size = strlen(in->strings[i]);
        if (size <= len && memcmp(in->text + len - size, in->strings[i], size) == 0 &&
            (best < 0 || size > strlen(in->strings[best])))
            best = (int32_t)i;
    }
    return best;
}

/* How much of the end of the first `len` bytes might become a string. */
static size_t pending(const struct input *in, size_t len)
{
    for (size_t size = len < MAX_STRING ? len : MAX_STRING; size > 0; size--)
        for (size_t i = 0; i < in->n; i++)
            if (size < strlen(in->strings[i]) && memcmp(in->text + len - size, in->strings[i], size) == 0)
                return size;
    return 0;
}

static void check(bool right)
{
    if (!right)
        abort();
}

/* What was shown so far must be the beginning of the text, `wanted` bytes long. */
static void take(const struct input *in, const struct di_stop_text *out, const char *piece, size_t *shown,
                 size_t wanted)
{
    check(*shown + out->n_held + out->n_piece == wanted && wanted <= in->len);
    check(memcmp(in->text + *shown, out->held, out->n_held) == 0);
    check(out->n_piece == 0 || piece == in->text + *shown + out->n_held);
    *shown = wanted;
}

static void stream_text(struct input *in, const struct di_stop_set *set)
{
    struct di_stop stream = {0};
    size_t fed = 0, shown = 0;
    int32_t found = -1;
    while (fed < in->len && found < 0) {
        in->cut = in->cut * 1664525U + 1013904223U;
        size_t size = in->cut >> 28, end = fed;
        size = size < in->len - fed ? size : in->len - fed;
        for (; end < fed + size && found < 0; end++)
            found = ends_with(in, end + 1);
        struct di_stop_text out = di_stop_feed(set, &stream, in->text + fed, size);
        size_t kept = found < 0 ? pending(in, end) : in->include ? 0 : strlen(in->strings[found]);
        check(out.found == found);
        take(in, &out, in->text + fed, &shown, end - kept);
        fed += size;
    }
    struct di_stop_text out = di_stop_finish(set, &stream);
    take(in, &out, in->text, &shown, found < 0 ? in->len : shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct input in;
    struct di_error err = {0};
    struct di_stop_set *set;
    read_input(data, size, &in);
    di_status status = di_stop_set_open(in.strings, in.n, in.include, &set, &err);
    check((status == DI_OK) == !in.empty_string);
    if (status != DI_OK)
        return 0;
    stream_text(&in, set);
    di_stop_set_close(set);
    return 0;
}
