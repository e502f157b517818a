/* base/clock.h - time. */
#ifndef DI_BASE_CLOCK_H
#define DI_BASE_CLOCK_H

#include <time.h>

/* Seconds on a clock that never goes back. */
static inline double di_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
