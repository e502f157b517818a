/* apps/output.h - the file of results of `run --input`: whole lines only, and going on with a file that is there.
 *
 *     app_output_check     before anything expensive: may the file be written?
 *     app_output_open      makes it, or reads what it holds and cuts off a torn last line
 *     app_output_line      one line, whole or not at all
 *     app_output_close
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "app.h"
#include "idset.h"

struct app_output {
    const char *path; /* "-": standard output */
    bool resume;
    int fd;
    bool regular;             /* a file: can be cut */
    struct idset done;        /* names of what it holds (app_output_name()) */
    uint64_t results, errors; /* lines that it held */
};

/* How a line is known: a result by its id, an error by its line in the input too, for an id may stand there twice. id: as JSON, or NULL.
 * From malloc; NULL if memory ran out. */
char *app_output_name(const char *id, uint64_t error_line);

/* All return exit codes, with the error printed. */
int app_output_check(const struct app_args *args, const char *path, bool resume);
int app_output_open(const struct app_args *args, const char *path, bool resume, const char *identity,
                    struct app_output *output);
int app_output_line(const struct app_args *args, struct app_output *output, const char *line, size_t len);
int app_output_close(const struct app_args *args, struct app_output *output, int code);

#endif
