/* Fuzzes a line of `deepinfer run --input`: what is accepted is a whole request, what is refused has a reason. */
#include <stdlib.h>
#include <string.h>

#include "request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool right)
{
    if (!right)
        abort();
}

static void check_request(const struct app_request *r)
{
    check((r->text != NULL && r->len > 0) != (r->ids.count > 0));
    check(r->id == NULL || json_is_string(r->id) || json_is_integer(r->id));
    for (size_t i = 0; i < r->ids.count; i++)
        check(r->ids.ids[i] >= 0);
    for (size_t i = 0; i < r->sampling.params.n_stop; i++)
        check(r->sampling.params.stop[i] != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct di_sampling_params base = di_sampling_defaults();
    struct di_error err = {0};
    struct app_request request;
    di_status status = app_request_parse((const char *)data, size, &base, &request, &err);
    check(status == err.code);
    if (status == DI_OK) {
        check_request(&request);
        (void)di_sampling_validate(&request.sampling.params, 1000, &err);
    } else {
        check(err.message[0] != '\0' && strlen(err.message) < sizeof err.message);
    }
    app_request_free(&request);
    return 0;
}
