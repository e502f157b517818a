/* di_checkpoint: taking, ignoring, finishing; the golden checkpoints and their Engram and rotation constants. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "core/engram.h"
#include "folder.h"

#define MICRO DI_TEST_DATA "/goldens/micro"

static struct di_checkpoint *open_micro(void)
{
    struct di_checkpoint *ckpt;
    struct di_error err = {0};
    if (di_checkpoint_open(MICRO, &ckpt, &err) != DI_OK)
        fail_msg("%s", err.message);
    return ckpt;
}

static void take_checks_dtype_and_shape(void **state)
{
    (void)state;
    struct di_checkpoint *ckpt = open_micro();
    const struct di_st_tensor *t = NULL;
    struct di_error err = {0};
    const int64_t good[] = {600, 64}, bad[] = {600, 65};
    assert_string_equal(di_checkpoint_folder(ckpt), MICRO);
    assert_int_equal(di_checkpoint_config(ckpt)->hidden_size, 64);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(di_checkpoint_take(ckpt, "embed.weight", DI_ST_BF16, 2, good, &t, &err), DI_OK);
        assert_ptr_equal(t, di_st_find(di_checkpoint_tensors(ckpt), "embed.weight"));
    }
    assert_int_equal(di_checkpoint_take(ckpt, "embed.weight", DI_ST_F32, 2, good, &t, &err), DI_ERR_FORMAT);
    assert_message(&err, "tensor embed.weight has dtype BF16; F32 expected");
    assert_message(&err, "model.safetensors");
    assert_int_equal(di_checkpoint_take(ckpt, "embed.weight", DI_ST_BF16, 2, bad, &t, &err), DI_ERR_FORMAT);
    assert_message(&err, "tensor embed.weight has shape [600, 64]; [600, 65] expected");
    assert_int_equal(di_checkpoint_take(ckpt, "embed.weight", DI_ST_BF16, 1, good, &t, &err), DI_ERR_FORMAT);
    assert_message(&err, "[600] expected");
    assert_int_equal(di_checkpoint_take(ckpt, "embed.weight", DI_ST_BF16, 0, NULL, &t, &err), DI_ERR_FORMAT);
    assert_message(&err, "[] expected");
    assert_int_equal(di_checkpoint_take(ckpt, "embed.wight", DI_ST_BF16, 2, good, &t, &err), DI_ERR_NOT_FOUND);
    assert_message(&err, "tensor embed.wight is missing; BF16 [600, 64] expected");
    di_checkpoint_close(ckpt);
    di_checkpoint_close(NULL);
}

static size_t index_of(const struct di_checkpoint *ckpt, const char *name)
{
    const struct di_st_set *set = di_checkpoint_tensors(ckpt);
    return (size_t)(di_st_find(set, name) - di_st_at(set, 0));
}

static void every_tensor_is_accounted_for(void **state)
{
    (void)state;
    struct di_checkpoint *ckpt = open_micro();
    const struct di_st_tensor *t;
    struct di_error err = {0};
    size_t n = di_st_count(di_checkpoint_tensors(ckpt));
    char more[64];
    assert_int_equal(di_checkpoint_finish(ckpt, &err), DI_ERR_UNSUPPORTED);
    assert_message(&err, di_st_at(di_checkpoint_tensors(ckpt), 0)->name);
    snprintf(more, sizeof more, "%zu more", n - 1);
    assert_message(&err, more);
    di_checkpoint_ignore(ckpt, "layers.*.ffn.gate.bias_vl", "text only");
    assert_string_equal(di_checkpoint_ignored_reason(ckpt, index_of(ckpt, "layers.0.ffn.gate.bias_vl")), "text only");
    assert_null(di_checkpoint_ignored_reason(ckpt, index_of(ckpt, "layers.0.ffn.gate.bias")));
    assert_int_equal(di_checkpoint_take(ckpt, "norm.weight", DI_ST_BF16, 1, (int64_t[]){64}, &t, &err), DI_OK);
    di_checkpoint_ignore(ckpt, "layers.", "a prefix");
    di_checkpoint_ignore(ckpt, "nor", "too late: taken");
    assert_string_equal(di_checkpoint_ignored_reason(ckpt, index_of(ckpt, "layers.5.attn_norm.weight")), "a prefix");
    assert_string_equal(di_checkpoint_ignored_reason(ckpt, index_of(ckpt, "layers.3.ffn.gate.bias_vl")), "text only");
    assert_null(di_checkpoint_ignored_reason(ckpt, index_of(ckpt, "norm.weight")));
    assert_int_equal(di_checkpoint_finish(ckpt, &err), DI_ERR_UNSUPPORTED);
    assert_message(&err, "tensor embed.weight");
    assert_message(&err, "1 more");
    di_checkpoint_ignore(ckpt, "embed*weight", "whole name");
    di_checkpoint_ignore(ckpt, "head.weight", "whole name");
    assert_int_equal(di_checkpoint_finish(ckpt, &err), DI_OK);
    di_checkpoint_close(ckpt);
}

static void broken_folders(void **state)
{
    struct folder *f = *state;
    struct di_checkpoint *ckpt;
    struct di_error err = {0};
    assert_int_equal(di_checkpoint_open(f->path, &ckpt, &err), DI_ERR_NOT_FOUND);
    assert_message(&err, "config.json");
    assert_null(ckpt);
    assert_int_equal(symlink(MICRO "/config.json", in_folder(f, "config.json")), 0);
    assert_int_equal(di_checkpoint_open(f->path, &ckpt, &err), DI_ERR_NOT_FOUND);
    assert_message(&err, "model.safetensors.index.json");
    assert_int_equal(symlink(MICRO "/model.safetensors", in_folder(f, "model.safetensors")),
                     0); /* as in the hub's cache */
    assert_int_equal(di_checkpoint_open(f->path, &ckpt, &err), DI_OK);
    di_checkpoint_close(ckpt);
    assert_int_equal(unlink(in_folder(f, "config.json")), 0);
    write_text(f, "config.json", "{}");
    assert_int_equal(di_checkpoint_open(f->path, &ckpt, &err), DI_ERR_FORMAT);
    assert_message(&err, "config.json: model_type is missing");
}

/* Tensor data of a golden file; *count elements of `size` bytes. */
static const void *golden(const struct di_st_set *set, const char *name, enum di_st_dtype dtype, size_t *count)
{
    const struct di_st_tensor *t = di_st_find(set, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, dtype);
    *count = (size_t)t->bytes / di_st_dtype_size(dtype);
    return t->data;
}

static void check_frequencies(const struct di_config *c, const struct di_st_set *set, const char *name, bool compress)
{
    size_t n;
    float table[512];
    const float *wanted = golden(set, name, DI_ST_F32, &n);
    assert_int_equal(n, c->qk_rope_head_dim / 2);
    di_rope_inv_freq(c, compress, table);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(table[i] - wanted[i]) <= 1e-6F * fabsf(wanted[i]));
}

static void check_hashes(const struct di_config *c, const struct di_st_set *set)
{
    size_t n, n_map, n_ids, n_constants;
    const int32_t *tokens = golden(set, "input_ids", DI_ST_I32, &n);
    const int32_t *map = golden(set, "engram.token_map", DI_ST_I32, &n_map);
    const int32_t *wanted = golden(set, "engram.hash_ids", DI_ST_I32, &n_ids);
    const int64_t *multipliers = golden(set, "engram.multipliers", DI_ST_I64, &n_constants);
    const int32_t *primes = golden(set, "engram.primes", DI_ST_I32, &n_constants);
    const int32_t *offsets = golden(set, "engram.offsets", DI_ST_I32, &n_constants);
    int32_t columns = di_engram_columns(c), ngram = c->engram_max_ngram_size, tables = c->n_engram_layers;
    assert_int_equal(n_ids, n * (size_t)tables * (size_t)columns);
    for (int32_t t = 0; t < tables; t++) {
        struct di_engram_consts consts;
        assert_int_equal(di_engram_consts_derive(c, t, &consts, NULL), DI_OK);
        for (int32_t i = 0; i < ngram; i++)
            assert_int_equal(consts.multipliers[i], multipliers[t * ngram + i]);
        for (int32_t i = 0; i < columns; i++) {
            assert_int_equal(consts.primes[i], primes[t * columns + i]);
            assert_int_equal(consts.offsets[i], offsets[t * columns + i]);
        }
        for (int32_t p = 0; p < (int32_t)n; p++) {
            int32_t window[DI_MAX_NGRAM];
            int64_t ids[DI_MAX_ENGRAM_COLUMNS];
            for (int32_t shift = 0; shift < ngram; shift++)
                window[shift] = p - shift < 0 ? -1 : map[tokens[p - shift]];
            di_engram_hash(&consts, ngram, c->engram_n_heads, window, map[c->engram_pad_token_id], ids);
            for (int32_t i = 0; i < columns; i++)
                assert_int_equal(ids[i], wanted[(p * tables + t) * columns + i]);
        }
    }
}

static void golden_constants(void **state)
{
    (void)state;
    static const char *const folders[] = {DI_TEST_DATA "/goldens/micro", DI_TEST_DATA "/goldens/small"};
    for (size_t i = 0; i < 2; i++) {
        char path[512];
        struct di_checkpoint *ckpt;
        struct di_st_set *set;
        struct di_error err = {0};
        if (di_checkpoint_open(folders[i], &ckpt, &err) != DI_OK)
            fail_msg("%s", err.message);
        snprintf(path, sizeof path, "%s/golden.safetensors", folders[i]);
        if (di_st_open(path, &set, &err) != DI_OK)
            fail_msg("%s", err.message);
        check_frequencies(di_checkpoint_config(ckpt), set, "rope.main.inv_freq", false);
        check_frequencies(di_checkpoint_config(ckpt), set, "rope.compress.inv_freq", true);
        check_hashes(di_checkpoint_config(ckpt), set);
        di_st_close(set);
        di_checkpoint_close(ckpt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_checks_dtype_and_shape),
        cmocka_unit_test(every_tensor_is_accounted_for),
        cmocka_unit_test_setup_teardown(broken_folders, folder_setup, folder_teardown),
        cmocka_unit_test(golden_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
