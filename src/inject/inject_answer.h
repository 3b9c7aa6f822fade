/*
 * Answer to a call: JSON, built while the call's messages are accepted or refused
 * (docs/injection.md).
 *
 * {"queued":[{"id":"..","recipients":2}],
 *   "refused":[{"recipient":"..","code":550,"status":"5.1.1","text":".."}]}
 *
 * A message for a single recipient has "recipient" instead of "recipients". If nothing was queued,
 * "error" is the reason. The limit INJECT_ANSWER_MAX is sufficient for a call with the highest
 * number of recipients. Members are private to inject_answer.c.
 */
#ifndef INJECT_INJECT_ANSWER_H
#define INJECT_INJECT_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define INJECT_ANSWER_MAX (512u << 20)

struct inject_answer {
    struct buf queued, refused; /* elements, separated by commas */
    size_t queued_count, refused_count;
    unsigned least_code; /* lowest code of the refusals; 0 if there is none */
    bool busy;           /* whether a refusal is due to overload: 452, or 450 4.7.x */
    bool repeated;       /* whether an earlier call with the same key has queued some */
};

void inject_answer_init(struct inject_answer *a);
void inject_answer_fini(struct inject_answer *a);

/* Adds a message that was committed, for recipient `rcpt`, or, if its ptr is NULL, for `rcpts`
 * recipients. */
void inject_answer_queued(struct inject_answer *a, struct slice id, struct slice rcpt,
                          uint32_t rcpts, bool repeated);

/* Adds the refusal of a recipient, or of a whole message if `rcpt.ptr` is NULL, as an SMTP
 * reply. */
void inject_answer_refused(struct inject_answer *a, struct slice rcpt, unsigned code,
                           struct slice status, struct slice text);

/* Prints the document, with `error` unless its ptr is NULL. */
void inject_answer_put(struct inject_answer *a, struct slice error, struct buf *out);

/* Appends a text as a JSON string, with quotes. Bytes that are not UTF-8 become `?`. */
void json_put_text(struct buf *out, struct slice text);

#endif
