#include "backend/cpu/cpu.h"

#include <string.h>

#include "backend/cpu/kernels.h"

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

/* The best first. */
static const struct {
    const char *name;
    bool (*available)(void);
    const struct di_host_kernels *kernels;
} sets[] = {
    {"avx512", has_avx512, &di_cpu_avx512_kernels},
    {"avx2", has_avx2, &di_cpu_avx2_kernels},
};
enum { SETS = sizeof sets / sizeof *sets };
#endif

bool di_cpu_available(void)
{
#if defined(__x86_64__)
    return has_avx2();
#else
    return false;
#endif
}

static di_status open_cpu(const struct di_device_options *options, struct di_device **out, struct di_error *err)
{
    const char *wanted = options->cpu_isa != NULL ? options->cpu_isa : "auto";
    *out = NULL;
#if defined(__x86_64__)
    for (int i = 0; i < SETS; i++)
        if (sets[i].available() && (strcmp(wanted, "auto") == 0 || strcmp(wanted, sets[i].name) == 0))
            return di_queued_open(sets[i].kernels, options, out, err);
#endif
    return DI_FAIL(
        err, DI_ERR_UNSUPPORTED,
        "backend cpu: this processor lacks the instructions (cpu-isa %s; it takes AVX2 and FMA at least); use "
        "backend reference",
        wanted);
}

const struct di_ops di_cpu_ops = {.name = "cpu", .open = open_cpu, DI_QUEUED_SLOTS};
