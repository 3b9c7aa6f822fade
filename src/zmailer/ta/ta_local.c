#include "ta_local.h"

#include "buf.h"

#define TEXT_MAX 1024

static const struct {
    enum ta_job_outcome outcome;
    const char *code; /* SMTP code in the diagnostic */
} classes[] = {
    [STATUS_SUCCESS] = {TA_JOB_DELIVERED, "250"},
    [STATUS_TRANSIENT] = {TA_JOB_DEFERRED, "450"},
    [STATUS_PERMANENT] = {TA_JOB_FAILED, "550"},
};

void ta_local_settle(struct ta_job *job, size_t i, struct status status, struct slice text)
{
    struct buf comment, diagnostic;
    char printed[STATUS_SIZE];
    struct slice said = status.class == STATUS_SUCCESS ? SLICE("Delivered successfully") : text;
    int len = said.len < TEXT_MAX ? (int)said.len : TEXT_MAX;

    buf_init(&comment, TEXT_MAX + 64);
    buf_init(&diagnostic, TEXT_MAX + 64);
    (void)buf_addf(&comment, "%s (%.*s)", status_print(status, printed), len, said.ptr);
    (void)buf_addf(&diagnostic, "x-local; %s (%.*s)", classes[status.class].code, len, said.ptr);
    ta_job_settle(job, i,
                  &(struct ta_job_result){.outcome = classes[status.class].outcome,
                                          .status = buf_slice(&comment),
                                          .diagnostic = buf_slice(&diagnostic),
                                          .remote = SLICE(""),
                                          .text = text});
    buf_fini(&comment);
    buf_fini(&diagnostic);
}
