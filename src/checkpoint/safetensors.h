/* checkpoint/safetensors.h - safetensors files, memory-mapped, every rule of the format enforced.
 *
 * di_st_parse_header() works on bytes alone (fuzzed); di_st_file maps one file; di_st_set is a checkpoint: either one
 * model.safetensors or the shards that model.safetensors.index.json lists. Tensors are views into the map: nothing is
 * copied, and they live as long as the set.
 *
 * Refused, each by a message naming file and tensor: header length past the file or above 100 MB, JSON that is not an
 * object, duplicate keys, unknown dtype, negative or overflowing shape, data_offsets that disagree with shape x dtype,
 * holes, overlaps, trailing bytes, a truncated file, data that is not aligned to its element size (the format does not
 * promise it, but kernels read in place); in an index: paths that are not plain file names, missing shards,
 * a tensor in two shards, a tensor that its shard lacks, a shard tensor that the index lacks.
 */
#ifndef DI_CHECKPOINT_SAFETENSORS_H
#define DI_CHECKPOINT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

enum { DI_ST_MAX_DIMS = 8 };

enum di_st_dtype {
    DI_ST_BOOL,
    DI_ST_U8,
    DI_ST_I8,
    DI_ST_F8_E4M3,
    DI_ST_F8_E5M2,
    DI_ST_F8_E8M0,
    DI_ST_I16,
    DI_ST_U16,
    DI_ST_F16,
    DI_ST_BF16,
    DI_ST_I32,
    DI_ST_U32,
    DI_ST_F32,
    DI_ST_I64,
    DI_ST_U64,
    DI_ST_F64,
    DI_ST_DTYPE_COUNT
};

struct di_st_tensor {
    const char *name; /* zero-terminated, owned by the arena of the file or set */
    enum di_st_dtype dtype;
    int32_t n_dims;
    int64_t shape[DI_ST_MAX_DIMS];
    uint64_t begin, bytes; /* begin: offset into the data section of its file */
    const void *data;      /* NULL after di_st_parse_header alone */
    const char *file;      /* path of the shard, for messages */
};

/* "F8_E4M3", 1 (bytes per element). */
const char *di_st_dtype_name(enum di_st_dtype dtype);
size_t di_st_dtype_size(enum di_st_dtype dtype);

struct di_st_header {
    struct di_st_tensor *tensors; /* in order of offset; in `arena` */
    size_t count;
    uint64_t data_begin; /* file offset of the data section */
};

/* Parses the first bytes of a file whose whole size is file_size; `bytes` holds at least the 8-byte length and the header
 * (`available` bytes in all). Allocates from `arena`. `file` is used in messages. */
di_status di_st_parse_header(const uint8_t *bytes, size_t available, uint64_t file_size, const char *file,
                             struct di_arena *arena, struct di_st_header *out, struct di_error *err);

/* A checkpoint folder (or any single .safetensors file). */
struct di_st_set;

/* `path`: a .safetensors file, or a folder holding model.safetensors.index.json or model.safetensors. */
di_status di_st_open(const char *path, struct di_st_set **out, struct di_error *err);
void di_st_close(struct di_st_set *set);

/* NULL if there is no such tensor. */
const struct di_st_tensor *di_st_find(const struct di_st_set *set, const char *name);
size_t di_st_count(const struct di_st_set *set);
const struct di_st_tensor *di_st_at(const struct di_st_set *set, size_t index); /* ordered by name */
uint64_t di_st_total_bytes(const struct di_st_set *set);                        /* payload, scales included */
size_t di_st_shard_count(const struct di_st_set *set);

/* ------------------------------------------------------------------------------------------------------------------
 * Writing (traces, synthetic checkpoints). Data is copied when added. */
struct di_st_writer;
di_status di_st_writer_open(struct di_st_writer **out, struct di_error *err);
void di_st_writer_close(struct di_st_writer *writer);
/* Copies `data` (shape x dtype bytes). A name added twice, "__metadata__" or not UTF-8, more than DI_ST_MAX_DIMS dimensions
 * and a negative or overflowing shape are DI_ERR_INVALID. */
di_status di_st_writer_add(struct di_st_writer *writer, const char *name, enum di_st_dtype dtype, int32_t n_dims,
                           const int64_t *shape, const void *data, struct di_error *err);
/* Writes to "path.tmp", syncs, renames: a reader never sees half a file. */
di_status di_st_writer_save(struct di_st_writer *writer, const char *path, struct di_error *err);

#endif
