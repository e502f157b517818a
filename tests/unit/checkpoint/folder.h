/* A scratch folder and hand-made files for the tests of checkpoint/. Include after cmocka.h. */
#ifndef DI_CHECKPOINT_FOLDER_H
#define DI_CHECKPOINT_FOLDER_H

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

struct folder {
    char path[64];
};

static inline int folder_setup(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/di-checkpoint-XXXXXX");
    *state = f;
    return mkdtemp(f->path) == NULL;
}

static inline int folder_remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path);
}

static inline int folder_teardown(void **state)
{
    struct folder *f = *state;
    nftw(f->path, folder_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

/* "folder/name"; the last sixteen results stay valid. */
static inline const char *in_folder(const struct folder *f, const char *name)
{
    static char joined[16][512];
    static int next;
    char *path = joined[next++ % 16];
    snprintf(path, sizeof joined[0], "%s/%s", f->path, name);
    return path;
}

static inline void write_bytes(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(struct folder *f, const char *name, const char *text)
{
    write_bytes(in_folder(f, name), text, strlen(text));
}

/* A file of the container format around any header text: the length `claimed` (or the true one where 0), the header, and
 * `payload` bytes of data. Returns its size; *out is for free(). */
static inline size_t make_safetensors(const char *header, uint64_t claimed, size_t payload, uint8_t **out)
{
    size_t length = strlen(header), size = 8 + length + payload;
    uint8_t *bytes = calloc(1, size);
    assert_non_null(bytes);
    uint64_t written = claimed != 0 ? claimed : length;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(written >> (8 * i));
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < payload; i++)
        bytes[8 + length + i] = (uint8_t)(i + 1);
    *out = bytes;
    return size;
}

static inline void write_safetensors(struct folder *f, const char *name, const char *header, size_t payload)
{
    uint8_t *bytes;
    size_t size = make_safetensors(header, 0, payload, &bytes);
    write_bytes(in_folder(f, name), bytes, size);
    free(bytes);
}

static inline void assert_message(const struct di_error *err, const char *culprit)
{
    if (strstr(err->message, culprit) == NULL)
        fail_msg("\"%s\" does not name %s", err->message, culprit);
}

#endif
