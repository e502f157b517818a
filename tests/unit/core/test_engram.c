/* Engram's constants and hash, held against the released values (spec/model.md section 13) and against those of the
 * golden checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/engram.h"
#include "released.h"

static const int64_t released_primes[2][24] = {
    {16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,
     16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,
     16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463},
    {16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627,
     16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769,
     16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889},
};
static const int64_t released_multipliers[2][4] = {
    {76632096046245, 4839876093313, 35959672319349, 73987337458391},
    {67716810739261, 51510806800915, 30921347202721, 82619226485591},
};
static const int64_t worked_ids[2][24] = {
    {4917917,   28571042,  36508848,  60554221,  69099093,  90208027,  102186350, 116004992,
     134050058, 151018382, 162733275, 191055299, 197088800, 220921989, 232691392, 240913791,
     262586514, 277991531, 297045427, 309776369, 324783794, 341074726, 360516199, 375807025},
    {11939359,  28842065,  46435676,  62353022,  71568175,  89509937,  102984726, 127165212,
     139971921, 157408611, 174975554, 183502144, 203941466, 217869530, 230777463, 240217801,
     259560104, 281029185, 289897619, 310554461, 322416404, 351388453, 364765677, 370789351},
};

static struct di_engram_consts derive(const struct di_config *c, int32_t table)
{
    struct di_engram_consts consts;
    struct di_error err = {0};
    if (di_engram_consts_derive(c, table, &consts, &err) != DI_OK)
        fail_msg("%s", err.message);
    return consts;
}

static void released_constants(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    for (int32_t t = 0; t < 2; t++) {
        struct di_engram_consts consts = derive(&c, t);
        int64_t offset = 0;
        assert_int_equal(consts.columns, 24);
        for (int32_t i = 0; i < 24; i++) {
            assert_int_equal(consts.primes[i], released_primes[t][i]);
            assert_int_equal(consts.offsets[i], offset);
            offset += released_primes[t][i];
        }
        for (int32_t i = 0; i < 4; i++)
            assert_int_equal(consts.multipliers[i], released_multipliers[t][i]);
        assert_int_equal(consts.rows, t == 0 ? 384006168 : 384016682);
    }
}

static void hash(int32_t table, const int32_t *window, int64_t *ids)
{
    struct di_config c;
    released_config(&c);
    struct di_engram_consts consts = derive(&c, table);
    di_engram_hash(&consts, 4, 8, window, 2, ids);
}

static void worked_examples(void **state)
{
    (void)state;
    int64_t ids[24], blocked[24];
    for (int32_t t = 0; t < 2; t++) {
        hash(t, (const int32_t[]){99091, 174, 35, 7}, ids);
        assert_memory_equal(ids, worked_ids[t], sizeof ids);
    }
    hash(0, (const int32_t[]){0, -1, -1, -1}, ids); /* the first position */
    assert_int_equal(ids[0], 5702652);
    assert_int_equal(ids[1], 24393184);
    assert_int_equal(ids[2], 39183301);
    hash(1, (const int32_t[]){0, -1, -1, -1}, ids);
    assert_int_equal(ids[0], 14361964);
    assert_int_equal(ids[1], 29977809);
    assert_int_equal(ids[2], 32716444);
    hash(0, (const int32_t[]){99091, 174, -1, 7}, blocked); /* what lies behind a dead position is not seen */
    assert_memory_equal(blocked, worked_ids[0], 8 * sizeof *blocked);
    assert_int_equal(blocked[8], 138034560);
    assert_int_equal(blocked[9], 159376832);
    hash(0, (const int32_t[]){99091, 174, 2, 2}, ids);
    assert_memory_equal(ids, blocked, sizeof ids);
    hash(0, (const int32_t[]){-1, 174, 35, 7}, blocked); /* a dead position itself */
    hash(0, (const int32_t[]){2, 2, 2, 2}, ids);
    assert_memory_equal(ids, blocked, sizeof ids);
}

static void golden_constants(void **state)
{
    (void)state;
    static const struct {
        int32_t layers[2], ngram, heads, compressed;
        int64_t vocab, rows[2], multipliers[8], primes[16], offsets[16];
    } goldens[] = {
        {{1, 3},
         3,
         2,
         465,
         500,
         {2056, 2208},
         {16330382067558351, 1031382799652953, 7663044837567663, 5866028194901849, 17401672112797673, 2318098833615399},
         {503, 509, 521, 523, 541, 547, 557, 563},
         {0, 503, 1012, 1533, 0, 541, 1088, 1645}},
        {{1, 4},
         4,
         2,
         762,
         1000,
         {6126, 6332},
         {9965390631777733, 629387141520503, 4676267518988141, 9621460949379299, 10697282920419529, 655124523818701,
          9578042131929237, 2464928189265969},
         {1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069},
         {0, 1009, 2022, 3041, 4062, 5093, 0, 1039, 2088, 3139, 4200, 5263}},
    };
    for (size_t g = 0; g < sizeof goldens / sizeof goldens[0]; g++) {
        struct di_config c;
        released_config(&c);
        c.engram_max_ngram_size = goldens[g].ngram;
        c.engram_n_heads = goldens[g].heads;
        c.engram_compressed_vocab_size = goldens[g].compressed;
        c.engram_vocab_size = goldens[g].vocab;
        for (int32_t t = 0; t < 2; t++) {
            c.engram_layer_ids[t] = goldens[g].layers[t];
            c.engram_num_embeddings[t] = goldens[g].rows[t];
        }
        int32_t columns = di_engram_columns(&c), ngram = goldens[g].ngram;
        for (int32_t t = 0; t < 2; t++) {
            struct di_engram_consts consts = derive(&c, t);
            assert_memory_equal(consts.primes, goldens[g].primes + t * columns, (size_t)columns * sizeof(int64_t));
            assert_memory_equal(consts.offsets, goldens[g].offsets + t * columns, (size_t)columns * sizeof(int64_t));
            assert_memory_equal(consts.multipliers, goldens[g].multipliers + t * ngram,
                                (size_t)ngram * sizeof(int64_t));
        }
    }
}

static void errors_name_both_counts(void **state)
{
    (void)state;
    struct di_config c;
    released_config(&c);
    struct di_engram_consts consts;
    struct di_error err = {0};
    c.engram_num_embeddings[0] = 384006169;
    assert_int_equal(di_engram_consts_derive(&c, 0, &consts, &err), DI_ERR_FORMAT);
    assert_non_null(strstr(err.message, "engram_num_embeddings[0] is 384006169"));
    assert_non_null(strstr(err.message, "384006168"));
    c.engram_n_heads = 43; /* 129 columns */
    assert_int_equal(di_engram_consts_derive(&c, 0, &consts, &err), DI_ERR_LIMIT);
    assert_non_null(strstr(err.message, "129"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_constants),
        cmocka_unit_test(worked_examples),
        cmocka_unit_test(golden_constants),
        cmocka_unit_test(errors_name_both_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
