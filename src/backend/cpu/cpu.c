#include "backend/cpu/cpu.h"

#include "backend/cpu/kernels.h"

bool di_cpu_available(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static di_status open_cpu(const struct di_device_options *options, struct di_device **out, struct di_error *err)
{
    *out = NULL;
    if (!di_cpu_available())
        return DI_FAIL(err, DI_ERR_UNSUPPORTED, "backend cpu: this processor lacks AVX2 or FMA; use backend reference");
#if defined(__x86_64__)
    return di_host_open(&di_cpu_avx2_kernels, options, out, err);
#else
    (void)options;
    return DI_OK;
#endif
}

const struct di_ops di_cpu_ops = {.name = "cpu", .open = open_cpu, DI_HOST_SLOTS};
