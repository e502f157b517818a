/* tokenizer_driver TOKENIZER_JSON: one command a line on standard input, one answer a line on standard output.
 *
 *   E 0|1 HEX      encode the bytes, special tokens parsed or not        -> ids, or "! message"
 *   D 0|1 IDS      stream the ids, special tokens skipped or not         -> pieces in hex, one per id and the end's,
 *                                                                           separated by |
 *   P HEX          cut the bytes by the file's patterns                  -> lengths of the pieces in bytes
 *   M VOCAB        compressed token map                                  -> count, then the ids
 *   T 0|1 N HEX    encode the bytes repeated N times                     -> number of ids and seconds of the fastest of 3
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "text/token_map.h"
#include "text/tokenizer_json.h"

static size_t unhex(const char *hex, char *out)
{
    size_t n = 0;
    for (; isxdigit((unsigned char)hex[2 * n]); n++) {
        char pair[3] = {hex[2 * n], hex[2 * n + 1], 0};
        out[n] = (char)strtol(pair, NULL, 16);
    }
    return n;
}

static void encode(const di_tokenizer *tok, const char *line)
{
    struct di_error err = {0};
    di_token_list ids = {0};
    char *text = malloc(strlen(line) + 1);
    size_t len = unhex(line + 4, text);
    if (di_tokenizer_encode(tok, text, len, line[2] == '1', &ids, &err) != DI_OK)
        printf("! %s", err.message);
    for (size_t i = 0; i < ids.count; i++)
        printf("%d ", ids.ids[i]);
    printf("\n");
    di_token_list_free(&ids);
    free(text);
}

static di_status print_length(void *user, const char *piece, size_t len, struct di_error *err)
{
    (void)user, (void)piece, (void)err;
    printf("%zu ", len);
    return DI_OK;
}

static void pieces(const di_tokenizer *tok, const char *line)
{
    struct di_error err = {0};
    struct di_pretokenizer_run *run = NULL;
    char *text = malloc(strlen(line) + 1);
    size_t len = unhex(line + 2, text);
    if (di_pretokenizer_begin(tok->pre, &run, &err) != DI_OK ||
        di_pretokenizer_split(run, text, len, print_length, NULL, &err) != DI_OK)
        printf("! %s", err.message);
    printf("\n");
    di_pretokenizer_end(run);
    free(text);
}

static void print_hex(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        printf("%02x", (unsigned)(unsigned char)text[i]);
}

static void decode(const di_tokenizer *tok, char *line)
{
    struct di_error err = {0};
    di_detokenizer *detok;
    const char *text;
    size_t len;
    if (di_detokenizer_open(tok, line[2] == '1', &detok, &err) != DI_OK)
        return;
    for (char *word = strtok(line + 4, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        if (di_detokenizer_feed(detok, atoi(word), &text, &len, &err) != DI_OK)
            printf("! %s", err.message);
        else
            print_hex(text, len);
        printf("|");
    }
    if (di_detokenizer_finish(detok, &text, &len, &err) == DI_OK)
        print_hex(text, len);
    printf("\n");
    di_detokenizer_close(detok);
}

static void token_map(const di_tokenizer *tok, int32_t vocab)
{
    struct di_error err = {0};
    int32_t count, *map = calloc((size_t)vocab, sizeof *map);
    if (di_token_map_build(tok, vocab, map, &count, &err) != DI_OK) {
        printf("! %s\n", err.message);
    } else {
        printf("%d", count);
        for (int32_t i = 0; i < vocab; i++)
            printf(" %d", map[i]);
        printf("\n");
    }
    free(map);
}

static void timed(const di_tokenizer *tok, const char *line)
{
    struct di_error err = {0};
    int at;
    size_t repeat, n;
    if (sscanf(line + 4, "%zu %n", &repeat, &at) != 1)
        return;
    char *unit = malloc(strlen(line) + 1), *text;
    n = unhex(line + 4 + at, unit);
    text = malloc(n * repeat + 1);
    for (size_t i = 0; i < repeat; i++)
        memcpy(text + i * n, unit, n);
    double best = 1e9;
    size_t count = 0;
    for (int run = 0; run < 3; run++) {
        di_token_list ids = {0};
        double start = di_clock_seconds(), spent;
        if (di_tokenizer_encode(tok, text, n * repeat, line[2] == '1', &ids, &err) != DI_OK)
            printf("! %s ", err.message);
        spent = di_clock_seconds() - start;
        best = spent < best ? spent : best;
        count = ids.count;
        di_token_list_free(&ids);
    }
    printf("%zu %.6f\n", count, best);
    free(unit);
    free(text);
}

int main(int argc, char **argv)
{
    struct di_error err = {0};
    di_tokenizer *tok;
    char *line = NULL;
    size_t capacity = 0;
    if (argc != 2 || di_tokenizer_open(argv[1], &tok, &err) != DI_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    while (getline(&line, &capacity, stdin) > 0) {
        if (line[0] == 'E')
            encode(tok, line);
        else if (line[0] == 'D')
            decode(tok, line);
        else if (line[0] == 'M')
            token_map(tok, atoi(line + 2));
        else if (line[0] == 'P')
            pieces(tok, line);
        else
            timed(tok, line);
        fflush(stdout);
    }
    free(line);
    di_tokenizer_close(tok);
    return 0;
}
