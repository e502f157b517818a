#include "backend/reference/reference.h"

#include "backend/host/host.h"

static const struct di_host_kernels kernels = {
    .name = "reference",
    .dot = di_host_dot,
    .axpy = di_host_axpy,
    .prepare = di_host_prepare,
    .products = di_host_products,
    .product_bytes = di_host_product_bytes,
    .unpack_key = di_host_unpack_key,
    .scores = di_host_scores,
    .blend = di_host_blend,
    .restore = di_host_restore,
};

static di_status open_reference(const struct di_device_options *options, struct di_device **out, struct di_error *err)
{
    return di_host_open(&kernels, options, out, err);
}

const struct di_ops di_reference_ops = {.name = "reference", .open = open_reference, DI_HOST_SLOTS};
