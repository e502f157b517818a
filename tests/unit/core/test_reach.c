/* Which rows layers run: against a walk over every row and every reader, and what it saves at released sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/reach.h"
#include "unit/core/released.h"

enum { LONGEST = 160 };

/* 6 layers, window 4: sources at 1 (ratio 2) and 3 (ratio 1). */
static struct di_config small_config(void)
{
    struct di_config c = {.num_hidden_layers = 6, .sliding_window = 4, .n_kv_sources = 2, .n_index_sources = 2};
    const int32_t ratios[] = {0, 2, 2, 1, 1, 1};
    memcpy(c.compress_ratios, ratios, sizeof ratios);
    c.kv_source_layer_ids[0] = c.index_source_layer_ids[0] = 1;
    c.kv_source_layer_ids[1] = c.index_source_layer_ids[1] = 3;
    c.candidate_source_layer_id = -1;
    return c;
}

/* needed[l][p]: the output of layer l at position p reaches the result, found by following every reader; in[l][p]: layer l has to make
 * the window row of p. */
static void follow_readers(const struct di_config *c, const struct di_layer_plan_list *plan, int32_t n, int32_t have,
                           bool needed[6][LONGEST], bool in[6][LONGEST])
{
    memset(needed, 0, 6 * sizeof needed[0]);
    memset(in, 0, 6 * sizeof in[0]);
    needed[5][n - 1] = needed[5][n > 1 ? n - 2 : 0] = true;
    for (int32_t l = 5; l >= 0; l--)
        for (int32_t p = 0; p < n; p++) {
            bool window = false, entry = plan->layer[l].owns_kv && p >= have;
            for (int32_t q = p; q < n && q < p + c->sliding_window; q++)
                window |= needed[l][q];
            in[l][p] = window;
            if (l > 0 && (window || entry))
                needed[l - 1][p] = true;
        }
}

static void exact_runs_what_can_reach_the_result(void **state)
{
    (void)state;
    struct di_config c = small_config();
    static struct di_layer_plan_list plan;
    static bool needed[6][LONGEST], in[6][LONGEST];
    di_layer_plan_derive(&c, &plan);
    for (int32_t n = 1; n <= 60; n++)
        for (int32_t have = 0; have < n; have += 2) {
            static struct di_reach reach;
            struct di_reach_args args = {
                .truncation = DI_TRUNCATION_EXACT, .length = n, .have = have, .state = have > 0 ? -1 : 0};
            di_reach_derive(&c, &plan, &args, &reach);
            follow_readers(&c, &plan, n, have, needed, in);
            assert_int_equal(reach.floor, have);
            for (int32_t l = 0; l < 6; l++)
                for (int32_t p = 0; p < n; p++)
                    assert_int_equal(p >= reach.first[l] && p >= reach.start, in[l][p]);
            for (int32_t l = 1; l < 6; l++) /* what enters a layer has left the one before it */
                for (int32_t p = 0; p < n; p++)
                    assert_true(!needed[l - 1][p] || p >= reach.first[l - 1]);
        }
}

static void modes_keep_what_they_promise(void **state)
{
    (void)state;
    struct di_config c = small_config();
    static struct di_layer_plan_list plan;
    static struct di_reach reach;
    di_layer_plan_derive(&c, &plan);
    assert_int_equal(di_reach_decoder(&plan), 3);
    for (int32_t n = 1; n < LONGEST; n++) {
        di_reach_derive(&c, &plan, &(struct di_reach_args){.truncation = DI_TRUNCATION_OFF, .length = n}, &reach);
        assert_int_equal(di_reach_row_layers(&reach, 6, n), 6 * n);
        di_reach_derive(&c, &plan,
                        &(struct di_reach_args){.truncation = DI_TRUNCATION_COMPACT, .keep = 10, .length = n}, &reach);
        assert_int_equal(di_reach_row_layers(&reach, 6, n), 3 * n + 3 * (n < 10 ? n : 10));
        for (int32_t l = 0; l < 6; l++)
            assert_int_equal(reach.low[l], l >= 3 && n > 10 ? n - 10 : 0);
        if (n <= 12)
            continue;
        /* a saved state of 12 tokens: nothing before it runs */
        struct di_reach_args args = {.truncation = DI_TRUNCATION_EXACT, .length = n, .have = 12, .state = 12};
        di_reach_derive(&c, &plan, &args, &reach);
        assert_int_equal(reach.start, 12);
        assert_int_equal(reach.first[0], 12);
        assert_false(reach.approximate);
        /* bounded replay: one window */
        args = (struct di_reach_args){
            .truncation = DI_TRUNCATION_COMPACT, .keep = 10, .length = n, .have = 12, .state = -1, .bounded = true};
        di_reach_derive(&c, &plan, &args, &reach);
        int32_t start = n - 10 < 12 - 4 ? n - 10 : 12 - 4;
        assert_int_equal(reach.start, start);
        assert_int_equal(reach.low[0], start);
        assert_int_equal(reach.low[2], start);
        assert_int_equal(reach.low[3], n - 10);
        assert_true(reach.approximate);
    }
}

/* The released model, 8192 tokens: exact at most 0.60 of all row-layers, compact at most 0.53. */
static void truncation_saves_what_it_should(void **state)
{
    (void)state;
    static struct di_config c;
    static struct di_layer_plan_list plan;
    static struct di_reach reach;
    const int64_t n = 8192, all = 40 * n;
    released_config(&c);
    di_layer_plan_derive(&c, &plan);
    di_reach_derive(&c, &plan, &(struct di_reach_args){.truncation = DI_TRUNCATION_EXACT, .length = n}, &reach);
    /* 20 layers in full, then from the last: 128 rows and one, and 127 more for every layer down to layer 20 */
    assert_int_equal(di_reach_row_layers(&reach, 40, n), 20 * n + 20 * 129 + 127 * (19 * 20 / 2));
    assert_true((double)di_reach_row_layers(&reach, 40, n) <= 0.60 * (double)all);
    di_reach_derive(&c, &plan, &(struct di_reach_args){.truncation = DI_TRUNCATION_COMPACT, .keep = 140, .length = n},
                    &reach);
    assert_int_equal(di_reach_row_layers(&reach, 40, n), 20 * n + 20 * 140);
    assert_true((double)di_reach_row_layers(&reach, 40, n) <= 0.53 * (double)all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_runs_what_can_reach_the_result),
        cmocka_unit_test(modes_keep_what_they_promise),
        cmocka_unit_test(truncation_saves_what_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
