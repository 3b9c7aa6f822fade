/*
 * A report to build, and a small reader of reports, written apart from the builder: it splits at
 * the boundary that the header names, and wants every line within 998 bytes, ended by CRLF, without
 * control characters (but for the returned part).
 */
#ifndef TESTS_REPORT_READER_H
#define TESTS_REPORT_READER_H

#include <stdbool.h>

#include "buf.h"
#include "report.h"
#include "slice.h"

#define LITERAL(text)                                                                              \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

extern const struct report_rcpt plain_rcpt;

struct report plain_report(const struct report_rcpt *rcpts, size_t count);

struct parsed {
    struct slice header;
    struct slice parts[4]; /* header and body of each */
    size_t count;
};

void parse(struct slice message, struct parsed *p);

bool contains(struct slice in, const char *what);
void assert_contains(struct slice in, const char *what);

/* Build a report, which has to have these flags, and parse it. */
void build(const struct report *r, struct buf *out, struct parsed *p, unsigned want_flags);

/* Of a report that has been built. */
struct slice boundary_of(struct slice text);

#endif
