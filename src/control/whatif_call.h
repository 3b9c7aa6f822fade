/*
 * POST /v1/whatif: simulates the mail of the last hours with another value of a parameter.
 *
 *     IDLE --call--> SEEKS --where the hours begin--> RUNS --answer--> IDLE
 *                                                     |  ^
 *                                                     +--+ pages of the journal, on request
 *
 * The process whatif (whatif/whatif.h) runs the simulation. This module passes events to it, page
 * by page, and its answer to the client. There is one run at a time. A run ends when its client
 * leaves, when either process ends, and after WHATIF_CALL_S.
 */
#ifndef CONTROL_WHATIF_CALL_H
#define CONTROL_WHATIF_CALL_H

#include <jansson.h>

#define WHATIF_HOURS_MAX  168
#define WHATIF_EVENTS_MAX 400000u /* largest number of events; the latest are used */
#define WHATIF_CALL_S     300

struct api_call;
struct control;
struct event_base;
struct whatif_call;

struct whatif_call *whatif_call_new(struct control *control, struct event_base *base);

/* Frees the state. Called before the calls are freed. `w` may be NULL. */
void whatif_call_free(struct whatif_call *w);

/* Takes a channel to the process. */
void whatif_call_peer(struct whatif_call *w, int fd);

/* Answers this call. Does not take the query. */
void whatif_call(struct whatif_call *w, struct api_call *call, const json_t *question);

#endif
