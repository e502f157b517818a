/* The operations behind a stream: each slot copies its arguments and returns. */
#include <stddef.h>
#include <string.h>

#include "backend/host/host.h"
#include "backend/host/stream.h"

#define QUEUED(op, host)                                                          \
    static void run_##op(void *dev, const void *args)                             \
    {                                                                             \
        host(dev, args);                                                          \
    }                                                                             \
    void di_queued_##op(struct di_device *dev, const struct di_##op##_args *args) \
    {                                                                             \
        di_stream_push(dev->stream, run_##op, args, sizeof *args);                \
    }

QUEUED(resolve, di_host_resolve)
QUEUED(embed, di_host_embed)
QUEUED(engram_hash, di_host_engram_hash)
QUEUED(engram_lookup, di_host_engram_lookup)
QUEUED(engram_mix, di_host_engram_mix)
QUEUED(hc_mix, di_host_hc_mix)
QUEUED(hc_collapse, di_host_hc_collapse)
QUEUED(hc_expand, di_host_hc_expand)
QUEUED(norm, di_host_norm)
QUEUED(linear, di_host_linear)
QUEUED(group_linear, di_host_group_linear)
QUEUED(rope, di_host_rope_op)
QUEUED(window_pack, di_host_window_pack)
QUEUED(window_store, di_host_window_store)
QUEUED(compress, di_host_compress)
QUEUED(kv_append, di_host_kv_append)
QUEUED(index_append, di_host_index_append)
QUEUED(index_query, di_host_index_query)
QUEUED(index_select, di_host_index_select)
QUEUED(attention, di_host_attention)
QUEUED(gate, di_host_gate)
QUEUED(experts, di_host_experts)
QUEUED(shared_expert, di_host_shared_expert)
QUEUED(combine, di_host_combine)
QUEUED(gather, di_host_gather)
QUEUED(sample, di_host_sample)

static void pin_stream(void *user)
{
    const struct di_device *dev = user;
    di_team_pin_caller(dev->team);
}

di_status di_queued_open(const struct di_host_kernels *kernels, const struct di_device_options *options,
                         struct di_device **out, struct di_error *err)
{
    struct di_device *dev;
    *out = NULL;
    DI_TRY(di_host_open(kernels, options, &dev, err));
    di_status status = di_stream_open(pin_stream, dev, &dev->stream, err);
    if (status != DI_OK) {
        di_host_close(dev);
        return status;
    }
    *out = dev;
    return DI_OK;
}

static void drain(struct di_device *dev)
{
    di_stream_wait(dev->stream, di_stream_mark(dev->stream));
}

void di_queued_close(struct di_device *dev)
{
    if (dev == NULL)
        return;
    di_stream_close(dev->stream);
    di_host_close(dev);
}

void di_queued_release(struct di_device *dev, void *memory)
{
    drain(dev);
    di_host_release(dev, memory);
}

enum { SMALL = 4096, LARGE = 32 * SMALL };

struct upload {
    void *to;
    size_t bytes;
    unsigned char data[SMALL];
};

static void run_upload(void *dev, const void *args)
{
    const struct upload *upload = args;
    (void)dev;
    memcpy(upload->to, upload->data, upload->bytes);
}

/* In pieces that travel with the stream; what would fill it is waited for. */
di_status di_queued_upload(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err)
{
    struct upload upload;
    if (bytes > LARGE) {
        drain(dev);
        return di_host_copy(dev, to, from, bytes, err);
    }
    for (size_t at = 0; at < bytes; at += SMALL) {
        upload.to = (char *)to + at;
        upload.bytes = bytes - at < SMALL ? bytes - at : SMALL;
        memcpy(upload.data, (const char *)from + at, upload.bytes);
        di_stream_push(dev->stream, run_upload, &upload, offsetof(struct upload, data) + upload.bytes);
    }
    return DI_OK;
}

struct move {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_move(void *dev, const void *args)
{
    const struct move *move = args;
    di_host_move(dev, move->to, move->from, move->bytes);
}

void di_queued_move(struct di_device *dev, void *to, const void *from, size_t bytes)
{
    di_stream_push(dev->stream, run_move, &(struct move){to, from, bytes}, sizeof(struct move));
}

di_status di_queued_download(struct di_device *dev, void *to, const void *from, size_t bytes, struct di_error *err)
{
    drain(dev);
    return di_host_copy(dev, to, from, bytes, err);
}

di_status di_queued_sync(struct di_device *dev, struct di_error *err)
{
    drain(dev);
    return di_host_sync(dev, err);
}

uint64_t di_queued_record(struct di_device *dev)
{
    return di_stream_mark(dev->stream);
}

bool di_queued_passed(struct di_device *dev, uint64_t event)
{
    return di_stream_passed(dev->stream, event);
}

void di_queued_wait(struct di_device *dev, uint64_t event)
{
    di_stream_wait(dev->stream, event);
}
