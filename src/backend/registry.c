#include "backend/registry.h"

#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/hash/hash.h"
#include "backend/reference/reference.h"

static bool always(void)
{
    return true;
}

/* Only by name. */
static bool never(void)
{
    return false;
}

/* In order of preference within an accelerator: auto takes the first that this machine can run. */
static const struct {
    const char *accelerator;
    const struct di_ops *ops;
    bool (*available)(void);
} backends[] = {
    {"cpu", &di_cpu_ops, di_cpu_available},
    {"cpu", &di_reference_ops, always},
    {"cpu", &di_hash_ops, never}, /* computes no model: for tests */
};

di_status di_backend_find(const char *accelerator, const char *name, const struct di_ops **out, struct di_error *err)
{
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        const struct di_ops *ops = backends[i].ops;
        bool wanted = strcmp(name, "auto") == 0 ? backends[i].available() : strcmp(name, ops->name) == 0;
        if (wanted && strcmp(backends[i].accelerator, accelerator) == 0) {
            *out = ops;
            return DI_OK;
        }
        int wrote = snprintf(known + used, sizeof known - used, "%s%s/%s", used ? ", " : "", backends[i].accelerator,
                             ops->name);
        used += wrote > 0 && (size_t)wrote < sizeof known - used ? (size_t)wrote : 0;
    }
    return DI_FAIL(err, DI_ERR_UNSUPPORTED, "this build has no backend \"%s\" for accelerator \"%s\"; it has: %s", name,
                   accelerator, known);
}
