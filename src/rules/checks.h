/*
 * header_checks and body_checks: the content of a message passes through here while it comes in.
 *
 * What is looked at, as in Postfix with its defaults: header_checks see each field of the message's
 * header, of the headers of its MIME parts, and of messages within it (message/rfc822), as one
 * text: its lines with "\n" between them, blanks of the folding kept, without the last line end.
 * body_checks see each line of all else, boundaries included, in pieces of CHECKS_PIECE bytes, and
 * of each part the first body_checks_size_limit bytes. What is encoded (base64, quoted-printable)
 * is not decoded. Our own Received: field is not looked at.
 *
 * What a rule decides goes into the ruling; PREPEND puts a line before the one that it fits, which
 * is not looked at itself. After REJECT, DEFER and DISCARD nothing more is looked at.
 *
 * Time and memory are bounded: by PATTERNS_STEPS_MAX for each pattern and text, for the message by
 * checks_time_limit, by CHECKS_FIELD_MAX for a field. A message that passes one of these limits is
 * deferred, one that passes MIME_DEPTH_MAX is refused, and ruling->limit names the limit.
 *
 * The loop of a content filter: fields `Received: .. by HOSTNAME (Sluice' are counted.
 */
#ifndef RULES_CHECKS_H
#define RULES_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rule_set.h"
#include "ruling.h"
#include "slice.h"

#define CHECKS_PIECE     2048       /* of a line of the body (Postfix: line_length_limit) */
#define CHECKS_FIELD_MAX (1u << 20) /* bytes of a field */

struct checks;

/* Takes what comes out, in order. */
typedef void checks_put(void *arg, struct slice bytes);

/* Processor time of this thread, in microseconds; exchanged by tests. */
typedef int64_t checks_clock(void);

/* For one message. `set` and `ruling` are borrowed until checks_free. `clock` NULL: real time. */
struct checks *checks_new(const struct rule_set *set, struct ruling *ruling, checks_clock *clock);
void checks_free(struct checks *c); /* NULL is fine */

/* The next bytes of content in wire form; lines end with CRLF. What was looked at goes to `put`. */
void checks_feed(struct checks *c, struct slice content, checks_put *put, void *arg);

/* All has come: the rest goes to `put`. */
void checks_end(struct checks *c, checks_put *put, void *arg);

/* Bytes that were fed and have not come out yet. */
size_t checks_held(const struct checks *c);

/* How often the message was here before: Received: fields of ours. */
unsigned checks_visits(const struct checks *c);

#endif
