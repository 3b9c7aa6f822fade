/*
 * header_checks and body_checks: the content of a message passes through here while it is received.
 *
 * The checks match the same texts as Postfix with its defaults. header_checks match each field of
 * the message's header, of the headers of its MIME parts, and of messages within it
 * (message/rfc822). A field is one text: its lines with "\n" between them, blanks of the folding
 * kept, without the last line end. body_checks match each line of all other content, boundaries
 * included, in pieces of CHECKS_PIECE bytes, up to body_checks_size_limit bytes of each part.
 * Encoded content (base64, quoted-printable) is not decoded. Our own Received: field is skipped.
 *
 * Actions go into the ruling. PREPEND puts a line before the matching one; no rule is matched
 * against that line. REJECT, DEFER and DISCARD end the checks.
 *
 * Time and memory are bounded: PATTERNS_STEPS_MAX for each pattern and text, checks_time_limit for
 * the message, CHECKS_FIELD_MAX for a field. A message over one of these limits is deferred. A
 * message over MIME_DEPTH_MAX is refused. ruling->limit names the limit.
 *
 * Fields `Received: .. by HOSTNAME (Sluice' are counted, to find the loop of a content filter.
 */
#ifndef RULES_CHECKS_H
#define RULES_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rule_set.h"
#include "ruling.h"
#include "slice.h"

#define CHECKS_PIECE     2048       /* bytes of a line of the body (Postfix: line_length_limit) */
#define CHECKS_FIELD_MAX (1u << 20) /* bytes of a field */

struct checks;

/* Receives the checked content, in order. */
typedef void checks_put(void *arg, struct slice bytes);

/* Returns the CPU time of this thread in microseconds; replaced by tests. */
typedef int64_t checks_clock(void);

/* Begins the checks of one message. Borrows `set` and `ruling` until checks_free. A `clock` of NULL
 * is the real one. */
struct checks *checks_new(const struct rule_set *set, struct ruling *ruling, checks_clock *clock);
void checks_free(struct checks *c); /* may be NULL */

/* Checks the next bytes of content in wire form (lines end with CRLF), and passes bytes that are
 * done to `put`. */
void checks_feed(struct checks *c, struct slice content, checks_put *put, void *arg);

/* Ends the content: checks the rest and passes it to `put`. */
void checks_end(struct checks *c, checks_put *put, void *arg);

/* Returns the number of bytes that were fed but not passed to `put` yet. */
size_t checks_held(const struct checks *c);

/* Returns how often the message was here before: the number of our own Received: fields. */
unsigned checks_visits(const struct checks *c);

#endif
