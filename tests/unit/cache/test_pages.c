/* The page pool: counts, order of reuse, exhaustion, and that its audit sees misuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cache/pages.h"

static void check(const struct di_pages *p)
{
    char why[200] = "";
    if (!di_pages_audit(p, why, sizeof why))
        fail_msg("%s", why);
}

static void takes_and_returns(void **state)
{
    (void)state;
    struct di_pages *p;
    struct di_error err = {0};
    assert_int_equal(di_pages_open(4, &p, &err), DI_OK);
    assert_int_equal(di_pages_total(p), 4);
    for (int32_t id = 0; id < 4; id++) {
        assert_int_equal(di_pages_take(p), id);
        assert_int_equal(di_pages_refs(p, id), 1);
        assert_int_equal(di_pages_free_count(p), 3 - id);
    }
    assert_int_equal(di_pages_take(p), -1);
    di_pages_hold(p, 2);
    di_pages_drop(p, 2);
    assert_int_equal(di_pages_refs(p, 2), 1);
    assert_int_equal(di_pages_free_count(p), 0);
    di_pages_drop(p, 2);
    di_pages_drop(p, 1);
    check(p);
    assert_int_equal(di_pages_take(p), 1); /* the last to become free */
    assert_int_equal(di_pages_take(p), 2);
    check(p);
    di_pages_close(p);
}

static void audit_sees_misuse(void **state)
{
    (void)state;
    char why[200] = "";
    struct di_pages *p;
    struct di_error err = {0};
    assert_int_equal(di_pages_open(3, &p, &err), DI_OK);
    assert_int_equal(di_pages_take(p), 0);
    assert_int_equal(di_pages_take(p), 1);
    di_pages_hold(p, 2); /* it is free */
    assert_false(di_pages_audit(p, why, sizeof why));
    assert_true(why[0] != '\0');
    di_pages_close(p);
    assert_int_equal(di_pages_open(3, &p, &err), DI_OK);
    assert_int_equal(di_pages_take(p), 0);
    assert_int_equal(di_pages_take(p), 1);
    di_pages_drop(p, 1);
    di_pages_hold(p, 1);
    di_pages_drop(p, 1); /* twice on the free list */
    assert_false(di_pages_audit(p, why, sizeof why));
    di_pages_close(p);
}

static void empty_pool(void **state)
{
    (void)state;
    struct di_pages *p;
    struct di_error err = {0};
    assert_int_equal(di_pages_open(0, &p, &err), DI_OK);
    assert_int_equal(di_pages_take(p), -1);
    check(p);
    di_pages_close(p);
}

static void allocation_failures(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        struct di_pages *p = NULL;
        struct di_error err = {0};
        di_mem_fail_after(n);
        di_status status = di_pages_open(8, &p, &err);
        di_mem_fail_after(0);
        assert_int_equal(status, DI_ERR_NOMEM);
        assert_null(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_and_returns),
        cmocka_unit_test(audit_sees_misuse),
        cmocka_unit_test(empty_pool),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
