/* The tokenizer's files and edges. Equality with other implementations is tested in tests/python/test_tokenizer.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/token_map.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

#define MICRO DI_TEST_DATA "/goldens/micro/tokenizer.json"

static di_tokenizer *micro(void)
{
    struct di_error err = {0};
    di_tokenizer *tok;
    assert_int_equal(di_tokenizer_open(MICRO, &tok, &err), DI_OK);
    return tok;
}

static json_t *micro_json(void)
{
    struct di_error err = {0};
    char *text;
    size_t size;
    json_t *root;
    assert_int_equal(di_file_read(MICRO, 1 << 24, &text, &size, &err), DI_OK);
    assert_int_equal(di_json_parse(text, size, "micro", &root, &err), DI_OK);
    free(text);
    return root;
}

/* Opens the changed file, expects a refusal whose message holds `culprit`. Takes root. */
static void refused(json_t *root, di_status status, const char *culprit)
{
    struct di_error err = {0};
    di_tokenizer *tok;
    char *text = json_dumps(root, JSON_COMPACT);
    assert_int_equal(di_tokenizer_open_memory(text, strlen(text), "changed.json", &tok, &err), status);
    if (strstr(err.message, culprit) == NULL)
        fail_msg("\"%s\" does not name \"%s\"", err.message, culprit);
    assert_non_null(strstr(err.message, "changed.json"));
    free(text);
    json_decref(root);
}

static void files_that_ask_for_more_are_refused(void **state)
{
    (void)state;
    json_t *root = micro_json();
    json_object_set_new(json_object_get(root, "model"), "dropout", json_real(0.1));
    refused(root, DI_ERR_UNSUPPORTED, "model.dropout");
    root = micro_json();
    json_object_set_new(json_object_get(root, "model"), "byte_fallback", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "model.byte_fallback");
    root = micro_json();
    json_object_set_new(json_object_get(root, "model"), "type", json_string("Unigram"));
    refused(root, DI_ERR_UNSUPPORTED, "model.type");
    root = micro_json();
    json_object_set_new(root, "normalizer", json_pack("{s:s}", "type", "NFC"));
    refused(root, DI_ERR_UNSUPPORTED, "normalizer");
    root = micro_json();
    json_object_set_new(json_array_get(json_object_get(root, "added_tokens"), 3), "lstrip", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "added_tokens[3].lstrip");
    root = micro_json();
    json_object_set_new(json_object_get(root, "decoder"), "type", json_string("WordPiece"));
    refused(root, DI_ERR_UNSUPPORTED, "decoder.type");
    root = micro_json();
    json_t *splits = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    json_object_set_new(json_array_get(splits, 1), "behavior", json_string("Removed"));
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[1].behavior");
    root = micro_json();
    splits = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    json_object_set_new(json_object_get(json_array_get(splits, 0), "pattern"), "Regex", json_string("(unclosed"));
    refused(root, DI_ERR_UNSUPPORTED, "(unclosed");
}

static void malformed_files_are_refused(void **state)
{
    (void)state;
    json_t *root = micro_json();
    json_array_append_new(json_object_get(json_object_get(root, "model"), "merges"), json_string("zz qq"));
    refused(root, DI_ERR_FORMAT, "model.merges");
    root = micro_json();
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "again", json_integer(9));
    refused(root, DI_ERR_FORMAT, "id 9");
    root = micro_json();
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "far", json_integer(1LL << 40));
    refused(root, DI_ERR_FORMAT, "\"far\"");
    root = micro_json();
    json_object_del(json_object_get(json_object_get(root, "model"), "vocab"), "A");
    refused(root, DI_ERR_UNSUPPORTED, "byte 0x41");
    root = micro_json();
    json_object_del(root, "model");
    refused(root, DI_ERR_FORMAT, "model is missing");
    refused(json_array(), DI_ERR_FORMAT, "not a JSON object");
}

static void invalid_text_leaves_the_list_alone(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_tokenizer *tok = micro();
    di_token_list ids = {0};
    assert_int_equal(di_tokenizer_encode(tok, "ok", 2, true, &ids, &err), DI_OK);
    size_t before = ids.count;
    assert_int_equal(di_tokenizer_encode(tok, "bad \xff text", 10, true, &ids, &err), DI_ERR_INVALID);
    assert_non_null(strstr(err.message, "byte 4"));
    assert_int_equal(ids.count, before);
    assert_int_equal(di_tokenizer_encode(tok, "a\0b", 3, true, &ids, &err), DI_OK); /* a zero byte is text */
    di_token_list_free(&ids);
    di_tokenizer_close(tok);
}

static void single_tokens(void **state)
{
    (void)state;
    size_t len;
    di_tokenizer *tok = micro();
    assert_int_equal(di_tokenizer_vocab_size(tok), 600);
    assert_int_equal(di_tokenizer_find(tok, "<think>"), 5);
    assert_true(di_tokenizer_is_special(tok, 5));
    assert_false(di_tokenizer_is_special(tok, 100));
    assert_false(di_tokenizer_is_special(tok, -1));
    assert_int_equal(di_tokenizer_find(tok, "no such token at all"), -1);
    assert_int_equal(di_tokenizer_find(tok, ""), -1);
    assert_null(di_tokenizer_token_bytes(tok, 600, &len));
    assert_null(di_tokenizer_token_bytes(tok, -1, &len));
    di_tokenizer_close(tok);
}

static void streamed_text_is_valid_at_every_moment(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_tokenizer *tok = micro();
    di_detokenizer *detok;
    const char *text;
    size_t len;
    int32_t bytes[4];
    const char *earth = "\xF0\x9F\x8C\x8D";
    for (int i = 0; i < 4; i++)
        bytes[i] = di_tokenizer_lookup(tok, earth + i, 1);
    assert_int_equal(di_detokenizer_open(tok, true, &detok, &err), DI_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(di_detokenizer_feed(detok, bytes[i], &text, &len, &err), DI_OK);
        assert_int_equal(len, i == 3 ? 4 : 0);
    }
    assert_memory_equal(text, earth, 4);
    di_detokenizer_feed(detok, bytes[0], &text, &len, &err); /* begun, never ended */
    assert_int_equal(di_detokenizer_feed(detok, di_tokenizer_lookup(tok, "a", 1), &text, &len, &err), DI_OK);
    assert_string_equal(text, "\xEF\xBF\xBD"
                              "a");
    di_detokenizer_feed(detok, bytes[0], &text, &len, &err);
    assert_int_equal(di_detokenizer_finish(detok, &text, &len, &err), DI_OK);
    assert_string_equal(text, "\xEF\xBF\xBD");
    assert_int_equal(di_detokenizer_finish(detok, &text, &len, &err), DI_OK); /* anew */
    assert_int_equal(len, 0);
    assert_int_equal(di_detokenizer_feed(detok, 1, &text, &len, &err), DI_OK); /* special: left out */
    assert_int_equal(len, 0);
    assert_int_equal(di_detokenizer_feed(detok, 600, &text, &len, &err), DI_ERR_RANGE);
    assert_non_null(strstr(err.message, "600"));
    di_detokenizer_close(detok);
    di_tokenizer_close(tok);
}

static void maps_need_every_id(void **state)
{
    (void)state;
    struct di_error err = {0};
    di_tokenizer *tok = micro();
    int32_t map[601], count;
    assert_int_equal(di_token_map_build(tok, 600, map, &count, &err), DI_OK);
    assert_int_equal(count, 465);
    assert_int_equal(di_token_map_build(tok, 601, map, &count, &err), DI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "600"));
    di_tokenizer_close(tok);
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    bool done = false;
    for (uint64_t n = 1; !done; n += 1 + n / 20) {
        struct di_error err = {0};
        di_tokenizer *tok = NULL;
        di_token_list ids = {0};
        int32_t map[600], count;
        di_mem_fail_after(n);
        di_status status = di_tokenizer_open(MICRO, &tok, &err);
        if (status == DI_OK)
            status = di_tokenizer_encode(tok, "some text <think> more", 22, true, &ids, &err);
        if (status == DI_OK)
            status = di_token_map_build(tok, 600, map, &count, &err);
        di_mem_fail_after(0);
        done = status == DI_OK;
        if (!done)
            assert_int_equal(status, DI_ERR_NOMEM);
        di_token_list_free(&ids);
        di_tokenizer_close(tok);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_ask_for_more_are_refused),    cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(invalid_text_leaves_the_list_alone),     cmocka_unit_test(single_tokens),
        cmocka_unit_test(streamed_text_is_valid_at_every_moment), cmocka_unit_test(maps_need_every_id),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
