/* report.h - what every result here states: the middle of the rounds, and on which machine. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <jansson.h>
#include <stdint.h>

/* Sorts `values`. */
double bench_median(double *values, int32_t count);

/* A new object: processor, cores, memory, kernel, compiler, load at this moment. */
json_t *bench_machine(void);

/* Others at work: ratios survive it, but not those of programs whose threads wait busily for each other. */
void bench_warn_if_busy(void);

/* Whether `text` is wanted by a filter; NULL wants everything. */
int bench_wanted(const char *filter, const char *text);

/* Numeric options: the value, or -1 where the text is no number of [least, most]. */
double bench_number(const char *text, double least, double most);

#endif
