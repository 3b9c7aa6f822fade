/*
 * POST /v1/whatif: the mail of the last hours once more, with another value of a parameter.
 *
 *     IDLE --call--> SEEKS --where the hours begin--> RUNS --answer--> IDLE
 *                                                     |  ^
 *                                                     +--+ pages of the journal, as they are wanted
 *
 * The process whatif (whatif/whatif.h) does it; this passes events on to it, page by page, and its
 * answer to the client. There is one run at a time. It ends when its client goes away, when either
 * process does, and after WHATIF_CALL_S.
 */
#ifndef CONTROL_WHATIF_CALL_H
#define CONTROL_WHATIF_CALL_H

#include <jansson.h>

#define WHATIF_HOURS_MAX  168
#define WHATIF_EVENTS_MAX 400000u /* of more, the latest */
#define WHATIF_CALL_S     300

struct api_call;
struct control;
struct event_base;
struct whatif_call;

struct whatif_call *whatif_call_new(struct control *control, struct event_base *base);

/* Before the calls are freed. NULL is fine. */
void whatif_call_free(struct whatif_call *w);

/* A channel to the process, which is taken. */
void whatif_call_peer(struct whatif_call *w, int fd);

/* Answer this call. Does not take the question. */
void whatif_call(struct whatif_call *w, struct api_call *call, const json_t *question);

#endif
