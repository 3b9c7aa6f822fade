/*
 * "What TLS would mail for this domain get?" (operation "tls" of docs/api.md): the configuration
 * and the policies are known here, the DNS is asked in the process that would deliver
 * (WIRE_TLS_LOOK).
 *
 * Owns what is asked of the control process and not answered. Each question is answered: by that
 * process, at its end, or at once when there are TLS_QUESTIONS_MAX. A control process that has
 * ended gets no answer: the next one has questions of its own.
 */
#ifndef QUEUE_TLS_QUESTION_H
#define QUEUE_TLS_QUESTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "slice.h"

struct queue;
struct tls_question;

#define TLS_QUESTIONS_MAX 100u

struct tls_questions {
    LIST_HEAD(, tls_question) all;
    unsigned count;
    uint64_t last_token;
};

void tls_questions_init(struct tls_questions *t);
/* The control process that asked is gone, or this one ends: no more answers to what was asked. */
void tls_questions_drop(struct tls_questions *t);

/* As operation.later. */
unsigned tls_question_ask(struct queue *q, const json_t *question, uint64_t token,
                          json_t **ret_answer);

/* WIRE_TLS_SEEN of a process, by its number; false: it does not decode, or was not asked. */
bool tls_question_seen(struct queue *q, uint32_t agent, struct slice body);

/* The process is gone. */
void tls_questions_lost(struct queue *q, uint32_t agent);

#endif
