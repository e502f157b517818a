#include "backend/reference/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/reference/internal.h"
#include "base/mem.h"

/* Device memory is mapped, so that large caches cost nothing until written; the length sits in front. */
enum { HEADER = 64 };

static di_status di_ref_alloc(struct di_device *dev, size_t bytes, void **out, struct di_error *err)
{
    (void)dev;
    *out = NULL;
    if (bytes > SIZE_MAX - HEADER)
        return DI_FAIL_NOMEM(err, bytes);
    void *block = mmap(NULL, bytes + HEADER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                       0);
    if (block == MAP_FAILED)
        return DI_FAIL_NOMEM(err, bytes);
    size_t total = bytes + HEADER;
    memcpy(block, &total, sizeof total);
    *out = (char *)block + HEADER;
    return DI_OK;
}

static void di_ref_release(struct di_device *dev, void *memory)
{
    (void)dev;
    if (memory == NULL)
        return;
    char *block = (char *)memory - HEADER;
    size_t total;
    memcpy(&total, block, sizeof total);
    munmap(block, total);
}

static di_status di_ref_copy(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err)
{
    (void)dev;
    (void)err;
    if (bytes != 0)
        memcpy(to, from, bytes);
    return DI_OK;
}

static di_status di_ref_place(struct di_device *dev, const struct di_weight *host, struct di_weight *out,
                              struct di_error *err)
{
    (void)dev;
    (void)err;
    *out = *host;
    return DI_OK;
}

static di_status di_ref_sync(struct di_device *dev, struct di_error *err)
{
    di_status status = dev->failure.code;
    if (status != DI_OK && err != NULL)
        *err = dev->failure;
    dev->failure = (struct di_error){0};
    return status;
}

bool di_ref_reserve(struct di_device *dev, size_t shared_bytes, size_t member_bytes)
{
    int32_t members = di_team_size(dev->team);
    bool ok = true;
    if (shared_bytes > dev->shared_bytes) {
        free(dev->shared);
        dev->shared = di_aligned_calloc(shared_bytes, 1);
        dev->shared_bytes = dev->shared != NULL ? shared_bytes : 0;
        ok = dev->shared != NULL;
    }
    for (int32_t i = 0; ok && i < members && member_bytes > dev->member_bytes; i++) {
        free(dev->member[i]);
        dev->member[i] = di_aligned_calloc(member_bytes, 1);
        ok = dev->member[i] != NULL;
    }
    if (!ok) {
        dev->member_bytes = 0;
        if (dev->failure.code == DI_OK)
            (void)DI_FAIL_NOMEM(&dev->failure, shared_bytes + member_bytes * (size_t)members);
        return false;
    }
    if (member_bytes > dev->member_bytes)
        dev->member_bytes = member_bytes;
    return true;
}

static void di_ref_close(struct di_device *dev)
{
    if (dev == NULL)
        return;
    if (dev->member != NULL)
        for (int32_t i = 0; i < di_team_size(dev->team); i++)
            free(dev->member[i]);
    free(dev->member);
    free(dev->shared);
    di_team_close(dev->team);
    free(dev);
}

static di_status di_ref_open(const struct di_device_options *options, struct di_device **out, struct di_error *err)
{
    *out = NULL;
    struct di_device *dev = di_calloc(1, sizeof *dev);
    if (dev == NULL)
        return DI_FAIL_NOMEM(err, sizeof *dev);
    dev->mode = options->mode;
    di_status status = di_team_open(options->threads, &dev->team, err);
    if (status != DI_OK) {
        free(dev);
        return status;
    }
    dev->member = di_calloc((size_t)di_team_size(dev->team), sizeof *dev->member);
    if (dev->member == NULL) {
        di_ref_close(dev);
        return DI_FAIL_NOMEM(err, sizeof *dev->member);
    }
    di_ref_choose_kernels(dev);
    *out = dev;
    return DI_OK;
}

static void di_ref_identity(const struct di_device *dev, char *text, size_t size)
{
    snprintf(text, size, "reference,%s", dev->mode == DI_MODE_NATIVE ? "native" : "oracle");
}

const struct di_ops di_reference_ops = {
    .name = "reference",
    .act_bytes = sizeof(float),
    .open = di_ref_open,
    .close = di_ref_close,
    .identity = di_ref_identity,
    .alloc = di_ref_alloc,
    .release = di_ref_release,
    .upload = di_ref_copy,
    .download = di_ref_copy,
    .place = di_ref_place,
    .sync = di_ref_sync,
    .embed = di_ref_embed,
    .engram_hash = di_ref_engram_hash,
    .engram_lookup = di_ref_engram_lookup,
    .engram_mix = di_ref_engram_mix,
    .hc_mix = di_ref_hc_mix,
    .hc_collapse = di_ref_hc_collapse,
    .hc_expand = di_ref_hc_expand,
    .norm = di_ref_norm,
    .linear = di_ref_linear,
    .group_linear = di_ref_group_linear,
    .rope = di_ref_rope_op,
    .window_pack = di_ref_window_pack,
    .window_store = di_ref_window_store,
    .compress = di_ref_compress,
    .kv_append = di_ref_kv_append,
    .index_append = di_ref_index_append,
    .index_query = di_ref_index_query,
    .index_select = di_ref_index_select,
    .attention = di_ref_attention,
    .gate = di_ref_gate,
    .experts = di_ref_experts,
    .shared_expert = di_ref_shared_expert,
    .combine = di_ref_combine,
    .gather = di_ref_gather,
    .sample = di_ref_sample,
};
