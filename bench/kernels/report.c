#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined(__clang__)
#define COMPILER __VERSION__ /* names itself */
#else
#define COMPILER "gcc " __VERSION__
#endif

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

double bench_median(double *values, int32_t count)
{
    if (count == 0)
        return 0.0;
    qsort(values, (size_t)count, sizeof *values, by_value);
    return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

static void processor_name(char *name, size_t size)
{
    snprintf(name, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL)
        return;
    char line[4096];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, size, "%s", colon + 2);
            break;
        }
    }
    fclose(file);
}

static double load(void)
{
    double average = 0.0;
    return getloadavg(&average, 1) == 1 ? average : 0.0;
}

void bench_warn_if_busy(void)
{
    double average = load();
    if (average > 0.5)
        fprintf(stderr, "warning: a load of %.2f: other programs run on this machine\n", average);
}

json_t *bench_machine(void)
{
    char name[256];
    struct utsname system;
    processor_name(name, sizeof name);
    if (uname(&system) != 0)
        memset(&system, 0, sizeof system);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return json_pack("{s:s, s:s, s:I, s:f, s:s, s:s, s:f}", "processor", name, "architecture", system.machine, "cores",
                     (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory_gb", memory * 1e-9, "kernel", system.release,
                     "compiler", COMPILER, "load", load());
}

int bench_wanted(const char *filter, const char *text)
{
    return filter == NULL || strstr(text, filter) != NULL;
}

double bench_number(const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    return end != text && *end == 0 && value >= least && value <= most ? value : -1.0;
}
