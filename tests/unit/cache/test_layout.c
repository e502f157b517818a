/* Bytes of the caches at the released shape (spec/model.md section 10), and that page segments do not overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cache/layout.h"

static struct di_cache_layout released(bool quantised)
{
    static struct di_config config;
    static struct di_layer_plan_list plan;
    struct di_cache_layout layout;
    config.head_dim = 512;
    config.index_head_dim = 128;
    config.sliding_window = 128;
    plan.n_layers = 40;
    plan.n_kv = 4;
    for (int k = 0; k < 4; k++)
        plan.kv_ratio[k] = k == 3 ? 1 : 2;
    di_cache_layout_make(&config, &plan, quantised, &layout);
    return layout;
}

static void released_bytes(void **state)
{
    (void)state;
    struct di_cache_layout l = released(true);
    assert_true(di_cache_bytes_per_token(&l) == 890.0);
    assert_int_equal(l.page_bytes, 128 * 890);
    assert_int_equal(l.ring_slots, 140); /* the window and two rounds of six rows */
    assert_int_equal(l.ring_bytes, 140 * 528);
    assert_int_equal(di_cache_private_bytes(&l), 40 * 140 * 528 + 3 * 14 * 4096);
    l = released(false);
    assert_true(di_cache_bytes_per_token(&l) == 2.5 * 4 * (512 + 128));
}

static void segments_follow_each_other(void **state)
{
    (void)state;
    struct di_cache_layout l = released(true);
    size_t at = 0;
    for (int k = 0; k < l.n_kv; k++) {
        size_t rows = (size_t)(DI_PAGE_TOKENS / l.ratio[k]);
        assert_int_equal(l.main_offset[k], at);
        assert_int_equal(l.index_offset[k], at + rows * 288);
        at += rows * (288 + 68);
    }
    assert_int_equal(l.page_bytes, at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_bytes),
        cmocka_unit_test(segments_follow_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
