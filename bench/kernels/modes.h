/* modes.h - the names of numeric modes, as options take them. */
#ifndef BENCH_MODES_H
#define BENCH_MODES_H

#include <string.h>

#include "ops/ops.h"

static const struct {
    const char *name;
    enum di_mode mode;
} bench_modes[] = {
    {"native", DI_MODE_NATIVE},
    {"oracle", DI_MODE_ORACLE},
    {"fast", DI_MODE_FAST},
};

enum { BENCH_MODES = sizeof bench_modes / sizeof bench_modes[0] };

/* Index into bench_modes, or -1. */
static inline int bench_mode_index(const char *name)
{
    for (int i = 0; i < (int)BENCH_MODES; i++)
        if (strcmp(bench_modes[i].name, name) == 0)
            return i;
    return -1;
}

#endif
