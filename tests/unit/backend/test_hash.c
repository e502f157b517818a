/* The hash backend under the real forward pass and the real caches: equal where runs must be equal (chunks, batches, steps taken
 * back), and different where anything that a row reads was tampered with; the rules of its selection and of its draw. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/options.h"
#include "deepinfer/deepinfer.h"
#include "engine/engine.h"
#include "model/forward.h"

enum { SLOTS = 5, LENGTH = 720, LOOK = 8, LAYERS = 10, TOPK = 512, BLOCKS = 256 };

/* What a row came to: its streams behind every layer, its logits, its token; and what it selected. */
struct record {
    uint64_t streams[LAYERS + 1]; /* the last one: of the logits */
    int32_t token;
};

struct selection {
    int32_t selected[LAYERS][TOPK], blocks[BLOCKS]; /* of the last row fed, per index source */
};

struct bench {
    struct di_engine *engine;
    const struct di_ops *ops;
    struct di_kv_store *store;
    struct di_model *model;
    int32_t length[SLOTS];
    struct record *records; /* [SLOTS][LENGTH] */
    struct selection *last;
    /* the step that is being run */
    int32_t window[LENGTH * LOOK], position[LENGTH], slot[LENGTH], first[LENGTH], row[LENGTH], token[LENGTH];
    float temperature[LENGTH];
    uint64_t seed[LENGTH];
    struct di_step step;
};

#define TINY DI_SOURCE_DIR "/models/tiny"
#define GOLDEN(name) DI_TEST_DATA "/goldens/" name

static struct record *record_of(struct bench *b, int32_t slot, int32_t position)
{
    return &b->records[slot * LENGTH + position];
}

static struct bench *open_bench(const char *model, const char *threads)
{
    struct di_error err = {0};
    di_options *options = NULL;
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    assert_int_equal(di_options_create(&options, &err), DI_OK);
    assert_int_equal(di_options_set(options, "backend", "hash", &err), DI_OK);
    assert_int_equal(di_options_set(options, "threads", threads, &err), DI_OK);
    assert_int_equal(di_engine_load(model, options, &b->engine, &err), DI_OK);
    di_options_free(options);
    struct di_engine *e = b->engine;
    b->ops = e->ops;
    assert_string_equal(b->ops->name, "hash");
    assert_true(e->config->num_hidden_layers <= LAYERS && e->config->index_topk <= TOPK);
    assert_true(e->config->candidate_topk_blocks <= BLOCKS);
    struct di_model_options options_of_model = {.max_rows = LENGTH,
                                                .max_logit_rows = LENGTH,
                                                .token_map = e->token_map,
                                                .window_format = e->layout.window_format};
    int32_t pages = (LENGTH + DI_PAGE_TOKENS - 1) / DI_PAGE_TOKENS;
    assert_int_equal(di_kv_store_open(e->ops, e->dev, &e->layout, SLOTS, SLOTS * pages, pages, &b->store, &err), DI_OK);
    assert_int_equal(
        di_model_open(e->config, &e->plan, &e->weights, e->ops, e->dev, &options_of_model, &b->model, &err), DI_OK);
    b->records = calloc(SLOTS * LENGTH, sizeof *b->records);
    b->last = calloc(1, sizeof *b->last);
    assert_true(b->records != NULL && b->last != NULL);
    return b;
}

static void close_bench(struct bench *b)
{
    di_model_close(b->model);
    di_kv_store_close(b->store);
    di_engine_close(b->engine);
    free(b->records);
    free(b->last);
    free(b);
}

static void download(struct bench *b, void *to, const void *from, size_t bytes)
{
    struct di_error err = {0};
    assert_int_equal(b->ops->download(b->engine->dev, to, from, bytes, &err), DI_OK);
}

/* FNV-1a over words: a hash of the test's own. */
static uint64_t digest(const void *from, size_t words)
{
    const uint32_t *p = from;
    uint64_t h = 14695981039346656037U;
    for (size_t i = 0; i < words; i++)
        h = (h ^ p[i]) * 1099511628211U;
    return h;
}

static di_status observe(void *user, int32_t layer, enum di_point point, const void *data, int32_t rows, int32_t width,
                         struct di_error *err)
{
    struct bench *b = user;
    (void)err;
    if (point == DI_POINT_SELECTED)
        download(b, b->last->selected[layer], (const int32_t *)data + (int64_t)(rows - 1) * width,
                 (size_t)width * sizeof(int32_t));
    if (point == DI_POINT_CANDIDATES)
        download(b, b->last->blocks, (const int32_t *)data + (int64_t)(rows - 1) * width,
                 (size_t)width * sizeof(int32_t));
    if (point == DI_POINT_STREAMS_OUT)
        for (int64_t i = 0; i < rows; i++)
            download(b, &record_of(b, b->slot[i], b->position[i])->streams[layer], (const float *)data + i * width,
                     sizeof(uint64_t));
    return DI_OK;
}

/* Sequences are told apart by their text. */
static int32_t id_of(const struct bench *b, int32_t text, int32_t position)
{
    return (int32_t)(((uint32_t)text * 7919U + (uint32_t)position * 104729U + 12345U) %
                     (uint32_t)b->engine->config->vocab_size);
}

struct piece {
    int32_t slot, text, n;
};

static void stage(struct bench *b, const struct piece *pieces, int32_t n_pieces)
{
    const struct di_config *c = b->engine->config;
    struct di_error err = {0};
    int32_t n = 0, ngram = c->n_engram_layers > 0 ? c->engram_max_ngram_size : 1;
    assert_true(ngram <= LOOK);
    for (int32_t p = 0; p < n_pieces; p++) {
        int32_t slot = pieces[p].slot, start = n, length = b->length[slot];
        assert_int_equal(di_kv_store_reserve(b->store, slot, length + pieces[p].n, &err), DI_OK);
        for (int32_t j = 0; j < pieces[p].n; j++, n++) {
            b->position[n] = length + j;
            b->slot[n] = slot;
            b->first[n] = start;
            b->row[n] = n;
            b->temperature[n] = 1.0F;
            b->seed[n] = 7;
            for (int32_t back = 0; back < ngram; back++)
                b->window[n * ngram + back] = length + j >= back ? id_of(b, pieces[p].text, length + j - back) : -1;
        }
        b->length[slot] += pieces[p].n;
    }
    b->step = (struct di_step){.n_rows = n,
                               .window = b->window,
                               .position = b->position,
                               .slot = b->slot,
                               .first = b->first,
                               .n_logits = n,
                               .logit_row = b->row,
                               .temperature = b->temperature,
                               .seed = b->seed};
}

/* One step of all the pieces; what the rows came to is recorded. */
static void feed(struct bench *b, const struct piece *pieces, int32_t n_pieces)
{
    struct di_error err = {0};
    struct di_forward_hooks hooks = {.user = b, .observe = observe};
    stage(b, pieces, n_pieces);
    assert_int_equal(di_forward(b->model, b->store, &b->step, &hooks, &err), DI_OK);
    assert_int_equal(b->ops->sync(b->engine->dev, &err), DI_OK);
    size_t vocab = (size_t)b->engine->config->vocab_size;
    float *logits = calloc(vocab, sizeof *logits);
    assert_non_null(logits);
    download(b, b->token, di_model_tokens(b->model), (size_t)b->step.n_rows * sizeof *b->token);
    for (int32_t i = 0; i < b->step.n_rows; i++) {
        struct record *r = record_of(b, b->slot[i], b->position[i]);
        download(b, logits, di_model_logits(b->model) + (size_t)i * vocab, vocab * sizeof *logits);
        r->streams[LAYERS] = digest(logits, vocab);
        r->token = b->token[i];
    }
    free(logits);
}

static void feed_one(struct bench *b, int32_t slot, int32_t text, int32_t n)
{
    feed(b, &(struct piece){slot, text, n}, 1);
}

/* The next row of a sequence that will not stay: what it came to. */
static struct record try_row(struct bench *b, int32_t slot, int32_t text)
{
    feed_one(b, slot, text, 1);
    b->length[slot]--;
    return *record_of(b, slot, b->length[slot]);
}

static void same_records(struct bench *a, int32_t slot_a, struct bench *b, int32_t slot_b, int32_t length)
{
    assert_memory_equal(record_of(a, slot_a, 0), record_of(b, slot_b, 0), (size_t)length * sizeof(struct record));
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Runs that must be equal. */

static void chunks_do_not_matter(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int32_t length, chunks[12];
    } cases[] = {
        {TINY, 720, {1, 2, 12, 63, 64, 127, 128, 129, 139, 140, 141, 257}}, /* window 128, ring 140, page 128 */
        {GOLDEN("micro"), 300, {1, 2, 3, 7, 15, 16, 17, 28, 29, 127, 128, 129}},
        {GOLDEN("odd-a"), 270, {1, 2, 3, 31, 32, 33, 44, 45, 64, 127, 128, 129}},
        {GOLDEN("odd-b"), 270, {1, 2, 3, 4, 5, 6, 16, 17, 18, 127, 128, 129}},
        {GOLDEN("small"), 400, {1, 2, 65, 100, 127, 128, 129, 139, 140, 141, 200, 256}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct bench *whole = open_bench(cases[c].model, "1");
        feed_one(whole, 0, 1, cases[c].length);
        feed_one(whole, 3, 2, cases[c].length);
        assert_int_not_equal(record_of(whole, 0, 5)->streams[0], record_of(whole, 3, 5)->streams[0]);
        for (int i = 0; i < 12; i++) {
            struct bench *other = open_bench(cases[c].model, "2");
            while (other->length[0] < cases[c].length) {
                int32_t left = cases[c].length - other->length[0];
                feed_one(other, 0, 1, left < cases[c].chunks[i] ? left : cases[c].chunks[i]);
            }
            same_records(whole, 0, other, 0, cases[c].length);
            close_bench(other);
        }
        close_bench(whole);
    }
}

/* Two to five sequences in pieces of ever other sizes, in changing order and in other slots. */
static void companions_do_not_matter(void **state)
{
    (void)state;
    static const char *const models[] = {TINY, GOLDEN("micro"), GOLDEN("odd-a"), GOLDEN("odd-b")};
    enum { N = 300 };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct bench *alone = open_bench(models[m], "1");
        for (int32_t s = 0; s < SLOTS; s++)
            feed_one(alone, s, s, N);
        for (int32_t together = 2; together <= SLOTS; together++) {
            struct bench *b = open_bench(models[m], "2");
            int32_t done = 0;
            for (uint32_t turn = 1; done < together * N; turn++) {
                struct piece pieces[SLOTS];
                int32_t n_pieces = 0;
                for (int32_t i = 0; i < together; i++) {
                    int32_t text = ((turn % 2 == 0 ? i : together - 1 - i) + (int32_t)turn) % together;
                    int32_t slot = SLOTS - 1 - text, left = N - b->length[slot];
                    int32_t n = (int32_t)((turn * 2654435761U >> (4 * text)) % (turn % 4 == 0 ? 61U : 4U));
                    n = n < left ? n : left;
                    if (n > 0)
                        pieces[n_pieces++] = (struct piece){slot, text, n};
                    done += n;
                }
                if (n_pieces > 0)
                    feed(b, pieces, n_pieces);
            }
            for (int32_t text = 0; text < together; text++)
                same_records(alone, text, b, SLOTS - 1 - text, N);
            close_bench(b);
        }
        close_bench(alone);
    }
}

/* Steps queued one behind the other, nothing waited for: the stream keeps their order. */
static void steps_may_run_ahead(void **state)
{
    (void)state;
    enum { N = 200 };
    struct bench *one = open_bench(TINY, "1"), *ahead = open_bench(TINY, "1");
    struct di_error err = {0};
    feed_one(one, 0, 1, N);
    for (int32_t i = 0; i < N; i++) {
        stage(ahead, &(struct piece){0, 1, 1}, 1);
        assert_int_equal(di_forward(ahead->model, ahead->store, &ahead->step, NULL, &err), DI_OK);
    }
    download(ahead, ahead->token, di_model_tokens(ahead->model), sizeof *ahead->token);
    assert_int_equal(ahead->token[0], record_of(one, 0, N - 1)->token);
    size_t vocab = (size_t)one->engine->config->vocab_size;
    float *logits = calloc(vocab, sizeof *logits);
    assert_non_null(logits);
    download(ahead, logits, di_model_logits(ahead->model), vocab * sizeof *logits);
    assert_int_equal(digest(logits, vocab), record_of(one, 0, N - 1)->streams[LAYERS]);
    for (size_t j = 0; j < vocab; j++)
        assert_true(isfinite(logits[j]));
    free(logits);
    close_bench(one);
    close_bench(ahead);
}

/* Rows of a rejected draft may be written over; the ring has room for those of two steps, and not for many more. */
static void rows_taken_back_leave_nothing(void **state)
{
    (void)state;
    enum { N = 260 };
    static const char *const models[] = {TINY, GOLDEN("micro"), GOLDEN("odd-b")};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct bench *plain = open_bench(models[m], "1"), *b = open_bench(models[m], "1");
        feed_one(plain, 0, 1, N);
        feed_one(b, 0, 1, N / 2);
        for (int32_t turn = 0; b->length[0] < N; turn++) {
            int32_t before = b->length[0], draft = 1 + turn % DI_STEP_BACK;
            feed_one(b, 0, 2, draft);
            assert_true(b->length[0] <= LENGTH);
            b->length[0] = before;
            feed_one(b, 0, 1, 1 + turn % 2);
            b->length[0] = b->length[0] > N ? N : b->length[0];
        }
        same_records(plain, 0, b, 0, N);
        feed_one(plain, 0, 1, 1);
        feed_one(b, 0, 2, DI_STEP_BACK + 2);
        b->length[0] = N;
        feed_one(b, 0, 1, 1);
        assert_memory_not_equal(record_of(plain, 0, N), record_of(b, 0, N), sizeof(struct record));
        close_bench(plain);
        close_bench(b);
    }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Tampering: the next row of a sequence is run with one byte of a cache changed, and must differ from the same row without from
 * exactly that layer on which the byte is first read, or not at all. */

struct tampering {
    struct bench *b;
    struct record clean;
    struct selection *selection; /* of the clean row */
    int32_t slot, text, position, tried;
};

static void flip(struct bench *b, uint8_t *at)
{
    struct di_error err = {0};
    uint8_t byte;
    download(b, &byte, at, 1);
    byte ^= 0x10;
    assert_int_equal(b->ops->upload(b->engine->dev, at, &byte, 1, &err), DI_OK);
}

/* The first layer behind which the row differs from the clean one; -1 where nothing differs. */
static int32_t differs_from(const struct tampering *t, const struct record *r)
{
    int32_t layers = t->b->engine->config->num_hidden_layers;
    for (int32_t layer = 0; layer < layers; layer++)
        if (r->streams[layer] != t->clean.streams[layer]) {
            for (; layer < layers; layer++) /* and it stays different */
                assert_int_not_equal(r->streams[layer], t->clean.streams[layer]);
            assert_int_not_equal(r->streams[LAYERS], t->clean.streams[LAYERS]);
            for (layer = 0; r->streams[layer] == t->clean.streams[layer];)
                layer++;
            return layer;
        }
    assert_memory_equal(r, &t->clean, sizeof *r);
    return -1;
}

static void expect_on(struct tampering *t, uint8_t *at, int32_t layer, const char *what, int32_t index)
{
    flip(t->b, at);
    struct record r = try_row(t->b, t->slot, t->text);
    flip(t->b, at);
    int32_t found = differs_from(t, &r);
    if (found != layer)
        fail_msg("%s %d: read by position %d on layer %d, expected %d", what, index, t->position, found, layer);
    t->tried++;
}

/* A byte of the data and, where there are any, one of the scales. */
static void expect_row(struct tampering *t, const struct di_kv_rows *rows, int32_t row, int32_t layer, const char *what,
                       int32_t index)
{
    int32_t data = di_kv_data_bytes(rows->format, rows->dim), scale = di_kv_scale_bytes(rows->format, rows->dim);
    expect_on(t, di_kv_row_data(rows, row) + index * 7 % data, layer, what, index);
    if (scale > 0)
        expect_on(t, di_kv_row_scale(rows, row) + index % scale, layer, what, index);
}

static bool holds(const int32_t *list, int32_t n, int32_t value)
{
    for (int32_t k = 0; k < n; k++)
        if (list[k] == value)
            return true;
    return false;
}

static void tamper_with_rings(struct tampering *t)
{
    const struct di_config *c = t->b->engine->config;
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
        struct di_ring_view ring = di_kv_store_ring(t->b->store, layer);
        struct di_kv_rows own = di_ring_rows(&ring, t->slot), other = di_ring_rows(&ring, t->slot + 1);
        for (int32_t back = 0; back < ring.ring_slots; back++) {
            int32_t at = t->position - back; /* back 0: the row writes it itself, after attention has read the ring */
            bool edge = back < 2 || abs(back - c->sliding_window) < 2 || back == ring.ring_slots - 1;
            if (at < 0 || (!edge && (back + layer) % 9 != 0))
                continue;
            bool read = back > 0 && back < c->sliding_window;
            if (back == 0) { /* its slot holds what it is going to replace */
                struct record r;
                flip(t->b, di_kv_row_data(&own, at % ring.ring_slots));
                r = try_row(t->b, t->slot, t->text);
                assert_int_equal(differs_from(t, &r), -1);
                continue;
            }
            expect_row(t, &own, at % ring.ring_slots, read ? layer : -1, "ring row", back);
            expect_row(t, &other, at % ring.ring_slots, -1, "another's ring row", back);
        }
    }
}

/* Tail rows: the one before an odd position is read, no other. */
static void tamper_with_tails(struct tampering *t)
{
    const struct di_layer_plan_list *plan = &t->b->engine->plan;
    for (int32_t k = 0; k < plan->n_kv; k++) {
        if (plan->kv_ratio[k] != 2)
            continue;
        struct di_tail_view tail = di_kv_store_tail(t->b->store, k);
        for (int32_t row = 0; row < tail.tail_slots; row++) {
            if (row == t->position % tail.tail_slots)
                continue; /* the row's own: written, not read */
            bool read = t->position % 2 == 1 && row == (t->position - 1) % tail.tail_slots;
            float *value = tail.base + ((int64_t)t->slot * tail.tail_slots + row) * 2 * tail.dim;
            expect_on(t, (uint8_t *)(value + 3), read ? plan->kv_layer[k] : -1, "tail value", row);
            expect_on(t, (uint8_t *)(value + 2 * tail.dim - 1), read ? plan->kv_layer[k] : -1, "tail gate", row);
        }
    }
}

/* The first layer on which the row attends to entry `entry` of source k; -1 for none. */
static int32_t first_reader(const struct tampering *t, int32_t k, int32_t entry)
{
    const struct di_layer_plan_list *plan = &t->b->engine->plan;
    for (int32_t layer = 0; layer < plan->n_layers; layer++)
        if (plan->layer[layer].kv_slot == k &&
            holds(t->selection->selected[plan->layer[layer].index_source], t->b->engine->config->index_topk, entry))
            return layer;
    return -1;
}

/* Main rows are read by those that selected them, index keys by whoever scores; the row's own entry is written before it is read,
 * and what lies behind is dead. */
static void tamper_with_pages(struct tampering *t)
{
    const struct di_layer_plan_list *plan = &t->b->engine->plan;
    for (int32_t k = 0; k < plan->n_kv; k++) {
        struct di_paged_view view = di_kv_store_paged(t->b->store, k);
        int32_t visible = (t->position + 1) / view.ratio, own = (t->position + 1) % view.ratio == 0 ? visible - 1 : -1;
        int32_t reserved = (t->position + DI_PAGE_TOKENS) / DI_PAGE_TOKENS * view.page_rows;
        for (int32_t entry = 0; entry < reserved && entry < visible + 3; entry++) {
            int32_t row;
            if (entry == own || (entry > 2 && entry < visible - 3 && (entry + k) % (1 + visible / 40) != 0))
                continue;
            struct di_kv_rows rows = di_paged_main_rows(&view, t->slot, entry, &row);
            expect_row(t, &rows, row, entry < visible ? first_reader(t, k, entry) : -1, "entry", entry);
            rows = di_paged_index_rows(&view, t->slot, entry, &row);
            expect_row(t, &rows, row, entry < visible ? plan->kv_layer[k] : -1, "index key", entry);
            rows = di_paged_main_rows(&view, t->slot + 1, entry, &row);
            expect_row(t, &rows, row, -1, "another's entry", entry);
        }
    }
}

/* A sequence's first page taken for its neighbour's: seen by the first source that has an older entry than the row's own. */
static void tamper_with_tables(struct tampering *t)
{
    const struct di_layer_plan_list *plan = &t->b->engine->plan;
    struct di_paged_view view = di_kv_store_paged(t->b->store, 0);
    struct di_error err = {0};
    int32_t mine, theirs, k = 0, *table = (int32_t *)(uintptr_t)view.table + (int64_t)t->slot * view.max_pages;
    while (k < plan->n_kv && t->position / plan->kv_ratio[k] == 0)
        k++;
    download(t->b, &mine, table, sizeof mine);
    download(t->b, &theirs, table + view.max_pages, sizeof theirs);
    assert_int_equal(t->b->ops->upload(t->b->engine->dev, table, &theirs, sizeof theirs, &err), DI_OK);
    struct record r = try_row(t->b, t->slot, t->text);
    assert_int_equal(t->b->ops->upload(t->b->engine->dev, table, &mine, sizeof mine, &err), DI_OK);
    assert_int_equal(differs_from(t, &r), plan->kv_layer[k]);
}

static void tampering_is_seen(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int32_t positions[4];
    } cases[] = {
        {TINY, {1, 130, 601, 640}}, /* 601 entries of ratio 1: not all can be selected */
        {GOLDEN("micro"), {15, 90, 127, 128}},
        {GOLDEN("odd-a"), {31, 90, 127, 200}},
        {GOLDEN("odd-b"), {5, 90, 127, 200}},
    };
    static struct selection selection;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int i = 0; i < 4; i++) {
            struct tampering t = {.b = open_bench(cases[c].model, "1"), .selection = &selection, .slot = 2, .text = 1};
            t.position = cases[c].positions[i];
            feed_one(t.b, 3, 2, t.position + 40 < LENGTH ? t.position + 40 : LENGTH);
            feed_one(t.b, 2, 1, t.position);
            t.clean = try_row(t.b, t.slot, t.text);
            memcpy(t.selection, t.b->last, sizeof *t.selection);
            struct record again = try_row(t.b, t.slot, t.text);
            assert_int_equal(differs_from(&t, &again), -1);
            tamper_with_rings(&t);
            tamper_with_tails(&t);
            tamper_with_pages(&t);
            tamper_with_tables(&t);
            again = try_row(t.b, t.slot, t.text);
            assert_int_equal(differs_from(&t, &again), -1);
            assert_true(t.tried > 50 || t.position < 16);
            close_bench(t.b);
        }
}

/* The same token one position further, behind the same tokens; and another token at the same position. */
static void position_and_token_count(void **state)
{
    (void)state;
    struct bench *b = open_bench(TINY, "1");
    struct di_error err = {0};
    struct tampering t = {.b = b, .slot = 0, .text = 1};
    feed_one(b, 0, 1, 50);
    t.clean = try_row(b, 0, 1);
    struct record other = try_row(b, 0, 2);
    assert_int_equal(differs_from(&t, &other), 0);
    struct di_forward_hooks hooks = {.user = b, .observe = observe};
    stage(b, &(struct piece){0, 1, 1}, 1);
    b->position[0] = 51;
    assert_int_equal(di_forward(b->model, b->store, &b->step, &hooks, &err), DI_OK);
    assert_int_not_equal(record_of(b, 0, 51)->streams[0], t.clean.streams[0]);
    /* a row that is told to stand alone in its step looks for its neighbour in the ring, where it is not yet */
    b->length[0] = 50;
    feed_one(b, 0, 1, 2);
    uint64_t right = record_of(b, 0, 51)->streams[0];
    b->length[0] = 50;
    stage(b, &(struct piece){0, 1, 2}, 1);
    b->first[1] = 1;
    struct di_ring_view ring = di_kv_store_ring(b->store, 0);
    struct di_kv_rows rows = di_ring_rows(&ring, 0);
    flip(b, di_kv_row_data(&rows, 50));
    assert_int_equal(di_forward(b->model, b->store, &b->step, &hooks, &err), DI_OK);
    assert_int_not_equal(record_of(b, 0, 51)->streams[0], right);
    close_bench(b);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Selection and draw. */

static void check_list(const int32_t *list, int32_t width, int32_t count, int32_t limit)
{
    for (int32_t k = 0; k < width; k++) {
        if (k >= count)
            assert_int_equal(list[k], -1);
        else
            assert_true(list[k] >= (k > 0 ? list[k - 1] + 1 : 0) && list[k] < limit);
    }
}

static void selections_are_lawful(void **state)
{
    (void)state;
    static const char *const models[] = {TINY, GOLDEN("micro"), GOLDEN("odd-a"), GOLDEN("odd-b")};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct bench *b = open_bench(models[m], "1");
        const struct di_config *c = b->engine->config;
        feed_one(b, 0, 1, m == 0 ? 600 : 20);
        for (int32_t turn = 0; turn < 100; turn++) {
            feed_one(b, 0, 1, 1);
            int32_t latest = -1;
            for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
                const struct di_layer_plan *plan = &b->engine->plan.layer[layer];
                if (!plan->owns_index)
                    continue;
                int32_t visible = b->length[0] / plan->ratio, choices = visible, bs = c->candidate_block_size;
                const int32_t *selected = b->last->selected[layer];
                if (plan->makes_candidates) {
                    int32_t blocks = (visible + bs - 1) / bs;
                    int32_t kept = blocks < c->candidate_topk_blocks ? blocks : c->candidate_topk_blocks;
                    check_list(b->last->blocks, c->candidate_topk_blocks, kept, blocks);
                    assert_true(holds(b->last->blocks, kept, blocks - 1));
                    latest = blocks - 1;
                }
                if (plan->uses_candidates) {
                    choices = 0;
                    for (int32_t j = 0; j < visible; j++)
                        choices += holds(b->last->blocks, c->candidate_topk_blocks, j / bs);
                    for (int32_t k = 0; k < c->index_topk && selected[k] >= 0; k++)
                        assert_true(holds(b->last->blocks, c->candidate_topk_blocks, selected[k] / bs));
                    assert_true(latest >= 0);
                }
                check_list(selected, c->index_topk, choices < c->index_topk ? choices : c->index_topk, visible);
            }
        }
        close_bench(b);
    }
}

static void draws_follow_their_inputs(void **state)
{
    (void)state;
    enum { V = 50, N = 4000 };
    struct bench *b = open_bench(GOLDEN("micro"), "1");
    struct di_device *dev = b->engine->dev;
    struct di_error err = {0};
    static float logits[2 * V];
    int32_t row[2] = {0, 0}, position = 0, token[2], seen[V] = {0}, agree = 0, moved[3] = {0};
    float temperature[2] = {1.0F, 1.0F};
    uint64_t seed[2] = {5, 5};
    struct di_sample_args a = {.n = 2,
                               .vocab = V,
                               .logits = logits,
                               .temperature = temperature,
                               .seed = seed,
                               .row = row,
                               .position = &position,
                               .token = token};
    for (position = 0; position < N; position++) {
        for (int j = 0; j < V; j++) {
            logits[j] = (float)(j * 7919 % 13 + position);
            logits[V + j] = logits[j] + (j == 3 ? 0.001F : 0.0F); /* another row, by one bit or so */
        }
        int32_t first;
        b->ops->sample(dev, &a);
        assert_int_equal(b->ops->sync(dev, &err), DI_OK);
        assert_true(token[0] >= 0 && token[0] < V && token[1] >= 0 && token[1] < V);
        seen[token[0]]++;
        agree += token[0] == token[1];
        first = token[0];
        seed[0] = 6; /* moves every draw but what chance brings back */
        b->ops->sample(dev, &a);
        assert_int_equal(b->ops->sync(dev, &err), DI_OK);
        moved[0] += token[0] != first;
        seed[0] = 5;
        temperature[0] = temperature[1] = 0.0F; /* greedy: the seed has no part in it */
        b->ops->sample(dev, &a);
        assert_int_equal(b->ops->sync(dev, &err), DI_OK);
        first = token[0];
        seed[0] = 6;
        b->ops->sample(dev, &a);
        assert_int_equal(b->ops->sync(dev, &err), DI_OK);
        assert_int_equal(token[0], first);
        seed[0] = 5;
        temperature[0] = temperature[1] = 1.0F;
    }
    for (int j = 0; j < V; j++)
        assert_in_range(seen[j], 40, 130); /* 80 on average */
    assert_in_range(agree, N / 5, N / 3);  /* a quarter, and chance */
    assert_in_range(moved[0], N * 9 / 10, N);
    for (int j = 0; j < V; j++)
        logits[j] = j == 17 || j == 40 ? 1.0F : -INFINITY;
    logits[V + 3] = NAN;
    b->ops->sample(dev, &a);
    assert_int_equal(b->ops->sync(dev, &err), DI_OK);
    assert_true(token[0] == 17 || token[0] == 40);
    assert_int_equal(token[1], -1);
    close_bench(b);
}

/* One call of two rows over the same logits; how many of N positions draw otherwise in row 1. */
static int32_t differing(struct bench *b, struct di_sample_args *a, int32_t *position)
{
    enum { N = 400 };
    struct di_error err = {0};
    int32_t differ = 0;
    for (*position = 0; *position < N; ++*position) {
        b->ops->sample(b->engine->dev, a);
        assert_int_equal(b->ops->sync(b->engine->dev, &err), DI_OK);
        differ += a->token[0] != a->token[1];
    }
    return differ;
}

/* What a rule changes in row 1 moves about three of four draws: the half that follows from the position stays put in both. */
static void draws_follow_their_rules(void **state)
{
    (void)state;
    enum { V = 50 };
    struct bench *b = open_bench(GOLDEN("micro"), "1");
    float logits[2 * V], temperature[2] = {1.0F, 1.0F}, penalty[2] = {1.0F, 1.0F}, addition[2] = {0.0F, 0.0F};
    float top_p[2] = {1.0F, 1.0F}, min_p[2] = {0.0F, 0.0F}, bias = 0.0F;
    uint32_t mask[2][2] = {{UINT32_MAX, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}}, choice[2] = {0, 0};
    uint64_t seed[2] = {5, 5};
    int32_t row[2] = {0, 0}, position, token[2], top_k[2] = {0, -1}, seen_offset[3] = {0, 1, 2}, seen_token[2] = {3, 3},
            seen_count[2] = {1, 1}, bias_offset[3] = {0, 0, 1}, bias_token = 4;
    struct di_sample_args a = {.n = 2,
                               .vocab = V,
                               .logits = logits,
                               .temperature = temperature,
                               .seed = seed,
                               .row = row,
                               .position = &position,
                               .token = token,
                               .rules = {.repetition = penalty,
                                         .frequency = addition,
                                         .seen_offset = seen_offset,
                                         .seen_token = seen_token,
                                         .seen_count = seen_count,
                                         .bias_offset = bias_offset,
                                         .bias_token = &bias_token,
                                         .bias = &bias,
                                         .mask = mask[0],
                                         .top_k = top_k,
                                         .top_p = top_p,
                                         .min_p = min_p,
                                         .choice = choice}};
    for (int32_t j = 0; j < 2 * V; j++)
        logits[j] = 1.0F + (float)(j % V);
    assert_int_equal(differing(b, &a, &position), 0);
    struct {
        void *at;
        uint32_t bits;
    } const changes[] = {
        {&penalty[1], 0x3f8ccccd}, {&addition[1], 0x3f000000}, {&bias, 0x3f800000}, {&top_k[1], 7},
        {&top_p[1], 0x3f000000},   {&min_p[1], 0x3f000000},    {&choice[1], 1},     {&mask[1][0], 0xfffffffe},
        {&seen_token[1], 5}};
    addition[0] = addition[1] = 0.25F; /* so that the list of seen tokens counts */
    for (size_t c = 0; c < sizeof changes / sizeof changes[0]; c++) {
        uint32_t before;
        memcpy(&before, changes[c].at, sizeof before);
        memcpy(changes[c].at, &changes[c].bits, sizeof before);
        assert_in_range(differing(b, &a, &position), 200, 400);
        memcpy(changes[c].at, &before, sizeof before);
    }
    temperature[0] = temperature[1] = 0.0F; /* greedy: no filters, no choice */
    top_k[1] = 7, top_p[1] = 0.5F, min_p[1] = 0.5F, choice[1] = 1;
    assert_int_equal(differing(b, &a, &position), 0);
    mask[0][0] = 1U << 9, mask[0][1] = 0, mask[1][0] = 0, mask[1][1] = 0;
    assert_int_equal(differing(b, &a, &position), 400);
    assert_int_equal(token[0], 9);
    assert_int_equal(token[1], DI_SAMPLE_NONE);
    close_bench(b);
}

static void auto_never_takes_it(void **state)
{
    (void)state;
    struct di_error err = {0};
    struct di_engine *e;
    assert_int_equal(di_engine_load(TINY, NULL, &e, &err), DI_OK);
    assert_string_not_equal(e->ops->name, "hash");
    di_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_do_not_matter),     cmocka_unit_test(companions_do_not_matter),
        cmocka_unit_test(steps_may_run_ahead),      cmocka_unit_test(rows_taken_back_leave_nothing),
        cmocka_unit_test(tampering_is_seen),        cmocka_unit_test(position_and_token_count),
        cmocka_unit_test(selections_are_lawful),    cmocka_unit_test(draws_follow_their_inputs),
        cmocka_unit_test(draws_follow_their_rules), cmocka_unit_test(auto_never_takes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
