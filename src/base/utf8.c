#include "base/utf8.h"

enum di_utf8_kind di_utf8_next(const uint8_t *b, size_t size, size_t *len, uint32_t *code)
{
    uint8_t lead = b[0], low = 0x80, high = 0xbf;
    size_t need;
    *len = 1;
    if (lead < 0x80) {
        *code = lead;
        return DI_UTF8_CHAR;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        need = 2;
        *code = lead & 0x1fU;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        need = 3;
        *code = lead & 0x0fU;
        low = lead == 0xe0 ? 0xa0 : low;   /* overlong */
        high = lead == 0xed ? 0x9f : high; /* surrogates */
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        need = 4;
        *code = lead & 0x07U;
        low = lead == 0xf0 ? 0x90 : low;
        high = lead == 0xf4 ? 0x8f : high; /* past U+10FFFF */
    } else {
        return DI_UTF8_BROKEN;
    }
    for (; *len < need; ++*len) {
        if (*len == size)
            return DI_UTF8_INCOMPLETE;
        uint8_t next = b[*len];
        if (next < low || next > high)
            return DI_UTF8_BROKEN;
        *code = *code << 6 | (next & 0x3fU);
        low = 0x80;
        high = 0xbf;
    }
    return DI_UTF8_CHAR;
}

size_t di_utf8_valid_prefix(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        size_t len;
        uint32_t code;
        if (di_utf8_next((const uint8_t *)text + at, size - at, &len, &code) != DI_UTF8_CHAR)
            return at;
        at += len;
    }
    return at;
}

size_t di_utf8_put(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}
