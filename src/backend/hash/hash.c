#include "backend/hash/hash.h"

#include "backend/hash/operations.h"
#include "backend/host/host.h"
#include "backend/host/stream.h"

#define QUEUED(op)                                                                   \
    static void run_##op(void *dev, const void *args)                                \
    {                                                                                \
        di_hash_##op(dev, args);                                                     \
    }                                                                                \
    static void queue_##op(struct di_device *dev, const struct di_##op##_args *args) \
    {                                                                                \
        di_stream_push(dev->stream, run_##op, args, sizeof *args);                   \
    }

QUEUED(embed)
QUEUED(engram_lookup)
QUEUED(engram_mix)
QUEUED(hc_mix)
QUEUED(hc_collapse)
QUEUED(hc_expand)
QUEUED(norm)
QUEUED(linear)
QUEUED(group_linear)
QUEUED(rope)
QUEUED(window_pack)
QUEUED(compress)
QUEUED(kv_append)
QUEUED(index_append)
QUEUED(index_query)
QUEUED(index_select)
QUEUED(attention)
QUEUED(gate)
QUEUED(experts)
QUEUED(shared_expert)
QUEUED(combine)
QUEUED(sample)

/* For the identity's sake: no operation taken from host/ calls a kernel. */
static const struct di_host_kernels kernels = {.name = "hash"};

static di_status open_hash(const struct di_device_options *options, struct di_device **out, struct di_error *err)
{
    struct di_device_options one = *options;
    one.threads = 1; /* rows take nanoseconds: waking others would take longer */
    return di_queued_open(&kernels, &one, out, err);
}

static uint64_t scratch_bytes(const struct di_device *dev, const struct di_config *config, int32_t max_rows,
                              int64_t max_length)
{
    (void)dev;
    (void)max_rows;
    return di_hash_select_bytes(max_length) + di_host_sample_bytes(config->vocab_size) + DI_STREAM_BYTES;
}

const struct di_ops di_hash_ops = {
    .name = "hash",
    .act_bytes = sizeof(float),
    .open = open_hash,
    .close = di_queued_close,
    .identity = di_host_identity,
    .scratch_bytes = scratch_bytes,
    .alloc = di_host_alloc,
    .release = di_queued_release,
    .upload = di_queued_upload,
    .download = di_queued_download,
    .place = di_host_place,
    .sync = di_queued_sync,
    .record = di_queued_record,
    .passed = di_queued_passed,
    .wait = di_queued_wait,
    .failed = di_host_failed,
    .copy = di_queued_move,
    .host_alloc = di_host_host_alloc,
    .host_release = di_host_host_release,
    .resolve = di_queued_resolve,
    .embed = queue_embed,
    .engram_hash = di_queued_engram_hash,
    .engram_lookup = queue_engram_lookup,
    .engram_mix = queue_engram_mix,
    .hc_mix = queue_hc_mix,
    .hc_collapse = queue_hc_collapse,
    .hc_expand = queue_hc_expand,
    .norm = queue_norm,
    .linear = queue_linear,
    .group_linear = queue_group_linear,
    .rope = queue_rope,
    .window_pack = queue_window_pack,
    .window_store = di_queued_window_store,
    .compress = queue_compress,
    .kv_append = queue_kv_append,
    .index_append = queue_index_append,
    .index_query = queue_index_query,
    .index_select = queue_index_select,
    .attention = queue_attention,
    .gate = queue_gate,
    .experts = queue_experts,
    .shared_expert = queue_shared_expert,
    .combine = queue_combine,
    .gather = di_queued_gather,
    .sample = queue_sample,
};
