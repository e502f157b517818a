/* base/file.h - read-only files: mapped, or read whole. */
#ifndef DI_BASE_FILE_H
#define DI_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A read-only memory map. `data` is NULL for an empty file. Owned by whoever opened it. */
struct di_map {
    const uint8_t *data;
    size_t size;
};

/* Maps a regular file. Errors name the path. */
di_status di_map_open(const char *path, struct di_map *out, struct di_error *err);
void di_map_close(struct di_map *map);

/* Reads a file of at most `limit` bytes into memory from di_calloc, with a terminating zero that *size does not count.
 * A larger file is DI_ERR_LIMIT. */
di_status di_file_read(const char *path, size_t limit, char **data, size_t *size, struct di_error *err);

/* "dir/name" in memory from di_calloc; NULL when memory runs out. */
char *di_path_join(const char *dir, const char *name);

bool di_file_exists(const char *path); /* a regular file, links followed */
bool di_dir_exists(const char *path);

#endif
