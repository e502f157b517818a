#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static di_status open_regular(const char *path, int *fd, size_t *size, struct di_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return DI_FAIL(err, errno == ENOENT ? DI_ERR_NOT_FOUND : DI_ERR_IO, "%s: %s", path, strerror(errno));
    struct stat info;
    if (fstat(*fd, &info) != 0) {
        int code = errno;
        close(*fd);
        return DI_FAIL(err, DI_ERR_IO, "%s: %s", path, strerror(code));
    }
    if (!S_ISREG(info.st_mode)) {
        close(*fd);
        return DI_FAIL(err, DI_ERR_IO, "%s: not a regular file", path);
    }
    *size = (size_t)info.st_size;
    return DI_OK;
}

di_status di_map_open(const char *path, struct di_map *out, struct di_error *err)
{
    int fd;
    *out = (struct di_map){0};
    DI_TRY(open_regular(path, &fd, &out->size, err));
    if (out->size != 0) {
        void *data = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, fd, 0);
        int code = errno;
        if (data == MAP_FAILED) {
            close(fd);
            return DI_FAIL(err, code == ENOMEM ? DI_ERR_NOMEM : DI_ERR_IO, "%s: cannot be mapped: %s", path,
                           strerror(code));
        }
        out->data = data;
    }
    close(fd);
    return DI_OK;
}

void di_map_close(struct di_map *map)
{
    if (map->data != NULL)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct di_map){0};
}

static di_status read_all(int fd, const char *path, char *buffer, size_t size, struct di_error *err)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, buffer + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return DI_FAIL(err, DI_ERR_IO, "%s: %s", path, strerror(errno));
        if (got == 0)
            return DI_FAIL(err, DI_ERR_IO, "%s: ended after %zu of %zu bytes", path, done, size);
        done += (size_t)got;
    }
    return DI_OK;
}

di_status di_file_read(const char *path, size_t limit, char **data, size_t *size, struct di_error *err)
{
    int fd;
    *data = NULL;
    *size = 0;
    size_t bytes;
    DI_TRY(open_regular(path, &fd, &bytes, err));
    if (bytes > limit) {
        close(fd);
        return DI_FAIL(err, DI_ERR_LIMIT, "%s: %zu bytes, more than the %zu allowed for such a file", path, bytes,
                       limit);
    }
    char *buffer = di_calloc(bytes + 1, 1);
    if (buffer == NULL) {
        close(fd);
        return DI_FAIL_NOMEM(err, bytes);
    }
    di_status status = read_all(fd, path, buffer, bytes, err);
    close(fd);
    if (status != DI_OK) {
        free(buffer);
        return status;
    }
    *data = buffer;
    *size = bytes;
    return DI_OK;
}

char *di_path_join(const char *dir, const char *name)
{
    size_t a = strlen(dir), b = strlen(name);
    bool slash = a != 0 && dir[a - 1] != '/';
    char *path = di_calloc(a + b + 2, 1);
    if (path == NULL)
        return NULL;
    memcpy(path, dir, a);
    if (slash)
        path[a] = '/';
    memcpy(path + a + slash, name, b);
    return path;
}

bool di_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool di_dir_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}
