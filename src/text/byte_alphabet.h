/* text/byte_alphabet.h - the printable alphabet in which byte-level BPE files write bytes. Private to text/.
 *
 * Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 onwards in ascending order (GPT-2's mapping). */
#ifndef DI_TEXT_BYTE_ALPHABET_H
#define DI_TEXT_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character that stands for a byte. */
uint32_t di_byte_to_char(uint8_t byte);

/* Translates `text` to the *len bytes it stands for. out holds at least size bytes. If any character is outside the
 * alphabet, the text stands for itself: it is copied, and the result is false. */
bool di_alphabet_to_bytes(const char *text, size_t size, char *out, size_t *len);

/* The other way: out holds at least 2 * size bytes. Returns the length. */
size_t di_bytes_to_alphabet(const char *bytes, size_t size, char *out);

#endif
