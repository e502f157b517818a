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
#include "base/threads.h"
#include "base/utf8.h"
#include "text/token_map.h"
#include "text/tokenizer_json.h"

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

static json_t *step(json_t *root, size_t index)
{
    return json_array_get(json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers"), index);
}

static void every_section_refuses_what_it_does_not_know(void **state)
{
    (void)state;
    static const char *const sections[] = {"model", "pre_tokenizer", "post_processor", "decoder"};
    json_t *root = micro_json();
    json_object_set_new(root, "surprise", json_null());
    refused(root, DI_ERR_UNSUPPORTED, ": surprise is");
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        char culprit[64];
        root = micro_json();
        json_object_set_new(json_object_get(root, sections[i]), "surprise", json_true());
        snprintf(culprit, sizeof culprit, "%s.surprise", sections[i]);
        refused(root, DI_ERR_UNSUPPORTED, culprit);
    }
    root = micro_json();
    json_object_set_new(step(root, 2), "surprise", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[2].surprise");
    root = micro_json();
    json_object_set_new(step(root, 3), "surprise", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[3].surprise");
    root = micro_json();
    json_object_set_new(step(root, 3), "use_regex", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[3].use_regex");
    root = micro_json();
    json_object_set_new(step(root, 3), "add_prefix_space", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[3].add_prefix_space");
    root = micro_json();
    json_object_set_new(step(root, 1), "invert", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[1].invert");
    root = micro_json();
    json_object_set_new(step(root, 1), "pattern", json_pack("{s:s}", "String", "a"));
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[1].pattern");
    root = micro_json();
    json_object_set_new(json_object_get(step(root, 1), "pattern"), "Regex", json_string("\\w+"));
    refused(root, DI_ERR_UNSUPPORTED, "pretokenizers[1]: an escape");
    root = micro_json();
    json_object_set_new(json_array_get(json_object_get(root, "added_tokens"), 2), "surprise", json_true());
    refused(root, DI_ERR_UNSUPPORTED, "added_tokens[2].surprise");
    root = micro_json();
    json_object_set_new(root, "version", json_string("2.0"));
    refused(root, DI_ERR_UNSUPPORTED, "version");
    root = micro_json();
    json_object_set_new(root, "truncation", json_pack("{s:i}", "max_length", 5));
    refused(root, DI_ERR_UNSUPPORTED, "truncation");
    root = micro_json();
    json_object_set_new(root, "padding", json_pack("{s:i}", "pad_id", 0));
    refused(root, DI_ERR_UNSUPPORTED, "padding");
    root = micro_json();
    json_object_set_new(root, "post_processor", json_pack("{s:s}", "type", "TemplateProcessing"));
    refused(root, DI_ERR_UNSUPPORTED, "post_processor.type");
    root = micro_json();
    json_object_set_new(json_object_get(root, "model"), "unk_token", json_string("<unk>"));
    refused(root, DI_ERR_UNSUPPORTED, "model.unk_token");
    root = micro_json();
    json_object_set_new(json_object_get(root, "model"), "end_of_word_suffix", json_string("</w>"));
    refused(root, DI_ERR_UNSUPPORTED, "model.end_of_word_suffix");
}

/* One more added token, with id and content. */
static json_t *with_added(int id, const char *content)
{
    json_t *root = micro_json(), *list = json_object_get(root, "added_tokens");
    json_t *token = json_deep_copy(json_array_get(list, 0));
    json_object_set_new(token, "id", json_integer(id));
    json_object_set_new(token, "content", json_string(content));
    json_array_append_new(list, token);
    return root;
}

static void added_tokens_have_the_ids_that_they_would_be_given(void **state)
{
    (void)state;
    refused(with_added(700, "zebra"), DI_ERR_UNSUPPORTED, "added_tokens[8].id is 700");
    refused(with_added(100, "zebra"), DI_ERR_UNSUPPORTED, "added_tokens[8].id is 100");
    refused(with_added(600, "a"), DI_ERR_UNSUPPORTED, "added_tokens[8].id is 600"); /* of the vocabulary */
    refused(with_added(600, "<think>"), DI_ERR_FORMAT, "\"<think>\" is given twice");
    refused(with_added(5, "<think>"), DI_ERR_FORMAT, "added_tokens[8].id 5 is given twice");
    refused(with_added(600, ""), DI_ERR_FORMAT, "added_tokens[8].content");
    json_t *root = with_added(601, "zebra"); /* 601 tokens, the last of them with the id that zebra would get */
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "Zz", json_integer(601));
    refused(root, DI_ERR_FORMAT, "added_tokens[8].id 601");
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

/* Encoded, streamed and mapped by a tokenizer opened for it; which allocation fails is set before. */
struct outcome {
    di_token_list ids;
    int32_t map[600], count;
    char text[64];
};

static di_status whole_life(struct outcome *out, struct di_error *err)
{
    di_tokenizer *tok = NULL;
    di_detokenizer *detok = NULL;
    const char *shown;
    size_t len, used = 0;
    di_status status = di_tokenizer_open(MICRO, &tok, err);
    if (status == DI_OK)
        status = di_tokenizer_encode(tok, "some text <think> more", 22, true, &out->ids, err);
    if (status == DI_OK)
        status = di_detokenizer_open(tok, false, &detok, err);
    for (size_t i = 0; i < out->ids.count && status == DI_OK; i++) {
        status = di_detokenizer_feed(detok, out->ids.ids[i], &shown, &len, err);
        if (status == DI_OK && used + len < sizeof out->text)
            memcpy(out->text + used, shown, len);
        used += status == DI_OK ? len : 0;
    }
    if (status == DI_OK)
        status = di_detokenizer_finish(detok, &shown, &len, err);
    if (status == DI_OK)
        status = di_token_map_build(tok, 600, out->map, &out->count, err);
    di_detokenizer_close(detok);
    di_tokenizer_close(tok);
    return status;
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    struct di_error err = {0};
    struct outcome plain = {0};
    assert_int_equal(whole_life(&plain, &err), DI_OK);
    assert_string_equal(plain.text, "some text <think> more");
    int survived = 0;
    for (uint64_t n = 1;; n++) {
        struct outcome out = {0};
        err = (struct di_error){0};
        di_mem_fail_after(n);
        di_status status = whole_life(&out, &err);
        bool reached = di_mem_fail_after(0) >= n;
        if (status == DI_OK) { /* a pattern that could not be compiled to machine code is interpreted */
            survived += reached;
            assert_int_equal(out.ids.count, plain.ids.count);
            assert_memory_equal(out.ids.ids, plain.ids.ids, plain.ids.count * sizeof *plain.ids.ids);
            assert_memory_equal(out.map, plain.map, sizeof plain.map);
        } else {
            assert_int_equal(status, DI_ERR_NOMEM);
            assert_int_equal(err.code, DI_ERR_NOMEM);
        }
        di_token_list_free(&out.ids);
        if (!reached)
            break;
    }
    assert_in_range(survived, 0, 64); /* eight or so for each pattern */
    di_token_list_free(&plain.ids);
}

static void golden_cases(const char *folder)
{
    struct di_error err = {0};
    char path[512], *text;
    size_t size, index;
    json_t *cases, *entry;
    di_tokenizer *tok;
    snprintf(path, sizeof path, DI_TEST_DATA "/goldens/%s/tokenizer_cases.json", folder);
    assert_int_equal(di_file_read(path, 1 << 24, &text, &size, &err), DI_OK);
    cases = json_loadb(text, size, JSON_ALLOW_NUL, NULL); /* id of byte 0 decodes to it */
    assert_non_null(cases);
    free(text);
    snprintf(path, sizeof path, DI_TEST_DATA "/goldens/%s/tokenizer.json", folder);
    assert_int_equal(di_tokenizer_open(path, &tok, &err), DI_OK);
    assert_true(json_array_size(json_object_get(cases, "encode")) > 0);
    json_array_foreach (json_object_get(cases, "encode"), index, entry) {
        const json_t *string = json_object_get(entry, "text"), *ids = json_object_get(entry, "ids");
        di_token_list list = {0};
        assert_int_equal(
            di_tokenizer_encode(tok, json_string_value(string), json_string_length(string), true, &list, &err), DI_OK);
        assert_int_equal(list.count, json_array_size(ids));
        for (size_t i = 0; i < list.count; i++)
            assert_int_equal(list.ids[i], json_integer_value(json_array_get(ids, i)));
        di_token_list_free(&list);
    }
    json_array_foreach (json_object_get(cases, "decode"), index, entry) {
        di_detokenizer *detok;
        const char *shown;
        size_t len, used;
        char all[256] = "";
        assert_int_equal(di_detokenizer_open(tok, false, &detok, &err), DI_OK);
        assert_int_equal(di_detokenizer_feed(detok, (int32_t)index, &shown, &len, &err), DI_OK);
        assert_true(len < sizeof all / 2);
        memcpy(all, shown, len);
        used = len;
        assert_int_equal(di_detokenizer_finish(detok, &shown, &len, &err), DI_OK);
        assert_true(len < sizeof all / 2);
        memcpy(all + used, shown, len);
        assert_int_equal(used + len, json_string_length(entry));
        assert_memory_equal(all, json_string_value(entry), used + len);
        di_detokenizer_close(detok);
    }
    di_tokenizer_close(tok);
    json_decref(cases);
}

static void golden_cases_of_both_sets(void **state)
{
    (void)state;
    golden_cases("micro");
    golden_cases("small");
}

/* Maximal subparts (Unicode 3.9, table 3-8): how many U+FFFD come out, and when. */
static void broken_bytes_become_replacements(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *shown;
    } cases[] = {
        {"\xE2\x82\xAC", "\xE2\x82\xAC"},
        {"\xE2\x82", "?"},
        {"\xE2\x82"
         "a",
         "?a"},
        {"\xE2\xE2\x82\xAC", "?\xE2\x82\xAC"},
        {"\xC0\x80", "??"},
        {"\xED\xA0\x80", "???"},
        {"\xF0\x80\x80", "???"},
        {"\xF4\x90\x80\x80", "????"},
        {"\xF1\x80\x80\xE1\x80\xC2"
         "b",
         "???b"},
        {"\xF0\x9F\x8C", "?"},
        {"\x80\xBF\xFF", "???"},
    };
    struct di_error err = {0};
    di_tokenizer *tok = micro();
    di_detokenizer *detok;
    assert_int_equal(di_detokenizer_open(tok, false, &detok, &err), DI_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char wanted[32] = "", all[64] = "";
        const char *shown;
        size_t len;
        size_t n = 0;
        for (const char *c = cases[i].shown; *c != '\0'; c++) {
            const char *part = *c == '?' ? "\xEF\xBF\xBD" : c;
            size_t part_len = *c == '?' ? 3 : 1;
            memcpy(wanted + n, part, part_len);
            n += part_len;
        }
        for (const char *c = cases[i].bytes; *c != '\0'; c++) {
            assert_int_equal(di_detokenizer_feed(detok, di_tokenizer_lookup(tok, c, 1), &shown, &len, &err), DI_OK);
            assert_int_equal(di_utf8_valid_prefix(shown, len), len);
            strncat(all, shown, 16);
        }
        assert_int_equal(di_detokenizer_finish(detok, &shown, &len, &err), DI_OK);
        strncat(all, shown, 16);
        assert_string_equal(all, wanted);
    }
    di_detokenizer_close(detok);
    di_tokenizer_close(tok);
}

struct shared {
    const di_tokenizer *tok;
    di_token_list wanted;
    int32_t wrong[16];
};

static const char shared_text[] = "Hello  w\xC3\xB6rld 12345\n\n<think>\xE4\xB8\xAD\xE6\x96\x87 !? and more   ";

static void encode_again(void *arg, int64_t begin, int64_t end, int32_t member)
{
    struct shared *s = arg;
    for (int64_t i = begin; i < end; i++) {
        di_token_list ids = {0};
        di_status status = di_tokenizer_encode(s->tok, shared_text, sizeof shared_text - 1, true, &ids, NULL);
        s->wrong[member] += status != DI_OK || ids.count != s->wanted.count ||
                            memcmp(ids.ids, s->wanted.ids, ids.count * sizeof *ids.ids) != 0;
        di_token_list_free(&ids);
    }
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct di_error err = {0};
    struct di_team *team;
    di_tokenizer *tok = micro();
    struct shared s = {.tok = tok};
    assert_int_equal(di_tokenizer_encode(tok, shared_text, sizeof shared_text - 1, true, &s.wanted, &err), DI_OK);
    assert_int_equal(di_team_open(4, NULL, &team, &err), DI_OK);
    di_team_run(team, 400, encode_again, &s);
    for (int32_t i = 0; i < 16; i++)
        assert_int_equal(s.wrong[i], 0);
    di_team_close(team);
    di_token_list_free(&s.wanted);
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_ask_for_more_are_refused),
        cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(invalid_text_leaves_the_list_alone),
        cmocka_unit_test(single_tokens),
        cmocka_unit_test(streamed_text_is_valid_at_every_moment),
        cmocka_unit_test(maps_need_every_id),
        cmocka_unit_test(every_failed_allocation_is_an_error),
        cmocka_unit_test(golden_cases_of_both_sets),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(broken_bytes_become_replacements),
        cmocka_unit_test(every_section_refuses_what_it_does_not_know),
        cmocka_unit_test(added_tokens_have_the_ids_that_they_would_be_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
