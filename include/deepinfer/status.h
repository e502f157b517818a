/* deepinfer/status.h - status codes and error messages. Part of deepinfer/deepinfer.h. */
#ifndef DEEPINFER_STATUS_H
#define DEEPINFER_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(DI_BUILDING_SHARED) && defined(__GNUC__)
#define DI_API __attribute__((visibility("default")))
#else
#define DI_API
#endif

/* What kind of thing went wrong. Values are stable: new codes are added at the end. */
typedef enum di_status {
    DI_OK = 0,
    DI_ERR_INVALID,     /* an argument or option makes no sense */
    DI_ERR_RANGE,       /* a number is outside its permitted range */
    DI_ERR_NOT_FOUND,   /* a file, model, tensor or option does not exist */
    DI_ERR_IO,          /* the operating system refused a file operation */
    DI_ERR_FORMAT,      /* a file is malformed */
    DI_ERR_UNSUPPORTED, /* well formed, but something this library does not do */
    DI_ERR_NOMEM,       /* memory, address space or device memory ran out */
    DI_ERR_LIMIT,       /* a stated limit of the engine would be exceeded */
    DI_ERR_BACKEND,     /* a device failed */
    DI_ERR_INTERNAL,    /* a bug in this library */
    DI_ERR_ABORTED,     /* the caller asked to stop */
} di_status;

#define DI_ERROR_MESSAGE_SIZE 512

/* A failure described for a person. Owned by the caller, no heap memory behind it; zero-initialise before use. */
struct di_error {
    di_status code;
    int line;         /* where the library noticed, for bug reports */
    const char *file; /* static string */
    char message[DI_ERROR_MESSAGE_SIZE];
};

/* "DI_ERR_FORMAT" for DI_ERR_FORMAT; never NULL. */
DI_API const char *di_status_name(di_status status);

#ifdef __cplusplus
}
#endif
#endif
