/*
 * Damaged and hostile control files. Wanted, beside no crash: every slice lies inside the bytes,
 * recipients are found by their names, and marking one changes its tag and nothing else of what is
 * read.
 */
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "control_file.h"
#include "mem.h"

static void check_inside(struct slice part, struct slice whole)
{
    CHECK(part.len == 0 || (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len));
}

static void check_mark(struct slice bytes, const struct control_rcpt *r)
{
    char mark[CONTROL_MARK_MAX], *copy = mem_copy(bytes.ptr, bytes.len);
    size_t len = control_mark(r, '+', 0, mark);
    const struct control_rcpt *marked;
    struct control_problem problem;
    struct control_file f;

    memcpy(copy + r->offset + 1, mark, len);
    CHECK(control_file_parse(slice_of(copy, bytes.len), &f, &problem));
    marked = control_file_find(&f, r->offset);
    CHECK(marked != NULL && marked->tag == '+' && !marked->open);
    CHECK(slice_equal(marked->address.user, r->address.user));
    CHECK(slice_equal(marked->address.host, r->address.host));
    control_file_fini(&f);
    mem_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice bytes = slice_of(data, size);
    struct control_problem problem = {0};
    struct control_file f;

    if (!control_file_parse(bytes, &f, &problem)) {
        CHECK(problem.expected != NULL && problem.offset <= size);
        return 0;
    }
    check_inside(f.name, bytes);
    check_inside(f.error_to, bytes);
    for (size_t i = 0; i < f.rcpt_count; i++) {
        const struct control_rcpt *r = &f.rcpts[i];

        check_inside(r->address.channel, bytes);
        check_inside(r->address.host, bytes);
        check_inside(r->address.user, bytes);
        check_inside(r->dsn, bytes);
        CHECK(r->group < f.group_count);
        CHECK(control_file_find(&f, r->offset) == r);
    }
    for (size_t i = 0; i < f.diagnostic_count; i++) {
        check_inside(f.diagnostics[i].notary, bytes);
        check_inside(f.diagnostics[i].text, bytes);
    }
    if (f.rcpt_count > 0) {
        check_mark(bytes, &f.rcpts[f.rcpt_count / 2]);
    }
    control_file_fini(&f);
    return 0;
}
