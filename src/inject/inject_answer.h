/*
 * What a call is answered: JSON, built while its messages are decided (docs/injection.md).
 *
 *     {"queued":[{"id":"..","recipients":2}],
 *      "refused":[{"recipient":"..","code":550,"status":"5.1.1","text":".."}]}
 *
 * A message for one recipient alone has "recipient" in the place of "recipients". When nothing was
 * queued "error" says why. Bounded by INJECT_ANSWER_MAX, which holds all that a call of the most
 * recipients can have; a plain value, fields are private to inject_answer.c.
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
    struct buf queued, refused; /* elements with commas between them */
    size_t queued_count, refused_count;
    unsigned least_code; /* of the refused: 4xx before 5xx; 0: none */
    bool busy;           /* one of the refused is so because of too much: 452, or 450 4.7.x */
    bool repeated;       /* some were queued by an earlier call with the same key */
};

void inject_answer_init(struct inject_answer *a);
void inject_answer_fini(struct inject_answer *a);

/* A message is committed. `rcpt` with ptr NULL: for `rcpts` recipients. */
void inject_answer_queued(struct inject_answer *a, struct slice id, struct slice rcpt,
                          uint32_t rcpts, bool repeated);

/* A recipient (ptr NULL: a message as a whole) is refused, in SMTP's words. */
void inject_answer_refused(struct inject_answer *a, struct slice rcpt, unsigned code,
                           struct slice status, struct slice text);

/* The document; `error` (ptr NULL: none) in front. */
void inject_answer_put(struct inject_answer *a, struct slice error, struct buf *out);

/* Append a text as JSON has it, with quotes. What is no UTF-8 becomes `?`. */
void json_put_text(struct buf *out, struct slice text);

#endif
