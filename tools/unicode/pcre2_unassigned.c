/* Prints every code point that this machine's PCRE2 holds for unassigned (\p{Cn}).
 * cc tools/unicode/pcre2_unassigned.c -lpcre2-32 -o /tmp/pcre2_unassigned */
#define PCRE2_CODE_UNIT_WIDTH 32
#include <pcre2.h>
#include <stdio.h>

int main(void)
{
    int error;
    PCRE2_SIZE offset;
    const PCRE2_UCHAR32 pattern[] = {'\\', 'p', '{', 'C', 'n', '}', 0};
    pcre2_code *code = pcre2_compile(pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    for (PCRE2_UCHAR32 c = 0; code != NULL && c <= 0x10ffff; c++)
        if ((c < 0xd800 || c >= 0xe000) && pcre2_match(code, &c, 1, 0, PCRE2_ANCHORED, match, NULL) > 0)
            printf("%x\n", (unsigned)c);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return 0;
}
