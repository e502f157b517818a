#include "text/byte_alphabet.h"

#include <string.h>

#include "base/utf8.h"

static bool is_printable(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

uint32_t di_byte_to_char(uint8_t byte)
{
    uint32_t next = 0x100;
    if (is_printable(byte))
        return byte;
    for (uint32_t b = 0; b < byte; b++)
        next += !is_printable(b);
    return next;
}

/* -1 for a character that stands for no byte. */
static int32_t char_to_byte(uint32_t code)
{
    if (is_printable(code))
        return (int32_t)code;
    uint32_t next = 0x100;
    for (uint32_t b = 0; code >= 0x100 && b < 256; b++)
        if (!is_printable(b) && next++ == code)
            return (int32_t)b;
    return -1;
}

bool di_alphabet_to_bytes(const char *text, size_t size, char *out, size_t *len)
{
    size_t at = 0, count = 0;
    while (at < size) {
        size_t step;
        uint32_t code;
        enum di_utf8_kind kind = di_utf8_next((const uint8_t *)text + at, size - at, &step, &code);
        int32_t byte = kind == DI_UTF8_CHAR ? char_to_byte(code) : -1;
        if (byte < 0) {
            memcpy(out, text, size);
            *len = size;
            return false;
        }
        out[count++] = (char)byte;
        at += step;
    }
    *len = count;
    return true;
}

size_t di_bytes_to_alphabet(const char *bytes, size_t size, char *out)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += di_utf8_put(di_byte_to_char((uint8_t)bytes[i]), out + count);
    return count;
}
