/*
 * Mail logs made of arbitrary bytes.
 *
 * Wanted, beside no crash: messages in order from time 0, each with recipients of its own whose
 * domains are known, and samples that are times.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "trace.h"
#include "trace_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of(data, size);
    struct trace_reader *r = trace_reader_new();
    uint64_t lines = 0;
    struct trace *t;
    size_t rcpts = 0;

    while (rest.ptr != NULL) {
        trace_reader_line(r, slice_cut(&rest, '\n'));
        lines++;
    }
    t = trace_reader_finish(r);
    CHECK(t->lines == lines && t->understood <= lines && t->over_limit <= t->understood);
    CHECK(t->message_count + t->incomplete <= t->understood);
    for (size_t i = 0; i < t->message_count; i++) {
        const struct trace_message *m = &t->messages[i];

        CHECK(m->rcpt_count >= 1 && m->first_rcpt + m->rcpt_count <= t->rcpt_count);
        CHECK(m->at_us >= (i == 0 ? 0 : t->messages[i - 1].at_us));
        CHECK(i > 0 || m->at_us == 0);
        rcpts += m->rcpt_count;
    }
    CHECK(rcpts == t->rcpt_count);
    for (size_t i = 0; i < t->rcpt_count; i++) {
        CHECK(t->rcpts[i] < t->domain_count);
    }
    for (size_t i = 0; i < t->domain_count; i++) {
        const struct trace_domain *d = t->domains[i];

        CHECK(strlen(d->name) >= 1 && strlen(d->name) <= TRACE_DOMAIN_MAX);
        CHECK(d->sample_count <= TRACE_SAMPLES_MAX && d->sample_count <= d->deliveries);
        for (uint32_t n = 0; n < d->sample_count; n++) {
            CHECK(d->samples[n] >= 0 && d->samples[n] <= DISTRIBUTION_MAX);
        }
    }
    trace_free(t);
    return 0;
}
