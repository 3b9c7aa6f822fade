/*
 * A Dovecot that says anything.
 *
 * Input: a byte for the size of the pieces, then what it says. Wanted, beside no crash: users could
 * stand in a log, rights are some, nothing is told after a failure, and the pieces do not matter.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "class_name.h"
#include "dovecot.h"
#include "name_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_event(const struct dovecot_event *e)
{
    for (size_t i = 0; i < e->user.len; i++) {
        CHECK((unsigned char)e->user.ptr[i] >= ' ');
    }
    CHECK(e->user.len <= SASL_USER_MAX);
    if (e->type == DOVECOT_ACCEPTED) {
        CHECK(e->user.len > 0);
        CHECK(e->class_name.len == 0 || class_name_valid(e->class_name));
        CHECK(e->senders.len == 0 || name_lines_senders_are_valid(e->senders));
    }
}

/* A sum over all that is told. */
static uint64_t tell(struct dovecot *d, uint64_t sum, bool *ret_failed)
{
    struct dovecot_event e;

    do {
        dovecot_next(d, &e);
        check_event(&e);
        if (e.type != DOVECOT_NEED_INPUT && !*ret_failed) {
            sum = (sum * 31 + (uint64_t)e.type) * 31 + e.id + e.user.len + 7 * e.challenge.len;
        }
        *ret_failed = *ret_failed || e.type == DOVECOT_FAILED;
        if (e.type == DOVECOT_READY) {
            dovecot_begin(
                d, 1,
                &(struct dovecot_request){.mechanism = SASL_PLAIN, .message = SLICE("\0a\0b")});
        }
        if (e.type == DOVECOT_CHALLENGE) {
            dovecot_answer(d, e.id, SLICE("x"));
        }
    } while (e.type != DOVECOT_NEED_INPUT && e.type != DOVECOT_FAILED);
    return sum;
}

static uint64_t run(struct slice in, size_t piece)
{
    struct dovecot d;
    uint64_t sum = 0;
    bool failed = false;

    dovecot_init(&d, 1);
    while (in.len > 0 && !failed) {
        size_t len = piece < in.len ? piece : in.len;

        dovecot_input(&d, slice_of(in.ptr, len));
        sum = tell(&d, sum, &failed);
        in = slice_skip(in, len);
    }
    CHECK(!failed || dovecot_mechanisms(&d) == 0);
    dovecot_fini(&d);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in;

    if (size < 1) {
        return 0;
    }
    in = slice_of(data + 1, size - 1);
    CHECK(run(in, data[0] == 0 ? 1 : data[0]) == run(in, DOVECOT_LINE_MAX));
    return 0;
}
