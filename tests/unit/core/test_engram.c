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

/* numpy.random.default_rng(10007 * layer).integers(0, bound, 8), doubled plus one, over layers and vocabularies; the small
 * vocabularies make the draw reject. */
static const struct {
    int32_t layer, compressed;
    int64_t multipliers[8];
} numpys_multipliers[] = {
    {0,
     1,
     {5874934615388537135, 2488343231644625807, 377914054924498011, 152440531369162767, 7501093982645987483,
      8418684267946577445, 5595227450766711103, 6728418181561535777}},
    {0,
     2,
     {2937467307694268567, 1244171615822312903, 188957027462249005, 76220265684581383, 3750546991322993741,
      4209342133973288721, 2797613725383355551, 3364209090780767887}},
    {0,
     3,
     {1958311538462845711, 829447743881541935, 125971351641499337, 50813510456387589, 2500364660881995827,
      2806228089315525815, 1865075816922237035, 2242806060520511925}},
    {0,
     600,
     {9791557692314227, 4147238719407709, 629856758207497, 254067552281937, 12501823304409979, 14031140446577629,
      9325379084611185, 11214030302602559}},
    {0,
     4194304,
     {1400693563315, 593267257605, 90101731997, 36344654887, 1788400169049, 2007170741067, 1334006178561,
      1604179902447}},
    {1,
     1,
     {7593627661414633239, 479593001838623259, 3563315849468963733, 7331553243427025311, 3959433267402557499,
      6976413731397036915, 2051685711510836337, 207909982170572131}},
    {1,
     2,
     {3796813830707316619, 239796500919311629, 1781657924734481865, 3665776621713512655, 1979716633701278749,
      3488206865698518457, 1025842855755418169, 103954991085286065}},
    {1,
     3,
     {2531209220471544413, 159864333946207753, 1187771949822987911, 2443851081142341771, 1319811089134185833,
      2325471243799012305, 683895237170278779, 69303327390190711}},
    {1,
     600,
     {12656046102357721, 799321669731039, 5938859749114939, 12219255405711709, 6599055445670929, 11627356218995061,
      3419476185851393, 346516636950953}},
    {1,
     4194304,
     {1810461917259, 114343882045, 849560701719, 1747978506903, 944002453661, 1663306649063, 489159992101,
      49569602531}},
    {3,
     1,
     {2727703110629360017, 8091777532450917643, 1077915957631160223, 6965864756390094161, 4322011878431971247,
      8171479114830224367, 5509704406491442791, 8824139546711138397}},
    {3,
     2,
     {1363851555314680009, 4045888766225458821, 538957978815580111, 3482932378195047079, 2161005939215985623,
      4085739557415112183, 2754852203245721395, 4412069773355569197}},
    {3,
     3,
     {909234370209786673, 2697259177483639215, 359305319210386741, 2321954918796698053, 1440670626143990415,
      2723826371610074789, 1836568135497147597, 2941379848903712799}},
    {3,
     600,
     {4546171851048933, 13486295887418195, 1796526596051933, 11609774593983489, 7203353130719951, 13619131858050373,
      9182840677485737, 14706899244518563}},
    {3,
     4194304,
     {650335099847, 1929230101691, 256995191009, 1660791577431, 1030447930915, 1948232439715, 1313615895865,
      2103838812519}},
    {5,
     1,
     {3607112625930810491, 3066986572837700863, 2018164768241499367, 6530809640164037141, 7292918472931612261,
      1828427798697120607, 2268473306584661267, 947057222015170629}},
    {5,
     2,
     {1803556312965405245, 1533493286418850431, 1009082384120749683, 3265404820082018569, 3646459236465806129,
      914213899348560303, 1134236653292330633, 473528611007585315}},
    {5,
     3,
     {1202370875310270163, 1022328857612566955, 672721589413833123, 2176936546721345713, 2430972824310537421,
      609475932899040203, 756157768861553755, 315685740671723543}},
    {5,
     600,
     {6011854376551351, 5111644288062835, 3363607947069165, 10884682733606727, 12154864121552687, 3047379664495201,
      3780788844307769, 1578428703358617}},
    {5,
     4194304,
     {860002666933, 731226580819, 481167976437, 1557066354789, 1738767259819, 435931157755, 540846182485,
      225796037201}},
    {200,
     1,
     {9041083460569051293, 3557566029517693615, 8245928025097949061, 3552164708494211655, 507786188529338401,
      943973581272629275, 3404204089252556013, 7433317253504526827}},
    {200,
     2,
     {4520541730284525645, 1778783014758846807, 4122964012548974529, 1776082354247105827, 253893094264669201,
      471986790636314637, 1702102044626278005, 3716658626752263413}},
    {200,
     3,
     {3013694486856350431, 1185855343172564539, 2748642675032649687, 1184054902831403885, 169262062843112801,
      314657860424209759, 1134734696417518671, 2477772417834842275}},
    {200,
     600,
     {15068472434281751, 5929276715862823, 13743213375163247, 5920274514157019, 846310314215563, 1573289302121049,
      5673673482087593, 12388862089174211}},
    {200,
     4194304,
     {2155562272205, 848189837817, 1965982443115, 846902062533, 121065661557, 225060839957, 811625501931,
      1772240937591}},
    {255,
     1,
     {4404733824791816291, 4146200901960049201, 8286808914488448223, 5162506130513655113, 8859874813736309029,
      231622032256906249, 6671338401085929829, 3956888349663791791}},
    {255,
     2,
     {2202366912395908145, 2073100450980024599, 4143404457244224111, 2581253065256827557, 4429937406868154513,
      115811016128453125, 3335669200542964915, 1978444174831895895}},
    {255,
     3,
     {1468244608263938763, 1382066967320016401, 2762269638162816075, 1720835376837885037, 2953291604578769677,
      77207344085635417, 2223779467028643277, 1318962783221263931}},
    {255,
     600,
     {7341223041319693, 6910334836600081, 13811348190814079, 8604176884189425, 14766458022893847, 386036720428177,
      11118897335143215, 6594813916106319}},
    {255,
     4194304,
     {1050170379827, 988531327715, 1975729206677, 1230837376239, 2112358764107, 55222995819, 1590571022291,
      943395697989}},
};

static void multipliers_are_numpys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numpys_multipliers / sizeof numpys_multipliers[0]; i++) {
        struct di_config c;
        struct di_engram_consts consts;
        released_config(&c);
        c.n_engram_layers = 1;
        c.engram_layer_ids[0] = numpys_multipliers[i].layer;
        c.engram_compressed_vocab_size = numpys_multipliers[i].compressed;
        c.engram_max_ngram_size = 8;
        c.engram_n_heads = 1;
        c.engram_vocab_size = 2; /* the first seven primes */
        c.engram_num_embeddings[0] = 2 + 3 + 5 + 7 + 11 + 13 + 17;
        consts = derive(&c, 0);
        assert_memory_equal(consts.multipliers, numpys_multipliers[i].multipliers,
                            sizeof numpys_multipliers[i].multipliers);
        assert_int_equal(consts.primes[0], 2);
        assert_int_equal(consts.primes[6], 17);
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
        cmocka_unit_test(released_constants),      cmocka_unit_test(worked_examples),
        cmocka_unit_test(golden_constants),        cmocka_unit_test(multipliers_are_numpys),
        cmocka_unit_test(errors_name_both_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
