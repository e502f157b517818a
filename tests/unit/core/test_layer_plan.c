/* The layer plan of the released model (spec/model.md section 2) and its rotation tables (section 6). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "released.h"

static void released_layer_map(void **state)
{
    (void)state;
    static const struct {
        int32_t first, last, ratio, kv, slot, index;
    } rows[] = {
        {0, 1, 0, -1, -1, -1},  {2, 7, 2, 2, 0, 2},     {8, 13, 2, 8, 1, 8},
        {14, 19, 2, 14, 2, 14}, {20, 23, 1, 20, 3, 20}, {24, 27, 1, 20, 3, 24},
        {28, 31, 1, 20, 3, 28}, {32, 35, 1, 20, 3, 32}, {36, 39, 1, 20, 3, 36},
    };
    struct di_config c;
    released_config(&c);
    static struct di_layer_plan_list plan;
    di_layer_plan_derive(&c, &plan);
    assert_int_equal(plan.n_layers, 40);
    assert_int_equal(plan.n_kv, 4);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (int32_t i = rows[r].first; i <= rows[r].last; i++) {
            const struct di_layer_plan *l = &plan.layer[i];
            assert_int_equal(l->ratio, rows[r].ratio);
            assert_int_equal(l->kv_source, rows[r].kv);
            assert_int_equal(l->kv_slot, rows[r].slot);
            assert_int_equal(l->index_source, rows[r].index);
            assert_int_equal(l->owns_kv, i == rows[r].kv);
            assert_int_equal(l->owns_index, i == rows[r].index);
            assert_int_equal(l->compress_rope, i >= 2);
            assert_int_equal(l->makes_candidates, i == 20);
            assert_int_equal(l->uses_candidates, i == 24 || i == 28 || i == 32 || i == 36);
            assert_int_equal(l->engram, i == 1 ? 0 : i == 14 ? 1 : -1);
        }
    }
    for (int32_t k = 0; k < 4; k++) {
        assert_int_equal(plan.kv_layer[k], 2 + 6 * k);
        assert_int_equal(plan.kv_ratio[k], k == 3 ? 1 : 2);
    }
    assert_int_equal(di_engram_columns(&c), 24);
    c.n_engram_layers = 0;
    assert_int_equal(di_engram_columns(&c), 0);
}

static void a_window_layer_between_a_source_and_its_readers(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    static struct di_layer_plan_list plan;
    c.compress_ratios[4] = 0;
    c.candidate_source_layer_id = -1;
    assert_int_equal(di_config_validate(&c, NULL), DI_OK);
    di_layer_plan_derive(&c, &plan);
    assert_int_equal(plan.layer[4].kv_source, -1);
    assert_false(plan.layer[4].compress_rope);
    assert_int_equal(plan.layer[5].kv_source, 2);
    for (int32_t i = 0; i < 40; i++)
        assert_false(plan.layer[i].makes_candidates || plan.layer[i].uses_candidates);
}

static void close_to(float value, double wanted)
{
    if (fabs((double)value - wanted) > 1e-6 * fabs(wanted))
        fail_msg("%.9g is not %.9g", (double)value, wanted);
}

static void released_inverse_frequencies(void **state)
{
    (void)state;
    static const struct {
        int32_t i;
        double value;
    } compress[] = {{0, 1.0},
                    {1, 6.876560219e-1},
                    {8, 5.0e-2},
                    {15, 3.635538584e-3},
                    {16, 2.265625000e-3},
                    {17, 1.396801295e-3},
                    {18, 8.496897268e-4},
                    {20, 2.969777783e-4},
                    {24, 1.953125000e-5},
                    {25, 5.372312671e-6},
                    {31, 5.680529037e-7}},
      main_table[] = {{0, 1.0}, {1, 7.498942093e-1}, {8, 1.0e-1}, {16, 1.0e-2}, {31, 1.333521432e-4}};
    struct di_config c;
    released_config(&c);
    float table[32];
    di_rope_inv_freq(&c, true, table);
    for (size_t k = 0; k < sizeof compress / sizeof compress[0]; k++)
        close_to(table[compress[k].i], compress[k].value);
    di_rope_inv_freq(&c, false, table);
    for (size_t k = 0; k < sizeof main_table / sizeof main_table[0]; k++)
        close_to(table[main_table[k].i], main_table[k].value);
    c.rope_scaling.present = false; /* without YaRN the compress table is plain too */
    di_rope_inv_freq(&c, true, table);
    for (int32_t i = 0; i < 32; i++)
        close_to(table[i], pow(160000, -i / 32.0));
}

static void an_empty_ramp_is_finite(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    c.qk_rope_head_dim = 2; /* one frequency: low and high meet */
    c.rope_scaling.beta_fast = c.rope_scaling.beta_slow = 1.0;
    assert_int_equal(di_config_validate(&c, NULL), DI_OK);
    float table[1];
    di_rope_inv_freq(&c, true, table);
    assert_true(isfinite(table[0]) && table[0] > 0.0F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_layer_map),
        cmocka_unit_test(a_window_layer_between_a_source_and_its_readers),
        cmocka_unit_test(released_inverse_frequencies),
        cmocka_unit_test(an_empty_ramp_is_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
