#include "backend/host/host.h"

#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/host/stream.h"
#include "base/mem.h"

/* Device memory is mapped, so that large caches cost nothing until written; the length sits in front. */
enum { HEADER = 64 };

di_status di_host_alloc(struct di_device *dev, size_t bytes, void **out, struct di_error *err)
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

void di_host_release(struct di_device *dev, void *memory)
{
    (void)dev;
    if (memory == NULL)
        return;
    char *block = (char *)memory - HEADER;
    size_t total;
    memcpy(&total, block, sizeof total);
    munmap(block, total);
}

di_status di_host_copy(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err)
{
    (void)dev;
    (void)err;
    if (bytes != 0)
        memcpy(to, from, bytes);
    return DI_OK;
}

void di_host_move(struct di_device *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    memcpy(to, from, bytes);
}

void *di_host_host_alloc(struct di_device *dev, size_t bytes)
{
    (void)dev;
    return di_calloc(bytes, 1);
}

void di_host_host_release(struct di_device *dev, void *memory)
{
    (void)dev;
    free(memory);
}

di_status di_host_place(struct di_device *dev, const struct di_weight *host, struct di_weight *out,
                        struct di_error *err)
{
    (void)dev;
    (void)err;
    *out = *host;
    return DI_OK;
}

di_status di_host_failed(struct di_device *dev, struct di_error *err)
{
    if (!atomic_load(&dev->broken))
        return DI_OK;
    if (err != NULL)
        *err = dev->failure;
    return dev->failure.code;
}

di_status di_host_sync(struct di_device *dev, struct di_error *err)
{
    di_status status = dev->failure.code;
    if (status != DI_OK && err != NULL)
        *err = dev->failure;
    dev->failure = (struct di_error){0};
    atomic_store(&dev->broken, false);
    return status;
}

/* Everything is finished when its call returns: any event has passed. */
uint64_t di_host_record(struct di_device *dev)
{
    (void)dev;
    return 0;
}

bool di_host_passed(struct di_device *dev, uint64_t event)
{
    (void)dev;
    (void)event;
    return true;
}

void di_host_wait(struct di_device *dev, uint64_t event)
{
    (void)dev;
    (void)event;
}

bool di_host_reserve(struct di_device *dev, size_t shared_bytes, size_t member_bytes)
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
        atomic_store(&dev->broken, true);
        return false;
    }
    if (member_bytes > dev->member_bytes)
        dev->member_bytes = member_bytes;
    return true;
}

void di_host_close(struct di_device *dev)
{
    if (dev == NULL)
        return;
    if (dev->member != NULL)
        for (int32_t i = 0; i < di_team_size(dev->team); i++)
            free(dev->member[i]);
    free(dev->member);
    free(dev->shared);
    free(dev->products);
    di_team_close(dev->team);
    free(dev);
}

di_status di_host_open(const struct di_host_kernels *kernels, const struct di_device_options *options,
                       struct di_device **out, struct di_error *err)
{
    *out = NULL;
    struct di_device *dev = di_calloc(1, sizeof *dev);
    if (dev == NULL)
        return DI_FAIL_NOMEM(err, sizeof *dev);
    dev->mode = options->mode;
    dev->k = kernels;
    di_status status = di_team_open(options->threads, options->cpu_list, &dev->team, err);
    if (status != DI_OK) {
        free(dev);
        return status;
    }
    dev->member = di_calloc((size_t)di_team_size(dev->team), sizeof *dev->member);
    if (dev->member == NULL) {
        di_host_close(dev);
        return DI_FAIL_NOMEM(err, sizeof *dev->member);
    }
    *out = dev;
    return DI_OK;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

uint64_t di_host_scratch_bytes(const struct di_device *dev, const struct di_config *c, int32_t max_rows,
                               int64_t max_length)
{
    /* Columns of the widest matrices: mixes, output projection, Engram's. */
    size_t widest = larger((size_t)c->hc_mult * (size_t)c->hidden_size, (size_t)c->o_groups * (size_t)c->o_lora_rank);
    widest = larger(widest, larger((size_t)c->q_lora_rank, (size_t)c->moe_intermediate_size));
    widest = larger(widest, (size_t)di_engram_columns(c) * (size_t)c->engram_head_dim);
    size_t shared = di_host_linear_bytes(max_rows, (int32_t)widest), index, index_member;
    int32_t group_cols = c->num_attention_heads * c->head_dim / c->o_groups;
    shared = larger(shared, di_host_linear_bytes((int64_t)max_rows * c->o_groups, group_cols));
    shared = larger(shared, di_host_experts_bytes((int64_t)max_rows * c->num_experts_per_tok, c->hidden_size,
                                                  c->moe_intermediate_size, c->n_routed_experts));
    int32_t kept = c->index_topk > c->candidate_topk_blocks ? c->index_topk : c->candidate_topk_blocks;
    di_host_index_bytes(dev, max_rows, max_length, c->index_n_heads, c->index_head_dim, kept, &index, &index_member);
    size_t member = larger(dev->k->product_bytes((int32_t)widest, max_rows), index_member);
    member = larger(member, di_host_attention_bytes(c->num_attention_heads, c->head_dim));
    member = larger(member, di_host_sample_bytes(c->vocab_size));
    size_t products = (size_t)max_rows *
                      larger((size_t)c->n_routed_experts, (2 + (size_t)c->hc_mult) * (size_t)c->hc_mult);
    return larger(shared, index) + (size_t)di_team_size(dev->team) * member + products * sizeof(float) +
           (dev->stream != NULL ? DI_STREAM_BYTES : 0);
}

void di_host_identity(const struct di_device *dev, char *text, size_t size)
{
    snprintf(text, size, "%s,%s", dev->k->name, di_mode_name(dev->mode));
}
