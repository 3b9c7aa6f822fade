/*
 * Operation "tls" of docs/api.md: which TLS would mail for this domain get? The queue process has
 * the configuration and the policies; the process that would deliver queries the DNS
 * (WIRE_TLS_LOOK).
 *
 * Owns the questions without an answer. Each question is answered: by the result of that process,
 * when that process ends, or at once if there are TLS_QUESTIONS_MAX. Questions of a control process
 * that has ended are dropped; the next one has its own.
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
/* Drops all questions: the control process that asked has gone, or this process ends. */
void tls_questions_drop(struct tls_questions *t);

/* Begins a question, like operation.later. */
unsigned tls_question_ask(struct queue *q, const json_t *question, uint64_t token,
                          json_t **ret_answer);

/* Handles WIRE_TLS_SEEN of a process, by its number. Returns false if it does not decode, or was
 * not requested. */
bool tls_question_seen(struct queue *q, uint32_t agent, struct slice body);

/* Answers questions with an error after their process has gone. */
void tls_questions_lost(struct queue *q, uint32_t agent);

#endif
